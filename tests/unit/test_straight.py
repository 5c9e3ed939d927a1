"""The coordinates in which parameters between bounds are moved."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from pcuq import Parameter
from pcuq.parameters import Parameters
from pcuq.samplers.mixture import log_components, straightened, student_mixture
from pcuq.straight import Straight

AXES = Straight(np.array([True, False]))
THETAS = np.array([[-30.0, 7.0], [-1.2, 0.0], [0.0, -3.0], [4.0, 100.0], [25.0, 1.0]])


def test_bent_undoes_straight():
    eta = np.asarray(AXES.straight(THETAS))
    assert np.all(np.abs(eta[:, 0]) < 2)
    np.testing.assert_array_equal(eta[:, 1], THETAS[:, 1])
    np.testing.assert_allclose(AXES.bent(eta)[1:4], THETAS[1:4], rtol=1e-12)


def test_the_slope_is_that_of_straight():
    slopes = jax.vmap(jax.jacfwd(AXES.straight))(jnp.asarray(THETAS[1:4]))
    wanted = np.log(np.abs(np.linalg.det(np.asarray(slopes))))
    np.testing.assert_allclose(AXES.log_slope(jnp.asarray(THETAS[1:4])), wanted, rtol=1e-12)


def test_a_start_on_a_bound_can_be_left_again():
    eta = AXES.straight(jnp.array([800.0, 0.0]))
    assert bool(AXES.inside(eta)) and np.all(np.isfinite(AXES.bent(eta)))
    assert not AXES.inside(jnp.array([2.0, 0.0])) and AXES.inside(jnp.array([0.0, 5.0]))


def test_scattered_points_have_the_covariance_and_stay_between_bounds():
    theta, covariance = np.array([1.0, 5.0]), np.array([[1e-6, 4e-4], [4e-4, 1.0]])
    noise = np.random.default_rng(0).normal(size=(4000, 2))
    found = AXES.scattered(theta, covariance, noise)
    np.testing.assert_allclose(found, theta + noise @ np.linalg.cholesky(covariance).T, atol=1e-5)
    # Far more than there is room for: drawn in along the line, and not all onto the bound.
    wide = AXES.scattered(theta, np.diag([400.0, 1.0]), noise)
    eta, middle = np.asarray(AXES.straight(wide)), np.asarray(AXES.straight(theta))
    assert np.all(np.isfinite(wide)) and np.all(np.abs(eta[:, 0]) < 2)
    shrunk = (eta - middle)[:, 1] / noise[:, 1]
    np.testing.assert_allclose(np.log2(shrunk), np.round(np.log2(shrunk)), atol=1e-6)
    assert shrunk.max() == pytest.approx(1.0) and shrunk.min() < 0.1
    # About a fit that lies on a bound itself.
    assert np.all(np.isfinite(AXES.scattered(np.array([800.0, 5.0]), covariance, noise)))


def test_a_mixture_of_theta_is_as_wide_at_its_centres():
    """Near a centre, densities of η and of θ differ by the slope alone."""
    centres = np.array([[0.7, -1.0], [-2.0, 3.0]])
    factors = np.array([[[0.1, 0.0], [0.3, 0.2]]] * 2)
    covariances = 1e-6 * factors @ np.swapaxes(factors, 1, 2)
    of_theta = student_mixture(centres, covariances)
    of_eta = straightened(of_theta, AXES)
    near = centres + 1e-4 * np.array([[0.2, 0.9], [-0.3, 0.1]])
    for r, theta in enumerate(jnp.asarray(near)):
        found = log_components(of_eta, AXES.straight(theta))[r] + AXES.log_slope(theta)
        np.testing.assert_allclose(found, log_components(of_theta, theta)[r], atol=2e-3)


def test_bounded_are_those_whose_prior_speaks_of_values():
    uniform, normal = dist.Uniform(0.0, 1.0), dist.Normal(0.0, 1.0)
    parameters = Parameters(
        {
            "value": Parameter("interval", uniform, "natural", 0.0, 1.0),
            "logarithm": Parameter("log10", dist.Uniform(-8, 8), "scale", 1e-8, 1e8),
            "theta": Parameter("interval", normal, lower=0.0, upper=1.0),
            "free": Parameter("log", normal, "scale"),
        }
    )
    np.testing.assert_array_equal(parameters.bounded, [True, True, False, False])
