"""λ by the score of held-out data: nothing is simulated.

The last quarter of the data is held out, and the λ is taken that predicts it best. It stands beside
`calibrate`, for comparison.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float

from pcuq._given import check_seed
from pcuq._x64 import x64
from pcuq.calibrate import Tell
from pcuq.data import Data
from pcuq.errors import ComputationError, InputError
from pcuq.kernel_scale import default_lengthscale
from pcuq.objective import Objective
from pcuq.predict import predict
from pcuq.problem import Problem, check_problem
from pcuq.scores import crps
from pcuq.start import starting_fit
from pcuq.sweep import lams_of, predictor_of, refuse_joint_noise, sweep

HELD_OUT = 0.25


@dataclass(frozen=True)
class Selection:
    """The λ that predicts held-out data best, and the score of every λ tried."""

    regularisation: float
    lams: Float[np.ndarray, " L"]
    crps: Float[np.ndarray, " L"]  # mean over held-out entries, each in sds of its output
    held_out: int  # entries
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Everything, as JSON can say it."""
        return {
            "regularisation": self.regularisation,
            "lams": self.lams.tolist(),
            "crps": self.crps.tolist(),
            "held_out": self.held_out,
            "seconds": self.seconds,
        }


@x64
def select_by_score(problem: Problem, seed: int = 0, tell: Tell = lambda line: None) -> Selection:
    """The λ of least CRPS on the last quarter of the data, fitted to the rest."""
    check_problem(problem)
    seed = check_seed(seed)
    refuse_joint_noise(problem)
    began = time.perf_counter()
    kept, held = split(problem.data, seed)
    training = problem.take(kept)
    tell(f"fitting {len(kept)} of {problem.data.n} rows, to predict the others")
    start = starting_fit(training, seed)
    predictor = predictor_of(training, start, seed)
    objective = Objective(training, predictor, default_lengthscale(training))
    lams = lams_of(float(objective.data_terms_of_many(start.best[None])[0]))
    scores = [
        _score(problem, held, followed.theta) for followed in sweep(objective, start, lams, seed)
    ]
    best = int(np.argmin(scores))
    if not np.isfinite(scores[best]):
        raise ComputationError(
            "no λ has draws that predict the rows held out: their outputs cannot be solved, or not "
            "be measured with this noise; use calibrate instead."
        )
    return Selection(
        regularisation=float(lams[best]),
        lams=lams,
        crps=np.array(scores),
        held_out=int(problem.data.observed[held].sum()),
        seconds=time.perf_counter() - began,
    )


def split(data: Data, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows that are kept and held out: the last quarter of covariates, at random without them."""
    if data.x is None:
        order = np.random.default_rng(seed).permutation(data.n)
        held = np.sort(order[: max(1, round(HELD_OUT * data.n))])
    else:
        first = data.x if data.x.ndim == 1 else data.x[:, 0]
        held = np.flatnonzero(first > np.quantile(first, 1 - HELD_OUT, method="lower"))
    kept = np.setdiff1d(np.arange(data.n), held)
    if not len(held) or not len(kept):
        raise InputError(
            "the data cannot be split into a part to fit and a later part to predict: they have "
            "too few different covariates; use calibrate instead."
        )
    return kept, held


def _score(problem: Problem, held: np.ndarray, thetas: np.ndarray) -> float:
    """Mean CRPS of noisy predictions over held-out entries, in sds of the output's data.

    Of draws that can be solved and measured under each condition; ∞ where none can.
    """
    data = problem.data
    unit = np.nanstd(data.y, axis=0)
    unit = np.where(unit > 0, unit, 1.0)
    total, entries = 0.0, 0
    for label in np.unique(data.condition[held]):
        rows = held[data.condition[held] == label]
        x = None if data.x is None else data.x[rows]
        prediction = predict(problem, thetas, x, condition=label, max_draws=500)
        assert prediction.observations is not None
        draws = prediction.observations[prediction.ok][..., problem.columns]
        draws = np.broadcast_to(draws, (len(draws), len(rows), data.d))
        seen = data.observed[rows]
        draws = draws[:, seen]
        # A mean that is no number for this noise, such as a negative count, is a failure too.
        draws = draws[np.isfinite(draws).all(axis=1)]
        if not len(draws):
            return np.inf
        values = crps(draws, data.y[rows][seen])
        total += float(np.sum(values / np.broadcast_to(unit, seen.shape)[seen]))
        entries += int(seen.sum())
    return total / entries
