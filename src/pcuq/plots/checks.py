"""Is it right: PIT of what happened, how λ matters, and how spread answers to more data."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike
from scipy.stats import binom

from pcuq.errors import InputError
from pcuq.plots.styles import Style, axes_or_new, name_of, style_of


def plot_pit(
    pit: ArrayLike,
    ax: Axes | None = None,
    bins: int = 10,
    style: Style | str = "pcuq",
    label: str | None = None,
) -> Axes:
    """Histogram of PIT values: level when forecasts are calibrated.

    High at both ends: bands are too narrow. High in the middle: too wide. The grey strip holds nine
    bars out of ten of a calibrated forecast whose values are independent.
    """
    ax, style_ = axes_or_new(ax), style_of(style)
    values = np.asarray(pit, dtype=float).ravel()
    values = values[np.isfinite(values)]
    if not len(values):
        raise InputError("there are no PIT values to plot: all are missing.")
    counts, edges = np.histogram(values, bins=bins, range=(0, 1))
    low, high = binom.interval(0.9, len(values), 1 / bins)
    ax.axhspan(low, high, color="0.85", zorder=0)
    ax.axhline(len(values) / bins, color="0.4", linewidth=0.8, zorder=0)
    ax.bar(
        edges[:-1],
        counts,
        1 / bins,
        align="edge",
        color=style_.colour,
        alpha=0.6,
        edgecolor=style_.colour,
        hatch=style_.hatch,
        label=label or (name_of(style) if isinstance(style, str) else None),
    )
    ax.set(xlabel="PIT", ylabel="values", xlim=(0, 1))
    return ax


def plot_sensitivity(
    regularisations: ArrayLike,
    values: ArrayLike | Mapping[str, ArrayLike],
    ax: Axes | None = None,
    chosen: float | None = None,
    ylabel: str | None = None,
) -> Axes:
    """A figure, or several by name, against λ on a logarithmic axis; `chosen` is marked."""
    ax = axes_or_new(ax)
    lam = np.asarray(regularisations, dtype=float)
    order = np.argsort(lam)
    named = values if isinstance(values, Mapping) else {"": values}
    lines, markers = ["-", "--", ":", "-."], ["o", "^", "s", "d"]
    colours = ["#0072B2", "#D55E00", "#009E73", "#000000"]
    for k, (name, series) in enumerate(named.items()):
        ax.plot(
            lam[order],
            np.asarray(series, dtype=float)[order],
            linestyle=lines[k % 4],
            marker=markers[k % 4],
            color=colours[k % 4],
            markersize=4,
            label=name or None,
        )
    if chosen is not None:
        ax.axvline(chosen, color="black", linewidth=0.9, linestyle="-.", label=f"λ = {chosen:.2g}")
    ax.set(xscale="log", xlabel="λ")
    if ylabel:
        ax.set_ylabel(ylabel)
    if chosen is not None or any(named):
        ax.legend(fontsize="small")
    return ax


def plot_spread(
    n: ArrayLike, spreads: Mapping[str, ArrayLike], ax: Axes | None = None, slope: bool = True
) -> Axes:
    """Spread of Q against the number of data, by method, both logarithmic.

    Under a wrong model Bayes narrows like 1/√n around a wrong curve (`slope`: the grey line), and
    PCUQ levels off at the spread that the prediction needs.
    """
    ax = axes_or_new(ax)
    count = np.asarray(n, dtype=float)
    order = np.argsort(count)
    for method, series in spreads.items():
        style = style_of(method)
        ax.plot(
            count[order],
            np.asarray(series, dtype=float)[order],
            linestyle=style.line,
            marker=style.marker,
            color=style.colour,
            label=name_of(method),
        )
    if slope and spreads:
        last = np.asarray(list(spreads.values())[-1], dtype=float)[order][0]
        ax.plot(
            count[order],
            last * np.sqrt(count[order][0] / count[order]),
            color="0.6",
            linewidth=0.9,
            label="1/√n",
        )
    ax.set(xscale="log", yscale="log", xlabel="n, measurements", ylabel="spread")
    ax.legend(fontsize="small")
    return ax
