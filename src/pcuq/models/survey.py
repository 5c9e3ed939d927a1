"""Adaptive solves of many parameter values at once: what solvers are chosen and judged by.

Errors are relative to the magnitude of each state in a first rough solve, though not below a floor:
see `bearable`.
"""

from __future__ import annotations

import itertools
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pcuq._program import Program
from pcuq.errors import ComputationError
from pcuq.models import adaptive
from pcuq.models.base import by_lanes
from pcuq.models.lanes import Lanes
from pcuq.models.segments import Segment, begin, cut

if TYPE_CHECKING:
    from pcuq.models.ode import ODEModel

# From this many steps on, it is worth asking whether an implicit method needs far fewer.
MANY_STEPS = 2000
STIFF = 50
# A solve that takes more steps (for implicit ones, a part of it) is given up where a solver is
# chosen: lanes wait for the slowest, and one that is stuck would hold up all others.
SURVEY_STEPS = 8192
# A magnitude that errors are held against, relative to the largest: see `bearable`.
STRICT, LENIENT = 1e-9, 1e-3
NEARLY_ALL = 0.8
FLOORS = {"explicit": (0.0,), "implicit": (STRICT, 1e-6, LENIENT)}
SURVEYORS = "_surveyors"  # where a model keeps them
MOST_KEPT = 8  # of them: each holds compiled programs


class Survey(NamedTuple):
    """Adaptive solves of all representatives."""

    outputs: np.ndarray  # (R, n, d)
    states: np.ndarray  # (R, n, k)
    fine: np.ndarray  # (R,)
    steps: np.ndarray  # (R,)
    times: tuple[np.ndarray, ...]  # per segment (R, steps): where steps end, then inf
    scale: np.ndarray  # (R, k) largest magnitude of each state, never zero


class Surveyor:
    """Adaptive solves at any accuracy, compiled once per method."""

    def __init__(
        self, model: ODEModel, segments: tuple[Segment, ...], most_steps: int | None = None
    ):
        self.model, self.segments, self.most_steps = model, segments, most_steps
        self._solves = {method: self._compile(method) for method in adaptive.METHODS}

    def __call__(self, values, method: str, rtol: float, scale: np.ndarray | None = None) -> Survey:
        values = {name: np.asarray(value) for name, value in values.items()}
        if scale is None:
            scale = self._first_scale(values)
        solve = self._solves[method]
        taken = by_lanes(lambda given: solve(given[0], rtol, given[1]), (values, scale))
        states = taken.states
        with np.errstate(invalid="ignore"):
            fine = taken.fine & np.isfinite(taken.outputs).all(axis=(1, 2))
            seen = np.max(np.abs(states), axis=1)
        seen = np.where(np.isfinite(seen), seen, 0.0)
        largest = np.max(seen, axis=1, keepdims=True)
        return Survey(
            outputs=taken.outputs,
            states=states,
            fine=fine,
            steps=np.sum([steps for steps, _, _ in taken.extras], axis=0),
            times=tuple(times for _, times, _ in taken.extras),
            scale=np.where(seen > 0, seen, np.where(largest > 0, largest, scale)),
        )

    def _compile(self, method: str):
        def solve(model, values, rtol, scale):
            return adaptive.integrate(
                model, self.segments, values, method, rtol, scale,
                keep_steps=True, most_steps=self.most_steps,
            )  # fmt: skip

        def lanes(values, rtol, scale):
            taken = solve(Lanes(self.model, len(scale)), values, rtol, scale.T)
            return jax.tree.map(lambda leaf: jnp.moveaxis(leaf, -1, 0), taken)

        if adaptive.side_by_side(method, self.segments):
            return Program(lanes)
        return Program(jax.vmap(partial(solve, self.model), in_axes=(0, None, 0)))

    @cached_property
    def _magnitudes(self):
        def magnitude(values, _):
            p, u, _, _ = begin(self.model, values)
            slope = self.model.derivative(self.model.t0, u, p)
            ends = [segment.end for segment in self.segments if np.isfinite(segment.end)]
            span = max([*ends, self.model.t0]) - self.model.t0
            return jnp.max(jnp.abs(u)), jnp.max(jnp.abs(slope)) * span

        return Program(jax.vmap(magnitude))

    def _first_scale(self, values) -> np.ndarray:
        """Before anything is known: the initial state, or where its slope leads, or 1."""
        lanes = np.zeros(next(map(len, values.values()), 1))  # one where nothing is fitted
        start, reach = by_lanes(lambda given: self._magnitudes(*given), (values, lanes))
        size = np.where(np.isfinite(start) & (start > 0), start, reach)
        size = np.where(np.isfinite(size) & (size > 0), size, 1.0)
        return np.broadcast_to(size[:, None], (len(size), len(self.model.states)))


def surveyor_of(model: ODEModel, x: np.ndarray, most_steps: int | None = None) -> Surveyor:
    """Made once for a model, times and number of explicit steps after which a solve is given up."""
    known = model.__dict__.setdefault(SURVEYORS, {})
    key = (x.tobytes(), most_steps)
    if key not in known:
        known[key] = Surveyor(model, cut(model, x), most_steps)
        if len(known) > MOST_KEPT:
            known.pop(next(iter(known)))
    return known[key]


def tightly(model: ODEModel, x: np.ndarray, values: dict[str, Any], rtol: float):
    """(outputs (R, n, d), fine (R,)) with adaptive steps: if one method fails, by the other."""
    rough, quick, patient = 1e-6, surveyor_of(model, x, SURVEY_STEPS), surveyor_of(model, x)
    first = quick(values, "explicit", rough)
    explicit = [(survey, "explicit", rtol, 0.0) for survey in (quick, patient)]
    implicit = [(survey, "implicit", rtol, STRICT) for survey in (quick, patient)]
    # Where rounding errors forbid so much, better all states less well than some not at all.
    last = [(quick, "implicit", accuracy, STRICT) for accuracy in (1e2 * rtol, 1e4 * rtol)]
    last += [(survey, "implicit", rtol, LENIENT) for survey in (quick, patient)]
    ways, stiff = [*explicit, *implicit, *last], if_stiff(quick, values, first, rough)
    if stiff is not None:
        # The magnitudes are those of solves that succeed, and the first ones may have failed.
        first, ways = stiff, [*implicit, *explicit, *last]
    outputs, fine = np.array(first.outputs), np.zeros_like(first.fine)
    for survey, method, accuracy, floor in ways:
        # With patience only what was solved roughly: the rest would hold up all, in vain.
        due = ~fine & first.fine if survey is patient else ~fine
        if due.any():
            found = survey(values, method, accuracy, bearable(first.scale, floor))
            outputs = np.where(fine[:, None, None], outputs, found.outputs)
            fine = fine | found.fine
    return outputs, fine


def accurate(surveyor: Surveyor, values: dict[str, Any], rtol: float) -> Survey:
    """An accurate solve by whichever method can do it; a little less so if neither can."""
    for accuracy, method in itertools.product((rtol, 1e2 * rtol, 1e4 * rtol), adaptive.METHODS):
        first = surveyor(values, method, 1e-6)
        if first.fine.all():
            last, _ = strictly(surveyor, values, method, accuracy, first)
            if last.fine.all():
                return last
    raise ComputationError(
        "the model could not be solved: the solution explodes, is not finite, or takes more than "
        f"{adaptive.EXPLICIT_STEPS} steps; check the right-hand side at these parameter values."
    )


def strictly(survey: Surveyor, values, method: str, rtol: float, first: Survey):
    """(solves, floor of magnitudes) with the least floor at which nearly all succeed."""
    for floor in FLOORS[method]:
        found = survey(values, method, rtol, bearable(first.scale, floor))
        if np.sum(first.fine & found.fine) >= NEARLY_ALL * np.sum(first.fine):
            break
    return found, floor


def bearable(scale: np.ndarray, floor: float) -> np.ndarray:
    """The magnitudes that errors are held against.

    In a stiff model many tiny states are fast ones that follow the others: to hold them to their
    own magnitude takes an implicit method many times the steps, down to rounding errors. Others
    are what is measured, and solves that ignore them are wrong: the floor is as low as can be.
    """
    return np.maximum(scale, floor * np.max(scale, axis=-1, keepdims=True))


def if_stiff(survey: Surveyor, values, first: Survey, rtol: float) -> Survey | None:
    """Implicit solves, if they do with far fewer steps, asked only where many are taken."""
    if first.fine.any():
        typical = np.median(first.steps[first.fine])
        if np.mean(first.fine) >= 0.5 and typical < MANY_STEPS:
            return None
    implicit = survey(values, "implicit", rtol)
    if np.sum(implicit.fine) > 2 * np.sum(first.fine):
        return implicit
    both = first.fine & implicit.fine
    stiff = both.any() and np.median(first.steps[both] / implicit.steps[both]) > STIFF
    return implicit if stiff else None
