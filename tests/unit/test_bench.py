"""What `pcuq bench` measures, on a model that is soon compiled."""

from types import SimpleNamespace

import jax
import numpy as np
import pytest

from pcuq import Data, GaussianKernel, ODEModel, Parameter, Problem
from pcuq.bench import measure


@pytest.mark.slow
def test_one_gradient_and_one_iteration_are_measured():
    decay = ODEModel(lambda t, u, p: -p["rate"] * u, {"u": 1.0}, {"rate": Parameter("log")})
    times = np.linspace(0.0, 2.0, 5)
    problem = Problem(decay, Data(np.exp(-times)[:, None], times, 0.1), GaussianKernel())
    start = SimpleNamespace(best=np.zeros(1), covariance=np.full((1, 1), 0.01))
    few, many = (measure(problem, start, 1e-3, count, 3, repeats=1) for count in (512, 2048))
    assert 0 < few["ms_per_gradient"] < 1e3 and 0 < few["ms_per_mala_iteration"] < 1e3
    assert few["compile_s"] > 0 and few["compile_gradient_s"] > 0
    assert few["steps"] >= 4
    assert 0 < few["ode_error"] < 1e-4
    # A row of predictions for each particle at least; pairs are summed in blocks, never all kept.
    assert few["gradient_memory_kb"] > 512 * 8 * 5 / 1024
    assert many["gradient_memory_kb"] < 4.5 * few["gradient_memory_kb"]
    assert jax.config.jax_enable_compilation_cache
