"""pcuq study."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pcuq.cli.app import Json, Seed, command, say
from pcuq.cli.cache import use_compilation_cache
from pcuq.cli.files import print_json
from pcuq.cli.options import number_or_word, parse_times
from pcuq.errors import InputError

if TYPE_CHECKING:
    from pcuq.study.drive import Listener, Step

SECONDS_BETWEEN_LINES = 5.0


@command(
    "pcuq study coverage --problem lotka-volterra --replicates 100 --out lv",
    "pcuq study coverage --problem decay.py --replicates 20 --times 0:24:1 --workers 4 --out decay",
    "pcuq study sensitivity --problem decay.py --replicates 10 --multiples 0.1,1,10 --out sens",
    "pcuq study spread --problem problem.yaml --replicates 10 --scheduler tcp://host:8786 --out n",
)
def study(
    kind: Annotated[str, typer.Argument(help="coverage, sensitivity or spread.")],
    problem: Annotated[
        str,
        typer.Option(help="lotka-volterra, PEtab YAML, or a Python file that defines `problem`."),
    ],
    out: Annotated[Path, typer.Option(help="Folder; one that holds this study is gone on with.")],
    replicates: Annotated[int, typer.Option(min=1, help="Data sets of each case.")] = 20,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Processes on this machine; one per core.")
    ] = None,
    scheduler: Annotated[
        str | None, typer.Option(help="Address of a Dask scheduler to use instead.")
    ] = None,
    methods: Annotated[
        str | None, typer.Option(help="Some of bayes,mmd-bayes,pcuq; by default all.")
    ] = None,
    cases: Annotated[
        str | None, typer.Option(help="Some of well-specified,misspecified; by default all.")
    ] = None,
    regularisation: Annotated[
        str | None, typer.Option(help="λ, or auto: calibrated once for the study.")
    ] = None,
    times: Annotated[
        str | None, typer.Option(help="start:stop:step at which bands are scored.")
    ] = None,
    multiples: Annotated[str | None, typer.Option(help="Of λ, in a sensitivity study.")] = None,
    widths: Annotated[str | None, typer.Option(help="Of the kernel, as multiples of ℓ_Y.")] = None,
    combine: Annotated[str | None, typer.Option(help="product,sum: of outputs.")] = None,
    sizes: Annotated[str | None, typer.Option(help="Multiples of n, in a spread study.")] = None,
    particles: Annotated[int | None, typer.Option(help="N of PCUQ.")] = None,
    systems: Annotated[int | None, typer.Option(help="Systems of PCUQ.")] = None,
    warmup: Annotated[int | None, typer.Option(help="Iterations of PCUQ before any kept.")] = None,
    draws: Annotated[int | None, typer.Option(help="Iterations of PCUQ that are kept.")] = None,
    baseline_sampler: Annotated[str | None, typer.Option(help="Of the other methods.")] = None,
    baseline_warmup: Annotated[int | None, typer.Option(help="Of the other methods.")] = None,
    baseline_draws: Annotated[int | None, typer.Option(help="Of the other methods.")] = None,
    beta: Annotated[
        str, typer.Option(help="Of MMD-Bayes: a number, matched for 1/(2λ), or paper.")
    ] = "matched",
    seed: Seed = 0,
    retry_failed: Annotated[
        bool, typer.Option("--retry-failed", help="Run tasks again that ended with an error.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Simulate, fit by every method and score, many times over, on one machine or a cluster."""
    if workers is not None and scheduler is not None:
        raise InputError("--workers and --scheduler exclude each other: give one of them.")
    lam = None
    if regularisation is not None:
        lam = number_or_word("regularisation", regularisation, ("auto",))
    baseline = {
        "sampler": baseline_sampler,
        "warmup": baseline_warmup,
        "draws": baseline_draws,
    }
    given = {
        "pcuq": {"particles": particles, "systems": systems, "warmup": warmup, "draws": draws},
        "bayes": baseline,
        "mmd-bayes": {**baseline, "beta": number_or_word("beta", beta, ("matched", "paper"))},
    }
    use_compilation_cache()
    from pcuq.study import make_plan, run

    plan = make_plan(
        kind,
        problem,
        replicates,
        seed=seed,
        methods=_words(methods),
        cases=_words(cases),
        regularisation=lam,
        options=given,
        times=None if times is None else parse_times(times).tolist(),
        multiples=_numbers("multiples", multiples),
        widths=_numbers("widths", widths),
        combines=_words(combine),
        sizes=_numbers("sizes", sizes),
    )
    say(f"{len(plan.tasks())} fits; results are kept in {out} as they come")
    with _going_on(out), _listening() as listen:
        found = run(plan, out, workers, scheduler, retry_failed, listen)
    if as_json:
        print_json(found)
    else:
        typer.echo(_table(found))
    for error in found["errors"][:3]:
        say(f"task {error['task']} failed: {error['kind']}: {error['message']}")
    say(f"wrote {out / 'summary.json'}, summary.csv, tasks.csv and {kind}.png")


def _table(found: dict[str, Any]) -> str:
    head = f"{'case':16}{'method':11}{'setting':14}{'50 %':>6}{'± ':>7}{'90 %':>6}{'± ':>7}"
    lines = [head + f"{'CRPS':>9}{'spread':>9}{'R-hat':>7}  fits"]
    for case, methods in found["cases"].items():
        for method, rows in methods.items():
            named = {"": rows} if found["study"] == "coverage" else rows
            for setting, row in named.items():
                error = row["standard_errors"]["coverage"]
                figures = "".join(
                    f"{_figure(row['coverage'][level], '.2f'):>6}{_figure(error[level], '.3f'):>7}"
                    for level in ("0.5", "0.9")
                )
                figures += f"{_figure(row['crps'], '.3g'):>9}{_figure(row['spread'], '.3g'):>9}"
                figures += f"{_figure(row['rhat_max'], '.2f'):>7}"
                lines.append(f"{case:16}{method:11}{setting:14}{figures}  {row['status']}")
    return "\n".join(lines)


def _figure(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)


def _words(text: str | None) -> list[str] | None:
    return None if text is None else [word.strip() for word in text.split(",")]


def _numbers(name: str, text: str | None) -> list[float] | None:
    try:
        return None if text is None else [float(part) for part in text.split(",")]
    except ValueError:
        raise InputError(f"--{name} needs numbers with commas between: got {text!r}.") from None


@contextmanager
def _going_on(out: Path) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        say(f"what is done is kept in {out}: the same command goes on")
        raise


@contextmanager
def _listening() -> Iterator[Listener]:
    """A bar on a terminal, lines now and then elsewhere."""
    if not sys.stderr.isatty():
        yield _plain_lines()
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (BarColumn(bar_width=30), MofNCompleteColumn(), TimeElapsedColumn())
    left = (TextColumn("left"), TimeRemainingColumn(), TextColumn("{task.fields[figures]}"))
    with Progress(*columns, *left, console=Console(stderr=True), transient=True) as shown:
        bar = shown.add_task("fits", total=None, figures="")

        def listen(step: Step) -> None:
            shown.update(bar, completed=step.done, total=step.total, figures=_said(step))

        yield listen


def _plain_lines() -> Listener:
    """A line for the first and the last task, and now and then between."""
    last = [-SECONDS_BETWEEN_LINES]

    def listen(step: Step) -> None:
        now = time.monotonic()
        if step.done < step.total and now - last[0] < SECONDS_BETWEEN_LINES:
            return
        last[0] = now
        say(f"{step.done}/{step.total} fits  {_said(step)}")

    return listen


def _said(step: Step) -> str:
    failed = f", {step.failed} failed" if step.failed else ""
    if step.record is None:
        return f"preparing on {step.workers} workers{failed}"
    return f"on {step.workers} workers{failed}"
