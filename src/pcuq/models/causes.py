"""Why a solve failed, in words that equal failures share.

Nothing is asked while particles are sampled: those that failed are solved once more. Adaptive steps
end where something is wrong, and one looks at the state there. On a mesh the steps go on, and the
state carries two more entries, 0 until something happens:

    z' = 1[f(t, u) is not finite, where u is],     e' = 1[|u| ≥ 10¹⁰⁰, or u is not finite],

with u' = 0 wherever one of them does, so that only what came first is seen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from pcuq._program import Program
from pcuq.models.base import LARGEST_OUTPUT, by_lanes
from pcuq.models.segments import Jump, Segment, Walk

if TYPE_CHECKING:
    from pcuq.models.ode import ODEModel

FINE = ""
NOT_FINITE = "the right-hand side or the initial state is not finite"
EXPLODES = "the solution explodes"
UNFINISHED = "the solver did not finish: too many steps, or none short enough"
OUTPUT = "an output is not finite or exceeds 1e100"
CAUSES = (FINE, NOT_FINITE, EXPLODES, UNFINISHED, OUTPUT)
# States this many times their usual magnitude, where adaptive steps get no further, have exploded.
EXPLODED = 1e6
AHEAD = 1e-6


class Watched:
    """A model with the two entries: what `segments.walk` asks a model for."""

    def __init__(self, model: ODEModel):
        self._model = model
        self.parameters, self.constants = model.parameters, model.constants
        self.t0, self.rest, self.interventions = model.t0, model.rest, model.interventions
        self.states = (*model.states, "not finite", "explodes")
        self.outputs, self.observe = model.outputs, self.observed

    def initial_state(self, p: dict[str, Any]) -> Float[Array, " k+2"]:
        u = self._model.initial_state(p)
        fine = jnp.all(jnp.isfinite(u))
        return jnp.append(jnp.where(fine, u, 0.0), jnp.array([~fine, False], float))

    def derivative(self, t: Any, u: Float[Array, " k+2"], p: dict[str, Any]) -> Array:
        bounded = jnp.all(jnp.abs(u[:-2]) < LARGEST_OUTPUT)  # false for NaN too
        slope = self._model.derivative(t, jnp.where(bounded, u[:-2], 0.0), p)
        finite = jnp.all(jnp.isfinite(slope))
        happened = jnp.stack([bounded & ~finite, ~bounded])
        return jnp.append(jnp.where(bounded & finite, slope, 0.0), happened.astype(float))

    def observed(self, t: Any, u: Float[Array, " k+2"], p: dict[str, Any]) -> Array:
        return self._model.observed(t, u[:-2], p)


def watched_segments(segments: tuple[Segment, ...]) -> tuple[Segment, ...]:
    """The segments, with jumps that leave the two entries alone."""

    def watched(jump: Jump) -> Jump:
        def change(t, before, u, p):
            return jnp.append(jump.change(t, before[:-2], u[:-2], p), u[-2:])

        return jump._replace(change=change)

    return tuple(s._replace(jumps=tuple(map(watched, s.jumps))) for s in segments)


def of_ends(ends: Float[Array, "segments k+2"]) -> Int[Array, ""]:
    """What the two entries say, as a place in CAUSES."""
    not_finite, explodes = (jnp.any(ends[:, i] != 0) for i in (-2, -1))
    return jnp.select([not_finite, explodes], [1, 2], 0)


def of_stop(f, t, u: Float[Array, " k"], scale, segment: Segment) -> Int[Array, ""]:
    """Why adaptive steps ended at (t, u), before the segment's end, as a place in CAUSES.

    At a NaN they do not end where it is but a little before, after ever shorter steps: so the slope
    is looked at a little ahead, where u has hardly changed.
    """
    slope = f(t, u)
    size, speed = jnp.max(jnp.abs(u / scale)), jnp.max(jnp.abs(slope / scale))
    ahead = AHEAD * jnp.minimum(segment.end - segment.start, size / speed)
    next_slope = f(jnp.clip(t + ahead, segment.earliest, segment.latest), u + ahead * slope)
    explodes = ~(size < EXPLODED)
    finite = jnp.all(jnp.isfinite(slope)) & jnp.all(jnp.isfinite(next_slope))
    return jnp.select([explodes, ~finite], [2, 1], 3)


def first(found: Sequence[Int[Array, ""]], taken: Walk) -> Int[Array, ""]:
    """The first of the places that is not 0; or what is wrong with the solve as a whole."""
    fine_outputs = jnp.all(jnp.abs(taken.outputs) < LARGEST_OUTPUT)
    return jnp.select([*(c > 0 for c in found), ~taken.fine, ~fine_outputs], [*found, 3, 4], 0)


def in_words(code: Callable[[dict[str, Array]], Array], values: Mapping[str, Any]) -> list[str]:
    """Why each of values {name: (L,)} fails, from a function to its place in CAUSES."""
    rows = {name: np.asarray(value, dtype=float) for name, value in values.items()}
    return [CAUSES[i] for i in by_lanes(Program(jax.vmap(code)), rows)]
