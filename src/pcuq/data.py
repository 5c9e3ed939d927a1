"""Measurements: covariates, conditions, values with gaps; validated once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from pcuq._given import as_numbers
from pcuq.errors import InputError
from pcuq.noise import Noise, as_noise

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, eq=False)
class Data:
    """n rows of measurements.

    `y` (n, d): values, NaN where missing. `x`: n times (or an (n, k) table of covariates), None
    for independent data; the time inf is an ODE's state of rest. `noise`: an sd, one per output,
    one per row and output, the name of a parameter or one per output, or a noise model.
    `condition`: n labels of the experiment that a row belongs to. `outputs`: which outputs of the
    model the columns are, by name; all of them, in order, by default.
    """

    y: Any
    x: Any = None
    noise: Any = 1.0
    condition: Any = None
    outputs: Sequence[str] | None = None

    def __post_init__(self):
        y = _table("y", self.y)
        if y.size == 0:
            raise InputError("`y` is empty: give at least one measurement.")
        if np.isinf(y).any():
            raise InputError("`y` holds an infinite value: mark missing values NaN.")
        seen = ~np.isnan(y)
        if not seen.any(axis=1).all():
            rows = np.flatnonzero(~seen.any(axis=1))
            raise InputError(
                f"`y` has {len(rows)} rows with nothing observed (first: row {rows[0]}): drop them."
            )
        object.__setattr__(self, "y", _frozen(y))
        if self.x is not None:
            object.__setattr__(self, "x", _frozen(self._covariates(len(y))))
        labels = np.full(len(y), "") if self.condition is None else _labels(self.condition)
        if labels.shape != (len(y),):
            raise InputError(
                f"`condition` needs one label per row: got shape {labels.shape} for {len(y)} rows."
            )
        object.__setattr__(self, "condition", _frozen(labels.astype(str)))
        if self.outputs is not None:
            names = () if isinstance(self.outputs, str) else tuple(self.outputs)
            if len(names) != y.shape[1] or len(set(names)) != len(names):
                raise InputError(
                    f"`outputs` needs {y.shape[1]} different names, one per column of y: "
                    f"got {self.outputs!r}."
                )
            object.__setattr__(self, "outputs", names)
        object.__setattr__(self, "noise", as_noise(self.noise))
        self._check_noise()

    @classmethod
    def from_frame(
        cls,
        frame: pd.DataFrame,
        x: str | None = "time",
        outputs: Sequence[str] | None = None,
        condition: str | None = None,
        noise: Any = 1.0,
    ) -> Data:
        """From a table with one row per time: the columns of covariate, outputs and condition."""
        if not hasattr(frame, "columns"):
            raise InputError(f"`frame` needs a pandas.DataFrame: got {type(frame).__name__}.")
        twice = sorted({str(name) for name in frame.columns[frame.columns.duplicated()]})
        if twice:
            raise InputError(f"the table has columns of the same name, {twice}: rename them.")
        outputs = (
            [c for c in frame.columns if c not in (x, condition)] if outputs is None else outputs
        )
        wanted = [*outputs, *([x] if x else []), *([condition] if condition else [])]
        missing = [name for name in wanted if name not in frame.columns]
        if missing:
            raise InputError(
                f"the table has no column {missing}: it has {list(frame.columns)}; name the "
                "columns with `x`, `outputs` and `condition`."
            )
        return cls(
            y=frame[list(outputs)].to_numpy(),
            x=None if x is None else frame[x].to_numpy(),
            noise=noise,
            condition=None if condition is None else frame[condition].to_numpy(),
            outputs=list(outputs),
        )

    @property
    def n(self) -> int:
        """The number of rows."""
        return len(self.y)

    @property
    def d(self) -> int:
        """The number of outputs."""
        return self.y.shape[1]

    @property
    def observed(self) -> np.ndarray:
        """(n, d) True where there is a value."""
        return ~np.isnan(self.y)

    @property
    def noises(self) -> tuple[Noise, ...]:
        """One noise model per output."""
        return self.noise if isinstance(self.noise, tuple) else (self.noise,) * self.d

    def take(self, rows: np.ndarray) -> Data:
        """Some of the rows, with their noise."""

        def law(noise: Noise) -> Noise:
            by_row = np.ndim(noise.scale) == 2 and len(noise.scale) == self.n
            return replace(noise, scale=np.asarray(noise.scale)[rows]) if by_row else noise

        noise = self.noise
        return replace(
            self,
            y=self.y[rows],
            x=None if self.x is None else self.x[rows],
            noise=tuple(map(law, noise)) if isinstance(noise, tuple) else law(noise),
            condition=self.condition[rows],
        )

    def _covariates(self, n: int) -> np.ndarray:
        x = as_numbers("x", self.x)
        if x.ndim not in (1, 2) or len(x) != n:
            raise InputError(
                f"`y` needs one row per `x`: got {n} rows for {len(x) if x.ndim else 1} covariates "
                f"(x has shape {x.shape}); drop the time or mark the row NaN."
            )
        if not (x > -np.inf).all():
            raise InputError(
                "`x` must be finite: drop rows without a covariate (the time inf stands for an "
                "ODE at rest)."
            )
        return x

    def _check_noise(self):
        noises = self.noise if isinstance(self.noise, tuple) else (self.noise,)
        if isinstance(self.noise, tuple) and len(self.noise) != self.d:
            raise InputError(
                f"`noise` needs one model per output: got {len(self.noise)} for {self.d} outputs."
            )
        for column, noise in enumerate(self.noises):
            values = self.y[self.observed[:, column], column]
            if noise.transform != "identity" and not (values > 0).all():
                raise InputError(
                    f"{type(noise).__name__} noise on the {noise.transform} scale needs positive "
                    f"data: output {column} has {values.min():g}; use Gaussian noise, or drop or "
                    "mark NaN the values that are not positive."
                )
            if noise.discrete and not ((values >= 0) & (values == np.round(values))).all():
                raise InputError(
                    f"{type(noise).__name__} noise needs counts 0, 1, 2, …: output {column} has "
                    "other values; use Gaussian noise for measurements that are not counts."
                )
        for column, noise in enumerate(noises):
            several = isinstance(self.noise, tuple)
            _check_scale(noise.scale, self.observed[:, [column]] if several else self.observed)


def _table(name: str, values) -> np.ndarray:
    if isinstance(values, np.ma.MaskedArray):  # what is masked is missing
        values = np.ma.filled(values.astype(float), np.nan)
    table = as_numbers(name, values)
    if table.ndim == 1:
        table = table[:, None]
    if table.ndim != 2:
        raise InputError(
            f"`{name}` needs shape (n, d), a row per measurement: got shape {table.shape}."
        )
    return table


def _labels(given) -> np.ndarray:
    try:
        return np.asarray(given)
    except ValueError:
        raise InputError("`condition` needs one label per row: got lists of labels.") from None


def _check_scale(scale, observed: np.ndarray):
    n, d = observed.shape
    if callable(scale) or isinstance(scale, str):
        return
    if isinstance(scale, (list, tuple)) and any(isinstance(part, str) for part in scale):
        if len(scale) != d:
            raise InputError(
                f"`noise` needs one name or number per output: got {len(scale)} for {d} outputs."
            )
        numbers = np.asarray([part for part in scale if not isinstance(part, str)], dtype=float)
    else:
        numbers = as_numbers("noise", scale, "numbers or parameter names")
        if numbers.shape not in ((), (d,), (n, d)):
            raise InputError(
                f"`noise` needs one sd, one per output ({d},) or one per row and output "
                f"({n}, {d}): got shape {numbers.shape}."
            )
        if numbers.shape == (n, d):
            numbers = numbers[observed]  # where y is missing the noise plays no part
    bad = numbers[~(np.isfinite(numbers) & (numbers > 0))]
    if bad.size:
        raise InputError(
            f"`noise` must be positive and finite wherever y is observed: got {bad.flat[0]:g}; "
            "give the sd of the measurement, or mark the measurement NaN."
        )


def _frozen(array: np.ndarray) -> np.ndarray:
    array = np.array(array)
    array.setflags(write=False)
    return array
