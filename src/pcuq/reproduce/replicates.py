"""Coverage and CRPS over many data sets: one data set proves nothing.

Lotka–Volterra: for each setting and case, R data sets by Bayes, MMD-Bayes and PCUQ at the λ★ of
the setting, scored beyond the data. The seeds of the data sets follow from the seed of the study,
and no set is left out. ERK is in `erk_replicates`.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from pcuq.reproduce.cases import CASES, RULE, SCORED_ON, calibration, made, score
from pcuq.reproduce.methods import METHODS, Size, fit_by
from pcuq.reproduce.rows import Row, Tell, line, mean_row
from pcuq.reproduce.store import Store

SEEDS_APART = 1000  # data sets of two studies are different ones


def lotka_volterra_replicates(out: Path, seed: int, size: Size, tell: Tell) -> dict[str, Any]:
    """Summary by setting, case and method; parts that are on disk are not computed again."""
    began = time.perf_counter()
    store = Store(out / "parts", {"seed": seed, **size.fits()}, tell)
    found: dict[str, Any] = {}
    for setting in size.settings:
        lam = star(store, setting, seed, size, tell)
        for case in reversed(CASES):  # the case that the paper is about comes first
            rows = {name: [] for name in METHODS}
            exploded = []
            for r in range(size.replicates):
                part = _replicate(store, setting, case, seed, r, lam, size, tell)
                exploded.append(part["exploded_paths"])
                for name in METHODS:
                    rows[name].append(part["methods"][name])
            summary = {name: mean_row(of_method) for name, of_method in rows.items()}
            for name, row in summary.items():
                tell(line(f"{setting}, {case}, {name}, mean of {size.replicates}", row))
            found.setdefault(setting, {})[case] = {
                **summary,
                "exploded_paths": sum(exploded),
                "exploded_paths_by_set": exploded,
            }
    return {
        "cases": found,
        "regularisation": {s: star(store, s, seed, size, tell) for s in size.settings},
        "rule": RULE,
        "scored_on": SCORED_ON,
        "seconds": round(time.perf_counter() - began, 1),
        "parts": repr(store),
    }


def star(store: Store, setting: str, seed: int, size: Size, tell: Tell) -> float:
    """λ★ of a setting."""
    found = store.get(f"calibration-{setting}", lambda: calibration(setting, seed, size))
    tell(f"{setting}: λ★ = {found['regularisation']:.3g}, bound by {found['bound_by']}")
    return found["regularisation"]


def _replicate(store, setting, case, seed, r, lam, size: Size, tell: Tell) -> Row:
    def compute() -> Row:
        data, problem = made(SEEDS_APART * seed + r, case, setting)
        rows = {}
        for name in METHODS:
            run = size.pcuq if name == "pcuq" else size.bayes
            fitted, seconds = fit_by(name, problem, lam, run, seed=r)
            rows[name], _ = score(fitted, seconds, data, size)
            tell(line(f"{setting}, {case}, set {r}, {name}", rows[name]))
        return {"exploded_paths": data.exploded_paths, "methods": rows}

    return store.get(f"lv-{setting}-{case}-{r:03d}", compute)
