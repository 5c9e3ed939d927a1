"""The standard Bayesian posterior.

    log q(θ) = log p(y | θ) + log q0(θ) + const,

−∞ where the model cannot be solved. Run by `ParallelNuts`, `ParallelMala` or `ParallelEnsemble`.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from pcuq.likelihood import log_likelihood_of_outputs
from pcuq.problem import Predictor, Problem
from pcuq.samplers.shared import LogDensities


def log_posteriors(problem: Problem, predictor: Predictor) -> LogDensities:
    """Many θ ↦ (log posteriors up to a constant, (log-likelihoods, whether the model was solved)).

    A second argument is other data of the same shape.
    """
    log_likelihood = log_likelihood_of_outputs(problem)

    def log_densities(thetas, *y):
        solved = predictor.many(thetas)
        likelihood = jax.vmap(lambda *one: log_likelihood(*one, *y))(*solved, thetas)
        ok = jnp.isfinite(likelihood)
        # Also where it is +∞ or no number: such a point must not hold a chain.
        likelihood = jnp.where(ok, likelihood, -jnp.inf)
        return likelihood + jax.vmap(problem.parameters.log_prior)(thetas), (likelihood, ok)

    return log_densities
