"""pcuq.from_petab: a PEtab problem, version 1 or 2, as a Problem.

Noise that depends on the state, or on what a condition changes, is an output of the model as well,
named "sd of ...", so that it is computed where the state is known.
"""

from __future__ import annotations

import csv
import io
import os
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from pcuq._given import check_file, read_text
from pcuq._x64 import x64
from pcuq.data import Data
from pcuq.errors import InputError
from pcuq.io import expressions as ex
from pcuq.io.expressions import Node
from pcuq.io.petab_conditions import (
    all_changes,
    as_condition,
    check_set_everywhere,
    common_start,
    has_start,
    what_changes,
)
from pcuq.io.petab_formulas import parse
from pcuq.io.petab_outputs import Output, find_outputs
from pcuq.io.petab_parameters import as_parameter, nominal_point
from pcuq.io.petab_tables import Observable, Tables, import_petab
from pcuq.io.sbml import build
from pcuq.io.sbml_system import Evaluation, System
from pcuq.kernels import GaussianKernel, Kernel
from pcuq.models.ode import ODEModel
from pcuq.noise import Gaussian, Laplace, Noise
from pcuq.parameters import Parameters
from pcuq.problem import Problem

FORMULAS = (
    "observableFormula", "noiseFormula", "targetValue", "observableParameters", "noiseParameters",
)  # fmt: skip
# Over more outputs a product is all but zero everywhere.
MOST_TOGETHER = 4


@x64
def from_petab(path: str | Path, kernel: Kernel | None = None) -> Problem:
    """The problem of a PEtab YAML file; `problem.nominal` is its nominal point.

    `kernel`: by default its width is set from the residuals of the starting fit; up to four
    observables that are always measured together combine by a product, and else each measurement
    is a datum of its own (`combine="sum"`). Conditions keep their ids; one that follows several
    preequilibrations is named "id after other".
    """
    tables = read(path)
    names = {name for name, row in tables.parameters.items() if row.estimate}
    if not names:
        raise InputError(f"{Path(path).name} estimates no parameter: set estimate to 1 for some.")
    parameters = Parameters(
        {n: as_parameter(n, tables.parameters[n]) for n in tables.parameters if n in names}
    )
    outputs = find_outputs(tables)
    model, system, unset = _model(tables, parameters, outputs)
    data = _data(tables, outputs, system)
    return Problem(
        model,
        data,
        _default_kernel(data) if kernel is None else kernel,
        conditions={
            name: as_condition(experiment, model.t0, system)
            for name, experiment in tables.experiments.items()
        },
        nominal=nominal_point(tables.parameters, parameters),
        unset=unset,
    )


def _default_kernel(data: Data) -> Kernel:
    together = data.d <= MOST_TOGETHER and bool(data.observed.all())
    return GaussianKernel("residuals", combine="product" if together else "sum")


def read(path: str | Path) -> Tables:
    """The tables behind a YAML file, of either version."""
    import_petab()
    path = check_file(path, "PEtab file", "give the path of a YAML file")
    config = read_config(path)
    version = str(config["format_version"]).split(".")[0]
    if version not in ("1", "2"):
        raise InputError(
            f"{path.name} is PEtab version {config['format_version']!r}: 1 and 2 are supported."
        )
    _check_files(path, config)
    try:
        if version == "1":
            from pcuq.io.petab_v1 import read_v1

            return read_v1(str(path), path.name)
        from pcuq.io.petab_v2 import read_v2

        return read_v2(str(path), path.name)
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"{path.name} cannot be read: {_said(error)}") from None


def read_config(path: Path) -> dict[str, Any]:
    """What the YAML file says."""
    import yaml

    text = read_text(path)
    try:
        # A few aliases of aliases make a tree that no memory holds.
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text)):
            raise InputError(
                f"{path.name} uses aliases (*name), which are not supported: write "
                "out what they stand for."
            )
        config = yaml.safe_load(text)
    except InputError:
        raise
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InputError(f"{path.name} is not valid YAML: {_one_line(error)}") from None
    if not isinstance(config, dict) or "format_version" not in config:
        raise InputError(f"{path.name} is no PEtab problem: it has no format_version.")
    return config


def _check_files(path: Path, config: dict[str, Any]) -> None:
    """Refuse what the YAML file itself gets wrong, and files that cannot be read, by name."""
    from pcuq.io.sbml_document import read as read_sbml

    problems = config.get("problems")
    first = str(config["format_version"]).startswith("1")
    if (first or "problems" in config) and not (isinstance(problems, list) and len(problems) == 1):
        raise InputError(
            f"{path.name} needs one entry in its list of problems: got "
            f"{len(problems) if isinstance(problems, list) else repr(problems)}; write a file for "
            "each model."
        )
    _check_extensions(path.name, config.get("extensions"))
    if "model_files" in config:
        _check_models(path.name, config["model_files"])
    for key, name in named_files(config):
        file = path.parent / name
        if not os.path.isfile(file):
            raise InputError(
                f"{path.name} names the file {name!r} in {key}, which is not there: add it, or "
                "correct the name."
            )
        if not file.stat().st_size:
            raise InputError(
                f"the file {name!r}, which {path.name} names in {key}, is empty: a table with a "
                "row of column names was wanted."
            )
        if key in ("sbml_files", "model_files") or file.suffix == ".xml":
            read_sbml(file)
        else:
            _check_table(file, formulas=not first)


def named_files(config: dict[str, Any]) -> list[tuple[str, str]]:
    """(the key that it stands under, name) of every file that a YAML names, of either version."""
    found: list[tuple[str, Any]] = []
    problems = config.get("problems")
    for section in (config, *(problems if isinstance(problems, list) else [])):
        for key, value in section.items() if isinstance(section, dict) else ():
            if str(key).endswith(("_file", "_files")):
                if isinstance(value, dict):  # models by name
                    value = [m.get("location") for m in value.values() if isinstance(m, dict)]
                found += [(key, name) for name in (value if isinstance(value, list) else [value])]
    return [(key, str(name)) for key, name in found if name is not None]


def _check_extensions(source: str, extensions: Any) -> None:
    """An extension changes what a problem means, unless the file says that it may be ignored."""
    for name, entry in extensions.items() if isinstance(extensions, dict) else ():
        if not isinstance(entry, dict) or entry.get("required", True):
            raise InputError(
                f"{source} needs the PEtab extension {name!r}, which is not supported."
            )


def _check_models(source: str, models: Any) -> None:
    """A version 2 problem may have several models, in several languages: one is read, in SBML."""
    if not isinstance(models, dict):
        return  # petab says what was wanted
    if len(models) != 1:
        raise InputError(
            f"{source} names {len(models)} models in model_files: one was wanted; write a file for "
            "each."
        )
    for name, model in models.items():
        language = model.get("language") if isinstance(model, dict) else None
        if language != "sbml":
            raise InputError(
                f"the model {name!r} of {source} is written in {language!r}: only sbml is read."
            )


def _check_table(path: Path, formulas: bool) -> None:
    """Refuse a column that comes twice, and rows that are longer than the header.

    pandas would give the column another name, and make an index of what it did not expect. With
    `formulas`, also those that petab, which reads them itself in version 2, would never end with.
    """
    try:
        rows = csv.reader(io.StringIO(read_text(path)), delimiter="\t")
        _check_rows(path, rows, formulas)
    except csv.Error as error:
        raise InputError(f"{path.name} cannot be read as a table: {error}.") from None


def _check_rows(path: Path, rows: Any, formulas: bool) -> None:
    header = next(rows, [])
    for name, count in Counter(header).items():
        if count > 1 and name:
            raise InputError(f"the table {path.name} has the column {name!r} twice: leave one.")
    for row in rows:
        if len(row) > len(header):
            raise InputError(
                f"line {rows.line_num} of {path.name} has {len(row)} entries for {len(header)} "
                "columns: leave as many as there are columns."
            )
        for name, entry in zip(header, row, strict=False) if formulas else ():
            for part in entry.split(";") if name in FORMULAS else ():
                if part.strip():
                    parse(part, f"{name} in line {rows.line_num} of {path.name}")


def _model(
    tables: Tables, parameters: Parameters, outputs: list[Output]
) -> tuple[ODEModel, System, tuple[str, ...]]:
    """The model, its equations, and what has a value in conditions only."""
    document, changed = tables.document, what_changes(tables)
    formulas = [f for o in outputs for f in (o.formula, o.noise) if f is not None]
    settings = [value for changes in all_changes(tables) for value in changes.values()]
    used = {*document.quantities, *ex.names(*formulas, *settings)}
    for name in parameters:
        if name not in used:
            raise InputError(
                f"the parameter table has {name!r}, which is neither in the model nor in a "
                "formula or condition: remove it, or correct the name."
            )
    for name, row in tables.parameters.items():
        if name in document.species or name in document.compartments or name in document.reactions:
            raise InputError(
                f"the parameter table has {name!r}, which is no parameter of the model."
            )
        if name in document.assignments or name in document.rates:
            raise InputError(f"the parameter table has {name!r}, which the model sets by a rule.")
        document.initial.pop(name, None)  # the table's value is what counts
        document.parameters[name] = None if row.estimate else row.nominal
    known = {*document.quantities, *tables.parameters, *ex.names(*formulas)}
    for name in sorted(changed - known):
        raise InputError(
            f"a condition sets {name!r}, which is neither in the model nor in a formula: add it, "
            "or correct the name."
        )
    unset = []
    for name in sorted(changed):
        if name in document.assignments or name in document.reactions:
            raise InputError(f"a condition sets {name!r}, which the model determines by a rule.")
        if name not in parameters and not has_start(document, name):
            check_set_everywhere(name, tables)
            unset.append(name)
            if name in document.species:
                document.species[name] = document.species[name]._replace(amount=0.0)
            else:
                document.parameters[name] = 0.0  # every experiment sets it
    for output in outputs:
        _check_formula(output.name, output.formula, document.quantities)
        if output.noise is not None:
            _check_formula(f"the noise of {output.name}", output.noise, document.quantities)
    system = System(document)
    scales = {
        o.name: o.noise for o in outputs if o.noise is not None and not _named(o, changed, system)
    }
    formulas = [*(o.formula for o in outputs), *scales.values()]

    def observe(t, u, p):
        values = Evaluation(system, t, u, p)
        return [ex.numeric(values(formula)) for formula in formulas]

    names = (*(o.name for o in outputs), *map(_scale_name, scales))
    model = build(system, parameters, outputs=names, observe=observe, t0=common_start(tables))
    return model, system, tuple(unset)


def _check_formula(what: str, formula: Node, known: tuple[str, ...]) -> None:
    for name in sorted(ex.names(formula) - set(known)):
        raise InputError(
            f"the formula of {what} names {name!r}, which is neither in the model nor in the "
            "parameter table: add it, or correct the name."
        )


def _scale_name(output: str) -> str:
    return f"sd of {output}"


def _named(output: Output, changed: set[str], system: System) -> bool:
    """Whether the noise is one parameter or constant, the same in all conditions."""
    noise = output.noise
    if noise is None or noise.op != "name" or noise.value in changed:
        return False
    return noise.value not in system.states and noise.value not in system.assigned


def _data(tables: Tables, outputs: list[Output], system: System) -> Data:
    """A row per experiment, time and replicate."""
    changed = what_changes(tables)
    place: dict[tuple, int] = {}
    entries = []
    for column, output in enumerate(outputs):
        counts: Counter[tuple[str, float]] = Counter()
        for k, i in enumerate(output.rows):
            measured = tables.measurements[i]
            key = (measured.experiment, measured.time)
            row = place.setdefault((*key, counts[key]), len(place))
            counts[key] += 1
            number = output.numbers[k] if output.numbers else 1.0
            entries.append((row, column, measured.value, number))
    y = np.full((len(place), len(outputs)), np.nan)
    scale = np.ones_like(y)
    for row, column, value, number in entries:
        y[row, column], scale[row, column] = value, number
    noises = []
    for column, output in enumerate(outputs):
        given: Any = scale[:, [column]]
        if output.noise is not None:
            given = output.noise.value if _named(output, changed, system) else _reader(output.name)
        noises.append(_noise(output.observable, given))
    return Data(
        y,
        x=np.array([time for _, time, _ in place]),
        noise=tuple(noises),
        condition=[label for label, _, _ in place],
        outputs=[output.name for output in outputs],
    )


def _reader(output: str):
    name = _scale_name(output)
    return lambda x, w, p: w[name]


def _noise(observable: Observable, scale: Any) -> Noise:
    law = Gaussian if observable.law == "normal" else Laplace
    return law(scale, transform=observable.transform)


def _said(error: Exception) -> str:
    """What another package found wrong, in one sentence."""
    found: Any = getattr(error, "errors", None)
    if found is not None and (details := found()):  # pydantic's: where, and what was wanted
        where = ".".join(map(str, details[0]["loc"])) or type(error).__name__
        return f"{where}: {details[0]['msg']}, got {details[0]['input']!r:.60}."
    if isinstance(error, KeyError) and error.args:
        return str(error.args[0])
    if isinstance(message := getattr(error, "message", None), str):  # jsonschema's, without it all
        where = ".".join(map(str, getattr(error, "path", ())))
        return f"{where}: {message}." if where else f"{message}."
    return f"{type(error).__name__}: {_one_line(error)}"


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
