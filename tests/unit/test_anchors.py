"""A small part of Q far from the rest of it: that it is found, and missed by no check."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from pcuq import Data, FunctionModel, GaussianKernel, Parameter, Problem
from pcuq.exact import solve_on_grid
from pcuq.fixed_point import fixed_point
from pcuq.objective import Objective
from pcuq.runs import PcuqRuns
from pcuq.samplers.anchors import _regular, find_anchors, tempered
from pcuq.samplers.mixture import ANCHOR_SHARE, fit_mixture, log_density, student_mixture
from pcuq.start import Start

FIT, NOISE = 3.5, 0.05
GRID = np.linspace(-6.0, 6.0, 2401)


@pytest.fixture(scope="module")
def far():
    """Data 3.5 sds of the prior away: (objective, λ at which a third of Q is there, start)."""
    y = FIT + NOISE * stats.norm.ppf((np.arange(12) + 0.5) / 12)[:, None]
    model = FunctionModel(lambda x, p: [p["a"]], {"a": Parameter("identity")}, ("y",))
    objective = Objective(Problem(model, Data(y, None, NOISE), GaussianKernel()))
    v = objective.data_terms_of_many(GRID[:, None])
    width = NOISE / np.sqrt(len(y))
    start = Start(np.array([[FIT]]), np.zeros(1), np.full((1, 1), width**2))
    return objective, v.max() / 12.0, start, v


def test_an_anchor_is_the_law_of_a_lone_particle(far):
    objective, lam, start, v = far
    law = stats.norm.pdf(GRID) * np.exp((v - v.max()) / lam)
    law[np.abs(GRID - FIT) > 0.4] = 0.0  # what lies near the prior is no part of it
    law /= law.sum()
    mean = law @ GRID
    sd = np.sqrt(law @ (GRID - mean) ** 2)
    anchors = find_anchors(objective, lam, start)
    found = float(anchors.factors[0, 0, 0]) / np.sqrt(1.5)
    assert abs(float(anchors.centres[0, 0]) - mean) < 0.3 * sd
    assert 0.7 < found / sd < 1.4
    assert float(anchors.centres[1, 0]) == FIT
    # Twice as wide as the posterior, and wider as the other.
    width = np.sqrt(1.5) * 2 * np.sqrt(start.covariance[0, 0])
    np.testing.assert_allclose(anchors.factors[1, 0, 0], width)
    np.testing.assert_allclose(anchors.inverses[1, 0, 0], 1 / width)
    np.testing.assert_allclose(np.exp(anchors.log_weights), 0.5)


def test_anchors_of_parameters_that_depend_on_each_other_follow_them():
    """A law of a lone particle that is Gaussian, narrow along one diagonal, and begun elsewhere."""
    turn, lam = np.array([[0.8, -0.6], [0.6, 0.8]]), 0.1
    covariance, mean = turn @ np.diag([1.0, 0.05**2]) @ turn.T, np.array([1.0, -2.0])

    def data_terms(thetas):
        apart = thetas - mean
        log_a = -0.5 * np.einsum("kp,pq,kq->k", apart, np.linalg.inv(covariance), apart)
        return lam * (log_a + np.sum(thetas**2, axis=1) / 2)  # without the prior

    objective = SimpleNamespace(
        data_terms_of_many=data_terms,
        log_priors_of_many=lambda thetas: -np.sum(thetas**2, axis=1) / 2,
    )
    start = Start(np.array([[0.5, -2.5]]), np.zeros(1), np.diag([0.3, 0.1]))
    anchors = find_anchors(objective, lam, start)  # pyright: ignore[reportArgumentType]
    scale = np.linalg.cholesky(covariance)
    apart = np.linalg.solve(scale, np.asarray(anchors.centres[0]) - mean)
    assert np.abs(apart).max() < 0.2
    # In the coordinates in which it is the identity.
    factor = np.linalg.solve(scale, np.asarray(anchors.factors[0])) / np.sqrt(1.5)
    np.testing.assert_allclose(factor @ factor.T, np.eye(2), atol=0.25)


def test_draws_that_miss_a_part_of_q_are_found_out(far):
    """Draws of the exact Q pass, and draws of the rest of it alone do not."""
    objective, lam, start, v = far
    q = solve_on_grid(objective.problem, lam, GRID[:, None], GRID[1] - GRID[0])
    there = q[GRID > 2].sum()
    assert 0.2 < there < 0.5
    rng = np.random.default_rng(0)
    both = rng.choice(len(GRID), 4000, p=q)
    rest = rng.choice(len(GRID), 4000, p=np.where(GRID > 2, 0, q) / (1 - there))
    anchors = find_anchors(objective, lam, start)

    def check(places, anchors, seed=0):
        return fixed_point(objective, lam, GRID[places, None], v[places], 50, seed, anchors)

    assert check(both, anchors).mass_difference < 0.05
    assert check(rest, anchors).mass_difference == pytest.approx(there, abs=0.05)
    # As all looks well where the draws are; one time in ten a point of the prior falls there.
    without = [check(rest, None, seed).mass_difference for seed in range(5)]
    assert np.median(without) < 0.05


def test_a_mixture_with_anchors_is_a_density():
    anchors = student_mixture(np.array([[FIT], [-FIT]]), np.full((2, 1, 1), 0.01))
    positions = np.random.default_rng(1).normal(size=(300, 1))
    mixture = fit_mixture(positions, np.ones(1), anchors)
    density = np.exp(np.asarray(jax.jit(log_density)(mixture, jnp.asarray(GRID[:, None]))))
    step = GRID[1] - GRID[0]
    np.testing.assert_allclose(density.sum() * step, 1.0, atol=5e-3)
    near = np.abs(np.abs(GRID) - FIT) < 0.4
    alone = np.exp(np.asarray(log_density(fit_mixture(positions, np.ones(1)), GRID[:, None])))
    share = step * (density - (1 - ANCHOR_SHARE) * alone)[near].sum()
    np.testing.assert_allclose(share, ANCHOR_SHARE, rtol=0.02)


def test_short_runs_can_reach_the_fit_from_anywhere(far):
    objective, lam, start, _ = far
    runs = PcuqRuns(objective, lam)
    left = np.random.default_rng(1).normal(size=(8, 1, 50, 1))  # all particles are at the prior
    near = np.linspace(FIT - 0.05, FIT + 0.05, 201)[:, None]

    def share(moves):
        density = np.exp(np.asarray(log_density(moves.shaped_by(left).mixture, near)))
        return density.sum() * (near[1, 0] - near[0, 0])

    assert share(runs.moves(start)) > 0.5 * ANCHOR_SHARE
    assert share(runs.sampler) < 0.2 * ANCHOR_SHARE


@pytest.mark.parametrize("spread", [0.01, 3.0, 300.0])
def test_weights_are_tempered_until_enough_points_have_some(spread):
    logs = spread * np.random.default_rng(2).normal(size=400)
    weights = tempered(logs)
    effective = 1 / np.sum(weights**2)
    np.testing.assert_allclose(weights.sum(), 1.0)
    if spread < 0.1:
        np.testing.assert_allclose(weights, np.exp(logs) / np.exp(logs).sum())
    else:
        np.testing.assert_allclose(effective, 0.2 * 400, rtol=1e-3)


def test_points_without_width_keep_some_of_the_width_before():
    before = np.array([[2.0, 0.5], [0.5, 1.0]])
    np.testing.assert_allclose(_regular(before, before), before)
    flat = np.diag([3.0, 0.0])
    assert np.linalg.eigvalsh(_regular(flat, before)).min() > 0.01
