"""The examples that bring a simulator of their own."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import pcuq

EXAMPLES = Path(__file__).parents[2] / "examples"


def load(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_scipy_example_has_the_values_of_the_same_model_in_jax():
    example = load("own_simulator")

    def rhs(t, u, p):
        binding = p["k_on"] * u[0] * u[1]
        return [-binding, -binding, binding - p["k_loss"] * u[2]]

    native = pcuq.ODEModel(
        rhs,
        initial=lambda p: [p["ligand"], 1.0, 0.0],
        parameters=dict(example.problem.parameters),
        constants={"ligand": 2.0},
        states=["ligand_", "receptor", "bound"],
        outputs=["bound"],
    )
    values = {"k_on": 0.4, "k_loss": 0.05}
    found = example.problem.model.simulate(example.times, values)["bound"]
    assert np.allclose(found, native.simulate(example.times, values)["bound"], atol=1e-6)


def test_the_libroadrunner_example_has_the_values_of_the_same_file_in_jax(tmp_path):
    pytest.importorskip("roadrunner", reason="libroadrunner is not installed")
    pytest.importorskip("libsbml", reason="python-libsbml is not installed")
    example = load("own_simulator_roadrunner")
    (tmp_path / "model.xml").write_text(example.SBML)
    values = {"k1": 0.9, "k2": 0.3}
    found = example.problem.model.simulate(example.times, values)["B"]
    wanted = pcuq.from_sbml(tmp_path / "model.xml").simulate(example.times, values)["B"]
    assert np.allclose(found, wanted, atol=1e-6)
    # B = k1 (exp(−k2 t) − exp(−k1 t)) / (k1 − k2)
    exact = 0.9 * (np.exp(-0.3 * example.times) - np.exp(-0.9 * example.times)) / 0.6
    assert np.allclose(found, exact, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["own_simulator", "own_simulator_roadrunner"])
def test_the_examples_run_as_scripts(name):
    if "roadrunner" in name:
        pytest.importorskip("roadrunner", reason="libroadrunner is not installed")
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / f"{name}.py")], capture_output=True, text=True, timeout=500
    )
    assert done.returncode == 0, done.stderr
    assert "Fit(method='pcuq'" in done.stdout


@pytest.mark.slow
def test_bayes_samples_a_simulator_by_its_differences():
    problem = load("own_simulator").problem
    fit = pcuq.fit(problem, method="bayes", warmup=100, draws=100, seed=1)
    solver = json.loads(fit.tree.attrs["solver"])[0]
    assert solver["derivatives"] == "differences"
    start = pcuq.start.starting_fit(problem, 1)
    sd = np.sqrt(np.diag(start.covariance))
    assert np.all(np.abs(fit.thetas.mean(axis=0) - start.best) < 1.5 * sd)
    assert np.allclose(fit.thetas.std(axis=0), sd, rtol=0.5)
