"""Huber-robustness: Lotka–Volterra data of which up to a fifth are grossly wrong.

The model is right but for a share of the rows, drawn at random, in which both species read 50 too
high: fifty noise sds. Bayes, Bayes with Student-t noise, MMD-Bayes (the point of the paper's β,
and β = 1/(2λ★)) and PCUQ at the λ★ of clean data. Beside coverage and CRPS beyond the data stands
the error of the parameters, the distance from the median of Q to the truth on the logit scale.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from scipy.special import logit

from pcuq.noise import StudentT
from pcuq.plots.styles import few_numbers
from pcuq.problem import Problem
from pcuq.reproduce.cases import SCORED_ON, made, score
from pcuq.reproduce.figures import (
    drawing,
    grid,
    legend,
    name_of,
    save,
    style_of,
    warn_of_means,
)
from pcuq.reproduce.methods import Size, fit_by
from pcuq.reproduce.replicates import SEEDS_APART, star, store_of
from pcuq.reproduce.rows import Row, Tell, line, mean_rows
from pcuq.reproduce.store import Store
from pcuq.result import Fit
from pcuq.zoo import lotka_volterra

METHODS = ("bayes", "bayes-student-t", "mmd-bayes", "mmd-bayes-matched", "pcuq")
ERROR = 50.0


def robustness(out: Path, seed: int, size: Size, tell: Tell) -> dict[str, Any]:
    """Summary by share of outliers and method; parts on disk are not computed again."""
    store = store_of(out / "parts", seed, size)
    lam = star(store, "main", seed, size, tell)
    cases: dict[str, Any] = {}
    for share in size.outliers:
        parts = [
            _part(store, share, seed, r, lam, size, tell) for r in range(size.robustness_replicates)
        ]
        label = f"{share:.0%} outliers"
        cases[label] = mean_rows(label, parts, METHODS, "parameter_error", tell)
    with drawing():
        files = save(figure(cases, size.outliers), out, "robustness")
    return {
        "cases": cases,
        "regularisation": lam,
        "scored_on": SCORED_ON,
        "figures": files,
        "parts": repr(store),
    }


def contaminated(problem: Problem, share: float, seed: int) -> Problem:
    """The problem with that share of its rows, at random, ERROR too high."""
    y = np.array(problem.data.y)
    random = np.random.default_rng([seed, 77])
    # The rows of a smaller share are among those of a larger one.
    y[random.permutation(len(y))[: round(share * len(y))]] += ERROR
    return problem.with_data(replace(problem.data, y=y))


def _part(store: Store, share: float, seed: int, r: int, lam: float, size: Size, tell: Tell) -> Row:
    def compute() -> Row:
        data, clean = made(SEEDS_APART * seed + r, "well-specified", "main")
        problem = contaminated(clean, share, r)
        rows = {}
        for name in METHODS:
            fitted, seconds = _fit(name, problem, lam, size, r)
            rows[name], _ = score(fitted, seconds, data, size)
            rows[name]["parameter_error"] = _parameter_error(fitted)
            tell(line(f"{share:.0%} outliers, set {r}, {name}", rows[name]))
        return rows

    return store.get(f"robustness-{round(100 * share):02d}-{r:03d}", compute)


def _fit(name: str, problem: Problem, lam: float, size: Size, seed: int) -> tuple[Fit, float]:
    if name == "pcuq":
        return fit_by("pcuq", problem, lam, size.pcuq, seed)
    if name == "bayes-student-t":
        heavy = problem.with_data(replace(problem.data, noise=StudentT(lotka_volterra.NOISE_SD)))
        return fit_by("bayes", heavy, lam, size.bayes, seed)
    if name == "mmd-bayes-matched":
        return fit_by("mmd-bayes", problem, lam, size.bayes, seed, beta="matched")
    return fit_by(name, problem, lam, size.bayes, seed)


def _parameter_error(fitted: Fit) -> float:
    truth = lotka_volterra.true_parameters("main")
    wanted = np.array([logit(truth[name]) for name in fitted.parameters])
    return float(np.linalg.norm(np.median(fitted.thetas, axis=0) - wanted))


def figure(cases: dict[str, Any], shares: tuple[float, ...]) -> Figure:
    """CRPS, coverage of the 90 % band and parameter error against the share of outliers."""
    made_, panels = grid(1, 3, 3.4, 2.9)
    series = {
        "CRPS beyond the data": lambda row: row["crps"],
        "coverage of the 90 % band": lambda row: row["coverage"]["0.9"],
        "error of θ": lambda row: row["parameter_error"],
    }
    for ax, (title, value) in zip(panels[0], series.items(), strict=True):
        for name in METHODS:
            style = style_of(name)
            values = [value(of_share[name]) for of_share in cases.values()]
            ax.plot(shares, values, color=style.colour, linestyle=style.line, marker=style.marker,
                    label=name_of(name))  # fmt: skip
        ax.set(title=title, xlabel="share of rows that are grossly wrong")
        ax.set_xticks(shares, [f"{100 * share:.0f} %" for share in shares])
        if "coverage" not in title:
            ax.set_yscale("log")
            few_numbers(ax.yaxis)
    legend(made_, panels[0, :1], 5)
    warn_of_means(made_, {f"{k}, {m}": row for k, of in cases.items() for m, row in of.items()})
    return made_


def captions() -> dict[str, str]:
    """What the figure shows."""
    return {
        "robustness": "CRPS beyond the data, coverage of the 90 % band, and distance of the median "
        "of θ from the truth, against the share of rows that read 50 noise sds too high."
    }
