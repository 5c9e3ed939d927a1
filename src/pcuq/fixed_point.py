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

from pcuq.objective import FITS, Objective, part_that_fits
from pcuq.samplers import jumps as jump_density
from pcuq.samplers.jumps import choose_centres, make_jumps

POINTS = 4000
POOL = 1000  # draws that stand for Q in the integral


class FixedPoint(NamedTuple):
    """How far the draws are from the fixed point that they define."""

    mean_difference: float  # largest over parameters, in sds, within the part that fits
    mass_difference: float  # of the part that fits
    ess: float  # of the importance sample: below a hundred the figures say little
    kl: float  # KL(Q, Q0)
    mmd2: float  # MMD²(P_n, P_Q) reached, without the bias of using a draw twice


def fixed_point(
    objective: Objective,
    lam: float,
    thetas: Float[np.ndarray, "K p"],
    v: Float[np.ndarray, " K"],
    seed: int = 0,
) -> FixedPoint:
    """The residual of the fixed-point equation for pooled draws and their data terms."""
    prior = objective.problem.parameters
    p = thetas.shape[1]
    pool = thetas[np.linspace(0, len(thetas) - 1, min(POOL, len(thetas))).round().astype(int)]
    floor = np.maximum(thetas[part_that_fits(v)].std(axis=0), 1e-9)
    jumps = make_jumps(choose_centres(thetas), floor)
    points = jump_density.sample(jumps, prior, jax.random.key(seed), POINTS)

    @jax.jit
    def potentials(points, pool):
        reference = objective.features(pool)
        weights = jnp.full(len(pool), 1.0 / len(pool))
        features = objective.features(points)
        v_points = objective.data_terms(features)
        log_prior = objective.log_priors(points)
        repulsion = objective.pair_rows(features, reference, weights)
        # A draw is left out of its own mean: it would see itself with weight 1/K.
        share = jnp.where(reference.ok, 1.0 / (len(pool) - 1), 0.0)
        one = reference.representation
        own = objective.pairs.rows(one, one, share, exclude_self=True)
        own = jnp.where(reference.ok, own, 0.0)
        log_jump = jump_density.log_density(jumps, log_prior, points)
        return (
            v_points,
            log_prior,
            repulsion - v_points,
            log_jump,
            own,
            objective.data_terms(reference),
        )

    v_points, log_prior, potential, log_jump, own, v_pool = map(
        np.asarray, potentials(points, jnp.asarray(pool))
    )
    log_weights = log_prior - potential / lam - log_jump
    log_z = float(jax.scipy.special.logsumexp(jnp.asarray(log_weights))) - np.log(POINTS)
    weights = np.exp(log_weights - log_weights.max())
    weights /= weights.sum()

    largest = max(v.max(), 1e-300)
    fits, point_fits = v >= FITS * largest, v_points >= FITS * largest
    mass = float(weights[point_fits].sum())
    points = np.asarray(points)
    mean = (
        np.average(points[point_fits], axis=0, weights=weights[point_fits])
        if mass > 0
        else np.full(p, np.nan)
    )
    inside = thetas[fits]
    difference = np.abs(mean - inside.mean(axis=0)) / np.maximum(inside.std(axis=0), 1e-300)
    expected_potential = float(np.mean(own - v_pool))
    return FixedPoint(
        mean_difference=float(np.max(difference)),
        mass_difference=abs(mass - float(fits.mean())),
        ess=float(1 / np.sum(weights**2)),
        kl=max(0.0, -expected_potential / lam - log_z),
        mmd2=float(objective.constant - 2 * v_pool.mean() + own.mean()),
    )
