"""Short runs of Bayes and of PCUQ whose data are an argument: a program for all data of a design.

A run begins at the best fit and goes through a few stages; each stage shapes its moves by the
positions of the one before, and the last one is kept. The data stand in the tuning, which a sampler
hands to everything that it evaluates. Jumps of PCUQ can always reach the best fit, as in `anchors`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from pcuq.baselines import bayes
from pcuq.objective import Objective
from pcuq.samplers.base import Crew
from pcuq.samplers.ensemble import Ensemble, ParallelEnsemble, Particles
from pcuq.samplers.mixture import Mixture, student_mixture
from pcuq.start import Start

PARTICLES = 50
# Iterations of each stage, and how wide positions are scattered about the fit, in its sds.
PCUQ_STAGES, PCUQ_WIDTH, PCUQ_LOG_STEP = (48, 48, 48, 72), 3.0, -2.0
BAYES_STAGES, BAYES_WIDTH, BAYES_LOG_STEP = (30, 45, 75), 1.0, -0.5
ANCHOR_WIDTH = 6.0  # covariance of jumps that stay at the fit, relative to the posterior's
LENGTHS = (PARTICLES, PCUQ_STAGES, BAYES_STAGES, ANCHOR_WIDTH)


class DataTuning(NamedTuple):
    """The tuning of an ensemble, with the data of the run."""

    mixture: Mixture
    lam: Array
    adapting: Array
    y: Array


class _Runs:
    """Runs of one sampler."""

    def __init__(self, sampler: Ensemble, stages: tuple[int, ...], width: float, log_step: float):
        self.sampler, self.stages, self.width, self.log_step = sampler, stages, width, log_step
        self._crew = Crew(sampler, 1, 0, max(stages))

    def draws(self, start: Start, y: np.ndarray, seed: int) -> Float[np.ndarray, "K p"]:
        """Positions of the last stage, oldest first."""
        crew, p = self._crew.another(seed), len(start.best)
        noise = np.asarray(jax.random.normal(jax.random.key(seed), (PARTICLES, p)))
        thetas = start.scattered(noise, self.width)

        moves = self.moves(start)

        def tune(pool):
            return DataTuning(*moves.shaped_by(pool), jnp.asarray(y))

        draw = crew.in_stages(thetas[None, None], self.stages, np.full(1, self.log_step), tune)
        return draw.theta.reshape(-1, p)

    def moves(self, start: Start) -> Ensemble:
        """What shapes the moves of a run that begins there."""
        return self.sampler


class PcuqRuns(_Runs):
    """Of particle systems; y is on the scale of the kernels."""

    def __init__(self, objective: Objective, lam: float):
        super().__init__(_DataEnsemble(objective, lam), PCUQ_STAGES, PCUQ_WIDTH, PCUQ_LOG_STEP)

    def moves(self, start: Start) -> Ensemble:
        """With jumps to the fit, which would otherwise be lost where all particles leave it."""
        anchor = student_mixture(start.best[None], ANCHOR_WIDTH * start.covariance[None])
        return Ensemble(self.sampler.objective, self.sampler.lam, anchor)


class BayesRuns(_Runs):
    """Of chains of the posterior; y is as measured, NaN where it was not."""

    def __init__(self, objective: Objective):
        densities = bayes.log_posteriors(objective.problem, objective.predictor)
        sampler = _DataParallelEnsemble(densities, objective.problem.parameters)
        super().__init__(sampler, BAYES_STAGES, BAYES_WIDTH, BAYES_LOG_STEP)


class _DataEnsemble(Ensemble):
    def evaluate(self, thetas: Float[Array, "N p"], tuning: Any) -> Particles:
        return Ensemble(self.objective.given(tuning.y), self.lam).evaluate(thetas, tuning)


class _DataParallelEnsemble(ParallelEnsemble):
    def log_densities(self, thetas: Float[Array, "N p"], tuning: Any):
        return self._log_densities(thetas, tuning.y)
