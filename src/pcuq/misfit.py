r"""Where and how predictions miss the data: windows, residuals, PIT, widths of bands.

For draws of what may be measured, with mean m and sd τ at each entry, and the data y,

    r = (y − m) / τ                       standardised residual, on the scale of the noise
    misfit of a window = (mean r²)^½      about 1 where the model is right
    shift of a window  = mean r           above 0 where the data lie above the predictions
    ρ_k = Σ r_t r_{t+k} / Σ r_t²          along each series: one condition and output, by x

None of these has a law that is known exactly, because predictions were fitted to the same data:
what they are compared with is simulated.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from pcuq.problem import Problem

LAGS = 5
MOST_WINDOWS = 8  # of one series
FEWEST = 5  # measurements in a window
BAND = 0.9


@dataclass(frozen=True)
class Windows:
    """Which entries of the data belong together: a stretch of one series each."""

    condition: tuple[str, ...]
    output: tuple[str, ...]
    start: Float[np.ndarray, " W"]
    end: Float[np.ndarray, " W"]
    rows: tuple[Int[np.ndarray, " m"], ...]
    column: Int[np.ndarray, " W"]

    def __len__(self) -> int:
        return len(self.rows)


def series(problem: Problem) -> list[tuple[str, int, Int[np.ndarray, " m"]]]:
    """(condition, column, observed rows in order of the first covariate), none of them empty."""
    data = problem.data
    along = _along(problem)
    found = []
    for label in dict.fromkeys(data.condition.tolist()):
        for column in range(data.d):
            rows = np.flatnonzero((data.condition == label) & data.observed[:, column])
            if len(rows):
                found.append((label, column, rows[np.argsort(along[rows], kind="stable")]))
    return found


def make_windows(problem: Problem) -> Windows:
    """Stretches of as many measurements each as can be; without covariates one for each series."""
    along, parts = _along(problem), []
    for label, column, rows in series(problem):
        count = 1
        if problem.data.x is not None:
            count = max(1, min(MOST_WINDOWS, len(rows) // FEWEST))
        parts += [(label, column, part) for part in np.array_split(rows, count)]
    return Windows(
        condition=tuple(label for label, _, _ in parts),
        output=tuple(problem.outputs[column] for _, column, _ in parts),
        start=np.array([along[rows].min() for *_, rows in parts]),
        end=np.array([along[rows].max() for *_, rows in parts]),
        rows=tuple(rows for *_, rows in parts),
        column=np.array([column for _, column, _ in parts]),
    )


def _along(problem: Problem) -> Float[np.ndarray, " n"]:
    x = problem.data.x
    if x is None:
        return np.arange(float(problem.data.n))
    return x if x.ndim == 1 else x[:, 0]


def residuals(
    y: Float[np.ndarray, "n d"], draws: Float[np.ndarray, "S n d"]
) -> Float[np.ndarray, "n d"]:
    """(y − m) / τ, NaN where nothing was measured."""
    sd = draws.std(axis=0, ddof=1)
    return (y - draws.mean(axis=0)) / np.where(sd > 0, sd, np.inf)


def of_windows(windows: Windows, r: Float[np.ndarray, "n d"]):
    """(misfit, shift) of each window."""
    values = [r[rows, column] for rows, column in zip(windows.rows, windows.column, strict=True)]
    misfit = np.array([np.sqrt(np.mean(value**2)) for value in values])
    return misfit, np.array([value.mean() for value in values])


def gaps(
    windows: Windows, one: Float[np.ndarray, "S n d"], other: Float[np.ndarray, "S n d"]
) -> Float[np.ndarray, " W"]:
    """How far two predictions' means lie apart, root mean square, in sds of the second."""
    sd = other.std(axis=0, ddof=1)
    apart = (one.mean(axis=0) - other.mean(axis=0)) / np.where(sd > 0, sd, np.inf)
    return of_windows(windows, apart)[0]


def autocorrelations(
    problem: Problem, r: Float[np.ndarray, "n d"], lags: int = LAGS
) -> Float[np.ndarray, " L"]:
    """ρ_k for k = 1..lags, over all series together; 0 where none is long enough."""
    above, below = np.zeros(lags), 0.0
    for _, column, rows in series(problem):
        values = r[rows, column]
        below += np.sum(values**2)
        for k in range(1, lags + 1):
            above[k - 1] += np.sum(values[k:] * values[:-k])
    return above / below if below > 0 else above


def pit_distance(pit: Float[np.ndarray, "n d"]) -> float:
    """Mean squared distance of PIT values, in order, from where uniform ones lie on average."""
    values = np.sort(pit[np.isfinite(pit)])
    m = len(values)
    return float(1 / (12 * m**2) + np.mean((values - (np.arange(m) + 0.5) / m) ** 2))


def width_ratios(
    one: Float[np.ndarray, "S n d"],
    other: Float[np.ndarray, "S n d"],
    observed: Bool[np.ndarray, "n d"],
) -> Float[np.ndarray, " d"]:
    """Mean over the measured rows of the width of one's 90 % band, relative to the other's."""
    tails = ((1 - BAND) / 2, (1 + BAND) / 2)
    widths = []
    for draws in (one, other):
        low, high = np.quantile(draws, tails, axis=0)
        total = np.sum(np.where(observed, high - low, 0.0), axis=0)
        widths.append(total)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(observed.any(axis=0), widths[0] / widths[1], np.nan)


def overall(ratios: Float[np.ndarray, " d"]) -> float:
    """Geometric mean over outputs."""
    known = ratios[np.isfinite(ratios) & (ratios > 0)]
    return float(np.exp(np.mean(np.log(known)))) if len(known) else float("nan")
