"""Bayes and PCUQ on many data sets of one design, in short runs, and how far apart they predict.

    T = MMD²(P_Q, P_B) = ∬ κ0 dQ dQ − 2 ∬ κ0 dQ dB + ∬ κ0 dB dB,

Q the draws of PCUQ and B those of Bayes, in the kernel of the problem with the noise integrated
out. A draw is left out of the integral with itself: T has no bias, and may fall below zero. The
runs are as short as those of a calibration; what they lack in accuracy they lack for every data set
alike, simulated or not, and a comparison between these stays fair.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from pcuq import misfit
from pcuq._program import Program
from pcuq.errors import ComputationError
from pcuq.kernel_scale import on_kernel_scale
from pcuq.objective import Objective
from pcuq.predict import sample_rows
from pcuq.problem import Predictor, Problem
from pcuq.runs import BayesRuns, PcuqRuns
from pcuq.scores import pit
from pcuq.start import Start, climber

PAIRED = 500  # draws of either that T is computed from
PREDICTED = 256  # draws of either that are predicted with


class Figures(NamedTuple):
    """What one data set says; all are arrays, to be stacked over data sets."""

    statistic: Float[np.ndarray, ""]
    width: Float[np.ndarray, " d"]  # of bands for measurements, PCUQ relative to Bayes
    curve_width: Float[np.ndarray, " d"]  # of bands for the curve beneath them
    misfit: Float[np.ndarray, " W"]
    shift: Float[np.ndarray, " W"]
    gap: Float[np.ndarray, " W"]
    autocorrelation: Float[np.ndarray, " L"]
    pit_distance: Float[np.ndarray, ""]


class Predicted(NamedTuple):
    """Draws at the rows of the data: curves w and measurements y, in the data's units."""

    theta: Float[np.ndarray, "S p"]
    w: Float[np.ndarray, "S n d"]
    y: Float[np.ndarray, "S n d"]


class Refit(NamedTuple):
    """Both fits of one data set."""

    figures: Figures
    bayes: Predicted
    pcuq: Predicted
    pit: Float[np.ndarray, "n d"]
    residuals: Float[np.ndarray, "n d"]


class Refitter:
    """Fits other data of the problem's design; what is compiled is compiled once."""

    def __init__(self, problem: Problem, predictor: Predictor, lengthscale, lam: float):
        self.problem = problem
        self.objective = Objective(problem, predictor, lengthscale)
        self.climb = climber(problem, predictor)
        self.windows = misfit.make_windows(problem)
        self._bayes, self._pcuq = BayesRuns(self.objective), PcuqRuns(self.objective, lam)
        self._apart = Program(pair_integrals(self.objective))
        self._measure = Program(lambda *args: sample_rows(problem, *args))

    def __call__(self, problem: Problem, start: Start, seed: int) -> Refit:
        """Both methods, from the best fit to this problem's data."""
        y = problem.data.y
        bayes = self._bayes.draws(start, y, seed)
        pcuq = self._pcuq.draws(start, on_kernel_scale(problem), seed)
        by_bayes = self._predicted(_some(bayes, PREDICTED), seed)
        by_pcuq = self._predicted(_some(pcuq, PREDICTED), seed)
        y, bayes_y, pcuq_y = (on_noise_scale(problem, v) for v in (y, by_bayes.y, by_pcuq.y))
        residuals, values = misfit.residuals(y, bayes_y), pit(bayes_y, y, rng=seed)
        misfits, shifts = misfit.of_windows(self.windows, residuals)
        seen = problem.data.observed
        figures = Figures(
            statistic=np.asarray(self.apart(_some(pcuq, PAIRED), _some(bayes, PAIRED))),
            width=misfit.width_ratios(pcuq_y, bayes_y, seen),
            curve_width=misfit.width_ratios(by_pcuq.w, by_bayes.w, seen),
            misfit=misfits,
            shift=shifts,
            gap=misfit.gaps(self.windows, pcuq_y, bayes_y),
            autocorrelation=misfit.autocorrelations(problem, residuals),
            pit_distance=np.asarray(misfit.pit_distance(values)),
        )
        return Refit(figures, by_bayes, by_pcuq, values, residuals)

    def apart(self, q: Float[np.ndarray, "A p"], b: Float[np.ndarray, "B p"]) -> float:
        """MMD²(P_Q, P_B) of draws of Q and of B, without bias."""
        solved_q, solved_b = self.objective.solve_many(q), self.objective.solve_many(b)
        return float(self._apart(q, solved_q, b, solved_b))

    def _predicted(self, thetas: Float[np.ndarray, "S p"], seed: int) -> Predicted:
        outputs, ok = self.objective.solve_many(thetas)
        if ok.sum() < 2:
            raise ComputationError(
                f"the model could be solved for {int(ok.sum())} of {len(ok)} draws: nothing is "
                "predicted that could be compared; narrow the priors."
            )
        # The number of draws stays, so that one program serves: others stand for those that failed.
        good = np.resize(np.flatnonzero(ok), len(ok))
        thetas, w = thetas[good], outputs[good][:, self.problem.points.of_row]
        y = np.asarray(self._measure(jax.random.key(seed), thetas, w))
        w = w[:, :, self.problem.columns]
        # Where the noise cannot make a measurement, such as a count about zero: the curve itself.
        return Predicted(thetas, w, np.where(np.isnan(y), w, y))


def pair_integrals(objective: Objective):
    """(q, its solves, b, its solves) ↦ MMD²(P_Q, P_B), self-pairs left out."""

    def among(features):
        count = len(features.ok)
        rows = objective.pair_rows(features, features, jnp.ones(count), exclude_self=True)
        return jnp.sum(rows) / (count * (count - 1))

    def value(q, solved_q, b, solved_b):
        of_q, of_b = objective.features_of(*solved_q, q), objective.features_of(*solved_b, b)
        across = objective.pair_rows(of_q, of_b, jnp.full(len(b), 1.0 / len(b)))
        return among(of_q) - 2 * jnp.mean(across) + among(of_b)

    return value


def on_noise_scale(problem: Problem, y: Float[np.ndarray, "... d"]) -> np.ndarray:
    """y after the transform that makes the noise additive, such as the logarithm."""
    columns = []
    for c, noise in enumerate(problem.data.noises):
        values = y[..., c]
        if noise.transform != "identity":
            # What cannot be measured on that scale lies below everything that can.
            values = np.where(np.isnan(values), np.nan, np.maximum(values, np.finfo(float).tiny))
        columns.append(np.asarray(noise.forward(values)))
    return np.stack(columns, axis=-1)


def _some(thetas: Float[np.ndarray, "K p"], count: int) -> np.ndarray:
    """As many, evenly in time."""
    return thetas[np.linspace(0, len(thetas) - 1, count).round().astype(int)]
