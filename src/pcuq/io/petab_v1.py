"""PEtab version 1: conditions, and per measurement the one before the start."""

from __future__ import annotations

import re
from typing import Any

import pandas as pd

from pcuq.errors import InputError
from pcuq.io import expressions as ex
from pcuq.io.expressions import Node
from pcuq.io.petab_formulas import read_formula
from pcuq.io.petab_tables import (
    TRANSFORMS,
    Experiment,
    Measurement,
    Observable,
    Tables,
    Unknown,
    as_number,
    check_distinct,
    check_parameter,
)
from pcuq.io.sbml_document import describe

PRIORS = (
    "uniform", "normal", "laplace", "logNormal", "logLaplace",
    "parameterScaleUniform", "parameterScaleNormal", "parameterScaleLaplace",
)  # fmt: skip


def read_v1(path: str, source: str) -> Tables:
    """The tables of a version 1 problem."""
    import petab.v1

    problem: Any = petab.v1.Problem.from_yaml(path)
    for table, what in (
        (problem.parameter_df, "parameter"),
        (problem.observable_df, "observable"),
        (problem.measurement_df, "measurement"),
        (problem.condition_df, "condition"),
    ):
        if table is None or (table.empty and not len(table.index)):
            raise InputError(f"{source} has no rows in its {what} table: at least one was wanted.")
    if problem.model is None or not hasattr(problem.model, "sbml_document"):
        raise InputError(f"{source} has no SBML model: name one in its sbml_files.")
    experiments, measurements = _measurements(problem.measurement_df, problem.condition_df)
    return Tables(
        document=describe(problem.model.sbml_document, f"the model of {source}"),
        parameters=_parameters(problem.parameter_df),
        observables=_observables(problem.observable_df),
        experiments=experiments,
        measurements=measurements,
    )


def _parameters(table: pd.DataFrame) -> dict[str, Unknown]:
    check_distinct("parameter", table.index)
    for column in ("parameterScale", "estimate"):
        if column not in table.columns:
            raise InputError(f"the parameter table has no column {column}: add it.")
    found = {}
    for name, row in table.iterrows():
        name = str(name)
        where = f"of parameter {name!r}"
        scale = _text(row.get("parameterScale")) or "lin"
        if scale not in TRANSFORMS:
            raise InputError(
                f"parameterScale {where} needs one of {', '.join(TRANSFORMS)}: got {scale!r}."
            )
        estimate = as_number(row.get("estimate", 1), f"estimate {where}")
        if estimate not in (0, 1):
            raise InputError(f"estimate {where} needs 0 or 1: got {row['estimate']!r}.")
        nominal = None
        if "nominalValue" in table.columns:
            nominal = as_number(row["nominalValue"], f"nominalValue {where}")
        lower, upper = float("nan"), float("nan")
        if estimate:
            lower = as_number(row.get("lowerBound"), f"lowerBound {where}")
            upper = as_number(row.get("upperBound"), f"upperBound {where}")
        prior = _text(row.get("objectivePriorType"))
        if prior is not None and prior not in PRIORS:
            raise InputError(
                f"objectivePriorType {where} needs one of {', '.join(PRIORS)}: got {prior!r}."
            )
        numbers: tuple[float, ...] = ()
        given = _text(row.get("objectivePriorParameters"))
        if prior is not None and given is None and "niform" not in prior:
            raise InputError(f"objectivePriorParameters {where} are missing: {prior} needs two.")
        if prior is not None and given is not None:
            parts = given.split(";")
            if len(parts) != 2:
                raise InputError(f"objectivePriorParameters {where} need two: got {given!r}.")
            numbers = tuple(as_number(n, f"objectivePriorParameters {where}") for n in parts)
        found[name] = Unknown(bool(estimate), scale, lower, upper, nominal, prior, numbers)
        check_parameter(name, found[name])
    return found


def _observables(table: pd.DataFrame) -> dict[str, Observable]:
    check_distinct("observable", table.index)
    found = {}
    for name, row in table.iterrows():
        name = str(name)
        where = f"of observable {name!r}"
        transform = _text(row.get("observableTransformation")) or "lin"
        law = _text(row.get("noiseDistribution")) or "normal"
        if transform not in TRANSFORMS:
            raise InputError(
                f"observableTransformation {where} needs one of {', '.join(TRANSFORMS)}: "
                f"got {transform!r}."
            )
        if law not in ("normal", "laplace"):
            raise InputError(f"noiseDistribution {where} needs normal or laplace: got {law!r}.")
        for column in ("observableFormula", "noiseFormula"):
            if column not in table.columns or _text(row[column]) is None:
                raise InputError(f"{column} {where} is missing: give it a formula.")
        formula = read_formula(_text(row["observableFormula"]), f"observableFormula {where}")
        noise = read_formula(_text(row["noiseFormula"]), f"noiseFormula {where}")
        found[name] = Observable(
            formula,
            noise,
            TRANSFORMS[transform],
            law,
            _placeholders("observable", name, formula, noise),
            _placeholders("noise", name, formula, noise),
        )
    return found


def _placeholders(kind: str, name: str, *formulas: Node) -> tuple[str, ...]:
    pattern = re.compile(rf"{kind}Parameter(\d+)_{re.escape(name)}")
    numbers = [int(m[1]) for n in ex.names(*formulas) if (m := pattern.fullmatch(n))]
    return tuple(f"{kind}Parameter{i}_{name}" for i in range(1, max(numbers, default=0) + 1))


def _measurements(table: pd.DataFrame, conditions: pd.DataFrame):
    check_distinct("condition", conditions.index)
    for column in ("observableId", "simulationConditionId", "measurement", "time"):
        if column not in table.columns:
            raise InputError(f"the measurement table has no column {column}: add it.")
    changes = {str(name): _changes(str(name), row) for name, row in conditions.iterrows()}
    befores: dict[str, set[str]] = {}
    rows = []
    for position, (_, row) in enumerate(table.iterrows(), start=1):
        where = f"row {position} of the measurement table"
        before = _text(row.get("preequilibrationConditionId")) or ""
        condition = _text(row["simulationConditionId"])
        for name in filter(None, (before, condition)):
            if name not in changes:
                raise InputError(
                    f"{where} names the condition {name!r}, which the condition table does not "
                    f"have: it has {', '.join(changes)}."
                )
        if condition is None:
            raise InputError(f"{where} has no simulationConditionId: name a condition.")
        befores.setdefault(condition, set()).add(before)
        rows.append((where, before, condition, row))
    experiments, measurements = {}, []
    for where, before, condition, row in rows:
        # Only where a condition has several pasts does its name not say which.
        label = condition if len(befores[condition]) == 1 else f"{condition} after {before}"
        experiments[label] = Experiment(
            changes[before] if before else None, ((0.0, changes[condition]),)
        )
        measurements.append(
            Measurement(
                str(row["observableId"]),
                label,
                as_number(row["time"], f"time in {where}"),
                as_number(row["measurement"], f"measurement in {where}"),
                _overrides(row.get("observableParameters"), f"observableParameters in {where}"),
                _overrides(row.get("noiseParameters"), f"noiseParameters in {where}"),
            )
        )
    return experiments, tuple(measurements)


def _changes(condition: str, row: pd.Series) -> dict[str, Node]:
    return {
        str(target): read_formula(value, f"{target!r} in condition {condition!r}")
        for target, given in row.items()
        if target != "conditionName" and (value := _text(given)) is not None
    }


def _overrides(given: Any, where: str) -> tuple[Node, ...]:
    text = _text(given)
    if text is None:
        return ()
    return tuple(read_formula(part.strip(), where) for part in text.split(";"))


def _text(entry: Any) -> str | None:
    """An entry of a table as text, None where it is empty or NaN."""
    if entry is None or (isinstance(entry, float) and pd.isna(entry)):
        return None
    text = str(entry).strip()
    return None if text in ("", "nan", "NaN", "NA") else text
