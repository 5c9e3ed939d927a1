"""PEtab version 2: experiments made of periods, each under some conditions."""

from __future__ import annotations

import math
from typing import Any

from pcuq.errors import InputError
from pcuq.io.petab_formulas import read_formula
from pcuq.io.petab_tables import (
    Experiment,
    Measurement,
    Observable,
    Tables,
    Unknown,
    check_distinct,
    check_parameter,
)
from pcuq.io.sbml_document import describe

NOISES = {
    "normal": ("identity", "normal"),
    "laplace": ("identity", "laplace"),
    "log-normal": ("log", "normal"),
    "log-laplace": ("log", "laplace"),
}
PRIORS = {
    "cauchy": "cauchy",
    "chisquare": "chisquare",
    "exponential": "exponential",
    "gamma": "gamma",
    "laplace": "laplace",
    "log-laplace": "logLaplace",
    "log-normal": "logNormal",
    "log-uniform": "logUniform",
    "normal": "normal",
    "rayleigh": "rayleigh",
    "uniform": "uniform",
}


def read_v2(path: str, source: str) -> Tables:
    """The tables of a version 2 problem."""
    import petab.v2

    problem: Any = petab.v2.Problem.from_yaml(path)
    if problem.model is None or not hasattr(problem.model, "sbml_document"):
        raise InputError(f"{source} has no SBML model: name one in its model_files.")
    if not problem.measurements:
        raise InputError(f"{source} has no rows in its measurement table: at least one was wanted.")
    check_distinct("parameter", (row.id for row in problem.parameters))
    check_distinct("observable", (row.id for row in problem.observables))
    check_distinct("condition", (row.id for row in problem.conditions))
    check_distinct("experiment", (row.id for row in problem.experiments))
    conditions = {row.id: row for row in problem.conditions}
    experiments = {row.id: _experiment(row, conditions) for row in problem.experiments}
    measurements = tuple(_measurement(row, experiments) for row in problem.measurements)
    if any(row.experiment == "" for row in measurements):
        experiments[""] = Experiment(None, ())
    return Tables(
        document=describe(problem.model.sbml_document, f"the model of {source}"),
        parameters={row.id: _parameter(row) for row in problem.parameters},
        observables={row.id: _observable(row) for row in problem.observables},
        experiments={
            name: experiments[name] for name in dict.fromkeys(m.experiment for m in measurements)
        },
        measurements=measurements,
    )


def _parameter(row: Any) -> Unknown:
    unbounded = (-math.inf, math.inf)
    lower = unbounded[0] if row.lb is None else float(row.lb)
    upper = unbounded[1] if row.ub is None else float(row.ub)
    prior = None if row.prior_distribution is None else str(_plain(row.prior_distribution))
    if prior is not None and prior not in PRIORS:
        raise InputError(f"the prior {prior!r} of parameter {row.id!r} is not supported.")
    found = Unknown(
        estimate=bool(row.estimate),
        scale="lin",
        lower=lower,
        upper=upper,
        nominal=None if row.nominal_value is None else float(row.nominal_value),
        prior=None if prior is None else PRIORS[prior],
        prior_numbers=tuple(map(float, row.prior_parameters or ())),
    )
    check_parameter(row.id, found)
    return found


def _plain(choice: Any) -> Any:
    """One of several choices as text, which petab keeps as an enumeration or as text."""
    return getattr(choice, "value", choice)


def _observable(row: Any) -> Observable:
    law = str(_plain(row.noise_distribution))
    if law not in NOISES:
        raise InputError(f"the noise {law!r} of observable {row.id!r} is not supported.")
    if row.formula is None or row.noise_formula is None:
        raise InputError(f"observable {row.id!r} needs a formula and a noise formula.")
    transform, shape = NOISES[law]
    return Observable(
        formula=read_formula(row.formula, f"observableFormula of {row.id!r}"),
        noise=read_formula(row.noise_formula, f"noiseFormula of {row.id!r}"),
        transform=transform,
        law=shape,
        placeholders=tuple(map(str, row.observable_placeholders)),
        noise_placeholders=tuple(map(str, row.noise_placeholders)),
    )


def _experiment(row: Any, conditions: dict[str, Any]) -> Experiment:
    before, periods = None, []
    for period in sorted(row.periods, key=lambda period: period.time):
        changes = {}
        for name in period.condition_ids:
            if name not in conditions:
                raise InputError(
                    f"experiment {row.id!r} names the condition {name!r}, which is not defined."
                )
            for change in conditions[name].changes:
                where = f"{change.target_id!r} in condition {name!r}"
                if change.target_id in changes:
                    raise InputError(
                        f"experiment {row.id!r} sets {change.target_id!r} twice at time "
                        f"{period.time:g}: leave one of its conditions."
                    )
                changes[change.target_id] = read_formula(change.target_value, where)
        if period.time == -math.inf:
            before = changes
        else:
            periods.append((float(period.time), changes))
    return Experiment(before, tuple(periods))


def _measurement(row: Any, experiments: dict[str, Experiment]) -> Measurement:
    experiment = row.experiment_id or ""
    if experiment and experiment not in experiments:
        raise InputError(f"a measurement names the experiment {experiment!r}: it is not defined.")
    where = f"a measurement of {row.observable_id!r}"
    return Measurement(
        row.observable_id,
        experiment,
        float(row.time),
        float(row.measurement),
        tuple(read_formula(part, where) for part in row.observable_parameters),
        tuple(read_formula(part, where) for part in row.noise_parameters),
    )
