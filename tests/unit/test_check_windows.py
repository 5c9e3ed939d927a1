"""Looking at many stretches of time does not make a false alarm likelier than one in twenty."""

from types import SimpleNamespace

import numpy as np
import pytest

import pcuq
from pcuq.check import LEVEL, MATTERS, Check, _verdict
from pcuq.null import simulate

SETS, WINDOWS, TRIALS = 39, 88, 1000


def false_alarms(worst_of) -> float:
    """How often the worst window of a right model is below the level."""
    rng = np.random.default_rng(0)
    found = 0
    for _ in range(TRIALS):
        misfits = np.sqrt(rng.chisquare(5, (SETS + 1, WINDOWS)) / 5)
        check = SimpleNamespace(
            null=SimpleNamespace(figures=SimpleNamespace(misfit=misfits[1:])),
            refit=SimpleNamespace(figures=SimpleNamespace(misfit=misfits[0])),
        )
        check._worst = worst_of(check)
        found += Check.window_p_values.func(check).min() <= LEVEL
    return found / TRIALS


def in_their_own_sds(check):
    simulated = check.null.figures.misfit
    mean, sd = simulated.mean(axis=0), simulated.std(axis=0, ddof=1)
    return (check.refit.figures.misfit - mean) / sd, np.max((simulated - mean) / sd, axis=1)


def test_the_worst_window_of_a_right_model_is_rejected_one_time_in_twenty():
    assert abs(false_alarms(Check._worst.func) - LEVEL) < 3 * np.sqrt(LEVEL / TRIALS)


def test_sets_held_against_themselves_would_be_outdone_too_often():
    assert false_alarms(in_their_own_sds) > LEVEL + 5 * np.sqrt(LEVEL / TRIALS)


def check(**changes):
    """One that found a wrong model, at its worst in the second window."""
    windows = SimpleNamespace(
        output=["prey", "predators"], condition=["", ""], start=[0.0, 5.0], end=[5.0, 9.0]
    )
    known = {
        "wider": {"overall": (2 * MATTERS, 0.9, 1.1)},
        "p_value": 0.01,
        "misspecified": True,
        "autocorrelation_p_value": 0.5,
        "pit_p_value": 0.5,
        "_worst": (np.array([1.0, 9.0]), None),
        "window_p_values": [0.5, 0.01],
        "windows": windows,
        "problem": SimpleNamespace(data=SimpleNamespace(x=np.zeros(2))),
        "null": SimpleNamespace(figures=SimpleNamespace(misfit=np.array([[1.0, 2.0], [1.0, 4.0]]))),
        "refit": SimpleNamespace(figures=SimpleNamespace(misfit=np.array([1.0, 9.0]))),
    }
    return SimpleNamespace(**known | changes)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "The model is wrong, and it matters (p = 0.01)"),
        ({"wider": {"overall": (1.0, 0.9, 1.1)}}, "but it matters little: bands"),
        ({}, "it fails most in predators from 5 to 9, where residuals are 3 times as large"),
        ({"misspecified": False}, "No sign that the model is wrong"),
        ({"misspecified": False, "pit_p_value": 0.001}, "but PIT values are not uniform (p = 0.0"),
    ],
)
def test_the_verdict_says_whether_it_matters_and_where(changes, said):
    assert said in _verdict(check(**changes))


def test_the_verdict_names_no_place_that_is_none():
    assert "fails most" not in _verdict(check(window_p_values=[0.5, 0.2]))
    found = check(problem=SimpleNamespace(data=SimpleNamespace(x=None)))
    found.windows.condition[1] = "cold"
    assert "it fails most in predators under cold, where" in _verdict(found)


def test_a_check_of_which_too_many_fits_fail_says_so():
    model = pcuq.FunctionModel(lambda x, p: [p["a"]], {"a": pcuq.Parameter("identity")}, ("y",))
    problem = pcuq.Problem(model, pcuq.Data(np.zeros((4, 1)), noise=1.0))

    class Broken:
        def climb(self, thetas, y):
            raise pcuq.ComputationError("nothing fits")

    said, start = [], SimpleNamespace(best=np.zeros(1))
    with pytest.raises(pcuq.ComputationError, match="3 of 3 simulated data sets could not be"):
        simulate(problem, start, Broken(), np.zeros((1, 1)), 1e-2, 3, 0, said.append)
    assert said[-1] == "3 of 3 simulated data sets fitted"
