"""The error of a mesh, in units that say whether it matters."""

import numpy as np
import pytest

import pcuq
from pcuq.objective import Objective
from pcuq.verify import check_solver

X = np.linspace(0.0, 2.0, 5)


def growth() -> pcuq.Problem:
    model = pcuq.ODEModel(
        lambda t, u, p: [p["r"] * u[0]], [1.0], {"r": pcuq.Parameter("identity")}, outputs=["u"]
    )
    return pcuq.Problem(model, pcuq.Data(np.exp(0.1 * X), X, noise=0.1), pcuq.GaussianKernel(0.1))


@pytest.fixture(scope="module")
def coarse() -> Objective:
    """On a mesh that serves r = 0.1."""
    problem = growth()
    fine = problem.predictor(np.array([[0.1]]), method="mesh", tolerance=1e-4)
    return Objective(problem, predictor=fine)


def checked(objective, theta):
    thetas = np.full((8, 1), theta)
    return check_solver(objective, 1.0, thetas, np.ones(8), np.zeros(8, bool))


def test_a_trajectory_near_the_data_is_measured_in_widths(coarse):
    exact = np.exp(1.0 * X[-1])
    found = float(coarse.solve_many(np.array([[1.0]]))[0][0, -1, 0])
    beyond = exact - np.exp(0.1 * X[-1])
    assert checked(coarse, 1.0).trajectory_error == pytest.approx(
        abs(found - exact) / beyond, rel=0.05
    )
    assert checked(coarse, 0.1).trajectory_error < 1e-6


def test_far_beyond_the_data_it_is_measured_by_how_far(coarse):
    """e¹⁶ with an error of some per cent is a hundred thousand widths off, and no worse for it."""
    found = float(coarse.solve_many(np.array([[8.0]]))[0][0, -1, 0])
    relative = abs(found / np.exp(16.0) - 1)
    assert relative > 1e-6
    assert checked(coarse, 8.0).trajectory_error == pytest.approx(relative, rel=0.05)
