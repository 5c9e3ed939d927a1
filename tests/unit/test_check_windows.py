"""Looking at many stretches of time does not make a false alarm likelier than one in twenty."""

from types import SimpleNamespace

import numpy as np

from pcuq.check import LEVEL, Check

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
