"""Was the frozen mesh good enough? Its predictions against a tight adaptive solve.

For a sample of the draws: the largest error of a trajectory in units of the kernel's width
(ℓ² + s²)^½, or of how far beyond the data it is where that is more, and what it does to the log
density that was sampled,

    |Δv(θ)|/λ + |Δ mean over the sample of κ0(θ, ·)|/λ.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pcuq._program import Program
from pcuq.errors import ComputationError
from pcuq.likelihood import predictions
from pcuq.objective import Objective, part_that_fits

SAMPLE = 64
TIGHT = 1e-9
TRAJECTORY_TOLERANCE = 0.05  # kernel widths, within the part that fits
DENSITY_TOLERANCE = 0.1  # nine draws in ten change the log density by less


class SolverCheck(NamedTuple):
    """How far the mesh was from a tight solve, and whether that matters."""

    trajectory_error: float  # largest, within the part that fits, in kernel widths
    density_error: float  # 90th percentile over the sample, in nats
    disagreements: int  # draws that one way of solving could solve and the other could not
    worst: np.ndarray  # θ of the draws with the largest errors: a better mesh must serve them
    lost: int = 0  # draws that could be solved when they were drawn, and cannot be now

    @property
    def good(self) -> bool:
        return (
            self.trajectory_error <= TRAJECTORY_TOLERANCE
            and self.density_error <= DENSITY_TOLERANCE
        )


def check_solver(
    objective: Objective, lam: float, thetas: np.ndarray, v: np.ndarray, failed: np.ndarray
) -> SolverCheck:
    """`thetas` (K, p) pooled draws with what is known of them, evenly thinned to a sample here."""
    problem = objective.problem
    index = np.linspace(0, len(thetas) - 1, min(SAMPLE, len(thetas))).round().astype(int)
    sample, fits = thetas[index], part_that_fits(v)[index]

    @Program
    def evaluate(outputs, ok, sample):
        features = objective.features_of(outputs, ok, sample)
        share = jnp.full(len(sample), 1.0 / len(sample))
        rows = objective.pair_rows(features, features, share, exclude_self=True)
        w, s, ok = jax.vmap(lambda *solved: predictions(problem, *solved))(outputs, ok, sample)
        return w, s, ok, objective.data_terms(features), rows

    solved, tight = objective.solve_many(sample), objective.predictor.tightly(sample, TIGHT)
    w, s, ok, v_mesh, rows_mesh = map(np.asarray, evaluate(*solved, sample))
    w_tight, _, ok_tight, v_tight, rows_tight = map(np.asarray, evaluate(*tight, sample))
    lost = ~failed[index] & ~ok
    if lost.any() and not ok.any():
        raise ComputationError(
            f"none of {len(sample)} draws can be solved any more, and {lost.sum()} of them could "
            "when they were drawn: see that the simulator is still there, and go on with resume."
        )
    both = ok & ok_tight
    length = objective.lengthscale[problem.design.columns]
    unit = np.maximum(np.sqrt(length**2 + s**2), _beyond(objective, w_tight))
    error = np.abs(w - w_tight) / unit * problem.design.mask
    error = np.where(both, error.max(axis=(1, 2)), 0.0)
    effect = (np.abs(v_mesh - v_tight) + np.abs(rows_mesh - rows_tight)) / lam
    worst = np.argsort(-np.where(fits, error, 0.0) - effect)[:16]
    return SolverCheck(
        trajectory_error=float(np.max(np.where(fits & both, error, 0.0))),
        density_error=float(np.quantile(effect, 0.9)),
        disagreements=int(np.sum(ok != ok_tight)),
        worst=sample[worst],
        lost=int(lost.sum()),
    )


def _beyond(objective: Objective, w: np.ndarray) -> np.ndarray:
    """How far each prediction (…, M, k) is from the range of the data of its output."""
    design = objective.problem.design
    low, high = np.zeros(w.shape[-2:]), np.zeros(w.shape[-2:])
    for column in np.unique(design.columns[design.mask]):
        seen = objective.y[design.datum_mask & (design.datum_columns == column)]
        here = design.columns == column
        low[here], high[here] = seen.min(), seen.max()
    return np.maximum(np.maximum(low - w, w - high), 0.0)
