"""The paper's ERK figures: eleven species, in control cells and under a MEK inhibitor.

| figure | paper |
|---|---|
| main | ERK alone: training regime and inhibitor, Bayes above PCUQ |
| bayes, pcuq | all eleven species in both regimes |
| rates | the eleven rates by both methods |
| truth | how the rates that made the data vary in time |
| coverage | the share of the horizon over which bands contain the truth, by species |
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from pcuq.reproduce import erk_figures as figures
from pcuq.reproduce.erk_cases import COMBINE, METHODS, REGIMES, SCORED_ON, calibration, score
from pcuq.reproduce.methods import Size, fit_by
from pcuq.reproduce.readme import write_readme
from pcuq.reproduce.rows import Tell, line, of_one_run
from pcuq.reproduce.store import write_json
from pcuq.zoo import erk as zoo


def erk(out: Path, seed: int, size: Size, tell: Tell) -> dict[str, Any]:
    """Write the figures, the fits, summary.json and README.md; return the summary."""
    began = time.perf_counter()
    (out / "fits").mkdir(parents=True, exist_ok=True)
    data, problem = zoo.simulate(seed), zoo.problem(seed, combine=COMBINE)
    tell("ERK: finding λ★")
    found = calibration(seed, size)
    lam = found["regularisation"]
    tell(f"ERK: λ = {lam:.3g}, bound by {found['bound_by']}")
    cases: dict[str, dict[str, Any]] = {regime: {} for regime in REGIMES}
    fits, predictions = {}, {}
    for method in METHODS:
        run = size.erk_pcuq if method == "pcuq" else size.erk_bayes
        fits[method], seconds = fit_by(method, problem, lam, run, seed=seed)
        fits[method].save(out / "fits" / f"{method}.nc")
        rows, predictions[method] = score(fits[method], seconds, data, size)
        for regime, row in rows.items():
            cases[regime][method] = row
            tell(line(f"ERK, {regime}, {method}", row))
    tell("ERK: drawing")
    files = figures.draw(data, fits, predictions, cases, found, out)
    summary = {
        "experiment": "erk",
        "regularisation": lam,
        "calibration": found,
        "combine": COMBINE,
        "bayes_converged": converged(cases["control"]["bayes"]),
        "cases": cases,
        "scored_on": SCORED_ON,
        "figures": files,
        **of_one_run(seed, size, began),
    }
    write_json(out / "summary.json", summary)
    write_readme(out, summary, figures.captions(summary), _notes(summary))
    return summary


def converged(row: dict[str, Any]) -> bool:
    """What is asked of Bayes before it may be called wrong: R-hat < 1.01 and ESS > 400."""
    return bool(row["rhat_max"] < 1.01 and row["ess_min"] > 400)


def _notes(summary: dict[str, Any]) -> list[str]:
    return [
        f"λ = {summary['regularisation']:.3g}, bound by {summary['calibration']['bound_by']}; "
        f"outputs combine by a {summary['combine']}.",
        "Bayes has converged (R-hat < 1.01, ESS > 400 for every rate)."
        if summary["bayes_converged"]
        else "Bayes has NOT converged to R-hat < 1.01 and ESS > 400 for every rate.",
        f"Scored on {SCORED_ON}. The inhibitor is an intervention on the fitted model: no data "
        "were taken under it.",
        figures.species_table(summary["cases"]),
    ]
