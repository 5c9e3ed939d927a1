"""The experiments by name."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from pcuq._x64 import x64
from pcuq.errors import InputError
from pcuq.reproduce import prior, replicates_figures, robustness, spread
from pcuq.reproduce.departures import departures
from pcuq.reproduce.erk import erk
from pcuq.reproduce.erk_replicates import erk_kernels, erk_replicates
from pcuq.reproduce.lotka_volterra import lotka_volterra
from pcuq.reproduce.methods import Size
from pcuq.reproduce.readme import write_readme
from pcuq.reproduce.replicates import lotka_volterra_replicates
from pcuq.reproduce.rows import Tell
from pcuq.reproduce.store import write_json
from pcuq.result import versions

ALL = ("lotka-volterra", "lotka-volterra-alt", "erk")
Experiment = Callable[[Path, int, Size, Tell], dict[str, Any]]


@x64
def reproduce(
    name: str, out: Path | str, seed: int = 0, size: Size | None = None, tell: Tell = print
) -> dict[str, Any]:
    """Run an experiment, write what it makes to `out`, and return its summary.

    `all` runs the paper's own figures, each into a folder of its name, and returns their summaries
    by name.
    """
    out, size = Path(out), size or Size()
    check_name(name)
    out.mkdir(parents=True, exist_ok=True)
    if name != "all":
        return EXPERIMENTS[name](out, seed, size, tell)
    began = time.perf_counter()
    found = {}
    for one in ALL:
        (out / one).mkdir(exist_ok=True)
        found[one] = EXPERIMENTS[one](out / one, seed, size, tell)
    elapsed = time.perf_counter() - began
    tell(f"all: {elapsed:.0f} s")
    write_json(out / "summary.json", {"seconds": round(elapsed, 1), "experiments": list(ALL)})
    return found


def check_name(name: str) -> None:
    """Refuse an experiment that is none."""
    if name != "all" and name not in EXPERIMENTS:
        raise InputError(f"`name` needs one of {', '.join((*EXPERIMENTS, 'all'))}: got {name!r}.")


def _study(
    compute: Experiment, experiment: str, captions, notes: str, more=lambda summary: ()
) -> Experiment:
    """A study of parts, with its summary and README written at the end."""

    def run(out: Path, seed: int, size: Size, tell: Tell) -> dict[str, Any]:
        began = time.perf_counter()
        summary = {
            "experiment": experiment,
            **compute(out, seed, size, tell),
            "seed": seed,
            "size": asdict(size),
            "versions": versions(),
            "seconds": round(time.perf_counter() - began, 1),
        }
        write_json(out / "summary.json", summary)
        write_readme(out, _flat(summary), captions(summary), [notes, *more(summary)])
        tell(f"{experiment}: {summary['seconds']:.0f} s; {summary['parts']}")
        return summary

    return run


def _replicates(out: Path, seed: int, size: Size, tell: Tell) -> dict[str, Any]:
    found = lotka_volterra_replicates(out, seed, size, tell)
    cells = erk_replicates(out, seed, size, tell)
    cases = {**found["cases"], "erk": cells["cases"]}
    return {
        **found,
        "cases": cases,
        "figures": replicates_figures.draw(cases, out),
        "regularisation": {**found["regularisation"], "erk": cells["regularisation"]},
        "parts": f"Lotka–Volterra: {found['parts']}; ERK: {cells['parts']}",
    }


def _flat(summary: dict[str, Any]) -> dict[str, Any]:
    """Cases within settings as cases with longer names, so that each has a table."""
    cases = {}
    for name, rows in summary["cases"].items():
        if any("coverage" in row for row in rows.values() if isinstance(row, dict)):
            cases[name] = rows
        else:
            cases |= {f"{name}, {case}": inner for case, inner in rows.items()}
    return {**summary, "cases": cases}


EXPERIMENTS: dict[str, Experiment] = {
    "lotka-volterra": partial(lotka_volterra, setting="main"),
    "lotka-volterra-alt": partial(lotka_volterra, setting="alternative"),
    "erk": erk,
    "replicates": _study(
        _replicates,
        "replicates",
        lambda summary: replicates_figures.captions(),
        "Means over data sets, ± the standard error of the mean. λ★ is found once per setting.",
        replicates_figures.findings,
    ),
    "robustness": _study(
        robustness.robustness,
        "robustness",
        lambda summary: robustness.captions(),
        "Well-specified Lotka–Volterra data of which a share of the rows is grossly wrong.",
    ),
    "prior": _study(
        prior.prior,
        "prior",
        lambda summary: prior.captions(summary["figures"]),
        "PCUQ on Lotka–Volterra for several Q0, at the λ★ of the paper's.",
    ),
    "spread": _study(
        spread.spread,
        "spread",
        lambda summary: spread.captions(),
        "Lotka–Volterra with more and more data.",
    ),
    "departures": _study(
        departures,
        "departures",
        lambda summary: {},
        "PCUQ on Lotka–Volterra as in the paper, and as in the authors' code one thing at a time.",
    ),
    "erk-kernels": _study(
        erk_kernels,
        "erk-kernels",
        lambda summary: {},
        "PCUQ on one ERK data set with several kernels and λ.",
    ),
}
