"""Adaptive steps for stiff models, each particle at its own pace, many of them side by side.

A step of the Rosenbrock method is kept if its error e is at most 1, and the next one is longer or
shorter:

    e² = mean over states of (k_6 / (rtol (|u| + 10⁻³ scale)))²,   h ← h · clip(0.9 e^(−1/4), ⅕, 5).

There is no iteration that rounding errors could keep from converging. Outputs are ends of steps,
and derivatives are those at the steps taken. Some particles at a time go on until a quarter of them
have arrived, whose places others take. The last ones go on by themselves.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array

from pcuq.models import rosenbrock
from pcuq.models.segments import Derivative

# States far below their usual magnitude need not be right to all digits.
ABSOLUTE = 1e-3
FIRST = 0.01  # of its magnitude, by how much a state changes in the first step that is tried
SAFETY, SHRINK, GROW = 0.9, 0.2, 5.0
# So many go on at a time: with more, what a step needs of all no longer fits into a core's cache.
MOST_LANES = 256
# One in so many have arrived when others take their places, and at last go on by themselves, if
# that are enough. A third loop would save little.
AMONG, FEWEST = 4, 8
# Smaller steps, relative to the whole way, mean that the solution has blown up.
SHORTEST = 1e-20


class Journey(NamedTuple):
    """Where each particle is; what has no shape below is a number for each."""

    t: Array
    h: Array  # the step that is tried next
    u: Array  # (k,) or (k, L)
    fine: Array
    grows: Array  # whether a longer step may follow: not after one that was too long
    done: Array  # whether the particle has found what it was to find
    row: Array  # the next output
    kept: Array  # (n + 1, *u.shape) the states at the outputs and at the end
    steps: Array
    times: Array | None  # (most, …) where steps end
    tried: Array  # steps that were too long, too


def travel(
    f: Derivative,
    u: Array,
    p: Any,
    x: Any,
    between: tuple[Any, Any],
    fine: Array,
    rtol: Any,
    scale: Any,
    most: int,
    inside: Callable[[Array], Array] = lambda t: t,
    until: Callable[[Array, Array, Any, Any], Array] | None = None,
    keep_steps: bool = False,
) -> Journey:
    """From one time to another over outputs at x, in at most so many steps; fine if they arrive.

    u is a state (k,), or those of many particles (k, L) with f(t (L,), u (k, L), p) and p (L,), or
    one for all. `inside` brings a time to where f is smooth. With `until`, to arrive is to be where
    it holds of (t, u, p, scale).
    """
    start, end = between
    each = u.shape[1:]
    stops = jnp.concatenate([jnp.asarray(x, float), jnp.asarray([end], float)])

    def weight(u, scale):
        return jnp.abs(u) + ABSOLUTE * scale

    def first_step():
        slope = f(inside(jnp.full(each, start, float)), u, p)
        slope = _mean_square(slope / weight(u, scale))
        return jnp.where(slope > 0, jnp.minimum(FIRST / slope, end - start), end - start)

    def going(journey):
        on = journey.fine & ~journey.done & (journey.row < len(stops))
        return on & (journey.tried < most)

    def one(journey: Journey, p: Any, scale: Any) -> Journey:
        t, h, u = journey.t, journey.h, journey.u
        stop = stops[jnp.minimum(journey.row, len(stops) - 1)]
        left = stop - t
        there = h >= left
        length = jnp.where(there, left, h)
        still = length <= 0  # two outputs at a time
        safe = jnp.where(still, 1.0, length)
        times = inside(t + safe * rosenbrock.NODES.reshape(-1, *[1] * len(each)))
        ahead, error = rosenbrock.step_and_error(lambda t, u: f(t, u, p), u, times, safe)
        allowed = rtol * jnp.maximum(weight(u, scale), weight(ahead, scale))
        error = _mean_square(jax.lax.stop_gradient(error / allowed))
        error = jnp.where(jnp.isfinite(error), error, jnp.inf)
        finite = jnp.all(jnp.isfinite(ahead), axis=0)
        on = going(journey)
        good = (error <= 1) & finite & on | still
        factor = SAFETY * jnp.maximum(error, 1e-10) ** -0.25
        factor = jnp.clip(factor, SHRINK, jnp.where(journey.grows, GROW, 1.0))
        following = jnp.where(finite, factor, SHRINK) * length
        # A step that was short for an output's sake says little about the next.
        following = jnp.where(good & there, jnp.maximum(following, h), following)
        arrived = good & there & on
        moved = good & on & ~still
        u = jnp.where(moved, ahead, u)
        t = jnp.where(arrived, stop, jnp.where(moved, t + length, t))
        kept = journey.kept.at[_places(journey.row, u)].set(u.T)
        recorded = journey.times
        if recorded is not None:
            recorded = recorded.at[_places(journey.steps, t)].min(jnp.where(moved, t, jnp.inf))
        return Journey(
            t=t,
            h=jnp.where(still, h, following),
            u=u,
            fine=journey.fine & ((following > SHORTEST * (end - start)) | good),
            grows=good,
            done=journey.done if until is None else journey.done | (moved & until(t, u, p, scale)),
            row=journey.row + arrived,
            kept=kept,
            steps=journey.steps + moved,
            times=recorded,
            tried=journey.tried + on,
        )

    begin = Journey(
        t=jnp.full(each, start, float),
        h=jax.lax.stop_gradient(first_step()),
        u=u,
        fine=fine,
        grows=jnp.ones(each, bool),
        done=jnp.zeros(each, bool),
        row=jnp.zeros(each, int),
        kept=jnp.zeros((len(stops), *u.shape)),
        steps=jnp.zeros(each, int),
        times=jnp.full((most, *each), jnp.inf) if keep_steps else None,
        tried=jnp.zeros(each, int),
    )

    def go_on(journey: Journey, left: Any, p: Any, scale: Any) -> Journey:
        """Until so few are on their way."""

        def more(journey):
            return jnp.sum(going(journey)) > left

        return jax.lax.while_loop(more, lambda journey: one(journey, p, scale), journey)

    def some_go_on(journey: Journey, most: int, left: Any) -> Journey:
        """The first `most` that are on their way, until so few of them are."""
        chosen = _first(going(journey))[:most]
        taken = functools.partial(_taken, chosen, *each)
        there = go_on(taken(journey), left, taken(p), taken(scale))
        return jax.tree.map(lambda all, some: all.at[..., chosen].set(some), journey, there)

    count = each[0] if each else 1
    few = _few(min(count, MOST_LANES))

    def take_places(journey: Journey) -> Journey:
        waiting = jnp.sum(going(journey)) > MOST_LANES
        enough = MOST_LANES - MOST_LANES // AMONG
        return some_go_on(journey, MOST_LANES, jnp.where(waiting, enough, few))

    if count > MOST_LANES:
        last = jax.lax.while_loop(lambda j: jnp.sum(going(j)) > few, take_places, begin)
    else:
        last = go_on(begin, few, p, scale)
    if few:
        last = some_go_on(last, few, 0)
    arrived = last.row == len(stops) if until is None else last.done
    return last._replace(fine=last.fine & arrived)


def _few(count: int = 1) -> int:
    """How many are on their way when they go on by themselves, 0 if they do not."""
    return count // AMONG if count >= AMONG * FEWEST else 0


def _first(wanted: Array) -> Array:
    """The places of all particles, those that are wanted first."""
    # A sort would take as long as a step.
    place = jnp.where(wanted, 0, jnp.sum(wanted)) - 1
    place = place + jnp.where(wanted, jnp.cumsum(wanted), jnp.cumsum(~wanted))
    return jnp.zeros_like(place).at[place].set(jnp.arange(len(place)))


def _taken(late: Array, count: int, given: Any) -> Any:
    """What some particles have of what there is for each."""

    def of(leaf):
        return leaf[..., late] if jnp.ndim(leaf) and leaf.shape[-1] == count else leaf

    return jax.tree.map(of, given)


def _mean_square(u: Array) -> Array:
    """The root of the mean over states."""
    return jnp.sqrt(jnp.mean(u**2, axis=0))


def _places(row: Array, u: Array) -> Any:
    """Where u belongs in an array of rows: each particle has a row of its own."""
    if row.ndim == 0:
        return row
    lanes = jnp.arange(len(row))
    return (row, lanes) if u.ndim == 1 else (row, slice(None), lanes)
