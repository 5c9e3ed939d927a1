"""Has the particle system reached Q_n? The fixed-point equation, solved on an importance sample.

Q_n satisfies

    q(θ) ∝ q0(θ) exp(−V_q(θ)/λ),        V_q(θ) = ∫ κ0(θ, ·) dq − v(θ).

On points of the jump density g, which stand for the prior with masses q0/g, the equation is solved
as `exact` solves it on a grid. Where mean or mass of the part that fits differ between the draws
and that solution by more than the error of the points, the system has not converged, or N is too
small. For mean and mass the points' standard errors are  sd/√ESS  and  √(m (1 − m)/ESS).

To put the draws into the right-hand side and compare the two sides says much less. Where Q errs by
δ, the right-hand side errs by −q (κ0 δ − mean)/λ, which is δ times some hundreds where the fit is
worth as many nats: draws that are within 0.05 sd of the exact Q_n of Lotka–Volterra missed that
equation by 0.5 sd, and two halves of them by 0.1 and 0.3.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from pcuq._program import Program
from pcuq.exact import minimise
from pcuq.objective import FITS, Objective
from pcuq.parameters import Parameters
from pcuq.samplers import mixture as mixtures
from pcuq.straight import Straight

POINTS = (2048, 1024, 512, 256)  # of the importance sample: as many as evaluations allow
EVALUATIONS = 1e9  # of the kernel
LEAST, MOST = 500, 1000  # draws that MMD² is computed from


class FixedPoint(NamedTuple):
    """How far the draws are from the fixed point, and what is known of that."""

    mean_difference: float  # largest over parameters, in sds, within the part that fits
    mass_difference: float  # of the part that fits
    mean_error: float  # standard errors of these two, from the points
    mass_error: float
    ess: float  # of the importance sample: with few the figures say little
    kl: float  # KL(Q_n, Q0)
    mmd2: float  # MMD²(P_n, P_Q) reached, without the bias of using a draw twice


def fixed_point(
    objective: Objective,
    lam: float,
    thetas: Float[np.ndarray, "K p"],
    v: Float[np.ndarray, " K"],
    particles: int,
    seed: int = 0,
    anchors: mixtures.Mixture | None = None,
) -> FixedPoint:
    """Pooled draws, with their data terms, beside the solution of the fixed-point equation.

    Draws stand system by system, `particles` of them together. With `anchors`, the points also
    lie where draws should be and none is.
    """
    prior = objective.problem.parameters
    axes = Straight(prior.bounded)
    mixture = mixtures.fit_mixture(
        np.asarray(axes.straight(thetas)),
        prior.standard_deviations,
        None if anchors is None else mixtures.straightened(anchors, axes),
    )
    each = len(objective.pairs.weights) * objective.embedding.pair_size
    count = next((n for n in POINTS if n**2 / 2 * each <= EVALUATIONS), POINTS[-1])
    points, log_mass = _importance_points(mixture, prior, axes, count, jax.random.key(seed))
    v_points = objective.data_terms_of_many(points)
    weights = minimise(_pairs(objective, points), v_points, log_mass, lam)

    # That of a point counts only if it has weight: any may fit better than all of Q.
    counted = v_points[weights > 1e-3 / count]
    largest = max(v.max(), counted.max(initial=0.0), 1e-300)
    fits, point_fits = v >= FITS * largest, v_points >= FITS * largest
    inside, ess = weights[point_fits], float(1 / np.sum(weights**2))
    mass = float(inside.sum())
    drawn = thetas[fits] if fits.any() else thetas
    difference = np.full(thetas.shape[1], np.nan)
    if mass > 0:
        apart = np.average(points[point_fits], axis=0, weights=inside) - drawn.mean(axis=0)
        difference = np.abs(apart) / np.maximum(drawn.std(axis=0), 1e-300)
    here = weights > 0
    return FixedPoint(
        mean_difference=float(np.max(difference)),
        mass_difference=abs(mass - float(fits.mean())),
        mean_error=float(np.sqrt(np.sum(inside**2)) / mass) if mass > 0 else np.nan,
        mass_error=float(np.sqrt(max(0.0, mass * (1 - mass)) / ess)),
        ess=ess,
        kl=max(0.0, float(weights[here] @ (np.log(weights[here]) - log_mass[here]))),
        mmd2=_mmd2(objective, _pool(objective, thetas, particles)),
    )


def _importance_points(mixture, prior: Parameters, axes: Straight, count: int, key):
    """Points of the jump density g that lie within bounds, with log q0/(count g) there."""

    @Program
    def draw(mixture, key):
        chance_key, prior_key = jax.random.split(key)
        from_prior = axes.straight(prior.sample(prior_key, (count,)))
        eta = mixtures.sample(mixture, from_prior, chance_key)
        theta = axes.bent(eta)
        log_prior = jax.vmap(prior.log_prior)(theta) - axes.log_slope(theta)
        log_mixture = mixtures.log_density(mixture, eta)
        log_g = mixtures.log_jump_density(log_prior, log_mixture, theta.shape[1])
        return theta, log_prior - log_g - np.log(count)

    theta, log_mass = map(np.asarray, draw(mixture, key))
    inside = np.isfinite(theta).all(axis=1)
    return theta[inside], log_mass[inside]


def _pairs(objective: Objective, points: Float[np.ndarray, "K p"]):
    """κ0 between some of the points and others, by their places."""
    features = Program(objective.features_of)(*objective.solve_many(points), points)
    block = Program(objective.pair_block)

    def between(rows, columns):
        a, b = (jax.tree.map(lambda leaf, i=i: leaf[i], features) for i in (rows, columns))
        return block(a, b)

    return between


def _mmd2(objective: Objective, pool: Float[np.ndarray, "K p"]) -> float:
    """C − 2 ∫ v dQ + ∬ κ0 dQ dQ, a draw being left out of the integral with itself."""

    @Program
    def value(pool, solved):
        features = objective.features_of(*solved, pool)
        share = jnp.full(len(pool), 1.0 / (len(pool) - 1))
        own = objective.pair_rows(features, features, share, exclude_self=True)
        return jnp.mean(own) - 2 * jnp.mean(objective.data_terms(features))

    return float(objective.constant + value(pool, objective.solve_many(pool)))


def _pool(objective: Objective, thetas, particles: int) -> np.ndarray:
    """Whole systems, evenly in time: their particles keep apart, so that they integrate better
    than as many draws at random."""
    each = len(objective.pairs.weights) * objective.embedding.pair_size
    size = np.clip(np.sqrt(EVALUATIONS / each), LEAST, MOST)
    whole = thetas.reshape(-1, particles, thetas.shape[1])
    count = min(len(whole), max(1, round(size / particles)))
    chosen = whole[np.linspace(0, len(whole) - 1, count).round().astype(int)]
    return chosen.reshape(-1, thetas.shape[1])
