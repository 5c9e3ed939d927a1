"""Copies of a problem with data from its own model."""

import jax.numpy as jnp
import numpy as np
import pytest

import pcuq
from pcuq.errors import ComputationError
from pcuq.synthetic import with_synthetic_data


def line(noise, n=4000, **kwargs):
    model = pcuq.FunctionModel(
        lambda x, p: [p["a"] + p["b"] * x, jnp.exp(p["b"])],
        {"a": pcuq.Parameter("identity"), "b": pcuq.Parameter("identity")},
        ("y", "z"),
    )
    x = np.repeat([0.0, 1.0], n // 2)
    y = np.ones((n, 2))
    y[::5, 1] = np.nan
    return pcuq.Problem(model, pcuq.Data(y, x, noise, **kwargs))


def test_data_have_the_model_s_mean_its_noise_and_the_gaps_of_the_original():
    problem = line(np.array([0.5, 0.1]))
    theta = np.array([2.0, -1.0])
    first, second = with_synthetic_data(problem, theta, [1, 2])
    y, seen = first.data.y, ~np.isnan(problem.data.y)
    np.testing.assert_array_equal(~np.isnan(y), seen)
    for x, mean in ((0.0, 2.0), (1.0, 1.0)):
        here = y[first.data.x == x, 0]
        assert abs(here.mean() - mean) < 4 * 0.5 / np.sqrt(2000)
        assert abs(here.std() / 0.5 - 1) < 4 / np.sqrt(4000)
    z = y[seen[:, 1], 1]
    assert abs(z.mean() - np.exp(-1)) < 4 * 0.1 / np.sqrt(len(z))
    assert not np.allclose(y[:, 0], second.data.y[:, 0])
    again = with_synthetic_data(problem, theta, [1])[0]
    np.testing.assert_array_equal(y, again.data.y)


def test_noise_by_row_stays_with_its_row_also_when_rows_are_taken():
    sd = np.where(np.arange(4000)[:, None] % 2, 0.1, 2.0) * np.ones((1, 2))
    problem = line(sd)
    copy = with_synthetic_data(problem, np.zeros(2), [3])[0]
    odd = np.arange(4000) % 2 == 1
    assert abs(copy.data.y[odd, 0].std() / 0.1 - 1) < 0.1
    assert abs(copy.data.y[~odd, 0].std() / 2.0 - 1) < 0.1
    taken = problem.data.take(np.flatnonzero(odd)[:7])
    np.testing.assert_array_equal(taken.noise.scale, np.full((7, 2), 0.1))
    assert taken.n == 7 and len(taken.condition) == 7


def test_a_noise_that_is_fitted_has_the_scale_of_the_parameters():
    model = pcuq.FunctionModel(
        lambda x, p: [p["a"] * x],
        {"a": pcuq.Parameter("identity"), "sd": pcuq.Parameter("log")},
        ("y",),
    )
    x = np.ones(4000)
    problem = pcuq.Problem(model, pcuq.Data(np.ones((4000, 1)), x, "sd"))
    y = with_synthetic_data(problem, np.array([3.0, np.log(0.2)]), [0])[0].data.y
    assert abs(y.mean() - 3.0) < 0.02 and abs(y.std() / 0.2 - 1) < 0.06


def test_counts_stay_counts():
    model = pcuq.FunctionModel(lambda x, p: [p["rate"]], {"rate": pcuq.Parameter("log")}, ("k",))
    problem = pcuq.Problem(model, pcuq.Data(np.ones((2000, 1)), noise=pcuq.Poisson()))
    y = with_synthetic_data(problem, np.array([np.log(4.0)]), [5])[0].data.y
    assert abs(y.mean() - 4) < 0.2 and abs(y.var() / 4 - 1) < 0.15 and np.all(y == np.round(y))


def test_parameters_that_cannot_be_solved_are_refused():
    model = pcuq.FunctionModel(
        lambda x, p: [jnp.sqrt(p["a"])], {"a": pcuq.Parameter("identity")}, ("y",)
    )
    problem = pcuq.Problem(model, pcuq.Data(np.ones((3, 1)), np.arange(3.0)))
    with pytest.raises(ComputationError, match="cannot be solved at these parameters"):
        with_synthetic_data(problem, np.array([-1.0]), [0])
