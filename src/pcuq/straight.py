"""Coordinates in which the moves of the default sampler are made.

    η = 4 sigmoid(θ) − 2   where a parameter has bounds and a prior between them, else η = θ.

η is then the parameter on its own scale, such as a logarithm, from −2 at one bound to 2 at the
other. What data tell of such parameters is often a straight line there: a product that is known,
whose factors are not, over many orders of magnitude. In θ, which is stretched without end towards
the bounds, the line is bent, and a mixture of normal densities follows it badly.

Where q0 is stated for θ itself, θ is the scale that was meant.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

NEAREST = 2 - 1e-12  # to a bound: beyond that, rounding would put a starting point onto it


@dataclass(frozen=True)
class Straight:
    """θ ↔ η for parameters of which some are `bounded`."""

    bounded: Bool[np.ndarray, " p"]

    def straight(self, theta: Float[Array | np.ndarray, "*K p"]) -> Float[Array, "*K p"]:
        between = jnp.clip(4 * jax.nn.sigmoid(theta) - 2, -NEAREST, NEAREST)
        return jnp.where(self.bounded, between, theta)

    def bent(self, eta: Float[Array, "*K p"]) -> Float[Array, "*K p"]:
        """θ, not finite on a bound and beyond it."""
        return jnp.where(self.bounded, jnp.log(2 + eta) - jnp.log(2 - eta), eta)

    def log_slope(self, theta: Float[Array, "*K p"]) -> Float[Array, "*K"]:
        """log |dη/dθ|."""
        each = np.log(4.0) + jax.nn.log_sigmoid(theta) + jax.nn.log_sigmoid(-theta)
        return jnp.sum(jnp.where(self.bounded, each, 0.0), axis=-1)

    def slopes(self, theta: Float[Array, "*K p"]) -> Float[Array, "*K p"]:
        """dη/dθ, parameter by parameter."""
        return jnp.where(self.bounded, 4 * jax.nn.sigmoid(theta) * jax.nn.sigmoid(-theta), 1.0)

    def scattered(self, theta, covariance, noise: Float[np.ndarray, "*K p"]) -> np.ndarray:
        """Standard normal numbers as θ about one, with a covariance that is of θ there.

        Points that would lie beyond a bound are drawn in towards the middle until they do not.
        """
        factor = np.linalg.cholesky(covariance)
        if not np.any(self.bounded):
            return theta + noise @ factor.T
        with jax.enable_x64(True):
            slopes, middle = np.asarray(self.slopes(theta)), np.asarray(self.straight(theta))
            apart = slopes * (noise @ factor.T)
            room = np.maximum(NEAREST - np.sign(apart) * middle, 1e-13)
            needed = np.where(self.bounded, np.abs(apart) / room, 0.0).max(axis=-1, keepdims=True)
            halvings = np.ceil(np.log2(np.maximum(needed, 1.0)))
            return np.asarray(self.bent(middle + 0.5**halvings * apart))

    def inside(self, eta: Float[Array, "*K p"]) -> Bool[Array, "*K"]:
        return jnp.all(~self.bounded | (jnp.abs(eta) < 2), axis=-1)
