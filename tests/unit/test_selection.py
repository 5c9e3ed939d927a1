"""λ by the score of held-out data: what is split off, and which draws are scored."""

import numpy as np

from pcuq import Data, FunctionModel, LogNormal, Parameter, Problem
from pcuq.selection import _score


def test_draws_that_cannot_be_measured_do_not_end_a_score():
    """Level − x is negative at the last rows for the second θ, and has no log-normal law there."""
    model = FunctionModel(
        lambda x, p: [p["level"] - x], {"level": Parameter("identity")}, ("left",)
    )
    x = np.arange(4.0)
    problem = Problem(model, Data(6.0 - x, x, noise=LogNormal(0.1)))
    held = np.array([2, 3])
    alone = _score(problem, held, np.array([[6.0]]))
    assert np.isfinite(alone)
    assert _score(problem, held, np.array([[6.0], [1.0]])) == alone
    assert _score(problem, held, np.array([[1.0]])) == np.inf


def test_a_condition_of_which_all_rows_are_held_out_is_predicted():
    model = FunctionModel(lambda x, p: [p["level"]], {"level": Parameter("identity")}, ("y",))
    data = Data(np.arange(4.0), np.arange(4.0), noise=0.1, condition=["a", "a", "a", "b"])
    problem = Problem(model, data)
    right, wrong = (_score(problem, np.array([3]), np.array([[y]])) for y in (3.0, 0.0))
    assert right < wrong
