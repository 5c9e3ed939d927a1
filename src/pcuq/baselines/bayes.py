"""The standard Bayesian posterior.

    log q(θ) = log p(y | θ) + log q0(θ) + const,

−∞ where the model cannot be solved. Run by `ParallelNuts`, `ParallelMala` or `ParallelEnsemble`.
"""

from __future__ import annotations

import jax.numpy as jnp

from pcuq.likelihood import log_likelihood_function
from pcuq.problem import Predictor, Problem
from pcuq.samplers.shared import LogDensity


def log_posterior(problem: Problem, predictor: Predictor) -> LogDensity:
    """θ ↦ (log posterior up to a constant, (log-likelihood, whether the model was solved)).

    A second argument is other data of the same shape.
    """
    log_likelihood = log_likelihood_function(problem, predictor)

    def log_density(theta, *y):
        likelihood = log_likelihood(theta, *y)
        ok = jnp.isfinite(likelihood)
        # Also where it is +∞ or no number: such a point must not hold a chain.
        likelihood = jnp.where(ok, likelihood, -jnp.inf)
        return likelihood + problem.parameters.log_prior(theta), (likelihood, ok)

    return log_density
