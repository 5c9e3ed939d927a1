"""pcuq bench."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from pcuq.cli.app import Json, command, say, timed
from pcuq.cli.files import print_json


@command(
    "pcuq bench --quick",
    "pcuq bench --json > bench.json",
    "pcuq bench --reference prediction_centric_uq",
)
def bench(
    as_json: Json = False,
    quick: Annotated[bool, typer.Option("--quick", help="Lotka–Volterra, N = 10 alone.")] = False,
    reference: Annotated[
        Path | None,
        typer.Option(help="A checkout of the authors' code: it is run, and timed beside."),
    ] = None,
) -> None:
    """Compile and run times, with the error of the ODE solver beside them."""
    say("compiling for each size, without the cache: a few minutes (--quick: less than one)")
    from pcuq.bench import bench as run

    found = run(quick, reference, tell=timed())
    if as_json:
        print_json(found)
    else:
        typer.echo(_table(found))


def _table(found: dict[str, Any]) -> str:
    head = ("ms_per_gradient", "ms_per_mala_iteration", "compile_s", "steps", "ode_error")
    lines = [f"{'model':16}{'N':>6}" + "".join(f"{name:>23}" for name in head)]
    for model in ("lotka_volterra", "erk"):
        for count, row in found.get(model, {}).items():
            figures = "".join(f"{row[name]:23.3g}" for name in head)
            lines.append(f"{model:16}{count:>6}{figures}")
    for model, rows in found.get("reference", {}).items():
        for count, row in rows.items():
            times = f", {row['times_as_long']:.3g} times ours" if "times_as_long" in row else ""
            took = f"{row['ms_per_mala_iteration']:.3g} ms per MALA iteration{times}"
            lines.append(f"the authors' code, {model}, N = {count}: {took}")
    return "\n".join(lines)
