"""Q along λ: one particle system that is followed from the smallest λ to the largest.

Each λ goes on from where the one before ended: from the fit mass escapes to the prior by single
jumps, while the other way much of it would be caught in poor fits. At each λ there are blocks of
48, 96 and 192 iterations, until two in a row say the same of Q:

    |difference of the shares outside the part that fits| ≤ 0.02   and   spreads within 15 %.

The later of the two counts. Where no two agree it is the longest, and that it had not settled is
said.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
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
BLOCKS = (48, 96, 192)
BEGINNING = (32, 32)  # iterations before these at the first λ, which begins at the fit
SAME_SHARE, SAME_SPREAD = 0.02, 1.15
# λ from v/300 to v/30, v the data term of the fit: the fit is then worth 300 to 30 nats. At smaller
# λ fifty particles no longer stand well for Q, because leaving out the overlap of each with itself
# begins to show: they are tried only where none of these will do.
FEWEST_NATS, MOST_NATS, LAMS = 30.0, 300.0, 6


class Followed(NamedTuple):
    """Draws of one block at one λ, oldest first."""

    theta: Float[np.ndarray, "K p"]
    v: Float[np.ndarray, " K"]
    outside: float  # share outside the part that fits
    spread: float  # within it; no number where nothing fits
    settled: bool  # whether the block before said the same


def sweep(objective: Objective, start: Start, lams: np.ndarray, seed: int) -> Iterator[Followed]:
    """One particle system at each λ, smallest first."""
    crew = Crew(Ensemble(objective, float(lams[0])), 1, seed, max(BLOCKS))
    noise = np.asarray(jax.random.normal(jax.random.key(seed), (PARTICLES, len(start.best))))
    thetas = start.scattered(noise, 3.0)
    pool, log_steps = thetas[None, None], np.full(1, -2.0)
    best = float(objective.data_terms_of_many(start.best[None])[0])
    for number, lam in enumerate(lams):
        anchors = find_anchors(objective, float(lam), start, seed)
        tune = Ensemble(objective, float(lam), anchors).shaped_by
        if number == 0:
            pool = crew.in_stages(pool, BEGINNING, log_steps, tune).theta
            log_steps = crew.log_steps()
        pool, found = follow(crew, pool, log_steps, tune, best)
        log_steps, best = crew.log_steps(), max(best, float(found.v.max()))
        yield found


def follow(
    crew: Crew, pool: Float[np.ndarray, "T 1 N p"], log_steps, tune: Callable, best: float
) -> tuple[Float[np.ndarray, "T 1 N p"], Followed]:
    """Blocks from the end of `pool` on until two agree: (positions of the last, what it says).

    `best`: the largest v known before. Steps adapt in the first block.
    """
    before = None
    for number, count in enumerate(BLOCKS):
        adapting = jnp.asarray(float(number == 0))
        crew.begin(pool[-1], tune(pool)._replace(adapting=adapting), log_steps)
        draw, _ = crew.advance(count)
        pool, log_steps = draw.theta, crew.log_steps()
        found = _followed(draw, best)
        if before is not None and _same(before, found):
            return pool, found._replace(settled=True)
        before = found
    return pool, found


def _followed(draw: Any, best: float) -> Followed:
    theta, v = draw.theta.reshape(-1, draw.theta.shape[-1]), draw.v.ravel()
    fits = part_that_fits(v, best)
    width = spread(theta[fits]) if fits.sum() > 1 else math.nan
    return Followed(theta, v, float(1 - fits.mean()), width, False)


def _same(one: Followed, other: Followed) -> bool:
    if abs(one.outside - other.outside) > SAME_SHARE:
        return False
    if math.isnan(one.spread) or math.isnan(other.spread):
        return math.isnan(one.spread) and math.isnan(other.spread)
    return abs(math.log(one.spread / other.spread)) <= math.log(SAME_SPREAD)


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
