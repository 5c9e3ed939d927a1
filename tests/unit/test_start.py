"""Where fits begin: found quickly, alike for all data of a design, and on a mesh that suits."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import pcuq
from pcuq import _program
from pcuq import start as starting
from pcuq.kernel_scale import default_lengthscale
from pcuq.likelihood import log_likelihood_function

TIMES = np.linspace(0.5, 6.0, 12)


def decay(seed=0, prior=None):
    """An exponential decay from 5 at rate 0.4, measured with noise."""
    rng = np.random.default_rng(seed)
    y = 5 * np.exp(-0.4 * TIMES) + rng.normal(0, 0.1, len(TIMES))
    model = pcuq.ODEModel(
        lambda t, u, p: [-p["k"] * u[0]],
        lambda p: [p["dose"]],
        {"k": pcuq.Parameter("log", prior), "dose": pcuq.Parameter("log")},
    )
    return pcuq.Problem(model, pcuq.Data(y, TIMES, noise=0.1))


def test_the_best_fit_is_a_maximum_with_the_curvature_of_the_posterior_there():
    problem = decay()
    start = starting.starting_fit(problem)
    with jax.enable_x64(True):
        likelihood = log_likelihood_function(problem, problem.predictor(start.best[None]))

        def posterior(theta):
            return likelihood(theta) + problem.parameters.log_prior(theta)

        best = jnp.asarray(start.best)
        step = np.sqrt(np.diagonal(start.covariance))
        gradient = np.array(jax.jacfwd(posterior)(best)) * step
        np.testing.assert_allclose(gradient, 0, atol=1e-2)
        # Fisher's curvature is that of the posterior where residuals are small.
        expected = np.diagonal(np.linalg.inv(start.covariance)) * step**2
        for one, curvature in zip(np.eye(2) * step, expected, strict=True):
            bend = 2 * posterior(best) - posterior(best + one) - posterior(best - one)
            np.testing.assert_allclose(bend, curvature, rtol=0.25)


def test_other_data_and_seeds_of_a_design_compile_nothing_anew():
    starting.starting_fit(decay(0), 0)
    before = set(_program._programs)
    starting.starting_fit(decay(1), 5)
    assert set(_program._programs) == before


def test_bayes_is_solved_on_a_mesh_about_its_fit_where_the_prior_is_stiff():
    problem = decay(prior=dist.Normal(0.0, 8.0))  # rates up to a thousand million
    fitted = pcuq.fit(problem, method="bayes", warmup=30, draws=10)
    (solver,) = json.loads(fitted.tree.attrs["solver"])
    assert solver["method"] == "mesh" and not solver["stiff"] and solver["steps"] < 100
    assert fitted.diagnostics["solver_error"] < 1e-2


def two_outputs(noise, lengthscale_x, combine):
    """A line and its exponential, of which the data bend away; gaps, and one time twice."""
    x = np.array([0.0, 0.5, 1.0, 1.5, 1.5, 2.0])
    y = np.column_stack([x + 0.6 * np.sin(3 * x), np.exp(x + 0.3 * np.cos(4 * x))])
    y[1, 0] = y[4, 1] = np.nan
    model = pcuq.FunctionModel(
        lambda x, p: [p["a"] + p["b"] * x, jnp.exp(p["a"] + p["b"] * x)],
        {"a": pcuq.Parameter("identity"), "b": pcuq.Parameter("identity")},
        ("line", "growth"),
    )
    laws = (pcuq.Gaussian(noise), pcuq.LogNormal(noise))
    kernel = pcuq.GaussianKernel("residuals", lengthscale_x, combine)
    return pcuq.Problem(model, pcuq.Data(y, x, noise=laws), kernel), x, y


@pytest.mark.parametrize("combine", ["product", "sum"])
@pytest.mark.parametrize("lengthscale_x", [0.0, 0.7])
def test_a_width_by_residuals_is_three_times_what_the_fit_leaves_and_at_least_the_noise(
    lengthscale_x, combine
):
    problem, x, y = two_outputs(0.1, lengthscale_x, combine)
    values = problem.parameters.constrain(jnp.asarray(starting.starting_fit(problem).best))
    line = float(values["a"]) + float(values["b"]) * x
    apart = np.column_stack([y[:, 0] - line, np.log(y[:, 1]) - line])
    expected = 3 * np.sqrt(np.nanmean(apart**2, axis=0))
    assert expected.min() > 0.3  # so that it is not the noise that decides
    np.testing.assert_allclose(default_lengthscale(problem), expected, rtol=1e-6)
    problem, _, _ = two_outputs(5.0, lengthscale_x, combine)
    np.testing.assert_allclose(default_lengthscale(problem), 5.0)
