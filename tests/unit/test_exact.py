"""The exact minimiser against closed forms, independent optimisers, and its own certificate."""

import time

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq, minimize
from scipy.special import logsumexp, softmax

from pcuq.data import Data
from pcuq.errors import InputError
from pcuq.exact import fixed_point_residual, minimise, solve_on_grid
from pcuq.models import FunctionModel
from pcuq.objective import Objective
from pcuq.parameters import Parameter
from pcuq.problem import Problem

MODEL = FunctionModel(
    lambda x, p: jnp.stack([p["a"] * x, p["b"] + 0.0 * x]),
    {"a": Parameter("identity"), "b": Parameter("identity")},
    ("u", "w"),
)
X = np.linspace(0.0, 1.0, 7)
PROBLEM = Problem(MODEL, Data(np.stack([1.5 * X, np.cos(9 * X)], axis=1), x=X, noise=0.5))
SIDE = np.linspace(-3.0, 3.0, 13)
GRID = np.stack(np.meshgrid(SIDE, SIDE, indexing="ij"), axis=-1).reshape(-1, 2)


def gaussian_case(size, seed, dimension=2, width=0.7, scale=5e-3):
    """Gaussian kernel on points with their masses; the data are a sum of bumps elsewhere."""
    rng = np.random.default_rng(seed)
    points, data = rng.normal(size=(size, dimension)), rng.normal(size=(9, dimension))

    def kernel(a, b):
        return scale * np.exp(-((a[:, None] - b[None]) ** 2).sum(-1) / (2 * width**2))

    return kernel(points, points), kernel(points, data).mean(axis=1), rng.normal(size=size)


def free_energy(K, v, log_mass, lam, q):
    held = q > 0
    return q @ K @ q / 2 - v @ q + lam * q[held] @ (np.log(q[held]) - log_mass[held])


def mirror_descent(K, v, log_mass, lam, steps):
    """log q <- (1 - r) log q + r log(m exp((v - Kq) / lam)), for r small enough to descend."""
    log_q = log_mass - logsumexp(log_mass)
    rate = lam / (lam + np.abs(K).max())
    for _ in range(steps):
        target = log_mass + (v - K @ np.exp(log_q)) / lam
        log_q = (1 - rate) * log_q + rate * target
        log_q = log_q - logsumexp(log_q)
    return np.exp(log_q)


def test_without_interaction_it_is_the_tilted_prior():
    _, v, log_mass = gaussian_case(50, 0)
    q = minimise(np.zeros((50, 50)), v, log_mass, 1e-4)
    np.testing.assert_allclose(q, softmax(log_mass + v / 1e-4), rtol=1e-11)


def test_a_constant_interaction_changes_nothing():
    """q'(c 11')q = c for all weights."""
    _, v, log_mass = gaussian_case(50, 1)
    q = minimise(np.full((50, 50), 0.3), v, log_mass, 1e-3)
    np.testing.assert_allclose(q, softmax(log_mass + v / 1e-3), rtol=1e-10)


def test_without_data_or_interaction_it_is_the_prior():
    log_mass = np.log([0.2, 0.5, 0.3])
    q = minimise(np.zeros((3, 3)), np.zeros(3), log_mass, 1e-3)
    np.testing.assert_allclose(q, [0.2, 0.5, 0.3], rtol=1e-14)


def test_one_point_has_all_the_mass():
    assert minimise([[0.2]], [0.1], [-3.0], 1e-6) == pytest.approx([1.0])


@pytest.mark.parametrize("lam", [1e-1, 1e-3, 1e-5])
def test_two_points_solve_a_scalar_equation(lam):
    """With q = (p, 1 - p), dF/dp = 0 reads logit p = log(m1/m2) + (v1 - v2 - (Kq)1 + (Kq)2)/lam."""
    K, v = np.array([[5e-3, 2e-3], [2e-3, 4e-3]]), np.array([3e-3, 3.1e-3])
    log_mass = np.log([0.3, 1.4])

    def slope(logit):
        p = 1 / (1 + np.exp(-logit))
        u = K @ np.array([p, 1 - p])
        return logit - (log_mass[0] - log_mass[1]) - (v[0] - v[1] - u[0] + u[1]) / lam

    logit = brentq(slope, -600, 600, xtol=1e-14, rtol=1e-15)
    q = minimise(K, v, log_mass, lam)
    np.testing.assert_allclose(np.log(q[0] / q[1]), logit, rtol=1e-9)


@given(
    size=st.integers(2, 40),
    rank=st.integers(1, 40),
    seed=st.integers(0, 2**32 - 1),
    log_lam=st.floats(-7, 1),
)
def test_the_fixed_point_holds_for_any_positive_semidefinite_interaction(size, rank, seed, log_lam):
    rng = np.random.default_rng(seed)
    factor = rng.normal(size=(size, rank)) / np.sqrt(rank)
    K, lam = factor @ factor.T, 10.0**log_lam
    v, log_mass = rng.normal(size=size) * 0.3, rng.normal(size=size) * 3
    q = minimise(K, v, log_mass, lam)
    assert q.sum() == pytest.approx(1.0, abs=1e-12)
    # what v and K are rounded to, over lam, is the best that any method can do
    assert fixed_point_residual(K, v, log_mass, lam, q) < 1e-11 + 1e-14 * np.abs(K).max() / lam


@pytest.mark.parametrize("seed", range(3))
def test_mirror_descent_ends_at_the_same_weights(seed):
    K, v, log_mass = gaussian_case(80, seed)
    lam = 3e-4
    np.testing.assert_allclose(
        minimise(K, v, log_mass, lam), mirror_descent(K, v, log_mass, lam, 5000), rtol=1e-9
    )


def test_a_general_optimiser_finds_nothing_lower():
    K, v, log_mass = gaussian_case(12, 5)
    lam = 1e-3
    q = minimise(K, v, log_mass, lam)

    def objective(z):
        return free_energy(K, v, log_mass, lam, softmax(z)) / lam

    found = minimize(objective, np.zeros(12), method="BFGS", options={"gtol": 1e-8})
    assert objective(np.log(q)) <= found.fun + 1e-10
    np.testing.assert_allclose(softmax(found.x), q, atol=1e-5)


def test_moving_mass_between_points_raises_the_free_energy():
    K, v, log_mass = gaussian_case(30, 6)
    lam = 1e-4
    q = minimise(K, v, log_mass, lam)
    lowest = free_energy(K, v, log_mass, lam, q)
    rng = np.random.default_rng(0)
    for _ in range(200):
        other = q * np.exp(0.1 * rng.normal(size=30))
        assert free_energy(K, v, log_mass, lam, other / other.sum()) > lowest


def test_the_order_of_points_does_not_matter():
    K, v, log_mass = gaussian_case(200, 7)
    order = np.random.default_rng(0).permutation(200)
    q = minimise(K, v, log_mass, 1e-5)
    again = minimise(K[np.ix_(order, order)], v[order], log_mass[order], 1e-5)
    np.testing.assert_allclose(again, q[order], rtol=1e-9)


def test_a_point_split_in_two_halves_shares_its_weight():
    K, v, log_mass = gaussian_case(60, 8)
    index = np.append(np.arange(60), 17)
    split = log_mass[index] - np.log(2) * (index == 17)
    q = minimise(K, v, log_mass, 1e-5)
    halves = minimise(K[np.ix_(index, index)], v[index], split, 1e-5)
    np.testing.assert_allclose(halves, q[index] / np.where(index == 17, 2, 1), rtol=1e-9)


def test_a_constant_in_the_masses_drops_out():
    K, v, log_mass = gaussian_case(60, 9)
    np.testing.assert_allclose(
        minimise(K, v, log_mass - 400, 1e-5), minimise(K, v, log_mass, 1e-5), rtol=1e-9
    )


def test_points_outside_the_prior_get_nothing_and_do_not_act():
    K, v, log_mass = gaussian_case(60, 10)
    inside = np.arange(60) % 3 > 0
    q = minimise(K, v, np.where(inside, log_mass, -np.inf), 1e-5)
    assert (q[~inside] == 0).all()
    alone = minimise(K[np.ix_(inside, inside)], v[inside], log_mass[inside], 1e-5)
    np.testing.assert_allclose(q[inside], alone, rtol=1e-9)


@pytest.mark.parametrize("lam", [1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8])
@pytest.mark.parametrize("width", [0.1, 0.7])
def test_small_regularisations_are_reached(lam, width):
    K, v, log_mass = gaussian_case(600, 11, width=width)
    q = minimise(K, v, log_mass, lam)
    assert fixed_point_residual(K, v, log_mass, lam, q) < 1e-12 + 1e-15 * 5e-3 * 10 / lam


def test_points_that_failed_to_solve_keep_their_share_of_the_prior():
    """v = 0 and kappa0 = 0: their weights stand in the ratio of their masses."""
    K, v, log_mass = gaussian_case(60, 12)
    K[:5], K[:, :5], v[:5] = 0, 0, 0
    q = minimise(K, v, log_mass, 1e-4)
    np.testing.assert_allclose(q[:5] / q[0], np.exp(log_mass[:5] - log_mass[0]), rtol=1e-10)


def test_the_residual_sees_a_relative_error_in_one_small_weight():
    K, v, log_mass = gaussian_case(60, 13)
    q = minimise(K, v, log_mass, 1e-4)
    wrong = q.copy()
    wrong[q.argmin()] *= 1.001
    assert fixed_point_residual(K, v, log_mass, 1e-4, q) < 1e-12
    assert fixed_point_residual(K, v, log_mass, 1e-4, wrong) == pytest.approx(1e-3, rel=0.05)


def test_the_residual_is_infinite_where_a_weight_is_missing():
    K, v, log_mass = gaussian_case(60, 13)
    q = minimise(K, v, log_mass, 1e-4)
    q[q.argmax()] = 0
    assert fixed_point_residual(K, v, log_mass, 1e-4, q) == np.inf


def test_blocks_serve_as_well_as_the_whole_matrix(monkeypatch):
    monkeypatch.setattr("pcuq.exact.TILE", 32)
    K, v, log_mass = gaussian_case(100, 14)
    q = minimise(lambda a, b: K[np.ix_(a, b)], v, log_mass, 1e-4)
    np.testing.assert_array_equal(q, minimise(K, v, log_mass, 1e-4))


def test_an_indefinite_interaction_is_an_error_and_not_an_answer():
    K = np.array([[0.0, 1.0], [1.0, 0.0]])
    with pytest.raises(InputError, match="positive semi-definite"):
        minimise(K, [0.0, 0.1], [0.0, 0.0], 1e-2)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"lam": 0.0}, "regularisation"),
        ({"lam": np.nan}, "regularisation"),
        ({"tolerance": -1.0}, "tolerance"),
        ({"v": [0.0, np.nan]}, "`v` needs finite"),
        ({"v": [0.0]}, "one number per point"),
        ({"v": [], "log_mass": []}, "at least one point"),
        ({"log_mass": [-np.inf, -np.inf]}, "mass on some point"),
        ({"log_mass": [np.inf, 0.0]}, "mass on some point"),
        ({"kappa0": np.eye(3)}, "`kappa0` needs shape"),
        ({"kappa0": [[1.0, np.nan], [0.0, 1.0]]}, "finite"),
        ({"kappa0": [[1.0, 0.5], [0.0, 1.0]]}, "symmetric"),
    ],
)
def test_bad_input_is_told_what_was_wanted(changed, words):
    good = {"kappa0": np.eye(2), "v": [0.0, 0.1], "log_mass": [0.0, 0.0], "lam": 0.1}
    with pytest.raises(InputError, match=words):
        minimise(**(good | changed))


@pytest.mark.slow
def test_the_grid_solution_satisfies_the_fixed_point_of_the_problem():
    lam, volumes = 1e-4, 0.25 * (1 + (GRID[:, 0] > 0))
    q = solve_on_grid(PROBLEM, lam, GRID, volumes)
    objective = Objective(PROBLEM)
    features = objective.features(jnp.asarray(GRID))
    K, v = objective.pair_block(features, features), objective.data_terms(features)
    log_mass = -(GRID**2).sum(axis=1) / 2 + np.log(volumes)
    assert fixed_point_residual(np.asarray(K), np.asarray(v), log_mass, lam, q) < 1e-10


@pytest.mark.default_precision
def test_the_grid_solution_does_not_depend_on_the_precision_setting():
    q = solve_on_grid(PROBLEM, 1e-4, GRID, 0.25)
    assert q.dtype == np.float64
    assert q.sum() == pytest.approx(1.0, abs=1e-12)
    np.testing.assert_allclose(q, solve_on_grid(PROBLEM, 1e-4, GRID, np.full(169, 3.0)), rtol=1e-9)


def test_a_large_regularisation_gives_the_prior_on_the_grid():
    q = solve_on_grid(PROBLEM, 1e8, GRID, 1.0)
    np.testing.assert_allclose(q, softmax(-(GRID**2).sum(axis=1) / 2), rtol=1e-7)


@pytest.mark.parametrize(
    ("points", "volumes", "words"),
    [
        (np.zeros((0, 2)), 1.0, "at least one row"),
        (np.zeros((4, 3)), 1.0, r"shape \(G, 2\)"),
        (np.zeros(2), 1.0, r"shape \(G, 2\)"),
        (np.array([[0.0, np.inf]]), 1.0, "row 0"),
        (np.zeros((4, 2)), np.ones(3), "each of the 4 points"),
        (np.zeros((4, 2)), 0.0, "positive"),
        (np.zeros((4, 2)), [1.0, 1.0, np.nan, 1.0], "positive"),
    ],
)
def test_a_bad_grid_is_told_what_was_wanted(points, volumes, words):
    with pytest.raises(InputError, match=words):
        solve_on_grid(PROBLEM, 1e-4, points, volumes)


@pytest.mark.slow
def test_ten_thousand_points_take_seconds():
    """Gaussian kernel on curves 5a sin(bt) seen at 20 times: some overlap widely, some hardly."""
    rng = np.random.default_rng(0)
    theta, t = rng.normal(size=(10_000, 2)), np.linspace(0.0, 6.0, 20)
    curves = 5 * theta[:, :1] * np.sin(theta[:, 1:] * t)
    y = 5 * np.sin(1.2 * t) + rng.normal(size=20)
    K = np.zeros((10_000, 10_000))
    for w in curves.T:
        K += np.exp(-((w[:, None] - w[None]) ** 2) / 6) / (np.sqrt(3) * 20**2)
    v = np.exp(-((y - curves) ** 2) / 4).sum(axis=1) / (np.sqrt(2) * 20**2)
    for lam in (1e-3, 1e-4, 1e-5, 1e-6):
        start = time.perf_counter()
        q = minimise(K, v, np.zeros(10_000), lam)
        print(f"10,000 points, lam = {lam:g}: {time.perf_counter() - start:.1f} s")
        assert fixed_point_residual(K, v, np.zeros(10_000), lam, q) < 1e-12 + 1e-15 * 0.3 / lam
