"""Lotka–Volterra, well and badly specified: the data, λ★ of a setting, and what is scored.

Data end at x = 60. Predictions are scored on 60 < x ≤ 90, where no method has seen data.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pcuq.calibrate import calibrate
from pcuq.problem import Problem
from pcuq.reproduce.methods import Size
from pcuq.reproduce.rows import Row, convergence, performance
from pcuq.result import Fit
from pcuq.zoo import lotka_volterra
from pcuq.zoo.lotka_volterra import LVData

CASES = {"well-specified": False, "misspecified": True}
LAST_DATUM = 60.0
EVERY = 5  # of the truth's times are predicted
TIMES = lotka_volterra.TRUTH_TIMES[::EVERY]
LATER = TIMES > LAST_DATUM
SCORED_ON = "noise-free bands on the noise-free truth, 60 < x <= 90"
RULE = (
    "A stochastic path is redrawn, before anything is fitted to it, when a population leaves "
    "[-M/10, 5 M] on [0, 90], M being its largest value in the differential equation."
)


def calibration(setting: str, seed: int, size: Size) -> dict[str, Any]:
    """λ★ of a setting and the curves it comes from: found once, on well-specified data."""
    problem = lotka_volterra.problem(seed, False, setting)
    return calibrate(problem, replicates=size.calibration_sets, seed=seed).to_dict()


def score(fitted: Fit, seconds: float, data: LVData, size: Size) -> tuple[Row, Any]:
    """(figures of a fit and of its predictions beyond the data, the prediction)."""
    prediction = fitted.predict(TIMES, noise=False, max_draws=size.most_draws)
    truth = data.truth[::EVERY]
    row = convergence(fitted, seconds) | performance(prediction, truth, LATER)
    row["band_width"] = band_width(prediction)
    return row, prediction


def band_width(prediction) -> float:
    """Mean width of the 90 % band beyond the data."""
    low, high = prediction.band(0.9)
    return float(np.mean((high - low)[LATER]))


def made(seed: int, case: str, setting: str) -> tuple[LVData, Problem]:
    """A data set with its truth, and the problem of fitting it."""
    wrong = CASES[case]
    return (
        lotka_volterra.simulate(seed, wrong, setting),
        lotka_volterra.problem(seed, wrong, setting),
    )
