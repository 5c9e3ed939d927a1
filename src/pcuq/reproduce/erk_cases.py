"""ERK: fitting control cells whose rates rise and fall in time, and predicting a MEK inhibitor.

The inhibitor multiplies beta6 by 0.01: an intervention on the fitted model, of which the data show
nothing. Bands are noise-free, and so is the truth that they are held against, on 0 < x ≤ 60; at
x = 0 everything is known. Outputs combine by a sum: over eleven outputs a product of kernels is
all but zero everywhere, and Q falls back to the prior at once when λ grows a little.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from pcuq.calibrate import calibrate
from pcuq.errors import ComputationError
from pcuq.functionals import Prediction
from pcuq.reproduce.methods import Size
from pcuq.reproduce.rows import Row, convergence, performance
from pcuq.result import Fit
from pcuq.zoo import erk
from pcuq.zoo.erk import ERKData

METHODS = ("bayes", "pcuq")
COMBINE = "sum"
FALLBACK = 2.7e-6  # where no λ meets the definition of λ★
EVERY = 5  # of the truth's times are predicted
TIMES = erk.TRUTH_TIMES[::EVERY]
HORIZON = TIMES > 0
REGIMES = {"inhibited": erk.inhibitor(), "control": None}
SCORED_ON = "noise-free bands on the noise-free truth, all species, 0 < x <= 60"


def calibration(seed: int, size: Size) -> dict[str, Any]:
    """λ★ for these data, or a fixed λ with the reason why there is none."""
    problem = erk.problem(seed, True, combine=COMBINE)
    try:
        return calibrate(problem, replicates=size.calibration_sets, seed=seed).to_dict()
    except ComputationError as error:
        return {"regularisation": FALLBACK, "bound_by": f"nothing: {error}"}


def truth_of(data: ERKData, regime: str) -> np.ndarray:
    """(times, species) at the times that are predicted."""
    return (data.truth if regime == "control" else data.truth_inhibited)[::EVERY]


def score(fitted: Fit, seconds: float, data: ERKData, size: Size):
    """({regime: figures, over all species and for each}, {regime: prediction})."""
    rows, predictions = {}, {}
    for regime, do in REGIMES.items():
        prediction = fitted.predict(TIMES, do=do, noise=False, max_draws=size.most_draws // 4)
        row = convergence(fitted, seconds)
        rows[regime] = row | performance(prediction, truth_of(data, regime), HORIZON)
        rows[regime]["species"] = _by_species(prediction, truth_of(data, regime))
        predictions[regime] = prediction
    return rows, predictions


def _by_species(prediction: Prediction, truth: np.ndarray) -> dict[str, Row]:
    """Share of the horizon over which each band contains the truth, and CRPS, per species."""
    found = {}
    for column, name in enumerate(prediction.outputs):
        one = slice(column, column + 1)
        alone = replace(prediction, trajectories=prediction.trajectories[:, :, one])
        figures = performance(alone, truth[:, one], HORIZON)
        found[name] = {"coverage": figures["coverage"], "crps": figures["crps"]}
    return found


def mean_species(rows: list[Row]) -> dict[str, Row]:
    """Mean coverage per species over replicates, with standard errors."""
    found: dict[str, Row] = {}
    for name in rows[0]["species"]:
        found[name] = {"coverage": {}, "standard_error": {}}
        for level in rows[0]["species"][name]["coverage"]:
            values = np.array([row["species"][name]["coverage"][level] for row in rows])
            error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else None
            found[name]["coverage"][level] = float(values.mean())
            found[name]["standard_error"][level] = None if error is None else float(error)
    return found
