"""The PEtab test suite, version 1: log-likelihood and chi² of every case."""

import numpy as np
import pytest
import yaml

import pcuq
from pcuq.likelihood import scales_at_points

QUICK = ("0014",)
CASES = [f"{i:04d}" for i in range(1, 21)]


def chi2(problem):
    """Σ ((g(y) − g(w)) / s)² at the nominal point."""
    w, ok = problem.predictor(problem.nominal, method="adaptive")(problem.nominal)
    assert ok
    known, scales = problem.scale.static, scales_at_points(problem, w, problem.nominal)
    of_row, total = problem.points.of_row, 0.0
    s = known if scales is None else np.where(known > 0, known, np.asarray(scales)[of_row])
    w = np.asarray(w)[of_row][:, problem.columns]
    for column, noise in enumerate(problem.data.noises):
        rows = problem.data.observed[:, column]
        apart = noise.forward(problem.data.y[rows, column]) - noise.forward(w[rows, column])
        total += float(np.sum((apart / s[rows, column]) ** 2))
    return total


@pytest.mark.parametrize(
    "case",
    [case if case in QUICK else pytest.param(case, marks=pytest.mark.slow) for case in CASES],
)
def test_likelihood_and_chi2_are_those_of_the_suite(external_data, case):
    folder = external_data / "petab-suite-v1" / case
    wanted = yaml.safe_load((folder / f"_{case}_solution.yaml").read_text())
    problem = pcuq.from_petab(folder / f"_{case}.yaml")
    found = float(pcuq.log_likelihood(problem, problem.nominal))
    assert found == pytest.approx(wanted["llh"], abs=wanted["tol_llh"])
    assert chi2(problem) == pytest.approx(wanted["chi2"], abs=wanted["tol_chi2"])
