"""Experiments that differ only in numbers, solved as one.

Under conditions that set the same constants and initial states from the start, or in the rest
before it, the model is one function of (parameters, what is set). It is compiled once, at the union
of all times, and mapped over the conditions: compile time does not grow with their number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import jax.numpy as jnp
import numpy as np

from pcuq.interventions import Equilibration, Intervention
from pcuq.models.base import Solver, solve_many, why
from pcuq.models.causes import FINE
from pcuq.models.ode import ODEModel
from pcuq.models.segments import find_breaks
from pcuq.parameters import Parameter

# Representatives that a solver is chosen from, over all members.
MOST_LANES = 256
# What is set is a parameter of the common model, by these names.
START, BEFORE = "{} at the start", "{} before the start"


class Family:
    """Models that are alike, with the positions that they have among all models."""

    def __init__(self, members: list[int], models: Sequence[Any], xs: Sequence[Any]):
        self.members = members
        self.models: list[ODEModel] = [models[i] for i in members]
        self.x = np.unique(np.concatenate([xs[i] for i in members]))
        self.rows = [np.searchsorted(self.x, xs[i]) for i in members]
        self.settings = [_settings(model) for model in self.models]

    def solver(self, representatives: Mapping[str, Any] | None, **options: Any) -> Solver:
        """The common model's solver; `representatives` are those of the parameters alone."""
        given = representatives
        if given is None:
            parameters = self.models[0].parameters
            given = parameters.constrain(jnp.zeros((1, len(parameters))))
            if options.get("method", "auto") == "auto":
                options["method"] = "adaptive"
        together = self._together(given)
        total = len(next(iter(together.values())))
        if total > MOST_LANES:
            # Some of each member: a condition seldom makes a parameter value harder to solve for.
            some = np.linspace(0, total - 1, MOST_LANES).round().astype(int)
            together = {name: value[some] for name, value in together.items()}
        return self._common.solver(self.x, representatives=together, **options)

    def solve_tightly(self, values: Mapping[str, Any], tolerance: float):
        """([outputs (R, n, d) of each member], fine (R,)) for natural values {name: (R,)}."""
        outputs, fine = self._common.solve_tightly(self.x, self._together(values), tolerance)
        by_member = np.split(outputs, len(self.models))
        found = [w[:, rows] for w, rows in zip(by_member, self.rows, strict=True)]
        return found, np.all(np.split(fine, len(self.models)), axis=0)

    def why(self, solver: Solver, values: Mapping[str, Any]) -> list[str]:
        """Why one of the members fails at each of values {name: (R,)}, "" where none does."""
        causes = why(solver, self._together(values))
        by_member = np.array(causes, dtype=object).reshape(len(self.models), -1)
        return [next(filter(None, of_value), FINE) for of_value in by_member.T]

    def __call__(
        self, solver: Solver, values: Mapping[str, Any], count: int
    ) -> tuple[list[Any], Any]:
        """Outputs (L, n, d) of each member at its own times, and whether all its solves succeeded.

        For values {name: (L,)}, L = `count`.
        """
        each = [self._values(k, values, (count,)) for k in range(len(self.models))]
        together = {name: jnp.concatenate([one[name] for one in each]) for name in each[0]}
        w, ok = solve_many(solver, together, len(each) * count)
        w = w.reshape(len(each), -1, *w.shape[1:])
        found = [w[k][:, rows] for k, rows in enumerate(self.rows)]
        return found, jnp.all(ok.reshape(len(each), -1), axis=0)

    def _together(self, values: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """{name: (members · R,)}, member by member."""
        shape = np.shape(next(iter(values.values()), np.zeros(1)))
        each = [self._values(k, values, shape) for k in range(len(self.models))]
        return {
            name: np.concatenate([np.atleast_1d(np.asarray(one[name])) for one in each])
            for name in each[0]
        }

    def _values(self, k: int, values: Mapping[str, Any], shape: tuple[int, ...]) -> dict[str, Any]:
        """Parameters and settings of one member; a setting may be the value of a parameter."""
        model, found = self.models[k], dict(values)
        for label, value in self.settings[k].items():
            if isinstance(value, str):
                value = values[value] if value in values else model.constants[value]
            found[label] = jnp.broadcast_to(jnp.asarray(value, float), shape)
        return found

    @cached_property
    def _common(self) -> ODEModel:
        first = self.models[0]
        free = Parameter("identity")
        last = float(self.x[np.isfinite(self.x)].max(initial=first.t0))
        found = [find_breaks(model, last) for model in self.models]
        breaks = tuple(set().union(*(fixed for fixed, _ in found)))
        if any(moving for _, moving in found):
            breaks = first.breaks  # of the parameters, to which those that are set belong
        rest, start = _before(first), _from_start(first)
        later = tuple(c for c in first.interventions if c.at is not None)
        return replace(
            first,
            parameters={**first.parameters, **dict.fromkeys(self.settings[0], free)},
            states=first.states,
            breaks=breaks,
            interventions=(*_given(start, START), *later),
            rest=None if rest is None else Equilibration(_given(rest, BEFORE)),
        )


def families(models: Sequence[Any], xs: Sequence[Any]) -> list[Family | int]:
    """Models in groups that can be solved as one; an index for a model on its own."""
    groups: dict[Any, list[int]] = {}
    for i, model in enumerate(models):
        groups.setdefault(_kind(model, i), []).append(i)
    return [
        Family(members, models, xs) if len(members) > 1 else members[0]
        for members in groups.values()
    ]


def _kind(model: Any, position: int) -> Any:
    """What alike models share; the position where one is like no other."""
    if not isinstance(model, ODEModel) or model.jumps:
        return position
    rest, start = _before(model), _from_start(model)
    plain = all(
        change.set and not (change.scale or change.shift or change.hold or change.computed)
        for change in (*(rest or ()), *start)
    )
    names = [None if rest is None else _names(rest), _names(start)]
    fitted = {name for some in names if some for name in some} & set(model.parameters)
    if not any(names) or not plain or fitted:
        return position
    later = tuple(change for change in model.interventions if change.at is not None)
    return (id(model.rhs), model.t0, later, *names)


def _from_start(model: ODEModel) -> tuple[Intervention, ...]:
    return tuple(change for change in model.interventions if change.at is None)


def _before(model: ODEModel) -> tuple[Intervention, ...] | None:
    return None if model.rest is None else model.rest.changes


def _names(changes: Sequence[Intervention]) -> tuple[str, ...]:
    return tuple(sorted({name for change in changes for name in change.names}))


def _given(changes: Sequence[Intervention], label: str) -> tuple[Intervention, ...]:
    """One intervention that sets the same names, to parameters of the common model."""
    values = {name: label.format(name) for name in _names(changes)}
    return (Intervention(set=values),) if values else ()


def _settings(model: ODEModel) -> dict[str, Any]:
    """What is set before and from the start, the last setting of each name."""
    found: dict[str, Any] = {}
    for changes, label in ((_before(model) or (), BEFORE), (_from_start(model), START)):
        last: dict[str, Any] = {}
        for change in changes:
            last |= {name: _resolved(value, last) for name, value in change.set.items()}
        found |= {label.format(name): value for name, value in sorted(last.items())}
    return found


def _resolved(value: Any, earlier: Mapping[str, Any]) -> Any:
    """A name that an earlier setting has changed stands for that setting."""
    return earlier.get(value, value) if isinstance(value, str) else value
