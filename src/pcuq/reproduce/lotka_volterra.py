"""The paper's Lotka–Volterra figures, main text and supplement, at one of its two settings.

| figure | paper |
|---|---|
| main | contours of the posterior with draws of Bayes and PCUQ; bands of three methods |
| traces | convergence of the three samplers |
| sensitivity | predictions at λ★/10 and 10 λ★ |
| particles | traces of PCUQ for N = 5, 10, 15 |
| calibration | how λ★ was found |

One data set per case: `replicates` says what holds over many.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pcuq.functionals import Prediction
from pcuq.problem import Problem
from pcuq.reproduce import lotka_volterra_figures as figures
from pcuq.reproduce.cases import CASES, RULE, SCORED_ON, calibration, made, score
from pcuq.reproduce.methods import METHODS, Size, fit_by
from pcuq.reproduce.readme import write_readme
from pcuq.reproduce.rows import Row, Tell, line, of_one_run
from pcuq.reproduce.store import write_json
from pcuq.result import Fit
from pcuq.zoo.lotka_volterra import LVData

FACTORS = {"pcuq-tenth": 0.1, "pcuq-tenfold": 10.0}  # of λ★


@dataclass
class Case:
    """A data set with all that was fitted to it."""

    data: LVData
    problem: Problem
    fits: dict[str, Fit] = field(default_factory=dict)
    predictions: dict[str, Prediction] = field(default_factory=dict)
    rows: dict[str, Row] = field(default_factory=dict)


def lotka_volterra(
    out: Path, seed: int, size: Size, tell: Tell, setting: str = "main"
) -> dict[str, Any]:
    """Write the figures, the fits, summary.json and README.md; return the summary."""
    began = time.perf_counter()
    (out / "fits").mkdir(parents=True, exist_ok=True)
    tell(f"{setting}: finding λ★")
    found = calibration(setting, seed, size)
    lam = found["regularisation"]
    tell(f"{setting}: λ★ = {lam:.3g}, bound by {found['bound_by']}; {found['seconds']:.0f} s")
    cases = {name: _case(name, setting, lam, seed, size, tell, out) for name in CASES}
    tell(f"{setting}: drawing")
    files = figures.draw(cases, found, lam, size, out)
    summary = {
        "experiment": "lotka-volterra" if setting == "main" else "lotka-volterra-alt",
        "setting": setting,
        "regularisation": lam,
        "calibration": found,
        "cases": {name: case.rows for name, case in cases.items()},
        "exploded_paths": {name: case.data.exploded_paths for name, case in cases.items()},
        "rule": RULE,
        "scored_on": SCORED_ON,
        "figures": files,
        **of_one_run(seed, size, began),
    }
    write_json(out / "summary.json", summary)
    write_readme(out, summary, figures.captions(summary), _notes(summary))
    return summary


def _case(name: str, setting: str, lam: float, seed: int, size: Size, tell: Tell, out: Path):
    data, problem = made(seed, name, setting)
    case = Case(data, problem)

    def add(key: str, method: str, lam: float, run, **options) -> None:
        fitted, seconds = fit_by(method, problem, lam, run, seed=seed, **options)
        case.fits[key] = fitted
        case.rows[key], case.predictions[key] = score(fitted, seconds, data, size)
        fitted.save(out / "fits" / f"{name}-{key}.nc")
        tell(line(f"{setting}, {name}, {key}", case.rows[key]))

    for method in METHODS:
        add(method, method, lam, size.pcuq if method == "pcuq" else size.bayes)
    for key, factor in FACTORS.items():
        add(key, "pcuq", factor * lam, size.pcuq)
    # The paper's samplers: ten parallel chains of MALA. Its β leaves nothing to sample, so the
    # trace of MMD-Bayes is that of the β that is matched to λ★.
    chains = replace(size.trace_run, systems=1)
    add("bayes-chains", "bayes", lam, chains, sampler=size.chain_sampler)
    matched = {"sampler": size.chain_sampler, "beta": "matched"}
    add("mmd-bayes-matched", "mmd-bayes", lam, chains, **matched)
    for particles in size.trace_particles:
        add(f"pcuq-N{particles}", "pcuq", lam, replace(size.trace_run, particles=particles))
    return case


def _notes(summary: dict[str, Any]) -> list[str]:
    return [
        f"λ★ = {summary['regularisation']:.3g}, bound by {summary['calibration']['bound_by']}.",
        f"Scored on {SCORED_ON}. One data set per case proves nothing: see the replicates.",
        f"{RULE} Redrawn here: {summary['exploded_paths']['misspecified']}.",
        "`mmd-bayes` has the paper's β = exp(np) and is a point, so its bands have no width; "
        "`mmd-bayes-matched` has β = 1/(2λ★).",
        "`pcuq-tenth` and `pcuq-tenfold` are PCUQ at λ★/10 and 10 λ★, `pcuq-N5` and so on PCUQ "
        "with that many particles, `bayes-chains` ten chains of MALA as in the paper.",
    ]
