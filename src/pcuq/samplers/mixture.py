"""A mixture of Student densities fitted to earlier positions, and two ways to move by it.

    m(θ) = Σ_r ω_r t_ν(θ; c_r, H_r),

the average of a few fits of Gaussians by expectation–maximisation, whose covariances are then
widened, with Student's tails put on them: a particle that has strayed to where m is too small would
otherwise stay there. The mixture is fixed while draws are kept, so that both moves are exact
whatever the particles do:

* a *jump* to a point of g = w q0 + (1 − w) m;
* a *local move*, which leaves m invariant and is reversible: pick a component r with its share
  ω_r t_ν(θ; c_r, H_r)/m(θ) of θ and the scale u of Student's t given both, then

      θ' = c_r + (1 − s²)^½ (θ − c_r) + s (H_r/u)^½ ξ.

  It follows the local shape of m, however narrow, at whatever length s. As a Metropolis proposal
  its ratio is m(θ)/m(θ').
"""

from __future__ import annotations

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float

from pcuq.parameters import Parameters

PARTS = 6  # fits, each to other positions: their average errs less in the tails than any of them
COMPONENTS = 40  # of each part
POINTS = 1000, 200  # earlier positions that each part is fitted to, and more for each parameter
ITERATIONS = 10  # of expectation–maximisation
INFLATION = 1.2  # of the covariances: m should reach beyond the positions seen
DEGREES = 8  # ν: of freedom
PRIOR_SHARE = 0.15  # w
NARROWEST = 1e-8  # variance of a component relative to that of all positions


class Mixture(NamedTuple):
    """Components with the Cholesky factors of H_r and the inverses of those."""

    centres: Float[Array, "R p"]
    factors: Float[Array, "R p p"]
    inverses: Float[Array, "R p p"]
    log_weights: Float[Array, " R"]


def fit_mixture(positions: Float[np.ndarray, "K p"], scale: Float[np.ndarray, " p"]) -> Mixture:
    """`scale`: sds of the prior, which bound the mixture's width from below by a hair."""
    # At random: evenly spaced ones can be, at any time, those of the same few particles.
    points = POINTS[0] + POINTS[1] * positions.shape[1]
    some = np.random.default_rng(0).integers(0, len(positions), (PARTS, points))
    # Points that had to be repeated do not count as more.
    repeats = max(1.0, points / len(positions))
    parts = _fit_parts(jnp.asarray(positions)[some], jnp.asarray(scale), jnp.asarray(repeats))
    whole = Mixture(*(leaf.reshape(-1, *leaf.shape[2:]) for leaf in parts))
    return whole._replace(log_weights=whole.log_weights - math.log(PARTS))


@jax.jit
def _fit_parts(points: Float[Array, "P K p"], scale, repeats) -> Mixture:
    return jax.lax.map(lambda some: _fit(some, scale, repeats), points)


def _fit(points: Float[Array, "K p"], scale, repeats) -> Mixture:
    count, p = points.shape
    middle = jnp.mean(points, axis=0)
    centred = points - middle
    whole = jnp.linalg.cholesky(centred.T @ centred / count + jnp.diag((1e-8 * scale) ** 2))
    z = solve_triangular(whole, centred.T, lower=True).T

    squares = (z[:, :, None] * z[:, None, :]).reshape(count, p * p)

    def maximise(shares):
        members = jnp.sum(shares, axis=0) + 1e-10
        means = shares.T @ z / members[:, None]
        moments = (shares.T @ squares).reshape(-1, p, p)
        scatter = moments - members[:, None, None] * means[:, :, None] * means[:, None, :]
        # A component of few points says nothing of its shape: it becomes as wide as the whole.
        missing = jnp.maximum(0.0, 2 * p * repeats - members)
        total = scatter + missing[:, None, None] * jnp.eye(p)
        covariances = total / (members + missing)[:, None, None] + NARROWEST * jnp.eye(p)
        return members / count, means, jnp.linalg.cholesky(covariances)

    def memberships(weights, means, factors):
        inverses = _inverse(factors)
        centres = jnp.einsum("rpq,rq->rp", inverses, means)
        apart = (z @ inverses.reshape(-1, p).T).reshape(count, -1, p) - centres
        volumes = jnp.sum(jnp.log(jnp.diagonal(factors, axis1=1, axis2=2)), axis=1)
        return jax.nn.softmax(jnp.log(weights) - volumes - jnp.sum(apart**2, axis=2) / 2, axis=1)

    nearest = jnp.argmin(_squared_distances(z, _scattered(z, COMPONENTS)), axis=1)
    shares = jax.nn.one_hot(nearest, COMPONENTS)
    shares = jax.lax.fori_loop(0, ITERATIONS, lambda _, s: memberships(*maximise(s)), shares)
    weights, means, factors = maximise(shares)
    factors = math.sqrt(INFLATION) * whole @ factors
    return Mixture(middle + means @ whole.T, factors, _inverse(factors), jnp.log(weights))


def _inverse(factors):
    identity = jnp.eye(factors.shape[-1])
    return jax.vmap(lambda factor: solve_triangular(factor, identity, lower=True))(factors)


def _scattered(z, number: int):
    """Points far apart: each drawn in proportion to its squared distance from those before."""
    keys = jax.random.split(jax.random.key(0), number)

    def add(i, carry):
        chosen, distance = carry
        point = z[jax.random.categorical(keys[i], jnp.log(distance + 1e-300))]
        distance = jnp.minimum(distance, jnp.sum((z - point) ** 2, axis=1))
        return chosen.at[i].set(point), distance

    first = jnp.zeros((number, z.shape[1])), jnp.full(len(z), 1e300)
    return jax.lax.fori_loop(0, number, add, first)[0]


def _squared_distances(a, b):
    return jnp.sum(a**2, axis=1)[:, None] - 2 * a @ b.T + jnp.sum(b**2, axis=1)


def log_components(mixture: Mixture, theta: Float[Array, " p"]) -> Float[Array, " R"]:
    """log ω_r t_ν(θ; c_r, H_r); the logsumexp of these is log m(θ)."""
    p = theta.shape[-1]
    # One product for all components: much quicker than one for each where θ are many.
    apart = mixture.inverses.reshape(-1, p) @ theta
    z = apart.reshape(-1, p) - jnp.einsum("rpq,rq->rp", mixture.inverses, mixture.centres)
    volumes = jnp.sum(jnp.log(jnp.diagonal(mixture.factors, axis1=1, axis2=2)), axis=1)
    constant = math.lgamma((DEGREES + p) / 2) - math.lgamma(DEGREES / 2)
    constant -= 0.5 * p * math.log(DEGREES * math.pi)
    tails = 0.5 * (DEGREES + p) * jnp.log1p(jnp.sum(z**2, axis=-1) / DEGREES)
    return mixture.log_weights + constant - volumes - tails


def move(mixture: Mixture, key: Array, theta: Float[Array, " p"], log_parts, s):
    """θ' of the local move from θ, given `log_components` there."""
    pick, scale, noise = jax.random.split(key, 3)
    r = _pick(pick, log_parts, ())
    apart = theta - mixture.centres[r]
    distance2 = jnp.sum((mixture.inverses[r] @ apart) ** 2)
    u = _chi_squared(scale, (), DEGREES + len(theta)) / (DEGREES + distance2)
    step = mixture.factors[r] @ jax.random.normal(noise, theta.shape) / jnp.sqrt(u)
    return mixture.centres[r] + jnp.sqrt(1 - s**2) * apart + s * step


def _pick(key, log_weights, shape):
    """Places drawn in proportion to weights, with one uniform number for each."""
    below = jnp.cumsum(jnp.exp(log_weights - jnp.max(log_weights)))
    uniform = below[-1] * jax.random.uniform(key, shape)
    return jnp.minimum(jnp.sum(below <= uniform[..., None], axis=-1), len(below) - 1)


def _chi_squared(key, shape, degrees: int):
    """As a sum of squares, which is quicker than by rejection."""
    return jnp.sum(jax.random.normal(key, (*shape, degrees)) ** 2, axis=-1)


def sample(mixture: Mixture, prior: Parameters, key: Array, count: int) -> Float[Array, "K p"]:
    """Points from g."""
    keys = jax.random.split(key, 5)
    r = _pick(keys[0], mixture.log_weights, (count,))
    noise = jax.random.normal(keys[1], (count, mixture.centres.shape[1]))
    noise = noise / jnp.sqrt(_chi_squared(keys[2], (count, 1), DEGREES) / DEGREES)
    near = mixture.centres[r] + jnp.einsum("kpq,kq->kp", mixture.factors[r], noise)
    from_prior = jax.random.uniform(keys[3], (count, 1)) < PRIOR_SHARE
    return jnp.where(from_prior, prior.sample(keys[4], (count,)), near)


def log_jump_density(log_prior: Array, log_mixture: Array) -> Array:
    """log g, given log q0 and log m."""
    return jnp.logaddexp(math.log(PRIOR_SHARE) + log_prior, math.log1p(-PRIOR_SHARE) + log_mixture)


def log_density(mixture: Mixture, thetas: Float[Array, "K p"]) -> Float[Array, " K"]:
    """log m at each point."""
    return jax.vmap(lambda theta: logsumexp(log_components(mixture, theta)))(thetas)


_log_density = jax.jit(log_density)
