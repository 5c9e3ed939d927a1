"""Has the particle system reached Q_n? The fixed-point equation, by importance sampling.

Q_n satisfies  q(θ) ∝ q0(θ) exp(−V_Q(θ)/λ),  V_Q(θ) = ∫ κ0(θ, ·) dQ − v(θ).  With Q the pooled
draws, the right-hand side is a known density up to its constant. Points from the jump density g,
weighted by q0 exp(−V_Q/λ)/g, give its mean, sd and mass of the part that fits; where they differ
from those of the draws, the system has not converged (or N is too small). The same weights give
KL(Q, Q0).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from pcuq._program import Program
from pcuq.objective import FITS, Objective
from pcuq.parameters import Parameters
from pcuq.samplers import mixture as mixtures

POINTS = 4000  # of the importance sample
# Draws that stand for Q in the integral: as many as this many evaluations of the kernel allow.
EVALUATIONS = 1e9
LEAST, MOST = 500, 2000


class FixedPoint(NamedTuple):
    """How far the draws are from the fixed point that they define."""

    mean_difference: float  # largest over parameters, in sds, within the part that fits
    mass_difference: float  # of the part that fits
    ess: float  # of the importance sample: with few the figures say little
    kl: float  # KL(Q, Q0)
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
    """The residual of the fixed-point equation for pooled draws and their data terms.

    Draws stand system by system, `particles` of them together. With `anchors`, the points also
    lie where draws should be and none is.
    """
    prior = objective.problem.parameters
    p = thetas.shape[1]
    pool = _pool(objective, thetas, particles)
    mixture = mixtures.fit_mixture(thetas, prior.standard_deviations, anchors)
    points, log_prior, log_jump = map(
        np.asarray, _importance_points(mixture, prior, jax.random.key(seed))
    )

    @Program
    def potentials(points, solved_points, pool, solved_pool):
        reference = objective.features_of(*solved_pool, pool)
        features = objective.features_of(*solved_points, points)
        v_points = objective.data_terms(features)
        weights = jnp.full(len(pool), 1.0 / len(pool))
        repulsion = objective.pair_rows(features, reference, weights)
        # A draw is left out of its own mean: it would see itself with weight 1/K.
        share = jnp.full(len(pool), 1.0 / (len(pool) - 1))
        own = objective.pair_rows(reference, reference, share, exclude_self=True)
        return v_points, repulsion - v_points, own, objective.data_terms(reference)

    v_points, potential, own, v_pool = map(
        np.asarray,
        potentials(points, objective.solve_many(points), pool, objective.solve_many(pool)),
    )
    log_weights = log_prior - potential / lam - log_jump
    log_z = float(np.logaddexp.reduce(log_weights)) - np.log(POINTS)
    weights = np.exp(log_weights - log_weights.max())
    weights /= weights.sum()

    # That of a point counts only if it has weight: any may fit better than all of Q.
    counted = v_points[weights > 1e-3 / POINTS]
    largest = max(v.max(), counted.max(initial=0.0), 1e-300)
    fits, point_fits = v >= FITS * largest, v_points >= FITS * largest
    mass = float(weights[point_fits].sum())
    mean = (
        np.average(points[point_fits], axis=0, weights=weights[point_fits])
        if mass > 0
        else np.full(p, np.nan)
    )
    inside = thetas[fits] if fits.any() else thetas
    difference = np.abs(mean - inside.mean(axis=0)) / np.maximum(inside.std(axis=0), 1e-300)
    expected_potential = float(np.mean(own - v_pool))
    return FixedPoint(
        mean_difference=float(np.max(difference)),
        mass_difference=abs(mass - float(fits.mean())),
        ess=float(1 / np.sum(weights**2)),
        kl=max(0.0, -expected_potential / lam - log_z),
        mmd2=float(objective.constant - 2 * v_pool.mean() + own.mean()),
    )


def _importance_points(mixture, prior: Parameters, key):
    """Points of the jump density g, with log q0 and log g there."""

    @Program
    def draw(mixture, key):
        points = mixtures.sample(mixture, prior, key, POINTS)
        log_prior = jax.vmap(prior.log_prior)(points)
        log_mixture = mixtures.log_density(mixture, points)
        return points, log_prior, mixtures.log_jump_density(log_prior, log_mixture)

    return draw(mixture, key)


def _pool(objective: Objective, thetas, particles: int) -> np.ndarray:
    """Whole systems, evenly in time: their particles keep apart, so that they integrate better
    than as many draws at random."""
    each = POINTS * len(objective.pairs.weights) * objective.embedding.pair_size
    size = np.clip(EVALUATIONS / each, LEAST, MOST)
    whole = thetas.reshape(-1, particles, thetas.shape[1])
    count = min(len(whole), max(1, round(size / particles)))
    chosen = whole[np.linspace(0, len(whole) - 1, count).round().astype(int)]
    return chosen.reshape(-1, thetas.shape[1])
