"""Paths to where a law may reach: along a valley of v, and around its corner."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from pcuq import Data, FunctionModel, GaussianKernel, Parameter, Problem
from pcuq.objective import Objective
from pcuq.samplers import paths
from pcuq.straight import Straight

LAM = 1e-3
TIMES = np.linspace(0.5, 3.0, 6)


def rate():
    """A rate over eight decades, each as likely."""
    return Parameter("log10", dist.Uniform(-4.0, 4.0), "scale", lower=1e-4, upper=1e4)


@pytest.fixture(scope="module")
def objective():
    """Of rates a and b only the sum is known, of c and d only the product, and e is known."""
    model = FunctionModel(
        lambda x, p: [jnp.exp(-(p["a"] + p["b"]) * x), p["c"] * p["d"] * x + p["e"]],
        {name: rate() for name in "abcd"} | {"e": Parameter("identity")},
        ("decays", "grows"),
    )
    y = np.stack([np.exp(-0.8 * TIMES), 0.5 * TIMES + 0.3], axis=1)
    return Objective(Problem(model, Data(y, TIMES, 0.05), GaussianKernel()))


def axes_of(objective):
    return Straight(objective.problem.parameters.bounded)


def begin(objective):
    """Not at the fit, and one of them beyond help."""
    eta = np.array([[-0.3, -0.4, 0.05, -0.1, 0.2], [1.9, 1.9, 1.9, 1.9, 3.0]])
    return np.asarray(axes_of(objective).bent(eta))


def test_a_walker_knows_v_its_gradient_and_how_fast_the_embedding_changes(objective):
    axes, etas = axes_of(objective), np.random.default_rng(0).normal(0, 0.2, (3, 5))
    walk = jax.jit(paths._walk(objective, axes, LAM))
    still, unit = np.zeros((3, 5)), paths._units(objective)
    assert (unit[:4] == 1).all() and unit[4] == pytest.approx(1, abs=0.1)  # the prior's sd
    found = walk(*paths._unknown(etas), still, np.zeros(3, int))
    np.testing.assert_array_equal(found.eta, etas)

    def v(eta):
        return objective.data_terms(objective.features(axes.bent(unit * eta)[None]))[0]

    def kappa0(a, b):
        a, b = (objective.features(axes.bent(unit * eta)[None]) for eta in (a, b))
        return objective.pair_block(a, b)[0, 0]

    for i, eta in enumerate(jnp.asarray(etas)):
        np.testing.assert_allclose(LAM * found.value[i], v(eta), rtol=1e-9)
        np.testing.assert_allclose(LAM * found.gradient[i], jax.grad(v)(eta), atol=1e-9)
        mixed = jax.jacfwd(jax.grad(kappa0, argnums=1), argnums=0)(eta, eta)
        np.testing.assert_allclose(LAM * found.metric[i], mixed, atol=1e-9)


def test_paths_follow_valleys_to_the_bounds_and_end_where_data_are_left(objective, monkeypatch):
    points, v = paths.profile_paths(objective, LAM, begin(objective))
    np.testing.assert_allclose(v, objective.data_terms_of_many(points), rtol=1e-6)
    assert v.min() > paths.WORTH * v.max() and v.max() == pytest.approx(v[0], rel=1e-3)
    reached = np.asarray(axes_of(objective).straight(points))
    assert (reached[:, :4].min(axis=0) < -1.8).all()  # -2 is the lower bound
    total = 10.0 ** (2 * reached[:, :2])
    np.testing.assert_allclose(total.sum(axis=1), 0.8, rtol=0.2)
    assert (total[v > 0.999 * v.max()].min(axis=0) < 1e-3).all()  # either arm of the L
    assert (reached[:, 2:4].max(axis=0) > 1.8).all()
    assert np.ptp(reached[:, 4]) < 0.5
    # Where the others neither follow nor climb, data are soon left.
    monkeypatch.setattr(paths, "CLIMBS", 0)
    monkeypatch.setattr(paths, "SOFT", 1e12)
    _, without = paths.profile_paths(objective, LAM, points[np.argmax(v)][None])
    assert len(without) < 0.5 * len(v)


def test_particles_begin_along_the_paths(objective):
    starts = paths.begun_along_paths(objective, LAM, begin(objective), (2, 50), seed=3)
    assert starts.shape == (2, 50, 5)
    v = objective.data_terms_of_many(starts.reshape(-1, 5))
    assert v.min() > paths.ALMOST * 0.999 * v.max()
    assert not np.array_equal(*starts)
    again = paths.begun_along_paths(objective, LAM, begin(objective), (2, 50), seed=3)
    np.testing.assert_array_equal(starts, again)
    for arm in (0, 1):
        assert (starts[..., arm].min(axis=1) < -1.5).all()  # systems are in both


def test_where_nothing_explains_the_data_there_is_one_point(objective):
    far = np.asarray(axes_of(objective).bent(np.full((1, 5), 1.99)))
    points, v = paths.profile_paths(objective, LAM, far)
    assert len(points) == 1 and v[0] == pytest.approx(0.0, abs=1e-12)
    assert paths.begun_along_paths(objective, LAM, far, (1, 2), seed=0).shape == (1, 2, 5)
