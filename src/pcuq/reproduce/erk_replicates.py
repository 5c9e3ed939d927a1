"""ERK over several seeds of the measurement noise, and over kernels: coverage by species.

λ★ is found once, on the first data set. The truth is the same in every set.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from pcuq.reproduce.ahead import ahead
from pcuq.reproduce.erk_cases import (
    COMBINE,
    METHODS,
    REGIMES,
    SCORED_ON,
    calibration,
    mean_species,
    score,
)
from pcuq.reproduce.methods import Size, fit_by
from pcuq.reproduce.rows import Tell, line, mean_row
from pcuq.reproduce.store import Store
from pcuq.zoo import erk

# What is asked of the kernel: how outputs combine, ℓ in noise sds, and λ as a number or in λ★.
KERNELS: dict[str, tuple[str, float, float | None, float]] = {
    "sum, λ★/10": ("sum", 1.0, None, 0.1),
    "sum, λ★": ("sum", 1.0, None, 1.0),
    "sum, 10 λ★": ("sum", 1.0, None, 10.0),
    "sum, ℓ = 3 σ, λ★": ("sum", 3.0, None, 1.0),
    "sum, ℓ = 10 σ, λ★": ("sum", 10.0, None, 1.0),
    "product, λ = 1.6e-7": ("product", 1.0, 1.6e-7, 1.0),
    "product, λ = 1e-6": ("product", 1.0, 1e-6, 1.0),
}


def erk_replicates(out: Path, seed: int, size: Size, tell: Tell) -> dict[str, Any]:
    """Summary by regime and method; parts that are on disk are not computed again."""
    store = _store(out / "parts", seed, size)
    found = store.get("calibration-erk", lambda: calibration(seed, size))
    lam = found["regularisation"]
    tell(f"ERK: λ = {lam:.3g}, bound by {found['bound_by']}")
    each = [(store.folder, seed, lam, size, r) for r in range(size.erk_replicates)]
    ahead(_part, each, size.workers, tell)
    parts = [_replicate(store, seed, r, lam, size, tell) for r in range(size.erk_replicates)]
    cases: dict[str, Any] = {}
    for regime in REGIMES:
        cases[regime] = {}
        for method in METHODS:
            rows = [part[method][regime] for part in parts]
            cases[regime][method] = {**mean_row(rows), "species": mean_species(rows)}
            tell(line(f"ERK, {regime}, {method}, mean of {len(rows)}", cases[regime][method]))
    return {
        "cases": cases,
        "regularisation": lam,
        "combine": COMBINE,
        "scored_on": SCORED_ON,
        "parts": repr(store),
    }


def _replicate(store: Store, seed: int, r: int, lam: float, size: Size, tell: Tell):
    def compute():
        data, problem = erk.simulate(1000 * seed + r), erk.problem(1000 * seed + r, combine=COMBINE)
        found = {}
        for method in METHODS:
            run = size.erk_pcuq if method == "pcuq" else size.erk_bayes
            fitted, seconds = fit_by(method, problem, lam, run, seed=r)
            found[method], _ = score(fitted, seconds, data, size)
            tell(line(f"ERK, set {r}, inhibited, {method}", found[method]["inhibited"]))
        return found

    return store.get(f"erk-{r:03d}", compute)


def _part(folder: Path, seed: int, lam: float, size: Size, r: int) -> list[str]:
    """One data set, in a process of its own."""
    told: list[str] = []
    _replicate(_store(folder, seed, size), seed, r, lam, size, told.append)
    return told


def _store(folder: Path, seed: int, size: Size) -> Store:
    return Store(folder, {"seed": seed, **size.erk_fits()})


def erk_kernels(out: Path, seed: int, size: Size, tell: Tell) -> dict[str, Any]:
    """PCUQ on one data set with other kernels and λ: how coverage under the inhibitor answers."""
    store = _store(out / "parts", seed, size)
    star = store.get("calibration-erk", lambda: calibration(seed, size))["regularisation"]
    data = erk.simulate(seed)
    cases: dict[str, Any] = {regime: {} for regime in REGIMES}
    chosen = list(KERNELS.items())[: size.kernels]
    for k, (name, (combine, width, given, factor)) in enumerate(chosen):
        lam = factor * (star if given is None else given)

        def compute(combine=combine, width=width, lam=lam, name=name):
            widths = None if width == 1.0 else np.asarray(width * data.noise_sd).tolist()
            problem = erk.problem(seed, combine=combine, lengthscale_y=widths)
            fitted, seconds = fit_by("pcuq", problem, lam, size.erk_pcuq, seed=seed)
            rows, _ = score(fitted, seconds, data, size)
            tell(line(f"ERK, inhibited, {name}", rows["inhibited"]))
            return rows

        for regime, row in store.get(f"erk-kernel-{k}", compute).items():
            cases[regime][name] = row
    return {
        "cases": cases,
        "scored_on": SCORED_ON,
        "parts": repr(store),
    }
