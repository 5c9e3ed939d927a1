"""The law that samplers of a particle system draw from, against quadrature of its density.

Two particles with one parameter each: the joint density is a function on the plane, and its moments
and distribution function are sums over a grid. The repulsion of the pair matters (test below), so a
sampler that gets it wrong is found out.
"""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from pcuq import diagnostics
from pcuq.data import Data
from pcuq.kernels import GaussianKernel
from pcuq.models import FunctionModel
from pcuq.objective import Objective
from pcuq.parameters import Parameter
from pcuq.problem import Problem
from pcuq.samplers import ensemble
from pcuq.samplers.base import sample
from pcuq.samplers.ensemble import Ensemble
from pcuq.samplers.flow import Flow
from pcuq.samplers.mala import Mala
from pcuq.samplers.nuts import JointNuts

LAM = 0.08
SYSTEMS = 32
LARGEST_Z = 4.5  # of some ten statistics, in Monte Carlo standard errors

STATISTICS = {
    "mean": lambda a, b: (a + b) / 2,
    "square": lambda a, b: (a**2 + b**2) / 2,
    "product": lambda a, b: a * b,
    "below -0.6": lambda a, b: ((a < -0.6) * 1.0 + (b < -0.6)) / 2,
    "below 0": lambda a, b: ((a < 0.0) * 1.0 + (b < 0.0)) / 2,
    "below 0.3": lambda a, b: ((a < 0.3) * 1.0 + (b < 0.3)) / 2,
    "below 1": lambda a, b: ((a < 1.0) * 1.0 + (b < 1.0)) / 2,
    "both below 0.3": lambda a, b: (np.maximum(a, b) < 0.3) * 1.0,
    "close": lambda a, b: (np.abs(a - b) < 0.5) * 1.0,
}


@cache
def problem() -> Problem:
    model = FunctionModel(
        lambda x, p: [p["mu"]], {"mu": Parameter("identity", dist.Normal(0.2, 1.0))}, ("y",)
    )
    y = np.array([[-0.9], [0.2], [0.4], [1.1]])
    return Problem(model, Data(y, noise=0.5), GaussianKernel())


@cache
def exact(pairs: float = 1.0) -> dict[str, float]:
    """Statistics of log π by quadrature, with the pair sum multiplied by `pairs`."""
    sd2 = length2 = 0.5**2
    y = problem().data.y[:, 0]
    grid = np.linspace(-6, 6, 1201)

    def normalised(r, noise2):
        return np.sqrt(length2 / (length2 + noise2)) * np.exp(-(r**2) / 2 / (length2 + noise2))

    v = normalised(y[:, None] - grid, sd2).mean(axis=0)
    own = -((grid - 0.2) ** 2) / 2 + v / LAM
    pair = normalised(grid[:, None] - grid, 2 * sd2)
    log_density = own[:, None] + own - pairs * pair / LAM
    weights = np.exp(log_density - log_density.max())
    weights = weights / weights.sum()
    a, b = np.meshgrid(grid, grid, indexing="ij")
    return {name: float((weights * f(a, b)).sum()) for name, f in STATISTICS.items()}


def z_scores(theta, target) -> dict[str, float]:
    """(estimate − target)/standard error of each statistic, from draws (systems, draws, 2, 1)."""
    a, b = theta[..., 0, 0], theta[..., 1, 0]
    scores = {}
    for name, f in STATISTICS.items():
        x, wanted = f(a, b), target[name]
        error = float(diagnostics.mcse_mean(x))
        if x.std() == 0:
            # An indicator that never changed: binomial, with a tenth of the draws independent.
            error = np.sqrt(10 * abs(wanted * (1 - wanted)) / x.size) + 1e-12
        scores[name] = float((x.mean() - wanted) / error)
    return scores


def draws_of(sampler, draws: int, thin: int):
    rng = np.random.default_rng(5)
    starts = rng.normal(size=(SYSTEMS, 2, 1))
    v = np.ones((SYSTEMS, 2))
    return sample(sampler, starts, v, seed=11, warmup=300, draws=draws, thin=thin).theta


def worst(theta, target=None) -> float:
    return max(abs(z) for z in z_scores(theta, target or exact()).values())


LENGTHS = {Ensemble: (400, 1), Mala: (800, 4), JointNuts: (600, 1)}


@pytest.mark.parametrize("kind", LENGTHS, ids=lambda kind: kind.name)
def test_draws_follow_the_joint_density(kind):
    theta = draws_of(kind(Objective(problem()), LAM), *LENGTHS[kind])
    assert worst(theta) < LARGEST_Z, z_scores(theta, exact())
    # Nor the density without the pair, or with twice of it.
    assert min(worst(theta, exact(pairs)) for pairs in (0.0, 2.0)) > 2 * LARGEST_Z


@pytest.mark.slow
def test_the_flow_with_small_steps_nearly_follows_the_joint_density():
    theta = draws_of(Flow(Objective(problem()), LAM, step_size=0.005), 500, 60)
    target = exact()
    a, b = theta[..., 0, 0], theta[..., 1, 0]
    for name, f in STATISTICS.items():
        x = f(a, b)
        # Its bias is of the order of the step: two per cent of a statistic's sd, beside the noise.
        assert abs(x.mean() - target[name]) < 4.5 * diagnostics.mcse_mean(x) + 0.02 * x.std(), name


def test_the_flow_with_large_steps_is_told_apart():
    theta = draws_of(Flow(Objective(problem()), LAM, step_size=0.15), 800, 4)
    assert worst(theta) > LARGEST_Z


class PairsCountedTwice(Objective):
    """Accepts by a value in which each pair occurs twice, and moves by the right gradient."""

    def joint_evaluation(self, thetas, lam, *keys):
        value, *others = super().joint_evaluation(thetas, lam, *keys)
        features = self.features(thetas)
        return value - super().pair_block(features, features)[0, 1] / lam, *others

    def quick_pair_block(self, a, b):
        """What the ensemble accepts by."""
        return 2 * super().quick_pair_block(a, b)


@pytest.mark.parametrize("kind", [Ensemble, Mala], ids=lambda kind: kind.name)
def test_counting_pairs_twice_is_found_out(kind):
    theta = draws_of(kind(PairsCountedTwice(problem()), LAM), *LENGTHS[kind])
    assert worst(theta) > 2 * LARGEST_Z
    # It is the law with the doubled pair sum that such a sampler draws from.
    assert worst(theta, exact(2.0)) < LARGEST_Z


def test_jumps_that_forget_the_density_they_come_from_are_found_out(monkeypatch):
    monkeypatch.setattr(ensemble, "log_jump_density", lambda log_prior, log_mixture, p: 0.0)
    theta = draws_of(Ensemble(Objective(problem()), LAM), *LENGTHS[Ensemble])
    assert worst(theta) > 2 * LARGEST_Z


def test_the_repulsion_of_the_pair_matters_to_every_kind_of_statistic():
    with_pairs, without = exact(), exact(0.0)
    for name in ("square", "product", "below -0.6", "close"):
        assert abs(with_pairs[name] - without[name]) > 0.02, name


def test_quadrature_and_objective_mean_the_same_density():
    """The grid's density is written out in this file: it must be the one that is sampled."""
    objective = Objective(problem())
    points = np.array([[-0.7, 0.1], [0.3, 0.9], [-1.5, 2.0], [0.2, 0.25]])
    values = jax.vmap(lambda t: objective.joint_log_density(t[:, None], LAM))(jnp.asarray(points))
    y, s2 = problem().data.y[:, 0], 0.25

    def k(r, noise2):
        return np.sqrt(s2 / (s2 + noise2)) * np.exp(-(r**2) / 2 / (s2 + noise2))

    by_hand = [
        sum(-((t - 0.2) ** 2) / 2 + k(y - t, s2).mean() / LAM for t in (a, b))
        - k(a - b, 2 * s2) / LAM
        for a, b in points
    ]
    np.testing.assert_allclose(values - values[0], np.array(by_hand) - by_hand[0], rtol=1e-10)
