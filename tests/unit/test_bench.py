"""What `pcuq bench` measures, on a model that is soon compiled."""

import importlib.util
import json
import platform
import subprocess
from pathlib import Path
from types import SimpleNamespace

import closed_forms
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pcuq import (
    Data,
    FunctionModel,
    GaussianKernel,
    InputError,
    ODEModel,
    Parameter,
    Problem,
    bench,
    bench_reference,
)
from pcuq.bench import _beside, measure
from pcuq.bench_reference import _mass_action, time_reference
from pcuq.start import Start
from pcuq.zoo import erk, lotka_volterra


def test_one_gradient_and_one_iteration_are_measured():
    decay = ODEModel(lambda t, u, p: -p["rate"] * u, {"u": 1.0}, {"rate": Parameter("log")})
    times = np.linspace(0.0, 2.0, 5)
    problem = Problem(decay, Data(np.exp(-times)[:, None], times, 0.1), GaussianKernel())
    start = Start(np.zeros((1, 1)), np.zeros(1), np.full((1, 1), 0.01))
    few, many = (measure(problem, start, 1e-3, count, 3, repeats=1) for count in (512, 2048))
    assert 0 < few["ms_per_gradient"] < 1e3 and 0 < few["ms_per_mala_iteration"] < 1e3
    assert few["compile_s"] > 0 and few["compile_gradient_s"] > 0
    assert few["steps"] >= 4
    assert 0 < few["ode_error"] < 1e-4
    # A row of predictions for each particle at least; pairs are summed in blocks, never all kept.
    assert few["gradient_memory_kb"] > 512 * 8 * 5 / 1024
    assert many["gradient_memory_kb"] < 4.5 * few["gradient_memory_kb"]
    assert jax.config.jax_enable_compilation_cache


def test_another_code_is_compared_where_both_were_timed():
    ours = {"lotka_volterra": {"10": {"ms_per_mala_iteration": 0.5}}}
    theirs = {name: {"10": {"ms_per_mala_iteration": 200.0}} for name in ("lotka_volterra", "erk")}
    found = _beside(ours, theirs)
    assert found["lotka_volterra"]["10"]["times_as_long"] == 400.0
    assert "times_as_long" not in found["erk"]["10"]


def test_a_folder_without_the_authors_code_is_refused(tmp_path):
    with pytest.raises(InputError, match="checkout of the authors' code"):
        time_reference(tmp_path)


UTILITIES = """
import jax.numpy as jnp

calls = []


def build_func_dict(y, times, width, initial, sd, solve):
    def density(theta):
        return -jnp.sum((solve(initial, times, theta) - y) ** 2 / sd**2)

    return {"pcuq": density, "bayes": None}


def mala(density, iterations, step, start, lam, key):
    calls.append(("mala", iterations, start.shape, str(start.dtype)))
    return start


def langevin(density, iterations, step, start, lam, key):
    calls.append(("langevin", iterations, start.shape, str(start.dtype)))
    return start
"""


def test_the_authors_code_gets_our_data_and_the_truth_solves_it(tmp_path):
    (tmp_path / "pcuq_utils.py").write_text(UTILITIES)
    theirs = bench_reference._module(tmp_path)
    rate, times = 0.5, np.linspace(0.0, 2.0, 5)
    model = FunctionModel(
        lambda x, p: [jnp.exp(-p["rate"] * x)], {"rate": Parameter("logit")}, ("u",)
    )
    data = Data(np.exp(-rate * times)[:, None], times, 0.1)
    density, error = bench_reference._theirs(
        theirs, Problem(model, data), lambda t, u, p: -p * u, [1.0], np.array([rate]), 0.05, 1.0
    )
    assert 0 < error < 1e-4
    best = float(density(jnp.zeros(1)))  # the logit of 0.5
    assert -1e-3 < best <= 0 and float(density(jnp.ones(1))) < -1.0


def test_the_authors_samplers_are_timed_by_runs_that_have_compiled_nothing(tmp_path, monkeypatch):
    closed_forms.put_in_place(monkeypatch)
    (tmp_path / "pcuq_utils.py").write_text(UTILITIES)
    modules, read, slopes = [], bench_reference._module, []

    def kept(path):
        modules.append(read(path))
        return modules[-1]

    def theirs(module, problem, slope, initial, truth, step, width):
        slopes.append(slope(0.0, jnp.asarray(initial, float), jnp.asarray(truth)))
        return len(initial), 0.25

    monkeypatch.setattr(bench_reference, "_module", kept)
    monkeypatch.setattr(bench_reference, "_theirs", theirs)
    monkeypatch.setattr(bench_reference, "_mass_action", lambda *args: lambda t, u, p: u)
    monkeypatch.setattr(erk, "model", lambda: SimpleNamespace(derivative=None))
    monkeypatch.setattr(erk, "problem", lambda seed: None)
    found = time_reference(tmp_path)
    assert {name: list(rows) for name, rows in found.items()} == {
        "lotka_volterra": ["10"],
        "erk": ["20"],
    }
    assert found["erk"]["20"]["ode_error"] == 0.25
    assert {"ms_per_mala_iteration", "ms_per_langevin_iteration"} < set(found["erk"]["20"])
    few, many = bench_reference.FEW, bench_reference.MANY
    wanted = [("mala", (10, 2)), ("mala", (20, 11)), ("langevin", (20, 11))]
    runs = [(kind, n, shape) for kind, shape in wanted for n in (1, many, few)]
    assert modules[0].calls == [(*run, "float32") for run in runs]
    setting = lotka_volterra.SETTINGS["main"]
    prey, predators = setting.initial
    grown = setting.alpha * prey - setting.beta * prey * predators
    died = setting.delta * prey * predators - setting.gamma * predators
    np.testing.assert_allclose(slopes[0], [grown, died], rtol=1e-5)


def test_bench_measures_every_size_without_the_cache_and_puts_it_back(monkeypatch):
    measured = []

    def measure(problem, start, lam, count, iterations):
        assert not jax.config.jax_enable_compilation_cache
        measured.append((problem, count, iterations))
        return {"ms_per_mala_iteration": 2.0}

    theirs = {"lotka_volterra": {"10": {"ms_per_mala_iteration": 50.0}}}
    for name, module in (("prey", lotka_volterra), ("cells", erk)):
        monkeypatch.setattr(module, "problem", lambda seed, name=name: name)
    monkeypatch.setattr(bench, "starting_fit", lambda problem: None)
    monkeypatch.setattr(bench, "measure", measure)
    monkeypatch.setattr(bench, "time_reference", lambda path: theirs)
    before, said = jax.config.jax_enable_compilation_cache, []
    assert set(bench.bench(quick=True)["lotka_volterra"]) == {"10"}
    assert measured == [("prey", 10, 400)]
    found = bench.bench(reference="theirs", tell=said.append)
    assert list(found["lotka_volterra"]) == ["10", "50", "200", "1000"]
    assert list(found["erk"]) == ["20"] and measured[-1] == ("cells", 20, 50)
    assert found["reference"]["lotka_volterra"]["10"]["times_as_long"] == 25.0
    assert "erk: N = 20" in said and "the authors' code" in said
    assert found["machine"]["cores"] >= 1 and found["machine"]["reference_ms"] > 0
    assert 10 < found["memory_mb"] < 1e6

    def broken(*args):
        raise RuntimeError

    monkeypatch.setattr(bench, "measure", broken)
    with pytest.raises(RuntimeError):
        bench.bench(quick=True)
    assert jax.config.jax_enable_compilation_cache == before


def test_what_a_machine_does_not_tell_of_itself_is_left_out(monkeypatch):
    assert bench._processor()

    def absent(*args, **options):
        raise OSError

    monkeypatch.setattr(Path, "read_text", absent)
    assert bench._processor() == (platform.processor() or platform.machine())
    monkeypatch.setattr(bench.subprocess, "run", absent)
    assert bench.commit() is None


def test_the_commit_is_that_of_the_source():
    folder = Path(bench.__file__).parent
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=folder, capture_output=True, text=True
    ).stdout.strip()
    if not head:
        pytest.skip("not a checkout")
    assert bench.commit().removesuffix("-dirty") == head


def test_fluxes_and_their_matrix_are_the_right_hand_side():
    model, rng = erk.model(), np.random.default_rng(0)
    u, rates = rng.uniform(size=11), rng.uniform(size=11)
    wanted = model.derivative(0.0, u, dict(zip(erk.RATES, rates, strict=True)))
    np.testing.assert_allclose(_mass_action(model.derivative, 11)(0.0, u, rates), wanted)


def test_the_page_has_every_figure(tmp_path):
    times = {"ms_per_gradient": 1.5, "ms_per_mala_iteration": 2.5, "compile_s": 3.0, "steps": 77}
    row = {**times, "ode_error": 2e-5, "gradient_memory_kb": 4096.0}
    machine = {"cores": 2, "processor": "a processor", "python": "3", "jax": "0", "load": 0.1}
    speed = {"seconds": 2.0, "ess": 500.0, "ess_per_s": 250.0}
    theirs = {"ms_per_mala_iteration": 250.0, "times_as_long": 100.0, "ode_error": 1e-3}
    said = {
        "bench": {
            "machine": machine,
            "commit": "0123456789abcdef",
            "lotka_volterra": {"10": row},
            "reference": {"lotka_volterra": {"10": theirs}},
        },
        "scaling": {"particles": 50, "n": {"61": row}, "p": {"32": row}},
        "samplers": {
            "regularisation": 3e-5,
            "samplers": {"nuts": {**speed, "rhat": 1.23, "distance": 0.456}},
            "time_to_exact": {"close": 0.05, "seconds": 1.7},
            "bayes": {"numpyro": speed},
        },
        "ode_in_c": {"steps": 81, "particles": {"200": {"ms_pcuq": 6, "ms_c": 3, "ratio": 2.0}}},
        "large_n": {
            "batch": 64,
            "particles": {"1000": {"ms_per_step": 9.0, "memory_mb": 76.0}},
            "drift_error": 0.55,
            "stated": 0.61,
            "drift_bias": 0.08,
        },
    }
    for name, content in said.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    path = Path(__file__).parents[2] / "benchmarks" / "table.py"
    spec = importlib.util.spec_from_file_location("table", path)
    table = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(table)
    table.main(tmp_path)
    page = (tmp_path / "benchmarks.md").read_text()
    wanted = (
        "0123456789ab",
        "a processor",
        "| 10 | 1.5 | 2.5 | 3.0 | 77 | 2e-05 | 4 |",
        "| 250 | 100 | 0.001 |",
        "n = 61",
        "p = 32",
        "| 1.23 | 0.456 |",
        "took 1.7 s",
        "| numpyro | 2 | 500 | 250 |",
        "| 200 | 6 | 3 | 2 |",
        "| 1000 | 9 | 76 |",
    )
    assert [text for text in wanted if text not in page] == []
