"""The Lotka–Volterra figures, drawn from what was fitted, and what each of them shows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pcuq._x64 import x64
from pcuq.likelihood import log_likelihood_function
from pcuq.objective import part_that_fits
from pcuq.plots import NAMES, Style, plot_pairs2d
from pcuq.reproduce.cases import LAST_DATUM
from pcuq.reproduce.figures import (
    BANDS,
    calibration_figure,
    drawing,
    grid,
    legend,
    save,
    species_panel,
    trace_panel,
    warn,
)
from pcuq.reproduce.methods import METHODS, Size
from pcuq.result import Fit

if TYPE_CHECKING:
    from pcuq.reproduce.lotka_volterra import Case

DROPS = (3.0, 30.0, 300.0, 3000.0)  # contours: log posterior below its maximum
GRID = 61
# From behind to in front: the widest first. Light to dark in greyscale too.
CLOUDS = {
    "pcuq-tenfold": (Style("#F0C070", "-", "s", None), "PCUQ, 10 λ★"),
    "pcuq": (Style("#0072B2", "-", "o", None), "PCUQ, λ★"),
    "pcuq-tenth": (Style("#56B4E9", "-", "D", None), "PCUQ, λ★/10"),
    "bayes": (Style("#000000", "-", "^", None), "Bayes"),
}


@x64
def draw(cases: dict[str, Case], calibration, lam: float, size: Size, out: Path) -> list[str]:
    """Write every figure; return the names of the files."""
    with drawing():
        made = {
            "main": main_figure(cases),
            "traces": traces_figure(cases),
            "sensitivity": sensitivity_figure(cases, lam),
            "particles": particles_figure(cases, size.trace_particles),
            "calibration": calibration_figure(calibration),
        }
        return [file for name, figure in made.items() for file in save(figure, out, name)]


def main_figure(cases: dict[str, Case]) -> Figure:
    """Posterior contours with draws, then bands of each method: a row per case."""
    figure, panels = grid(len(cases), 1 + len(METHODS), 3.3, 2.7)
    for row, (name, case) in zip(panels, cases.items(), strict=True):
        contour_panel(row[0], case)
        row[0].set_title(f"parameters, {name}")
        for ax, method in zip(row[1:], METHODS, strict=True):
            prediction = case.predictions[method]
            species_panel(ax, prediction, case.data, LAST_DATUM, bands=method != "mmd-bayes")
            ax.set_title(f"{NAMES[method]}, {name}")
            warn(ax, {NAMES[method]: case.fits[method]})
    for ax in panels[-1, 1:]:
        ax.set_xlabel("x; data end at 60")
    legend(figure, [panels[0, 0], panels[0, 1]], 4, BANDS)
    return figure


def contour_panel(ax: Axes, case: Case, clouds: Mapping[str, tuple[Style, str]] = CLOUDS) -> None:
    """Draws of θ over contours of the log posterior, around the part of Q that fits."""
    low, high = _window(case)
    axes, surface = _log_posterior(case, low, high)
    levels = [-drop for drop in sorted(DROPS, reverse=True) if surface.min() < -drop]
    for key, (style, label) in clouds.items():
        plot_pairs2d(ax, case.fits[key].thetas[::4], style=style, label=label, size=5)
    lines = ax.contour(
        *axes, surface, levels=levels, colors="black", linewidths=0.7, linestyles="solid", zorder=4
    )
    ax.clabel(lines, fmt=lambda level: f"−{-level:.0f}", fontsize=6)
    ax.plot(
        *case.fits["mmd-bayes"].thetas[0],
        "+",
        color="#D55E00",
        markersize=9,
        markeredgewidth=1.6,
        zorder=5,
        label="MMD-Bayes, β = exp(np): a point",
    )
    ax.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]))
    ax.set(xlabel="θ₁ = logit alpha", ylabel="θ₂ = logit beta")
    ax.locator_params(axis="x", nbins=5)  # more of them would touch
    warn(ax, [(label, case.fits[key]) for key, (_, label) in clouds.items()])


def traces_figure(cases: dict[str, Case]) -> Figure:
    """Paths of the samplers of the three methods: a row per case."""
    columns = {
        "bayes-chains": "Bayes: ten chains of MALA",
        "mmd-bayes-matched": "MMD-Bayes, β = 1/(2λ★): ten chains of MALA",
    }
    sizes = [key for key in next(iter(cases.values())).fits if key.startswith("pcuq-N")]
    last = max(sizes, key=lambda key: int(key.removeprefix("pcuq-N")))
    with_ten = "pcuq-N10" if "pcuq-N10" in next(iter(cases.values())).fits else last
    columns[with_ten] = f"PCUQ: ensemble of N = {with_ten[6:]}, two systems"
    figure, panels = grid(len(cases), len(columns), 3.6, 2.5)
    for row, (name, case) in zip(panels, cases.items(), strict=True):
        for ax, (key, title) in zip(row, columns.items(), strict=True):
            trace_panel(ax, case.fits[key])
            if key == "mmd-bayes-matched":
                for value in case.fits["mmd-bayes"].thetas[0]:
                    ax.axhline(value, color="black", linewidth=0.9, linestyle=":")
            ax.set_title(f"{title}\n{name}", fontsize=8)
            warn(ax, {title.split(":")[0]: case.fits[key]})
    legend(figure, [panels[0, 0]])
    return figure


def sensitivity_figure(cases: dict[str, Case], lam: float) -> Figure:
    """Predictions of PCUQ at λ★/10, λ★ and 10 λ★: a row per case."""
    columns = {"pcuq-tenth": ("λ★/10", 0.1), "pcuq": ("λ★", 1.0), "pcuq-tenfold": ("10 λ★", 10.0)}
    figure, panels = grid(len(cases), len(columns), 3.6, 2.5, sharex=True)
    for row, (name, case) in zip(panels, cases.items(), strict=True):
        for ax, (key, (label, factor)) in zip(row, columns.items(), strict=True):
            species_panel(ax, case.predictions[key], case.data, LAST_DATUM)
            share = case.rows[key]["share_outside_fit"]
            ax.set_title(
                f"{label} = {factor * lam:.2g}, {name}\n{share:.0%} of Q outside the part that fits"
            )
            warn(ax, {f"PCUQ, {label}": case.fits[key]})
    legend(figure, [panels[0, 0]], title=BANDS)
    return figure


def particles_figure(cases: dict[str, Case], counts: tuple[int, ...]) -> Figure:
    """Traces of PCUQ for several N: a row per case."""
    figure, panels = grid(len(cases), len(counts), 3.6, 2.5)
    for row, (name, case) in zip(panels, cases.items(), strict=True):
        for ax, count in zip(row, counts, strict=True):
            fitted = case.fits[f"pcuq-N{count}"]
            trace_panel(ax, fitted)
            ax.set_title(f"N = {count}, {name}")
            warn(ax, {f"N = {count}": fitted})
        # A system that ends elsewhere should be seen to.
        edges = [ax.get_ylim() for ax in row]
        for ax in row:
            ax.set_ylim(min(low for low, _ in edges), max(high for _, high in edges))
    legend(figure, [panels[0, 0]])
    return figure


def captions(summary: dict[str, Any]) -> dict[str, str]:
    """What each figure shows."""
    mis = summary["cases"]["misspecified"]

    def bands(key: str) -> str:
        cover = mis[key]["coverage"]
        return f"{cover['0.5']:.2f} / {cover['0.9']:.2f}"

    return {
        "main": "left, contours of the log posterior of Bayes (labels: below its maximum) with "
        "draws of Bayes and of PCUQ at three λ, shown around the part that fits; then the bands of "
        "50 % and 90 % of Bayes, MMD-Bayes and PCUQ, prey solid and predator dashed, truth in "
        "black, data to 60. Top well-specified, bottom misspecified. In the misspecified case the "
        f"50 / 90 % bands beyond the data hold the truth for {bands('bayes')} (Bayes) and "
        f"{bands('pcuq')} (PCUQ) of the horizon.",
        "traces": "paths of θ₁ and θ₂ of the three samplers, warm-up left of the line. Dotted: the "
        "point to which MMD-Bayes shrinks at the paper's β.",
        "sensitivity": "predictions of PCUQ at λ★/10, λ★ and 10 λ★. The 50 / 90 % bands of the "
        f"misspecified case hold the truth for {bands('pcuq-tenth')}, {bands('pcuq')} and "
        f"{bands('pcuq-tenfold')} of the horizon. The paper finds predictions almost unchanged.",
        "particles": "paths of θ₁ and θ₂ of PCUQ with different numbers of particles.",
        "calibration": "how λ★ was found: on data simulated from the fitted model, the spread of Q "
        "in the part that fits, and the share of Q outside it, against λ.",
    }


def _window(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """A box around the part of Q that fits: what lies near the prior would dwarf it."""
    inside = _inside(case.fits["pcuq"])
    edges = np.quantile(inside, [0.01, 0.99], axis=0)
    middle, half = edges.mean(axis=0), np.maximum(0.9 * np.ptp(edges, axis=0), 0.02)
    points = np.concatenate([case.fits[m].thetas for m in ("bayes", "mmd-bayes")])
    low = np.minimum(middle - half, points.min(axis=0) - 0.2 * half)
    return low, np.maximum(middle + half, points.max(axis=0) + 0.2 * half)


def _inside(fitted: Fit) -> np.ndarray:
    v = fitted.tree["sample_stats"]["v"].transpose("draw", "chain").to_numpy().ravel()
    return fitted.thetas[part_that_fits(v)]


def _log_posterior(case: Case, low: np.ndarray, high: np.ndarray):
    """((θ₁, θ₂) along the axes, log posterior minus its maximum (GRID, GRID)), rows along θ₂."""
    problem = case.problem
    first, second = (np.linspace(a, b, GRID) for a, b in zip(low, high, strict=True))
    points = np.stack(np.meshgrid(first, second), axis=-1).reshape(-1, 2)
    predictor = problem.predictor(points[:: len(points) // 32], tolerance=1e-4)
    likelihood = log_likelihood_function(problem, predictor)

    def log_density(theta):
        return likelihood(theta) + problem.parameters.log_prior(theta)

    # The maximum lies between points of the grid: draws of Bayes come closer to it.
    points = np.concatenate([points, case.fits["bayes"].thetas[::10]])
    values = np.asarray(jax.jit(jax.vmap(log_density))(jnp.asarray(points)))
    finite = np.isfinite(values)
    values = np.where(finite, values, values[finite].min()) - values[finite].max()
    return (first, second), values[: GRID**2].reshape(GRID, GRID)
