"""Draws of parameters: paths, pairs, and the prior beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from numpy.typing import ArrayLike

from pcuq.errors import InputError
from pcuq.plots.styles import PRIOR, SHADES, Style, axes_or_new, style_of, styles_of
from pcuq.result import Fit

MOST_POINTS = 2000  # of a scatter plot: more cannot be told apart
BINS, PLENTY = 40, 3000


def plot_traces(
    fit: Fit, parameters: Sequence[str] | None = None, paths: int = 20, axes: Any = None
) -> Any:
    """Paths of some particles, natural values against draws: one Axes per parameter, as an array.

    Systems differ in shade: where they do not overlap, the fit has not converged.
    """
    names = _names(fit, parameters)
    if axes is None:
        size = (7, 1.6 * len(names) + 0.6)
        axes = plt.subplots(len(names), 1, sharex=True, squeeze=False, figsize=size)[1][:, 0]
    posterior = fit.tree["posterior"]
    system = posterior["system"].to_numpy()
    # As many of every system.
    each = max(1, paths // (system.max() + 1))
    shown = np.concatenate([np.flatnonzero(system == s)[:each] for s in np.unique(system)])
    for name, ax in zip(names, axes, strict=True):
        values = posterior[name].transpose("chain", "draw").to_numpy()
        for chain in shown:
            shade = SHADES[system[chain] % len(SHADES)]
            ax.plot(values[chain], color=shade, linewidth=0.6, alpha=0.6)
        ax.set_ylabel(name)
    axes[-1].set_xlabel("draw")
    return axes


def plot_pairs(
    fits: Fit | Sequence[Fit],
    parameters: Sequence[str] | None = None,
    prior: bool = True,
    unconstrained: bool = True,
    axes: Any = None,
    limits: Mapping[str, tuple[float, float]] | None = None,
) -> Any:
    """Draws of several fits, pair by pair, as an array of Axes (p, p), empty above the diagonal.

    On the diagonal the distribution of each parameter with its prior. `unconstrained`: on the scale
    of θ, where the prior is usually standard normal; False for natural values. `limits`: by name,
    what to look at closely.
    """
    several = [fits] if isinstance(fits, Fit) else list(fits)
    names = _names(several[0], parameters)
    words = [_in_words(several[0], name, unconstrained) for name in names]
    p = len(names)
    if axes is None:
        axes = plt.subplots(
            p, p, squeeze=False, figsize=(1.9 * p + 0.8, 1.7 * p + 0.6), layout="constrained"
        )[1]
    styles = styles_of([fit.method for fit in several])
    drawn = [(s, _table(f, names, unconstrained)) for f, s in zip(several, styles, strict=True)]
    before = _prior_table(several[0], names, unconstrained) if prior else None
    for i in range(p):
        for j in range(p):
            ax = axes[i, j]
            if j > i:
                ax.set_axis_off()
                continue
            if i == j:
                within = (limits or {}).get(names[i])
                _histograms(ax, [(s, table[:, i]) for s, table in drawn], before, i, within)
                ax.set_yticks([])
            else:
                if before is not None:
                    plot_pairs2d(ax, before, (j, i), PRIOR, size=5)
                for style, table in drawn:
                    plot_pairs2d(ax, table, (j, i), style)
            if limits is not None and names[j] in limits:
                ax.set_xlim(limits[names[j]])
            if limits is not None and names[i] in limits and i != j:
                ax.set_ylim(limits[names[i]])
            if i == p - 1:
                ax.set_xlabel(words[j])
            if j == 0:
                ax.set_ylabel(words[i] if i else "")
            ax.tick_params(labelsize="x-small", labelbottom=i == p - 1, labelleft=j == 0 and i > 0)
            ax.locator_params(nbins=4)
    return axes


def plot_parameter(
    fits: Fit | Sequence[Fit], parameter: str, ax: Axes | None = None, unconstrained: bool = True
) -> Axes:
    """The distribution of one parameter by each fit, and its prior."""
    several = [fits] if isinstance(fits, Fit) else list(fits)
    ax = axes_or_new(ax)
    names = _names(several[0], [parameter])
    styles = styles_of([fit.method for fit in several])
    tables = [_table(fit, names, unconstrained)[:, 0] for fit in several]
    _histograms(
        ax,
        list(zip(styles, tables, strict=True)),
        _prior_table(several[0], names, unconstrained),
        0,
    )
    ax.set(xlabel=_in_words(several[0], parameter, unconstrained), yticks=[])
    return ax


def plot_pairs2d(
    ax: Axes | None,
    thetas: ArrayLike,
    columns: tuple[int, int] = (0, 1),
    style: Style | str = "pcuq",
    label: str | None = None,
    size: float = 6.0,
) -> Axes:
    """Draws of two coordinates of θ (S, p), evenly thinned to what can be seen."""
    ax, style = axes_or_new(ax), style_of(style)
    table = np.atleast_2d(np.asarray(thetas, dtype=float))
    table = table[:: max(1, len(table) // MOST_POINTS)]
    ax.scatter(
        table[:, columns[0]],
        table[:, columns[1]],
        s=size,
        marker=style.marker,
        color=style.colour,
        alpha=0.4,
        linewidths=0.5 if style.marker == "x" else 0,
        label=label,
        rasterized=True,
    )
    return ax


def _histograms(
    ax, drawn: list[tuple[Style, np.ndarray]], before, column: int, within=None
) -> None:
    """Densities as steps, each scaled to its own height: a narrow one must not flatten the rest."""
    sets = [(PRIOR, before[:, column])] if before is not None else []
    for style, values in [*sets, *drawn]:
        if np.ptp(values) < 1e-9 * (1 + abs(values[0])):  # a point
            ax.plot([values[0]] * 2, [0, 1], style.line, color=style.colour)
            continue
        low, high = np.quantile(values, [0.002, 0.998])
        if within is not None:
            low, high = max(low, within[0]), min(high, within[1])
            if not low < high:  # it has nothing there
                continue
        bins = BINS if len(values) > PLENTY else BINS // 2
        counts, edges = np.histogram(values, bins=bins, range=(low, high))
        top = counts / max(counts.max(), 1)
        ax.stairs(top, edges, color=style.colour, linestyle=style.line, linewidth=1.3)
    ax.set_ylim(0, 1.15)


def _table(fit: Fit, names: Sequence[str], unconstrained: bool) -> np.ndarray:
    group = fit.tree["unconstrained_posterior" if unconstrained else "posterior"]
    columns = [group[name].transpose("draw", "chain").to_numpy().ravel() for name in names]
    return np.stack(columns, axis=-1)


def _in_words(fit: Fit, name: str, unconstrained: bool) -> str:
    """What is drawn along an axis: "log k", where it is θ and not k itself."""
    if not unconstrained:
        return name
    return str(fit.tree["unconstrained_posterior"][name].attrs.get("long_name", name))


def _prior_table(fit: Fit, names: Sequence[str], unconstrained: bool) -> np.ndarray | None:
    group = "unconstrained_prior" if unconstrained else "prior"
    if group not in fit.tree.children:
        return None
    return np.stack([fit.tree[group][name].to_numpy().ravel() for name in names], axis=-1)


def _names(fit: Fit, parameters: Sequence[str] | None) -> tuple[str, ...]:
    names = fit.parameters if parameters is None else tuple(parameters)
    unknown = [name for name in names if name not in fit.parameters]
    if unknown:
        raise InputError(f"unknown parameters {unknown}: there are {', '.join(fit.parameters)}.")
    return names
