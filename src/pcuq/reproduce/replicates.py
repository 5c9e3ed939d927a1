"""Coverage and CRPS over many data sets: one data set proves nothing.

Lotka–Volterra: for each setting and case, R data sets by Bayes, MMD-Bayes and PCUQ at the λ★ of
the setting, scored beyond the data. The seeds of the data sets follow from the seed of the study,
and no set is left out. ERK is in `erk_replicates`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from pcuq.reproduce.ahead import ahead
from pcuq.reproduce.cases import CASES, RULE, SCORED_ON, calibration, made, score
from pcuq.reproduce.methods import METHODS, Size, fit_by
from pcuq.reproduce.rows import Row, Tell, line, mean_row
from pcuq.reproduce.store import Store

SEEDS_APART = 1000  # data sets of two studies are different ones


def lotka_volterra_replicates(out: Path, seed: int, size: Size, tell: Tell) -> dict[str, Any]:
    """Summary by setting, case and method; parts that are on disk are not computed again."""
    store = store_of(out / "parts", seed, size)
    found: dict[str, Any] = {}
    lams: dict[str, float] = {}
    for setting in size.settings:
        lam = lams[setting] = star(store, setting, seed, size, tell)
        for case in reversed(CASES):  # the case that the paper is about comes first
            study = _Study(store, setting, case, seed, lam, size, tell)
            study.ahead()
            parts = [study.replicate(r) for r in range(size.replicates)]
            rows = {name: mean_row([part["methods"][name] for part in parts]) for name in METHODS}
            exploded = [part["exploded_paths"] for part in parts]
            found.setdefault(setting, {})[case] = {
                **rows,
                "exploded_paths": sum(exploded),
                "exploded_paths_by_set": exploded,
            }
            study.report(rows)
    return {
        "cases": found,
        "bars": bars(found),
        "regularisation": lams,
        "rule": RULE,
        "scored_on": SCORED_ON,
        "parts": repr(store),
    }


def bars(found: dict[str, Any]) -> dict[str, dict[str, bool]]:
    """Whether misspecified coverage is what the paper suggests, and the price where it is right."""
    answer = {}
    for setting, cases in found.items():
        cover = {name: cases["misspecified"][name]["coverage"] for name in METHODS}
        answer[setting] = {
            "PCUQ: 50 % band covers 0.4 to 0.75": 0.4 <= cover["pcuq"]["0.5"] <= 0.75,
            "PCUQ: 90 % band covers at least 0.8": cover["pcuq"]["0.9"] >= 0.8,
            "Bayes: 90 % band covers at most 0.15": cover["bayes"]["0.9"] <= 0.15,
        }
    return answer


def star(store: Store, setting: str, seed: int, size: Size, tell: Tell) -> float:
    """λ★ of a setting."""
    found = store.get(f"calibration-{setting}", lambda: calibration(setting, seed, size))
    tell(f"{setting}: λ★ = {found['regularisation']:.3g}, bound by {found['bound_by']}")
    return found["regularisation"]


class _Study(NamedTuple):
    """One setting and case."""

    store: Store
    setting: str
    case: str
    seed: int
    lam: float
    size: Size
    tell: Tell

    def replicate(self, r: int) -> Row:
        """One data set by all methods."""

        def compute() -> Row:
            data, problem = made(SEEDS_APART * self.seed + r, self.case, self.setting)
            rows = {}
            for name in METHODS:
                run = self.size.pcuq if name == "pcuq" else self.size.bayes
                fitted, seconds = fit_by(name, problem, self.lam, run, seed=r)
                rows[name], _ = score(fitted, seconds, data, self.size)
                self.tell(line(f"{self.setting}, {self.case}, set {r}, {name}", rows[name]))
            return {"exploded_paths": data.exploded_paths, "methods": rows}

        return self.store.get(f"lv-{self.setting}-{self.case}-{r:03d}", compute)

    def ahead(self) -> None:
        """Have all data sets computed by several processes, if there are to be several."""
        which = (self.store.folder, self.setting, self.case, self.seed, self.lam, self.size)
        each = [(*which, r) for r in range(self.size.replicates)]
        ahead(_part, each, self.size.workers, self.tell)

    def report(self, rows: dict[str, Row]) -> None:
        """Say the means."""
        for name, row in rows.items():
            self.tell(line(f"{self.setting}, {self.case}, {name}, mean", row))


def _part(
    folder: Path, setting: str, case: str, seed: int, lam: float, size: Size, r: int
) -> list[str]:
    """One data set, in a process of its own."""
    told: list[str] = []
    store = store_of(folder, seed, size)
    _Study(store, setting, case, seed, lam, size, told.append).replicate(r)
    return told


def store_of(folder: Path, seed: int, size: Size) -> Store:
    """The parts of a study of Lotka–Volterra."""
    return Store(folder, {"seed": seed, **size.fits()})
