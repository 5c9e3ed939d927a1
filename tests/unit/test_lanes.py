"""Particles solved side by side against each of them on its own."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pcuq import Intervention, ODEModel, Parameter
from pcuq.models.base import solve_many
from pcuq.models.mesh import MeshSolver, uniform
from pcuq.models.segments import Jump, cut

PARAMETERS = {"a": Parameter("log"), "b": Parameter("log"), "c": Parameter("identity")}
TIMES = np.array([0.0, 0.5, 1.0, 2.5, 4.0])


def oscillator(t, u, p):
    x, y = u
    return {"x": p["a"] * y - p["k"] * x, "y": -p["b"] * x + p["c"] * (t > 1.2)}


def model(**options):
    return ODEModel(
        oscillator,
        {"x": "b", "y": 1.0},
        PARAMETERS,
        constants={"k": 0.1},
        breaks=[1.2],
        **options,
    )


DOSE = Jump(lambda p, end: [0.7], lambda t, before, u, p: u.at[0].add(p["a"]))
MODELS = {
    "plain": model(),
    "observed": model(outputs=["both"], observe=lambda t, u, p: [u[0] * p["a"] + u[1] + t]),
    "some states": model(outputs=["y"], states=("x", "y")),
    "a constant changed": model().do(Intervention(set={"k": 0.3})),
    "a constant set to a parameter": model().do(Intervention(set={"k": "a"})),
    "a parameter scaled later": model().do(Intervention(scale={"a": 0.2}, at=1.7)),
    "a parameter set": model().do(Intervention(set={"b": 0.5})),
    "a state set to a parameter": model().do(Intervention(set={"x": "a"}, at=1.0)),
    "a state held": model().do(Intervention(set={"y": 0.4}, at=0.9, hold=True)),
    "a dose": model(jumps=[DOSE]),
}


@pytest.mark.quick("False-a state held", "True-a parameter scaled later")
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("stiff", [False, True])
def test_side_by_side_is_as_one_by_one(name, stiff):
    """Outputs and their derivatives, also of a particle that overflows among those that do not."""
    with jax.enable_x64(True):
        thetas = 0.5 * jax.random.normal(jax.random.key(1), (5, 3))
        segments = cut(MODELS[name], TIMES)
        solver = MeshSolver(MODELS[name], segments, uniform(segments, 0.1, stiff))
        # a = 1e26, which an implicit step can bear, or infinity.
        thetas = thetas.at[3, 0].set(800.0 if stiff else 60.0)

        def one(theta):
            return solver(natural(theta))

        def many(thetas):
            return solve_many(solver, natural(thetas), len(thetas))

        direction = jnp.array([0.3, -1.0, 0.7])
        each, slopes = jax.jit(jax.vmap(lambda t: jax.jvp(one, (t,), (direction,))))(thetas)
        along = jnp.broadcast_to(direction, thetas.shape)
        together, together_slopes = jax.jit(lambda t: jax.jvp(many, (t,), (along,)))(thetas)
    assert np.all(np.asarray(each[1]) == (np.arange(5) != 3))
    np.testing.assert_array_equal(together[1], each[1])
    np.testing.assert_allclose(together[0], each[0], rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(together_slopes[0], slopes[0], rtol=1e-11, atol=1e-11)
    assert np.abs(np.asarray(slopes[0][0])).max() > 0.1


def natural(thetas):
    return MODELS["plain"].parameters.constrain(thetas)


@pytest.mark.slow
def test_a_model_without_parameters_has_lanes_too():
    decay = ODEModel(lambda t, u, p: -p["k"] * u, {"u": 1.0}, {}, constants={"k": 2.0})
    with jax.enable_x64(True):
        solver = decay.solver(TIMES)
        w, ok = solve_many(solver, {}, 3)
    assert ok.all()
    np.testing.assert_allclose(w, np.tile(np.exp(-2 * TIMES)[:, None], (3, 1, 1)), atol=1e-7)
