"""pcuq demo."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from pcuq.cli.app import Json, Seed, command, say, timed
from pcuq.cli.cache import use_compilation_cache
from pcuq.cli.files import make_folder, print_json


@command("pcuq demo --out demo", "pcuq demo --seed 3 --json > demo.json")
def demo(
    out: Annotated[Path, typer.Option(help="Folder for what is made.")] = Path("demo"),
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """See it work: both Lotka–Volterra cases by three methods, as figures and a report."""
    say("Lotka–Volterra, two cases by three methods: a minute or two, most of it compiling")
    use_compilation_cache()
    from pcuq.demo import demo as run

    make_folder(out)
    summary = run(out, seed, tell=timed())
    if as_json:
        print_json(summary)
    else:
        typer.echo(_table(summary))
    say(f"wrote {out / 'report.html'}, summary.json, parameters.png and predictions.png")


def _table(summary: dict[str, Any]) -> str:
    lines = [f"{'case':16}{'method':12}{'50 %':>7}{'90 %':>7}{'CRPS':>9}{'seconds':>9}  trusted"]
    for case, methods in summary["cases"].items():
        for method, row in methods.items():
            half, most = row["coverage"]["0.5"], row["coverage"]["0.9"]
            lines.append(
                f"{case:16}{method:12}{half:7.2f}{most:7.2f}{row['crps']:9.3g}{row['seconds']:9.1f}"
                f"  {'yes' if row['trusted'] else 'no'}"
            )
    return "\n".join(lines)
