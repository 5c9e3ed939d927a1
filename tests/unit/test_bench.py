"""What `pcuq bench` measures, on a model that is soon compiled."""

import importlib.util
import json
from pathlib import Path

import jax
import numpy as np
import pytest

from pcuq import Data, GaussianKernel, InputError, ODEModel, Parameter, Problem
from pcuq.bench import _beside, measure
from pcuq.bench_reference import _mass_action, time_reference
from pcuq.start import Start
from pcuq.zoo import erk


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
