"""When an SBML model switches: the times at which conditions in time change, and its events.

A condition a t + b < 0, with a and b free of time and of states, switches at t = −b/a: exactly, and
for any parameters. What else changes in time by steps, such as floor(t/24) or sin(t) > 0, is looked
for on a fine grid and located by bisection. Conditions on states are left to the solver's steps.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import jax.numpy as jnp
import numpy as np

from pcuq.errors import InputError
from pcuq.io import expressions as ex
from pcuq.io.expressions import Node
from pcuq.io.sbml_document import Event
from pcuq.io.sbml_system import ZERO, Evaluation, Start, System
from pcuq.models.segments import Jump

STEPS = ("floor", "ceiling", "quotient", "rem")
GRID = 20_001
BISECTIONS = 60
Affine = tuple[Node | None, Node]  # a (None for zero) and b of a t + b


class Clock:
    """What of a system depends on time alone, and when it switches."""

    def __init__(self, system: System, fitted: Iterable[str], t0: float = 0.0):
        self.system, self.fitted, self.t0 = system, set(fitted), t0
        self._lines: dict[Node, Affine | None] = {}  # what is shared is looked at once

    def breaks(self) -> list[Any]:
        """Functions (p, end) → times for the conditions that the right-hand side stands on."""
        roots = [self.system.rates[name] for name in self.system.states]
        affine, stepped = self._switches(self.system.reachable(roots))
        found = []
        if affine:
            found.append(lambda p, end: self._crossings(affine, p))
        if stepped:
            found.append(lambda p, end: self._search(stepped, p, end))
        return found

    def jumps(self) -> list[Jump]:
        """The events, all of which must have a trigger in time."""
        return [self._jump(name, event) for name, event in self.system.document.events.items()]

    def _names_and_time(self, formula: Node) -> tuple[set[str], bool]:
        parts = self.system.reachable([formula])
        return ex.names(*parts), any(part.op == ex.TIME for part in parts)

    def of_time(self, formula: Node) -> bool:
        """True where it depends on time, and on no state that changes."""
        names, timed = self._names_and_time(formula)
        return timed and not names & (set(self.system.states) - self.system.steady)

    def _switches(self, parts: Iterable[Node]) -> tuple[list[Affine], list[Node]]:
        affine, stepped = [], []
        for part in parts:
            if part.op in ex.RELATIONS:
                sides = zip(part.args[:-1], part.args[1:], strict=True)
                differences = [ex.node("minus", left, right) for left, right in sides]
            elif part.op in STEPS:
                differences = [part]
            else:
                continue
            for difference in filter(self.of_time, differences):
                line = self._affine(difference) if part.op in ex.RELATIONS else None
                if line is not None:
                    affine.append(line)
                elif not self._names_and_time(difference)[0] & self.fitted:
                    # Where it depends on fitted parameters, step control has to find it.
                    stepped.append(_level(part, difference))
        return affine, stepped

    def _affine(self, formula: Node) -> Affine | None:
        """(a, b) with formula = a t + b, None where it is not of this form."""
        if formula not in self._lines:
            self._lines[formula] = self._line(formula)
        return self._lines[formula]

    def _line(self, formula: Node) -> Affine | None:
        if formula.op == ex.TIME:
            return ex.number(1.0), ZERO
        if not self._names_and_time(formula)[1]:
            return None, formula
        if formula.op == "name":
            behind = self.system.behind(formula)
            return self._affine(behind[0]) if behind else None
        lines = [self._affine(arg) for arg in formula.args]
        if any(line is None for line in lines):
            return None
        slopes, offsets = zip(*(line for line in lines if line is not None), strict=True)
        if formula.op in ("plus", "minus"):
            slope = ex.node(formula.op, *(ZERO if a is None else a for a in slopes))
            return slope, ex.node(formula.op, *offsets)
        timed = [i for i, a in enumerate(slopes) if a is not None]
        if formula.op == "times" and len(timed) == 1:
            others = [b for i, b in enumerate(offsets) if i != timed[0]]
            slope = ex.node("times", slopes[timed[0]], *others)
            return slope, ex.node("times", offsets[timed[0]], *others)
        if formula.op == "divide" and timed == [0]:
            slope = ex.node("divide", slopes[0], offsets[1])
            return slope, ex.node("divide", offsets[0], offsets[1])
        return None

    def _at(self, t: Any, p: dict[str, Any]) -> Evaluation:
        """Values at times t of what no changing state enters."""
        start = Start(self.system, self.t0, p)
        steady = self.system.steady
        held = [start.held(name) if name in steady else None for name in self.system.states]
        return Evaluation(self.system, t, held, p)

    def _crossings(self, lines: list[Affine], p: dict[str, Any]) -> Any:
        values = self._at(0.0, p)
        found = []
        for slope, offset in lines:
            a = jnp.asarray(0.0 if slope is None else values(slope), float)
            b = jnp.asarray(values(offset), float)
            found.append(jnp.where(a == 0, jnp.inf, -b / jnp.where(a == 0, 1.0, a)))
        return jnp.stack(found)

    def _search(self, levels: list[Node], p: dict[str, Any], end: float) -> np.ndarray:
        def at(t: np.ndarray) -> np.ndarray:
            values = self._at(jnp.asarray(t), p)
            return np.stack([np.broadcast_to(np.asarray(values(n)), t.shape) for n in levels])

        grid = np.linspace(self.t0, end, GRID)
        level = at(grid)
        _, left = np.nonzero(level[:, 1:] != level[:, :-1])
        low, high = grid[np.unique(left)], grid[np.unique(left) + 1]
        if len(low) == 0:
            return np.full(1, np.inf)
        before = at(low)
        for _ in range(BISECTIONS):
            middle = 0.5 * (low + high)
            same = np.all(at(middle) == before, axis=0)
            low, high = np.where(same, middle, low), np.where(same, high, middle)
        return high

    def _jump(self, identifier: str, event: Event) -> Jump:
        system = self.system
        parts = [event.trigger] if event.delay is None else [event.trigger, event.delay]
        states = set(system.states) - system.steady
        if any(self._names_and_time(part)[0] & states for part in parts):
            raise InputError(
                f"event {identifier!r} is triggered by the state of the model, which is not "
                "supported: only events at times that do not depend on states are."
            )
        fitted = set().union(*(self._names_and_time(part)[0] for part in parts)) & self.fitted
        if fitted:
            raise InputError(
                f"event {identifier!r} comes at a time that depends on {min(fitted)!r}, which is "
                "to be fitted: that is not supported; make it a constant."
            )
        if event.delay is not None and event.from_trigger:
            for formula in event.assign.values():
                if self._names_and_time(formula)[0] & states:
                    raise InputError(
                        f"event {identifier!r} uses values from before its delay, which is not "
                        "supported: set useValuesFromTriggerTime to false."
                    )
        affine, stepped = self._switches(self.system.reachable([event.trigger]))
        for name in event.assign:
            if name in system.assigned:
                raise InputError(f"event {identifier!r} changes {name!r}, which has a rule.")

        def times(p: dict[str, Any], end: float) -> np.ndarray:
            return self._rising(event, affine, stepped, p, end)

        def change(t: Any, before: Any, u: Any, p: dict[str, Any]) -> Any:
            values = Evaluation(system, t, before if event.from_trigger else u, p)
            new = {name: values(formula) for name, formula in event.assign.items()}
            return self._assign(new, t, u, p)

        return Jump(times, change)

    def _assign(self, new: dict[str, Any], t: Any, u: Any, p: dict[str, Any]) -> Any:
        """u with new values; amounts stay where only the size of their compartment changes."""
        system, before = self.system, u
        for name in [name for name in new if name not in system.held_as_amount]:
            u = u.at[system.index[name]].set(new[name])
        for name, species in system.document.species.items():
            place = species.compartment
            kept = place in new and name in system.index and name not in new
            if kept and not species.substance_only and name not in system.held_as_amount:
                size = system.index[place]
                u = u.at[system.index[name]].multiply(before[size] / u[size])
        values = Evaluation(system, t, u, p)
        for name in [name for name in new if name in system.held_as_amount]:
            size = values(system.compartment_value(name))
            u = u.at[system.index[name]].set(new[name] * size)
        return u

    def _rising(self, event: Event, affine, stepped, p: dict[str, Any], end: float) -> np.ndarray:
        """The times at which the trigger goes from false to true, and the delay is over."""
        candidates = [self._crossings(affine, p)] if affine else []
        candidates += [self._search(stepped, p, end)] if stepped else []
        times = np.concatenate([np.zeros(0), *map(np.asarray, candidates)])
        if np.isnan(times).any():
            return times
        times = np.unique(times[(times > self.t0) & (times <= end)])
        after = np.concatenate([[self.t0], times, [np.inf]])
        inside = 0.5 * (after[:-1] + np.minimum(after[1:], end + 1.0))
        condition = self._at(jnp.asarray(inside), p)(event.trigger)
        holds = np.broadcast_to(np.asarray(ex.truth(condition)), inside.shape)
        at_start = bool(ex.truth(self._at(jnp.asarray(self.t0), p)(event.trigger)))
        rises = times[holds[1:] & ~holds[:-1]]
        if at_start and not event.initially:
            rises = np.concatenate([[self.t0], rises])
        if event.delay is not None:
            falls = times[holds[:-1] & ~holds[1:]]
            delays = np.asarray(self._at(jnp.asarray(rises), p)(event.delay))
            fires = rises + delays
            # The first fall after a rise takes it back, if the event is not to persist.
            falls = np.append(falls, np.inf)[np.searchsorted(falls, rises, side="right")]
            rises = fires if event.persistent else fires[fires <= falls]
        return rises if len(rises) else np.full(1, np.inf)


def _level(part: Node, difference: Node) -> Node:
    """A node that is constant between switches."""
    if part.op == "rem":
        return ex.node("quotient", *part.args)
    if part.op in STEPS:
        return part
    return ex.node(part.op, difference, ZERO)
