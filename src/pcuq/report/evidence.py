"""What a report stands on: figures per fit, and what held-out measurements say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from pcuq import scores
from pcuq.errors import InputError
from pcuq.functionals import Prediction
from pcuq.groups import stored_at_the_data, stored_curves
from pcuq.plots.styles import STYLES, Style, name_of, style_of, styles_of
from pcuq.predict import predict
from pcuq.result import Fit

LEVELS = (0.5, 0.9)
DRAWS = 400  # of each fit, for what is solved anew


class HeldOut(NamedTuple):
    """What happened and was not fitted: y (n, d) at x (n,), under one condition.

    `noisy`: measurements, to be compared with bands that have noise; False for a known truth.
    `outputs`: which the columns are, all of the problem's by default.
    """

    x: np.ndarray | None
    y: np.ndarray
    condition: str = ""
    noisy: bool = True
    outputs: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Case:
    """Fits to the same data, by several methods, and what was held out."""

    title: str
    fits: Sequence[Fit]
    heldout: Sequence[HeldOut] = ()


@dataclass(frozen=True)
class Evidence:
    """One fit, and how its bands did; `coverage` by level, over all measurements."""

    fit: Fit
    label: str
    coverage: dict[str, float]
    by_output: dict[str, dict[str, float]]
    # Mean width of the 90 % band without noise, over the data: in noise sds, or in ranges of the
    # data where the noise is fitted.
    width: float
    measured: int
    reach: float = float("nan")  # that of the band with noise, as a share of the range of the data
    style: Style = STYLES["pcuq"]
    filled: bool = True  # three filled bands over each other cannot be told apart
    heldout: dict[str, Any] | None = None
    known_noise: bool = True  # whether it was given as numbers
    pit: np.ndarray = field(default_factory=lambda: np.zeros(0))


def gather(case: Case) -> list[Evidence]:
    """The evidence for each fit, PCUQ first."""
    order = {"pcuq": 0, "bayes": 1}
    fits = sorted(case.fits, key=lambda fit: order.get(fit.method, 2))
    styles = styles_of([fit.method for fit in fits])
    found = [
        replace(
            _of_data(fit, label),
            style=style,
            filled=fit.method in order and style == style_of(fit.method),
        )
        for fit, label, style in zip(fits, labels_of(fits), styles, strict=True)
    ]
    return _with_heldout(found, case) if case.heldout else found


def labels_of(fits: Sequence[Fit]) -> list[str]:
    """A name for each fit: its method, with λ where one method comes twice, or else a number."""
    methods = [fit.method for fit in fits]
    labels = []
    for i, fit in enumerate(fits):
        name = name_of(fit.method)
        if methods.count(fit.method) > 1:
            lam = fit.tree.attrs["regularisation"]
            name = f"{name}, λ = {lam:.3g}" if np.isfinite(lam) else name
        labels.append(name if name not in labels else f"{name} ({i + 1})")
    return labels


def predict_together(fits: Sequence[Fit], x, condition: str | None = None, do=None):
    """One prediction per fit, solved at once: what is compiled serves all of them."""
    problem = next((fit.problem for fit in fits if fit.problem is not None), None)
    if problem is None:
        raise InputError(
            "what was held out, or not done, is predicted by the problem: give it with --problem, "
            "or load the fits with `pcuq.load(path, problem)`."
        )
    tables = []
    for fit in fits:
        thetas = fit.thetas
        rows = np.linspace(0, len(thetas) - 1, min(DRAWS, len(thetas))).round().astype(int)
        tables.append(thetas[rows])
    whole = predict(problem, np.concatenate(tables), x, condition=condition, do=do, max_draws=None)
    ends = np.cumsum([len(table) for table in tables])
    return [_part(whole, slice(end - len(t), end)) for end, t in zip(ends, tables, strict=True)]


def conditions_of(fit: Fit) -> list[str]:
    """The labels of the data's conditions, in order."""
    labels = fit.tree["constant_data"]["condition"].to_numpy()
    return list(dict.fromkeys(str(label) for label in labels))


def outputs_of(fit: Fit) -> list[str]:
    """The outputs that were measured."""
    return [str(name) for name in fit.tree["observed_data"]["output"].to_numpy()]


def _part(whole: Prediction, rows: slice) -> Prediction:
    w, y = whole.trajectories[rows], whole.observations
    return replace(
        whole,
        trajectories=w,
        observations=None if y is None else y[rows],
        thetas=whole.thetas[rows],
        draws=np.arange(len(w)),
        given=len(w),
    )


def _of_data(fit: Fit, label: str) -> Evidence:
    y = fit.tree["observed_data"]["y"].transpose("row", "output").to_numpy()
    outputs = outputs_of(fit)
    inside = {f"{level:g}": np.full(y.shape, np.nan) for level in LEVELS}
    width, whole = np.full(y.shape, np.nan), np.full(y.shape, np.nan)
    scale = fit.tree["constant_data"]["noise_scale"].transpose("row", "output").to_numpy()
    known = np.isfinite(scale)  # NaN where the noise is fitted
    scale = np.where(known, scale, _range(y))
    for condition in conditions_of(fit):
        found = stored_at_the_data(fit, condition)
        if found is None:
            continue
        prediction, rows = found
        low, high = prediction.band(0.9)
        width[rows] = high - low
        for level in LEVELS:
            low, high = prediction.band(level, noisy=True)
            whole[rows] = high - low  # of the last level, the widest
            seen = np.isfinite(y[rows]) & np.isfinite(low)
            hit = (low <= y[rows]) & (y[rows] <= high)
            inside[f"{level:g}"][rows] = np.where(seen, hit, np.nan)
    return Evidence(
        fit=fit,
        label=label,
        coverage={key: _mean(values) for key, values in inside.items()},
        by_output={
            name: {key: _mean(values[:, i]) for key, values in inside.items()}
            for i, name in enumerate(outputs)
        },
        width=_mean(np.where(np.isfinite(y), width / scale, np.nan)),
        measured=int(np.isfinite(y).sum()),
        reach=_mean(np.where(np.isfinite(y), whole / _range(y), np.nan)),
        known_noise=bool(known[np.isfinite(y)].all()),
    )


def _range(y: np.ndarray) -> np.ndarray:
    """Of each output's data, NaN where it has none."""
    seen = np.isfinite(y)
    top = np.where(seen, y, -np.inf).max(axis=0)
    range_ = top - np.where(seen, y, np.inf).min(axis=0)
    return np.where(range_ > 0, range_, np.nan)


def _with_heldout(found: list[Evidence], case: Case) -> list[Evidence]:
    """Scores over all that was held out, pooled over its parts."""
    fits = [one.fit for one in found]
    draws, truths = [[] for _ in fits], []
    for part in case.heldout:
        y = np.asarray(part.y, dtype=float).reshape(len(part.y), -1)
        names = outputs_of(fits[0]) if part.outputs is None else part.outputs
        for i, prediction in enumerate(_predicted(fits, part)):
            columns = [prediction.column(name) for name in names]
            values = prediction.observations if part.noisy else prediction.trajectories
            assert values is not None
            draws[i].append(values[:, :, columns].reshape(len(values), -1))
        truths.append(y.ravel())
    truth = np.concatenate(truths)
    return [replace(one, **_scored(d, truth)) for one, d in zip(found, draws, strict=True)]


def _predicted(fits: list[Fit], part: HeldOut) -> list[Prediction]:
    """From the curves that the fits carry where these pass through x, else solved."""
    curves = [stored_curves(fit, part.condition) for fit in fits]
    if part.x is not None and all(c is not None and c.x is not None for c in curves):
        known = [np.isin(part.x, c.x).all() for c in curves if c is not None and c.x is not None]
        if all(known):
            return [_at(c, part.x) for c in curves if c is not None]
    return predict_together(fits, part.x, condition=part.condition)


def _at(curve: Prediction, x: np.ndarray) -> Prediction:
    assert curve.x is not None and curve.observations is not None
    place = {value: i for i, value in enumerate(curve.x)}
    rows = [place[value] for value in x]
    return replace(
        curve,
        x=x,
        trajectories=curve.trajectories[:, rows],
        observations=curve.observations[:, rows],
    )


def _scored(parts: list[np.ndarray], truth: np.ndarray) -> dict[str, Any]:
    values = np.concatenate(parts, axis=1)
    fine = np.isfinite(np.where(np.isnan(truth), 0.0, values)).all(axis=1)
    summary = scores.summarise(values[fine], truth, LEVELS)
    summary["failed"] = int((~fine).sum())
    pit = scores.pit(values[fine], truth)
    return {"heldout": summary, "pit": pit[np.isfinite(pit)]}


def _mean(values: np.ndarray) -> float:
    seen = values[np.isfinite(values)]
    return float(seen.mean()) if seen.size else float("nan")
