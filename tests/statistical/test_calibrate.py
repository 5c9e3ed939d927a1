"""λ★ against the exact Q_n of the same simulated data, on a grid."""

import importlib
import json

import numpy as np
import numpyro.distributions as dist
import pytest

import pcuq
from pcuq.errors import ComputationError, InputError
from pcuq.objective import Objective
from pcuq.selection import split
from pcuq.start import starting_fit
from pcuq.synthetic import with_synthetic_data

calibration = importlib.import_module("pcuq.calibrate")  # the name in pcuq is the function
GRID = np.linspace(-40.0, 40.0, 3201)


def decay(n=30, seed=0):
    """One rate whose prior is wide beside what the data say of it."""
    model = pcuq.FunctionModel(
        lambda x, p: [p["slope"] * x],
        {"slope": pcuq.Parameter("identity", dist.Normal(0, 8))},
        ("y",),
    )
    x = np.linspace(0.1, 1.0, n)
    y = 2.0 * x + np.random.default_rng(seed).normal(0, 0.3, n)
    return pcuq.Problem(model, pcuq.Data(y[:, None], x, 0.3))


@pytest.fixture(scope="module")
def calibrated():
    problem = decay()
    return problem, pcuq.calibrate(problem, replicates=2)


def exact_curves(problem, lams):
    volumes = np.full(len(GRID), GRID[1] - GRID[0])
    v = Objective(problem).data_terms_of_many(GRID[:, None])
    fits = v >= 0.2 * v.max()
    outside, spread = [], []
    for lam in lams:
        weights = np.asarray(pcuq.solve_on_grid(problem, float(lam), GRID[:, None], volumes))
        inside = weights * fits / weights[fits].sum()
        mean = inside @ GRID
        outside.append(weights[~fits].sum())
        spread.append(np.sqrt(inside @ (GRID - mean) ** 2))
    return outside, spread


@pytest.mark.slow
def test_the_curves_are_those_of_the_exact_answer(calibrated):
    problem, found = calibrated
    best = starting_fit(problem, 0).best
    copies = with_synthetic_data(problem, best, [1000, 2000])
    outside, spread = map(
        np.array, zip(*(exact_curves(copy, found.lams) for copy in copies), strict=True)
    )
    assert np.max(np.abs(found.outside - outside)) < 0.04
    # The curve of λ three further on would be told apart.
    assert np.max(np.abs(found.outside[:, :-3] - outside[:, 3:])) > 0.05
    # Fifty particles over fifty iterations: a stray one is seen in an sd.
    assert np.max(np.abs(np.log(found.spread.mean(axis=0) / spread.mean(axis=0)))) < np.log(1.4)
    exact, _ = calibration._largest(found.lams, outside, spread, found.bayes_spread)
    # What is said to bind is near its bound on the exact curves, too.
    at = lambda curves: np.interp(  # noqa: E731
        np.log(found.regularisation), np.log(found.lams), curves.mean(axis=0)
    )
    if found.bound_by == "the spread":
        assert abs(np.log(at(spread) / found.widest)) < np.log(1.25)
    else:
        assert found.bound_by == "the share outside the part that fits"
        assert abs(at(outside) - calibration.MOST_OUTSIDE) < 0.03
    assert abs(np.log(found.regularisation / exact)) < np.log(1.5)


@pytest.mark.slow
def test_the_spread_of_bayes_is_that_of_the_conjugate_posterior(calibrated):
    problem, found = calibrated
    x = problem.data.x
    sd = 1 / np.sqrt(np.sum(x**2) / 0.3**2 + 1 / 8**2)
    np.testing.assert_allclose(found.bayes_spread, sd, rtol=0.1)


@pytest.mark.slow
def test_it_says_everything_as_json(calibrated):
    _, found = calibrated
    said = json.loads(json.dumps(found.to_dict()))
    assert said["regularisation"] == found.regularisation
    assert len(said["lams"]) == len(said["outside"][0]) == len(said["spread"][1])
    assert said["bound_by"] in ("the share outside the part that fits", "the spread")


@pytest.mark.slow
def test_a_fit_takes_the_calibrated_regularisation():
    fit = pcuq.fit(decay(), regularisation="auto", particles=10, warmup=20, draws=10)
    said = json.loads(fit.tree.attrs["calibration"])
    assert fit.tree.attrs["regularisation"] == said["regularisation"] > 0
    assert json.loads(fit.tree.attrs["seconds"])["calibration"] > 0


@pytest.mark.parametrize(
    ("outside", "spread", "bound_by"),
    [
        ([0.0, 0.0, 0.02, 0.5], [1.0, 1.0, 1.0, 1.0], "the share outside the part that fits"),
        ([0.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.2, 3.0], "the spread"),
        ([0.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0], "the largest λ tried"),
    ],
)
def test_both_conditions_can_bind(outside, spread, bound_by):
    lams = np.array([1.0, 10.0, 100.0, 1000.0])
    lam, what = calibration._largest(lams, np.array([outside]), np.array([spread]), np.array([0.5]))
    assert what == bound_by
    share = np.interp(np.log(lam), np.log(lams), outside)
    width = np.interp(np.log(lam), np.log(lams), spread)
    assert share <= 0.05 and width <= 1.25 and lam >= 100


def test_no_regularisation_that_meets_both_is_said(monkeypatch):
    half = np.full((1, 2), 0.3)
    assert calibration._largest(np.array([1.0, 2.0]), half, np.ones((1, 2)), np.ones(1)) is None
    monkeypatch.setattr(calibration, "SHIFTS", (1.0,))
    monkeypatch.setattr(calibration, "MOST_OUTSIDE", -1.0)
    with pytest.raises(ComputationError, match="give `regularisation` as a number"):
        pcuq.calibrate(decay(), replicates=1)


@pytest.mark.slow
def test_held_out_rows_are_the_last_ones_and_the_score_prefers_a_fit():
    problem = decay()
    kept, held = split(problem.data)
    assert problem.data.x[kept].max() < problem.data.x[held].min() and len(held) == 8
    chosen = pcuq.select_by_score(problem)
    assert chosen.held_out == 8
    assert chosen.regularisation in chosen.lams
    # At the largest λ much of Q is the prior, which predicts badly.
    assert chosen.crps.min() < 0.8 * chosen.crps[-1]


def test_what_cannot_be_calibrated_is_refused():
    with pytest.raises(InputError, match="at least 1: got 0"):
        pcuq.calibrate(decay(), replicates=0)
    one_time = pcuq.Problem(decay().model, pcuq.Data(np.ones((3, 1)), np.ones(3)))
    with pytest.raises(InputError, match="cannot be split"):
        pcuq.select_by_score(one_time)
