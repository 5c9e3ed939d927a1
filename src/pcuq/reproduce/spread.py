"""Vanishing uncertainty: the spread of parameters and predictions against the number of data.

n times evenly on [0, 60]. Bayes narrows like 1/√n whether the model is right or wrong; the claim
of the paper is that PCUQ does so only when it is right. The data term v goes like 1/n, so λ must
fall with n: at λ★ · 61/n the fit stays worth the same number of nats, and at λ★ · (61/n)² its
worth grows like n, as for Bayes. Both are shown. (A λ that is fixed while n grows leads back to
the prior.) MMD-Bayes has β = 1/(2λ) for the second; the paper's β leaves a point at any n.

The stochastic truth is known at steps of 0.1, and between them by a straight line.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from pcuq.data import Data
from pcuq.kernels import GaussianKernel
from pcuq.problem import Problem
from pcuq.reproduce.cases import CASES, SCORED_ON, score
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
from pcuq.zoo import lotka_volterra
from pcuq.zoo.lotka_volterra import LVData

METHODS = ("bayes", "mmd-bayes-matched", "pcuq", "pcuq-1/n")
USUAL = len(lotka_volterra.TIMES)
MANY = 1000  # data, from which on there is one set: a fit takes minutes, and sets differ less


def spread(out: Path, seed: int, size: Size, tell: Tell) -> dict[str, Any]:
    """Summary by case, n and method; parts on disk are not computed again."""
    store = store_of(out / "parts", seed, size)
    lam = star(store, "main", seed, size, tell)
    cases: dict[str, Any] = {}
    for case in CASES:
        for n in size.data_counts:
            parts = [
                _part(store, case, n, seed, r, lam, size, tell)
                for r in range(1 if n >= MANY else size.spread_replicates)
            ]
            label = f"{case}, n = {n}"
            cases[label] = mean_rows(label, parts, METHODS, "band_width", tell)
    with drawing():
        files = save(figure(cases, size.data_counts), out, "spread")
    return {
        "cases": cases,
        "regularisation": lam,
        "scored_on": SCORED_ON,
        "figures": files,
        "parts": repr(store),
    }


def denser(data: LVData, n: int, seed: int) -> Problem:
    """The problem of n measurements of the same truth."""
    x = np.linspace(0, lotka_volterra.TIMES[-1], n)
    truth = np.stack([np.interp(x, data.truth_times, column) for column in data.truth.T], axis=-1)
    noise = np.random.default_rng([seed, n]).normal(size=truth.shape)
    y = truth + data.noise_sd * noise
    model = lotka_volterra.model(data.setting)
    return Problem(model, Data(y, x, data.noise_sd), GaussianKernel())


def _part(store, case: str, n: int, seed: int, r: int, lam: float, size: Size, tell: Tell) -> Row:
    def compute() -> Row:
        own = SEEDS_APART * seed + r
        data = lotka_volterra.simulate(own, CASES[case], "main")
        problem = denser(data, n, own)
        rows = {}
        for name in METHODS:
            power = 1 if name == "pcuq-1/n" else 2
            method = "pcuq" if name.startswith("pcuq") else name.removesuffix("-matched")
            run = size.pcuq if method == "pcuq" else size.bayes
            fitted, seconds = fit_by(
                method, problem, lam * (USUAL / n) ** power, run, r, beta="matched"
            )
            rows[name], _ = score(fitted, seconds, data, size)
            tell(line(f"{case}, n = {n}, set {r}, {name}", rows[name]))
        return rows

    return store.get(f"spread-{case}-{n:05d}-{r:03d}", compute)


def figure(cases: dict[str, Any], counts: tuple[int, ...]) -> Figure:
    """Spread of θ and width of the 90 % band against n, a column per case."""
    made, panels = grid(2, len(CASES), 3.8, 2.6, sharex=True, sharey="row")
    what = {"spread of θ": "spread", "width of the 90 % band, 60 < x ≤ 90": "band_width"}
    for row, (title, key) in zip(panels, what.items(), strict=True):
        for ax, case in zip(row, CASES, strict=True):
            for name in METHODS:
                style = style_of(name)
                values = [cases[f"{case}, n = {n}"][name][key] for n in counts]
                ax.plot(counts, values, color=style.colour, linestyle=style.line,
                        marker=style.marker, markersize=4, label=LABELS[name])  # fmt: skip
            first = cases[f"{case}, n = {counts[0]}"]["bayes"][key]
            ax.plot(counts, first * np.sqrt(counts[0] / np.array(counts)), color="0.6",
                    linewidth=0.9, label="1/√n")  # fmt: skip
            ax.set(xscale="log", yscale="log", title=f"{title}\n{case}")
    for ax in panels[-1]:
        ax.set_xlabel("n, measurements")
    legend(made, panels[0, :1], 5)
    warn_of_means(made, {f"{k}, {m}": row for k, of in cases.items() for m, row in of.items()})
    return made


LABELS = {
    "bayes": name_of("bayes"),
    "mmd-bayes-matched": "MMD-Bayes, β = 1/(2λ)",
    "pcuq": "PCUQ, λ ∝ 1/n²",
    "pcuq-1/n": "PCUQ, λ ∝ 1/n",
}


def captions() -> dict[str, str]:
    """What the figure shows."""
    return {
        "spread": "spread of θ in the part that fits, and mean width of the noise-free 90 % band "
        "beyond the data, against the number of measurements; means over data sets, of which "
        f"there is one from n = {MANY} on. Grey: 1/√n."
    }
