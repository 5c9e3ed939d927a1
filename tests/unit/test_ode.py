"""ODE models: construction, simulation and adaptive solving, against exact solutions."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pcuq.errors import ComputationError, InputError
from pcuq.interventions import Intervention
from pcuq.models import Model, ODEModel, Solver
from pcuq.parameters import Parameter

X = np.linspace(0, 4, 9)
POSITIVE = {"k": Parameter("log")}


def decay(**options) -> ODEModel:
    return ODEModel(lambda t, u, p: -p["k"] * u, {"u": 3.0}, POSITIVE, **options)


def van_der_pol() -> ODEModel:
    return ODEModel(
        lambda t, u, p: [u[1], p["mu"] * (1 - u[0] ** 2) * u[1] - u[0]],
        {"x": 2.0, "v": 0.0},
        {"mu": Parameter("log")},
    )


def test_simulation_is_the_exact_solution():
    assert np.allclose(decay().simulate(X, {"k": 0.7})["u"], 3 * np.exp(-0.7 * X), rtol=1e-8)
    swinging = ODEModel(
        lambda t, u, p: {"u": u[1], "v": -(p["k"] ** 2) * u[0]}, {"u": 0.0, "v": 2.0}, POSITIVE
    )
    found = swinging.simulate(X, {"k": 2.0})
    assert np.allclose(found["u"], np.sin(2 * X), atol=1e-8)
    assert np.allclose(found["v"], 2 * np.cos(2 * X), atol=1e-8)


@pytest.mark.default_precision
def test_simulation_is_in_64_bits_whatever_the_flag():
    found = decay().simulate([1.0], {"k": 0.7})["u"]
    assert found.dtype == np.float64
    assert np.isclose(found[0], 3 * np.exp(-0.7), rtol=1e-8)


@pytest.mark.slow
@pytest.mark.parametrize("unit", [1e-9, 1e6])
def test_accuracy_does_not_depend_on_units(unit):
    model = ODEModel(
        lambda t, u, p: [-p["k"] * u[0], p["k"] * u[0]], {"a": unit, "b": 0.0}, POSITIVE
    )
    found = model.simulate(X, {"k": 0.7})
    assert np.allclose(found["b"] / unit, 1 - np.exp(-0.7 * X), atol=1e-8)


def test_times_may_come_in_any_order_and_twice():
    found = decay().simulate([2.0, 0.0, 2.0], {"k": 1.0})["u"]
    assert np.allclose(found, 3 * np.exp([-2.0, 0.0, -2.0]))


def test_parameters_not_given_are_at_the_centre_of_the_prior():
    """log: θ = 0 is k = 1."""
    assert np.allclose(decay().simulate([1.0])["u"], 3 * np.exp(-1.0))
    with pytest.raises(InputError, match="unknown parameters"):
        decay().simulate([1.0], {"q": 1.0})
    with pytest.raises(InputError, match="finite number"):
        decay().simulate([1.0], {"k": np.nan})


@pytest.mark.quick("<lambda>0")
@pytest.mark.parametrize(
    "initial",
    [
        {"a": "k", "b": 2.0},
        pytest.param({"b": 2.0, "a": "k"}, marks=pytest.mark.slow),
        lambda p: {"a": p["k"], "b": 2.0},
        pytest.param(lambda p: jnp.array([p["k"], 2.0]), marks=pytest.mark.slow),
        pytest.param(lambda p: [p["k"], 2.0], marks=pytest.mark.slow),
    ],
)
def test_initial_values_may_be_parameters(initial):
    model = ODEModel(
        lambda t, u, p: {"a": 0 * u[0], "b": 0 * u[0]}, initial, POSITIVE, states=["a", "b"]
    )
    found = model.simulate([0.0, 1.0], {"k": 5.0})
    assert np.array_equal(found["a"], [5.0, 5.0])
    assert np.array_equal(found["b"], [2.0, 2.0])
    slope = jax.jacfwd(lambda k: model.solver([1.0], method="explicit")({"k": k})[0])(5.0)
    assert np.allclose(slope, [[1.0, 0.0]])


def test_default_names():
    still = lambda t, u, p: jnp.zeros_like(u)  # noqa: E731
    assert ODEModel(still, [1.0, 2.0], POSITIVE).states == ("u0", "u1")
    assert ODEModel(still, [1.0, 2.0], POSITIVE, outputs=["a", "b"]).states == ("a", "b")
    assert ODEModel(still, {"a": 1.0, "b": 2.0}, POSITIVE).outputs == ("a", "b")
    chosen = ODEModel(still, {"a": 1.0, "b": 2.0}, POSITIVE, outputs=["b"])
    assert np.array_equal(chosen.solver([0.0])({"k": 1.0})[0], [[2.0]])
    observing = ODEModel(
        still, [1.0, 2.0], POSITIVE, outputs=["total"], observe=lambda t, u, p: u.sum()
    )
    assert observing.states == ("u0", "u1")
    assert isinstance(observing, Model)


@pytest.mark.slow
def test_several_outputs_are_observed_and_states_come_along():
    model = decay(
        outputs=["double", "clock"],
        observe=lambda t, u, p: [2 * u[0], t + p["c"]],
        constants={"c": 10.0},
        report=lambda t, u, p: {"rate": p["k"] * u[0], "double": 0.0},
    )
    found = model.simulate(X, {"k": 0.5})
    assert set(found) == {"double", "clock", "u", "rate"}
    assert np.allclose(found["double"], 2 * found["u"])
    assert np.allclose(found["clock"], X + 10)
    assert np.allclose(found["rate"], 0.5 * found["u"])
    w, _ = model.solver(X)({"k": 0.5})
    assert np.allclose(w, np.stack([found["double"], found["clock"]], axis=1), rtol=1e-6)


def test_the_start_need_not_be_zero():
    assert np.allclose(decay(t0=-2.0).simulate([0.0], {"k": 1.0})["u"], 3 * np.exp(-2.0))
    with pytest.raises(InputError, match="t0"):
        decay(t0=1.0).simulate([0.0])


def test_a_model_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        decay().t0 = 3.0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rhs": lambda t, u, p: jnp.zeros(3)}, r"rhs.*\(1,\), got \(3,\)"),
        ({"rhs": lambda t, u, p: [u]}, "rhs.*scalars"),
        ({"rhs": lambda t, u, p: {"v": 1.0}}, "rhs.*without"),
        ({"rhs": lambda t, u, p: p["q"] * u}, "rhs.*'q'.*p has k"),
        ({"rhs": lambda t, u, p: u if u[0] > 0 else -u}, r"rhs.*jnp\.where"),
        ({"rhs": 3}, "rhs.*function"),
        ({"initial": []}, "initial.*k ≥ 1"),
        ({"initial": 3.0}, "initial"),
        ({"initial": [np.nan]}, "initial.*finite"),
        ({"initial": {"u": "q"}}, "names 'q'"),
        ({"initial": {}}, "initial|states"),
        ({"initial": {"k": 1.0}}, "already a parameter"),
        ({"states": ["a", "b"]}, "one value for each state"),
        ({"constants": {"k": 1.0}}, "already a parameter"),
        ({"constants": {"c": np.inf}}, "finite"),
        ({"constants": {"u": 1.0}}, "already"),
        ({"constants": {3: 1.0}}, "non-empty string"),
        ({"outputs": ["w"]}, "observe"),
        ({"outputs": []}, "at least one"),
        ({"outputs": ["u", "u"]}, "more than once"),
        ({"observe": lambda t, u, p: u}, "outputs"),
        ({"observe": lambda t, u, p: u, "outputs": ["a", "b"]}, r"observe.*got \(1,\)"),
        ({"t0": np.inf}, "t0"),
        ({"breaks": ["noon"]}, "breaks"),
        ({"parameters": None}, "parameters"),
    ],
)
def test_bad_models_are_refused_with_a_reason(change, message):
    good = {"rhs": lambda t, u, p: -p["k"] * u, "initial": {"u": 1.0}, "parameters": POSITIVE}
    with pytest.raises(InputError, match=f"(?s){message}"):
        ODEModel(**(good | change))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["explicit", pytest.param("implicit", marks=pytest.mark.slow)])
def test_derivatives_of_adaptive_solves_agree_with_the_exact_one(method):
    """d/dk 3 e^{-kt} = -3 t e^{-kt}."""
    wanted = -3 * X * np.exp(-0.7 * X)
    for mode, take in (("forward", jax.jacfwd), ("reverse", jax.jacrev)):
        solver = decay().solver(X, method=method, mode=mode)
        assert solver.describe()["method"] == method
        assert isinstance(solver, Solver)
        slope = jax.jit(take(lambda k, s=solver: s({"k": k})[0][:, 0]))(0.7)
        assert np.allclose(slope, wanted, atol=1e-6), mode


@pytest.mark.slow
@pytest.mark.parametrize("method", ["explicit", "implicit"])
def test_outputs_between_steps_are_accurate(method):
    solver = decay().solver(np.linspace(0, 4, 101), method=method, tolerance=1e-8)
    w, ok = jax.jit(solver)({"k": jnp.array(0.7)})
    assert ok
    assert np.max(np.abs(w[:, 0] - 3 * np.exp(-0.7 * np.linspace(0, 4, 101)))) < 3e-7


@pytest.mark.slow
@pytest.mark.parametrize(
    ("trouble", "method", "mode"),
    [
        pytest.param("nan", "explicit", "forward", marks=pytest.mark.slow),
        ("nan-later", "explicit", "forward"),
        pytest.param("blow-up", "explicit", "forward", marks=pytest.mark.slow),
        pytest.param("nan-later", "explicit", "reverse", marks=pytest.mark.slow),
        pytest.param("blow-up", "explicit", "reverse", marks=pytest.mark.slow),
        pytest.param("nan-later", "implicit", "forward", marks=pytest.mark.slow),
        pytest.param("nan-later", "implicit", "reverse", marks=pytest.mark.slow),
        pytest.param("blow-up", "implicit", "forward", marks=pytest.mark.slow),
    ],
)
def test_a_failed_lane_is_zero_and_poisons_no_other(trouble, method, mode):
    def rhs(t, u, p):
        if trouble == "nan":
            return jnp.sqrt(p["r"]) * u
        if trouble == "nan-later":
            return -jnp.sqrt(5 * p["r"] + 10 - t) * u
        return p["r"] * u**2

    bad = 5.0 if trouble == "blow-up" else -1.5
    # The change at 3 shows that a lost lane does not come back after a reset.
    model = ODEModel(rhs, {"u": 1.0}, {"r": Parameter("identity")})
    model = model.do(Intervention(set={"u": 1.0}, at=3.0))
    solver = model.solver(X, {"r": np.array([0.04])}, method=method, mode=mode, tolerance=1e-8)
    rates = jnp.array([0.04, bad, 0.09])
    w, ok = jax.jit(jax.vmap(lambda r: solver({"r": r})))(rates)
    assert np.array_equal(ok, [True, False, True])
    assert np.array_equal(w[1], np.zeros_like(w[1]))
    assert np.all(w[::2] > 0)

    def total(r):
        return jnp.sum(solver({"r": r})[0])

    take = jax.jacfwd if mode == "forward" else jax.grad
    slope = jax.jit(jax.vmap(take(total)))(rates)
    assert slope[1] == 0
    h = 1e-4
    up, down = (jax.jit(jax.vmap(total))(rates + s * h) for s in (1, -1))
    assert np.allclose(slope[::2], (up - down)[::2] / (2 * h), rtol=1e-3)


def test_a_solve_that_never_finishes_ends_and_fails_alone():
    """λ = -1e9 on [0, 4] takes an explicit method about 1e9 steps."""
    solver = decay().solver(X, method="explicit")
    w, ok = jax.jit(jax.vmap(lambda k: solver({"k": k})))(jnp.array([1.0, 1e9]))
    assert np.array_equal(ok, [True, False])
    assert np.allclose(w[0, :, 0], 3 * np.exp(-X), rtol=1e-6)


@pytest.mark.slow
def test_a_stiff_model_goes_to_the_implicit_method():
    x = np.linspace(0, 2000, 21)
    representatives = {"mu": np.array([900.0, 1000.0, 1100.0])}
    solver = van_der_pol().solver(x, representatives, method="adaptive", tolerance=1e-6)
    assert solver.describe()["method"] == "implicit"
    w, ok = jax.jit(solver)({"mu": jnp.array(1000.0)})
    assert ok
    found = van_der_pol().simulate(x, {"mu": 1000.0})
    # Slow drift along x - x³/3: at x(0) = 2, ln|x| - x²/2 = t/mu + ln 2 - 2 to first order.
    drift = np.log(found["x"][:8]) - found["x"][:8] ** 2 / 2 - x[:8] / 1000 - np.log(2) + 2
    assert np.max(np.abs(drift)) < 1e-3
    assert np.max(np.abs(w[:, 0] - found["x"])) < 1e-2
    assert np.min(found["x"]) < -1.5  # it has jumped to the other branch


@pytest.mark.slow
def test_a_stiff_model_without_representatives_is_seen_too():
    model = ODEModel(lambda t, u, p: [-1e6 * p["k"] * (u[0] - jnp.cos(t))], {"u": 0.0}, POSITIVE)
    solver = model.solver(X)
    assert solver.describe()["method"] == "implicit"
    assert np.allclose(jax.jit(solver)({"k": 1.0})[0][1:, 0], np.cos(X[1:]), atol=1e-5)
    assert decay().solver(X).describe()["method"] == "explicit"


@pytest.mark.slow
def test_robertson_is_simulated_in_small_and_large_numbers():
    """Published reference at t = 40: 0.7158, 9.185e-6, 0.2842; total 1 at all times."""
    model = ODEModel(
        lambda t, u, p: [
            -p["k"] * u[0] + 1e4 * u[1] * u[2],
            p["k"] * u[0] - 1e4 * u[1] * u[2] - 3e7 * u[1] ** 2,
            3e7 * u[1] ** 2,
        ],
        {"a": 1.0, "b": 0.0, "c": 0.0},
        POSITIVE,
    )
    found = model.simulate([40.0, 4e5], {"k": 0.04})
    at_40 = [found[name][0] for name in "abc"]
    assert np.allclose(at_40, [0.7158270688, 9.185534765e-6, 0.2841637457], rtol=1e-7)
    assert np.allclose(found["a"] + found["b"] + found["c"], 1, rtol=1e-8)
    assert np.isclose(found["a"][1], 4.9382e-3, rtol=1e-3)


@pytest.mark.slow
def test_a_break_is_met_exactly_by_adaptive_steps():
    def model(breaks):
        return ODEModel(
            lambda t, u, p: [jnp.where(t < 1.3, p["k"], -2 * p["k"])],
            {"u": 0.0},
            POSITIVE,
            breaks=breaks,
        )

    wanted = np.where(X < 1.3, X, 1.3 - 2 * (X - 1.3))
    for method in ("explicit", "implicit"):
        w, _ = model([1.3]).solver(X, method=method)({"k": 1.0})
        assert np.max(np.abs(w[:, 0] - wanted)) < 1e-12


@pytest.mark.slow
def test_a_model_that_explodes_says_so():
    with pytest.raises(ComputationError, match="explodes"):
        ODEModel(lambda t, u, p: u**2, {"u": 1.0}, POSITIVE).simulate([2.0])


def test_rest_is_refused_where_a_switch_at_a_fitted_time_may_come_later():
    model = ODEModel(
        rhs=lambda t, u, p: [jnp.where(t < p["tau"], 1.0, 0.0) - u[0]],
        initial=[0.0],
        parameters={"tau": Parameter("log")},
        outputs=["u"],
        breaks=[lambda p, end: [p["tau"]]],
    )
    with pytest.raises(InputError, match="switches at a time that is fitted"):
        model.simulate(np.array([0.5, np.inf]), {"tau": 10.0})
