r"""How good is a forecast given as draws: CRPS, energy score, bands, PIT.

For a forecast F with independent X, X' ~ F, and what happened, y,

    CRPS(F, y)  = E|X - y| - 1/2 E|X - X'|                energy score: norms over the outputs
    interval(y) = (u - l) + 2/a (l - y)+ + 2/a (y - u)+    (l, u) the central 1 - a band
    PIT         = F(y-) + U (F(y) - F(y-))                 uniform when F is calibrated

All are small when the forecast is sharp and right (PIT apart). `samples` is (S, ...) and `truth`
is (...); `weights` (S,) defaults to equal ones. A missing truth is NaN: it scores NaN pointwise and
is left out of averages, and `summarise` counts it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scoringrules
from numpy.typing import ArrayLike, NDArray
from scipy.spatial.distance import cdist

from pcuq.errors import InputError

Array = NDArray[np.float64]

BLOCK = 512  # rows of the pair matrix held at once by the energy score


def summarise(
    samples: ArrayLike,
    truth: ArrayLike,
    levels: Sequence[float] = (0.5, 0.9),
    weights: ArrayLike | None = None,
) -> dict[str, Any]:
    """Averages of every score over the observed entries, ready for JSON.

    The last axis of `truth` is taken as the outputs for the energy score.
    """
    x, y, w = _checked(samples, truth, weights)
    missing = int(np.isnan(y).sum())
    return {
        "crps": _mean(crps(x, y, w)),
        "crps_fair": _mean(crps(x, y, w, fair=True)),
        "energy_score": _mean(energy_score(x, y, w)) if y.ndim else _mean(crps(x, y, w)),
        "coverage": {f"{q:g}": c for q, c in coverage(x, y, levels, w).items()},
        "interval_score": {f"{q:g}": _mean(interval_score(x, y, q, w)) for q in levels},
        "mean_squared_z": mean_squared_z(x, y, w),
        "scored": y.size - missing,
        "missing": missing,
    }


def crps(
    samples: ArrayLike, truth: ArrayLike, weights: ArrayLike | None = None, fair: bool = False
) -> Array:
    """E|X - y| - 1/2 E|X - X'|, exactly, for each entry.

    The plain version scores the draws as if they were the forecast. The fair one divides the pair
    term by 1 - sum w^2, leaving out each draw's distance to itself: it is unbiased for the score of
    the distribution that independent draws came from, and NaN for a single draw.
    """
    x, y, w = _checked(samples, truth, weights)
    members = np.moveaxis(x, 0, -1)
    # "qd" is exact and sorts; the other estimators build the S x S matrix or approximate it
    plain = scoringrules.crps_ensemble(
        np.nan_to_num(y), members, ens_w=np.broadcast_to(w, members.shape), estimator="qd",
        backend="numpy",
    )  # fmt: skip
    if fair:
        distance = np.abs(members - y[..., None]) @ w
        plain = distance - (distance - plain) / _not_self(w)
    return np.where(np.isnan(y), np.nan, plain)[()]


def energy_score(
    samples: ArrayLike,
    truth: ArrayLike,
    weights: ArrayLike | None = None,
    fair: bool = False,
    scale: ArrayLike | None = None,
) -> Array:
    """E||X - y|| - 1/2 E||X - X'||, norms over the last axis (the outputs), for each row.

    Outputs that are missing in a row are left out of its norms; a row with none is NaN. `scale`
    divides the outputs first, so that the largest one does not drown the rest. Fair as in `crps`.
    """
    x, y, w = _checked(samples, truth, weights)
    if y.ndim == 0:
        raise InputError("the energy score needs outputs on the last axis of truth: got a number.")
    if scale is not None:
        x, y = x / np.asarray(scale), y / np.asarray(scale)
    rows, values = y.reshape(-1, y.shape[-1]), x.reshape(len(w), -1, y.shape[-1])
    pair_factor = 0.5 / (_not_self(w) if fair else 1.0)
    answer = np.full(len(rows), np.nan)
    for r, row in enumerate(rows):
        seen = ~np.isnan(row)
        if seen.any():
            draws = values[:, r, seen]
            to_truth = w @ np.linalg.norm(draws - row[seen], axis=1)
            answer[r] = to_truth - pair_factor * _mean_pair_distance(draws, w)
    return answer.reshape(y.shape[:-1])[()]


def coverage(
    samples: ArrayLike,
    truth: ArrayLike,
    levels: Sequence[float] = (0.5, 0.9),
    weights: ArrayLike | None = None,
) -> dict[float, float]:
    """Share of observed entries inside the central band, for each level; its edges count as in."""
    x, y, w = _checked(samples, truth, weights)
    answer = {}
    for level in levels:
        lower, upper = _band(x, level, w)
        answer[float(level)] = _mean(np.where(np.isnan(y), np.nan, (lower <= y) & (y <= upper)))
    return answer


def interval_score(
    samples: ArrayLike, truth: ArrayLike, level: float = 0.9, weights: ArrayLike | None = None
) -> Array:
    """Winkler's score of the central band: its width, plus 2/a times the distance outside it."""
    x, y, w = _checked(samples, truth, weights)
    lower, upper = _band(x, level, w)
    outside = np.maximum(lower - y, 0.0) + np.maximum(y - upper, 0.0)
    return ((upper - lower) + 2.0 / (1.0 - level) * outside)[()]


def pit(
    samples: ArrayLike,
    truth: ArrayLike,
    weights: ArrayLike | None = None,
    rng: np.random.Generator | int = 0,
) -> Array:
    """F(y-) + U (F(y) - F(y-)), U uniform, for each entry.

    Without weights F counts the truth as one more draw, so that the value is exactly uniform for
    any number of draws when truth and draws are exchangeable, ties included.
    """
    x, y, w = _checked(samples, truth, weights)
    u = np.random.default_rng(rng).random(y.shape)
    below = np.tensordot(w, x < y, axes=1)
    equal = np.tensordot(w, x == y, axes=1)
    if weights is None:
        s = len(w)
        below, equal = below * s / (s + 1), (equal * s + 1) / (s + 1)
    return np.where(np.isnan(y), np.nan, below + u * equal)[()]


def mean_squared_z(samples: ArrayLike, truth: ArrayLike, weights: ArrayLike | None = None) -> float:
    """Mean of ((y - mean) / sd)^2: 1 when the spread is right, large when it is too small.

    An entry without spread counts 0 when it is met exactly, and inf when it is not.
    """
    x, y, w = _checked(samples, truth, weights)
    # where all draws are equal, the rounding of their mean must not be taken for an error
    constant = np.ptp(x, axis=0) == 0.0
    mean = np.where(constant, x[0], np.tensordot(w, x, axes=1))
    variance = np.where(constant, 0.0, np.tensordot(w, (x - mean) ** 2, axes=1))
    error2 = (y - mean) ** 2
    with np.errstate(divide="ignore", invalid="ignore"):
        return _mean(np.where(error2 == 0.0, 0.0, error2 / variance))


# -- helpers ---------------------------------------------------------------------------------------


def _checked(
    samples: ArrayLike, truth: ArrayLike, weights: ArrayLike | None
) -> tuple[Array, Array, Array]:
    x, y = np.asarray(samples, dtype=np.float64), np.asarray(truth, dtype=np.float64)
    if x.ndim != y.ndim + 1 or x.shape[1:] != y.shape or x.shape[0] == 0:
        raise InputError(
            f"samples need shape (draws, *truth.shape): got {x.shape} for a truth of {y.shape}."
        )
    if np.isinf(y).any():
        raise InputError("truth has infinite entries: mark what was not observed as NaN.")
    failed = int(
        (~np.isfinite(np.where(np.isnan(y), 0.0, x))).any(axis=tuple(range(1, x.ndim))).sum()
    )
    if failed:
        raise InputError(
            f"{failed} of {len(x)} draws are not finite where the truth is known: "
            "drop failed draws first, and report how many."
        )
    x = np.where(np.isnan(y), 0.0, x)
    if weights is None:
        return x, y, np.full(len(x), 1.0 / len(x))
    w = np.asarray(weights, dtype=np.float64)
    if w.shape != (len(x),) or not np.isfinite(w).all() or (w < 0).any() or w.sum() <= 0:
        raise InputError(
            f"weights need {len(x)} finite non-negative numbers, not all zero: got shape {w.shape}."
        )
    return x, y, w / w.sum()


def _band(x: Array, level: float, w: Array) -> tuple[Array, Array]:
    if not 0.0 < level < 1.0:
        raise InputError(f"a level needs to lie between 0 and 1: got {level}; 0.9 is 90 per cent.")
    tails = [(1.0 - level) / 2.0, (1.0 + level) / 2.0]
    if np.ptp(w) == 0.0:
        lower, upper = np.quantile(x, tails, axis=0)
    else:
        lower, upper = np.quantile(x, tails, axis=0, weights=w, method="inverted_cdf")
    return lower, upper


def _not_self(w: Array) -> float:
    """1 - sum w^2: the chance that two draws are not the same one; NaN when they always are."""
    chance = 1.0 - float(w @ w)
    return chance if chance > 1e-12 else np.nan


def _mean_pair_distance(draws: Array, w: Array) -> float:
    """sum_ij w_i w_j ||x_i - x_j||, in blocks of rows: never the whole S x S matrix."""
    total = 0.0
    for start in range(0, len(w), BLOCK):
        rows = slice(start, start + BLOCK)
        total += w[rows] @ (cdist(draws[rows], draws) @ w)
    return float(total)


def _mean(values: ArrayLike) -> float:
    x = np.asarray(values, dtype=np.float64)
    seen = x[~np.isnan(x)]
    return float(seen.mean()) if seen.size else float("nan")
