"""The jump density: where a particle may land without walking there.

    g(θ) = w q0(θ) + (1 − w) (1/R) Σ_r t_ν(θ; c_r, H_r),

the prior mixed with a kernel density over earlier positions c_r. Each has a scale matrix H_r of its
own: the part that fits is narrow, the rest is wide, and one bandwidth would serve neither. Half of
the matrices come from a centre's nearest neighbours, half from the curvature there, which knows
directions that are too narrow for neighbours to show. Without the heavy tails of Student's t, a
particle that has strayed to where g is too small would stay there. The density is fixed while draws
are kept, so that a jump proposed from it is an exact Metropolis move whatever the particles do.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from pcuq.parameters import Parameters

CENTRES = 400
CURVATURE_SHRINKAGE = 0.5  # of the covariance that the curvature at a centre suggests
PRIOR_SHARE = 0.15
DEGREES = 5.0  # ν: of freedom


class Jumps(NamedTuple):
    """Centres and, per centre, the Cholesky factor of its covariance and the inverse of that."""

    centres: Float[Array, "R p"]
    factors: Float[Array, "R p p"]
    inverses: Float[Array, "R p p"]
    log_norms: Float[Array, " R"]


def choose_centres(points: Float[np.ndarray, "K p"]) -> np.ndarray:
    """Evenly out of earlier positions, oldest first."""
    return points[np.linspace(0, len(points) - 1, CENTRES).round().astype(int)]


def make_jumps(
    centres: Float[np.ndarray, "R p"],
    floor: Float[np.ndarray, " p"],
    curvature: Float[np.ndarray, "R p p"] | None = None,
) -> Jumps:
    """`floor`: sds of which no bandwidth is below a hundredth; `curvature` that of −log density."""
    p = centres.shape[1]
    spread = np.maximum(_robust_sd(centres), floor)
    scaled = centres / spread
    neighbours = min(len(centres) - 1, max(30, 6 * p))
    distance2 = ((scaled[:, None] - scaled[None]) ** 2).sum(-1)
    nearest = np.argsort(distance2, axis=1)[:, : neighbours + 1]
    local = centres[nearest] - centres[nearest].mean(axis=1, keepdims=True)
    covariance = np.einsum("rkp,rkq->rpq", local, local) / neighbours
    # Silverman's factor for as many points as make one local covariance.
    factor = (4.0 / ((p + 2) * neighbours)) ** (2.0 / (p + 4))
    covariance = factor * covariance + np.eye(p) * (1e-2 * floor) ** 2
    if curvature is not None:
        narrow = CURVATURE_SHRINKAGE * np.linalg.inv(curvature)
        centres = np.concatenate([centres, centres])
        covariance = np.concatenate([covariance, narrow])
    factors = np.linalg.cholesky(covariance)
    inverses = np.linalg.inv(factors)
    log_norms = -np.log(np.diagonal(factors, axis1=1, axis2=2)).sum(1)
    log_norms += math.lgamma((DEGREES + p) / 2) - math.lgamma(DEGREES / 2)
    log_norms -= 0.5 * p * math.log(DEGREES * math.pi)
    return Jumps(*map(jnp.asarray, (centres, factors, inverses, log_norms)))


def sample(jumps: Jumps, prior: Parameters, key: Array, count: int) -> Float[Array, "K p"]:
    """Points from g."""
    keys = jax.random.split(key, 5)
    centre = jax.random.randint(keys[0], (count,), 0, len(jumps.centres))
    noise = jax.random.normal(keys[1], (count, jumps.centres.shape[1]))
    noise = noise / jnp.sqrt(jax.random.chisquare(keys[4], DEGREES, (count, 1)) / DEGREES)
    near = jumps.centres[centre] + jnp.einsum("kpq,kq->kp", jumps.factors[centre], noise)
    from_prior = jax.random.uniform(keys[2], (count, 1)) < PRIOR_SHARE
    return jnp.where(from_prior, prior.sample(keys[3], (count,)), near)


def log_density(jumps: Jumps, log_prior: Array, thetas: Float[Array, "K p"]) -> Float[Array, " K"]:
    """log g at θ, given log q0 there."""

    def kernel_density(theta):
        z = jnp.einsum("rpq,rq->rp", jumps.inverses, theta - jumps.centres)
        tail = 0.5 * (DEGREES + z.shape[-1]) * jnp.log1p(jnp.sum(z**2, axis=-1) / DEGREES)
        terms = jumps.log_norms - tail
        return jax.scipy.special.logsumexp(terms) - np.log(len(jumps.centres))

    return jnp.logaddexp(
        math.log(PRIOR_SHARE) + log_prior,
        math.log1p(-PRIOR_SHARE) + jax.vmap(kernel_density)(thetas),
    )


def _robust_sd(points):
    low, high = np.quantile(points, [0.16, 0.84], axis=0)
    return (high - low) / 2
