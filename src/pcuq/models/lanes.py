"""Many particles through one solver, side by side: particles on the last axis.

A right-hand side works on a few states. With states (k, L) each of its operations runs over L
particles that lie next to each other in memory, which processors do several at a time; a map over
the first axis would have (L, k) instead, where a state's values lie k apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

if TYPE_CHECKING:
    from pcuq.models.ode import ODEModel


class Lanes:
    """A model for L values of its parameters at once: what `segments.walk` asks a model for."""

    def __init__(self, model: ODEModel, count: int):
        self._model, self._count = model, count
        self.parameters, self.constants = model.parameters, model.constants
        self.t0, self.rest, self.interventions = model.t0, model.rest, model.interventions
        self.states, self.outputs, self.observe = model.states, model.outputs, model.observe

    def initial_state(self, p: dict[str, Any]) -> Float[Array, "k L"]:
        return self._each(self._model.initial_state, p)

    def derivative(self, t: Any, u: Float[Array, "k L"], p: dict[str, Any]) -> Float[Array, "k L"]:
        if jnp.ndim(t):  # each particle is at a time of its own
            return self._each(lambda p, u, t: self._model.derivative(t, u, p), p, u, t)
        return self._each(lambda p, u: self._model.derivative(t, u, p), p, u)

    def observed(self, t: Any, u: Float[Array, "k L"], p: dict[str, Any]) -> Float[Array, "d L"]:
        return self._each(lambda p, u: self._model.observed(t, u, p), p, u)

    def _each(self, function, p: dict[str, Any], *u: Array) -> Array:
        # What is the same for all, such as a constant, stays one number.
        axes = {name: 0 if jnp.ndim(value) else None for name, value in p.items()}
        in_axes = (axes, *[-1] * len(u))
        count = u[0].shape[-1] if u else self._count  # a solver may go on with some of them
        return jax.vmap(function, in_axes, out_axes=-1, axis_size=count)(p, *u)
