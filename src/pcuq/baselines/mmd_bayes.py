"""MMD-Bayes: a Gibbs posterior whose loss is the squared maximum mean discrepancy.

    log q(θ) = log q0(θ) − β MMD²(P_n, P_θ) + const,    MMD²(P_n, P_θ) = C − 2 v(θ) + κ0(θ, θ).

β = 1/(2λ) is matched to λ: it weighs one particle's discrepancy against the prior as PCUQ weighs
that of the mixture. The paper takes β = exp(np), for θ in R^p; rounding in MMD² times such a β is
far more than 1, so no sampler can tell the law from a point mass at the parameter of least MMD².
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float
from scipy.optimize import minimize

from pcuq._program import Program
from pcuq._x64 import x64
from pcuq.errors import ComputationError, InputError
from pcuq.objective import Objective
from pcuq.problem import Problem
from pcuq.samplers.shared import LOWEST, LogDensities, of_one, value_and_gradient

POINT_MASS = (
    "A point mass at the minimum-MMD parameter: at this β the law is narrower than floating-point "
    "precision can resolve, so the minimiser of MMD² is returned and nothing was sampled."
)
DESCENTS = 16  # from the starts of least MMD²
MOST_STEPS = 200


def beta_matched(lam: float) -> float:
    """β = 1/(2λ)."""
    return 1.0 / (2.0 * lam)


def log_beta_of_paper(problem: Problem) -> float:
    """log β = np; β itself may be beyond the largest float."""
    return float(problem.data.n * len(problem.parameters))


def is_point_mass(objective: Objective, log_beta: float) -> bool:
    """Whether rounding in MMD², of size C · 2⁻⁵², changes the log density by more than 1."""
    return log_beta + np.log(objective.constant * np.finfo(float).eps) > 0


def log_posteriors(objective: Objective, beta: float) -> LogDensities:
    """Many θ ↦ (log q up to a constant, (v, whether the model was solved)), for a finite β."""
    if not (np.isfinite(beta) and beta > 0):
        raise InputError(
            f"`beta` needs a finite number > 0: got {beta}; its limit is a point mass."
        )
    discrepancies = mmd2_of_each(objective)

    def log_densities(thetas):
        mmd2, (v, ok) = discrepancies(thetas)
        return objective.log_priors(thetas) - beta * mmd2, (v, ok)

    return log_densities


def mmd2_of_each(objective: Objective) -> LogDensities:
    """Many θ ↦ (MMD²(P_n, P_θ), (v, ok)); ∞ where the model cannot be solved.

    There κ0 is 0 with every other particle by definition. With itself it cannot be: MMD² would be
    C, which is less than the best fit of a wrong model may reach.
    """
    constant = objective.constant

    def with_itself(representation):
        alone = jax.tree.map(lambda leaf: leaf[None], representation)
        return objective.pairs.block(alone, alone)[0, 0]

    def discrepancies(thetas):
        features = objective.features(thetas)
        v, ok = objective.data_terms(features), features.ok
        own = jax.vmap(with_itself)(features.representation)
        return jnp.where(ok, constant - 2 * v + own, jnp.inf), (v, ok)

    return discrepancies


@x64
def minimise_mmd(
    objective: Objective, starts: Float[np.ndarray, "K p"]
) -> tuple[Float[np.ndarray, " p"], float]:
    """The θ of least MMD² and that MMD², the best of descents (L-BFGS) from the best starts.

    Far from the data MMD² is flat: a descent that starts there stays there, so some start needs to
    be near a fit. The prior plays no part.
    """
    discrepancy, constant = of_one(mmd2_of_each(objective)), objective.constant

    def height(theta):
        # In units of C, in which it lies between about −2 and 0 whatever n is.
        mmd2, kept = discrepancy(theta)
        return -mmd2 / constant, kept

    climb = Program(value_and_gradient(height, objective.mode))

    def depth(theta):
        at = climb(theta)
        return -float(at.value), -np.asarray(at.gradient)

    starts = np.atleast_2d(np.asarray(starts, dtype=float))
    first = np.array([depth(theta)[0] for theta in starts])
    # Least first; of ascents that ended at the same place one is enough.
    order = np.unique(first.round(9), return_index=True)[1][:DESCENTS]
    order = order[first[order] < -LOWEST]
    if not len(order):
        raise ComputationError(
            "MMD² is finite at none of the starts: start nearer to a fit, or check that "
            "the model can be solved there."
        )
    options = {"maxiter": MOST_STEPS, "ftol": 1e-15, "gtol": 1e-10}
    ends = [minimize(depth, starts[i], jac=True, method="L-BFGS-B", options=options) for i in order]
    best = min(ends, key=lambda end: end.fun)
    return best.x, float(best.fun * constant)
