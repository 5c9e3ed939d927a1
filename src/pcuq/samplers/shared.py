"""What samplers share: a preconditioner, a step size that adapts, the gradient of one density.

    log ε ← log ε + (1 + age)^−0.6 (acceptance − target)         in warm-up only,

where age counts the steps since the tuning was last made: early steps find the size, later ones
average over it. The preconditioner is P = L Lᵀ, a covariance of earlier positions that is shared by
all particles; in the coordinates z = L⁻¹ θ it is the identity.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from pcuq.objective import part_that_fits

# Stands for −∞ in sums: a chain that starts where the model fails must be able to leave.
LOWEST = -1e200


class Tuning(NamedTuple):
    """What is adapted in warm-up and fixed afterwards."""

    factor: Float[Array, "p p"]  # P = factor factorᵀ
    adapting: Float[Array, ""]  # 1 or 0


class Evaluated(NamedTuple):
    """A log density of one θ, with what is kept of it."""

    value: Float[Array, ""]
    gradient: Float[Array, " p"]
    v: Float[Array, ""]
    ok: Bool[Array, ""]


# θ ↦ (log density, (v, ok)): v is kept beside a draw, ok says whether the model could be solved.
# Of Bayes it also takes data of the same shape as a second argument.
LogDensity = Callable[..., tuple[Array, tuple[Array, Array]]]
# The same of many θ (N, p) at once, whose models are solved side by side where they can be.
LogDensities = Callable[..., tuple[Array, tuple[Array, Array]]]


def tuning_of_fit(thetas: np.ndarray, v: np.ndarray, warmed: float) -> Tuning:
    """For particles of PCUQ: P is the covariance within the part that fits."""
    return _tuning(thetas, part_that_fits(v.ravel()), warmed)


def tuning_of_most(thetas: np.ndarray, v: np.ndarray, warmed: float) -> Tuning:
    """For independent chains: P is the covariance without chains that are stuck elsewhere."""
    finite = np.where(np.isfinite(v), v, LOWEST).ravel()
    middle = np.median(finite)
    return _tuning(thetas, finite >= middle - 5 * (finite.max() - middle), warmed)


def _tuning(thetas: np.ndarray, chosen: np.ndarray, warmed: float) -> Tuning:
    p = thetas.shape[-1]
    thetas = thetas.reshape(-1, p)
    inside = thetas[chosen] if chosen.sum() > 2 * p else thetas
    covariance = np.cov(inside.T).reshape(p, p) if len(inside) > 1 else np.eye(p)
    # Few or equal positions leave it singular.
    scale = np.maximum(np.diag(covariance), 1e-12)
    covariance = 0.95 * covariance + np.diag(0.05 * scale)
    return Tuning(jnp.asarray(np.linalg.cholesky(covariance)), jnp.full((), float(warmed < 1)))


def adapt(log_step, age, acceptance, target: float, tuning: Tuning) -> Array:
    """The next log ε; unchanged after warm-up."""
    return log_step + tuning.adapting * (1.0 + age) ** -0.6 * (acceptance - target)


def probability(log_ratio: Array) -> Array:
    """min(1, ratio), and 0 where the ratio is no number."""
    return jnp.where(jnp.isnan(log_ratio), 0.0, jnp.exp(jnp.minimum(log_ratio, 0.0)))


def of_one(log_densities: LogDensities) -> LogDensity:
    """The log density of one θ."""

    def log_density(theta, *y):
        return jax.tree.map(lambda leaf: leaf[0], log_densities(theta[None], *y))

    return log_density


def value_and_gradient(
    log_density: LogDensity, mode: str
) -> Callable[[Float[Array, " p"]], Evaluated]:
    """θ ↦ log density with its gradient, which is finite where the model fails.

    `mode`: "forward" for solvers that only have forward sensitivities, else "reverse".
    """

    def forward(theta):
        def along(direction):
            return jax.jvp(log_density, (theta,), (direction,), has_aux=True)

        value, gradient, aux = jax.vmap(along, out_axes=(None, 0, None))(jnp.eye(len(theta)))
        return value, aux, gradient

    def reverse(theta):
        (value, aux), gradient = jax.value_and_grad(log_density, has_aux=True)(theta)
        return value, aux, gradient

    def evaluate(theta):
        value, (v, ok), gradient = (forward if mode == "forward" else reverse)(theta)
        gradient = jnp.where(jnp.isfinite(gradient), gradient, 0.0)
        return Evaluated(at_least_lowest(value), gradient, v, ok)

    return evaluate


def at_least_lowest(value: Array) -> Array:
    """The value, with −∞ and what is no number replaced by the lowest one."""
    return jnp.maximum(jnp.where(jnp.isnan(value), LOWEST, value), LOWEST)
