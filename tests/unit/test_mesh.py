"""The frozen mesh: its order, its derivatives, its cuts, and how it is chosen."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pcuq.errors import ComputationError, InputError
from pcuq.interventions import Intervention
from pcuq.models import ODEModel, Solver, mesh, placement
from pcuq.models.segments import cut
from pcuq.parameters import Parameter

X = np.linspace(0, 4, 9)


def oscillator() -> ODEModel:
    """u'' = -ω² u, u(0) = 1, u'(0) = 0: u = cos ωt."""
    return ODEModel(
        lambda t, u, p: [u[1], -(p["omega"] ** 2) * u[0]],
        {"u": 1.0, "v": 0.0},
        {"omega": Parameter("log")},
        outputs=["u"],
    )


def logistic() -> ODEModel:
    """u' = r u (1 - u): u = 1 / (1 + (1/u0 - 1) e^{-rt}), with u0 a parameter."""
    return ODEModel(
        lambda t, u, p: p["r"] * u * (1 - u),
        {"u": "u0"},
        {"r": Parameter("log"), "u0": Parameter("logit")},
    )


def lotka_volterra(**options) -> ODEModel:
    def rhs(t, u, p):
        return [p["alpha"] * u[0] - p["beta"] * u[0] * u[1], 0.02 * u[0] * u[1] - 0.4 * u[1]]

    both = {"alpha": Parameter(), "beta": Parameter()}
    return ODEModel(rhs, [10.0, 10.0], both, outputs=["prey", "predator"], **options)


def on_mesh(model, x, spacing, mode="forward"):
    segments = cut(model, np.asarray(x, dtype=float))
    return mesh.MeshSolver(model, segments, mesh.uniform(segments, spacing), mode)


def test_the_method_has_order_five():
    def error(spacing):
        w, _ = on_mesh(logistic(), X, spacing)({"r": 3.0, "u0": 0.05})
        return np.max(np.abs(w[:, 0] - 1 / (1 + 19 * np.exp(-3 * X))))

    errors = np.array([error(0.25 / 2**i) for i in range(4)])
    orders = np.log2(errors[:-1] / errors[1:])
    assert np.all(np.abs(orders - 5) < 0.4), orders


@pytest.mark.parametrize("stiff", [False, True])
def test_steps_that_fill_up_a_grid_change_nothing(stiff):
    model = logistic()
    segments = cut(model, X)
    grids = mesh.uniform(segments, 0.1, stiff)
    filled = tuple(map(mesh.padded, grids))
    assert mesh.count(grids) == 40 and mesh.count(filled) == 64
    values = {"r": 3.0, "u0": 0.05}
    expected, found = (mesh.integrate(model, segments, g, values) for g in (grids, filled))
    np.testing.assert_allclose(found.outputs, expected.outputs, rtol=1e-12)


def test_a_start_far_from_the_first_output_is_reached():
    w, ok = on_mesh(oscillator(), [3.0, 3.5], 0.05)({"omega": 1.0})
    assert ok
    assert np.allclose(w[:, 0], np.cos([3.0, 3.5]), atol=1e-9)


def test_one_output_at_the_start_is_the_initial_state():
    w, ok = on_mesh(oscillator(), [0.0], 0.1)({"omega": 1.0})
    assert ok
    assert np.array_equal(w, [[1.0]])


@pytest.mark.slow
def test_few_outputs_on_many_steps_are_the_same_outputs():
    """Both ways of keeping rows: all steps and a choice among them, or the outputs' rows only."""
    model, x = oscillator(), np.array([0.0, 0.7, 3.0])
    sparse = on_mesh(model, x, 0.01)
    assert mesh.count(sparse.grids) > mesh.DENSE * len(x)
    dense = on_mesh(model, x, 0.01, mode="reverse")
    for of in (lambda s, w: s({"omega": w})[0], lambda s, w: jax.jacfwd(lambda v: of0(s, v))(w)):
        assert np.allclose(of(sparse, 1.3), of(dense, 1.3), rtol=1e-13, atol=1e-13)


def of0(solver, omega):
    return solver({"omega": omega})[0]


def test_jvp_and_vjp_agree_with_each_other_with_differences_and_with_the_exact_derivative():
    values = {"r": jnp.array(1.2), "u0": jnp.array(0.1)}

    def jacobians(mode):
        solver = on_mesh(logistic(), X, 0.05, mode)
        solve = lambda v: solver(v)[0][:, 0]  # noqa: E731
        return solve, jax.jacfwd(solve)(values), jax.jacrev(solve)(values)

    solve, forward, backward = jacobians("forward")
    _, forward_too, backward_too = jacobians("reverse")
    grown = np.exp(-1.2 * X)
    exact = {
        "r": 9 * X * grown / (1 + 9 * grown) ** 2,
        "u0": 100 * grown / (1 + 9 * grown) ** 2,
    }
    for name in values:
        h = 1e-6
        up, down = ({**values, name: values[name] + s * h} for s in (1, -1))
        difference = (solve(up) - solve(down)) / (2 * h)
        assert np.allclose(forward[name], difference, atol=1e-8)
        assert np.allclose(forward[name], exact[name], atol=1e-6)
        for other in (backward, forward_too, backward_too):
            assert np.allclose(forward[name], other[name], rtol=1e-12, atol=1e-13)


def test_second_derivatives_exist():
    solver = on_mesh(logistic(), X, 0.1)
    second = jax.jacfwd(jax.jacfwd(lambda r: solver({"r": r, "u0": 0.1})[0]))(1.2)
    assert np.all(np.isfinite(second))


@pytest.mark.quick("blow-up-forward")
@pytest.mark.parametrize("mode", ["forward", "reverse"])
@pytest.mark.parametrize("trouble", ["nan", "blow-up"])
def test_a_failed_lane_is_zero_and_poisons_no_other(mode, trouble):
    def rhs(t, u, p):
        if trouble == "nan":
            return jnp.sqrt(p["r"]) * u
        return p["r"] * u**2

    model = ODEModel(rhs, {"u": 1.0}, {"r": Parameter("identity")})
    solver = on_mesh(model, X, 0.02, mode)
    bad = -1.0 if trouble == "nan" else 5.0
    rates = jnp.array([0.04, bad, 0.09])
    w, ok = jax.jit(jax.vmap(lambda r: solver({"r": r})))(rates)
    take = jax.jacfwd if mode == "forward" else jax.jacrev
    slope = jax.vmap(take(lambda r: solver({"r": r})[0][:, 0]))(rates)
    assert np.array_equal(ok, [True, False, True])
    assert np.array_equal(w[1], np.zeros_like(w[1]))
    assert np.array_equal(slope[1], np.zeros_like(slope[1]))
    alone, _ = solver({"r": 0.04})
    assert np.allclose(w[0], alone, rtol=1e-14)
    assert np.all(np.isfinite(slope))
    assert np.all(slope[[0, 2], 1:] > 0)


def test_a_state_lost_before_a_reset_stays_lost():
    model = ODEModel(lambda t, u, p: p["r"] * u**2, {"u": 1.0}, {"r": Parameter("log")})
    solver = on_mesh(model.do(Intervention(set={"u": 0.1}, at=3.0)), [3.0, 4.0], 0.02)
    assert not solver({"r": 5.0})[1]
    assert solver({"r": 0.1})[1]


def switching(breaks=()) -> ODEModel:
    """u' = k before t = 1.3 and -2k from then on: piecewise linear, exact for the method."""
    return ODEModel(
        lambda t, u, p: [jnp.where(t < 1.3, p["k"], -2 * p["k"])],
        {"u": 0.0},
        {"k": Parameter("log")},
        breaks=breaks,
    )


def test_a_break_leaves_no_error_where_stepping_over_it_does():
    wanted = np.where(X < 1.3, X, 1.3 - 2 * (X - 1.3))

    def error(breaks):
        return np.max(np.abs(on_mesh(switching(breaks), X, 0.5)({"k": 1.0})[0][:, 0] - wanted))

    assert error((1.3,)) < 1e-14
    assert error(()) > 1e-2


def test_stages_stay_on_their_side_of_every_cut():
    segments = cut(switching((1.3, 2.0, 9.0)), X)
    assert [(s.start, s.end) for s in segments] == [(0.0, 1.3), (1.3, 2.0), (2.0, 4.0)]
    for segment, grid in zip(segments, mesh.uniform(segments, 0.1), strict=True):
        assert segment.start <= grid.times.min() < segment.start + 1e-14
        assert grid.times.max() < segment.end
    assert np.array_equal(np.concatenate([s.x for s in segments]), X)


@pytest.mark.slow
def test_the_chosen_mesh_is_as_accurate_as_it_says():
    model, x = lotka_volterra(), np.arange(61.0)
    rates = np.random.default_rng(0).uniform([0.1, 0.015], [0.15, 0.025], (12, 2)).T
    values = dict(zip(("alpha", "beta"), rates, strict=True))
    solver = model.solver(x, values)
    told = solver.describe()
    assert told["method"] == "mesh"
    assert told["failed"] == told["dropped"] == 0
    assert 0 < told["error"] <= told["tolerance"] == 1e-4
    assert told["steps"] < 300
    assert json.loads(json.dumps(told)) == told
    assert isinstance(solver, Solver)
    exact = model.solver(x, method="explicit", tolerance=1e-10)
    found, truth = (jax.jit(jax.vmap(s))(values)[0] for s in (solver, exact))
    relative = np.max(np.abs(found - truth), axis=1) / np.max(np.abs(truth), axis=1)
    assert np.max(relative) < 1.2e-4
    finer = model.solver(x, values, tolerance=1e-8)
    assert finer.describe()["steps"] > told["steps"]
    assert np.max(np.abs(jax.vmap(finer)(values)[0] - truth)) < 1e-5


def test_steps_go_where_the_solution_moves():
    """u' = -k (u - cos t) with a fast start: short steps first, long ones later."""
    model = ODEModel(
        lambda t, u, p: [-p["k"] * (u[0] - jnp.cos(t))], {"u": 9.0}, {"k": Parameter("log")}
    )
    solver = model.solver(np.array([0.0, 10.0]), {"k": np.array([10.0])}, tolerance=1e-6)
    steps = np.concatenate([grid.steps for grid in solver.grids])
    assert solver.describe()["error"] < 1e-6
    assert steps[:5].mean() < 0.5 * steps[-20:].mean()


@pytest.mark.slow
def test_explosive_and_much_harder_representatives_do_not_decide_the_mesh():
    model = ODEModel(
        lambda t, u, p: [p["growth"] * u[0] ** 2, -p["k"] * (u[1] - jnp.cos(t))],
        {"u": 1.0, "v": 1.0},
        {"growth": Parameter("log"), "k": Parameter("log")},
    )
    growth, k = np.full(12, 0.01), np.full(12, 1.0)
    alone = model.solver(X, {"growth": growth, "k": k}).describe()
    growth[3], k[7] = 5.0, 3000.0
    told = model.solver(X, {"growth": growth, "k": k}).describe()
    assert (told["failed"], told["dropped"], told["representatives"]) == (1, 1, 12)
    assert told["method"] == "mesh"
    assert told["steps"] <= alone["steps"] + 2


@pytest.fixture
def density(monkeypatch):
    """A grid is a number that the steps are proportional to: fifty times as many."""
    monkeypatch.setattr(placement, "_place", lambda segments, density, factor, stiff: factor)
    monkeypatch.setattr(mesh, "count", lambda factor: max(1, round(50 * factor)))


@pytest.mark.parametrize("stiff", [False, True])
def test_steps_are_as_few_as_the_tolerance_allows(density, stiff):
    order = 4 if stiff else 5

    def search(wanted, most=10_000):
        """The error is the tolerance where steps are `wanted` times the first."""
        return placement.search(
            None, None, lambda grid: 1e-4 * (wanted / grid) ** order, 1e-4, stiff, most
        )

    for wanted in (0.3, 1.01, 4.0):
        grid, error = search(wanted)
        assert error <= 1e-4
        # Linear systems are dear: a stiff mesh has hardly more steps than it needs.
        assert wanted <= grid <= (1.3 if stiff else 2.0) * wanted
    assert search(4.0, most=100) is None


def test_a_mesh_that_is_exact_has_the_fewest_steps(density):
    grid, error = placement.search(None, None, lambda grid: 0.0, 1e-4, False)
    assert error == 0 and mesh.count(grid) == 1


def test_a_mesh_of_a_model_that_comes_to_rest_is_refused():
    model = ODEModel(lambda t, u, p: -p["r"] * u, {"u": 1.0}, {"r": Parameter("log")})
    with pytest.raises(InputError, match="a mesh needs fixed times"):
        model.solver(np.array([1.0, np.inf]), {"r": np.array([5.0])}, method="mesh")


def test_a_mesh_that_cannot_be_had_is_an_error_only_if_it_was_asked_for():
    model = ODEModel(lambda t, u, p: p["r"] * u**2, {"u": 1.0}, {"r": Parameter("log")})
    with pytest.raises(ComputationError, match="mesh"):
        model.solver(X, {"r": np.array([5.0])}, method="mesh")
    assert model.solver(X, {"r": np.array([5.0])}).describe()["method"] != "mesh"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"representatives": {}}, "omega"),
        ({"representatives": {"omega": np.zeros((2, 2))}}, "one array"),
        ({"method": "magic"}, "`method`"),
        ({"tolerance": -1.0}, "`tolerance`"),
        ({"mode": "sideways"}, "`mode`"),
    ],
)
def test_bad_options_are_refused(options, message):
    with pytest.raises(InputError, match=message):
        oscillator().solver(X, **options)


@pytest.mark.parametrize(
    "x", [[], [[0.0, 1.0]], [1.0, 0.5], [0.0, 0.0], [-1.0, 2.0], [np.nan], None]
)
def test_bad_times_are_refused(x):
    with pytest.raises(InputError):
        oscillator().solver(x)
