"""The paper's first figure: Lotka–Volterra, well and badly specified, by three methods.

Data end at x = 60 and predictions go on to x = 90. Bayes; MMD-Bayes in its limit β → ∞, a point;
and PCUQ at a λ that is given. Scores are of noise-free predictions against the noise-free truth on
60 < x ≤ 90, where no method has seen data. One data set proves nothing: coverage varies much from
seed to seed. `pcuq reproduce` does the same at the paper's length, and much more.
"""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from pcuq import report
from pcuq._files import write_json, write_whole
from pcuq._x64 import x64
from pcuq.groups import keep
from pcuq.plots import NAMES
from pcuq.report import HeldOut
from pcuq.reproduce.cases import CASES, EVERY, LAST_DATUM, LATER, SCORED_ON, TIMES, made
from pcuq.reproduce.figures import BANDS, drawing, grid, legend, species_panel, warn
from pcuq.reproduce.lotka_volterra import Case
from pcuq.reproduce.lotka_volterra_figures import CLOUDS, contour_panel
from pcuq.reproduce.methods import METHODS, Run, fit_by
from pcuq.reproduce.rows import Tell, convergence, of_one_run, performance

MOST_DRAWS = 2000
ENSEMBLE = Run(warmup=200, draws=150)
# The paper's parallel MALA: with two parameters it is as good as NUTS, and compiles sooner.
CHAINS = Run(particles=10, systems=1, warmup=600, draws=250, thin=4)


@dataclass(frozen=True)
class Size:
    """How much is computed; the default takes a minute or two, most of it compiling."""

    regularisation: float = 3e-5
    pcuq: Run = ENSEMBLE
    bayes: Run = CHAINS


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
        waiting = {name: pool.submit(_case, name, seed, size, tell) for name in CASES}
        cases = {name: case.result() for name, case in waiting.items()}
    tell("drawing")
    with drawing():
        parameters_figure(cases).savefig(out / "parameters.png", dpi=150)
        predictions_figure(cases).savefig(out / "predictions.png", dpi=150)
    write_whole(out / "report.html", page(cases, seed).encode())
    summary = {
        "cases": {name: case.rows for name, case in cases.items()},
        "exploded_paths": {name: case.data.exploded_paths for name, case in cases.items()},
        "scored_on": SCORED_ON,
        **of_one_run(seed, size, began),
    }
    write_json(out / "summary.json", summary)
    return summary


@x64
def _case(name: str, seed: int, size: Size, tell: Tell) -> Case:
    case = Case(*made(seed, name, "main"))
    for method in METHODS:
        tell(f"{name}: {NAMES[method]}")
        run, sampler = (size.pcuq, "ensemble") if method == "pcuq" else (size.bayes, "mala")
        fitted, seconds = fit_by(
            method, case.problem, size.regularisation, run, seed=seed, sampler=sampler
        )
        prediction = fitted.predict(TIMES, max_draws=MOST_DRAWS)
        case.predictions[method] = prediction
        case.fits[method] = keep(fitted, {"": prediction})
        case.rows[method] = {
            **convergence(fitted, seconds),
            **performance(prediction, case.data.truth[::EVERY], LATER),
            "timings": json.loads(fitted.tree.attrs["seconds"]),
        }
        tell(f"{name}: {NAMES[method]}, {seconds:.0f} s. {fitted.status}")
    return case


def parameters_figure(cases: dict[str, Case]) -> Figure:
    """Draws of θ by Bayes and PCUQ over contours of the log posterior, one panel per case."""
    figure, panels = grid(1, len(cases), 4.5, 4.0)
    clouds = {key: (CLOUDS[key][0], NAMES[key]) for key in ("pcuq", "bayes")}
    for ax, (name, case) in zip(panels[0], cases.items(), strict=True):
        contour_panel(ax, case, clouds)
        ax.set_title(name)
    legend(figure, panels[0], title="contours: log posterior of Bayes, below its maximum")
    return figure


def predictions_figure(cases: dict[str, Case]) -> Figure:
    """Bands of 50 % and 90 % by three methods, the data and the truth: a row per case."""
    figure, panels = grid(len(cases), len(METHODS), 3.6, 2.7, sharex=True)
    for row, (name, case) in zip(panels, cases.items(), strict=True):
        for ax, method in zip(row, METHODS, strict=True):
            species_panel(
                ax, case.predictions[method], case.data, LAST_DATUM, bands=method != "mmd-bayes"
            )
            ax.set_title(f"{NAMES[method]}, {name}")
            warn(ax, {NAMES[method]: case.fits[method]})
    for ax in panels[-1]:
        ax.set_xlabel("x; data end at 60")
    legend(figure, [panels[0, 0]], title=BANDS)
    return figure


INTRODUCTION = """Predator and prey, by the Lotka–Volterra equations. Once the data come from those
equations (well-specified); once chance moves the animals as well, of which the model knows nothing
(misspecified). Data end at x = 60, and the noise-free truth on 60 < x ≤ 90 was held out. This is
one data set of each kind, from seed {seed}: coverage varies much from one to the next, and one
proves nothing."""


def page(cases: dict[str, Case], seed: int) -> str:
    """The report on both cases, with what was held out."""
    shown = []
    for name, case in cases.items():
        held = HeldOut(TIMES[LATER], case.data.truth[::EVERY][LATER], noisy=False)
        shown.append(report.Case(name, list(case.fits.values()), [held]))
    return report.report(
        shown,
        title="Lotka–Volterra by three methods",
        introduction=INTRODUCTION.format(seed=seed),
    )
