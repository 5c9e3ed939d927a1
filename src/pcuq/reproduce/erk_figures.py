"""The ERK figures, drawn from what was fitted, and what each of them shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scipy.special import logit
from scipy.stats import norm

from pcuq._x64 import x64
from pcuq.functionals import Prediction
from pcuq.plots import NAMES, STYLES, plot_bands, plot_data
from pcuq.reproduce.erk_cases import METHODS, REGIMES
from pcuq.reproduce.figures import BANDS, calibration_figure, drawing, grid, legend, save, warn
from pcuq.result import Fit
from pcuq.zoo import erk as zoo
from pcuq.zoo.erk import ERKData

TITLES = {"control": "control", "inhibited": "under the MEK inhibitor"}
COLUMNS = 6  # of species
Fits = dict[str, Fit]
Predictions = dict[str, dict[str, Prediction]]


@x64
def draw(
    data: ERKData, fits: Fits, predictions: Predictions, cases, calibration, out: Path
) -> list[str]:
    """Write every figure; return the names of the files."""
    with drawing():
        made = {
            "main": main_figure(data, fits, predictions),
            **{m: species_figure(data, fits[m], predictions[m], m) for m in METHODS},
            "rates": rates_figure(fits),
            "truth": truth_figure(data),
            "coverage": coverage_figure(cases, fits),
        }
        if "lams" in calibration:
            made["calibration"] = calibration_figure(calibration)
        return [file for name, figure in made.items() for file in save(figure, out, name)]


def panel(ax: Axes, data: ERKData, prediction: Prediction, name: str, method: str, regime: str):
    """One species: bands of 50 % and 90 %, predictive mean, truth, and data where there are any."""
    column = zoo.OUTPUTS.index(name)
    assert prediction.x is not None
    plot_bands(ax, prediction, name, style=method, median=False)
    style = STYLES[method]
    ax.plot(
        prediction.x,
        prediction.mean()[:, column],
        color=style.colour,
        linestyle=style.line,
        label=f"{NAMES[method]}: predictive mean",
    )
    truth = data.truth if regime == "control" else data.truth_inhibited
    ax.plot(data.truth_times, truth[:, column], color="black", linewidth=0.9, label="truth")
    if regime == "control":
        plot_data(ax, data.times, data.y[:, column])
    # The truth sets the scale, and bands may reach twice its range beyond it.
    least, most = truth[:, column].min(), truth[:, column].max()
    reach = max(most - least, 0.02 * most)
    low, high = (edge[:, column] for edge in prediction.band(0.9))
    bottom, top = max(low.min(), least - 2 * reach), min(high.max(), most + 2 * reach)
    bottom, top = min(bottom, least), max(top, most)
    ax.set_ylim(bottom - 0.06 * (top - bottom), top + 0.06 * (top - bottom))


def main_figure(data: ERKData, fits: Fits, predictions: Predictions) -> Figure:
    """Unbound ERK: training regime on the left, inhibitor on the right, a row per method."""
    figure, panels = grid(len(METHODS), 2, 3.6, 2.4, sharex=True, sharey="col")
    for row, method in zip(panels, METHODS, strict=True):
        for ax, regime in zip(row, ("control", "inhibited"), strict=True):
            panel(ax, data, predictions[method][regime], "ERK", method, regime)
            ax.set_title(f"ERK, {TITLES[regime]}: {NAMES[method]}")
            warn(ax, {NAMES[method]: fits[method]})
    for ax in panels[-1]:
        ax.set_xlabel("x; data end at 45")
    legend(figure, panels[:, 0], title=BANDS)
    return figure


def species_figure(
    data: ERKData, fitted: Fit, of_method: dict[str, Prediction], method: str
) -> Figure:
    """All species in both regimes: rows come in pairs, control above inhibitor."""
    blocks = -(-len(zoo.OUTPUTS) // COLUMNS)
    figure, panels = grid(2 * blocks, COLUMNS, 2.3, 1.7, sharex=True)
    for index, name in enumerate(zoo.OUTPUTS):
        block, column = divmod(index, COLUMNS)
        for k, regime in enumerate(("control", "inhibited")):
            ax = panels[2 * block + k, column]
            panel(ax, data, of_method[regime], name, method, regime)
            ax.set_title(f"{name}\n{TITLES[regime]}", fontsize=7)
            warn(ax, {NAMES[method]: fitted})
    for ax in panels.ravel():
        if not ax.has_data():
            ax.set_axis_off()
    legend(figure, panels[:1, 0], title=BANDS)
    return figure


def rates_figure(fits: Fits) -> Figure:
    """Each rate: prior, draws of both methods, and the range over which the true one varies."""
    figure, panels = grid(2, COLUMNS, 2.3, 1.9)
    theta = np.linspace(-7, 5, 400)
    for ax, name in zip(panels.ravel(), zoo.RATES, strict=False):
        ax.plot(theta, norm.pdf(theta), color="0.6", linestyle="-.", label="prior")
        for method in ("pcuq", "bayes"):
            group = fits[method].tree["unconstrained_posterior"]
            style = STYLES[method]
            ax.hist(
                group[name].to_numpy().ravel(),
                bins=60,
                density=True,
                histtype="stepfilled",
                facecolor=(*_rgb(style.colour), 0.35),
                edgecolor=style.colour,
                hatch=style.hatch,
                label=NAMES[method],
            )
        truth = zoo.RATES[name]
        low, high = (logit(min(factor * truth, 0.999)) for factor in (0.5, 1.5))
        ax.axvspan(low, high, color="0.85", zorder=0, label="true rate, over time")
        ax.set(title=f"{name} = {truth:g}", xlabel="logit", yscale="log", ylim=(1e-3, None))
        ax.set_xlim(-9, 6)
        warn(ax, {NAMES[m]: fits[m] for m in METHODS})
    for ax in panels.ravel()[len(zoo.RATES) :]:
        ax.set_axis_off()
    legend(figure, panels[:1, 0])
    return figure


def truth_figure(data: ERKData) -> Figure:
    """The truth with rates that vary, beside the model's own with constant rates."""
    figure, panels = grid(2, COLUMNS, 2.3, 1.8, sharex=True)
    x = data.truth_times
    panels[0, 0].plot(x, 1 + 0.5 * np.sin(2 * np.pi * x / 45), color="black")
    panels[0, 0].axhline(1.0, color="#D55E00", linestyle="--")
    panels[0, 0].set_title("rate / its value in the model", fontsize=7)
    constant = zoo.simulate(data.seed, misspecified=False)
    for k, (ax, name) in enumerate(zip(panels.ravel()[1:], zoo.OUTPUTS, strict=True)):
        ax.plot(x, data.truth[:, k], color="black", label="truth: rates vary")
        ax.plot(x, constant.truth[:, k], color="#D55E00", linestyle="--", label="constant rates")
        plot_data(ax, data.times, data.y[:, k])
        ax.set_title(name, fontsize=7)
    legend(figure, panels[:1, 1])
    return figure


def coverage_figure(cases: dict[str, Any], fits: Fits) -> Figure:
    """Bars: the share of the horizon over which the bands contain the truth, by species."""
    figure, panels = grid(len(REGIMES), 1, 9.0, 2.4, sharex=True)
    place = np.arange(len(zoo.OUTPUTS))
    for ax, regime in zip(panels[:, 0], REGIMES, strict=True):
        for k, method in enumerate(METHODS):
            species, style = cases[regime][method]["species"], STYLES[method]
            for level, shade in (("0.9", 0.35), ("0.5", 0.9)):
                ax.bar(
                    place + 0.4 * k - 0.2,
                    [species[name]["coverage"][level] for name in zoo.OUTPUTS],
                    0.36 if level == "0.9" else 0.2,
                    facecolor=(*_rgb(style.colour), shade),
                    edgecolor=style.colour,
                    hatch=style.hatch if level == "0.9" else None,
                    label=f"{NAMES[method]}, {100 * float(level):.0f} % band",
                )
        for level in (0.5, 0.9):
            ax.axhline(level, color="0.4", linewidth=0.7, linestyle=":")
        ax.set(ylim=(0, 1.02), ylabel="share of the horizon", title=TITLES[regime])
        warn(ax, {NAMES[m]: fits[m] for m in METHODS})
    panels[-1, 0].set_xticks(place, zoo.OUTPUTS, rotation=20, ha="right")
    legend(figure, panels[:1, 0])
    return figure


def species_table(cases: dict[str, Any]) -> str:
    """Coverage by species as Markdown, 50 / 90 %."""
    heads = [f"{NAMES[m]}, {regime}" for regime in REGIMES for m in METHODS]
    lines = ["| species | " + " | ".join(heads) + " |", "|---|" + "---|" * len(heads)]
    for name in zoo.OUTPUTS:
        cells = []
        for regime in REGIMES:
            for method in METHODS:
                cover = cases[regime][method]["species"][name]["coverage"]
                cells.append(f"{cover['0.5']:.2f} / {cover['0.9']:.2f}")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def captions(summary: dict[str, Any]) -> dict[str, str]:
    """What each figure shows."""

    def erk(method: str) -> str:
        cover = summary["cases"]["inhibited"][method]["species"]["ERK"]["coverage"]
        return f"{cover['0.5']:.2f} / {cover['0.9']:.2f}"

    found = {
        "main": "unbound ERK: data and fit in control cells (left), and the prediction under the "
        "MEK inhibitor (right), by Bayes (top) and PCUQ (bottom); bands of 50 % and 90 %, "
        "predictive mean (which a few draws far away can pull out of the band: with outputs that "
        "combine by a sum, one may miss a species and explain the others), truth in black. Under "
        "the inhibitor the 50 / 90 % bands contain the "
        f"truth over {erk('bayes')} (Bayes) and {erk('pcuq')} (PCUQ) of the horizon.",
        "bayes": "all eleven species by Bayes, each in control cells and under the inhibitor.",
        "pcuq": "the same by PCUQ.",
        "rates": "the eleven rates on the logit scale: prior, both methods, and the range in which "
        "the rate that made the data varies.",
        "truth": "the factor common to all rates of the truth, and the truth with and without it.",
        "coverage": "share of the horizon over which the bands contain the truth, by species.",
    }
    if "lams" in summary["calibration"]:
        found["calibration"] = "spread of Q and the share outside the part that fits, against λ."
    return found


def _rgb(colour: str) -> tuple[float, float, float]:
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return red, green, blue
