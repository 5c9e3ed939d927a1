"""One fit in figures: whether it converged, and how well it predicted a truth that is known.

Bands are noise-free and so is the truth. Over replicates every figure becomes its mean, with the
standard error  sd / √R  of that mean beside it.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pcuq import scores
from pcuq.functionals import Prediction
from pcuq.result import Fit, versions

Array = NDArray[np.float64]
Tell = Callable[[str], None]
Row = dict[str, Any]

LEVELS = (0.5, 0.9)
CONVERGENCE = ("rhat_max", "ess_min", "fixed_point_residual")
FIGURES = (*CONVERGENCE, "share_outside_fit", "spread", "crps", "seconds")


def convergence(fitted: Fit, seconds: float) -> Row:
    """What a fit says of itself: null for what its method does not have."""
    figures = fitted.diagnostics
    return {
        "regularisation": number(fitted.tree.attrs["regularisation"]),
        **{name: number(figures.get(name)) for name in (*CONVERGENCE, "share_outside_fit")},
        "spread": number(figures.get("spread")),
        "seconds": round(seconds, 1),
        "status": fitted.status,
        "trusted": fitted.trusted,
    }


def of_one_run(seed: int, size: Any, began: float) -> Row:
    """What a summary says of the run that made it, which began at that tick of the clock."""
    return {
        "replicates": 1,
        "seed": seed,
        "size": asdict(size),
        "versions": versions(),
        "seconds": round(time.perf_counter() - began, 1),
    }


def performance(prediction: Prediction, truth: Array, where: Any = slice(None)) -> Row:
    """Coverage and CRPS of noise-free draws on the noise-free truth (n, d), at the rows `where`."""
    draws = prediction.trajectories[prediction.ok][:, where]
    truth = truth[where]
    return {
        "coverage": {f"{q:g}": number(c) for q, c in scores.coverage(draws, truth, LEVELS).items()},
        "crps": number(np.mean(scores.crps(draws, truth))),
        "failed_predictions": prediction.failed,
    }


def mean_row(rows: Sequence[Row]) -> Row:
    """Means over replicates, standard errors of the figures that are compared, and how many."""
    found: Row = {"regularisation": _mean([row["regularisation"] for row in rows])[0]}
    errors: Row = {}
    for name in FIGURES:
        found[name], errors[name] = _mean([row.get(name) for row in rows])
    coverage = {f"{q:g}": _mean([row["coverage"][f"{q:g}"] for row in rows]) for q in LEVELS}
    found["coverage"] = {level: pair[0] for level, pair in coverage.items()}
    errors["coverage"] = {level: pair[1] for level, pair in coverage.items()}
    worst = [row["rhat_max"] for row in rows if row["rhat_max"] is not None]
    trusted = sum(bool(row["trusted"]) for row in rows)
    return {
        **found,
        "rhat_worst": max(worst, default=None),
        "replicates": len(rows),
        "standard_error": errors,
        "each": {
            "coverage": {f"{q:g}": [row["coverage"][f"{q:g}"] for row in rows] for q in LEVELS},
            "crps": [row["crps"] for row in rows],
        },
        "trusted": trusted == len(rows),
        "status": f"{trusted} of {len(rows)} fits converged.",
    }


def mean_rows(
    label: str, parts: Sequence[Row], methods: Sequence[str], more: str, tell: Tell
) -> dict[str, Row]:
    """The means of each method over parts that have a row of each, `more` a figure besides."""
    found = {}
    for name in methods:
        rows = [part[name] for part in parts]
        found[name] = {**mean_row(rows), more: float(np.mean([row[more] for row in rows]))}
        tell(line(f"{label}, {name}, mean of {len(rows)}", found[name]))
    return found


def line(label: str, row: Row) -> str:
    """What every run prints: R-hat, ESS, the fixed-point residual, and what they come to."""
    parts = [f"{label}: λ {_text(row['regularisation'])}"]
    names = {"rhat_max": "R-hat", "ess_min": "ESS", "fixed_point_residual": "fixed point"}
    parts += [f"{names[key]} {_text(row[key])}" for key in CONVERGENCE]
    if "coverage" in row:
        parts.append("coverage " + " / ".join(_text(c) for c in row["coverage"].values()))
        parts.append(f"CRPS {_text(row['crps'])}")
    return ", ".join(parts) + f", {row['seconds']:.0f} s. {row['status']}"


def number(value: Any) -> float | None:
    """A float that JSON can say, or null."""
    return float(value) if value is not None and math.isfinite(value) else None


def _mean(values: Sequence[float | None]) -> tuple[float | None, float | None]:
    """(mean, its standard error); null where there is nothing, or nothing to compare."""
    known = np.array([value for value in values if value is not None], dtype=float)
    if not known.size:
        return None, None
    error = number(np.std(known, ddof=1) / np.sqrt(known.size)) if known.size > 1 else None
    return float(known.mean()), error


def _text(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"
