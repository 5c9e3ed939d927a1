"""Models that fail for some of the particles, in every way, and simulators that are lost."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

import pcuq
from pcuq.baselines import bayes
from pcuq.failures import OUT_OF_RANGE, count_failures
from pcuq.models import causes
from pcuq.models.adaptive import AdaptiveSolver
from pcuq.models.mesh import MeshSolver, uniform
from pcuq.models.segments import Jump, cut
from pcuq.objective import Objective
from pcuq.samplers import base, shared

X = np.linspace(0.5, 4.0, 8)
LAM = 0.03


# --- one model that fails in every way, by the value of `kind` -----------------------------------

KINDS = np.array([0.0, 1.5, 2.5, 3.5, 4.5, 5.5])
NAMES = ("healthy", "NaN", "NaN later", "blow-up", "stiff", "growth")


def slope(t, u, p):
    kind, u = p["kind"], u[0]
    faults = [
        (kind > 1) & (kind < 2),
        (kind > 2) & (kind < 3),
        (kind > 3) & (kind < 4),
        (kind > 4) & (kind < 5),
        kind > 5,
    ]
    after = jnp.where(t > 2.3, jnp.nan, -u)
    return [
        jnp.select(
            faults, [jnp.nan, after, u**2, -1e9 * (u - jnp.cos(t)), 1e3 * u], -jnp.exp(p["a"]) * u
        )
    ]


PRIOR = {"a": pcuq.Parameter("identity"), "kind": pcuq.Parameter("identity")}


def moody(**options) -> pcuq.ODEModel:
    return pcuq.ODEModel(slope, {"u": 2.0}, PRIOR, **options)


def on_mesh(model, stiff=False) -> MeshSolver:
    segments = cut(model, X)
    return MeshSolver(model, segments, uniform(segments, 0.1, stiff))


def adaptive(model, method="explicit") -> AdaptiveSolver:
    return AdaptiveSolver(model, cut(model, X), method, 1e-5, np.array([2.0]))


UNFINISHED = {"stiff": causes.UNFINISHED}
SOLVERS = {
    "mesh": (on_mesh, {}),
    "stiff mesh": (lambda model: on_mesh(model, stiff=True), {"stiff": causes.FINE}),
    "explicit": (adaptive, {"stiff": causes.UNFINISHED}),
    "implicit": (lambda model: adaptive(model, "implicit"), {"stiff": causes.FINE}),
}
EXPECTED = {
    "healthy": causes.FINE,
    "NaN": causes.NOT_FINITE,
    "NaN later": causes.NOT_FINITE,
    "blow-up": causes.EXPLODES,
    "stiff": causes.EXPLODES,  # on a mesh that is far too coarse for it
    "growth": causes.EXPLODES,
}


@pytest.mark.quick("mesh", "explicit")
@pytest.mark.parametrize("name", SOLVERS)
def test_a_solver_says_why_it_fails(name):
    make, but = SOLVERS[name]
    solver = make(moody())
    values = {"a": np.zeros(len(KINDS)), "kind": KINDS}
    told = dict(zip(NAMES, solver.why(values), strict=True))
    _, ok = jax.vmap(solver)(values)
    assert told == EXPECTED | but
    assert ok.tolist() == [cause == causes.FINE for cause in told.values()]


def test_an_initial_state_an_output_and_a_jump_are_watched_too():
    jump = Jump(lambda p, end: [1.0], lambda t, before, u, p: jnp.where(p["b"] > 2, jnp.nan, 2 * u))
    model = pcuq.ODEModel(
        lambda t, u, p: -u,
        lambda p: [jnp.where(p["b"] > 1, jnp.log(-p["b"]), 1.0) + 0 * p["b"]],
        {"b": pcuq.Parameter("identity")},
        outputs=["y"],
        observe=lambda t, u, p: [jnp.where(p["b"] < 0, jnp.log(p["b"]), u[0])],
        jumps=[jump],
    )
    expected = [causes.OUTPUT, causes.FINE, causes.NOT_FINITE]
    assert on_mesh(model).why({"b": np.array([-1.0, 0.5, 1.5])}) == expected


# --- gradients -----------------------------------------------------------------------------------

THETAS = np.array([[-0.5, 0.0], [-0.4, 1.5], [0.3, 3.5], [-0.7, 0.4], [0.1, 2.5], [0.2, 5.5]])
HEALTHY = THETAS[:, 1] < 1


def simulate(x, p):
    if p["kind"] > 1:
        raise ArithmeticError(f"no way to go on from {p['kind']}")
    return 2.0 * np.exp(-np.exp(p["a"]) * x)


def problem_of(model) -> pcuq.Problem:
    y = 2.0 * np.exp(-0.6 * X) + 0.1 * np.sin(37 * X)
    return pcuq.Problem(model, pcuq.Data(y, X, noise=0.3))


def predictor_of(name: str, problem: pcuq.Problem, mode: str):
    predictor = problem.predictor(mode=mode, method="auto" if name == "external" else "explicit")
    if name == "mesh":
        segments = cut(problem.model, X)
        predictor.solvers = [MeshSolver(problem.model, segments, uniform(segments, 0.1), mode)]
    return predictor


@pytest.mark.quick("forward-mesh", "forward-external")
@pytest.mark.parametrize("name", ["mesh", "explicit", "external"])
@pytest.mark.parametrize("mode", ["forward", "reverse"])
def test_particles_that_fail_have_the_gradient_of_the_prior(name, mode):
    external = pcuq.ExternalModel(simulate, PRIOR, ["u"])
    problem = problem_of(external if name == "external" else moody())
    objective = Objective(problem, predictor=predictor_of(name, problem, mode), mode=mode)
    value, gradient, v, ok = map(np.asarray, jax.jit(objective.joint_evaluation)(THETAS, LAM))
    assert ok.tolist() == HEALTHY.tolist()
    assert not v[~HEALTHY].any() and (v[HEALTHY] > 0).all()
    assert np.allclose(gradient[~HEALTHY], -THETAS[~HEALTHY], rtol=1e-14)  # that of Normal(0, 1)
    density = jax.jit(objective.joint_log_density)
    assert float(density(THETAS, LAM)) == pytest.approx(float(value), rel=1e-12)
    for particle in np.flatnonzero(HEALTHY):
        step = np.zeros_like(THETAS)
        step[particle, 0] = 1e-4
        rise = float(density(THETAS + step, LAM)) - float(density(THETAS - step, LAM))
        assert gradient[particle, 0] == pytest.approx(rise / 2e-4, rel=1e-4)
    # The chains of Bayes leave such a place by the prior's gradient too.
    posterior = bayes.log_posterior(problem, objective.predictor)
    at = jax.jit(jax.vmap(shared.value_and_gradient(posterior, mode)))(THETAS)
    assert np.allclose(at.gradient[~HEALTHY], -THETAS[~HEALTHY], rtol=1e-14)
    assert np.isfinite(at.gradient).all() and np.isfinite(at.value).all()


# --- fits of which some particles fail -----------------------------------------------------------


def half_line(share: float, wrong: float) -> pcuq.Problem:
    """θ x, but for the given share of the prior, where it is wrong (2 + θ)."""
    # Arrays: all shares and faults are one program.
    limit, wrong = jnp.asarray(norm.ppf(1 - share)), jnp.asarray(wrong)

    def f(x, p):
        return [jnp.where(p["a"] > limit, wrong * (2 + p["a"]), p["a"] * x)]

    model = pcuq.FunctionModel(f, {"a": pcuq.Parameter("identity")}, ["y"])
    y = -0.5 * X + 0.2 * np.sin(37 * X)
    return pcuq.Problem(model, pcuq.Data(y, X, noise=0.5), pcuq.GaussianKernel(1.0))


SHORT = {"particles": 10, "warmup": 60, "draws": 60, "thin": 1, "seed": 1}


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5])
def test_draws_are_those_of_a_model_that_is_far_from_the_data_there(share):
    """An output 10⁶ away has v = 0 and κ0 = 0 as well, and cannot fail: the law is the same."""
    faulty, far = (
        pcuq.fit(half_line(share, wrong), regularisation=LAM, **SHORT) for wrong in (np.nan, 1e6)
    )
    np.testing.assert_array_equal(faulty.thetas, far.thetas)
    beyond = int(np.sum(faulty.thetas > norm.ppf(1 - share)))
    assert (faulty.diagnostics["failed_draws"], far.diagnostics["failed_draws"]) == (beyond, 0)
    assert share < 0.5 or beyond > 100


def test_what_failed_is_in_the_diagnostics_and_in_the_file(tmp_path):
    problem = half_line(0.5, np.nan)
    fit = pcuq.load(
        pcuq.fit(problem, regularisation=LAM, **SHORT).save(tmp_path / "run.nc"), problem
    )
    stats, beyond = fit.tree["sample_stats"], fit.tree["unconstrained_posterior"]["a"] > 0
    assert stats["failed"].dims == ("chain", "draw")
    np.testing.assert_array_equal(stats["failed"], beyond)
    np.testing.assert_array_equal(stats["failures"], beyond.sum("draw"))
    assert stats["cause"].to_numpy().tolist() == [causes.OUTPUT]
    np.testing.assert_array_equal(stats["failures_by_cause"][:, 0], beyond.sum("draw"))
    figures = fit.diagnostics
    assert figures["failures"] == {causes.OUTPUT: int(beyond.sum())}
    assert figures["failed_in_warmup"] == int(stats["warmup_failures"].sum()) > 0
    assert figures["failed_proposals"] == pytest.approx(float(stats["failed_proposals"].mean()))
    assert 0.1 < figures["failed_proposals"] < 0.9
    assert f"(mostly: {causes.OUTPUT})" in fit.status


def test_outputs_that_noise_cannot_have_are_a_cause_of_their_own():
    model = pcuq.FunctionModel(lambda x, p: [p["a"] * x], {"a": PRIOR["a"]}, ["y"])
    problem = pcuq.Problem(model, pcuq.Data(X, X, noise=pcuq.LogNormal(0.3)))
    thetas = np.array([[[[1.0], [-1.0]], [[-2.0], [-1.0]]]])
    found = count_failures(Objective(problem), thetas, thetas[..., 0] < 0)
    assert found.by_cause == {OUT_OF_RANGE: 3}
    assert found.counts.tolist() == [[[1], [2]]]


def test_a_model_that_always_fails_is_an_error_that_says_what_to_do():
    with pytest.raises(pcuq.ComputationError, match=r"none of 256 prior draws.*narrow the priors"):
        pcuq.fit(half_line(1.0, np.nan), regularisation=LAM, **SHORT)


# --- simulators ----------------------------------------------------------------------------------


class Simulator:
    """θ x, or an exception: for a share of the prior, and for all of it once it is `gone`."""

    def __init__(self, share: float = 0.0):
        self.limit, self.gone = norm.ppf(1 - share), False

    def __call__(self, x, p):
        if self.gone:
            raise ConnectionError("nobody answers")
        if p["a"] > self.limit:
            raise ArithmeticError(f"no way to go on from {p['a']}")
        return p["a"] * x

    def problem(self) -> pcuq.Problem:
        model = pcuq.ExternalModel(self, {"a": PRIOR["a"]}, ["y"])
        return pcuq.Problem(model, half_line(0.5, 1.0).data, pcuq.GaussianKernel(1.0))

    def lost_at(self, share: float):
        def listener(progress):
            self.gone = progress.iteration >= share * progress.total

        return listener


@pytest.mark.quick("0.5")
@pytest.mark.parametrize("share", [0.01, 0.1, 0.5])
def test_exceptions_of_a_simulator_are_counted_by_particle_and_cause(share):
    fit = pcuq.fit(Simulator(share).problem(), regularisation=LAM, **SHORT)
    beyond = int(np.sum(fit.thetas > norm.ppf(1 - share)))
    cause = {"ArithmeticError: no way to go on from #": beyond} if beyond else {}
    assert fit.diagnostics["failures"] == cause
    (solver,) = json.loads(fit.tree.attrs["solver"])
    assert solver["failures"].keys() == {"ArithmeticError: no way to go on from #"}
    np.testing.assert_array_equal(
        fit.thetas, pcuq.fit(half_line(share, 1e6), regularisation=LAM, **SHORT).thetas
    )


@pytest.mark.parametrize(
    ("share", "words"),
    [
        (0.2, r"none of the last \d+ proposals could be solved.*resume"),  # in warm-up
        (0.55, r"none of the last \d+ proposals could be solved.*resume"),
        (1.0, r"none of 64 draws can be solved any more.*resume"),
    ],
)
def test_a_simulator_that_is_lost_is_an_error_and_no_fit(share, words):
    simulator = Simulator()
    lengths = SHORT | {"warmup": 200, "draws": 200}
    with pytest.raises(pcuq.ComputationError, match=words):
        pcuq.fit(
            simulator.problem(), regularisation=LAM, progress=simulator.lost_at(share), **lengths
        )


def test_a_fit_goes_on_when_its_simulator_is_back(tmp_path):
    simulator = Simulator()
    lengths = SHORT | {"warmup": 200, "draws": 200}
    whole = pcuq.fit(simulator.problem(), regularisation=LAM, **lengths)
    options = {"regularisation": LAM, "checkpoint": tmp_path / "kept", **lengths}
    problem = simulator.problem()
    with pytest.raises(pcuq.ComputationError, match="bring it back"):
        pcuq.fit(problem, progress=simulator.lost_at(0.55), **options)
    simulator.gone = False
    again = pcuq.fit(problem, resume=True, **options)
    np.testing.assert_array_equal(again.thetas, whole.thetas)


@pytest.mark.parametrize("failing", [0.9, 1.0])
def test_a_simulator_is_given_up_only_where_it_hardly_ever_works(failing):
    """Nine in ten fail, and the prior's centre: it is tried on until one does not."""
    tried = []

    def simulate(x, p):
        tried.append(p["a"])
        if p["a"] > norm.ppf(1 - failing):
            raise ArithmeticError("no")
        return x

    model = pcuq.ExternalModel(simulate, {"a": PRIOR["a"]}, ["y"])
    if failing < 1:
        model.solver(X)
        assert 1 < len(tried) <= 64
    else:
        with pytest.raises(pcuq.ComputationError, match="failed at all of 64 parameter values"):
            model.solver(X)


def test_proposals_that_fail_in_a_row_are_counted_over_chunks():
    chunk = np.array([[1.0, 1.0], [0.5, 1.0], [1.0, 1.0], [1.0, 1.0]])
    assert base._lost(0, chunk, 10) == 40
    assert base._lost(40, np.ones((3, 2)), 10) == 100
    assert base._lost(100, np.zeros((1, 2)), 10) == 0
    with pytest.raises(pcuq.ComputationError, match="none of the last 1000 proposals"):
        base._lost(980, np.ones((1, 2)), 10)
    assert base._lost(980, np.array([[1.0, 0.95]]), 10) == 0
