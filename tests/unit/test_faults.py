"""Models that fail for some of the particles, in every way, and simulators that are lost.

`python tests/unit/test_faults.py` prints draws beside the exact answer for every kind and share.
"""

import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

import pcuq
from pcuq.baselines import bayes
from pcuq.failures import OUT_OF_RANGE, count_failures
from pcuq.models import adaptive as adaptive_module
from pcuq.models import base as solver_base
from pcuq.models import causes
from pcuq.models.adaptive import AdaptiveSolver
from pcuq.models.mesh import MeshSolver, uniform
from pcuq.models.segments import Jump, cut
from pcuq.objective import Objective
from pcuq.samplers import base, shared
from pcuq.start import starting_fit

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


def on_mesh(model, stiff=False, mode="forward") -> MeshSolver:
    segments = cut(model, X)
    return MeshSolver(model, segments, uniform(segments, 0.1, stiff), mode)


def adaptive(model, method="explicit", mode="forward") -> AdaptiveSolver:
    return AdaptiveSolver(model, cut(model, X), method, 1e-5, np.array([2.0]), mode)


DAMPED = ("stiff", "blow-up", "growth")
SOLVERS = {
    "mesh": (on_mesh, {}),
    # An implicit method damps what grows faster than its steps: the check after a fit finds that.
    "stiff mesh": (lambda model: on_mesh(model, stiff=True), dict.fromkeys(DAMPED, causes.FINE)),
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


@pytest.mark.parametrize("name", SOLVERS)
def test_a_solver_says_why_it_fails(name, monkeypatch):
    monkeypatch.setattr(adaptive_module, "EXPLICIT_STEPS", 1024)
    make, but = SOLVERS[name]
    solver = make(moody())
    values = {"a": np.zeros(len(KINDS)), "kind": KINDS}
    told = dict(zip(NAMES, solver.why(values), strict=True))
    _, ok = jax.jit(jax.vmap(solver))(values)
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


@pytest.mark.quick("forward-mesh", "forward-external")
@pytest.mark.parametrize("name", ["mesh", "explicit", "external"])
@pytest.mark.parametrize("mode", ["forward", "reverse"])
def test_particles_that_fail_have_the_gradient_of_the_prior(name, mode, monkeypatch):
    external = pcuq.ExternalModel(simulate, PRIOR, ["u"])
    problem = problem_of(external if name == "external" else moody())
    make = on_mesh if name == "mesh" else adaptive  # without looking for the one that serves best
    monkeypatch.setattr(
        pcuq.ODEModel, "solver", lambda self, x, mode, **options: make(self, mode=mode)
    )
    objective = Objective(problem, predictor=problem.predictor(mode=mode), mode=mode)
    evaluate = jax.jit(objective.joint_evaluation)
    _, gradient, v, ok = map(np.asarray, evaluate(THETAS, LAM))
    assert ok.tolist() == HEALTHY.tolist()
    assert not v[~HEALTHY].any() and (v[HEALTHY] > 0).all()
    assert np.allclose(gradient[~HEALTHY], -THETAS[~HEALTHY], rtol=1e-14)  # that of Normal(0, 1)
    for particle in np.flatnonzero(HEALTHY):
        step = np.zeros_like(THETAS)
        step[particle, 0] = 1e-4
        rise = float(evaluate(THETAS + step, LAM)[0]) - float(evaluate(THETAS - step, LAM)[0])
        assert gradient[particle, 0] == pytest.approx(rise / 2e-4, rel=1e-4)
    # The chains of Bayes leave such a place by the prior's gradient too.
    posterior = shared.of_one(bayes.log_posteriors(problem, objective.predictor))
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


@functools.cache
def short_fit(share: float, wrong: float) -> pcuq.Fit:
    problem = half_line(share, wrong)
    # Ascents that begin where the model fails are given up, and others are not: begin alike.
    problem.__dict__["_starts"] = {SHORT["seed"]: starting_fit(half_line(share, np.nan), 1)}
    return pcuq.fit(problem, regularisation=LAM, **SHORT)


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.01, 0.1, 0.5])
def test_draws_are_those_of_a_model_that_is_far_from_the_data_there(share):
    """An output 10⁶ away has v = 0 and κ0 = 0 as well, and cannot fail: the law is the same."""
    faulty, far = short_fit(share, np.nan), short_fit(share, 1e6)
    np.testing.assert_array_equal(faulty.thetas, far.thetas)
    beyond = int(np.sum(faulty.thetas > norm.ppf(1 - share)))
    assert (faulty.diagnostics["failed_draws"], far.diagnostics["failed_draws"]) == (beyond, 0)
    assert share < 0.5 or beyond > 100


def test_what_failed_is_in_the_diagnostics_and_in_the_file(tmp_path):
    fit = pcuq.load(short_fit(0.5, np.nan).save(tmp_path / "run.nc"))
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


def test_a_solver_of_one_s_own_need_not_say_why():
    class Half:
        def __call__(self, values):
            return jnp.zeros((1, 1)), values["a"] < 0

        def describe(self):
            return {}

    assert solver_base.why(Half(), {"a": np.array([-1.0, 1.0])}) == ["", solver_base.UNKNOWN]


def test_a_model_that_always_fails_is_an_error_that_says_what_to_do():
    with pytest.raises(pcuq.ComputationError, match=r"none of 2048 prior draws.*narrow the priors"):
        pcuq.fit(half_line(1.0, np.nan), regularisation=LAM, **SHORT)


# --- simulators ----------------------------------------------------------------------------------


class Simulator:
    """θ x, or an exception: for a share of the prior, and for all of it once it is `gone`.

    With `far`, that share of the prior has an output far from the data instead. p may be a batch.
    """

    def __init__(self, share: float = 0.0, far: bool = False):
        self.limit, self.far, self.gone = norm.ppf(1 - share), far, False

    def __call__(self, x, p):
        if self.gone:
            raise ConnectionError("nobody answers")
        beyond = np.asarray(p["a"] > self.limit)
        if beyond.any() and not self.far:
            raise ArithmeticError(f"no way to go on from {p['a']}")
        wrong = np.multiply.outer(1e6 * (2 + p["a"]), np.ones_like(x))
        found = np.where(beyond[..., None], wrong, np.multiply.outer(p["a"], x))
        return found[..., None] if beyond.ndim else found

    def problem(self, batch: bool = False) -> pcuq.Problem:
        model = pcuq.ExternalModel(self, {"a": PRIOR["a"]}, ["y"], batch=batch)
        return pcuq.Problem(model, half_line(0.5, 1.0).data, pcuq.GaussianKernel(1.0))

    def lost_at(self, share: float):
        def listener(progress):
            self.gone = progress.iteration >= share * progress.total

        return listener


@pytest.mark.slow
def test_exceptions_of_a_simulator_are_counted_by_particle_and_cause():
    fit = pcuq.fit(Simulator(0.5).problem(), regularisation=LAM, **SHORT)
    beyond = int(np.sum(fit.thetas > 0))
    assert fit.diagnostics["failures"] == {"ArithmeticError: no way to go on from #": beyond}
    assert int(fit.tree["sample_stats"]["failures_by_cause"].sum()) == beyond > 100
    (solver,) = json.loads(fit.tree.attrs["solver"])
    assert solver["failures"].keys() == {"ArithmeticError: no way to go on from #"}


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.01, 0.1, 0.5])
def test_draws_are_those_of_a_simulator_that_is_far_from_the_data_there(share):
    raising, far = (
        pcuq.fit(Simulator(share, far).problem(), regularisation=LAM, **SHORT)
        for far in (False, True)
    )
    np.testing.assert_array_equal(raising.thetas, far.thetas)


@pytest.mark.quick("in warm-up", "after", "at the end")
@pytest.mark.parametrize(
    ("share", "words"),
    [
        pytest.param(0.2, r"none of the last \d+ proposals.*resume", id="in warm-up"),
        pytest.param(0.55, r"none of the last \d+ proposals.*resume", id="after"),
        pytest.param(1.0, r"none of 64 draws can be solved any more.*resume", id="at the end"),
    ],
)
def test_a_simulator_that_is_lost_is_an_error_and_no_fit(share, words):
    simulator = Simulator()
    problem, lengths = simulator.problem(batch=True), SHORT | {"warmup": 100, "draws": 200}
    with pytest.raises(pcuq.ComputationError, match=words):
        pcuq.fit(problem, regularisation=LAM, progress=simulator.lost_at(share), **lengths)


@pytest.mark.slow
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


# --- the law, against the oracle -----------------------------------------------------------------

FAULTS = {
    "NaN": lambda t, u, p: jnp.nan * u,
    "blow-up": lambda t, u, p: u**2,
    "never finishes": lambda t, u, p: -1e9 * (u - jnp.cos(1e9 * t)),
}
SHARES = (0.01, 0.1, 0.5)  # of the prior that fails
GRID = np.linspace(-6, 6, 1201)[:, None]
TRUTH = 2.0 * np.exp(-np.exp(-0.5) * X) + 0.1 * np.sin(37 * X)


def decay(share: float, fault) -> pcuq.Problem:
    limit = float(norm.ppf(1 - share))

    def rhs(t, u, p):
        return [jnp.where(p["a"] > limit, fault(t, u[0], p), -jnp.exp(p["a"]) * u[0])]

    model = pcuq.ODEModel(rhs, {"y": 2.0}, {"a": PRIOR["a"]})
    return pcuq.Problem(model, pcuq.Data(TRUTH, X, noise=0.2))


def exact(share: float) -> pcuq.Problem:
    """The same in closed form: the oracle need not integrate what cannot be integrated."""
    limit = float(norm.ppf(1 - share))

    def f(x, p):
        return [jnp.where(p["a"] > limit, jnp.nan, 2.0 * jnp.exp(-jnp.exp(p["a"]) * x))]

    return pcuq.Problem(
        pcuq.FunctionModel(f, {"a": PRIOR["a"]}, ["y"]), pcuq.Data(TRUTH, X, noise=0.2)
    )


def figures(thetas, weights, limit: float) -> np.ndarray:
    """Mass that fails; mean and sd of what does not."""
    weights = weights / weights.sum()
    healthy = thetas <= limit
    mean = np.average(thetas[healthy], weights=weights[healthy])
    spread = np.average((thetas[healthy] - mean) ** 2, weights=weights[healthy])
    return np.array([weights[~healthy].sum(), mean, np.sqrt(spread)])


def agrees(found, wanted, ess: float) -> bool:
    """Within four standard errors of `ess` independent draws, and a fiftieth for finite N."""
    mass, _, sd = wanted
    errors = np.array([np.sqrt(mass * (1 - mass)), sd, sd / np.sqrt(2)]) / np.sqrt(ess)
    allowed = 4 * errors + 0.02 * np.array([1.0, sd, sd])
    return bool(np.all(np.abs(found - wanted) < allowed))


def law(name: str, share: float):
    """A fit, and the figures of its draws and of the oracle, whose weights come last."""
    limit = float(norm.ppf(1 - share))
    fit = pcuq.fit(decay(share, FAULTS[name]), regularisation=0.02, warmup=300, draws=300, thin=2)
    weights = pcuq.solve_on_grid(exact(share), 0.02, GRID, 0.01)
    theta = fit.thetas[:, 0]
    found = figures(theta, np.ones(len(theta)), limit)
    return fit, found, figures(GRID[:, 0], weights, limit), weights


@pytest.mark.slow
@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("name", FAULTS)
def test_the_healthy_part_is_unchanged_in_law(name, share):
    fit, found, wanted, weights = law(name, share)
    limit, ess = float(norm.ppf(1 - share)), fit.diagnostics["ess_min"]
    assert ess > 200
    assert agrees(found, wanted, ess), (found, wanted)
    assert fit.diagnostics["failed_draws"] == int(np.sum(fit.thetas > limit))
    # Failed draws that attracted or repelled others, by a nat each, would be seen.
    broken = weights * np.where(GRID[:, 0] > limit, np.exp(-1), 1.0)
    assert share < 0.5 or not agrees(figures(GRID[:, 0], broken, limit), wanted, ess)
    causes_found = set(fit.diagnostics["failures"])
    assert causes_found <= {causes.NOT_FINITE if name == "NaN" else causes.EXPLODES}


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_a_model_that_fails_everywhere_is_an_error(name):
    with pytest.raises(pcuq.ComputationError, match=r"none of 2048 prior draws.*narrow the priors"):
        pcuq.fit(decay(1.0, FAULTS[name]), regularisation=0.02)


@pytest.mark.slow
def test_adaptive_steps_that_do_not_finish_leave_the_rest_alone(monkeypatch):
    monkeypatch.setattr(adaptive_module, "EXPLICIT_STEPS", 512)
    problem = decay(0.5, FAULTS["never finishes"])
    options = {"regularisation": 0.02, "particles": 10, "warmup": 100, "draws": 100, "thin": 1}
    fit = pcuq.fit(problem, solver="explicit", **options)
    theta, ess = fit.thetas[:, 0], fit.diagnostics["ess_min"]
    weights = pcuq.solve_on_grid(exact(0.5), 0.02, GRID, 0.01)
    wanted = figures(GRID[:, 0], weights, 0.0)
    assert np.abs(figures(theta, np.ones(len(theta)), 0.0) - wanted)[0] < 4 * 0.5 / np.sqrt(ess)
    assert fit.diagnostics["failures"].keys() == {causes.UNFINISHED}


@pytest.mark.slow
@pytest.mark.parametrize("sampler", ["nuts", "ensemble"])
def test_bayes_stays_where_the_model_can_be_solved(sampler):
    fit = pcuq.fit(decay(0.5, FAULTS["NaN"]), method="bayes", sampler=sampler)
    assert fit.diagnostics["failed_draws"] == 0
    assert fit.thetas.max() <= 0.0
    problem = exact(0.5)
    density = np.array([float(pcuq.log_likelihood(problem, theta)) for theta in GRID[300:601:2]])
    density = density - GRID[300:601:2, 0] ** 2 / 2
    weights = np.exp(density - density.max())
    mean = np.average(GRID[300:601:2, 0], weights=weights)
    sd = np.sqrt(np.average((GRID[300:601:2, 0] - mean) ** 2, weights=weights))
    assert abs(fit.thetas.mean() - mean) < 4 * sd / np.sqrt(fit.diagnostics["ess_min"])


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.1, 0.5])
def test_a_simulator_that_begins_to_fail_after_the_warm_up_gives_the_law_that_it_has_then(share):
    simulator = Simulator(0.0)
    limit = float(norm.ppf(1 - share))

    def listener(progress):
        if not progress.warming_up:
            simulator.limit = limit

    lengths = {"particles": 50, "warmup": 200, "draws": 600, "thin": 1}
    fit = pcuq.fit(simulator.problem(), regularisation=LAM, progress=listener, **lengths)
    later = fit.tree["unconstrained_posterior"]["a"].to_numpy()[:, 200:].ravel()
    weights = pcuq.solve_on_grid(half_line(share, np.nan), LAM, GRID, 0.01)
    wanted = figures(GRID[:, 0], weights, limit)
    ess = 2 / 3 * fit.diagnostics["ess_min"]
    assert agrees(figures(later, np.ones(len(later)), limit), wanted, ess)


if __name__ == "__main__":
    print(
        "fault, share of the prior: mass that fails / mean / sd of the rest, exact and drawn; why"
    )
    for name in FAULTS:
        for share in SHARES:
            fit, found, wanted, _ = law(name, share)
            told = " / ".join(f"{w:.3f} {f:.3f}" for w, f in zip(wanted, found, strict=True))
            print(f"{name}, {share:g}: {told}; {fit.diagnostics['failures']}", flush=True)
