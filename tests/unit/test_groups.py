"""Draws of the prior, of the data and along curves, as they are kept in a tree."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from made_fits import X, growth_problem, made_fit

import pcuq
from pcuq import groups
from pcuq.groups import default_grid, stored_at_the_data, stored_curves, with_predictions


@pytest.fixture(scope="module")
def fit():
    return made_fit(growth_problem(outputs=("prey", "predator")), "pcuq", 0.1)


def test_curves_are_what_the_draws_predict(fit):
    curves = stored_curves(fit)
    rate, start = curves.thetas.T
    wanted = np.exp(start)[:, None] + rate[:, None] * curves.x
    assert np.allclose(curves.trajectories[:, :, 0], wanted, rtol=1e-5)
    assert stored_curves(fit, "other") is None


def test_noise_at_the_data_is_that_of_the_data(fit):
    found, rows = stored_at_the_data(fit)
    assert np.array_equal(rows, np.arange(len(X)))
    residuals = (found.observations - found.trajectories) / 0.2
    # 200 draws of 22 entries: the sd of a sample sd is 1/√(2 · 4400) ≈ 0.011.
    assert abs(residuals.std() - 1) < 0.05
    assert abs(residuals.mean()) < 0.07


def test_the_prior_is_kept_on_both_scales(fit):
    start = fit.tree["prior"]["start"].to_numpy()
    assert np.allclose(np.log(start), fit.tree["unconstrained_prior"]["start"].to_numpy())
    assert abs(np.log(start).std() - 1) < 0.1


def test_the_grid_goes_from_the_start_to_beyond_the_data():
    grid = default_grid(growth_problem())
    assert grid[0] == 0.0
    assert grid[-1] == pytest.approx(1.25 * X.max())


def test_data_without_a_covariate_have_no_curves():
    model = pcuq.FunctionModel(lambda x, p: [p["m"]], {"m": pcuq.Parameter("identity")}, ("y",))
    problem = pcuq.Problem(model, pcuq.Data([0.1, 0.5], noise=0.5))
    fit = made_fit(problem, "pcuq", 0.1, centre=[0.3])
    assert default_grid(problem) is None
    assert "predictions" not in fit.tree.children
    assert stored_at_the_data(fit)[0].x is None


def test_curves_are_those_of_what_is_done_to_rows_without_a_label():
    plain = growth_problem()
    halved = pcuq.Intervention(scale={"rate": 0.5})
    problem = pcuq.Problem(plain.model, plain.data, conditions={"": halved})
    curves = stored_curves(made_fit(problem, "pcuq", 0.1))
    rate, start = curves.thetas.T
    wanted = np.exp(start)[:, None] + 0.5 * rate[:, None] * curves.x
    assert np.allclose(curves.trajectories[:, :, 0], wanted, rtol=1e-5)


def test_curves_may_be_asked_for_elsewhere(fit):
    found = stored_curves(with_predictions(fit, [0.0, 7.0, 9.0]))
    assert np.array_equal(found.x, [0.0, 7.0, 9.0])


@pytest.mark.slow
def test_an_entry_whose_noise_depends_on_parameters_is_drawn_with_its_own():
    model = pcuq.FunctionModel(
        lambda x, p: [p["m"] + 0.0 * x],
        {"m": pcuq.Parameter("identity"), "sigma": pcuq.Parameter("log")},
        ("y",),
    )
    problem = pcuq.Problem(model, pcuq.Data([0.1, 0.5], [0.0, 1.0], noise="sigma"))
    fit = made_fit(problem, "pcuq", 0.0, centre=[0.0, np.log(3.0)], curves=False)
    found, _ = stored_at_the_data(fit)
    # 400 independent draws of sd 3.
    assert abs(found.observations.std() - 3) < 0.5


def test_curves_look_for_no_mesh_where_the_fit_had_none():
    def method(*used):
        solver = json.dumps([{"method": one} for one in used])
        return groups._method(SimpleNamespace(tree=SimpleNamespace(attrs={"solver": solver})))  # pyright: ignore

    assert method("implicit", "implicit") == "implicit"
    assert method("implicit", "mesh") == method("explicit") == method("function") == "auto"
