"""Scores of several methods at a glance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from pcuq.plots import NAMES, STYLES, Style

FAR_WORSE = 20  # times the best CRPS: from there on the others could not be told apart


def plot_scores(found: dict[str, Any], levels: Sequence[float]) -> Figure:
    """PIT histograms of each method above; coverage and CRPS by observable below.

    `found`: what `pcuq.score(...).to_dict()` returns.
    """
    count = len(found)
    figure = plt.figure(figsize=(max(7.0, 2.6 * count), 6.0), layout="constrained")
    above, below = figure.subfigures(2, 1)  # pyright: ignore[reportGeneralTypeIssues]
    histograms = above.subplots(1, count, sharey=True, squeeze=False)[0]
    groups = list(next(iter(found.values()))["scores"])
    coverage, crps = below.subplots(1, 2)
    for place, (name, method) in enumerate(found.items()):
        style = STYLES.get(name, Style(f"C{place}", "-", "o", None))
        label = NAMES.get(name, name)
        counts = np.array(method["scores"][groups[-1]]["pit"], dtype=float)
        edges = np.linspace(0.0, 1.0, len(counts) + 1)
        ax = histograms[place]
        ax.bar(
            edges[:-1], counts / counts.mean(), np.diff(edges), align="edge",
            color=style.colour, alpha=0.6, hatch=style.hatch, edgecolor="white",
        )  # fmt: skip
        ax.axhline(1.0, color="black", lw=0.8, ls="--")
        ax.set(title=label, xlabel="PIT of all measurements", xlim=(0, 1))
        at = np.arange(len(groups)) + 0.8 * ((place + 0.5) / count - 0.5)
        for i, level in enumerate(levels):
            share = [method["scores"][group]["coverage"][f"{level:g}"] for group in groups]
            face = style.colour if i == len(levels) - 1 else "white"
            coverage.plot(
                at, share, style.marker, color=style.colour, markerfacecolor=face,
                label=f"{label}, {100 * level:g} %",
            )  # fmt: skip
        # Units differ between observables: each is shown relative to the best method there.
        best = [min(m["scores"][group]["crps"] for m in found.values()) for group in groups]
        own = [method["scores"][group]["crps"] for group in groups]
        ratio = [a / b if b > 0 else np.nan for a, b in zip(own, best, strict=True)]
        crps.plot(at, ratio, style.marker, color=style.colour, label=label)
    histograms[0].set_ylabel("relative frequency")
    for level in levels:
        coverage.axhline(level, color="black", lw=0.8, ls="--")
    coverage.set(ylabel="coverage (dashed: as claimed)", ylim=(-0.03, 1.03))
    crps.set(ylabel="CRPS, relative to the best\n(lower is better)")
    for ax in (coverage, crps):
        ax.set_xticks(range(len(groups)), groups, rotation=30, ha="right", fontsize="small")
        # Above: points may lie anywhere inside.
        above = {"loc": "lower center", "bbox_to_anchor": (0.5, 1.0), "frameon": False}
        ax.legend(fontsize="x-small", ncols=count, **above)
    if crps.get_ylim()[1] > FAR_WORSE:
        crps.set_yscale("log")
    return figure
