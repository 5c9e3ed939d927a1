"""Windows, residuals and what is read off them, against values found by hand."""

import numpy as np
import pytest

import pcuq
from pcuq import misfit


def problem(y, x=None, condition=None):
    y = np.asarray(y, dtype=float)
    names = tuple(f"out{c}" for c in range(y.shape[1]))
    model = pcuq.FunctionModel(
        lambda x, p: [p["a"]] * len(names), {"a": pcuq.Parameter("identity")}, names
    )
    return pcuq.Problem(model, pcuq.Data(y, x, 1.0, condition))


def test_windows_hold_every_measurement_once_in_order_of_time():
    y = np.ones((40, 2))
    y[3:8, 1] = np.nan
    x = np.random.default_rng(0).permutation(np.arange(40.0))
    windows = misfit.make_windows(problem(y, x))
    entries = [
        (row, column)
        for rows, column in zip(windows.rows, windows.column, strict=True)
        for row in rows
    ]
    assert len(entries) == len(set(entries)) == 75
    assert all(not np.isnan(y[entry]) for entry in entries)
    of_first = [k for k, name in enumerate(windows.output) if name == "out0"]
    assert len(of_first) == misfit.MOST_WINDOWS
    assert np.all(windows.end[of_first][:-1] < windows.start[of_first][1:])
    for k in of_first:
        assert windows.start[k] == x[windows.rows[k]].min()


def test_conditions_have_windows_of_their_own_and_data_without_covariates_one():
    labels = ["a"] * 6 + ["b"] * 12
    apart = misfit.make_windows(problem(np.ones((18, 1)), np.arange(18.0), labels))
    assert apart.condition == ("a", "b", "b")
    assert len(misfit.make_windows(problem(np.ones((40, 1))))) == 1


def test_residuals_are_in_sds_of_the_prediction_and_windows_average_them():
    draws = np.array([[[1.0], [0.0]], [[3.0], [0.0]]])  # mean 2, sd √2; and no spread at all
    r = misfit.residuals(np.array([[5.0], [1.0]]), draws)
    np.testing.assert_allclose(r, [[3 / np.sqrt(2)], [0.0]])
    windows = misfit.make_windows(problem(np.ones((4, 1)), np.arange(4.0)))
    size, shift = misfit.of_windows(windows, np.array([[1.0], [-3.0], [1.0], [1.0]]))
    np.testing.assert_allclose(size, [np.sqrt(3.0)])
    np.testing.assert_allclose(shift, [0.0])


def test_autocorrelation_does_not_run_from_one_series_into_the_next():
    here = problem(np.ones((4, 2)), np.array([3.0, 2.0, 1.0, 0.0]))
    r = np.array([[1.0, 2.0], [1.0, -2.0], [1.0, 2.0], [1.0, -2.0]])
    # Of the first output 3 products of 1, of the second 3 of −4; squares add up to 4 + 16.
    found = misfit.autocorrelations(here, r, lags=2)
    np.testing.assert_allclose(found, [(3 - 12) / 20, (2 + 8) / 20])


def test_pit_distance_is_least_for_evenly_spread_values():
    even = (np.arange(10)[:, None] + 0.5) / 10
    assert misfit.pit_distance(even) == pytest.approx(1 / 1200)
    # By hand: both values at 1/2, which should be at 1/4 and 3/4.
    with_gap = np.array([[0.5], [0.5], [np.nan]])
    assert misfit.pit_distance(with_gap) == pytest.approx(1 / 48 + 1 / 16)


def test_width_ratio_is_that_of_the_bands_over_measured_rows():
    draws = np.random.default_rng(0).normal(size=(400, 3, 2))
    wider = draws.copy()
    wider[:, 0] *= 3.0
    wider[:, 1] *= 1.5
    seen = np.array([[True, False], [False, False], [False, False]])
    ratios = misfit.width_ratios(wider, draws, seen)
    assert ratios[0] == pytest.approx(3.0) and np.isnan(ratios[1])
    assert misfit.overall(np.array([2.0, 8.0, np.nan])) == pytest.approx(4.0)


def test_gap_is_the_distance_of_means_in_sds_of_the_second():
    windows = misfit.make_windows(problem(np.ones((2, 1)), np.arange(2.0)))
    other = np.array([[[0.0], [0.0]], [[2.0], [2.0]]])
    gap = misfit.gaps(windows, other + np.array([[3.0], [0.0]]), other)
    np.testing.assert_allclose(gap, [np.sqrt(9 / 2 / 2)])
