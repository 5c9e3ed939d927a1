"""pcuq report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pcuq.cli.app import Json, command, say
from pcuq.cli.cache import use_compilation_cache
from pcuq.cli.files import check_out, print_json, write
from pcuq.cli.problems import ChangedOption, ProblemOption, load_runs, read_heldout

if TYPE_CHECKING:
    from pcuq.result import Fit


@command(
    "pcuq report decay.nc --out decay.html",
    "pcuq report decay.nc decay-bayes.nc --out both.html",
    'pcuq report decay.nc --problem examples/decay.py --do "k*=0.5@6" --out drug.html',
    "pcuq report decay.nc --problem examples/decay.py --heldout later.csv --out tested.html",
)
def report(
    runs: Annotated[list[Path], typer.Argument(help="Files that `pcuq fit` wrote.")],
    out: Annotated[Path, typer.Option(help="The page, one file.")] = Path("report.html"),
    problem: ProblemOption = None,
    do: Annotated[
        list[str] | None,
        typer.Option(
            help="Intervention to compare with control; may be repeated. Several at once: a;b."
        ),
    ] = None,
    condition: Annotated[
        str | None, typer.Option(help="Of the problem's, under which interventions are made.")
    ] = None,
    heldout: Annotated[
        Path | None,
        typer.Option(help="What was not fitted: a CSV with the same columns, or a problem file."),
    ] = None,
    title: Annotated[
        str, typer.Option(help="Of the page.")
    ] = "Can this model be trusted to predict?",
    even_if_changed: ChangedOption = False,
    as_json: Json = False,
) -> None:
    """One self-contained page: the verdict, bands, parameters, convergence, interventions."""
    check_out(out, (".html", ".htm"))
    say(f"reading {', '.join(map(str, runs))}")
    use_compilation_cache()
    from pcuq.report.page import report_and_figures

    needed = bool(do or heldout)
    fits = _load(runs, problem, even_if_changed, needed)
    held = read_heldout(heldout, fits[0]) if heldout is not None else ()
    say("drawing")
    names = [path.name for path in runs]
    page, found = report_and_figures(fits, held, do or (), title, names, condition=condition)
    write(out, lambda path: path.write_text(page, encoding="utf-8"))
    if as_json:
        print_json(found)
    else:
        typer.echo("\n".join(part["verdict"]["answer"] for part in found))
    say(f"wrote {out}, {len(page.encode()) / 1e6:.1f} MB: open it in a browser")


def _load(runs: list[Path], problem: Path | None, changed: bool, needed: bool) -> list[Fit]:
    """With their problem where that is given or needed; a plain report does without."""
    if problem is not None or needed:
        return load_runs(runs, problem, changed)
    from pcuq.result import load

    return [load(path) for path in runs]
