"""pcuq score."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pcuq.cli.app import Json, Seed, command, say
from pcuq.cli.cache import use_compilation_cache
from pcuq.cli.files import check_out, print_json, write
from pcuq.cli.problems import ChangedOption, ProblemOption, load_problem, load_runs


@command(
    "pcuq score control.nc treated.yaml",
    "pcuq score control.nc control-bayes.nc treated.yaml --out scores.png",
    "pcuq score decay.nc later.py --problem examples/decay.py --json",
)
def score(
    runs: Annotated[
        list[Path],
        typer.Argument(help="Files that `pcuq fit` wrote, then the held-out problem's."),
    ],
    problem: ProblemOption = None,
    out: Annotated[Path | None, typer.Option(help="Figure of the scores: .png or .pdf.")] = None,
    seed: Seed = 0,
    even_if_changed: ChangedOption = False,
    as_json: Json = False,
) -> None:
    """How well fits predict a second problem's measurements: CRPS, coverage, PIT and more."""
    from pcuq.errors import InputError

    if len(runs) < 2:
        raise InputError("give at least one run, and after it the held-out problem.")
    if out is not None:
        check_out(out, (".png", ".pdf"))
    *files, heldout = runs
    say(f"reading {', '.join(map(str, runs))}")
    use_compilation_cache()
    from pcuq.score import score as run

    fits = {}
    for path, fitted in zip(files, load_runs(files, problem, even_if_changed), strict=True):
        if not fitted.trusted:
            say(f"warning: {path}: {fitted.status}")
        names = (fitted.method, path.stem, str(path))
        fits[next((name for name in names if name not in fits), names[-1])] = fitted
    found = run(fits, load_problem(heldout).problem, seed=seed)
    if out is not None:
        write(out, lambda path: found.plot().savefig(path, dpi=150, format=out.suffix[1:]))
        say(f"wrote {out}")
    if as_json:
        print_json(found.to_dict())
    else:
        typer.echo(found.table().to_string())
