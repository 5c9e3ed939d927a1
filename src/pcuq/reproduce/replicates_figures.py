"""The replicates as figures and sentences: every data set a point, the mean with its error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pcuq.plots import NAMES, STYLES
from pcuq.plots.styles import few_numbers
from pcuq.reproduce.erk_cases import METHODS as ERK_METHODS
from pcuq.reproduce.erk_figures import species_table
from pcuq.reproduce.figures import drawing, grid, legend, save, warn_of_means
from pcuq.reproduce.methods import METHODS


def draw(cases: dict[str, Any], out: Path) -> list[str]:
    """Write the figures; return the names of the files."""
    with drawing():
        settings = {name: rows for name, rows in cases.items() if name != "erk"}
        files = save(lotka_volterra_figure(settings), out, "replicates")
        return files + save(erk_figure(cases["erk"]), out, "erk")


def lotka_volterra_figure(settings: dict[str, Any]) -> Figure:
    """Coverage of both bands and CRPS of every data set: a row per setting and case."""
    rows = [(s, c, of_case) for s, of in settings.items() for c, of_case in of.items()]
    figure, panels = grid(len(rows), 3, 3.4, 1.7)
    for axes, (setting, case, methods) in zip(panels, rows, strict=True):
        strip(axes[0], {m: methods[m]["each"]["coverage"]["0.5"] for m in METHODS}, 0.5)
        strip(axes[1], {m: methods[m]["each"]["coverage"]["0.9"] for m in METHODS}, 0.9)
        strip(axes[2], {m: methods[m]["each"]["crps"] for m in METHODS})
        axes[2].set_xscale("log")
        few_numbers(axes[2].xaxis)
        for ax, title in zip(axes, ("50 % band covers", "90 % band covers", "CRPS"), strict=True):
            ax.set_title(f"{title}: {setting}, {case}", fontsize=8)
        for ax in axes[:2]:
            ax.set_xlim(-0.03, 1.03)
    warn_of_means(figure, {f"{s}, {c}, {m}": of[m] for s, c, of in rows for m in METHODS})
    return figure


def strip(ax: Axes, values: dict[str, list[float]], wanted: float | None = None) -> None:
    """Points of each method on a line of its own; the black mark is the mean ± standard error."""
    for place, (method, of_method) in enumerate(values.items()):
        x = np.asarray(of_method, dtype=float)
        apart = 0.25 * np.linspace(-1, 1, len(x)) if len(x) > 1 else np.zeros(1)
        style = STYLES[method]
        ax.plot(
            x,
            place + apart,
            linestyle="",
            marker=style.marker,
            color=style.colour,
            markersize=3.5,
            alpha=0.7,
        )
        error = x.std(ddof=1) / np.sqrt(len(x)) if len(x) > 1 else 0.0
        ax.errorbar(x.mean(), place, xerr=error, fmt="|", color="black", markersize=14, capsize=3)
    ax.set_yticks(range(len(values)), [NAMES[method] for method in values])
    ax.set_ylim(len(values) - 0.5, -0.5)
    if wanted is not None:
        ax.axvline(wanted, color="0.5", linewidth=0.8, linestyle=":")


def erk_figure(cases: dict[str, Any]) -> Figure:
    """Share of the horizon that the 90 % band contains, by species: mean ± standard error."""
    figure, panels = grid(len(cases), 1, 9.0, 2.4, sharex=True)
    for ax, (regime, methods) in zip(panels[:, 0], cases.items(), strict=True):
        for k, method in enumerate(ERK_METHODS):
            species = methods[method]["species"]
            place = np.arange(len(species)) + 0.3 * k - 0.15
            style = STYLES[method]
            for level, filled in (("0.9", True), ("0.5", False)):
                ax.errorbar(
                    place,
                    [one["coverage"][level] for one in species.values()],
                    yerr=[one["standard_error"][level] or 0.0 for one in species.values()],
                    fmt=style.marker,
                    color=style.colour,
                    markerfacecolor=style.colour if filled else "white",
                    capsize=2,
                    label=f"{NAMES[method]}, {100 * float(level):.0f} % band",
                )
            ax.set_xticks(np.arange(len(species)), list(species), rotation=20, ha="right")
        for level in (0.5, 0.9):
            ax.axhline(level, color="0.5", linewidth=0.8, linestyle=":")
        trusted = [f"{NAMES[m]}: {methods[m]['status']}" for m in ERK_METHODS]
        ax.set_title(f"{regime}; {' '.join(trusted)}", fontsize=8)
        ax.set(ylim=(-0.03, 1.03), ylabel="share of the horizon")
    legend(figure, panels[:1, 0], 4)
    return figure


def captions() -> dict[str, str]:
    """What each figure shows."""
    return {
        "replicates": "coverage of the 50 % and 90 % bands and CRPS beyond the data for every data "
        "set, by method; black: the mean with its standard error; dotted: what a band should hold.",
        "erk": "share of the horizon over which the bands contain the truth, by species, over "
        "seeds of the measurement noise: mean with its standard error.",
    }


def findings(summary: dict[str, Any]) -> list[str]:
    """What the means come to: which bars hold, what PCUQ costs, and ERK by species."""
    found = []
    for setting, bars in summary["bars"].items():
        cases = summary["cases"][setting]
        held = "; ".join(f"{bar}: {'yes' if holds else 'NO'}" for bar, holds in bars.items())
        right = {m: cases["well-specified"][m]["crps"] for m in ("pcuq", "bayes")}
        found.append(
            f"**{setting}**, misspecified: {held}. Where the model is right PCUQ has a CRPS of "
            f"{right['pcuq']:.3g} and Bayes of {right['bayes']:.3g}. Paths that were redrawn: "
            f"{cases['misspecified']['exploded_paths']}."
        )
    return [
        *found,
        summary["rule"],
        "**ERK**, mean share of the horizon over which the 50 / 90 % bands contain the truth:",
        species_table(summary["cases"]["erk"]),
    ]
