"""From files to problems and fits.

A PROBLEM is a PEtab YAML file, a Python file that defines `problem`, or one that defines `model`
together with a table of measurements. A run file names its problem; a Python file is only ever
executed when the user gives it.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from pcuq.cli.app import say
from pcuq.cli.options import parse_noise
from pcuq.errors import InputError

if TYPE_CHECKING:
    from pcuq.io.source import Source
    from pcuq.problem import Problem
    from pcuq.result import Fit

PEtab = (".yaml", ".yml")

ProblemArgument = Annotated[
    Path,
    typer.Argument(
        help="PEtab YAML, or a Python file that defines `problem` (or `model`, with --data)."
    ),
]
DataOption = Annotated[
    Path | None,
    typer.Option(help="CSV of measurements, a column per output, for a file with `model`."),
]
CovariateOption = Annotated[
    str | None, typer.Option(help="Its column of times, `time` by default; empty for none.")
]
OutputsOption = Annotated[
    str | None, typer.Option(help="Its columns to use, with commas; by default all outputs.")
]
ConditionsOption = Annotated[str | None, typer.Option(help="Its column of conditions.")]
NoiseOption = Annotated[
    str | None,
    typer.Option(help="sd of a measurement: a number, one per output, or a parameter's name."),
]
ProblemOption = Annotated[
    Path | None,
    typer.Option(
        "--problem", help="The Python file that was fitted; not needed for PEtab problems."
    ),
]
ChangedOption = Annotated[
    bool,
    typer.Option("--even-if-changed", help="Accept a Python file that was edited since the fit."),
]


class Table(NamedTuple):
    """Measurements in a CSV file, and what its columns are."""

    text: str
    name: str
    x: str | None
    outputs: list[str] | None
    condition: str | None
    noise: str


class Loaded(NamedTuple):
    """A problem and where it came from."""

    problem: Problem
    source: Source


def read_table(
    path: Path | None, x: str | None, outputs: str | None, condition: str | None, noise: str | None
) -> Table | None:
    """The table that options describe, None where there is none."""
    if path is None:
        if any(option is not None for option in (noise, outputs, condition, x)):
            raise InputError(
                "--noise, --outputs, --condition and --x describe a table: give --data."
            )
        return None
    from pcuq._given import check_file, read_text

    check_file(path, "file", "give a CSV file with a row per measurement")
    if noise is None:
        raise InputError(
            "--data needs --noise, the sd of a measurement: a number, one per output with commas, "
            "or the name of a parameter."
        )
    names = None if outputs is None else [name.strip() for name in outputs.split(",")]
    covariate = "time" if x is None else x or None
    return Table(read_text(path), path.name, covariate, names, condition, noise)


def load_problem(path: Path, table: Table | None = None) -> Loaded:
    """The problem of a PEtab YAML or a Python file; the latter is executed."""
    from pcuq._given import check_file

    wanted = "give a PEtab YAML file, or a Python file that defines `problem`"
    check_file(path, "file", wanted)
    if path.suffix.lower() in PEtab:
        if table is not None:
            raise InputError("a PEtab problem has its own measurements: leave --data out.")
        return _petab(path)
    if path.suffix != ".py":
        raise InputError(
            f"{path} needs to be a PEtab YAML file (.yaml) or a Python file (.py) that defines "
            "`problem`."
        )
    from pcuq.io.python_file import names_in
    from pcuq.io.source import python_source
    from pcuq.problem import Problem

    names = names_in(path)
    if table is not None:
        options = {key: value for key, value in table._asdict().items() if key != "text"}
        return Loaded(
            _of_table(path, names, table), python_source(path, {table.name: table.text}, **options)
        )
    found = names.get("problem")
    if not isinstance(found, Problem):
        came = "no such name" if found is None else type(found).__name__
        hint = " It defines `model`: give its measurements with --data." if "model" in names else ""
        raise InputError(f"{path} needs to define `problem`, a pcuq.Problem: got {came}.{hint}")
    return Loaded(found, python_source(path))


def load_run(path: Path, problem: Path | None = None, even_if_changed: bool = False) -> Fit:
    """A fit with its problem: from the run file itself, or from the file that is given."""
    return load_runs([path], problem, even_if_changed)[0]


def load_runs(
    paths: Sequence[Path], problem: Path | None = None, even_if_changed: bool = False
) -> list[Fit]:
    """Fits with their problems; one that is the same for several is read and executed once."""
    from pcuq.io.source import source_of
    from pcuq.result import load

    found, known = [], {}
    for path in paths:
        source = source_of(load(path).tree)
        if repr(source) not in known:
            known[repr(source)] = _problem_of(path, source, problem, even_if_changed)
        found.append(load(path, problem=known[repr(source)]))
    return found


def _problem_of(
    path: Path, source: Source | None, problem: Path | None, even_if_changed: bool
) -> Problem:
    from pcuq.io.source import PETAB, rebuild, text_digest

    if problem is None:
        if source is not None and source.kind == PETAB and source.files:
            return rebuild(source)
        named = "" if source is None else f" It was {source.main} when it was fitted."
        raise InputError(
            f"{path} does not hold the code of its problem, and none is run without being named: "
            f"give --problem FILE.{named}"
        )
    table = None
    if source is not None and source.kind != PETAB:
        there = os.path.isfile(problem)
        if there and text_digest(problem) != source.digest and not even_if_changed:
            raise InputError(
                f"{problem} is not the file that was fitted ({source.main}), or was edited since: "
                "give that one, fit again, or add --even-if-changed if the model is the same."
            )
        if source.options:
            table = _kept_table(path, source)
    return load_problem(problem, table).problem


def _kept_table(path: Path, source: Source) -> Table:
    """The table that a run carries, with the columns that were used."""
    try:
        table = Table(text=source.files[source.options["name"]], **source.options)
        columns = (table.x, table.condition, *(table.outputs or ()))
        names = all(name is None or isinstance(name, str) for name in columns)
        if names and isinstance(table.noise, str):
            return table
    except (KeyError, TypeError):
        pass
    raise InputError(f"{path} does not say how its table is to be read: fit again.")


def read_heldout(path: Path, fit: Fit):
    """Measurements that were not fitted: a problem's, or those of a table like the fitted one."""
    if path.suffix.lower() != ".csv":
        return load_problem(path).problem
    from pcuq._given import check_file, read_text
    from pcuq.data import Data
    from pcuq.io.source import source_of
    from pcuq.problem import Problem

    check_file(path, "file", "give a CSV file with a row per measurement")
    assert fit.problem is not None
    source = source_of(fit.tree)
    options = source.options if source is not None else {}
    frame = _frame(read_text(path), path.name)
    names = [name for name in fit.problem.outputs if name in frame.columns]
    if not names:
        raise InputError(f"{path} has no column named like {_list(fit.problem.outputs)}.")
    labels = sorted(set(fit.problem.data.condition.tolist()) - {""})
    if labels and not options.get("condition"):
        raise InputError(
            f"{path} cannot say which of the conditions {_list(labels)} its rows belong to: give a "
            "problem file instead."
        )
    x = options.get("x", "time") if fit.problem.data.x is not None else None
    data = Data.from_frame(frame, x, names, options.get("condition"))
    return Problem(fit.problem.model, data, conditions=fit.problem.conditions)


def describe(problem: Problem) -> str:
    """One line on what is to be inferred."""
    data = problem.data
    labels = sorted(set(data.condition.tolist()) - {""})
    conditions = f", {len(labels)} conditions" if len(labels) > 1 else ""
    return (
        f"{data.n} rows of {_list(problem.outputs)}{conditions}; "
        f"to be inferred: {_list(problem.parameters.names)}"
    )


def _list(names) -> str:
    names = list(names)
    return (
        ", ".join(names) if len(names) <= 6 else f"{', '.join(names[:5])} and {len(names) - 5} more"
    )


def _petab(path: Path) -> Loaded:
    from pcuq.io.petab import from_petab
    from pcuq.io.source import PETAB, Source, petab_source, text_digest

    problem = from_petab(path)
    try:
        return Loaded(problem, petab_source(path))
    except (InputError, OSError) as error:
        say(f"warning: the run will not carry its problem: {error}")
        return Loaded(problem, Source(PETAB, path.name, text_digest(path)))


def _frame(text: str, name: str) -> Any:
    import pandas as pd

    try:
        if not text.strip():
            raise ValueError("it is empty")
        # pandas would give columns other names, or make an index of those that it did not expect.
        header, *rows = filter(None, csv.reader(io.StringIO(text), skipinitialspace=True))
        if len(set(header)) < len(header):
            raise ValueError("two columns have the same name")
        if unlike := [number for number, row in enumerate(rows, 1) if len(row) != len(header)]:
            raise ValueError(f"row {unlike[0]} has more or fewer columns than the header")
        return pd.read_csv(io.StringIO(text), skipinitialspace=True)
    except Exception as error:
        said = " ".join(str(error).split())
        raise InputError(f"{name} cannot be read as CSV: {said}.") from None


def _of_table(path: Path, names: dict[str, Any], table: Table) -> Problem:
    """`model` of the file with the measurements of the table; `kernel` and `conditions` if any."""
    from pcuq.data import Data
    from pcuq.problem import Problem

    model = names.get("model")
    if model is None:
        raise InputError(f"{path} needs to define `model`, for the measurements in {table.name}.")
    frame = _frame(table.text, table.name)
    outputs = table.outputs
    if outputs is None:
        outputs = [name for name in getattr(model, "outputs", ()) if name in frame.columns]
        if not outputs:
            raise InputError(
                f"{table.name} has no column named like an output of the model "
                f"({', '.join(getattr(model, 'outputs', ()))}): it has "
                f"{', '.join(map(str, frame.columns))}; rename them, or name them with --outputs."
            )
    data = Data.from_frame(
        frame, x=table.x, outputs=outputs, condition=table.condition, noise=parse_noise(table.noise)
    )
    return Problem(model, data, kernel=names.get("kernel"), conditions=names.get("conditions"))  # pyright: ignore[reportArgumentType]: None is the default kernel
