"""The commands that reproduce the paper and choose λ: what they pass on, print and write."""

import json
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from pcuq import cli, reproduce
from pcuq.calibrate import REPLICATES, Calibration

LINE = """
import pcuq

model = pcuq.FunctionModel(
    lambda x, p: [p["slope"] * x], {"slope": pcuq.Parameter("identity")}, ("y",)
)
problem = pcuq.Problem(model, pcuq.Data([0.1, 0.6, 0.9, 1.7], [0.0, 1.0, 2.0, 3.0], noise=0.2))
"""


def invoke(*arguments):
    return CliRunner().invoke(cli.app, [str(argument) for argument in arguments])


@pytest.fixture
def line(tmp_path):
    path = tmp_path / "line.py"
    path.write_text(LINE)
    return path


def test_reproduce_passes_on_name_folder_and_seed(tmp_path, monkeypatch):
    calls = []

    def run(name, out, seed, size, tell):
        calls.append((name, out, seed, size.workers))
        tell("stage")
        return {"seconds": 1.0}

    monkeypatch.setattr(reproduce, "reproduce", run)
    result = invoke("reproduce", "erk", "--out", tmp_path / "new" / "erk", "--seed", 3, "--json",
                    "--workers", 2)  # fmt: skip
    assert result.exit_code == 0, result.stderr
    assert calls == [("erk", tmp_path / "new" / "erk", 3, 2)]
    assert json.loads(result.stdout) == {"seconds": 1.0}
    assert "stage" in result.stderr


def test_reproduce_names_the_experiments_when_it_does_not_know_one(tmp_path):
    result = invoke("reproduce", "nothing", "--out", tmp_path)
    assert result.exit_code == 2
    assert "replicates" in result.stderr and "lotka-volterra-alt" in result.stderr


@pytest.fixture
def known(monkeypatch):
    """A calibration that takes no time: how λ★ is found is tested elsewhere."""
    found = Calibration(
        regularisation=4e-5,
        bound_by="the spread",
        lams=np.array([1e-5, 3e-5, 1e-4]),
        outside=np.array([[0.0, 0.02, 0.2], [0.0, 0.03, 0.3]]),
        spread=np.array([[0.03, 0.035, np.nan], [0.03, 0.035, 0.06]]),
        bayes_spread=np.array([0.01, 0.012]),
        settled=np.array([[True, True, True], [True, True, False]]),
        seconds=1.0,
    )
    calls = []

    def calibrate(problem, replicates, seed, tell):
        calls.append((replicates, seed))
        return found

    monkeypatch.setattr(sys.modules["pcuq.calibrate"], "calibrate", calibrate)
    return calls


def test_calibrate_prints_the_curves_as_json_and_draws_them(line, tmp_path, known):
    plot = tmp_path / "curves.png"
    result = invoke("calibrate", line, "--replicates", 2, "--seed", 5, "--json", "--plot", plot)
    assert result.exit_code == 0, result.stderr
    assert known == [(2, 5)]
    found = json.loads(result.stdout)
    assert found["regularisation"] == 4e-5
    assert found["spread"][0] == [0.03, 0.035, None]
    assert plot.stat().st_size > 1000


def test_calibrate_says_what_bound_it(line, known):
    result = invoke("calibrate", line)
    assert result.exit_code == 0, result.stderr
    assert known == [(REPLICATES, 0)]  # as a fit with `regularisation="auto"` has them
    assert "λ★ = 4e-05, bound by the spread" in result.stdout
    # The mean share and the median spread, and where Q was still on its way.
    first, *_, last = result.stdout.splitlines()[1:4]
    assert first.split() == ["1e-05", "0.000", "0.03"]
    assert last.split() == ["0.0001", "0.250", "0.06", "*"]


def test_a_plot_of_unknown_kind_is_refused_before_anything_is_computed(line, tmp_path):
    result = invoke("calibrate", line, "--plot", tmp_path / "curves.doc")
    assert result.exit_code == 2
    assert ".png" in result.stderr
