"""Data as the model would have them: drawn from p(y | w_θ(x), s) at the covariates of the data.

The copy of a problem has the same model, kernel, conditions, noise and gaps, and other numbers in
y. It is what λ is calibrated on and what a test of the model is compared with.
"""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from pcuq._x64 import x64
from pcuq.errors import ComputationError
from pcuq.likelihood import outputs_and_scales
from pcuq.predict import sample_noise
from pcuq.problem import Problem

TIGHT = 1e-9


@x64
def with_synthetic_data(
    problem: Problem, theta: Float[np.ndarray, " p"], seeds: list[int]
) -> list[Problem]:
    """Copies of the problem, one for each seed, whose data come from the model at θ."""
    theta = np.asarray(theta, dtype=float)
    outputs, ok = problem.predictor(theta[None]).tightly(theta[None], TIGHT)
    if not ok[0]:
        raise ComputationError(
            "data cannot be simulated, because the model cannot be solved at these parameters: "
            f"θ = {theta.round(4).tolist()}."
        )
    w, scale = outputs_and_scales(problem, jnp.asarray(outputs[0]), jnp.asarray(theta))
    return [_scattered(problem, w, scale, seed) for seed in seeds]


@x64
def with_data_around(problem: Problem, outputs: Float[np.ndarray, "n d"], seed: int) -> Problem:
    """A copy of the problem whose data scatter around given outputs, by noise of known scale."""
    return _scattered(problem, jnp.asarray(outputs), jnp.asarray(problem.scale.static), seed)


def _scattered(problem: Problem, w: Array, scale: Array, seed: int) -> Problem:
    data = problem.data
    y = np.asarray(sample_noise(data, jax.random.key(seed), w, scale))
    if not np.all(np.isfinite(y[data.observed])):
        raise ComputationError(
            "data cannot be simulated: some outputs cannot have been observed with this noise, "
            "such as a negative mean of counts."
        )
    return problem.with_data(replace(data, y=np.where(data.observed, y, np.nan)))
