"""The paper's first figure: Lotka–Volterra, well and badly specified, by three methods.

Data end at x = 60 and predictions go on to x = 90. Bayes; MMD-Bayes in its limit β → ∞, a point;
and PCUQ. Scores are of noise-free predictions against the noise-free truth on 60 < x ≤ 90, where
no method has seen data. One data set proves nothing: coverage varies much from seed to seed.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import matplotlib
import numpy as np
from matplotlib.figure import Figure

from pcuq import plots, report, scores
from pcuq._x64 import x64
from pcuq.fit import fit
from pcuq.functionals import Prediction
from pcuq.groups import keep
from pcuq.likelihood import log_likelihood_function
from pcuq.objective import part_that_fits
from pcuq.problem import Problem
from pcuq.report import HeldOut
from pcuq.result import Fit, versions
from pcuq.zoo import lotka_volterra
from pcuq.zoo.lotka_volterra import LVData

Tell = Callable[[str], None]

CASES = {"well-specified": False, "misspecified": True}
METHODS = ("bayes", "mmd-bayes", "pcuq")
LEVELS = (0.5, 0.9)
LAST_DATUM = 60.0
EVERY = 5  # of the truth's times are predicted
DROPS = (3.0, 30.0, 300.0, 3000.0)  # contours: log posterior below its maximum
GRID = 61
MOST_DRAWS = 2000


@dataclass(frozen=True)
class Size:
    """How much is computed; the default takes a minute or two, most of it compiling."""

    regularisation: float = 3e-5
    particles: int = 50
    systems: int = 2
    warmup: int = 200
    draws: int = 150
    bayes_chains: int = 10
    bayes_warmup: int = 600
    bayes_draws: int = 250


class Case(NamedTuple):
    """One data set with what each method made of it."""

    data: LVData
    problem: Problem
    fits: dict[str, Fit]
    predictions: dict[str, Prediction]
    seconds: dict[str, float]


@x64
def demo(
    out: Path, seed: int = 0, size: Size | None = None, tell: Tell = lambda line: None
) -> dict[str, Any]:
    """Write parameters.png, predictions.png, summary.json and report.html; return the summary."""
    size = Size() if size is None else size
    out.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    # Compiling uses one core at a time: the two cases keep two of them busy.
    with ThreadPoolExecutor(max_workers=len(CASES)) as pool:
        waiting = {
            name: pool.submit(_case, name, wrong, seed, size, tell) for name, wrong in CASES.items()
        }
        cases = {name: case.result() for name, case in waiting.items()}
    tell("drawing")
    with matplotlib.rc_context({"font.size": 9, "axes.spines.top": False}):
        figures = {
            "parameters.png": parameters_figure(cases),
            "predictions.png": predictions_figure(cases),
        }
    for name, figure in figures.items():
        figure.savefig(out / name, dpi=150)
    summary = summarise(cases, seed, size)
    summary["seconds"] = round(time.perf_counter() - began, 1)
    (out / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    (out / "report.html").write_text(page(cases, seed), encoding="utf-8")
    return summary


@x64
def _case(name: str, misspecified: bool, seed: int, size: Size, tell: Tell) -> Case:
    data = lotka_volterra.simulate(seed, misspecified)
    problem = lotka_volterra.problem(seed, misspecified)
    fits, predictions, seconds = {}, {}, {}
    for method in METHODS:
        tell(f"{name}: {plots.NAMES[method]}")
        began = time.perf_counter()
        fits[method] = _fit(problem, method, seed, size)
        seconds[method] = time.perf_counter() - began
        predictions[method] = fits[method].predict(data.truth_times[::EVERY], max_draws=MOST_DRAWS)
        fits[method] = keep(fits[method], {"": predictions[method]})
        tell(f"{name}: {plots.NAMES[method]}, {seconds[method]:.0f} s. {fits[method].status}")
    return Case(data, problem, fits, predictions, seconds)


def _fit(problem: Problem, method: str, seed: int, size: Size) -> Fit:
    if method == "pcuq":
        return fit(
            problem,
            regularisation=size.regularisation,
            particles=size.particles,
            systems=size.systems,
            warmup=size.warmup,
            draws=size.draws,
            seed=seed,
        )
    return fit(
        problem,
        method=method,
        beta="paper",
        # The paper's parallel MALA: with two parameters it is as good as NUTS, and compiles sooner.
        sampler="mala",
        particles=size.bayes_chains,
        warmup=size.bayes_warmup,
        draws=size.bayes_draws,
        thin=4,
        seed=seed,
    )


# --- the summary --------------------------------------------------------------------------------


def summarise(cases: dict[str, Case], seed: int, size: Size) -> dict[str, Any]:
    """Every figure by case and method, ready for JSON: null for what a method does not have."""
    found = {
        name: {method: _row(case, method) for method in case.fits} for name, case in cases.items()
    }
    return {
        "cases": found,
        "exploded_paths": {name: case.data.exploded_paths for name, case in cases.items()},
        "replicates": 1,
        "seed": seed,
        "size": asdict(size),
        "scored_on": "noise-free predictions of the noise-free truth, 60 < x <= 90",
        "versions": versions(),
    }


def _row(case: Case, method: str) -> dict[str, Any]:
    fitted, prediction = case.fits[method], case.predictions[method]
    figures = fitted.diagnostics
    later = case.data.truth_times[::EVERY] > LAST_DATUM
    truth = case.data.truth[::EVERY][later]
    draws = prediction.trajectories[prediction.ok][:, later]
    return {
        "regularisation": _number(fitted.tree.attrs["regularisation"]),
        "rhat_max": _number(figures.get("rhat_max")),
        "ess_min": _number(figures.get("ess_min")),
        "fixed_point_residual": _number(figures.get("fixed_point_residual")),
        "share_outside_fit": _number(figures.get("share_outside_fit")),
        "coverage": {f"{q:g}": _number(c) for q, c in scores.coverage(draws, truth).items()},
        "crps": _number(np.mean(scores.crps(draws, truth))),
        "seconds": round(case.seconds[method], 1),
        "status": fitted.status,
        "trusted": fitted.trusted,
        "failed_predictions": prediction.failed,
        "timings": json.loads(fitted.tree.attrs["seconds"]),
    }


def _number(value: Any) -> float | None:
    return float(value) if value is not None and math.isfinite(value) else None


# --- the figures --------------------------------------------------------------------------------


def parameters_figure(cases: dict[str, Case]) -> Figure:
    """Draws of θ by Bayes and PCUQ over contours of the log posterior, one panel per case."""
    figure = Figure(figsize=(9, 4.8), layout="constrained")
    panels = figure.subplots(1, len(cases), squeeze=False)[0]
    for ax, (name, case) in zip(panels, cases.items(), strict=True):
        low, high = _window(case)
        axes, surface = _log_posterior(case, low, high)
        levels = [-drop for drop in sorted(DROPS, reverse=True) if surface.min() < -drop]
        lines = ax.contour(
            *axes, surface, levels=levels, colors="grey", linewidths=0.8, linestyles="solid"
        )
        ax.clabel(lines, fmt=lambda level: f"−{-level:.0f}", fontsize=7)
        for method in ("pcuq", "bayes"):
            plots.plot_pairs2d(
                ax, case.fits[method].thetas, style=method, label=plots.NAMES[method]
            )
        point = case.fits["mmd-bayes"].thetas[0]
        ax.plot(*point, "+", color="black", markersize=10, label="MMD-Bayes, β → ∞")
        ax.set(title=name, xlim=(low[0], high[0]), ylim=(low[1], high[1]))
        ax.set(xlabel="θ₁ = logit alpha", ylabel="θ₂ = logit beta")
        _warn(ax, case)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(
        handles,
        labels,
        loc="outside lower center",
        ncols=3,
        title="contours: log posterior of Bayes, below its maximum",
    )
    return figure


def _window(case: Case) -> tuple[np.ndarray, np.ndarray]:
    """A box around the part of Q that fits: what lies near the prior would dwarf it."""
    fitted = case.fits["pcuq"]
    v = fitted.tree["sample_stats"]["v"].transpose("draw", "chain").to_numpy().ravel()
    inside = fitted.thetas[part_that_fits(v)]
    edges = np.quantile(inside, [0.01, 0.99], axis=0)
    middle, half = edges.mean(axis=0), np.maximum(0.75 * np.ptp(edges, axis=0), 0.02)
    points = np.concatenate([case.fits[m].thetas for m in ("bayes", "mmd-bayes")])
    low = np.minimum(middle - half, points.min(axis=0) - 0.2 * half)
    return low, np.maximum(middle + half, points.max(axis=0) + 0.2 * half)


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
    points = np.concatenate([points, case.fits["bayes"].thetas])
    values = np.asarray(jax.jit(jax.vmap(log_density))(jnp.asarray(points)))
    finite = np.isfinite(values)
    values = np.where(finite, values, values[finite].min()) - values[finite].max()
    return (first, second), values[: GRID**2].reshape(GRID, GRID)


def predictions_figure(cases: dict[str, Case]) -> Figure:
    """Bands of 50 % and 90 % by three methods, the data and the truth: a row per case."""
    outputs = lotka_volterra.OUTPUTS
    figure = Figure(figsize=(11, 6.4), layout="constrained")
    panels = figure.subplots(len(cases), len(outputs), sharex=True, squeeze=False)
    for row, (name, case) in zip(panels, cases.items(), strict=True):
        for column, (ax, output) in enumerate(zip(row, outputs, strict=True)):
            for method in ("pcuq", "bayes", "mmd-bayes"):
                plots.plot_bands(
                    ax,
                    case.predictions[method],
                    output,
                    style=method,
                    label=plots.NAMES[method],
                    levels=LEVELS if method != "mmd-bayes" else (),
                )
            truth = case.data.truth[:, column]
            ax.plot(case.data.truth_times, truth, color="black", linewidth=0.9, label="truth")
            plots.plot_data(ax, case.data.times, case.data.y[:, column])
            ax.axvline(LAST_DATUM, color="grey", linewidth=0.8, linestyle="-.")
            # Bands may reach far beyond what happens: the truth sets the scale.
            ax.set_ylim(min(0.0, truth.min()) - 0.08 * truth.max(), 1.7 * truth.max())
            ax.set_title(f"{output}, {name}")
            _warn(ax, case)
    for ax in panels[-1]:
        ax.set_xlabel("x; data end at 60")
    handles, labels = panels[0, 0].get_legend_handles_labels()
    figure.legend(
        handles, labels, loc="outside lower center", ncols=5, title="bands: 50 % and 90 %, no noise"
    )
    return figure


def _warn(ax, case: Case) -> None:
    """Say on the figure which fits are not to be trusted."""
    doubtful = [plots.NAMES[method] for method, one in case.fits.items() if not one.trusted]
    if doubtful:
        ax.text(
            0.02,
            0.97,
            f"not converged, do not trust: {', '.join(doubtful)}",
            transform=ax.transAxes,
            verticalalignment="top",
            fontsize=8,
            fontweight="bold",
            bbox={"facecolor": "white", "edgecolor": "black", "linewidth": 0.8},
        )


# --- the report ---------------------------------------------------------------------------------

INTRODUCTION = """Predator and prey, by the Lotka–Volterra equations. Once the data come from those
equations (well-specified); once chance moves the animals as well, of which the model knows nothing
(misspecified). Data end at x = 60, and the noise-free truth on 60 < x ≤ 90 was held out. This is
one data set of each kind, from seed {seed}: coverage varies much from one to the next, and one
proves nothing."""


def page(cases: dict[str, Case], seed: int) -> str:
    """The report on both cases, with what was held out."""
    shown = []
    for name, case in cases.items():
        x = case.data.truth_times[::EVERY]
        later = x > LAST_DATUM
        held = HeldOut(x[later], case.data.truth[::EVERY][later], noisy=False)
        shown.append(report.Case(name, list(case.fits.values()), [held]))
    return report.report(
        shown,
        title="Lotka–Volterra by three methods",
        introduction=INTRODUCTION.format(seed=seed),
    )
