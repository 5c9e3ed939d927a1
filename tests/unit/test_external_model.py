"""Simulators that are not written in JAX."""

import gc
import multiprocessing
import os
import pickle
import signal
import time
import weakref
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
import simulators

import pcuq
from pcuq._program import Program
from pcuq.models import Model, Solver, processes
from pcuq.models.callback import ExternalSolver
from pcuq.models.processes import Failure
from pcuq.models.simulations import _split
from pcuq.zoo import lotka_volterra

X = np.linspace(0.0, 3.0, 7)
PARAMETERS = {"a": pcuq.Parameter("log"), "k": pcuq.Parameter("logit")}
REAL = {"a": pcuq.Parameter("identity"), "k": pcuq.Parameter("identity")}
VALUES = {"a": 1.7, "k": 0.4}


def decay(simulate=simulators.decay, parameters=PARAMETERS, **options) -> pcuq.ExternalModel:
    return pcuq.ExternalModel(simulate, parameters, ["y"], constants={"c": 0.5}, **options)


def in_jax() -> pcuq.FunctionModel:
    return pcuq.FunctionModel(
        lambda x, p: p["a"] * jnp.exp(-p["k"] * x) + p["c"], PARAMETERS, ["y"], {"c": 0.5}
    )


def moody(k, **options):
    """Outputs and failures for values of k that decide how the simulation ends."""
    model = pcuq.ExternalModel(simulators.moody, REAL, ["y"], **options)
    values = {"a": np.arange(1.0, len(k) + 1), "k": np.array(k, float)}
    w, fine = model.solve_tightly(X, values, 1e-9)
    model.close()
    return w, fine.tolist(), model.failures


def test_outputs_are_those_of_the_simulator():
    solver = decay().solver(X)
    w, ok = jax.jit(solver)(VALUES)
    assert ok
    assert np.array_equal(w[:, 0], simulators.decay(X, {**VALUES, "c": 0.5}))
    assert isinstance(decay(), Model)
    assert isinstance(solver, Solver)
    assert solver.describe()["method"] == "external"


@pytest.mark.default_precision
def test_numbers_keep_64_bits_where_jax_has_32():
    found = decay().simulate(X, VALUES)["y"]
    assert np.array_equal(found, simulators.decay(X, {**VALUES, "c": 0.5}))
    problem = pcuq.Problem(decay(), pcuq.Data(found, X, noise=1e-6))
    theta = np.array([np.log(1.7), np.log(0.4 / 0.6)])
    assert float(pcuq.kappa(problem, theta, theta)) == pytest.approx(
        float(pcuq.kappa(pcuq.Problem(in_jax(), problem.data), theta, theta)), abs=1e-9
    )


def test_parameters_come_as_a_vector_too():
    model = pcuq.ExternalModel(
        lambda x, p: p.vector[0] + p.vector[1] * x, REAL, ["y"], constants={"c": 9.0}
    )
    assert np.array_equal(model.simulate(X, {"a": 2.0, "k": 3.0})["y"], 2 + 3 * X)


def test_outputs_may_be_given_by_name_and_without_a_covariate():
    model = pcuq.ExternalModel(
        lambda x, p: {"second": [p["k"]], "first": [p["a"]]}, REAL, ["first", "second"]
    )
    w, _ = model.solver(None)({"a": 2.0, "k": 3.0})
    assert np.array_equal(w, [[2.0, 3.0]])


@pytest.mark.parametrize("mode", ["forward", "reverse"])
@pytest.mark.parametrize(
    ("options", "accuracy"),
    [
        ({}, 1e-5),
        ({"jacobian": simulators.decay_jacobian}, 1e-14),
        ({"simulate": simulators.decay_batch, "batch": True}, 1e-5),
        (
            {
                "simulate": simulators.decay_batch,
                "jacobian": simulators.decay_batch_jacobian,
                "batch": True,
            },
            1e-14,
        ),
    ],
)
def test_derivatives_are_those_of_the_same_model_in_jax(options, accuracy, mode):
    derive = jax.jacfwd if mode == "forward" else jax.jacrev
    rows = {"a": jnp.array([0.3, 1.7]), "k": jnp.array([0.9, 0.01])}

    def slopes(model):
        solver = model.solver(X, mode=mode)
        return jax.jit(jax.vmap(derive(lambda values: solver(values)[0])))(rows)

    found, wanted = slopes(decay(**options)), slopes(in_jax())
    for name in PARAMETERS:
        assert np.allclose(found[name], wanted[name], rtol=accuracy, atol=accuracy)


def test_differences_stay_inside_the_range_of_a_parameter():
    seen = []

    def simulate(x, p):
        seen.append((p["a"], p["k"]))
        return p["a"] * x + p["k"]

    solver = pcuq.ExternalModel(simulate, PARAMETERS, ["y"], step=0.5).solver(X)
    jax.jacfwd(lambda values: solver(values)[0])({"a": 1e-9, "k": 1 - 1e-9})
    a, k = np.array(seen).T
    assert len(seen) > 4
    assert (a > 0).all()
    assert ((k > 0) & (k < 1)).all()


def test_derivatives_follow_interventions():
    change = [
        pcuq.Intervention(scale={"a": 3.0}, shift={"k": 0.1}),
        pcuq.Intervention(set={"c": 2.0}),
    ]
    for options in ({}, {"jacobian": simulators.decay_jacobian}):
        external, native = (
            jax.jacfwd(lambda v, m=model: m.do(change).solver(X)(v)[0])(VALUES)
            for model in (decay(**options), in_jax())
        )
        for name in VALUES:
            assert np.allclose(external[name], native[name], rtol=1e-5)


def test_a_constant_that_is_set_to_a_parameter_carries_its_derivative():
    change = pcuq.Intervention(set={"c": "a"})
    model = decay(jacobian=simulators.decay_jacobian).do(change)
    found = jax.jacfwd(lambda v: model.solver(X)(v)[0])(VALUES)
    assert np.allclose(found["a"][:, 0], np.exp(-0.4 * X) + 1, rtol=1e-5)


def test_interventions_in_time_are_refused():
    with pytest.raises(pcuq.InputError, match="no time and no states"):
        decay().do(pcuq.Intervention(set={"a": 1.0}, at=2.0))
    with pytest.raises(pcuq.InputError, match="unknown name 'b'"):
        decay().do(pcuq.Intervention(set={"b": 1.0}))


def test_failures_are_those_of_their_particle_and_counted_by_cause():
    w, fine, failures = moody([0, 1, 2, 1, 0])
    assert fine == [True, False, False, False, True]
    assert np.array_equal(w[4, :, 0], 5 * X)
    assert not w[1:4].any()
    # The number in the message differs between the two: they are one cause all the same.
    assert failures == {
        "ValueError: no step size below # was small enough": 2,
        "output that is not finite": 1,
    }


def test_a_particle_that_fails_has_no_derivative_and_harms_no_other():
    model = pcuq.ExternalModel(simulators.moody, REAL, ["y"])
    solver = model.solver(X)
    rows = {"a": jnp.array([1.0, 2.0]), "k": jnp.array([0.5, 1.5])}
    (w, ok), (slopes, _) = jax.jit(
        jax.vmap(
            lambda v: jax.jvp(solver, (v,), ({"a": 1.0, "k": 0.0},)),
        )
    )(rows)
    assert ok.tolist() == [True, False]
    assert np.allclose(slopes[0, :, 0], X)
    assert not slopes[1].any()
    assert not w[1].any()


def test_one_bad_row_of_a_batch_is_found():
    model = pcuq.ExternalModel(simulators.moody_batch, REAL, ["y"], batch=True)
    values = {"a": np.arange(4.0), "k": np.array([0.0, 0.0, 1.0, 0.0])}
    w, fine = model.solve_tightly(X, values, 1e-9)
    assert fine.tolist() == [True, True, False, True]
    assert np.array_equal(w[3, :, 0], 3 * X)
    assert model.failures == {"RuntimeError: one of them is bad": 1}


def test_a_worker_that_dies_or_hangs_costs_one_particle():
    k = [0, 3, 0, 0, 4, 0, 0]
    began = time.monotonic()
    w, fine, failures = moody(k, workers=2, timeout=1.0)
    assert time.monotonic() - began < 50
    assert fine == [kind == 0 for kind in k]
    assert np.array_equal(w[6, :, 0], 7 * X)
    assert failures == {
        "the worker process died": 1,
        "the simulation took longer than `timeout`": 1,
    }
    assert not multiprocessing.active_children()


def test_a_worker_says_why_what_it_found_cannot_be_sent_and_goes_on():
    """In this process: a worker is a loop over a connection."""
    asked, sent = [(0, (2,)), (0, (3,))], []

    class Connection:
        def recv(self):
            if not asked:
                raise EOFError
            return asked.pop(0)

        def send(self, what):
            if what == 4:
                raise TypeError("cannot pickle 'module' object")
            if what == 9:
                raise OSError
            sent.append(what)

    processes._serve(Connection(), pickle.dumps((simulators.square,)))
    assert sent[0] == "ready"
    assert isinstance(sent[1], Failure) and "cannot pickle" in sent[1].cause
    assert len(sent) == 2 and not asked  # nobody listens any more: it ends


@pytest.mark.parametrize(
    ("answer", "wanted"),
    [
        (np.array([[1.0], [2.0]]), [1.0, 2.0]),
        ({"a": [1.0, 2.0], "b": [3.0, 4.0]}, [{"a": 1.0, "b": 3.0}, {"a": 2.0, "b": 4.0}]),
        ({"a": [1.0, 2.0], "b": [3.0]}, None),
        (3.0, None),
        ([1.0, 2.0, 3.0], None),
    ],
)
def test_what_a_batch_returned_is_split_by_rows_or_all_of_it_has_failed(answer, wanted):
    found = _split(answer, 2)
    if wanted is None:
        assert [one.cause[:22] for one in found] == ["Input: 2 rows were wan"] * 2
    else:
        assert found == wanted


def test_a_worker_that_was_ended_between_calls_is_replaced():
    model = decay(workers=1)
    rows = {"a": np.array([1.0]), "k": np.array([0.5])}
    model.solve_tightly(X, rows, 1e-9)
    (child,) = multiprocessing.active_children()
    os.kill(child.pid, signal.SIGKILL)
    child.join()
    _, fine = model.solve_tightly(X, rows, 1e-9)
    model.close()
    assert fine.all()
    assert not model.failures


@pytest.mark.quick("True")
@pytest.mark.parametrize("batch", [False, True])
def test_workers_change_no_number(batch):
    options = {"simulate": simulators.decay_batch, "batch": True} if batch else {}
    rows = {"a": jnp.linspace(0.1, 2.0, 5), "k": jnp.linspace(0.1, 0.9, 5)}
    here, there = decay(**options), decay(workers=2, **options)

    def evaluate(model):
        solver = model.solver(X)
        slopes = jax.jacfwd(lambda v: solver(v)[0])
        return jax.jit(jax.vmap(lambda v: (solver(v)[0], slopes(v))))(rows)

    found, wanted = evaluate(there), evaluate(here)
    there.close()
    assert jax.tree.all(jax.tree.map(np.array_equal, found, wanted))


def test_threads_that_loop_over_callbacks_do_not_wait_for_each_other_for_ever():
    solver = decay().solver(X)

    def loop(seed):
        with jax.enable_x64(True):

            def step(theta, _):
                w, _ = jax.vmap(solver)({"a": theta, "k": jnp.full(500, 0.5)})
                return theta + 1e-3 * w[:, 0, 0], None

            start = jnp.linspace(0.1, 1.0, 500) + seed
            return np.asarray(jax.jit(lambda t: jax.lax.scan(step, t, None, length=20)[0])(start))

    with ThreadPoolExecutor(2) as threads:
        found = list(threads.map(loop, range(4)))
    for seed, theta in enumerate(found):
        wanted = np.linspace(0.1, 1.0, 500) + seed
        for _ in range(20):
            wanted = wanted + 1e-3 * (wanted + 0.5)
        assert np.allclose(theta, wanted, rtol=1e-12)


def test_programs_that_look_alike_call_their_own_simulator():
    found = []
    for factor in (1.0, 2.0):
        model = pcuq.ExternalModel(lambda x, p, c=factor: c * p["a"] * x, REAL, ["y"])
        values = {"a": jnp.ones(2), "k": jnp.ones(2)}
        w, _ = Program(jax.vmap(model.solver(X)))(values)
        found.append(np.asarray(w)[1, :, 0])
    assert np.array_equal(found[0], X)
    assert np.array_equal(found[1], 2 * X)


def test_only_solvers_that_were_compiled_for_live_as_long_as_the_model(monkeypatch):
    model, alive = decay(), weakref.WeakSet()
    outputs = ExternalSolver.outputs

    def noted(self, values):
        alive.add(self)
        return outputs(self, values)

    monkeypatch.setattr(ExternalSolver, "outputs", noted)
    for _ in range(3):
        model.simulate(X, VALUES)
    gc.collect()
    assert not alive
    compiled = weakref.ref(solver := model.solver(X))
    jax.jit(solver)(VALUES)
    del solver
    gc.collect()
    assert compiled() is not None


def test_what_cannot_be_used_is_said_before_anything_runs():
    cases = [
        (lambda x, p: p["b"], "KeyError", pcuq.InputError),
        (lambda x, p: np.zeros(3), "an array of shape", pcuq.InputError),
        (lambda x, p: np.full(len(x), np.nan), "failed at all", pcuq.ComputationError),
    ]
    for simulate, text, kind in cases:
        model = pcuq.ExternalModel(simulate, REAL, ["y"])
        with pytest.raises(kind, match=text):
            model.solver(X, representatives={"a": np.ones(3), "k": np.ones(3)})
    with pytest.raises(pcuq.InputError, match="top of a module"):
        pcuq.ExternalModel(lambda x, p: x, REAL, ["y"], workers=2)
    with pytest.raises(pcuq.InputError, match="at least 1"):
        decay(workers=0)
    with pytest.raises(pcuq.InputError, match="`timeout` needs `workers`"):
        decay(timeout=1.0)
    with pytest.raises(pcuq.InputError, match="`jacobian` needs a function"):
        decay(jacobian=3)
    with pytest.raises(pcuq.ComputationError, match="no step size"):
        pcuq.ExternalModel(simulators.moody, REAL, ["y"]).simulate(X, {"a": 1.0, "k": 1.0})


@pytest.mark.slow
def test_lotka_volterra_has_the_values_of_the_same_model_in_jax():
    native = lotka_volterra.problem(seed=1)
    setting = lotka_volterra.SETTINGS["main"]
    constants = {**native.model.constants}
    constants |= dict(zip(("prey_0", "predator_0"), setting.initial, strict=True))
    model = pcuq.ExternalModel(
        simulators.lotka_volterra,
        dict(native.parameters),
        native.model.outputs,
        constants=constants,
    )
    external = pcuq.Problem(model, native.data, native.kernel)
    thetas = np.array([[-2.0, -3.9], [-2.02, -3.85], [0.5, 0.2]])
    assert float(pcuq.mmd2(external, thetas)) == pytest.approx(
        float(pcuq.mmd2(native, thetas)), abs=1e-6
    )
    for theta in thetas[:2]:
        assert float(pcuq.log_likelihood(external, theta)) == pytest.approx(
            float(pcuq.log_likelihood(native, theta)), rel=1e-6
        )


@pytest.mark.slow
def test_draws_agree_in_law_with_those_of_the_same_model_in_jax():
    rng = np.random.default_rng(3)
    y = 1.7 * np.exp(-0.4 * X) + 0.5 + 0.1 * rng.normal(size=len(X))
    data = pcuq.Data(y, X, noise=0.1)
    lengths = {"particles": 10, "warmup": 200, "draws": 200, "thin": 1, "seed": 1}
    prior = {"a": pcuq.Parameter("log", dist.Normal(0.5, 0.3)), "k": pcuq.Parameter("logit")}
    external = pcuq.ExternalModel(
        simulators.decay_batch, prior, ["y"], constants={"c": 0.5}, batch=True
    )
    native = pcuq.FunctionModel(in_jax().f, prior, ["y"], {"c": 0.5})
    fits = [
        pcuq.fit(pcuq.Problem(model, data), regularisation=1e-3, **lengths)
        for model in (external, native)
    ]
    # Same seed, same proposals: they part only where a rounding error turns an acceptance.
    means, sds = (
        np.array([getattr(fit.thetas, what)(axis=0) for fit in fits]) for what in ("mean", "std")
    )
    effective = min(fit.diagnostics["ess_min"] for fit in fits)
    assert effective > 60
    assert np.all(np.abs(means[0] - means[1]) < 4 * sds.mean(axis=0) * np.sqrt(2 / effective))
    assert np.allclose(sds[0], sds[1], rtol=4 * np.sqrt(1 / effective))
    assert "external" in fits[0].tree.attrs["solver"]


@pytest.mark.slow
def test_an_answer_that_comes_too_late_is_not_taken_for_the_next(monkeypatch):
    model = decay(workers=1)
    values = {"a": np.array([1.0, 2.0, 3.0]), "k": np.array([0.5, 0.5, 0.5])}
    wanted, _ = model.solve_tightly(X, values, 1e-9)
    with monkeypatch.context() as patch:
        patch.setattr("pcuq.models.processes.wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            model.solve_tightly(X, {**values, "a": 10 * values["a"]}, 1e-9)
    found, fine = model.solve_tightly(X, values, 1e-9)
    model.close()
    assert fine.all()
    np.testing.assert_array_equal(found, wanted)


def interrupted(*args, **options):
    raise KeyboardInterrupt
