"""λ★ against the exact Q_n of the same simulated data, on a grid."""

import importlib
import json

import jax
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

import pcuq
from pcuq.errors import ComputationError, InputError
from pcuq.exact import minimise
from pcuq.objective import Objective
from pcuq.samplers.base import Draw
from pcuq.samplers.ensemble import Tuning
from pcuq.selection import split
from pcuq.start import starting_fit
from pcuq.sweep import follow
from pcuq.synthetic import with_synthetic_data

calibration = importlib.import_module("pcuq.calibrate")  # the name in pcuq is the function
# Edges of cells, fine where the fit is.
EDGES = np.concatenate(
    [np.linspace(-40.0, 0.0, 161), np.linspace(0.0, 4.0, 401)[1:], np.linspace(4.0, 40.0, 145)[1:]]
)
GRID, VOLUMES = (EDGES[1:] + EDGES[:-1]) / 2, np.diff(EDGES)


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
    """With eight seeds, each of which simulates other data and draws other particles."""
    problem = decay()
    return problem, [pcuq.calibrate(problem, replicates=2, seed=seed) for seed in range(8)]


def exact_curves(problem, lams):
    objective = Objective(problem)
    features = jax.jit(objective.features)(GRID[:, None])
    kappa0 = np.asarray(jax.jit(objective.pair_block)(features, features))
    v = objective.data_terms_of_many(GRID[:, None])
    log_mass = objective.log_priors_of_many(GRID[:, None]) + np.log(VOLUMES)
    fits = v >= 0.2 * v.max()
    outside, spread = [], []
    for lam in lams:
        weights = minimise(kappa0, v, log_mass, float(lam))
        inside = weights * fits / weights[fits].sum()
        mean = inside @ GRID
        outside.append(weights[~fits].sum())
        spread.append(np.sqrt(inside @ (GRID - mean) ** 2))
    return outside, spread


def exact_curves_of_sets(problem, lams, seed):
    """(share outside, spread) of the exact Q_n of the sets that a calibration simulates."""
    copies = with_synthetic_data(
        problem, starting_fit(problem, seed).best, [seed + 1000, seed + 2000]
    )
    return map(np.array, zip(*(exact_curves(copy, lams) for copy in copies), strict=True))


def test_the_curves_and_the_regularisation_are_those_of_the_exact_answer(calibrated):
    problem, runs = calibrated
    log_ratios, same_bound = [], 0
    for seed, found in enumerate(runs):
        outside, spread = exact_curves_of_sets(problem, found.lams, seed)
        assert found.settled.all()
        # Blocks that agree differ by at most 0.02, and the last one may err by as much again.
        assert np.max(np.abs(found.outside - outside)) < 0.04
        # The curve of a λ half as large again, two further on, would be told apart.
        assert np.max(np.abs(found.outside[:, :-2] - outside[:, 2:])) > 0.04
        # Likewise 15 % and as much again.
        assert np.max(np.abs(np.log(found.spread / spread))) < 2 * np.log(1.15)
        exact, what = calibration._largest(found.lams, outside, spread, found.bayes_spread)
        log_ratios.append(np.log(found.regularisation / exact))
        same_bound += found.bound_by == what
    # Curves that err by a tenth, as they may, move one λ★ by a fifth and more: their mean is right.
    assert stats.ttest_1samp(log_ratios, 0.0).pvalue > 1e-3
    # One twice as large would be told apart, and so would one half as large.
    for wrong in (np.log(2), -np.log(2)):
        assert stats.ttest_1samp(log_ratios, wrong).pvalue < 1e-3
    # Where both conditions bind at about the same λ, either may be named.
    assert same_bound > len(runs) / 2


def test_the_spread_of_bayes_is_that_of_the_conjugate_posterior(calibrated):
    problem, (found, *_) = calibrated
    x = problem.data.x
    sd = 1 / np.sqrt(np.sum(x**2) / 0.3**2 + 1 / 8**2)
    np.testing.assert_allclose(found.bayes_spread, sd, rtol=0.1)


def test_it_says_everything_as_json(calibrated):
    _, (found, *_) = calibrated
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


def test_one_set_with_a_second_fit_does_not_choose_for_all():
    """0.2 % of Q at another fit, 40 sds away, makes an sd √(1 + 0.002 · 40²) = 2 times as large."""
    lams = np.array([1.0, 10.0, 100.0])
    outside, bayes = np.zeros((3, 3)), np.full(3, 0.5)
    usual = np.tile([1.0, 1.1, 1.2], (3, 1))
    odd = usual.copy()
    odd[1] *= [1.0, 2.05, 2.05]
    of_usual, of_odd = (calibration._largest(lams, outside, s, bayes) for s in (usual, odd))
    assert of_odd == of_usual == (pytest.approx(100.0), "the largest λ tried")
    # The mean would have chosen another.
    assert odd.mean(axis=0)[1] > 1.25


class Slides:
    """A particle system whose share near the fit is a function of the iterations so far."""

    def __init__(self, share):
        self.share, self.done, self.counts, self.adapting = share, 0, [], []

    def begin(self, thetas, tuning, log_steps):
        self.adapting.append(float(tuning.adapting))

    def advance(self, count):
        self.done += count
        self.counts.append(count)
        inside = round(1000 * self.share(self.done))
        theta = np.random.default_rng(self.done).normal(size=(count, 1, 1000, 1))
        v = np.broadcast_to(np.arange(1000) < inside, (count, 1, 1000)).astype(float)
        return Draw(theta, v, v < 0), None

    def log_steps(self):
        return np.zeros(1)


@pytest.mark.parametrize(
    ("share", "counts", "settled"),
    [
        (lambda done: 0.9, [48, 96], True),
        # 0.72, 0.887, 0.940 after 48, 144, 336 iterations: never the same twice
        (lambda done: 0.97 - 12 / done, [48, 96, 192], False),
        (lambda done: 0.97 - 4 / done, [48, 96, 192], True),
    ],
)
def test_q_is_followed_until_two_blocks_agree(share, counts, settled):
    crew, tuning = Slides(share), Tuning(None, 1.0, 1.0)
    _, found = follow(crew, np.zeros((1, 1, 1000, 1)), np.zeros(1), lambda pool: tuning, 1.0)
    assert crew.counts == counts and found.settled == settled
    assert crew.adapting == [1.0] + [0.0] * (len(counts) - 1)
    # What is said is of the last block.
    assert found.outside == pytest.approx(1 - share(sum(counts)), abs=1e-3)
    assert len(found.theta) == 1000 * counts[-1]


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
