"""Bijectors, priors with their Jacobians, and what a parameter refuses."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from pcuq.errors import InputError
from pcuq.parameters import Parameter, Parameters

PARAMETERS = {
    "logit": Parameter(),
    "logit with bounds": Parameter("logit", lower=-2.0, upper=5.0),
    "interval": Parameter("interval", lower=1.0, upper=3.0),
    "log": Parameter("log"),
    "log with bounds": Parameter("log", lower=1e-3, upper=1e3),
    "log10": Parameter("log10"),
    "log10 with bounds": Parameter("log10", lower=1e-5, upper=1e5),
    "identity": Parameter("identity"),
    "identity with bounds": Parameter("identity", lower=-1.0, upper=4.0),
}


@given(st.floats(-8, 8), st.sampled_from(sorted(PARAMETERS)))
def test_unconstrain_undoes_constrain(theta, name):
    parameter = PARAMETERS[name]
    value = float(parameter.constrain(theta))
    assert math.isclose(float(parameter.unconstrain(value)), theta, rel_tol=1e-8, abs_tol=1e-9)


def test_values_are_what_the_names_say():
    def value(name, theta):
        return float(PARAMETERS[name].constrain(theta))

    assert value("logit", 0.0) == 0.5
    assert value("interval", 0.0) == 2.0
    assert math.isclose(value("log", 1.5), math.exp(1.5))
    assert math.isclose(value("log10", 1.5), 10**1.5)
    assert math.isclose(value("log10 with bounds", 0.0), 1.0)
    assert math.isclose(value("log with bounds", math.log(3)), 1e-3 * (1e6) ** 0.75)
    assert value("identity with bounds", 0.0) == 1.5


def test_theta_is_told_in_words():
    said = {name: parameter.theta_of("k") for name, parameter in PARAMETERS.items()}
    plain = {name: words for name, words in said.items() if "θ" not in words}
    assert plain == {"logit": "logit k", "log": "log k", "log10": "log10 k", "identity": "k"}
    assert set(said.values()) - set(plain.values()) == {"θ of k"}


PRIORS = [
    (Parameter("log", dist.Gamma(2.0, 3.0), "natural"), stats.gamma(2, scale=1 / 3).pdf),
    (
        Parameter("log10", dist.LogNormal(0.1, 0.6), "natural"),
        stats.lognorm(0.6, scale=math.exp(0.1)).pdf,
    ),
    (Parameter("logit", dist.Beta(2.0, 5.0), "natural"), stats.beta(2, 5).pdf),
    (Parameter("interval", dist.Uniform(1.0, 3.0), "natural", 1.0, 3.0), stats.uniform(1, 2).pdf),
    (
        Parameter("log10", dist.Normal(0.5, 2.0), "scale"),
        lambda v: stats.norm(0.5, 2).pdf(np.log10(v)) / (v * math.log(10)),
    ),
    (
        Parameter("log10", dist.Uniform(-5.0, 5.0), "scale", 1e-5, 1e5),
        lambda v: 0.1 / (v * math.log(10)),
    ),
]


@pytest.mark.parametrize(("parameter", "pdf"), PRIORS)
def test_a_prior_of_the_value_carries_its_jacobian(parameter, pdf):
    """q0(θ) = p(value(θ)) |dvalue/dθ|, the slope by automatic differentiation.

    To six digits: a distribution made outside of 64 bits, as a user's is, may hold 32-bit numbers.
    """
    for theta in (-1.3, 0.0, 0.8):
        value, slope = jax.value_and_grad(lambda t: jnp.asarray(parameter.constrain(t)))(theta)
        wanted = math.log(pdf(float(value)) * abs(float(slope)))
        assert math.isclose(float(parameter.log_prior(jnp.asarray(theta))), wanted, rel_tol=1e-6)


@pytest.mark.quick("parameter1-pdf", "parameter3-pdf")
@pytest.mark.parametrize(("parameter", "pdf"), PRIORS)
def test_draws_follow_the_prior(parameter, pdf):
    """Mean of the probability integral transform over θ, by a grid: uniform has mean ½."""
    draws = np.asarray(parameter.sample(jax.random.key(1), (2000,)))
    grid = np.linspace(-40, 40, 40_001)
    density = np.exp(np.asarray(jax.vmap(parameter.log_prior)(jnp.asarray(grid))))
    cumulative = np.cumsum(density)

    def p_value(draws):
        ranks = np.interp(draws, grid, cumulative / cumulative[-1])
        return stats.kstest(ranks, "uniform").pvalue

    assert p_value(draws) > 1e-3
    # Half as wide again, about their mean, they are told apart.
    assert p_value(draws.mean() + 1.5 * (draws - draws.mean())) < 1e-6


def test_the_default_prior_is_standard_normal_on_theta():
    value = Parameter().log_prior(jnp.asarray(0.7))
    assert math.isclose(float(value), stats.norm.logpdf(0.7), rel_tol=1e-12)


def test_a_prior_that_reaches_outside_is_drawn_inside():
    parameter = Parameter("log", dist.Normal(1.0, 1.0), "natural")
    draws = parameter.sample(jax.random.key(0), (1000,))
    assert np.all(np.isfinite(draws)) and np.all(np.asarray(draws) != 0.0)
    natural = np.exp(np.asarray(draws))
    assert stats.kstest(natural, stats.truncnorm(-1, np.inf, 1, 1).cdf).pvalue > 1e-3
    # A quarter larger, they are told apart.
    assert stats.kstest(1.25 * natural, stats.truncnorm(-1, np.inf, 1, 1).cdf).pvalue < 1e-6


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"transform": "sqrt"}, "`transform` needs one of logit, log, .*: got 'sqrt'"),
        ({"prior_on": "x"}, "`prior_on` needs one of unconstrained, .*: got 'x'"),
        ({"prior_on": "natural"}, "needs a `prior`: give one, or leave both out"),
        ({"transform": "interval"}, "'interval' parameter needs both `lower` and `upper`"),
        ({"lower": 0.0}, "go together: got only lower; give both"),
        ({"lower": 2.0, "upper": 1.0}, "lower < upper: got 2.0, 1.0"),
        ({"transform": "log", "lower": -1.0, "upper": 1.0}, "needs `lower` > 0: got -1.0"),
        ({"prior": 3.0}, "must be a numpyro distribution: got float"),
        ({"prior": dist.Normal(jnp.zeros(2), 1.0)}, "one number: got Normal with batch shape"),
        ({"prior": dist.Poisson(3.0)}, "continuous distribution of one number: got Poisson"),
        (
            {"transform": "log", "prior": dist.Uniform(1.0, 2.0), "prior_on": "natural"},
            "no density to the natural value .* set `lower` and `upper` to the prior's support",
        ),
        (
            {"transform": "log", "prior": dist.Normal(-9.0, 1.0), "prior_on": "natural"},
            "only 0% of the prior Normal lies in the range",
        ),
    ],
)
def test_a_parameter_that_makes_no_sense_is_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        Parameter(**arguments)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("log", -1.0, "finite and in its range: got -1.0"),
        ("identity", np.nan, "finite and in its range: got nan"),
        ("interval", 3.0, r"outside \(1, 3\): move it inside, or widen"),
        ("log10 with bounds", 1e6, r"outside \(1e-05, 100000\)"),
    ],
)
def test_a_value_outside_the_range_is_refused(name, value, message):
    with pytest.raises(InputError, match=message):
        PARAMETERS[name].unconstrain(value)


def test_parameters_are_ordered_by_name_as_given():
    parameters = Parameters({"b": Parameter("log"), "a": Parameter("identity")})
    assert parameters.names == ("b", "a") and len(parameters) == 2
    values = parameters.constrain(jnp.array([0.0, 3.0]))
    assert values == {"b": 1.0, "a": 3.0}
    np.testing.assert_allclose(parameters.unconstrain({"a": 3.0, "b": 1.0}), [0.0, 3.0])
    batch = parameters.constrain(jnp.zeros((5, 4, 2)))
    assert batch["a"].shape == (5, 4)
    draws = parameters.sample(jax.random.key(0), (7,))
    assert draws.shape == (7, 2) and not np.allclose(draws[:, 0], draws[:, 1])
    wanted = stats.norm.logpdf([0.3, -0.2]).sum()
    assert math.isclose(float(parameters.log_prior(jnp.array([0.3, -0.2]))), wanted, rel_tol=1e-12)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "at least one entry: got {}"),
        ({"": Parameter()}, "non-empty string: got ''"),
        ({"a": 1.0}, "parameter 'a' must be a pcuq.Parameter: got float"),
    ],
)
def test_a_set_of_parameters_that_makes_no_sense_is_refused(given, message):
    with pytest.raises(InputError, match=message):
        Parameters(given)


def test_values_must_name_exactly_the_parameters():
    with pytest.raises(
        InputError, match=r"exactly the parameters a: missing \['a'\], unknown \['b'\]"
    ):
        Parameters({"a": Parameter()}).unconstrain({"b": 0.5})


def test_widths_of_the_prior_are_the_same_whatever_the_flag():
    found = []
    for flag in (False, True):
        with jax.enable_x64(flag):
            found.append(Parameters({"a": Parameter("log")}).standard_deviations)
    assert found[0] == found[1]


def test_parameters_of_one_kind_are_drawn_apart_and_each_from_its_own_prior():
    """Two alike, one of the same family elsewhere, and a prior whose numbers are vectors."""
    mixture = dist.MixtureSameFamily(
        dist.Categorical(np.array([0.5, 0.5])), dist.Normal(np.array([-8.0, 8.0]), np.ones(2))
    )
    priors = {"a": dist.Normal(0, 1), "far": dist.Normal(50, 1), "b": dist.Normal(0, 1)}
    named = {
        name: Parameter("identity", prior) for name, prior in (priors | {"m": mixture}).items()
    }
    draws = Parameters(named).draws(jax.random.key(0), 600)
    assert draws.shape == (600, 4)
    np.testing.assert_allclose(draws.mean(axis=0)[:3], [0, 50, 0], atol=0.25)
    assert abs(np.corrcoef(draws[:, 0], draws[:, 2])[0, 1]) < 0.2
    assert np.mean(np.abs(np.abs(draws[:, 3]) - 8) < 4) > 0.99
    assert len(np.unique(draws[:, 0])) == 600  # blocks do not repeat each other
    assert Parameters(named).draws(jax.random.key(0), 0).shape == (0, 4)
