"""Time cut where something happens: between two cuts the right-hand side is smooth.

Cuts are the model's breaks and jumps and the times of its interventions. A solver only has to
advance the state over one segment [start, end); here the segments are made and walked, and the
changes applied. Outputs exactly at a cut are those after the change. A break that depends on
fitted parameters moves with them: it is no cut, and the solver restarts there within a segment.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from pcuq.errors import InputError
from pcuq.interventions import Intervention

if TYPE_CHECKING:
    from pcuq.models.causes import Watched
    from pcuq.models.lanes import Lanes
    from pcuq.models.ode import ODEModel

    Walked = ODEModel | Lanes | Watched

Derivative = Callable[[Any, Array, dict[str, Any]], Array]  # (t, u, p) → du/dt
Times = Callable[[dict[str, Any], float], Any]  # (p, end) → times up to end, inf for never
# (du/dt, u, p, t) → the state of rest that is reached from u at t, and whether it is
Settle = Callable[[Derivative, Array, dict[str, Any], Any], tuple[Array, Array]]
# A condition in time may switch a rounding error beside the cut.
ROUNDING = 4 * np.finfo(float).eps
LATEST = 1e9  # a jump that comes later comes never, where rest is asked for


class Jump(NamedTuple):
    """u ← change(t, u before all jumps at t, u, p) at times that constants determine."""

    times: Times
    change: Callable[[Any, Array, Array, dict[str, Any]], Array]


class Segment(NamedTuple):
    """[start, end) with the outputs x in it (the last one has its end too)."""

    start: float
    end: float
    x: np.ndarray
    changes: tuple[Intervention, ...]  # applied at the start
    jumps: tuple[Jump, ...] = ()  # after them
    moving: tuple[Callable[[dict[str, Any]], Any], ...] = ()  # p → a time to restart at

    @property
    def earliest(self) -> float:
        """The first time at which the right-hand side belongs to this segment."""
        return min(self.start + ROUNDING * abs(self.start), self.middle)

    @property
    def latest(self) -> float:
        """The last such time."""
        return max(self.end - ROUNDING * abs(self.end), self.middle)

    @property
    def middle(self) -> float:
        return 0.5 * (self.start + self.end)


class Advance(NamedTuple):
    """A state taken through one segment."""

    states: Array  # (len(segment.x), k)
    end: Array  # (k,)
    fine: Array  # bool
    extra: Any = None


class Walk(NamedTuple):
    """A state taken through all of them."""

    states: Array  # (n, k)
    outputs: Array  # (n, d)
    ends: Array  # (segments, k) the state at the end of each
    fine: Array
    extras: tuple[Any, ...]


def as_times(x: Any, t0: float) -> np.ndarray:
    """Sorted distinct times, none before t0; the last may be inf, the state of rest."""
    try:
        times = np.asarray(x, dtype=float)
    except (TypeError, ValueError):
        times = np.zeros((0, 0))
    if times.ndim != 1 or times.size == 0 or not np.all(times > -np.inf):
        raise InputError(
            "an ODEModel is solved at a 1-D array of finite times, or inf for rest: got "
            f"{'None' if x is None else f'shape {np.shape(x)}'}."
        )
    if np.any(np.diff(times) <= 0):
        raise InputError("times must be sorted and distinct: use np.unique.")
    if times[0] < t0:
        raise InputError(
            f"the first time, {times[0]:g}, lies before the model's start t0 = {t0:g}: set t0 to "
            "the time of the initial state."
        )
    return times


def cut(model: ODEModel, x: np.ndarray) -> tuple[Segment, ...]:
    """The segments from t0 to the last output."""
    finite = x[np.isfinite(x)]
    last = float(finite[-1]) if len(finite) else model.t0
    if len(finite) < len(x):  # whatever happens, it happens before the model is at rest
        last = max([last, *_fixed_times(model, last)])
    breaks, moving = find_breaks(model, last)
    if moving and len(finite) < len(x):
        raise InputError(
            "this model switches at a time that is fitted, and a state of rest is asked for, which "
            "may come before: give that time as a constant, or finite covariates."
        )
    jumps = [(jump, _jump_times(model, jump, last)) for jump in model.jumps]
    events = {c.at for c in model.interventions if c.at is not None}
    events |= breaks | {time for _, times in jumps for time in times}
    starts = [model.t0, *sorted(time for time in events if model.t0 < time <= last)]
    ends = [*starts[1:], last]
    segments = []
    for i, (start, end) in enumerate(zip(starts, ends, strict=True)):
        inside = (x >= start) & ((x < end) | (i == len(starts) - 1))
        changes = tuple(c for c in model.interventions if c.at == start)
        due = tuple(jump for jump, times in jumps if start in times)
        segments.append(Segment(start, end, x[inside & np.isfinite(x)], changes, due, moving))
    if len(finite) < len(x):
        segments.append(Segment(last, np.inf, x[len(finite) :], ()))
    return tuple(segments)


def _fixed_times(model: ODEModel, last: float) -> list[float]:
    """When something happens at a time that is known, be it after `last`."""
    times = [c.at for c in model.interventions if c.at is not None]
    jumps = [time for jump in model.jumps for time in _jump_times(model, jump, LATEST)]
    return [*times, *find_breaks(model, last)[0], *jumps]


def phases(model: ODEModel, values: dict[str, Any]) -> list[tuple[float, dict[str, Any]]]:
    """(since when, p): as it is from the start, and after each later change of it."""
    p = {**model.constants, **values}
    for change in model.interventions:
        if change.at is None:
            p = _change_parameters(p, change, None)
    found = [(-np.inf, p)]
    u = jnp.full(len(model.states), jnp.nan)
    for change in sorted((c for c in model.interventions if c.at is not None), key=_when):
        p = _change_parameters(p, change, u)
        found.append((_when(change), p))
    return found


def _when(change: Intervention) -> float:
    return -np.inf if change.at is None else change.at


def _unknown(model: ODEModel) -> list[tuple[float, dict[str, Any]]]:
    """Phases with NaN for what is fitted: a time that comes out NaN depends on it."""
    return phases(model, dict.fromkeys(model.parameters, np.nan))


def find_breaks(model: ODEModel, last: float) -> tuple[set[float], tuple[Callable, ...]]:
    """Times at which to cut, and functions of p for those that move with fitted parameters."""
    fixed = {time for time in model.breaks if not callable(time)}
    moving = []
    for function in filter(callable, model.breaks):
        times = [np.atleast_1d(np.asarray(function(p, last), float)) for _, p in _unknown(model)]
        fixed |= {time for some in times for time in some[np.isfinite(some)].tolist()}
        for i in sorted({i for some in times for i in np.flatnonzero(np.isnan(some))}):
            moving.append(lambda p, f=function, i=i: jnp.atleast_1d(jnp.asarray(f(p, last)))[i])
    return fixed, tuple(moving)


def _jump_times(model: ODEModel, jump: Jump, last: float) -> tuple[float, ...]:
    """When it is due, by what p is at that time."""
    found, known = [], _unknown(model)
    ends = [*(since for since, _ in known[1:]), np.inf]
    for (since, p), end in zip(known, ends, strict=True):
        times = np.atleast_1d(np.asarray(jump.times(p, last), dtype=float))
        if np.isnan(times).any():
            raise InputError(
                "the time of an event depends on a fitted parameter, which is not supported: make "
                "that parameter a constant."
            )
        here = (times >= max(since, model.t0)) & (times < end) & (times <= last)
        found += times[here].tolist()
    return tuple(found)


def walk(
    model: Walked,
    segments: tuple[Segment, ...],
    values: dict[str, Any],
    advance: Callable[[int, Segment, Derivative, Array, dict[str, Any]], Advance],
    settle: Settle | None = None,
) -> Walk:
    """Initial state, then segment by segment: apply the changes, advance, observe.

    With `Lanes` for a model, and values {name: (L,)}, all that is said to have shape (…) has
    (…, L), and `fine` (L,).
    """
    p, u, held, fine = begin(model, values, settle)
    states, outputs, ends, extras = [], [], [], []
    for index, segment in enumerate(segments):
        for change in segment.changes:
            after, held = _change_states(model.states, u, held, change, p)
            p, u = _change_parameters(p, change, u), after
        before = u
        for jump in segment.jumps:
            u = jump.change(segment.start, before, u, p)
        taken = advance(index, segment, _derivative(model, held), u, p)
        # Looked at before the next change: a reset must not hide that the state was lost.
        u, fine = taken.end, fine & taken.fine & jnp.all(jnp.isfinite(taken.end), axis=0)
        ends.append(taken.end)
        extras.append(taken.extra)
        if len(segment.x):
            states.append(taken.states)
            outputs.append(_observe(model, segment.x, taken.states, p))
    return Walk(
        jnp.concatenate(states), jnp.concatenate(outputs), jnp.stack(ends), fine, tuple(extras)
    )


def begin(
    model: Walked, values: dict[str, Any], settle: Settle | None = None
) -> tuple[dict[str, Any], Array, np.ndarray, Array]:
    """p, the initial state, which states are held, and whether all is fine.

    Where the model starts from rest, `settle` brings it there; without `settle` it does not rest.
    """
    plain: dict[str, Any] = {**model.constants, **{name: values[name] for name in model.parameters}}
    from_start = tuple(change for change in model.interventions if change.at is None)
    fine = jnp.bool_(True)
    if model.rest is None or settle is None:
        p, u, held = _initial(model, plain, from_start)
        return p, u, held, fine
    p, u, held = _initial(model, plain, model.rest.changes)
    u, fine = settle(_derivative(model, held), u, p, model.t0)
    p, held = plain, np.zeros(len(model.states), dtype=bool)
    for change in from_start:
        after, held = _change_states(model.states, u, held, change, p)
        p, u = _change_parameters(p, change, u), after
    return p, u, held, fine


def _initial(model: Walked, p: dict[str, Any], changes: tuple[Intervention, ...]):
    """p and the initial state under what is done from the start."""
    # States that are set: other initial values may follow from them.
    given: dict[str, Any] = {}
    befores, untouched = [], None
    if any(change.computed for change in changes):
        untouched = model.initial_state(p)
    for change in changes:
        befores.append(p)
        named = [name for name in change.set if name in model.states]
        given |= {name: change.apply(name, None, p, untouched) for name in named}
        p = _change_parameters(p, change, untouched)
    u = model.initial_state(p | given)
    held = np.zeros(len(model.states), dtype=bool)
    for change, before in zip(changes, befores, strict=True):
        u, held = _change_states(model.states, u, held, change, before, untouched)
    return p, u, held


def _derivative(model: Walked, held: np.ndarray) -> Derivative:
    if not held.any():
        return model.derivative

    def derivative(t, u, p):
        return jnp.where(held.reshape(-1, *[1] * (u.ndim - 1)), 0.0, model.derivative(t, u, p))

    return derivative


def _observe(model: Walked, x: np.ndarray, states: Array, p: dict[str, Any]) -> Array:
    if model.observe is None and model.outputs == model.states:
        return states
    return jax.vmap(lambda t, u: model.observed(t, u, p))(jnp.asarray(x), states)


def _change_parameters(p: dict[str, Any], change: Intervention, u: Any = None) -> dict[str, Any]:
    return p | {name: change.apply(name, p[name], p, u) for name in change.names if name in p}


def _change_states(
    names: tuple[str, ...],
    u: Array,
    held: np.ndarray,
    change: Intervention,
    p: dict[str, Any],
    before: Array | None = None,
) -> tuple[Array, np.ndarray]:
    before = u if before is None else before
    for i, name in enumerate(names):
        if name in change.names:
            u = u.at[i].set(change.apply(name, u[i], p, before))
    return u, held | (np.isin(names, change.names) & change.hold)
