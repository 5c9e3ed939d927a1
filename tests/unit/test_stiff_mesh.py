"""The frozen mesh for stiff models: its order, its stability, its derivatives, how it is chosen."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pcuq
from pcuq.models import mesh, rosenbrock
from pcuq.models.segments import cut

X = np.linspace(0.0, 2.0, 5)
RATES = {name: pcuq.Parameter("log") for name in ("k1", "k2", "k3")}


def driven() -> pcuq.ODEModel:
    """u' = −r (u − cos t) − sin t with u(0) = 1: u = cos t, whatever r."""
    return pcuq.ODEModel(
        lambda t, u, p: [-p["r"] * (u[0] - jnp.cos(t)) - jnp.sin(t)],
        [1.0],
        {"r": pcuq.Parameter("log")},
        outputs=["u"],
    )


def logistic() -> pcuq.ODEModel:
    return pcuq.ODEModel(
        lambda t, u, p: [p["r"] * u[0] * (1 - u[0])],
        [0.05],
        {"r": pcuq.Parameter("log")},
        outputs=["u"],
    )


def robertson() -> pcuq.ODEModel:
    """A chain whose rates differ by nine orders of magnitude."""

    def rhs(t, u, p):
        first, second, back = p["k1"] * u[0], p["k2"] * u[1] ** 2, p["k3"] * u[1] * u[2]
        return [back - first, first - second - back, second]

    return pcuq.ODEModel(rhs, [1.0, 0.0, 0.0], RATES, outputs=["a", "b", "c"])


def representatives(count=12):
    rng = np.random.default_rng(0)
    centre = {"k1": 0.04, "k2": 3e7, "k3": 1e4}
    return {k: v * np.exp(0.3 * rng.normal(size=count)) for k, v in centre.items()}


def on_mesh(model, x, spacing, mode="forward"):
    segments = cut(model, np.asarray(x, dtype=float))
    return mesh.MeshSolver(model, segments, mesh.uniform(segments, spacing, stiff=True), mode)


def orders(model, values, exact):
    errors = []
    for i in range(4):
        w, ok = on_mesh(model, X, 0.125 / 2**i)(values)
        assert ok
        errors.append(np.max(np.abs(w[:, 0] - exact)))
    return np.log2(np.array(errors[:-1]) / errors[1:])


def test_the_method_has_order_four():
    exact = 1 / (1 + 19 * np.exp(-2 * X))
    assert np.all(np.abs(orders(logistic(), {"r": 2.0}, exact) - 4) < 0.5)


def test_the_method_has_order_four_where_time_acts_too():
    assert np.all(np.abs(orders(driven(), {"r": 1.0}, np.cos(X)) - 4) < 0.5)


def test_coefficients_satisfy_the_conditions_of_order():
    # With k = W⁻¹(...) the method is exact for u' = A u up to (A h)⁴: its stability function is
    # exp(z) + O(z⁵), and it vanishes as z → −∞.
    def growth(z):
        return rosenbrock.step(
            lambda t, u: z * u, jnp.ones(1), jnp.asarray(rosenbrock.NODES), jnp.asarray(1.0)
        )[0]

    z = np.array([0.1, 0.05])
    errors = np.abs([float(growth(one)) - np.exp(one) for one in z])
    assert np.log2(errors[0] / errors[1]) == pytest.approx(5, abs=0.3)
    assert abs(float(growth(-1e8))) < 1e-6


def test_what_decays_faster_than_a_step_does_no_harm():
    w, ok = on_mesh(driven(), X, 0.1)({"r": 1e7})
    assert ok
    assert np.max(np.abs(w[:, 0] - np.cos(X))) < 1e-4


@pytest.mark.slow
def test_a_stiff_model_is_put_on_a_stiff_mesh_that_is_accurate():
    x = np.array([0.1, 1.0, 10.0, 40.0])
    given = representatives()
    solver = robertson().solver(x, representatives=given, tolerance=1e-3)
    about = solver.describe()
    assert (about["method"], about["stiff"]) == ("mesh", True)
    assert about["steps"] < 500
    w, ok = jax.jit(jax.vmap(solver))({k: jnp.asarray(v) for k, v in given.items()})
    exact, fine = robertson().solve_tightly(x, given, 1e-9)
    assert ok.all()
    assert fine.all()
    size = np.max(np.abs(exact), axis=1, keepdims=True)
    assert np.max(np.abs(w - exact) / size) < 2e-3


@pytest.mark.quick("forward")
@pytest.mark.parametrize("mode", ["forward", "reverse"])
def test_the_derivative_is_that_of_the_value(mode):
    solver = on_mesh(robertson(), [0.1, 1.0], 0.05, mode)
    values = {"k1": 0.04, "k2": 3e7, "k3": 1e4}
    derive = jax.jacfwd if mode == "forward" else jax.jacrev
    found = jax.jit(derive(lambda v: solver(v)[0]))(values)
    evaluate = jax.jit(lambda v: solver(v)[0])
    for name, value in values.items():
        h = 1e-5 * value
        up, down = (evaluate({**values, name: value + s * h}) for s in (1, -1))
        wanted = np.asarray(up - down) / (2 * h)
        assert np.allclose(found[name], wanted, atol=1e-5 * np.max(np.abs(wanted)))


def test_a_particle_that_is_lost_harms_no_other():
    solver = on_mesh(logistic(), X, 0.2)
    w, ok = jax.vmap(solver)({"r": jnp.array([1.0, jnp.nan, jnp.inf])})
    assert ok.tolist() == [True, False, False]
    assert np.isfinite(w).all()


@pytest.mark.parametrize("size", [1, 3, 9])
def test_the_inverse_is_that_of_lapack_where_decay_lies_on_the_diagonal(size):
    """As W of a chain of reactions: magnitudes of twelve orders, columns that sum to 1/(γ h)."""
    rates = 10.0 ** np.random.default_rng(size).uniform(-6, 6, (size, size))
    rates = rates * (1 - np.eye(size))
    w = np.diag(4.0 + rates.sum(axis=0)) - rates
    found = np.asarray(rosenbrock.inverted(jnp.asarray(w)))
    np.testing.assert_allclose(found @ w, np.eye(size), atol=1e-6)
    np.testing.assert_allclose(found, np.linalg.inv(w), rtol=1e-6)


@pytest.mark.slow
def test_what_is_measured_is_right_though_it_is_tiny_beside_the_rest():
    """A wave of 1e-9 of the substances around it, in a model that is stiff."""

    def rhs(t, u, p):
        bound = p["fast"] * (u[0] - u[1])
        return [-bound, bound, p["k"] * u[3], -p["k"] * u[2]]

    model = pcuq.ODEModel(
        rhs,
        [2.0, 0.0, 0.0, 1e-9],
        {"fast": pcuq.Parameter("log"), "k": pcuq.Parameter("log")},
        outputs=["wave"],
        observe=lambda t, u, p: [u[2]],
    )
    values = {"fast": np.full(4, 1e7), "k": np.array([5.0, 10.0, 20.0, 20.0])}
    exact = 1e-9 * np.sin(values["k"][:, None] * X)
    solver = model.solver(X, values, tolerance=1e-3)
    assert solver.describe()["method"] == "mesh" and solver.describe()["stiff"]
    w, ok = jax.vmap(solver)(values)
    assert ok.all()
    np.testing.assert_allclose(w[:, :, 0], exact, atol=2e-12)
    tight, fine = model.solve_tightly(X, values, 1e-8)
    assert fine.all()
    np.testing.assert_allclose(tight[:, :, 0], exact, atol=1e-13)
