"""The error of a mesh, in units that say whether it matters."""

import numpy as np
import pytest

import pcuq
from pcuq.objective import Objective
from pcuq.verify import check_solver

X = np.linspace(0.0, 2.0, 5)
WIDTH = np.hypot(0.1, 0.1)  # of kernel and noise together
RATE = 2.0


def trajectory_error(y) -> tuple[float, float]:
    """Of growth at RATE on a mesh that serves 0.1: as it is, and as it is said beside data y."""
    model = pcuq.ODEModel(
        lambda t, u, p: [p["r"] * u[0]], [1.0], {"r": pcuq.Parameter("identity")}, outputs=["u"]
    )
    problem = pcuq.Problem(model, pcuq.Data(y, X, noise=0.1), pcuq.GaussianKernel(0.1))
    coarse = problem.predictor(np.array([[0.1]]), method="mesh", tolerance=1e-4)
    objective = Objective(problem, predictor=coarse)
    thetas = np.full((8, 1), RATE)
    w = np.asarray(objective.solve_many(thetas)[0])[0, :, 0]
    said = check_solver(objective, 1.0, thetas, np.ones(8), np.zeros(8, bool)).trajectory_error
    return float(np.abs(w - np.exp(RATE * X))[-1]), said


def test_among_the_data_it_is_measured_in_widths():
    error, said = trajectory_error(np.exp(2.5 * X))
    assert said == pytest.approx(error / WIDTH, rel=0.01)


def test_far_beyond_the_data_it_is_measured_by_how_far():
    error, said = trajectory_error(np.exp(0.1 * X))
    assert said == pytest.approx(error / (np.exp(RATE * X[-1]) - np.exp(0.1 * X[-1])), rel=0.01)
    assert said < 0.01 * error / WIDTH
