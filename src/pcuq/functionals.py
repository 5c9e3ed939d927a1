r"""What is read off predictions given as draws: means, bands, contrasts, peaks, times.

With weights w_s of draws z_s, equal ones by default,

    mean        Σ w_s z_s / Σ w_s
    quantile q  interpolated linearly between draws of equal weight, as numpy does; with unequal
                weights the least z whose draws up to it hold at least the share q
    band        the quantiles (1 − level)/2 and (1 + level)/2

and for a curve w(x) on its points, with straight lines between them,

    peak  max w      time of peak  argmax w      area  ∫ w dx      time to c  min {x : w(x) ≥ c}.

NaN means that a draw has no value: it is left out. A curve that never reaches c has time ∞.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pcuq.errors import InputError

if TYPE_CHECKING:
    import pandas as pd
    import xarray as xr

Array = NDArray[np.float64]

QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
DIRECTIONS = ("up", "down")
# Sums of weights are rounded: a share this much too small still counts as reached.
SLACK = 1e-12


@dataclass(frozen=True, eq=False)
class Prediction:
    """S draws of n points of d outputs, in natural units.

    `trajectories` (S, n, d) are free of noise and `observations` (S, n, d) have it, None if it was
    left out. Draws whose solve failed are NaN, are counted by `failed`, and take no part in means
    and quantiles. `thetas` (S, p) are the draws, `draws` (S,) their rows among the `given` ones,
    `weights` (S,) sum to one, or are None where all are equal. `solver` says how it was solved.
    """

    x: Array | None
    outputs: tuple[str, ...]
    trajectories: Array
    observations: Array | None
    weights: Array | None
    thetas: Array
    draws: NDArray[np.int_]
    given: int
    seed: int | None
    solver: dict[str, Any]

    def __repr__(self) -> str:
        s, n, _ = self.trajectories.shape
        return (
            f"Prediction({s} of {self.given} draws, {self.failed} failed; {n} points; "
            f"{', '.join(self.outputs)})"
        )

    @property
    def ok(self) -> NDArray[np.bool_]:
        """(S,) True where the solve succeeded."""
        return np.isfinite(self.trajectories[:, 0, 0])

    @property
    def failed(self) -> int:
        """The number of draws whose solve failed."""
        return int(np.sum(~self.ok))

    @property
    def thinned(self) -> bool:
        """Whether only some of the given draws are here."""
        return len(self.draws) < self.given

    def mean(self, noisy: bool = False) -> Array:
        """(n, d) mean over draws."""
        return mean(*self._usable(noisy))

    def quantile(self, q: ArrayLike, noisy: bool = False) -> Array:
        """(n, d) quantile over draws, or (len(q), n, d)."""
        values, weights = self._usable(noisy)
        return quantile(values, q, weights)

    def band(self, level: float = 0.9, noisy: bool = False) -> tuple[Array, Array]:
        """(low, high), each (n, d): the central band at every point."""
        values, weights = self._usable(noisy)
        return band(values, level, weights)

    def contrast(self, other: Prediction) -> Prediction:
        """self − other, draw by draw: the effect of what differs between them.

        Both need the same draws, points and outputs. Predictions with one seed have the same noise
        in the same draw, which would cancel here and make a measured difference look too certain:
        then the contrast has no observations. Give one of them another `seed` to get them.
        """
        if not isinstance(other, Prediction):
            raise InputError(f"`other` needs a Prediction: got {type(other).__name__}.")
        if not (
            np.array_equal(self.draws, other.draws)
            and np.array_equal(self.thetas, other.thetas)
            and _same(self.weights, other.weights)
        ):
            raise InputError(
                f"a contrast needs two predictions from the same draws: got {len(self.draws)} and "
                f"{len(other.draws)} that differ; predict both from one fit with equal options."
            )
        if self.outputs != other.outputs or not _same(self.x, other.x):
            raise InputError("a contrast needs two predictions of the same outputs at the same x.")
        observations = None
        independent = None not in (self.seed, other.seed) and self.seed != other.seed
        if independent and self.observations is not None and other.observations is not None:
            observations = self.observations - other.observations
        return replace(
            self,
            trajectories=self.trajectories - other.trajectories,
            observations=observations,
            seed=None,
            solver={"of": self.solver, "minus": other.solver},
        )

    def functional(
        self, f: Callable[[Any, dict[str, Array]], Any], name: str | None = None
    ) -> Functional:
        """f(x, w) of every noise-free draw, w being {output: (n,)}: a number, or an array."""
        name = name or str(getattr(f, "__name__", "functional"))
        found = [
            np.asarray(f(self.x, dict(zip(self.outputs, w.T, strict=True))), dtype=float)
            for w in self.trajectories[self.ok]
        ]
        if len({value.shape for value in found}) != 1:
            raise InputError(f"{name!r} needs values of one shape: got several.")
        values = np.full((len(self.draws), *found[0].shape), np.nan)
        values[self.ok] = found
        return Functional(name, values, self.weights)

    def peak(self, output: str) -> Functional:
        """The largest value of an output over x."""
        return self._named(f"peak of {output}", peak(self._curves(output)))

    def time_of_peak(self, output: str) -> Functional:
        """The x at which an output is largest, the first if there are several."""
        found = time_of_peak(self._times(), self._curves(output))
        return self._named(f"time of peak of {output}", found)

    def time_to_threshold(self, output: str, threshold: float, direction: str = "up") -> Functional:
        """The first x at which an output is at least the threshold ("up") or at most ("down").

        Straight lines between the points; ∞ where it is never reached, which `.never` counts.
        """
        found = time_to_threshold(self._times(), self._curves(output), threshold, direction)
        return self._named(f"time of {output} {direction} to {threshold:g}", found)

    def area_under_curve(self, output: str) -> Functional:
        """∫ of an output over x, by the trapezium rule."""
        found = area_under_curve(self._times(), self._curves(output))
        return self._named(f"area under {output}", found)

    def to_frame(self) -> pd.DataFrame:
        """A row per point and output: x, output, mean, q05 … q95, then noisy_mean, noisy_q05 …

        Points without covariate have no x; several covariates are x0, x1, …
        """
        import pandas as pd

        n, d = self.trajectories.shape[1:]
        columns: dict[str, Any] = {}
        if self.x is not None:
            for i, series in enumerate(self.x.reshape(n, -1).T):
                columns["x" if self.x.ndim == 1 else f"x{i}"] = np.repeat(series, d)
        columns["output"] = np.tile(np.array(self.outputs, dtype=object), n)
        for noisy in (False, True) if self.observations is not None else (False,):
            prefix = "noisy_" if noisy else ""
            columns[f"{prefix}mean"] = self.mean(noisy).reshape(-1)
            for q, values in zip(QUANTILES, self.quantile(QUANTILES, noisy), strict=True):
                columns[f"{prefix}q{round(100 * q):02d}"] = values.reshape(-1)
        return pd.DataFrame(columns)

    def to_dataset(self) -> xr.Dataset:
        """Every draw, with dims (sample, x, output)."""
        import xarray as xr

        dims = ("sample", "x", "output")
        variables: dict[str, Any] = {"trajectories": (dims, self.trajectories)}
        if self.observations is not None:
            variables["observations"] = (dims, self.observations)
        if self.weights is not None:
            variables["weights"] = ("sample", self.weights)
        coordinates: dict[str, Any] = {"sample": self.draws, "output": list(self.outputs)}
        if self.x is not None:
            if self.x.ndim == 1:
                coordinates["x"] = self.x
            else:
                variables["covariates"] = (("x", "covariate"), self.x)
        return xr.Dataset(
            variables, coordinates, attrs={"failed": self.failed, "given": self.given}
        )

    def _usable(self, noisy: bool) -> tuple[Array, Array | None]:
        values = self.observations if noisy else self.trajectories
        if values is None:
            raise InputError(
                "this prediction has no observations: predict with noise=True, and for a contrast "
                "with another `seed` in one of the two."
            )
        if self.failed == 0:
            return values, self.weights
        return values[self.ok], None if self.weights is None else self.weights[self.ok]

    def _named(self, name: str, values: Array) -> Functional:
        return Functional(name, values, self.weights)

    def column(self, output: str) -> int:
        """Where an output stands among the others."""
        if output not in self.outputs:
            raise InputError(f"unknown output {output!r}: there are {', '.join(self.outputs)}.")
        return self.outputs.index(output)

    def _curves(self, output: str) -> Array:
        return self.trajectories[:, :, self.column(output)]

    def _times(self) -> Array:
        if self.x is None or self.x.ndim != 1:
            raise InputError("this needs a prediction along one covariate: use .functional(f).")
        return self.x


@dataclass(frozen=True, eq=False)
class Functional:
    """One value (or array of values) for every draw: NaN where the draw failed.

    `values` (S, ...), draw by draw as in the prediction it comes from, so that values under two
    interventions may be subtracted. A time that is never reached is ∞: it makes the mean ∞, enters
    quantiles as larger than every time, and is counted by `never`.
    """

    name: str
    values: Array
    weights: Array | None = None

    def __repr__(self) -> str:
        return f"Functional({self.name!r}, {len(self.values)} draws, never={self.never})"

    @property
    def never(self) -> int:
        """The number of infinite values: draws in which it never happens."""
        return int(np.sum(np.isinf(self.values)))

    @property
    def failed(self) -> int:
        """The number of draws without a value."""
        return int(np.sum(np.isnan(self.values).reshape(len(self.values), -1).any(axis=1)))

    def mean(self):
        """The weighted mean."""
        return mean(self.values, self.weights)[()]

    def quantile(self, q: ArrayLike):
        """The quantile q, or an array of quantiles along the first axis."""
        return quantile(self.values, q, self.weights)[()]

    def band(self, level: float = 0.9):
        """(low, high) of the central band."""
        return band(self.values, level, self.weights)


def mean(values: Array, weights: Array | None = None) -> Array:
    """Σ w_s z_s / Σ w_s over the first axis, NaN left out; NaN where nothing is left."""
    missing = np.isnan(values)
    if weights is None and len(values) and not missing.any():
        return np.asarray(np.mean(values, axis=0))
    share = np.ones(len(values)) if weights is None else weights
    share = share.reshape(-1, *[1] * (values.ndim - 1))
    used = ~missing & (share > 0)  # zero times infinity is no number
    share = np.broadcast_to(share, values.shape)
    with np.errstate(invalid="ignore", divide="ignore"):
        total = np.sum(share, axis=0, where=used)
        weighed = np.multiply(values, share, out=np.zeros_like(values), where=used)
        return np.asarray(np.sum(weighed, axis=0) / total)


def quantile(values: Array, q: ArrayLike, weights: Array | None = None) -> Array:
    """Quantiles over the first axis, q.shape + values.shape[1:]; NaN as in `mean`."""
    q = np.asarray(q, dtype=float)
    if not np.all((q >= 0) & (q <= 1)):
        raise InputError(f"a quantile needs a share between 0 and 1: got {q}.")
    if not len(values):
        return np.full((*q.shape, *values.shape[1:]), np.nan)
    if weights is not None and np.all(weights == weights[0]):
        weights = None
    if weights is None and np.isfinite(values).all():
        return np.asarray(np.quantile(values, q, axis=0))
    found = _interpolated(values, q) if weights is None else _inverted(values, q, weights)
    return found.reshape((*q.shape, *values.shape[1:]))


def band(values: Array, level: float, weights: Array | None = None) -> tuple[Array, Array]:
    """The central band that holds the share `level`."""
    if not 0 < level < 1:
        raise InputError(f"`level` needs a number between 0 and 1: got {level!r}.")
    low, high = quantile(values, [0.5 - level / 2, 0.5 + level / 2], weights)
    return low, high


def peak(w: Array) -> Array:
    """max w for curves (S, n)."""
    return np.max(w, axis=1)


def time_of_peak(x: Array, w: Array) -> Array:
    """Where w is largest, at first."""
    order = np.argsort(x, kind="stable")
    w = w[:, order]
    at = x[order][np.argmax(w, axis=1)]
    return np.where(np.isnan(w).any(axis=1), np.nan, at)


def area_under_curve(x: Array, w: Array) -> Array:
    """∫ w dx by the trapezium rule."""
    order = np.argsort(x, kind="stable")
    return np.asarray(np.trapezoid(w[:, order], x[order], axis=1))


def time_to_threshold(x: Array, w: Array, threshold: float, direction: str = "up") -> Array:
    """min {x : w(x) ≥ threshold}, or ≤ for "down"; ∞ where it is never reached."""
    if direction not in DIRECTIONS:
        raise InputError(f"`direction` needs one of {', '.join(DIRECTIONS)}: got {direction!r}.")
    order = np.argsort(x, kind="stable")
    x, w = x[order], w[:, order]
    above = w - threshold if direction == "up" else threshold - w
    reached = above >= 0
    first = np.argmax(reached, axis=1)
    draws, before = np.arange(len(w)), np.maximum(first - 1, 0)
    after, missing = above[draws, first], -above[draws, before]
    with np.errstate(invalid="ignore", divide="ignore"):
        crossing = x[before] + (x[first] - x[before]) * missing / (missing + after)
    time = np.where(first == 0, x[0], crossing)
    time = np.where(reached.any(axis=1), time, np.inf)
    return np.where(np.isnan(w).any(axis=1), np.nan, time)


def _interpolated(values: Array, q: Array) -> Array:
    """Linear interpolation at q (m − 1) between the m sorted draws that have a value."""
    values = values.reshape(len(values), -1)
    ordered = np.sort(values, axis=0)  # NaN last
    last = np.sum(~np.isnan(values), axis=0) - 1
    place = q.reshape(-1, 1) * np.maximum(last, 0)
    below = np.floor(place).astype(int)
    part = place - below
    low = np.take_along_axis(ordered, below, axis=0)
    high = np.take_along_axis(ordered, np.ceil(place).astype(int), axis=0)
    with np.errstate(invalid="ignore"):
        between = low + part * (high - low)
    # Equal neighbours may both be infinite, and minus infinity plus anything is itself.
    return np.where((part == 0) | (low == high) | np.isneginf(low), low, between)


def _inverted(values: Array, q: Array, weights: Array) -> Array:
    """The least draw up to which the weights hold the share q."""
    values = values.reshape(len(values), -1)
    order = np.argsort(values, axis=0)
    share = np.where(np.isnan(values), 0.0, weights[:, None])
    total = np.cumsum(np.take_along_axis(share, order, axis=0), axis=0)
    ordered = np.take_along_axis(values, order, axis=0)
    found = np.empty((q.size, values.shape[1]))
    for i, wanted in enumerate(q.reshape(-1)):
        enough = (total >= wanted * total[-1] * (1 - SLACK)) & (total > 0)
        found[i] = np.take_along_axis(ordered, np.argmax(enough, axis=0)[None], axis=0)[0]
    return np.where(total[-1] > 0, found, np.nan)


def _same(a: Array | None, b: Array | None) -> bool:
    if a is None or b is None:
        return a is b
    return np.array_equal(a, b)
