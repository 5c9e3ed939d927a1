"""Pictures of data, predictions and draws: small functions that draw on given Axes.

Methods differ by line style and hatching as well as by colour, from the palette of Okabe and Ito:
the figures can be read in greyscale and by colour-blind readers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from pcuq.errors import InputError
from pcuq.functionals import Prediction

if TYPE_CHECKING:
    from pcuq.result import Fit

MOST_POINTS = 2000  # of a scatter plot: more cannot be told apart


class Style(NamedTuple):
    """How one method is drawn."""

    colour: str
    line: str
    marker: str
    hatch: str | None


STYLES = {
    "pcuq": Style("#0072B2", "-", "o", None),
    "bayes": Style("#D55E00", "--", "^", "////"),
    "mmd-bayes": Style("#009E73", ":", "s", "...."),
}
NAMES = {"pcuq": "PCUQ", "bayes": "Bayes", "mmd-bayes": "MMD-Bayes"}


def plot_bands(
    ax: Axes,
    prediction: Prediction,
    output: str,
    levels: Sequence[float] = (0.9, 0.5),
    style: Style | str = "pcuq",
    label: str | None = None,
    noisy: bool = False,
    median: bool = True,
) -> Axes:
    """Central bands of one output over x, darker where they hold less, and the median as a line.

    `style`: a Style, or the method whose style is used. `noisy`: bands of observations.
    """
    style = STYLES[style] if isinstance(style, str) else style
    if prediction.x is None or prediction.x.ndim != 1:
        raise InputError("bands need a prediction along one covariate.")
    if output not in prediction.outputs:
        raise InputError(f"unknown output {output!r}: there are {', '.join(prediction.outputs)}.")
    column = prediction.outputs.index(output)
    order = np.argsort(prediction.x)
    x = prediction.x[order]
    for i, level in enumerate(sorted(levels, reverse=True)):
        low, high = (edge[order, column] for edge in prediction.band(level, noisy))
        ax.fill_between(
            x,
            low,
            high,
            facecolor=style.colour,
            alpha=0.2 + 0.25 * i,
            linewidth=0,
            hatch=style.hatch if i else None,
            edgecolor=style.colour,
        )
    if median:
        middle = prediction.quantile(0.5, noisy)[order, column]
        ax.plot(x, middle, color=style.colour, linestyle=style.line, linewidth=1.5, label=label)
    return ax


def plot_data(ax: Axes, x: ArrayLike, y: ArrayLike, label: str | None = "data") -> Axes:
    """Measurements as small dots; missing ones are left out."""
    ax.plot(x, y, ".", color="black", markersize=3, alpha=0.7, label=label, zorder=3)
    return ax


def plot_pairs2d(
    ax: Axes,
    thetas: ArrayLike,
    columns: tuple[int, int] = (0, 1),
    style: Style | str = "pcuq",
    label: str | None = None,
    size: float = 6.0,
) -> Axes:
    """Draws of two coordinates of θ (S, p), evenly thinned to what can be seen."""
    style = STYLES[style] if isinstance(style, str) else style
    table = np.atleast_2d(np.asarray(thetas, dtype=float))
    table = table[:: max(1, len(table) // MOST_POINTS)]
    ax.scatter(
        table[:, columns[0]],
        table[:, columns[1]],
        s=size,
        marker=style.marker,
        color=style.colour,
        alpha=0.4,
        linewidths=0,
        label=label,
        rasterized=True,
    )
    return ax


def plot_traces(fit: Fit, parameters: Sequence[str] | None = None, paths: int = 20) -> Any:
    """Paths of some particles, natural values against draws: one Axes per parameter, as an array.

    Systems differ in shade: where they do not overlap, the fit has not converged.
    """
    names = fit.parameters if parameters is None else tuple(parameters)
    unknown = [name for name in names if name not in fit.parameters]
    if unknown:
        raise InputError(f"unknown parameters {unknown}: there are {', '.join(fit.parameters)}.")
    _, axes = plt.subplots(
        len(names), 1, sharex=True, squeeze=False, figsize=(7, 1.6 * len(names) + 0.6)
    )
    posterior = fit.tree["posterior"]
    system = posterior["system"].to_numpy()
    shades = ["#0072B2", "#E69F00", "#000000", "#CC79A7"]
    # As many of every system.
    each = max(1, paths // (system.max() + 1))
    shown = np.concatenate([np.flatnonzero(system == s)[:each] for s in np.unique(system)])
    for name, ax in zip(names, axes[:, 0], strict=True):
        values = posterior[name].transpose("chain", "draw").to_numpy()
        for chain in shown:
            ax.plot(values[chain], color=shades[system[chain] % 4], linewidth=0.6, alpha=0.6)
        ax.set_ylabel(name)
    axes[-1, 0].set_xlabel("draw")
    return axes[:, 0]
