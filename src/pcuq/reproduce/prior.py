"""How predictions answer to Q0: widened, narrowed and shifted, on Lotka–Volterra.

Q0 = N(m, s²) on the logit scale of each parameter; the paper has N(0, 1), and the parameters that
made the data are at (−2, −4). λ is the λ★ of the paper's Q0 throughout: what changes is Q0 alone.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpyro.distributions as dist
from matplotlib.figure import Figure

from pcuq._x64 import x64
from pcuq.parameters import Parameter
from pcuq.problem import Problem
from pcuq.reproduce.cases import CASES, LAST_DATUM, SCORED_ON, made, score
from pcuq.reproduce.figures import (
    BANDS,
    drawing,
    grid,
    legend,
    save,
    species_panel,
    warn,
    warn_of_means,
)
from pcuq.reproduce.methods import Size, fit_by
from pcuq.reproduce.replicates import SEEDS_APART, star, store_of
from pcuq.reproduce.rows import Row, Tell, line, mean_row

PRIORS = {
    "N(0, 1), the paper's": (0.0, 1.0),
    "N(0, 2²), widened": (0.0, 2.0),
    "N(0, 0.7²), narrowed": (0.0, 0.7),
    "N(−2, 1), shifted towards the fit": (-2.0, 1.0),
    "N(1, 1), shifted away": (1.0, 1.0),
}


@x64
def prior(out: Path, seed: int, size: Size, tell: Tell) -> dict[str, Any]:
    """Summary by case and Q0; parts on disk are not computed again."""
    store = store_of(out / "parts", seed, size)
    lam = star(store, "main", seed, size, tell)
    cases: dict[str, Any] = {case: {} for case in CASES}
    drawn: dict[tuple[str, str], Any] = {}
    priors = dict(list(PRIORS.items())[: size.priors])
    for case in CASES:
        for k, (name, (mean, sd)) in enumerate(priors.items()):
            rows = []
            for r in range(size.prior_replicates):

                def compute(case=case, name=name, mean=mean, sd=sd, r=r) -> Row:
                    data, problem = made(SEEDS_APART * seed + r, case, "main")
                    fitted, seconds = fit_by(
                        "pcuq", with_prior(problem, mean, sd), lam, size.pcuq, r
                    )
                    row, prediction = score(fitted, seconds, data, size)
                    tell(line(f"{case}, set {r}, {name}", row))
                    if r == 0:
                        drawn[case, name] = (data, prediction, fitted)
                    return row

                rows.append(store.get(f"prior-{case}-{k}-{r:03d}", compute))
            cases[case][name] = mean_row(rows)
            tell(line(f"{case}, {name}, mean of {len(rows)}", cases[case][name]))
    with drawing():
        files = save(bars(cases), out, "prior")
        if len(drawn) == len(CASES) * len(priors):  # all computed just now
            files += save(predictions_figure(drawn), out, "predictions")
        else:
            tell("predictions are drawn by a run that computes all parts: this one found some")
    return {
        "cases": cases,
        "regularisation": lam,
        "scored_on": SCORED_ON,
        "figures": files,
        "parts": repr(store),
    }


def with_prior(problem: Problem, mean: float, sd: float) -> Problem:
    """The problem with N(mean, sd²) on the logit scale of every parameter."""
    parameters = {
        name: Parameter("logit", dist.Normal(mean, sd)) for name in problem.parameters.names
    }
    model = replace(problem.model, parameters=parameters)
    return Problem(model, problem.data, problem.kernel)


def bars(cases: dict[str, Any]) -> Figure:
    """Coverage, CRPS and the share outside the part that fits, by Q0."""
    figure, panels = grid(1, 3, 3.6, 3.0, sharey=True)
    names = list(next(iter(cases.values())))
    series = {
        "coverage of the 90 % band": lambda row: row["coverage"]["0.9"],
        "CRPS beyond the data": lambda row: row["crps"],
        "share outside the part that fits": lambda row: row["share_outside_fit"],
    }
    for ax, (title, value) in zip(panels[0], series.items(), strict=True):
        for k, (case, style) in enumerate(
            zip(cases, (("#56B4E9", None), ("#D55E00", "////")), strict=True)
        ):
            places = [i + 0.38 * k for i in range(len(names))]
            values = [value(cases[case][name]) for name in names]
            ax.barh(places, values, 0.36, color=style[0], hatch=style[1], edgecolor="black",
                    linewidth=0.5, label=case)  # fmt: skip
        ax.set_title(title)
    panels[0, 0].set_yticks([i + 0.19 for i in range(len(names))], names)
    panels[0, 0].invert_yaxis()
    legend(figure, panels[0, :1], 2)
    warn_of_means(figure, {f"{k}, {m}": row for k, of in cases.items() for m, row in of.items()})
    return figure


def predictions_figure(drawn: dict[tuple[str, str], Any]) -> Figure:
    """Bands of the first data set of each case, by Q0."""
    names = list(dict.fromkeys(name for _, name in drawn))
    figure, panels = grid(len(CASES), len(names), 2.9, 2.4, sharex=True)
    for row, case in zip(panels, CASES, strict=True):
        for ax, name in zip(row, names, strict=True):
            data, prediction, fitted = drawn[case, name]
            species_panel(ax, prediction, data, LAST_DATUM)
            ax.set_title(f"{name}\n{case}", fontsize=7)
            warn(ax, {"PCUQ": fitted})
    legend(figure, panels[0, :1], title=BANDS)
    return figure


def captions(files: list[str]) -> dict[str, str]:
    """What each figure shows."""
    found = {"prior": "coverage and CRPS beyond the data, and the share of Q outside the part that "
             "fits, for five choices of Q0."}  # fmt: skip
    if "predictions.png" in files:
        found["predictions"] = "bands of 50 % and 90 % of the first data set, by Q0."
    return found
