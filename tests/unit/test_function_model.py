"""A model that is a function."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pcuq.errors import ComputationError, InputError
from pcuq.interventions import Intervention
from pcuq.models import FunctionModel, Model, Solver
from pcuq.parameters import Parameter

REAL = {"a": Parameter("identity"), "b": Parameter("identity")}


def line(**options) -> FunctionModel:
    return FunctionModel(lambda x, p: p["a"] + p["b"] * x + p["c"], REAL, ["y"], {"c": 1.0})


def test_rows_are_the_function_at_each_covariate():
    x = np.array([0.0, 1.0, 4.0])
    w, ok = line().solver(x)({"a": 1.0, "b": 2.0})
    assert ok
    assert np.array_equal(w, (2 + 2 * x)[:, None])
    assert isinstance(line(), Model)
    assert isinstance(line().solver(x), Solver)
    assert line().solver(x).describe()["method"] == "function"


def test_vector_covariates_and_several_outputs():
    model = FunctionModel(
        lambda x, p: {"sum": x.sum() * p["a"], "first": x[0] + p["b"]}, REAL, ["first", "sum"]
    )
    x = np.array([[1.0, 2.0], [3.0, 4.0]])
    w, _ = model.solver(x)({"a": 10.0, "b": 0.5})
    assert np.array_equal(w, [[1.5, 30.0], [3.5, 70.0]])


def test_independent_data_have_one_row():
    model = FunctionModel(lambda x, p: [p["a"], p["b"]], REAL, ["mean", "other"])
    w, _ = model.solver(None)({"a": 3.0, "b": 4.0})
    assert np.array_equal(w, [[3.0, 4.0]])
    assert model.simulate(None, {"a": 3.0})["mean"] == np.array([3.0])


def test_interventions_apply_from_the_start_and_in_order():
    changed = line().do([Intervention(set={"c": 5.0}), Intervention(scale={"b": 2.0, "c": 2.0})])
    assert np.allclose(changed.simulate([1.0], {"a": 1.0, "b": 3.0})["y"], 1 + 6 + 10)
    assert np.allclose(line().simulate([1.0], {"a": 1.0, "b": 3.0})["y"], 5)


@pytest.mark.parametrize(
    "change",
    [
        Intervention(set={"a": 1.0}, at=3.0),
        Intervention(set={"a": 1.0}, hold=True),
        Intervention(set={"y": 1.0}),
    ],
)
def test_what_needs_time_or_states_is_refused(change):
    with pytest.raises(InputError):
        line().do(change)


@pytest.mark.parametrize("mode", ["forward", "reverse"])
def test_failed_rows_fail_alone_with_zero_derivatives(mode):
    model = FunctionModel(lambda x, p: jnp.sqrt(p["a"]) * x + p["b"], REAL, ["y"])
    solver = model.solver(np.arange(3.0), mode=mode)
    take = jax.jacfwd if mode == "forward" else jax.jacrev
    a, b = jnp.array([4.0, -1.0, 9.0]), jnp.zeros(3)

    def of_one(a, b):
        return solver({"a": a, "b": b})

    w, ok = jax.vmap(of_one)(a, b)
    slope = jax.vmap(take(lambda a, b: of_one(a, b)[0]))(a, b)
    assert np.array_equal(ok, [True, False, True])
    assert np.array_equal(w[1], np.zeros((3, 1)))
    assert np.array_equal(slope[1], np.zeros((3, 1)))
    assert np.allclose(slope[0][:, 0], np.arange(3) / 4)


def test_bad_input_is_refused_with_a_reason():
    with pytest.raises(InputError, match="asks for 'z'"):
        FunctionModel(lambda x, p: p["z"], REAL, ["y"]).solver([1.0])
    with pytest.raises(InputError, match=r"wanted shape \(1,\), got \(2,\)"):
        FunctionModel(lambda x, p: jnp.ones(2), REAL, ["y"]).solver([1.0])
    with pytest.raises(InputError, match="at least one"):
        FunctionModel(lambda x, p: 1.0, REAL, [])
    with pytest.raises(InputError, match="already a parameter"):
        FunctionModel(lambda x, p: 1.0, REAL, ["y"], {"a": 1.0})
    with pytest.raises(InputError, match="unknown parameters"):
        line().simulate([1.0], {"c": 2.0})
    with pytest.raises(InputError, match="covariates"):
        line().solver([np.nan])
    with pytest.raises(InputError, match="`mode`"):
        line().solver([1.0], mode="backward")


def test_a_simulation_that_is_not_finite_is_an_error():
    model = FunctionModel(lambda x, p: jnp.log(p["a"]) * x, REAL, ["y"])
    with pytest.raises(ComputationError, match="finite"):
        model.simulate([1.0], {"a": -1.0})
