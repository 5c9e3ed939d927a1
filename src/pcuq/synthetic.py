"""Data as the model would have them: drawn from p(y | w_θ(x), s) at the covariates of the data.

The copy of a problem has the same model, kernel, conditions, noise and gaps, and other numbers in
y. It is what λ is calibrated on and what a test of the model is compared with.
"""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from pcuq._x64 import x64
from pcuq.errors import ComputationError
from pcuq.likelihood import scales_at_points
from pcuq.noise import Noise
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
    of_row, static = problem.points.of_row, problem.scale.static
    at_points = scales_at_points(problem, jnp.asarray(outputs[0]), jnp.asarray(theta))
    scale = static if at_points is None else np.where(static > 0, static, at_points[of_row])
    w = outputs[0][of_row][:, problem.columns]
    return [_copy(problem, _draw(problem, w, scale, seed)) for seed in seeds]


def _draw(problem: Problem, w: np.ndarray, scale: np.ndarray, seed: int) -> np.ndarray:
    data = problem.data
    # What is missing has no scale: any will do, and the draw is not kept.
    mean, sd = (jnp.asarray(np.where(data.observed, values, 1.0)) for values in (w, scale))
    key = jax.random.key(seed)
    if isinstance(data.noise, Noise):
        drawn = data.noise.sample(key, mean, sd)
    else:
        keys = jax.random.split(key, data.d)
        columns = zip(data.noises, keys, mean.T, sd.T, strict=True)
        drawn = jnp.stack([noise.sample(k, m, s) for noise, k, m, s in columns], axis=-1)
    return np.where(data.observed, np.asarray(drawn), np.nan)


def _copy(problem: Problem, y: np.ndarray) -> Problem:
    conditions = dict(problem.conditions) if problem.conditions is not None else None
    return Problem(
        problem.model, replace(problem.data, y=y), problem.kernel, conditions, problem.nominal
    )


@x64
def with_data_around(problem: Problem, outputs: Float[np.ndarray, "n d"], seed: int) -> Problem:
    """A copy of the problem whose data scatter around given outputs, by noise of known scale."""
    return _copy(problem, _draw(problem, outputs, problem.scale.static, seed))
