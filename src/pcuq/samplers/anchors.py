r"""Where a particle would be if it were alone: a place that jumps must always be able to reach.

    a(θ) ∝ q0(θ) exp(v(θ)/λ)

is the law of one particle that no other repels. Moves follow where particles have been. Where Q
has only a small part there, and the others lie far away, all particles may have left it once;
nothing would then lead back, and a check that looks where the draws are would be content. So the
jump density keeps Student densities at the mean of `a` and at the best fit, somewhat wider.

They are found by importance sampling in rounds, which needs no derivative of the model: points of
a Student density are weighted by (a/t)^τ, τ ≤ 1 as large as leaves enough of them, and give the
mean and covariance of the next.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from pcuq.objective import Objective
from pcuq.samplers.mixture import DEGREES, Mixture, student_mixture
from pcuq.start import Start

ROUNDS, POINTS = 20, 512
LEAST_SHARE = 0.2  # of the points, as an effective number of them
WIDER = 1.5  # the covariance, relative to what was found: the others make room, but not all


def find_anchors(objective: Objective, lam: float, start: Start, seed: int = 0) -> Mixture:
    """Student densities at the law of a lone particle and at the posterior's best fit."""
    rng = np.random.default_rng(seed)
    mean, covariance = start.best, start.covariance
    for _ in range(ROUNDS):
        mean, covariance = _next(objective, lam, rng, mean, covariance)
    return student_mixture(
        np.stack([mean, start.best]), WIDER * np.stack([covariance, 4 * start.covariance])
    )


def _next(objective: Objective, lam: float, rng, mean, covariance):
    p = len(mean)
    factor = np.linalg.cholesky(covariance)
    scale = np.sqrt(DEGREES / rng.chisquare(DEGREES, POINTS))
    z = scale[:, None] * rng.normal(size=(POINTS, p))
    thetas = mean + z @ factor.T
    v = objective.data_terms_of_many(thetas)
    log_a = np.asarray(objective.log_priors_of_many(thetas)) + v / lam
    log_t = -0.5 * (DEGREES + p) * np.log1p(np.sum(z**2, axis=1) / DEGREES)
    weights = tempered(log_a - log_t)
    mean = weights @ thetas
    apart = thetas - mean
    return mean, _regular(apart.T @ (weights[:, None] * apart), covariance)


def tempered(log_weights: Float[np.ndarray, " K"]) -> Float[np.ndarray, " K"]:
    """Weights w^τ that sum to 1, τ ≤ 1 as large as leaves an effective `LEAST_SHARE` of them."""
    log_weights = log_weights - np.max(log_weights)

    def enough(tau: float) -> bool:
        weights = np.exp(tau * log_weights)
        return weights.sum() ** 2 >= LEAST_SHARE * len(weights) * np.sum(weights**2)

    tau = 1.0
    if not enough(tau):
        tau, above = 0.0, 1.0
        for _ in range(30):
            middle = 0.5 * (tau + above)
            tau, above = (middle, above) if enough(middle) else (tau, middle)
    weights = np.exp(tau * log_weights)
    return weights / weights.sum()


def _regular(covariance, before):
    """A little of the one before: a sample of few points may have no width in some direction."""
    return 0.98 * covariance + 0.02 * before
