"""PEtab's experiments as interventions on the model.

A condition sets a quantity to a number, to a parameter, or to a formula of what holds before it.
"""

from __future__ import annotations

import math
from typing import Any

from pcuq.errors import InputError
from pcuq.interventions import Equilibration, Formula, Intervention
from pcuq.io import expressions as ex
from pcuq.io.expressions import Node
from pcuq.io.petab_outputs import depends_on_time, number_of
from pcuq.io.petab_tables import Experiment, Tables
from pcuq.io.sbml_document import Document
from pcuq.io.sbml_system import Evaluation, System


def has_start(document: Document, name: str) -> bool:
    """Whether the model itself says where a quantity begins."""
    if name in document.species:
        species = document.species[name]
        given = species.amount is not None or species.concentration is not None
        return given or name in document.initial
    if name in document.compartments or name in document.initial:
        return True
    return document.parameters.get(name) is not None


def check_set_everywhere(name: str, tables: Tables) -> None:
    """Refuse what has no value in some experiment."""
    for label, experiment in tables.experiments.items():
        first = experiment.before
        if first is None:
            first = experiment.periods[0][1] if experiment.periods else {}
        if name not in first:
            raise InputError(
                f"{name!r} has no value in the model, and condition {label!r} does not set it: "
                "give it one."
            )


def what_changes(tables: Tables) -> set[str]:
    """What conditions set."""
    return {name for changes in all_changes(tables) for name in changes}


def all_changes(tables: Tables) -> list[dict[str, Node]]:
    """What conditions set, and to what: a mapping for each period of each experiment."""
    return [
        changes
        for experiment in tables.experiments.values()
        for changes in (experiment.before or {}, *(changes for _, changes in experiment.periods))
    ]


def common_start(tables: Tables) -> float:
    """The time at which all experiments start."""
    starts = {e.periods[0][0] if e.periods else 0.0 for e in tables.experiments.values()}
    if len(starts) > 1:
        raise InputError(
            f"the experiments start at different times {sorted(starts)}, which is not supported: "
            "let all start at the same time."
        )
    return starts.pop()


def as_condition(experiment: Experiment, t0: float, system: System) -> list[Any] | None:
    """The interventions that make an experiment of the model."""
    found: list[Any] = []
    if experiment.before is not None:
        changes = _intervention(experiment.before, system, t0)
        found.append(Equilibration(() if changes is None else (changes,)))
    for time, changes in experiment.periods:
        change = _intervention(changes, system, t0, None if time == t0 else time)
        found += [] if change is None else [change]
    return found or None


def _intervention(
    changes: dict[str, Node], system: System, t0: float, at: float | None = None
) -> Intervention | None:
    values: dict[str, Any] = {}
    for name, value in changes.items():
        _check_known(name, value, system.document)
        if value.op == "name" and not {value.value} & {*system.states, *system.assigned}:
            values[name] = value.value
        elif ex.names(value) or depends_on_time(value):
            values[name] = _formula(value, system, t0)
        elif not math.isnan(number := number_of(value)):
            values[name] = number
    return Intervention(set=values, at=at) if values else None


def _check_known(target: str, formula: Node, document: Document) -> None:
    for name in sorted(ex.names(formula) - set(document.quantities)):
        raise InputError(
            f"a condition sets {target!r} by {name!r}, which is neither in the model nor in the "
            "parameter table: add it, or correct the name."
        )


def _formula(formula: Node, system: System, t0: float) -> Formula:
    def function(t, u, p):
        return ex.numeric(Evaluation(system, t0 if t is None else t, u, p)(formula))

    return Formula(repr(formula), function)
