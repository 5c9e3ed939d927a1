"""The methods that are compared, with the sizes of their runs.

Bayes and PCUQ are sampled as the library does by default; MMD-Bayes has the paper's β = exp(np),
which no floating-point number can tell from a point mass at the parameter of least MMD², and so
is that point.
"""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, replace
from typing import Any

from pcuq.fit import fit
from pcuq.problem import Problem
from pcuq.result import Fit

METHODS = ("bayes", "mmd-bayes", "pcuq")


@dataclass(frozen=True)
class Run:
    """How long one particle system, or one set of chains, is run.

    Lengths that are None are the library's, which doubles them until the run has converged.
    """

    particles: int = 50
    systems: int = 2
    warmup: int | None = None
    draws: int | None = None
    thin: int | None = None

    def options(self) -> dict[str, int | None]:
        """As `pcuq.fit` takes them."""
        return asdict(self)


@dataclass(frozen=True)
class Size:
    """How much is computed, for every experiment."""

    pcuq: Run = Run()
    # Chains; their number makes up for what a move without derivatives lacks.
    bayes: Run = Run(systems=1)
    erk_pcuq: Run = Run()
    # Longer than the library would stop at: more is asked of it before it may be called wrong.
    erk_bayes: Run = Run(systems=1, warmup=3000, draws=500, thin=8)
    calibration_sets: int = 6
    most_draws: int = 2000  # of a prediction
    # Of the traces, whose lengths should be alike: 5000 iterations, as in the paper.
    trace_run: Run = Run(particles=10, warmup=1000, draws=1000, thin=4)
    trace_particles: tuple[int, ...] = (5, 10, 15)
    chain_sampler: str = "mala"  # of Bayes and MMD-Bayes in the traces, as in the paper
    replicates: int = 20
    erk_replicates: int = 10
    settings: tuple[str, ...] = ("main", "alternative")
    outliers: tuple[float, ...] = (0.0, 0.05, 0.1, 0.2)
    robustness_replicates: int = 5
    prior_replicates: int = 3
    priors: int = 5  # the first so many; each is compiled anew
    kernels: int = 7  # of ERK, likewise
    data_counts: tuple[int, ...] = (30, 100, 300, 1000, 3000)
    spread_replicates: int = 2
    workers: int = 1  # processes that compute the data sets of `replicates`

    def fits(self) -> dict[str, Any]:
        """What a single fit of Lotka–Volterra depends on."""
        return self._parts("pcuq", "bayes")

    def erk_fits(self) -> dict[str, Any]:
        """What a single fit of ERK depends on."""
        return self._parts("erk_pcuq", "erk_bayes")

    def _parts(self, *runs: str) -> dict[str, Any]:
        numbers = {name: getattr(self, name) for name in ("calibration_sets", "most_draws")}
        return {**{name: asdict(getattr(self, name)) for name in runs}, **numbers}


# One length and one number of particles everywhere: what is compiled once serves all of them.
_SHORT = Run(particles=6, warmup=24, draws=12, thin=1)
TINY = Size(
    pcuq=_SHORT,
    bayes=replace(_SHORT, systems=1),
    erk_pcuq=_SHORT,
    erk_bayes=replace(_SHORT, systems=1),
    calibration_sets=1,
    most_draws=50,
    trace_run=_SHORT,
    trace_particles=(6,),
    chain_sampler="ensemble",
    replicates=2,
    erk_replicates=2,
    settings=("main",),
    outliers=(0.0, 0.2),
    robustness_replicates=1,
    prior_replicates=1,
    priors=2,
    kernels=2,
    data_counts=(30, 60),
    spread_replicates=1,
)


def fit_by(
    method: str,
    problem: Problem,
    lam: float,
    run: Run,
    seed: int = 0,
    beta: float | str = "paper",
    sampler: str = "ensemble",
) -> tuple[Fit, float]:
    """A fit, and the seconds it took."""
    began = time.perf_counter()
    found = fit(
        problem,
        method=method,
        regularisation=lam,
        beta=beta,
        sampler=sampler,
        seed=seed,
        **run.options(),  # pyright: ignore[reportArgumentType]
    )
    return found, time.perf_counter() - began
