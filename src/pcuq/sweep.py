"""Q along λ: one particle system that is followed from the smallest λ to the largest.

Each λ goes on from where the one before ended: from the fit mass escapes to the prior by single
jumps, while the other way much of it would be caught in poor fits.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from pcuq.errors import ComputationError, InputError
from pcuq.objective import Objective, part_that_fits
from pcuq.problem import Predictor, Problem
from pcuq.samplers.anchors import find_anchors
from pcuq.samplers.base import Crew
from pcuq.samplers.ensemble import Ensemble
from pcuq.start import MESH_TOLERANCE, Start, representatives, starting_particles

PARTICLES = 50
ITERATIONS = 80  # for each λ, of which the first 40 % go to settling
SETTLING = 0.4
# λ from v/300 to v/30, v the data term of the fit: the fit is then worth 300 to 30 nats. At smaller
# λ fifty particles no longer stand well for Q, because leaving out the overlap of each with itself
# begins to show: they are tried only where none of these will do.
FEWEST_NATS, MOST_NATS, LAMS = 30.0, 300.0, 6


def sweep(objective: Objective, start: Start, lams: np.ndarray, seed: int) -> list[Any]:
    """Draws of one particle system at each λ, smallest first, each going on from the one before."""
    sampler = Ensemble(objective, float(lams[0]))
    crew = Crew(sampler, 1, seed, ITERATIONS)
    noise = np.asarray(jax.random.normal(jax.random.key(seed), (PARTICLES, len(start.best))))
    thetas = start.best + 3.0 * noise @ np.linalg.cholesky(start.covariance).T
    pool, log_steps, found = thetas[None, None], np.full(1, -2.0), []
    settling = round(SETTLING * ITERATIONS)
    for number, lam in enumerate(lams):
        anchors = find_anchors(objective, float(lam), start, seed)
        tune = Ensemble(objective, float(lam), anchors).shaped_by
        # The first λ begins at the fit and not where another ended.
        counts = (settling,) * (3 if number == 0 else 1) + (ITERATIONS - settling,)
        found.append(crew.in_stages(pool, counts, log_steps, tune))
        pool, log_steps = found[-1].theta, crew.log_steps()
    return found


def curves(found: list[Any]) -> tuple[list[float], list[float]]:
    """(share outside the part that fits, spread within it) at each λ."""
    best = max(float(draw.v.max()) for draw in found)
    outside, widths = [], []
    for draw in found:
        fits = part_that_fits(np.append(draw.v.ravel(), best))[:-1]
        inside = draw.theta.reshape(-1, draw.theta.shape[-1])[fits]
        outside.append(float(1 - fits.mean()))
        widths.append(spread(inside) if len(inside) > 1 else math.nan)
    return outside, widths


def spread(thetas: Float[np.ndarray, "K p"]) -> float:
    """Geometric mean over parameters of the sd."""
    return float(np.exp(np.mean(np.log(thetas.std(axis=0) + 1e-300))))


def lams_of(value: float) -> np.ndarray:
    """Smallest first."""
    if not value > 0:
        raise ComputationError(
            "the best fit explains none of the data (v = 0): widen the kernel with lengthscale_y, "
            "check the noise scale, or give the problem a `nominal`."
        )
    return value / np.geomspace(MOST_NATS, FEWEST_NATS, LAMS)


def predictor_of(problem: Problem, start: Start, seed: int) -> Predictor:
    """On a mesh that serves whatever particles may meet."""
    particles = starting_particles(problem, start, np.random.default_rng(seed), PARTICLES)
    return problem.predictor(representatives(problem, start, particles), tolerance=MESH_TOLERANCE)


def refuse_joint_noise(problem: Problem) -> None:
    """λ is found with the default sampler."""
    if problem.data.noises[0].joint:
        raise InputError(
            "λ cannot be chosen under JointNoise, which only the unadjusted flow can use: give "
            "`regularisation` as a number."
        )
