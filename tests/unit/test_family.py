"""Conditions that differ only in numbers are solved as one, and as each would be on its own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pcuq
from pcuq.interventions import Equilibration
from pcuq.models.family import Family, families

MODEL = pcuq.ODEModel(
    rhs=lambda t, u, p: [p["dose"] - p["k"] * u[0], p["k"] * u[0] - u[1]],
    initial={"a": 1.0, "b": 0.5},
    parameters={"k": pcuq.Parameter("log")},
    constants={"dose": 0.2},
)
# Alike: a and c set a constant and a state, b does so by name. d scales, and is like no other.
CONDITIONS = {
    "a": pcuq.Intervention(set={"dose": 0.3, "b": 2.0}),
    "b": [pcuq.Intervention(set={"dose": "k"}), pcuq.Intervention(set={"b": 0.1})],
    "c": pcuq.Intervention(set={"dose": 1.5, "b": 0.0}),
    "d": pcuq.Intervention(scale={"dose": 3.0}),
}
TIMES = {"a": [0.0, 1.0, 2.0], "b": [0.5, 2.5], "c": [1.0, 4.0], "d": [1.0, 3.0]}


def rested(before, after) -> list:
    """From rest under one dose, another dose, and a state that is set."""
    rest = Equilibration((pcuq.Intervention(set={"dose": before}),))
    return [rest, pcuq.Intervention(set={"dose": after, "a": before})]


# e and f are alike; g, which sets nothing while it comes to rest, is not.
RESTED = {
    "e": rested(0.4, 1.0),
    "f": rested("k", 2.0),
    "g": [Equilibration(), pcuq.Intervention(set={"dose": 1.0, "a": 0.4})],
}


def problem(conditions=CONDITIONS) -> pcuq.Problem:
    times = {label: TIMES.get(label, [0.5, 1.5]) for label in conditions}
    labels = [label for label in times for _ in times[label]]
    x = np.concatenate(list(times.values()))
    data = pcuq.Data(np.zeros((len(x), 2)), x, noise=1.0, condition=labels)
    return pcuq.Problem(MODEL, data, conditions=conditions)


def alone(theta: float) -> np.ndarray:
    k = {"k": float(np.exp(theta))}
    found = [MODEL.do(CONDITIONS[c]).simulate(TIMES[c], k) for c in TIMES]
    return np.concatenate([np.stack([f["a"], f["b"]], axis=-1) for f in found])


def test_alike_conditions_are_one_group_and_others_stand_alone():
    given = problem()
    models = [given.model_for(label) for label in given.points.labels]
    groups = families(models, given.points.covariates)
    members = [g.members if isinstance(g, Family) else g for g in groups]
    assert members == [[0, 1, 2], 3]


@pytest.mark.slow
def test_conditions_that_start_from_rest_are_solved_together_too():
    given = problem(RESTED)
    predictor = given.predictor(np.array([[0.3]]), method="adaptive")
    assert len(predictor.solvers) == 2
    theta = 0.6
    found, ok = predictor(jnp.array([theta]))
    assert ok
    k = {"k": float(np.exp(theta))}
    expected = [MODEL.do(RESTED[c]).simulate([0.5, 1.5], k) for c in RESTED]
    expected = np.concatenate([np.stack([f["a"], f["b"]], axis=-1) for f in expected])
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize(
    "representatives",
    [pytest.param(None, marks=pytest.mark.slow), np.array([[-0.5], [0.0], [0.7]])],
)
def test_outputs_together_are_those_of_each_alone(representatives):
    predictor = problem().predictor(representatives)
    thetas = np.array([[-0.4], [0.6]])
    outputs, ok = jax.jit(jax.vmap(predictor))(jnp.asarray(thetas))
    tight, fine = predictor.tightly(thetas, 1e-9)
    assert np.asarray(ok).all() and fine.all()
    for i, theta in enumerate(thetas[:, 0]):
        expected = alone(theta)
        np.testing.assert_allclose(outputs[i], expected, atol=2e-4)
        np.testing.assert_allclose(tight[i], expected, atol=1e-7)
    # The conditions do differ: one solved in another's place would be seen.
    assert np.abs(alone(0.6) - np.roll(alone(0.6), 3, axis=0)).max() > 0.1


def test_conditions_that_switch_at_a_fitted_time_are_solved_together_too():
    model = pcuq.ODEModel(
        rhs=lambda t, u, p: [jnp.where(t < p["lag"], 0.0, -p["k"] * u[0])],
        initial={"a": 1.0},
        parameters={"k": pcuq.Parameter("log")},
        constants={"lag": 0.0},
        breaks=[lambda p, end: p["lag"]],
    )
    lags = {"fitted": "k", "known": 0.7}
    x = np.tile([0.5, 1.0, 2.0], 2)
    data = pcuq.Data(np.zeros((6, 1)), x, condition=np.repeat(list(lags), 3).tolist())
    conditions = {label: pcuq.Intervention(set={"lag": lag}) for label, lag in lags.items()}
    predictor = pcuq.Problem(model, data, conditions=conditions).predictor()
    assert len(predictor.solvers) == 1
    k = 1.3
    found, ok = predictor(jnp.log(jnp.array([k])))
    assert ok
    lag = np.repeat([k, 0.7], 3)
    np.testing.assert_allclose(found[:, 0], np.exp(-k * np.maximum(x - lag, 0.0)), rtol=1e-6)
