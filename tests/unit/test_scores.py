"""Scores: closed forms, other implementations, calibrated and broken forecasts."""

import json

import numpy as np
import pytest
import scoringrules
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from pcuq import scores
from pcuq.errors import InputError


def _normal_crps(y):
    return y * (2 * stats.norm.cdf(y) - 1) + 2 * stats.norm.pdf(y) - 1 / np.sqrt(np.pi)


def _draws(seed=0, shape=(40, 5, 2)):
    rng = np.random.default_rng(seed)
    return rng.normal(size=shape), rng.normal(size=shape[1:]), rng.random(shape[0])


def test_crps_by_hand():
    # draws 0 and 2, truth 1: E|X-y| = 1, E|X-X'| = 1 (plain) or 2 (fair)
    assert scores.crps([0.0, 2.0], 1.0) == pytest.approx(0.5)
    assert scores.crps([0.0, 2.0], 1.0, fair=True) == pytest.approx(0.0)
    # weights 3/4, 1/4: E|X-X'| = 2 * 3/16 * 2 = 3/4; 1 - sum w^2 = 3/8
    assert scores.crps([0.0, 2.0], 1.0, [3, 1]) == pytest.approx(1 - 3 / 8)
    assert scores.crps([0.0, 2.0], 1.0, [3, 1], fair=True) == pytest.approx(1 - 3 / 8 / (3 / 8))


def test_crps_of_normal_quantiles_is_the_closed_form():
    s = 20_000
    x = stats.norm.ppf((np.arange(s) + 0.5) / s)
    y = np.array([-2.0, -0.3, 0.0, 1.7])
    got = scores.crps(np.repeat(x[:, None], 4, axis=1), y)
    np.testing.assert_allclose(got, _normal_crps(y), atol=2e-5)


def test_fair_crps_is_unbiased_for_few_draws_and_plain_is_not():
    replicates, s, y = 20_000, 5, 0.4
    x = np.random.default_rng(1).normal(size=(s, replicates))
    fair, plain = (scores.crps(x, np.full(replicates, y), fair=f) for f in (True, False))
    z = (fair.mean() - _normal_crps(y)) / (fair.std() / np.sqrt(replicates))
    assert abs(z) < 4
    assert (plain.mean() - _normal_crps(y)) / (plain.std() / np.sqrt(replicates)) > 20


@pytest.mark.parametrize("fair", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_crps_and_energy_agree_with_the_full_pair_sum(fair, weighted):
    x, y, w = _draws()
    weights = w if weighted else None
    estimator = "fair" if fair else "nrg"
    full = {"estimator": estimator, "backend": "numpy"}
    spread_w = np.broadcast_to(w[:, None, None], x.shape) if weighted else None
    np.testing.assert_allclose(
        scores.crps(x, y, weights, fair),
        scoringrules.crps_ensemble(y, x, m_axis=0, ens_w=spread_w, **full),
        rtol=1e-12,
    )
    p = w / w.sum() if weighted else np.full(40, 1 / 40)
    apart = np.linalg.norm(x[:, None] - x[None], axis=-1)
    pair = np.einsum("i,j,ijr->r", p, p, apart) / ((1 - p @ p) if fair else 1)
    direct = np.einsum("i,ir->r", p, np.linalg.norm(x - y, axis=-1)) - pair / 2
    np.testing.assert_allclose(scores.energy_score(x, y, weights, fair), direct, rtol=1e-12)


def test_energy_score_of_one_output_is_the_crps():
    x, y, w = _draws(shape=(700, 3, 1))  # more draws than one block
    np.testing.assert_allclose(scores.energy_score(x, y, w), scores.crps(x, y, w)[:, 0], rtol=1e-10)


def test_energy_score_leaves_missing_outputs_out_and_scales_the_rest():
    x, y, _ = _draws()
    y[1, 0] = np.nan
    y[2] = np.nan
    got = scores.energy_score(x, y, scale=[1.0, 4.0])
    assert got[1] == pytest.approx(scores.crps(x[:, 1, 1], y[1, 1]) / 4)
    assert np.isnan(got[2])
    assert np.isfinite(got[[0, 1, 3, 4]]).all()


def test_interval_score_by_hand():
    x = np.linspace(0.0, 10.0, 101)
    # the 80 % band is (1, 9); a = 0.2, so each unit outside costs 10
    assert scores.interval_score(x, 5.0, 0.8) == pytest.approx(8.0)
    assert scores.interval_score(x, 9.5, 0.8) == pytest.approx(8.0 + 5.0)
    assert scores.interval_score(x, 0.0, 0.8) == pytest.approx(8.0 + 10.0)


def test_coverage_by_hand():
    x = np.repeat(np.linspace(0.0, 10.0, 101)[:, None], 4, axis=1)
    y = [5.0, 7.6, 9.6, np.nan]
    assert scores.coverage(x, y, [0.5, 0.9]) == {
        0.5: pytest.approx(1 / 3),
        0.9: pytest.approx(2 / 3),
    }


def test_a_band_without_width_holds_its_own_value():
    x = np.full((9, 1), 0.1)
    assert scores.coverage(x, [0.1], [0.5]) == {0.5: 1.0}
    assert scores.mean_squared_z(x, [0.1]) == 0.0
    assert scores.mean_squared_z(x, [0.2]) == np.inf


@pytest.mark.parametrize("s", [1, 4, 50])
def test_pit_of_a_calibrated_forecast_is_uniform_for_any_number_of_draws(s):
    rng = np.random.default_rng(s)
    x = rng.poisson(3.0, size=(s, 4000))  # counts: ties everywhere
    u = scores.pit(x, rng.poisson(3.0, size=4000), rng=1)
    assert stats.kstest(u, "uniform").pvalue > 1e-3


def test_pit_of_a_narrow_forecast_is_not_uniform():
    rng = np.random.default_rng(0)
    u = scores.pit(0.5 * rng.normal(size=(50, 4000)), rng.normal(size=4000))
    assert stats.kstest(u, "uniform").pvalue < 1e-10


def test_weighted_pit_is_the_weighted_distribution_function():
    assert scores.pit([0.0, 1.0, 2.0], 1.5, weights=[1, 2, 7]) == pytest.approx(0.3)
    between = scores.pit([0.0, 1.0, 2.0], 1.0, weights=[1, 2, 7])
    assert 0.1 < between < 0.3


def test_mean_squared_z_is_one_for_the_right_spread():
    rng = np.random.default_rng(2)
    x, y = rng.normal(size=(500, 5000)), rng.normal(size=5000)
    # sd of the mean of 5000 squared normals is sqrt(2/5000) = 0.02, plus the draws' own 1/500
    assert scores.mean_squared_z(x, y) == pytest.approx(1.0, abs=0.08)
    assert scores.mean_squared_z(x / 2, y) == pytest.approx(4.0, abs=0.32)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 30))
def test_integer_weights_are_repeated_draws(seed, s):
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(s, 3)), rng.normal(size=3)
    counts = rng.integers(1, 4, size=s)
    repeated = np.repeat(x, counts, axis=0)
    np.testing.assert_allclose(scores.crps(x, y, counts), scores.crps(repeated, y), atol=1e-12)
    assert scores.mean_squared_z(x, y, counts) == pytest.approx(scores.mean_squared_z(repeated, y))
    assert scores.energy_score(x, y, counts) == pytest.approx(scores.energy_score(repeated, y))


def test_order_of_draws_does_not_matter():
    x, y, w = _draws()
    order = np.random.default_rng(9).permutation(len(x))
    a, b = scores.summarise(x, y, weights=w), scores.summarise(x[order], y, weights=w[order])
    assert a["crps"] == pytest.approx(b["crps"])
    assert a["coverage"] == b["coverage"]


def test_missing_truths_are_left_out_and_counted():
    x, y, _ = _draws()
    y[0, 0] = y[3, 1] = np.nan
    x[:, 0, 0] = np.nan  # nobody asked for this entry
    got = scores.summarise(x, y)
    assert (got["scored"], got["missing"]) == (8, 2)
    pointwise = scores.crps(x, y)
    assert np.isnan(pointwise[0, 0])
    assert np.isnan(pointwise[3, 1])
    assert got["crps"] == pytest.approx(np.nanmean(pointwise))
    assert np.isnan(scores.pit(x, y)[0, 0])
    assert np.isnan(scores.interval_score(x, y)[0, 0])
    json.dumps(got, allow_nan=False)


def test_nothing_observed_scores_nan():
    got = scores.summarise(np.zeros((3, 2)), [np.nan, np.nan])
    assert got["scored"] == 0
    assert np.isnan(got["crps"])
    assert np.isnan(got["coverage"]["0.9"])


def test_bad_input_is_refused_with_advice():
    with pytest.raises(InputError, match=r"\(draws, \*truth.shape\): got \(3, 2\)"):
        scores.crps(np.zeros((3, 2)), np.zeros(3))
    x = np.zeros((3, 2))
    x[1, 0] = np.nan
    with pytest.raises(InputError, match="1 of 3 draws are not finite"):
        scores.crps(x, np.zeros(2))
    with pytest.raises(InputError, match="weights need 3 finite"):
        scores.crps(np.zeros((3, 2)), np.zeros(2), weights=[1.0, -1.0, 1.0])
    with pytest.raises(InputError, match="between 0 and 1: got 90"):
        scores.coverage(np.zeros((3, 2)), np.zeros(2), levels=[90])
    with pytest.raises(InputError, match="infinite"):
        scores.crps(np.zeros((3, 1)), [np.inf])


def test_a_single_draw_has_no_fair_score():
    assert np.isnan(scores.crps([1.0], 2.0, fair=True))
    assert scores.crps([1.0], 2.0) == 1.0
