"""pcuq calibrate."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Any

import typer

from pcuq.cli.app import Json, Seed, command, say, timed
from pcuq.cli.cache import use_compilation_cache
from pcuq.cli.files import check_out, print_json, write
from pcuq.cli.problems import describe, load_problem


@command(
    "pcuq calibrate examples/decay.py",
    "pcuq calibrate examples/decay.py --plot calibration.png",
    "pcuq calibrate problem.yaml --json > calibration.json",
)
def calibrate(
    problem: Annotated[
        Path, typer.Argument(help="PEtab YAML, or a Python file that defines `problem`.")
    ],
    plot: Annotated[
        Path | None, typer.Option(help="PNG, PDF or SVG of the curves that λ★ comes from.")
    ] = None,
    replicates: Annotated[
        int | None,
        typer.Option(help="Simulated data sets to average over; as `fit` has them."),
    ] = None,
    score: Annotated[
        bool, typer.Option("--score", help="Also the λ that predicts held-out data best.")
    ] = False,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Choose λ: as much regularisation as an honest answer bears, on data from the fitted model."""
    if plot is not None:
        check_out(plot, (".png", ".pdf", ".svg"), "--plot")
    say(f"reading {problem}")
    loaded = load_problem(problem).problem
    say(describe(loaded))
    use_compilation_cache()
    from pcuq.calibrate import REPLICATES
    from pcuq.calibrate import calibrate as run
    from pcuq.selection import select_by_score

    tell = timed()
    sets = REPLICATES if replicates is None else replicates
    found = run(loaded, replicates=sets, seed=seed, tell=tell).to_dict()
    if score:
        found["by_score"] = select_by_score(loaded, seed=seed, tell=tell).to_dict()
    if plot is not None:
        write(plot, lambda path: _draw(found, path))
        say(f"wrote {plot}")
    if as_json:
        print_json(found)
    else:
        typer.echo(_table(found))


def _draw(found: dict[str, Any], path: Path) -> None:
    from matplotlib.figure import Figure

    from pcuq.plots import plot_calibration

    figure = Figure(figsize=(7.6, 3.2), layout="constrained")
    plot_calibration(found, figure.subplots(1, 2))
    figure.savefig(path, dpi=150)


def _table(found: dict[str, Any]) -> str:
    from statistics import mean, median

    lines = [f"{'λ':>10}{'outside':>10}{'spread':>10}"]
    moving = False
    for k, lam in enumerate(found["lams"]):
        share, width = mean(row[k] for row in found["outside"]), median(_column(found["spread"], k))
        settled = all(row[k] for row in found["settled"])
        moving |= not settled
        lines.append(f"{lam:10.2g}{share:10.3f}{width:10.3g}{'' if settled else '  *'}")
    if moving:
        lines.append("* Q had not come to rest on every simulated set: these are less sure")
    bayes = median(found["bayes_spread"])
    lines.append(f"spread of Bayes {bayes:.3g}, of PCUQ at the smallest λ {found['floor']:.3g}")
    if "by_score" in found:
        lines.append(f"best on held-out data: λ = {found['by_score']['regularisation']:.3g}")
    lines.append(
        f"λ★ = {found['regularisation']:.3g}, bound by {found['bound_by']}; "
        f"{found['seconds']:.0f} s"
    )
    return "\n".join(lines)


def _column(rows: list[list[float]], k: int) -> list[float]:
    """Where nothing fits there is no spread."""
    known = [row[k] for row in rows if not math.isnan(row[k])]
    return known or [math.nan]
