"""R-hat, ESS and MCSE: against ArviZ, against known answers, and at the edges."""

import warnings

import numpy as np
import pytest

from pcuq import diagnostics
from pcuq.errors import InputError

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    az = pytest.importorskip("arviz", reason="arviz is the reference here")

PAIRS = {
    "rhat": lambda x: az.rhat(x, method="rank"),
    "split_rhat": lambda x: az.rhat(x, method="split"),
    "ess_bulk": lambda x: az.ess(x, method="bulk"),
    "ess_tail": lambda x: az.ess(x, method="tail"),
    "ess_mean": lambda x: az.ess(x, method="mean"),
    "mcse_mean": lambda x: az.mcse(x, method="mean"),
}


def _ar1(rng, chains, draws, phi):
    noise = rng.normal(size=(chains, draws))
    x = np.empty((chains, draws))
    x[:, 0] = noise[:, 0] / np.sqrt(1 - phi**2)
    for t in range(1, draws):
        x[:, t] = phi * x[:, t - 1] + noise[:, t]
    return x


def _cases():
    rng = np.random.default_rng(11)
    yield "white", rng.normal(size=(4, 500))
    yield "slow", _ar1(rng, 4, 400, 0.95)
    yield "antithetic", _ar1(rng, 3, 300, -0.6)
    yield "shifted", rng.normal(size=(4, 200)) + np.arange(4)[:, None]
    yield "scaled", rng.normal(size=(4, 200)) * np.array([1, 1, 1, 5.0])[:, None]
    yield "heavy", rng.standard_cauchy(size=(2, 250))
    yield "odd", _ar1(rng, 2, 101, 0.5)
    yield "two-valued", rng.integers(0, 2, size=(4, 60)).astype(float)
    yield "trend", np.linspace(0, 1, 100) + 0.01 * rng.normal(size=(2, 100))
    for draws in range(4, 13):
        yield f"{draws} draws", rng.normal(size=(2, draws))
    yield "tiny scale", 1e-9 * rng.normal(size=(4, 100))


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize(("case", "x"), list(_cases()), ids=lambda v: v if type(v) is str else "")
def test_agrees_with_arviz(name, case, x):
    if name == "ess_tail" and case == "two-valued":
        pytest.skip("arviz's quantile of tied values is off by rounding")
    with np.errstate(all="ignore"):
        expected = PAIRS[name](x)
    np.testing.assert_allclose(getattr(diagnostics, name)(x), expected, rtol=1e-10, atol=0)


@pytest.mark.parametrize("name", PAIRS)
def test_quantities_are_treated_one_by_one(name):
    x = np.random.default_rng(0).normal(size=(3, 40, 2, 5)).cumsum(axis=1)
    function = getattr(diagnostics, name)
    together = function(x)
    assert together.shape == (2, 5)
    apart = [[function(x[:, :, i, j]) for j in range(5)] for i in range(2)]
    np.testing.assert_allclose(together, apart, rtol=1e-12)


def test_autocovariance_is_the_direct_sum():
    x = np.random.default_rng(1).normal(size=(2, 17))
    c = x - x.mean(axis=1, keepdims=True)
    direct = [[c[k, : 17 - t] @ c[k, t:] / 17 for t in range(17)] for k in range(2)]
    np.testing.assert_allclose(diagnostics.autocovariance(x), direct, atol=1e-14)


def test_rhat_of_two_shifted_chains_by_hand():
    # halves (0, 1), (0, 1), (2, 3), (2, 3): W = 1/2, B/n = variance of (.5, .5, 2.5, 2.5) = 4/3
    x = np.array([[0.0, 1.0, 0.0, 1.0], [2.0, 3.0, 2.0, 3.0]])
    expected = np.sqrt((0.5 * 0.5 + 4 / 3) / 0.5)
    assert diagnostics.split_rhat(x) == pytest.approx(expected, rel=1e-14)


def test_ess_of_an_autoregression_is_that_of_its_spectrum():
    # tau = (1 + phi)/(1 - phi) = 3 at phi = 1/2; sd of the estimate is a few per cent here
    phi, chains, draws = 0.5, 8, 5000
    ess = diagnostics.ess_mean(_ar1(np.random.default_rng(3), chains, draws, phi))
    assert ess == pytest.approx(chains * draws * (1 - phi) / (1 + phi), rel=0.1)
    independent = diagnostics.ess_mean(_ar1(np.random.default_rng(3), chains, draws, 0.0))
    assert abs(independent / (chains * draws / 3) - 1) > 0.1  # the check tells them apart


def test_constant_draws_agree_with_themselves():
    x = np.full((3, 50), 0.1)
    assert diagnostics.rhat(x) == 1.0
    assert diagnostics.split_rhat(x) == 1.0
    assert diagnostics.ess_bulk(x) == diagnostics.ess_tail(x) == 150
    assert diagnostics.mcse_mean(x) == pytest.approx(0.0, abs=1e-16)


def test_chains_stuck_at_different_values_have_infinite_rhat():
    x = np.repeat([[0.1], [0.3], [0.7]], 33, axis=1)
    assert diagnostics.rhat(x) == np.inf
    assert diagnostics.split_rhat(x) == np.inf


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", PAIRS)
def test_non_finite_draws_make_only_their_own_quantity_unknown(name, bad):
    x = np.random.default_rng(2).normal(size=(2, 30, 2))
    clean = getattr(diagnostics, name)(x)
    x[1, 4, 0] = bad
    got = getattr(diagnostics, name)(x)
    assert np.isnan(got[0])
    assert got[1] == clean[1]


@pytest.mark.parametrize("name", PAIRS)
def test_short_chains_are_unknown(name):
    assert np.isnan(getattr(diagnostics, name)(np.zeros((4, 3))))
    assert np.isnan(getattr(diagnostics, name)(np.zeros((4, 3, 2)))).all()


def test_one_chain_is_compared_with_itself():
    rng = np.random.default_rng(5)
    assert diagnostics.rhat(rng.normal(size=(1, 1000))) < 1.01
    assert diagnostics.rhat(rng.normal(size=(1, 1000)) + np.linspace(0, 3, 1000)) > 1.2


def test_a_flat_array_is_refused_with_advice():
    with pytest.raises(InputError, match=r"\(chain, draw, ...\).*x\[None\]"):
        diagnostics.rhat(np.zeros(10))
