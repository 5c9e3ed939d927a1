"""The pictures of a report, each a PNG of its own, so that a page can stack them on a phone."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from pcuq import plots
from pcuq.functionals import Prediction
from pcuq.groups import stored_curves
from pcuq.objective import part_that_fits
from pcuq.report.evidence import Evidence, HeldOut, conditions_of, outputs_of
from pcuq.report.verdict import percent
from pcuq.result import Fit

DPI = 130
PANEL, THIRD = (4.6, 2.9), (4.0, 2.6)
MOST_PANELS, MOST_CHANGED = 24, 12
MOST_IN_PAIRS = 5
MOST_CIRCLES = 40
MOST_TRACES = (6, 2)  # of the first fit, and of each other
# Text is shown as it is: a name with dollars is no formula.
LOOKS: dict[Any, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.parse_math": False,
    "hatch.linewidth": 0.5,
}


class Picture(NamedTuple):
    """A picture for the page: `wide` ones take a row of their own."""

    title: str
    alt: str
    data: str
    wide: bool = False


@contextmanager
def looks() -> Iterator[None]:
    """The style of all pictures of a report."""
    with matplotlib.rc_context(LOOKS):
        yield


def data_pictures(
    evidence: Sequence[Evidence], heldout: Sequence[HeldOut] = ()
) -> tuple[list[Picture], int]:
    """(measurements and bands, one per output and condition; how many more there would be)."""
    fits = [one.fit for one in evidence]
    panels = [
        (output, condition)
        for condition in conditions_of(fits[0])
        for output in outputs_of(fits[0])
        if _measured(fits[0], output, condition)
    ]
    pictures = []
    for output, condition in panels[:MOST_PANELS]:
        figure = Figure(figsize=PANEL, layout="constrained")
        ax = figure.subplots()
        for one in evidence:  # the first is the widest as a rule, and lies beneath
            plots.plot_fit(one.fit, output, condition, ax, fill=one.filled, styles=[one.style])
        curves = stored_curves(fits[0], condition)
        if curves is not None and curves.x is not None:
            last = _last(fits[0], condition)
            if last < curves.x.max():
                ax.axvline(last, color="0.4", linewidth=0.8, linestyle=(0, (6, 3)))
            ax.set_xlim(curves.x.min(), curves.x.max())
            ax.set_xlabel(_covariate(fits[0]))
        unseen = _held_out(ax, fits[0], heldout, output, condition)
        _keep_in_view(ax, fits, output, condition, unseen)
        title = output + (f", {condition}" if condition else "")
        shares = ", ".join(
            f"{one.label} {percent(one.by_output[output]['0.9'])}"
            for one in evidence
            if np.isfinite(one.by_output[output]["0.9"])
        )
        pictures.append(
            Picture(title, f"{title}: data and bands. In the 90 % bands: {shares}.", _png(figure))
        )
    return pictures, max(0, len(panels) - MOST_PANELS)


def parameter_pictures(evidence: Sequence[Evidence]) -> list[Picture]:
    """All pairs of a few parameters; with many, also each by itself."""
    fits = [one.fit for one in evidence]
    names = fits[0].parameters
    shown = _most_moved(fits[0], MOST_IN_PAIRS)
    p = len(shown)
    figure = Figure(figsize=(1.75 * p + 0.9, 1.6 * p + 0.6), layout="constrained")
    plots.plot_pairs(fits, shown, axes=figure.subplots(p, p, squeeze=False))
    pictures = [
        Picture(
            "pairs of parameters" if p > 1 else names[0],
            f"draws of {', '.join(shown)}, pair by pair, over the prior",
            _png(figure),
            wide=p > 2,
        )
    ]
    if p > 1 and (close := _close_up(evidence, shown)) is not None:
        pictures.append(close)
    if len(names) > p:
        for name in names:
            figure = Figure(figsize=(3.2, 1.8), layout="constrained")
            plots.plot_parameter(fits, name, figure.subplots())
            pictures.append(Picture(name, f"distribution of {name}, and its prior", _png(figure)))
    return pictures


def _close_up(evidence: Sequence[Evidence], shown: Sequence[str]) -> Picture | None:
    """The pairs again, without the prior, where the draws are that fit; None for single points."""
    fits = [one.fit for one in evidence]
    names, boxes = fits[0].parameters, []
    columns = [names.index(name) for name in shown]
    for fit in fits:
        v = fit.tree["sample_stats"]["v"].transpose("draw", "chain").to_numpy().ravel()
        inside = part_that_fits(v) if fit.method == "pcuq" else np.ones(len(v), bool)
        if inside.any():
            boxes.append(np.quantile(fit.thetas[inside][:, columns], [0.01, 0.99], axis=0))
    low, high = np.min(boxes, axis=(0, 1)), np.max(boxes, axis=(0, 1))
    if not (high > low).all():
        return None
    p = len(shown)
    figure = Figure(figsize=(1.75 * p + 0.9, 1.6 * p + 0.6), layout="constrained")
    room = 0.08 * (high - low)
    limits = dict(zip(shown, zip(low - room, high + room, strict=True), strict=True))
    axes = figure.subplots(p, p, squeeze=False)
    plots.plot_pairs(fits, shown, prior=False, axes=axes, limits=limits)
    alt = f"draws of {', '.join(shown)}, pair by pair, near the fit"
    return Picture("the same, near the fit and without the prior", alt, _png(figure), wide=p > 2)


def trace_pictures(one: Evidence, most: int) -> list[Picture]:
    """Paths of the parameters that converged worst."""
    if not np.ptp(one.fit.thetas, axis=0).any():
        return []  # a point
    rhat = one.fit.tree["sample_stats"]["rhat_paths"].to_numpy()
    worst = np.argsort(-np.nan_to_num(rhat, nan=np.inf), kind="stable")[:most]
    names = [one.fit.parameters[i] for i in sorted(worst)]
    pictures = []
    for name in names:
        figure = Figure(figsize=(4.2, 1.6), layout="constrained")
        ax = figure.subplots()
        plots.plot_traces(one.fit, [name], axes=np.array([ax]), paths=16)
        # A single draw near the prior must not flatten the rest.
        low, high = np.quantile(one.fit.tree["posterior"][name].to_numpy(), [0.005, 0.995])
        if low < high:
            ax.set_ylim(low - 0.2 * (high - low), high + 0.2 * (high - low))
        title = f"{one.label}: {name}"
        pictures.append(Picture(title, f"paths of {name} over the draws", _png(figure)))
    return pictures


def pit_pictures(evidence: Sequence[Evidence]) -> list[Picture]:
    """PIT of what was held out, a picture per method."""
    pictures = []
    for one in evidence:
        if not len(one.pit):
            continue
        figure = Figure(figsize=(3.6, 2.2), layout="constrained")
        plots.plot_pit(one.pit, figure.subplots(), style=one.style)
        pictures.append(
            Picture(one.label, f"histogram of {len(one.pit)} PIT values, {one.label}", _png(figure))
        )
    return pictures


def intervention_pictures(
    evidence: Sequence[Evidence],
    control: Sequence[Prediction],
    treated: Sequence[Prediction],
    what: str,
) -> list[Picture]:
    """For each output: without and with the intervention, and their difference, side by side."""
    pictures = []
    outputs = [name for name in outputs_of(evidence[0].fit) if name in control[0].outputs]
    for output in outputs[:MOST_CHANGED]:
        panels = [Figure(figsize=THIRD, layout="constrained") for _ in range(3)]
        left, middle, right = (panel.subplots() for panel in panels)
        for one, before, after in zip(evidence, control, treated, strict=True):
            plots.plot_bands(left, before, output, style=one.style, fill=one.filled)
            plots.plot_bands(middle, after, output, style=one.style, fill=one.filled)
            plots.plot_contrast(after, before, output, right, style=one.style)
        limits = [*left.get_ylim(), *middle.get_ylim()]
        for ax in (left, middle):  # to be compared by eye
            ax.set_ylim(min(limits), max(limits))
        for panel, ax, title in zip(
            panels, (left, middle, right), ("control", what, "difference"), strict=True
        ):
            ax.set_xlabel(_covariate(evidence[0].fit))
            alt = f"{output}, {title}: bands without noise"
            pictures.append(Picture(f"{output}: {title}", alt, _png(panel)))
    return pictures


class Key(NamedTuple):
    """An entry of the legend: a line as CSS and SVG write it."""

    label: str
    colour: str
    dashes: str


def legend(evidence: Sequence[Evidence]) -> list[Key]:
    """The line of each fit."""
    dashes = {"-": "none", "--": "6 3", ":": "2 2", "-.": "6 3 2 3"}
    return [Key(one.label, one.style.colour, dashes[one.style.line]) for one in evidence]


def _covariate(fit: Fit) -> str:
    if "predictions" not in fit.tree.children:
        return "x"
    return str(fit.tree["predictions"]["x"].attrs.get("long_name", "x"))


def _measured(fit: Fit, output: str, condition: str) -> bool:
    y = fit.tree["observed_data"]["y"].sel(output=output).to_numpy()
    return bool(np.isfinite(y[_rows(fit, condition)]).any())


def _rows(fit: Fit, condition: str) -> np.ndarray:
    labels = fit.tree["constant_data"]["condition"].to_numpy().astype(str)
    return labels == condition


def _last(fit: Fit, condition: str) -> float:
    x = fit.tree["constant_data"]["x"].to_numpy()[_rows(fit, condition)]
    return float(x[np.isfinite(x)].max(initial=-np.inf))


def _held_out(ax, fit: Fit, heldout: Sequence[HeldOut], output: str, condition: str) -> np.ndarray:
    """Circles for what was not fitted, and their values."""
    found = [np.zeros(0)]
    for part in heldout:
        names = outputs_of(fit) if part.outputs is None else list(part.outputs)
        if part.condition == condition and part.x is not None and output in names:
            y = np.asarray(part.y, dtype=float).reshape(len(part.y), -1)[:, names.index(output)]
            some = slice(None, None, -(-len(y) // MOST_CIRCLES))  # more would be one black bar
            look = {"markersize": 3.5, "mfc": "white", "mec": "black", "mew": 0.8, "zorder": 4}
            ax.plot(part.x[some], y[some], "o", **look)
            found.append(y[np.isfinite(y)])
    return np.concatenate(found)


def _keep_in_view(ax, fits: Sequence[Fit], output: str, condition: str, unseen) -> None:
    """Bands may reach far beyond what was measured: data and middles set the scale."""
    y = fits[0].tree["observed_data"]["y"].sel(output=output).to_numpy()
    y = y[_rows(fits[0], condition)]
    y = np.concatenate([y[np.isfinite(y)], unseen])
    tops, bottoms = [y.max()], [y.min()]
    for fit in fits:
        curves = stored_curves(fit, condition)
        if curves is not None:
            column = curves.outputs.index(output)
            low, high = (edge[:, column] for edge in curves.band(0.9, noisy=True))
            if np.isfinite(low).all() and np.isfinite(high).all():
                tops.append(high.max())
                bottoms.append(low.min())
    room = 1.2 * (np.ptp(y) or abs(y[0]) or 1.0)
    high, low = min(max(tops), y.max() + room), max(min(bottoms), y.min() - room)
    ax.set_ylim(low - 0.05 * (high - low), high + 0.05 * (high - low))


def _most_moved(fit: Fit, most: int) -> list[str]:
    """The parameters whose distribution is narrowest beside the prior, in their own order."""
    names = fit.parameters
    if len(names) <= most or "unconstrained_prior" not in fit.tree.children:
        return list(names[:most])
    prior = fit.tree["unconstrained_prior"].dataset
    before = np.array([float(prior[name].std()) for name in names])
    after = fit.thetas.std(axis=0)
    return [names[i] for i in sorted(np.argsort(after / before)[:most])]


def _png(figure: Figure) -> str:
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=DPI, format="png")
    return base64.b64encode(buffer.getvalue()).decode()
