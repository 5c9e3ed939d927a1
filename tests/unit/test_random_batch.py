"""The pair term of random groups against that of all pairs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pcuq import Data, FunctionModel, GaussianKernel, InputError, Parameter, Problem
from pcuq.objective import Objective
from pcuq.random_batch import RandomBatches, groups

LAM, COUNT = 0.01, 24


@pytest.fixture(scope="module")
def objective():
    model = FunctionModel(
        lambda x, p: [p["a"] + p["b"] * x], {"a": Parameter(), "b": Parameter()}, ("y",)
    )
    x = np.linspace(0.0, 1.0, 5)
    return Objective(Problem(model, Data(x[:, None] ** 2, x, 0.5), GaussianKernel()))


@pytest.fixture(scope="module")
def thetas():
    return jnp.asarray(np.random.default_rng(0).normal(size=(COUNT, 2)))


def estimates(objective, batch, thetas, number=4000):
    batches = RandomBatches(objective, batch)
    one = lambda key: batches.joint_evaluation(thetas, LAM, key)[1]  # noqa: E731
    return np.asarray(jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(1), number)))


def worst_z(found, exact):
    error = found.std(axis=0, ddof=1) / np.sqrt(len(found))
    return np.max(np.abs(found.mean(axis=0) - exact) / error)


@pytest.mark.quick("4")
@pytest.mark.parametrize("batch", [4, 7])  # 7: groups of 8; both with an error to be seen
def test_the_drift_is_unbiased_with_the_error_that_is_stated(objective, thetas, batch):
    exact = np.asarray(jax.jit(objective.joint_evaluation)(thetas, LAM)[1])
    found = estimates(objective, batch, thetas)
    assert worst_z(found, exact) < 4.5  # 48 numbers: one in 3000 runs of a right one is above
    size = len(groups(COUNT, batch)[0][0])

    def each(i, j):  # the gradient of −κ0(θ_i, θ_j)/λ in θ_i
        pair = objective.joint_evaluation(jnp.stack([thetas[i], thetas[j]]), LAM)[1][0]
        alone = objective.joint_evaluation(thetas[i][None], LAM)[1][0]
        return pair - alone

    table = np.asarray(jax.jit(jax.vmap(lambda j: each(0, j)))(jnp.arange(1, COUNT)))
    stated = table.std(axis=0) * np.sqrt((COUNT - size) / (COUNT - 2) / (size - 1))
    np.testing.assert_allclose(found[:, 0].std(axis=0), stated, rtol=0.08)


def test_a_share_of_one_over_the_group_is_found_out(objective, thetas):
    """1/B for 1/(B−1), as if a particle were one of its own others."""
    exact = np.asarray(jax.jit(objective.joint_evaluation)(thetas, LAM)[1])
    found = estimates(objective, 4, thetas)
    prior = np.asarray(jax.vmap(jax.grad(objective.problem.parameters.log_prior))(thetas))
    alone = np.asarray(jax.vmap(lambda t: objective.joint_evaluation(t[None], LAM)[1][0])(thetas))
    assert np.abs(alone - prior).max() > 0
    wrong = alone + (found - alone) * 3 / 4
    assert worst_z(wrong, exact) > 10


@pytest.mark.slow
def test_one_group_of_all_is_exact(objective, thetas):
    exact = jax.jit(objective.joint_evaluation)(thetas, LAM)
    whole = RandomBatches(objective, COUNT).joint_evaluation(thetas, LAM, jax.random.key(3))
    np.testing.assert_allclose(whole[0], exact[0], rtol=1e-12)
    np.testing.assert_allclose(whole[1], exact[1], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("count", "batch"), [(10, 4), (11, 4), (7, 2), (3, 2), (2, 64), (100, 33)])
def test_everyone_is_in_one_group_and_none_is_alone(count, batch):
    places, sizes = groups(count, batch)
    real = np.arange(places.shape[1]) < sizes[:, None]
    assert sorted(places[real]) == list(range(count))
    assert sizes.min() >= 2 and sizes.max() - sizes.min() <= 1


@pytest.mark.parametrize("batch", [1, 0, 2.5, True])
def test_a_batch_must_hold_another(objective, batch):
    with pytest.raises(InputError, match="pair_batch"):
        RandomBatches(objective, batch)
