"""Is the model wrong, and where: what a check found, to be read without knowing how it works."""

from __future__ import annotations

import textwrap

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pcuq.check import LEVEL, Check
from pcuq.errors import InputError
from pcuq.plots.bands import plot_data
from pcuq.plots.checks import plot_pit
from pcuq.plots.styles import axes_or_new, name_of, style_of

MOST_SERIES = 6
FAILS = "#CC79A7"


def plot_check(check: Check) -> Figure:
    """The verdict as a title; for each output data with both bands and where residuals are too
    large; below, the residual checks.

    Of more than six outputs and conditions those are shown in which the model fails most.
    """
    chosen = _worst_series(check)
    figure = plt.figure(figsize=(max(7.5, 3.4 * len(chosen)), 8.0), layout="constrained")
    grid = figure.add_gridspec(3, 6 * len(chosen), height_ratios=[3, 2, 2])
    for k, (condition, output) in enumerate(chosen):
        here = slice(6 * k, 6 * (k + 1))
        above = figure.add_subplot(grid[0, here])
        plot_compared(check, output, condition, above)
        above.set_title(f"{output}, {condition}" if condition else output, fontsize="medium")
        below = figure.add_subplot(grid[1, here], sharex=above)
        plot_misfit(check, output, condition, below)
        if k == 0:
            above.legend(fontsize="small")
            below.legend(fontsize="small")
    thirds = 2 * len(chosen)
    plot_widths(check, figure.add_subplot(grid[2, :thirds]))
    plot_autocorrelation(check, figure.add_subplot(grid[2, thirds : 2 * thirds]))
    pits = plot_pit(check.refit.pit, figure.add_subplot(grid[2, 2 * thirds :]), style="bayes")
    pits.set_xlabel(f"share of predictions below\nthe measurement (p = {check.pit_p_value:.2g})")
    figure.suptitle(_wrapped(check.verdict, 30 * len(chosen) + 35), fontsize="medium")
    return figure


def plot_compared(
    check: Check, output: str, condition: str = "", ax: Axes | None = None, level: float = 0.9
) -> Axes:
    """Measurements, and where both methods expect nine of ten; failing stretches are hatched."""
    ax = axes_or_new(ax)
    rows, column, x = _series(check, output, condition)
    for method, drawn in (("pcuq", check.refit.pcuq), ("bayes", check.refit.bayes)):
        style = style_of(method)
        low, high = np.quantile(drawn.y[:, rows, column], [(1 - level) / 2, (1 + level) / 2], 0)
        label = f"{name_of(method)}, {level:.0%} of measurements"
        if method == "pcuq":
            ax.fill_between(x, low, high, color=style.colour, alpha=0.3, label=label)
        else:  # two dashed lines over it: told apart without colour
            ax.plot(x, low, style.line, color=style.colour, label=label)
            ax.plot(x, high, style.line, color=style.colour)
    plot_data(ax, x, check.problem.data.y[rows, column], label="measurements")
    for k in _windows(check, output, condition):
        if check.window_p_values[k] <= LEVEL:
            start, end = _edges(check, k)
            ax.axvspan(start, end, facecolor="none", edgecolor="0.6", hatch="..", linewidth=0)
    ax.set_ylabel(output)
    return ax


def plot_misfit(check: Check, output: str, condition: str = "", ax: Axes | None = None) -> Axes:
    """Size of residuals, stretch by stretch, beside what it is when the model is right."""
    ax = axes_or_new(ax)
    simulated, label = check.null.figures.misfit, {True: "too large", False: "as expected"}
    expected: str | None = "range if the model were right"
    for k in _windows(check, output, condition):
        start, end = _edges(check, k)
        low, high = np.quantile(simulated[:, k], [0.05, 0.95])
        ax.fill_between([start, end], low, high, color="0.8", linewidth=0, label=expected)
        ax.plot([start, end], [check.window_limit[k]] * 2, color="0.4", linewidth=0.8)
        fails = bool(check.window_p_values[k] <= LEVEL)
        ax.plot(
            (start + end) / 2,
            check.refit.figures.misfit[k],
            "^" if fails else "o",
            color="black",
            markerfacecolor=FAILS if fails else "white",
            markersize=8 if fails else 6,
            label=label.pop(fails, None),
        )
        expected = None
    ax.set(ylabel="typical residual,\nin predicted sds", xlabel=_along(check), ylim=(0, None))
    return ax


def plot_widths(check: Check, ax: Axes | None = None) -> Axes:
    """How many times as wide as those of Bayes bands should be, by output."""
    ax = axes_or_new(ax)
    names = [*check.problem.outputs, "overall"] if check.problem.data.d > 1 else ["overall"]
    for place, name in enumerate(names):
        ratio, low, high = check.wider[name]
        ax.barh(place, high - low, 0.6, low, color="0.8")
        ax.plot(ratio, place, "D", color=style_of("pcuq").colour, markeredgecolor="black")
    ax.axvline(1.0, color="black", linewidth=0.8)
    ax.set_yticks(range(len(names)), names)
    ax.set_xlabel("how many times as wide\nas those of Bayes bands should be")
    return ax


def plot_autocorrelation(check: Check, ax: Axes | None = None) -> Axes:
    """Correlation of residuals with those k measurements later."""
    ax = axes_or_new(ax)
    found, simulated = check.refit.figures.autocorrelation, check.null.figures.autocorrelation
    lags = np.arange(1, len(found) + 1)
    low, high = np.quantile(simulated, [0.05, 0.95], axis=0)
    ax.bar(lags, high - low, 0.8, low, color="0.8")
    ax.axhline(0.0, color="black", linewidth=0.8)
    ax.vlines(lags, 0.0, found, color="black")
    ax.plot(lags, found, "o", color="black")
    ax.set_xlabel(f"measurements apart\n(next ones: p = {check.autocorrelation_p_value:.2g})")
    ax.set_ylabel("correlation\nof residuals")
    return ax


def _worst_series(check: Check) -> list[tuple[str, str]]:
    worst: dict[tuple[str, str], float] = {}
    for k in range(len(check.windows)):
        name = check.windows.condition[k], check.windows.output[k]
        worst[name] = min(worst.get(name, 2.0), float(check.window_p_values[k]))
    kept = sorted(worst, key=lambda name: worst[name])[:MOST_SERIES]
    return [name for name in worst if name in kept]


def _windows(check: Check, output: str, condition: str) -> list[int]:
    windows = check.windows
    names = list(zip(windows.condition, windows.output, strict=True))
    found = [k for k, name in enumerate(names) if name == (condition, output)]
    if not found:
        raise InputError(
            f"nothing was measured of {output!r} under condition {condition!r}: there are "
            f"{', '.join(sorted({f'{o!r} under {c!r}' for c, o in names}))}."
        )
    return found


def _series(check: Check, output: str, condition: str):
    chosen = _windows(check, output, condition)
    rows = np.concatenate([check.windows.rows[k] for k in chosen])
    x = check.problem.data.x
    along = np.arange(float(len(rows))) if x is None else x[rows] if x.ndim == 1 else x[rows, 0]
    return rows, int(check.windows.column[chosen[0]]), along


def _edges(check: Check, k: int) -> tuple[float, float]:
    if check.problem.data.x is None:
        return 0.0, float(len(check.windows.rows[k]) - 1)
    return float(check.windows.start[k]), float(check.windows.end[k])


def _along(check: Check) -> str:
    if check.problem.data.x is None:
        return "measurement"
    return "time" if hasattr(check.problem.model, "t0") else "x"


def _wrapped(text: str, width: int) -> str:
    return "\n".join(textwrap.wrap(text, width))
