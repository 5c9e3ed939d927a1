"""Densities against scipy, draws against their densities, and what noise refuses."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from pcuq.data import Data
from pcuq.errors import InputError
from pcuq.likelihood import log_likelihood
from pcuq.models import FunctionModel
from pcuq.noise import (
    CustomNoise,
    Gaussian,
    JointNoise,
    Laplace,
    LogNormal,
    NegativeBinomial,
    Poisson,
    StudentT,
)
from pcuq.objective import Objective
from pcuq.parameters import Parameter
from pcuq.problem import Problem

W, S = 2.5, 0.7
FAMILIES = {
    "gaussian": (Gaussian(), stats.norm(W, S)),
    "log-normal": (LogNormal(), stats.lognorm(S, scale=W)),
    "log10-normal": (LogNormal(transform="log10"), stats.lognorm(S * math.log(10), scale=W)),
    "laplace": (Laplace(), stats.laplace(W, S)),
    "log-laplace": (Laplace(transform="log"), stats.loglaplace(1 / S, scale=W)),
    "student": (StudentT(df=3.0), stats.t(3.0, W, S)),
    "poisson": (Poisson(), stats.poisson(W)),
    "negative binomial": (NegativeBinomial(), stats.nbinom(S, S / (S + W))),
}


@pytest.mark.parametrize("name", FAMILIES)
def test_log_prob_is_that_of_scipy(name):
    noise, law = FAMILIES[name]
    y = np.array([0.0, 1.0, 2.0, 7.0]) if noise.discrete else np.array([0.3, 1.0, 2.5, 7.0])
    wanted = law.logpmf(y) if noise.discrete else law.logpdf(y)
    np.testing.assert_allclose(noise.log_prob(jnp.asarray(y), W, S), wanted, rtol=1e-10)


@pytest.mark.quick("student", "log-normal", "negative binomial")
@pytest.mark.parametrize("name", FAMILIES)
def test_draws_follow_the_density(name):
    noise, law = FAMILIES[name]

    def follows(w, s):
        draws = np.asarray(noise.sample(jax.random.key(3), jnp.full(4000, w), jnp.full(4000, s)))
        if not noise.discrete:
            return stats.kstest(draws, law.cdf).pvalue > 1e-3
        values = np.arange(12)
        counts = np.array([np.sum(draws == value) for value in values])
        masses = law.pmf(values)
        z = (counts - 4000 * masses) / np.sqrt(4000 * masses * (1 - masses))
        return np.max(np.abs(z)) < 4.5  # twelve of them: by chance 1 in 12,000

    assert follows(W, S)
    assert not follows(1.2 * W, 1.2 * S)


@pytest.mark.parametrize("name", [name for name in FAMILIES if "student" not in name])
def test_sd_is_that_of_the_noise_where_kernels_act(name):
    noise, law = FAMILIES[name]
    wanted = law.std()
    if noise.transform != "identity":
        wanted = {"log-laplace": math.sqrt(2) * S}.get(name, S)
    np.testing.assert_allclose(noise.sd(W, S), wanted, rtol=1e-12)


def test_a_custom_density_without_draws_is_drawn_on_its_nodes():
    noise = CustomNoise(log_pdf=lambda y, w, s: Laplace().log_density(y, w, s))
    draws = np.asarray(noise.sample(jax.random.key(0), jnp.full(4000, W), jnp.asarray(S)))

    def follow(draws):
        at_mean = abs(draws.mean() - W) < 4 * math.sqrt(2) * S / math.sqrt(4000)
        return at_mean and abs(np.abs(draws - W).mean() - S) < 4 * S / math.sqrt(4000)

    assert follow(draws)
    assert not follow(draws + 0.2 * S) and not follow(W + 1.2 * (draws - W))


def test_joint_noise_draws_rows_and_reads_its_density():
    factor = np.linalg.cholesky([[1.0, 0.8], [0.8, 1.0]])
    noise = JointNoise(
        draw=lambda key, w, s: w + s * (factor @ jax.random.normal(key, (2,))),
        log_pdf=lambda y, w, s: -0.5 * jnp.sum(((y - w) / s) ** 2),
    )
    w = jnp.zeros((500, 4, 2))
    draws = np.asarray(noise.sample(jax.random.key(0), w, jnp.asarray(1.0))).reshape(-1, 2)
    assert abs(np.corrcoef(draws.T)[0, 1] - 0.8) < 4 * (1 - 0.64) / math.sqrt(2000)
    values = noise.log_prob(jnp.ones((3, 2)), jnp.zeros((3, 2)), jnp.ones((3, 2)))
    np.testing.assert_allclose(values, -np.ones(3))
    with pytest.raises(InputError, match="needs its `log_pdf`: give one"):
        JointNoise(draw=noise.draw).log_prob(w, w, w)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Gaussian(transform="sqrt"), "needs one of identity, log, log10: got 'sqrt'"),
        (lambda: StudentT(df=0.5), "`df` of StudentT needs to be at least 1: got 0.5"),
        (lambda: Poisson(transform="log"), "counts have no transform"),
        (CustomNoise, r"needs `log_pdf`, a callable \(y, w, s\)"),
        (JointNoise, r"needs `draw`, a callable \(key, w, s\)"),
    ],
)
def test_noise_that_makes_no_sense_is_refused(make, message):
    with pytest.raises(InputError, match=message):
        make()


@pytest.mark.parametrize(
    ("noise", "w", "fine"),
    [
        (Poisson(), [0.0, 3.0, -1e-5], [True, True, True]),  # by the solver's error below zero
        (Poisson(), [0.0, 3.0, -0.1], [True, True, False]),
        (LogNormal(0.1), [0.0, 3.0, 1.0], [False, True, True]),
        (Gaussian(0.1), [0.0, -3.0, 1.0], [True, True, True]),
    ],
)
def test_means_that_a_noise_cannot_have_are_told(noise, w, fine):
    means, found = noise.measurable(jnp.asarray(w))
    np.testing.assert_array_equal(found, fine)
    np.testing.assert_allclose(means, np.where(fine, w, 1.0), atol=1e-4)
    assert np.isfinite(noise.log_prob(jnp.array([0.5, 3.0, 1.0]), means, 0.1)).all()


def test_a_count_whose_mean_is_zero_is_no_failure():
    """Cases since the start: none at its time, as is seen."""
    model = FunctionModel(lambda x, p: [p["rate"] * x], {"rate": Parameter("log")}, ("cases",))
    problem = Problem(model, Data([0.0, 2.0, 5.0], [0.0, 1.0, 2.0], noise=Poisson()))
    found = log_likelihood(problem, np.log([2.0]))
    assert float(found) == pytest.approx(stats.poisson([2, 4]).logpmf([2, 5]).sum())
    assert float(Objective(problem).data_terms_of_many(np.log([[2.0]]))[0]) > 0.1
