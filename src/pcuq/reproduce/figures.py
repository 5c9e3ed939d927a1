"""What the figures of all experiments share: styles, files, warnings, panels of species, traces.

Nothing rests on colour alone: species differ by line and hatching, methods by marker, and every
panel has a title in words. A panel drawn from a fit that is not to be trusted says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure

from pcuq.functionals import Prediction
from pcuq.plots import Style, plot_bands, plot_calibration, styles
from pcuq.result import Fit

# Of the first and second output, or parameter, of a panel.
FIRST = Style("#0072B2", "-", "o", None)
SECOND = Style("#D55E00", "--", "^", "////")
PAIR = (FIRST, SECOND)
MOST_PATHS, MOST_POINTS = 30, 800  # of a trace: more cannot be told apart
# Of methods that only studies have.
OTHERS = {
    "bayes-student-t": Style("#E69F00", "-.", "v", "\\\\\\\\"),
    "mmd-bayes-matched": Style("#CC79A7", (0, (5, 1, 1, 1, 1, 1)), "D", "xxxx"),  # pyright: ignore[reportArgumentType]
}
OTHER_NAMES = {
    "bayes-student-t": "Bayes, Student-t noise",
    "mmd-bayes-matched": "MMD-Bayes, β = 1/(2λ★)",
}
BANDS = "bands: 50 % (dark) and 90 %, without noise"
DISTRUST = "not converged, do not trust"


def style_of(name: str) -> Style:
    """The style of a method, also of one that only studies have."""
    return OTHERS.get(name) or styles.style_of(name)


def name_of(name: str) -> str:
    """A method's name as people write it."""
    return OTHER_NAMES.get(name) or styles.name_of(name)


@contextmanager
def drawing():
    """The look that all figures have."""
    with matplotlib.rc_context(
        {
            "font.size": 8,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "hatch.linewidth": 0.4,
        }
    ):
        yield


def save(figure: Figure, out: Path, name: str) -> list[str]:
    """Write `name`.png and `name`.pdf; return their names."""
    names = [f"{name}.png", f"{name}.pdf"]
    for file in names:
        figure.savefig(out / file, dpi=150)
        figure.set_layout_engine("none")  # panels stay where they are: finding that takes longest
    return names


def grid(rows: int, columns: int, width: float = 3.0, height: float = 2.4, **options):
    """A figure and its panels (rows, columns)."""
    figure = Figure(figsize=(width * columns, height * rows + 0.4), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def legend(
    figure: Figure, panels: Iterable[Axes], columns: int = 6, title: str | None = None
) -> None:
    """One legend below, with each label of the panels once."""
    handles, labels = [], []
    for ax in panels:
        for handle, label in zip(*ax.get_legend_handles_labels(), strict=True):
            if label not in labels:
                handles.append(handle)
                labels.append(label)
    made = figure.legend(
        handles,
        labels,
        loc="outside lower center",
        ncols=columns,
        fontsize=7,
        title=title,
        title_fontsize=7,
    )
    for handle in made.legend_handles:
        if isinstance(handle, PathCollection):  # points are drawn faint where there are many
            handle.set_alpha(1.0)


def warn(ax: Axes, fits: Mapping[str, Fit] | Sequence[tuple[str, Fit]]) -> None:
    """Say on the panel which of its fits are not to be trusted."""
    pairs = fits.items() if isinstance(fits, Mapping) else fits
    doubtful = [name for name, fitted in pairs if not fitted.trusted]
    if doubtful:
        ax.text(
            0.02,
            0.98,
            f"{DISTRUST}:\n{', '.join(doubtful)}",
            transform=ax.transAxes,
            verticalalignment="top",
            fontsize=6.5,
            fontweight="bold",
            zorder=10,
            bbox={"facecolor": "white", "edgecolor": "black", "linewidth": 0.6, "alpha": 0.85},
        )


def warn_of_means(figure: Figure, rows: Mapping[str, Mapping[str, Any]]) -> None:
    """Say above a figure of means which of them hold fits that did not converge."""
    doubtful = [f"{name} ({row['status']})" for name, row in rows.items() if not row["trusted"]]
    if doubtful:
        shown = "; ".join(doubtful[:4]) + ("; …" if len(doubtful) > 4 else "")
        figure.suptitle(
            f"{len(doubtful)} of {len(rows)} means hold fits that did not converge: {shown}",
            fontsize=7,
            fontweight="bold",
        )


def species_panel(
    ax: Axes, prediction: Prediction, data: Any, last_datum: float, bands: bool = True
) -> None:
    """Bands of 50 % and 90 % of two outputs, with their truth and data, in one panel."""
    for column, (output, style) in enumerate(zip(prediction.outputs, PAIR, strict=True)):
        plot_bands(
            ax,
            prediction,
            output,
            levels=(0.9, 0.5) if bands else (),
            style=style,
            label=f"{output}: predicted median",
        )
        ax.plot(
            data.truth_times,
            data.truth[:, column],
            color="black",
            linestyle=style.line,
            linewidth=0.9,
            label=f"{output}: truth",
        )
        ax.plot(
            data.times,
            data.y[:, column],
            linestyle="",
            marker=".x"[column],
            color="black",
            markersize=2.5,
            markeredgewidth=0.5,
            alpha=0.6,
            label=f"{output}: data",
        )
    ax.axvline(last_datum, color="grey", linewidth=0.8, linestyle="-.")
    # Bands may reach far beyond what happens: the truth sets the scale.
    ax.set_ylim(min(0.0, data.truth.min()) - 2, 1.6 * data.truth.max())


def trace_panel(ax: Axes, fitted: Fit) -> None:
    """Paths of θ, warm-up included and marked: one style per parameter."""
    tree = fitted.tree
    kept = tree["unconstrained_posterior"]
    warm = tree.get("warmup_unconstrained_posterior")
    settled = 0
    for k, (name, style) in enumerate(zip(fitted.parameters, PAIR, strict=True)):
        paths = kept[name].transpose("chain", "draw").to_numpy()
        before = paths[:, :0] if warm is None else warm[name].transpose("chain", "draw").to_numpy()
        whole, settled = np.concatenate([before, paths], axis=1), before.shape[1]
        every = max(1, whole.shape[1] // MOST_POINTS)
        x = np.arange(0, whole.shape[1], every)
        for path in whole[:MOST_PATHS]:
            # Dots: lines between jumps would hide what lies between.
            ax.plot(
                x,
                path[::every],
                color=style.colour,
                linestyle="",
                marker=style.marker,
                markersize=1.2,
                markeredgewidth=0,
                alpha=0.6,
                rasterized=True,
            )
        ax.plot(
            [],
            [],
            color=style.colour,
            linestyle="",
            marker=style.marker,
            label=f"θ{'₁₂'[k]} = logit {name}",
        )
    if settled:
        ax.axvline(settled, color="black", linewidth=0.8, linestyle="-.")
    ax.set_xlabel("retained iteration; kept after the line")


def calibration_figure(calibration: Mapping[str, Any]) -> Figure:
    """How λ★ was found."""
    figure, panels = grid(1, 2, 3.8, 3.0)
    plot_calibration(calibration, panels[0])
    return figure
