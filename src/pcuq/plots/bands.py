"""Curves over a covariate: measurements, predictive bands, and what an intervention changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from numpy.typing import ArrayLike

from pcuq.errors import InputError
from pcuq.functionals import Prediction
from pcuq.groups import stored_at_the_data, stored_curves
from pcuq.plots.styles import Style, axes_or_new, name_of, style_of, styles_of
from pcuq.result import Fit


def plot_fit(
    fits: Fit | Sequence[Fit],
    output: str,
    condition: str = "",
    ax: Axes | None = None,
    noisy: bool = True,
    levels: Sequence[float] = (0.9, 0.5),
    fill: bool = True,
    styles: Sequence[Style] | None = None,
) -> Axes:
    """Measurements of one output and the bands of one or several fits to them.

    From what the fits carry: curves along the group `predictions`, else draws at the data. `noisy`:
    bands for measurements, as the dots are; False for the bands of the curve beneath them.
    `styles`: one per fit, by default that of its method. Without a covariate the bands stand side
    by side.
    """
    several = [fits] if isinstance(fits, Fit) else list(fits)
    ax = axes_or_new(ax)
    styles = styles_of([fit.method for fit in several]) if styles is None else styles
    for place, (fit, style) in enumerate(zip(several, styles, strict=True)):
        at_data = stored_at_the_data(fit, condition)
        found = stored_curves(fit, condition) or (None if at_data is None else at_data[0])
        if found is None:
            raise InputError(
                f"this fit holds no predictions for condition {condition!r}: fit it again, or use "
                "plot_bands with fit.predict(...)."
            )
        if found.x is None:
            _bars(ax, found, output, place, style, name_of(fit.method), noisy, levels)
        else:
            label = name_of(fit.method)
            plot_bands(ax, found, output, levels, style, label, noisy, fill=fill)
        measured = list(fit.tree["observed_data"]["output"].to_numpy())
        if place == 0 and at_data is not None and output in measured:
            column = measured.index(output)
            y = fit.tree["observed_data"]["y"].transpose("row", "output").to_numpy()
            x = at_data[0].x
            where = np.full(len(at_data[1]), -0.6) if x is None else x
            plot_data(ax, where, y[at_data[1], column])
    return ax


def plot_bands(
    ax: Axes | None,
    prediction: Prediction,
    output: str,
    levels: Sequence[float] = (0.9, 0.5),
    style: Style | str = "pcuq",
    label: str | None = None,
    noisy: bool = False,
    median: bool = True,
    fill: bool = True,
) -> Axes:
    """Central bands of one output over x, darker where they hold less, and the median as a line.

    `style`: a Style, or the method whose style is used. `noisy`: bands of observations.
    `fill=False`: the outline of the widest band alone, to lie over others.
    """
    ax, style = axes_or_new(ax), style_of(style)
    if prediction.x is None or prediction.x.ndim != 1:
        raise InputError("bands need a prediction along one covariate.")
    column = prediction.column(output)
    order = np.argsort(prediction.x, kind="stable")
    x = prediction.x[order]
    for i, level in enumerate(sorted(levels, reverse=True)[: None if fill else 1]):
        low, high = (edge[order, column] for edge in prediction.band(level, noisy))
        # The outermost band has an outline in the method's line style: seen also in greyscale.
        ax.fill_between(
            x,
            low,
            high,
            facecolor=to_rgba(style.colour, 0.2 + 0.25 * i if fill else 0.0),
            edgecolor=to_rgba(style.colour, 0.6 if i else 0.9),
            linewidth=0 if i else 0.8,
            linestyle="-" if i else style.line,  # dashes of no width cannot be written as PDF
            hatch=style.hatch if i else None,
        )
    if median:
        middle = prediction.quantile(0.5, noisy)[order, column]
        ax.plot(x, middle, color=style.colour, linestyle=style.line, linewidth=1.5, label=label)
    return ax


def plot_prediction(
    predictions: Prediction | Mapping[str, Prediction],
    output: str,
    ax: Axes | None = None,
    noisy: bool = False,
) -> Axes:
    """Bands of one prediction, or of several by method or label, over each other."""
    named = {"pcuq": predictions} if isinstance(predictions, Prediction) else predictions
    ax = axes_or_new(ax)
    for method, prediction in named.items():
        plot_bands(ax, prediction, output, style=method, label=name_of(method), noisy=noisy)
    ax.set_ylabel(output)
    return ax


def plot_contrast(
    treated: Prediction,
    control: Prediction,
    output: str,
    ax: Axes | None = None,
    style: Style | str = "pcuq",
    label: str | None = None,
) -> Axes:
    """What an intervention changes: treated − control, draw by draw, with a line at no change."""
    ax = axes_or_new(ax)
    ax.axhline(0.0, color="black", linewidth=0.8)
    return plot_bands(ax, treated.contrast(control), output, style=style, label=label)


def plot_data(ax: Axes | None, x: ArrayLike, y: ArrayLike, label: str | None = "data") -> Axes:
    """Measurements as small dots; missing ones are left out."""
    ax = axes_or_new(ax)
    ax.plot(x, y, ".", color="black", markersize=4, alpha=0.75, label=label, zorder=3)
    return ax


def _bars(ax, prediction: Prediction, output, place: int, style: Style, label: str, noisy, levels):
    """Bands as bars beside each other, for data without a covariate."""
    column = prediction.column(output)
    for i, level in enumerate(sorted(levels, reverse=True)):
        low, high = (edge[0, column] for edge in prediction.band(level, noisy))
        ax.bar(
            place, high - low, 0.6, low, color=style.colour, alpha=0.2 + 0.25 * i, hatch=style.hatch
        )
    middle = prediction.quantile(0.5, noisy)[0, column]
    ends = [place - 0.3, place + 0.3]
    ax.plot(ends, [middle] * 2, style.line, color=style.colour, label=label)
    ax.set_xticks([])
