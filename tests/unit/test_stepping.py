"""Adaptive steps for stiff models: against exact solutions, and one particle against many."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from test_stiff_mesh import robertson

import pcuq
from pcuq.models import stepping
from pcuq.models.adaptive import AdaptiveSolver
from pcuq.models.segments import cut
from pcuq.models.survey import (
    FLOORS,
    MANY_STEPS,
    MOST_KEPT,
    STIFF,
    Survey,
    accurate,
    if_stiff,
    strictly,
    surveyor_of,
)

X = np.array([0.0, 0.1, 1.0, 10.0, 40.0])
MANY = 40  # enough for the late ones to go on by themselves


def values(count: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    return {
        name: rate * np.exp(rng.normal(size=count))
        for name, rate in {"k1": 0.04, "k2": 3e7, "k3": 1e4}.items()
    }


def solver(model, x=X, rtol=1e-6, mode="forward") -> AdaptiveSolver:
    scale = np.ones(len(model.states)) * (1.0 if len(model.states) == 1 else [1.0, 1e-5, 1.0])
    return AdaptiveSolver(model, cut(model, np.asarray(x)), "implicit", rtol, scale, mode)


def test_a_stiff_model_is_solved_as_by_another_method():
    given = values(3)
    w, ok = jax.jit(jax.vmap(solver(robertson(), rtol=1e-8)))(given)
    assert ok.all()
    for i in range(3):
        k1, k2, k3 = (given[name][i] for name in ("k1", "k2", "k3"))

        def rhs(t, u, k1=k1, k2=k2, k3=k3):
            a, b, c = k1 * u[0], k2 * u[1] ** 2, k3 * u[1] * u[2]
            return [c - a, a - c - b, b]

        exact = solve_ivp(rhs, (0, X[-1]), [1.0, 0, 0], "Radau", X, rtol=1e-10, atol=1e-14).y.T
        np.testing.assert_allclose(w[i], exact, rtol=1e-6, atol=1e-12)


def test_the_error_follows_the_tolerance():
    model = pcuq.ODEModel(
        lambda t, u, p: [-p["r"] * (u[0] - jnp.cos(t)) - jnp.sin(t)],
        [1.0],
        {"r": pcuq.Parameter("log")},
        states=["u"],
    )
    x = np.linspace(0.5, 10, 20)
    errors = []
    for rtol in (1e-4, 1e-6, 1e-8):
        w, ok = solver(model, x, rtol)({"r": 1e6})
        assert ok
        errors.append(np.max(np.abs(w[:, 0] - np.cos(x))))
    assert errors[0] < 1e-3 and errors[1] < 1e-5 and errors[2] < 1e-7


@pytest.mark.parametrize("mode", ["forward", "reverse"])
def test_many_particles_side_by_side_are_what_each_is_alone(mode):
    given, made = values(MANY), solver(robertson(), mode=mode)
    assert stepping._few(MANY) == 10 and stepping._few() == 0
    alone, ok = jax.jit(jax.vmap(made))(given)
    together, fine = jax.jit(lambda v: made.many(v, MANY))(given)
    assert ok.all() and fine.all()
    np.testing.assert_allclose(together, alone, rtol=1e-8, atol=1e-14)
    if mode == "reverse":
        slope = jax.jit(jax.grad(lambda v: jnp.sum(made.many(v, MANY)[0][:, 2:, 0])))(given)
    else:
        ways = {name: np.ones(MANY) if name == "k1" else np.zeros(MANY) for name in given}
        slope = jax.jit(lambda v: jax.jvp(lambda v: made.many(v, MANY)[0], (v,), (ways,))[1])(given)
        slope = {"k1": jnp.sum(slope[:, 2:, 0], axis=1)}
    exact = solver(robertson(), rtol=1e-10)
    up, down = (
        np.sum(exact.many({**given, "k1": given["k1"] * c}, MANY)[0][:, 2:, 0], axis=1)
        for c in (1 + 1e-4, 1 - 1e-4)
    )
    wanted = (up - down) / (2e-4 * given["k1"])
    np.testing.assert_allclose(slope["k1"], wanted, rtol=1e-3)


def test_particles_that_are_lost_harm_no_other():
    model = pcuq.ODEModel(
        lambda t, u, p: [p["r"] * u[0] ** 2], [1.0], {"r": pcuq.Parameter("identity")}, states=["u"]
    )
    r = np.tile([-1.0, np.nan, 1.0, np.inf, -2.0], 8)  # at 1, u = 1/(1 − t) is infinite
    w, ok = jax.jit(lambda v: solver(model, [0.5, 2.0]).many(v, len(r)))({"r": r})
    healthy = r < 0
    assert ok.tolist() == healthy.tolist()
    exact = 1 / (1 - r[healthy, None] * np.array([0.5, 2.0]))
    np.testing.assert_allclose(w[healthy, :, 0], exact, rtol=1e-5)
    assert not np.any(w[~healthy])


def test_a_solve_that_takes_too_many_steps_is_given_up():
    taken = stepping.travel(
        lambda t, u, p: jnp.cos(1e3 * t) * jnp.ones_like(u), jnp.ones(1), {}, (), (0.0, 1.0),
        jnp.bool_(True), 1e-8, jnp.ones(1), 20,
    )  # fmt: skip
    assert not taken.fine and taken.tried == 20 and 0 < taken.t < 1


# --- by which method --------------------------------------------------------------------------


def solved(fine, steps=10) -> Survey:
    """As if this had been solved."""
    fine = np.asarray(fine, dtype=bool)
    none = np.zeros((len(fine), 1, 1))
    return Survey(none, none, fine, np.full(len(fine), steps), (), np.ones((len(fine), 1)))


@pytest.mark.parametrize(
    ("explicit", "implicit", "stiff"),
    [
        (solved([1, 1, 1, 0], MANY_STEPS - 1), None, False),  # quick enough: not even asked
        (solved([1, 1, 1, 1], 2 * STIFF * 100), solved([1, 1, 1, 1], 100), True),
        (solved([1, 1, 1, 1], MANY_STEPS), solved([1, 1, 1, 1], MANY_STEPS / 2), False),
        (solved([1, 0, 0, 0], 10), solved([1, 1, 1, 0], 10), True),  # far more can be solved
        (solved([0, 0, 0, 0]), solved([0, 0, 0, 0]), False),
    ],
)
def test_implicit_steps_are_taken_where_they_are_far_fewer_or_alone_arrive(
    explicit, implicit, stiff
):
    def survey(values, method, rtol):
        assert method == "implicit" and implicit is not None
        return implicit

    assert if_stiff(survey, {}, explicit, 1e-6) is (implicit if stiff else None)


def test_magnitudes_are_held_as_strictly_as_nearly_all_solves_allow():
    asked = []

    def survey(values, method, rtol, scale):
        asked.append(float(scale[0, 1]))
        return solved([1, 1, 1, asked[-1] >= bearable])

    first = solved([1, 1, 1, 1])._replace(scale=np.tile([1.0, 1e-30], (4, 1)))
    bearable = FLOORS["implicit"][1]
    found, floor = strictly(survey, {}, "implicit", 1e-8, first)
    assert found.fine.all() and floor == bearable and asked == list(FLOORS["implicit"][:2])
    bearable = np.inf
    found, floor = strictly(survey, {}, "implicit", 1e-8, first)
    assert not found.fine.all() and floor == FLOORS["implicit"][-1]


def test_an_accurate_solve_is_by_the_method_and_at_the_accuracy_that_can_be_had():
    def survey(values, method, rtol, scale=None):
        return solved([method == "implicit" and rtol >= finest], rtol)

    finest = 1e-12
    assert accurate(survey, {}, 1e-12).steps == 1e-12
    finest = 1e-9
    assert accurate(survey, {}, 1e-12).steps == pytest.approx(1e-8)
    finest = 1.0
    with pytest.raises(pcuq.ComputationError, match="the model could not be solved"):
        accurate(survey, {}, 1e-12)


def test_of_many_designs_only_the_latest_programs_are_kept():
    model = robertson()
    first = surveyor_of(model, X)
    assert surveyor_of(model, X) is first
    for one in range(MOST_KEPT):
        surveyor_of(model, X + one + 1)
    assert surveyor_of(model, X) is not first


@pytest.mark.parametrize("among", [4, 1])  # alone at last, or not
def test_more_particles_than_lie_side_by_side_take_places_that_become_free(monkeypatch, among):
    sizes = []

    def decay(t, u, p):
        sizes.append(u.shape[-1])
        return -p["rate"] * (u - jnp.cos(p["pace"] * t))

    rates, paces = 10.0 ** np.random.default_rng(4).uniform(0, 1, (2, 101))
    rates[[3, 50]], paces[99] = np.nan, 1e6  # which needs more steps than it may take
    given = {"rate": jnp.asarray(rates), "pace": jnp.asarray(paces)}
    begun = jnp.isfinite(given["rate"])

    def solve(given):
        between, u = (0.0, 2.5), jnp.zeros((1, 101))
        options = begun, 1e-6, jnp.ones((1, 1)), 500
        return stepping.travel(decay, u, given, (0.5, 2.0), between, *options)

    whole = jax.jit(solve)(given)
    assert not whole.fine[99] and whole.tried[99] == 500 and whole.fine.sum() == 98
    assert whole.tried[begun & whole.fine].max() > 1.5 * whole.tried[begun & whole.fine].min()
    monkeypatch.setattr(stepping, "MOST_LANES", 32)
    monkeypatch.setattr(stepping, "FEWEST", 32 // 4 if among == 4 else 33)
    sizes.clear()
    found = jax.jit(lambda given: solve(given))(given)  # a program of its own
    # All at once are only their first slopes.
    assert sizes.count(101) == 1 and set(sizes) == ({101, 32, 8} if among == 4 else {101, 32})
    for name in ("fine", "row", "steps", "tried"):
        assert np.array_equal(getattr(found, name), getattr(whole, name)), name
    np.testing.assert_allclose(found.kept, whole.kept, rtol=1e-12, atol=1e-15)
    # Forward derivatives too, of those that arrive.
    slopes = []
    for most in (32, 101):
        monkeypatch.setattr(stepping, "MOST_LANES", most)
        along = {name: jnp.ones(101) for name in given}
        slopes.append(jax.jvp(lambda given: solve(given).kept[:-1], (given,), (along,))[1])
    np.testing.assert_allclose(*(s[..., whole.fine] for s in slopes), rtol=1e-9, atol=1e-15)
