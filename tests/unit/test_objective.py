"""The objective against double loops over data and particles, over a grid of kinds of data."""

import math
from types import SimpleNamespace
from typing import NamedTuple

import brute_force
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from pcuq import objective as objectives
from pcuq import pairs
from pcuq.data import Data
from pcuq.errors import InputError
from pcuq.interventions import Intervention
from pcuq.kernel_scale import default_lengthscale
from pcuq.kernels import GaussianKernel, GaussianMixtureKernel
from pcuq.likelihood import log_likelihood
from pcuq.models import FunctionModel
from pcuq.noise import Gaussian, Laplace, LogNormal, StudentT
from pcuq.objective import Objective
from pcuq.parameters import Parameter
from pcuq.problem import Problem

LAM = 0.03
LENGTHS = np.array([0.6, 1.1])
MULTIPLES, SHARES = (0.5, 2.0), (0.25, 0.75)


def law(time, p, xp):
    """Outputs u and v of the test model, both positive."""
    return [2 + p["a"] * xp.sin(time) * p["dose"], p["b"] * xp.exp(0.2 * time)]


def time_of(x):
    """The model's time: a covariate, two of them combined, or 0.4 where there are none."""
    return 0.4 if x is None else x if jnp.ndim(x) == 0 else x[0] + 0.5 * x[1]


PARAMETERS = {
    "a": Parameter("interval", lower=-1.0, upper=1.0),
    "b": Parameter("log", prior=dist.Normal(0.2, 0.7)),
    "sd": Parameter("log", prior=dist.LogNormal(-0.5, 0.5), prior_on="natural"),
}
CONDITIONS = {"control": None, "drug": Intervention(set={"dose": 0.3}, scale={"b": 1.5})}
MODEL = FunctionModel(
    lambda x, p: law(time_of(x), p, jnp), PARAMETERS, ("u", "v"), constants={"dose": 1.0}
)


def natural(theta):
    return {
        "a": -1 + 2 / (1 + jnp.exp(-theta[0])),
        "b": jnp.exp(theta[1]),
        "sd": jnp.exp(theta[2]),
    }


def log_prior(theta):
    """Written out: Normal(0, 1), Normal(0.2, 0.7), and log sd ~ Normal(−0.5, 0.5)."""
    squares = theta[0] ** 2 + ((theta[1] - 0.2) / 0.7) ** 2 + ((theta[2] + 0.5) / 0.5) ** 2
    return -squares / 2 - math.log(0.7 * 0.5) - 1.5 * math.log(2 * math.pi)


class Case(NamedTuple):
    """`noise`: what Data takes. `scale(p, u, v)`: the same for both columns, written out."""

    noise: object
    scale: object
    x: str = "replicates"
    conditions: bool = False
    missing: bool = False
    lengthscale_x: float = 0.0
    combine: str = "product"
    mixture: bool = False
    log: tuple[str, str] = ("identity", "identity")


PER_ROW = np.random.default_rng(3).uniform(0.3, 1.0, (9, 2))
X = {
    "none": None,
    "distinct": np.linspace(0.0, 4.0, 9),
    "replicates": np.array([0.0, 1, 1, 1, 2, 2, 3, 3.5, 3.5]),
    "table": np.array([[0.0, 1], [0, 1], [1, 0], [1, 2], [2, 0], [2, 0], [2, 1], [3, 1], [3, 1]]),
}
SHARED = (0.7, lambda p, u, v: (0.7, 0.7))
EACH = ([0.5, 0.9], lambda p, u, v: (0.5, 0.9))
BY_ROW = (PER_ROW, lambda p, u, v: PER_ROW.T)
NAMED = ("sd", lambda p, u, v: (p["sd"], p["sd"]))
NAMES = (["sd", 0.4], lambda p, u, v: (p["sd"], 0.4))
CALLED = (
    lambda x, w, p: jnp.stack([0.1 * w["v"] + p["sd"], 0.2 * w["u"] * p["dose"]]),
    lambda p, u, v: (0.1 * v + p["sd"], 0.2 * u),
)
LOGGED = (LogNormal([0.3, 0.5]), lambda p, u, v: (0.3, 0.5))
LOGGED_NAMED = (LogNormal("sd"), NAMED[1])
MIXED = ((Gaussian("sd"), LogNormal(0.4, transform="log10")), NAMES[1])

CASES = {
    "independent": Case(*SHARED, x="none"),
    "independent, rows differ, gaps": Case(*BY_ROW, x="none", missing=True),
    "everything at once": Case(*BY_ROW, conditions=True, missing=True),
    "everything, over x": Case(*BY_ROW, conditions=True, missing=True, lengthscale_x=0.8),
    "everything, sum, over x": Case(
        *BY_ROW, conditions=True, missing=True, combine="sum", lengthscale_x=0.8, mixture=True
    ),
    "named, over x, mixture": Case(*NAMED, missing=True, lengthscale_x=0.8, mixture=True),
    "names": Case(*NAMES, conditions=True, missing=True, combine="sum"),
    "called": Case(*CALLED, missing=True),
    "called, over x, sum": Case(*CALLED, lengthscale_x=0.5, combine="sum"),
    "several covariates, over x": Case(*NAMED, x="table", lengthscale_x=0.8),
    "log-normal": Case(*LOGGED, missing=True, log=("log", "log")),
    "log-normal, named, over x": Case(*LOGGED_NAMED, lengthscale_x=0.8, log=("log", "log")),
    "mixed scales": Case(*MIXED, missing=True, conditions=True, log=("identity", "log10")),
}


def problem_of(case: Case) -> tuple[Problem, brute_force.BruteForce, object]:
    rng = np.random.default_rng(1)
    x, n = X[case.x], 9
    y = np.exp(rng.normal(0.6, 0.4, (n, 2)))
    if case.missing:
        y[[1, 6], 0] = np.nan
        y[[2, 4], 1] = np.nan
    condition = np.array((["control"] * 2 + ["drug"]) * 3) if case.conditions else None
    kernel = (
        GaussianMixtureKernel(LENGTHS, case.lengthscale_x, case.combine, MULTIPLES, SHARES)
        if case.mixture
        else GaussianKernel(LENGTHS, case.lengthscale_x, case.combine)
    )
    data = Data(y, x, case.noise, condition)
    problem = Problem(MODEL, data, kernel, CONDITIONS if case.conditions else None)

    times = np.full(n, 0.4) if x is None else x if x.ndim == 1 else x[:, 0] + 0.5 * x[:, 1]
    drug = np.zeros(n, bool) if condition is None else condition == "drug"
    logs = {"identity": lambda z: z, "log": jnp.log, "log10": jnp.log10}

    def predict(theta):
        """(n, 2) outputs on the kernel's scale, and their noise, in jax.numpy."""
        p = natural(theta)
        b = jnp.where(drug, 1.5, 1.0) * p["b"]
        w = law(times, {**p, "b": b, "dose": jnp.where(drug, 0.3, 1.0)}, jnp)
        s = [jnp.broadcast_to(column, (n,)) for column in case.scale(p, *w)]
        w = [logs[g](column) for g, column in zip(case.log, w, strict=True)]
        return jnp.stack(w, axis=-1), jnp.stack(s, axis=-1)

    on_scale = np.stack([logs[g](y[:, c]) for c, g in enumerate(case.log)], axis=-1)
    terms = tuple(zip(SHARES, MULTIPLES, strict=True)) if case.mixture else ((1.0, 1.0),)
    brute = brute_force.gaussian(
        LENGTHS,
        terms,
        y=on_scale,
        predict=lambda theta: tuple(map(np.asarray, predict(theta))),
        x=x,
        condition=condition,
        lengthscale_x=case.lengthscale_x,
        combine=case.combine,
    )
    plain = brute_force.plain_joint_log_density(brute, LENGTHS, predict, log_prior, terms)
    return problem, brute, plain


def particles(count, seed=0):
    return np.random.default_rng(seed).normal(0.0, 0.5, (count, 3)) - np.array([0.0, 0.0, 0.5])


def relative(found, wanted):
    return np.max(np.abs(np.asarray(found) - np.asarray(wanted))) / np.max(np.abs(wanted))


def quick_block(objective, features):
    quick = objective.quick_features(features)
    return objective.quick_pair_block(quick, quick)


@pytest.mark.quick(
    "everything at once",
    "everything, over x",
    "called, over x, sum",
    "independent, rows differ, gaps",
    "log-normal",
)
@pytest.mark.parametrize("name", CASES)
def test_everything_equals_the_double_loops(name):
    problem, brute, plain = problem_of(CASES[name])
    objective, thetas = Objective(problem), particles(3)

    @jax.jit
    def compute(thetas):
        features = objective.features(thetas)
        return (
            objective.data_terms(features),
            objective.pair_block(features, features),
            quick_block(objective, features),
            objective.joint_value_and_gradient(thetas, LAM),
        )

    v, block, quick, (value, gradient) = compute(jnp.asarray(thetas))
    assert relative(objective.constant, brute.constant()) < 1e-12
    assert relative(v, [brute.v(theta) for theta in thetas]) < 1e-12
    kappa0 = [[brute.kappa0(theta, vartheta) for vartheta in thetas] for theta in thetas]
    assert relative(block, kappa0) < 1e-12
    assert relative(quick, kappa0) < 1e-6
    joint = brute.joint_log_density(thetas, LAM, log_prior)
    assert relative(value, joint) < 1e-12
    assert relative(gradient, jax.jit(jax.grad(plain))(jnp.asarray(thetas), LAM)) < 1e-11


# --- the public functions --------------------------------------------------------------------


@pytest.fixture(scope="module")
def gaps():
    """Replicates, conditions, gaps and noise that differs by row."""
    return problem_of(CASES["everything at once"])


def test_kappa_is_the_inner_product_and_mmd2_its_mean(gaps):
    problem, brute, _ = gaps
    thetas, weights = particles(3), np.array([0.5, 0.2, 0.3])
    found = objectives.kappa(problem, thetas[0], thetas[1])
    assert relative(found, brute.kappa(thetas[0], thetas[1])) < 1e-11
    own = objectives.kappa(problem, thetas[0], thetas[0])
    assert relative(own, objectives.mmd2(problem, thetas[0])) < 1e-11
    found = objectives.mmd2(problem, thetas, weights)
    assert relative(found, brute.mmd2(thetas, weights)) < 1e-11
    # P_Q and P_n are weighed alike where the weights do not add up to 1.
    assert relative(objectives.mmd2(problem, thetas, 3 * weights), 9 * found) < 1e-11
    equal = objectives.mmd2(problem, thetas, np.full(3, 1 / 3))
    assert relative(objectives.mmd2(problem, thetas), equal) < 1e-13


def test_gradient_is_that_of_the_value(gaps):
    log_density = objectives.joint_log_density(gaps[0], LAM)
    thetas, step = particles(2), 1e-5
    gradient = jax.grad(log_density)(jnp.asarray(thetas))
    for i, k in np.ndindex(2, 3):
        move = np.zeros((2, 3))
        move[i, k] = step
        slope = (log_density(thetas + move) - log_density(thetas - move)) / (2 * step)
        assert abs(slope - gradient[i, k]) < 1e-7 * np.abs(gradient).max()


def test_the_joint_density_works_under_jit_and_vmap_and_in_any_order(gaps):
    log_density = objectives.joint_log_density(gaps[0], LAM)
    systems = jnp.asarray(np.stack([particles(3), particles(3, seed=1)]))
    values = jax.jit(jax.vmap(log_density))(systems)
    np.testing.assert_allclose(values[0], log_density(systems[0]), rtol=1e-13)
    np.testing.assert_allclose(values[1], log_density(systems[1][::-1]), rtol=1e-13)
    gradients = jax.vmap(jax.grad(log_density))(systems)
    np.testing.assert_allclose(gradients[0], jax.grad(log_density)(systems[0]), rtol=1e-10)


@pytest.mark.default_precision
def test_values_and_gradients_are_in_64_bits_whatever_the_caller_has(gaps):
    """A warning of a truncated dtype is an error here; gradients come back as the input is."""
    problem, thetas = gaps[0], particles(2).astype(np.float32)
    log_density = objectives.joint_log_density(problem, LAM)
    assert log_density(thetas).dtype == np.float64
    with jax.enable_x64(True):
        precise = jax.grad(log_density)(jnp.asarray(thetas, float))
    for function, wanted in (
        (log_density, precise),
        (lambda t: objectives.mmd2(problem, t), None),
        (lambda t: objectives.kappa(problem, t[0], t[1]), None),
        (lambda t: log_likelihood(problem, t[0]), None),
    ):
        value, gradient = jax.jit(jax.value_and_grad(function))(jnp.asarray(thetas))
        assert value.dtype == np.float64 and gradient.dtype == np.float32
        if wanted is not None:
            np.testing.assert_allclose(gradient, wanted, rtol=1e-6)
    weights = np.array([0.1, 0.7], np.float32)
    found = objectives.mmd2(problem, thetas, weights)
    precise = objectives.mmd2(problem, thetas.astype(float), weights.astype(float))
    np.testing.assert_allclose(found, precise, rtol=1e-13)


def test_other_data_have_densities_of_their_own_also_where_one_was_compiled_before():
    model = FunctionModel(lambda x, p: [p["a"] * x], {"a": Parameter()}, ("y",))
    x, thetas = np.arange(3.0), jnp.array([[0.2], [0.9]])
    objective, other = (
        Objective(Problem(model, Data(y[:, None], x, noise=0.3))) for y in (0.1 * x, x)
    )
    figures = ("compiled_value", "compiled_value_and_gradient")
    before = [getattr(objective, name)(thetas, 0.1) for name in figures]
    given = objective.given(other.y)
    for name, old in zip(figures, before, strict=True):
        found, wanted = getattr(given, name)(thetas, 0.1), getattr(other, name)(thetas, 0.1)
        assert not np.allclose(jax.tree.leaves(found)[0], jax.tree.leaves(old)[0])
        jax.tree.map(np.testing.assert_allclose, found, wanted)


def test_a_problem_may_be_met_first_inside_jit():
    problem = problem_of(CASES["independent"])[0]
    thetas = jnp.asarray(particles(2))
    inside = jax.jit(lambda t: objectives.kappa(problem, t[0], t[1]))(thetas)
    np.testing.assert_allclose(inside, objectives.kappa(problem, *thetas), rtol=1e-13)


def test_mmd2_is_never_negative_and_zero_for_the_data_themselves():
    """Noise that is all but zero, a mixture that sits on the data: P_Q = P_n."""
    model = FunctionModel(lambda x, p: [p["m"]], {"m": Parameter("identity")}, ("y",))
    y = np.array([0.0, 0.7, 2.5])
    problem = Problem(model, Data(y, noise=1e-9), GaussianKernel(0.8))
    assert abs(objectives.mmd2(problem, y[:, None])) < 1e-14
    assert objectives.mmd2(problem, y[:, None] + 0.5) > 1e-3


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p: objectives.kappa(p, [0.0], [0.0] * 3), r"one number per parameter \(a, b, sd\)"),
        (lambda p: objectives.mmd2(p, np.zeros((2, 3)), [1.0]), r"one number per particle \(2\)"),
        (lambda p: objectives.joint_log_density(p, 0.0), "a number λ > 0: got 0"),
        (lambda p: objectives.joint_log_density(p, "auto"), "a number λ > 0: got 'auto'"),
        (lambda p: objectives.joint_log_density("p", 1.0), "Problem"),
        (lambda p: objectives.mmd2(p, np.zeros((2, 2))), r"one number per parameter \(a, b, sd\)"),
        (lambda p: objectives.joint_log_density(p, 1.0)(np.zeros(3)), r"need shape \(N, 3\)"),
        (lambda p: objectives.joint_log_density(p, 1.0)(np.zeros((2, 2))), r"need shape \(N, 3\)"),
    ],
)
def test_bad_arguments_are_named(gaps, call, message):
    with pytest.raises(InputError, match=message):
        call(gaps[0])


def test_an_objective_is_made_once_for_a_problem():
    problem = square_root_problem()
    assert objectives.objective_of(problem) is objectives.objective_of(problem)


@pytest.mark.parametrize(
    ("best", "fits"), [(0.0, [1, 1, 0, 0]), (0.5, [1, 1, 0, 0]), (2.0, [1, 0, 0, 0])]
)
def test_the_part_that_fits_has_a_fifth_of_the_best_data_term(best, fits):
    found = objectives.part_that_fits(np.array([1.0, 0.2, 0.1999, 0.0]), best)
    np.testing.assert_array_equal(found, fits)
    small = objectives.part_that_fits(np.array([1e-3, 2.1e-4, 1.9e-4]))
    np.testing.assert_array_equal(small, [1, 1, 0])


def test_the_model_is_solved_for_the_mode_in_which_it_is_differentiated(monkeypatch):
    """Some solvers have one of the two derivatives only."""
    asked = []
    monkeypatch.setattr(Problem, "predictor", lambda problem, **options: asked.append(options))
    for mode in ("forward", "reverse", None):
        Objective(square_root_problem(), mode=mode)
    assert asked == [{"mode": "forward"}, {"mode": "reverse"}, {"mode": "forward"}]


def test_few_parameters_are_differentiated_forward():
    modes = [
        objectives.derivative_mode(SimpleNamespace(parameters=range(count)))
        for count in (1, objectives.FORWARD_UP_TO, objectives.FORWARD_UP_TO + 1)
    ]
    assert modes == ["forward", "forward", "reverse"]


# --- particles: how many, in what tiles, and failed ones -------------------------------------


def square_root_problem(y=(0.5, 1.0, 2.4)) -> Problem:
    """√a, which fails where a < 0; Gaussian noise."""
    model = FunctionModel(lambda x, p: [jnp.sqrt(p["a"])], {"a": Parameter("identity")}, ("y",))
    return Problem(model, Data(np.array(y), noise=0.5), GaussianKernel(0.7))


def test_other_data_of_the_same_design_give_an_objective_of_their_own():
    objective, thetas = Objective(square_root_problem()), np.array([[0.3], [1.7]])

    def figures(objective):
        return (
            objective.constant,
            float(objective.kappa(*jnp.asarray(thetas))),
            float(objective.mmd2(jnp.asarray(thetas), jnp.array([0.4, 0.6]))),
            *objective.data_terms_of_many(thetas),
        )

    before = figures(objective)
    y = np.array([0.1, 0.9, 1.3])
    wanted = figures(Objective(square_root_problem(y)))
    np.testing.assert_allclose(figures(objective.given(y[:, None])), wanted, rtol=1e-13)
    assert figures(objective) == before and relative(wanted, before) > 0.01


@pytest.mark.parametrize("count", [3, 4, 9])
def test_many_particles_are_evaluated_some_at_a_time(count, monkeypatch):
    monkeypatch.setattr(objectives, "BATCH", 4)
    problem, compiled = square_root_problem(), []
    many = problem.predictor(mode="forward").many

    def noted(thetas):
        compiled.append(thetas.shape)
        return many(thetas)

    objective = Objective(problem, SimpleNamespace(many=noted))
    thetas = np.linspace(-0.9, 1.8, count)[:, None]
    outputs, ok = objective.solve_many(thetas)
    assert outputs.shape == (count, 1, 1)
    np.testing.assert_array_equal(objective.usable_of_many(thetas), thetas[:, 0] >= 0)
    assert compiled == [(4, 1)]  # once, whatever their number
    np.testing.assert_allclose(outputs[ok, 0, 0], np.sqrt(thetas[ok, 0]), rtol=1e-14)
    features = objective.features(jnp.asarray(thetas))
    wanted = objective.data_terms(features)
    np.testing.assert_allclose(objective.data_terms_of_many(thetas), wanted, rtol=1e-13)
    wanted = -(thetas[:, 0] ** 2) / 2 - math.log(2 * math.pi) / 2
    np.testing.assert_allclose(objective.log_priors_of_many(thetas), wanted, rtol=1e-13)


def test_the_data_term_holds_a_tile_at_a_time(monkeypatch):
    """Nine data with two outputs each have 18 entries for each particle."""
    objective = Objective(problem_of(CASES["independent"])[0])
    asked = []

    def noted(function, representation, batch_size):
        asked.append(batch_size)
        return jnp.zeros(5)

    monkeypatch.setattr(jax.lax, "map", noted)
    features = objectives.Features((jnp.ones((5, 1, 2)),), jnp.ones(5, bool))
    for tile in (5 * 18, 5 * 18 - 1, 18, 17):
        monkeypatch.setattr(objectives, "DATA_TILE", tile)
        objective.data_terms(features)
    objective.embedding.data_size = 3  # numbers for each entry
    monkeypatch.setattr(objectives, "DATA_TILE", 3 * 5 * 18 - 1)
    objective.data_terms(features)
    assert asked == [4, 1, 1, 4]


@pytest.mark.quick("everything, over x-7")
@pytest.mark.parametrize(
    ("name", "tile"), [("everything, over x", 7), ("named, over x, mixture", 64), ("called", 1)]
)
def test_tiles_of_any_size_give_the_same(name, tile, monkeypatch):
    """Sizes that do not divide: the last tile is filled up with weight 0."""
    objective, thetas = Objective(problem_of(CASES[name])[0]), jnp.asarray(particles(5))

    def compute(thetas):
        features = objective.features(thetas)
        few = jax.tree.map(lambda leaf: leaf[:2], features)
        c = jnp.arange(1.0, 6.0)
        return (
            objective.joint_value_and_gradient(thetas, LAM),
            objective.joint_log_density(thetas, LAM),
            objective.pair_block(few, features),
            objective.pair_rows(few, features, c),
            objective.data_terms(features),
        )

    whole = jax.jit(compute)(thetas)
    monkeypatch.setattr(pairs, "TILE", tile)
    monkeypatch.setattr(objectives, "DATA_TILE", tile)
    cut = jax.jit(lambda t: compute(t))(thetas)
    for a, b in zip(jax.tree.leaves(whole), jax.tree.leaves(cut), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-13)
    c = jnp.arange(1.0, 6.0)
    np.testing.assert_allclose(whole[3], whole[2] @ c, rtol=1e-12)


def test_one_particle_and_two_particles(gaps):
    problem, brute, _ = gaps
    objective = Objective(problem)
    for count in (1, 2):
        thetas = particles(count)
        value, gradient = jax.jit(objective.joint_value_and_gradient)(jnp.asarray(thetas), LAM)
        energy = sum(brute.v(theta) for theta in thetas)
        energy -= brute.kappa0(*thetas) if count == 2 else 0.0
        wanted = sum(map(log_prior, thetas)) + energy / LAM
        assert relative(value, wanted) < 1e-12 and gradient.shape == (count, 3)
        assert relative(objectives.joint_log_density(problem, LAM)(thetas), wanted) < 1e-12


def test_a_particle_that_is_alone_here_is_repelled_by_others_elsewhere():
    """Two particles, each evaluated by itself with the other one as its `others`."""
    objective, thetas = Objective(square_root_problem()), jnp.array([[0.5], [1.5]])
    value, gradient, v, _ = jax.jit(objective.joint_evaluation)(thetas, LAM)

    @jax.jit
    def alone(here, elsewhere):
        away = objective.features(elsewhere).representation

        def others(features):
            return objective.pairs.rows_and_gradient(features.representation, away, jnp.ones(1))

        return objective.joint_evaluation(here, LAM, others=others)

    first, second = alone(thetas[:1], thetas[1:]), alone(thetas[1:], thetas[:1])
    np.testing.assert_allclose(first[0] + second[0], value, rtol=1e-12)
    np.testing.assert_allclose(jnp.concatenate([first[1], second[1]]), gradient, rtol=1e-12)
    np.testing.assert_allclose(jnp.concatenate([first[2], second[2]]), v, rtol=1e-12)


def test_forward_and_reverse_mode_agree():
    problem, thetas = problem_of(CASES["called"])[0], jnp.asarray(particles(3))
    results = [
        jax.jit(Objective(problem, mode=mode).joint_value_and_gradient)(thetas, LAM)
        for mode in ("forward", "reverse")
    ]
    np.testing.assert_allclose(results[0][0], results[1][0], rtol=1e-13)
    np.testing.assert_allclose(results[0][1], results[1][1], rtol=1e-10, atol=1e-12)


def test_the_derivative_is_taken_in_the_mode_that_is_asked_for():
    """A loop of unknown length has no reverse derivative, and a rule for reverse no forward one."""

    def looped(a):
        more = lambda carry: carry[0] < 3  # noqa: E731
        return jax.lax.while_loop(more, lambda c: (c[0] + 1, c[1] * a), (0, jnp.ones_like(a)))[1]

    reverse_only = jax.custom_vjp(lambda a: a**3)
    reverse_only.defvjp(lambda a: (a**3, a), lambda a, slope: (3 * a**2 * slope,))

    def gradient(function, mode):
        ok = jnp.ones(2, bool)
        predictor = SimpleNamespace(many=lambda thetas: (function(thetas)[:, :, None], ok))
        objective = Objective(square_root_problem(), predictor, mode=mode)
        return objective.compiled_value_and_gradient(jnp.array([[0.5], [1.2]]), LAM)[1]

    wanted = gradient(lambda a: a**3, "forward")
    np.testing.assert_allclose(gradient(looped, "forward"), wanted, rtol=1e-12)
    np.testing.assert_allclose(gradient(reverse_only, "reverse"), wanted, rtol=1e-12)


@pytest.mark.quick("0.5-reverse")
@pytest.mark.parametrize(
    ("noise", "mode"), [(0.5, "reverse"), (Laplace(0.5), "forward"), (StudentT("sd"), "forward")]
)
def test_failed_particles_count_for_nothing_but_their_prior(noise, mode):
    """v = 0, κ0 = 0 with every particle: the same in value, gradient, block and rows."""
    model = FunctionModel(
        lambda x, p: [jnp.sqrt(p["a"]) + x],
        {"a": Parameter("identity"), "sd": Parameter("log")},
        ("y",),
    )
    problem = Problem(model, Data([0.5, 1.0, 2.4], [0.0, 1.0, 1.0], noise), GaussianKernel(0.7))
    objective = Objective(problem, mode=mode)
    thetas = jnp.array([[0.5, -0.2], [-1.0, 0.3], [1.5, 0.1], [-0.2, 0.0]])

    @jax.jit
    def compute(thetas):
        features = objective.features(thetas)
        block = objective.pair_block(features, features)
        rows = objective.pair_rows(features, features, jnp.ones(len(thetas)))
        v = objective.data_terms(features)
        joint = objective.joint_value_and_gradient(thetas, LAM)
        return features.ok, v, block, quick_block(objective, features), rows, joint

    ok, v, block, quick, rows, (value, gradient) = compute(thetas)
    failed = np.array([False, True, False, True])
    np.testing.assert_array_equal(~ok, failed)
    assert np.all(v[failed] == 0) and np.all(block[failed] == 0) and np.all(block[:, failed] == 0)
    np.testing.assert_allclose(quick, block, rtol=1e-6)
    np.testing.assert_allclose(rows, block.sum(axis=1), rtol=1e-12)
    np.testing.assert_allclose(gradient[failed], -thetas[failed], rtol=1e-14)
    pair = block[0, 2] / (len(thetas) - 1)
    prior = jnp.sum(objective.log_priors(thetas))
    np.testing.assert_allclose(value, prior + (v.sum() - pair) / LAM, rtol=1e-12)
    np.testing.assert_allclose(objective.compiled_value(thetas, LAM), value, rtol=1e-12)


def test_failed_particles_leave_the_others_as_they_were():
    """The others move as with the failed one gone, but for the weight 1/(N − 1) of a pair."""
    model = FunctionModel(lambda x, p: [jnp.sqrt(p["a"])], {"a": Parameter("identity")}, ("y",))
    objective = Objective(Problem(model, Data([0.5, 1.0], noise=0.5), GaussianKernel(0.7)))
    one, two, failed = ([0.5], [1.5], [-1.0])
    _, gradient = objective.compiled_value_and_gradient(jnp.array([one, failed, two]), LAM)
    _, both = objective.compiled_value_and_gradient(jnp.array([one, two]), LAM)
    _, alone = objective.compiled_value_and_gradient(jnp.array([one]), LAM)
    np.testing.assert_allclose(gradient[0], alone[0] + (both[0] - alone[0]) / 2, rtol=1e-10)


def test_an_output_that_is_not_observed_may_be_zero():
    """Log-normal noise: w(0) = 0 matters only where that output was measured at 0."""
    model = FunctionModel(
        lambda x, p: [p["a"] + x, p["b"] * x],
        {"a": Parameter("log"), "b": Parameter("log")},
        ("u", "v"),
    )
    y = np.array([[1.0, np.nan], [2.0, 1.5]])
    problem = Problem(model, Data(y, [0.0, 1.0], LogNormal(0.3)), GaussianKernel())
    objective = Objective(problem)
    assert jax.jit(objective.predict)(jnp.zeros((1, 2)))[1].all()
    assert np.isfinite(log_likelihood(problem, np.zeros(2)))
    y[0, 1] = 0.5
    problem = Problem(model, Data(y, [0.0, 1.0], LogNormal(0.3)), GaussianKernel())
    assert not jax.jit(Objective(problem).predict)(jnp.zeros((1, 2)))[1].any()


def test_noise_may_be_missing_where_the_measurement_is():
    noise = np.where(np.arange(9)[:, None] % 3 == [0, 1], np.nan, PER_ROW)
    y = np.where(np.isnan(noise), np.nan, 1.0 + np.arange(9)[:, None])
    known = np.where(np.isnan(noise), 7.0, noise)
    values = [
        Objective(Problem(MODEL, Data(y, X["replicates"], scale), GaussianKernel(LENGTHS)))
        .compiled_value(jnp.asarray(particles(2)), LAM)
        for scale in (noise, known)
    ]  # fmt: skip
    assert values[0] == values[1] and np.isfinite(values[0])


def test_the_constant_of_many_independent_data_is_summed_in_blocks(monkeypatch):
    model = FunctionModel(lambda x, p: [p["m"]], {"m": Parameter("identity")}, ("y",))
    y = np.random.default_rng(0).normal(size=(60, 1))
    problem = Problem(model, Data(y, noise=0.5), GaussianKernel(0.8))
    wanted = np.mean(np.exp(-((y - y.T) ** 2) / 2 / 0.64))
    profile, sizes = GaussianKernel.profile, []

    def noted(kernel, r):
        sizes.append(r.size)
        return profile(kernel, r)

    monkeypatch.setattr(GaussianKernel, "profile", noted)
    for tile in (60**2 + 1, 1000, 100):
        monkeypatch.setattr(objectives, "CONSTANT_TILE", tile)
        assert relative(Objective(problem).constant, wanted) < 1e-13
    # All pairs at once where a tile holds them, else as few blocks as hold no more than a tile.
    assert sizes[:5] == [60**2, *[15 * 60] * 4]


def test_a_lengthscale_may_be_given_beside_that_of_the_kernel():
    case, theta = CASES["independent"], jnp.asarray(particles(1))
    problem, _, _ = problem_of(case)
    other = Problem(MODEL, problem.data, GaussianKernel(2 * LENGTHS))
    given, wanted = Objective(problem, lengthscale=2 * LENGTHS), Objective(other)
    assert relative(given.constant, wanted.constant) < 1e-13
    v = [jax.jit(lambda t, o=o: o.data_terms(o.features(t)))(theta) for o in (given, wanted)]
    assert relative(v[0], v[1]) < 1e-13


def test_the_default_lengthscale_is_the_noise_or_its_median_over_observed_rows():
    noise = np.array([[0.5, 1.0], [0.7, 2.0], [0.9, np.nan]])
    y = np.array([[1.0, 1.0], [1.0, 2.0], [1.0, np.nan]])
    assert np.allclose(default_lengthscale(Problem(MODEL, Data(y, None, noise))), [0.7, 1.5])
    problem = Problem(MODEL, Data(y, None, Laplace([0.5, 1.0])))
    assert np.allclose(default_lengthscale(problem), np.sqrt(2) * np.array([0.5, 1.0]))
    nothing = np.where([True, False], y, np.nan)
    assert np.allclose(default_lengthscale(Problem(MODEL, Data(nothing, None, 0.5))), [0.5, 1.0])


@pytest.mark.parametrize("combine", ["product", "sum"])
def test_single_precision_serves_data_far_from_zero(combine):
    """10⁷ and 10⁷ + 0.1 are one number in single precision, unless they are centred first."""
    model = FunctionModel(
        lambda x, p: [1e7 + p["a"] * x, p["a"]], {"a": Parameter("identity")}, ("y", "z")
    )
    x = np.arange(5.0)
    data = Data(np.stack([1e7 + 0.3 * x, 0.3 + 0 * x], 1), x, 0.1)
    objective = Objective(Problem(model, data, GaussianKernel(0.1, combine=combine)))
    features = jax.jit(objective.features)(jnp.array([[0.1], [0.3], [0.37]]))
    assert objective.quick_features(features).representation.dtype == jnp.float32
    exact = objective.pair_block(features, features)
    np.testing.assert_allclose(quick_block(objective, features), exact, rtol=1e-6)


@pytest.mark.parametrize("combine", ["product", "sum"])
def test_single_precision_serves_noise_that_is_fitted(combine):
    """Its sd from a thousandth of the kernel's width to what no number in single precision is."""
    model = FunctionModel(
        lambda x, p: [1e7 + p["a"] * x, p["a"]],
        {"a": Parameter("identity"), "sd": Parameter("log")},
        ("y", "z"),
    )
    x = np.arange(5.0)
    y = np.stack([1e7 + 0.3 * x, 0.3 + 0 * x], 1)
    y[2, 1] = np.nan
    problem = Problem(model, Data(y, x, Gaussian("sd")), GaussianKernel(0.1, combine=combine))
    objective = Objective(problem)
    thetas = np.array([[0.1, -9.0], [0.3, -2.0], [0.37, 1.0], [-2.0, 3.0], [5.0, 90.0]])
    features = jax.jit(objective.features)(jnp.asarray(thetas))
    assert features.ok.all()
    assert objective.quick_features(features).representation.dtype == jnp.float32
    exact = objective.pair_block(features, features)
    np.testing.assert_allclose(quick_block(objective, features), exact, rtol=3e-6, atol=1e-15)
    assert float(exact[0, 0]) > 0.1 > 1e-3 > float(exact[0, 4])


@pytest.mark.parametrize("noise", [EACH, NAMED])
def test_single_precision_does_not_serve_a_mixture_of_kernels(noise):
    objective = Objective(problem_of(Case(*noise, mixture=True))[0])
    features = jax.jit(objective.features)(jnp.asarray(particles(3)))
    exact = objective.pair_block(features, features)
    np.testing.assert_array_equal(quick_block(objective, features), exact)


def test_single_precision_serves_exploded_trajectories():
    model = FunctionModel(lambda x, p: [jnp.exp(p["a"] * x)], {"a": Parameter("identity")}, ("y",))
    x = np.array([0.0, 0.1, 1.0])
    data = Data(np.ones((3, 1)), x, 0.1)
    objective = Objective(Problem(model, data, GaussianKernel(0.1)))
    features = jax.jit(objective.features)(jnp.array([[0.1], [-150.0], [150.0], [151.0], [220.0]]))
    assert features.ok.all()
    exact = objective.pair_block(features, features)
    np.testing.assert_allclose(quick_block(objective, features), exact, rtol=1e-6, atol=1e-12)
