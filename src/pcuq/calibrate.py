"""λ★: as much regularisation as an honest answer bears, found on data from the model itself.

The model is fitted, and data are simulated from it several times. On them

    λ★ = largest λ with  share of Q outside the part that fits ≤ 5 %  and
                         spread of Q ≤ 1.25 max(spread of Bayes, spread of Q as λ → 0),

over the simulated sets: the mean of the shares, and the median of the spreads. A share is a
probability, and its mean is that of a set not yet drawn. A spread has no bound: another fit far
away, with 0.2 % of the exact Q, can double the sd of one set, and would choose λ★ for all.
The spread is the geometric mean over parameters of the sd of θ within the part that fits. (A width
between quantiles will not do in its place: Q has a narrow core and wide flanks, and that width
goes to zero with λ, where the sd does not.) How Q is followed along λ is in `sweep`; it goes no
further than a λ at which twice the share lies outside. All of it costs about as much as a few fits.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jaxtyping import Bool, Float

from pcuq._given import check_seed, whole_number
from pcuq._x64 import x64
from pcuq.baselines import bayes
from pcuq.errors import ComputationError
from pcuq.kernel_scale import default_lengthscale
from pcuq.objective import Objective
from pcuq.problem import Problem, check_problem
from pcuq.samplers.base import Crew
from pcuq.samplers.ensemble import ParallelEnsemble
from pcuq.start import Start, starting_fit
from pcuq.sweep import Followed, lams_of, predictor_of, refuse_joint_noise, spread, sweep
from pcuq.synthetic import with_synthetic_data

REPLICATES = 4
CHAINS, BAYES_ITERATIONS = 50, 200
SHIFTS = (1.0, 10.0, 100.0)
MOST_OUTSIDE = 0.05
MOST_SPREAD = 1.25

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Calibration:
    """λ★ and the curves that it comes from; rows are simulated sets, columns are λ."""

    regularisation: float
    bound_by: str
    lams: Float[np.ndarray, " L"]
    outside: Float[np.ndarray, "R L"]
    spread: Float[np.ndarray, "R L"]
    bayes_spread: Float[np.ndarray, " R"]
    settled: Bool[np.ndarray, "R L"]  # whether Q had come to rest, as far as could be told
    seconds: float

    @property
    def floor(self) -> float:
        """Spread of Q at the smallest λ."""
        return float(_median(self.spread)[0])

    @property
    def widest(self) -> float:
        """The spread that λ★ may have."""
        return _widest(self.spread, self.bayes_spread)

    def to_dict(self) -> dict[str, Any]:
        """Everything, as JSON can say it."""
        return {
            "regularisation": self.regularisation,
            "bound_by": self.bound_by,
            "lams": self.lams.tolist(),
            "outside": self.outside.tolist(),
            "spread": self.spread.tolist(),
            "bayes_spread": self.bayes_spread.tolist(),
            "settled": self.settled.tolist(),
            "floor": self.floor,
            "seconds": self.seconds,
        }

    @classmethod
    def from_dict(cls, said: dict[str, Any]) -> Calibration:
        """What `to_dict` gave."""
        arrays = {name: np.array(said[name]) for name in ("lams", "outside", "spread", "settled")}
        return cls(
            regularisation=said["regularisation"],
            bound_by=said["bound_by"],
            bayes_spread=np.array(said["bayes_spread"]),
            seconds=said["seconds"],
            **arrays,
        )


@x64
def calibrate(
    problem: Problem, replicates: int = REPLICATES, seed: int = 0, tell: Tell = lambda line: None
) -> Calibration:
    """λ★ for a problem, from `replicates` sets of data that are simulated at its fit."""
    check_problem(problem)
    replicates, seed = whole_number("replicates", replicates, 1), check_seed(seed)
    refuse_joint_noise(problem)
    began = time.perf_counter()
    tell("finding the fit that data are simulated from")
    start = starting_fit(problem, seed)
    copies = with_synthetic_data(
        problem, start.best, [seed + 1000 * (r + 1) for r in range(replicates)]
    )
    predictor = predictor_of(problem, start, seed)
    lengthscale = default_lengthscale(problem)
    objectives = [Objective(copy, predictor, lengthscale) for copy in copies]
    value = float(np.mean([o.data_terms_of_many(start.best[None])[0] for o in objectives]))
    bayes_spread = np.array(_each(objectives, lambda o: _bayes_spread(o, start, seed)))
    for shift in SHIFTS:
        lams = lams_of(value / shift)
        tell(f"following Q from λ = {lams[0]:.2g} up on {replicates} simulated sets")
        found = _follow(objectives, start, lams, seed, tell)
        lams = lams[: len(found)]
        outside, spread, settled = (
            np.array([[getattr(one, name) for one in at_lam] for at_lam in found]).T
            for name in ("outside", "spread", "settled")
        )
        chosen = _largest(lams, outside, spread, bayes_spread)
        if chosen is not None:
            return Calibration(
                regularisation=chosen[0],
                bound_by=chosen[1],
                lams=lams,
                outside=outside,
                spread=spread,
                bayes_spread=bayes_spread,
                settled=settled,
                seconds=time.perf_counter() - began,
            )
    raise ComputationError(
        f"no λ down to {lams[0]:.2g} leaves at most {MOST_OUTSIDE:.0%} of Q outside the part that "
        f"fits (it is {outside[:, 0].mean():.0%} there): give `regularisation` as a number."
    )


def _follow(objectives, start: Start, lams, seed: int, tell: Tell) -> list[list[Followed]]:
    """Q of every set at each λ, up to the first at which far too much lies outside."""
    sweeps, found = [sweep(objective, start, lams, seed) for objective in objectives], []
    for lam in lams:
        found.append(_each(sweeps, next))
        share = float(np.mean([one.outside for one in found[-1]]))
        tell(f"λ = {lam:.2g}: {share:.1%} of Q outside the part that fits")
        if share > 2 * MOST_OUTSIDE:
            break
    return found


def _each(things, work):
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        return list(pool.map(x64(work), things))


def _bayes_spread(objective: Objective, start: Start, seed: int) -> float:
    problem = objective.problem
    densities = bayes.log_posteriors(problem, objective.predictor)
    sampler = ParallelEnsemble(densities, problem.parameters)
    crew = Crew(sampler, 1, seed, BAYES_ITERATIONS)
    noise = np.asarray(jax.random.normal(jax.random.key(seed), (CHAINS, len(start.best))))
    thetas = start.scattered(noise)
    counts = (BAYES_ITERATIONS // 8, BAYES_ITERATIONS // 4, BAYES_ITERATIONS // 2)
    draw = crew.in_stages(thetas[None, None], counts, np.full(1, -0.5), sampler.shaped_by)
    return spread(draw.theta.reshape(-1, draw.theta.shape[-1]))


def _largest(lams, outside, spread, bayes_spread) -> tuple[float, str] | None:
    """The largest λ that meets both conditions, between those tried, and what bound it."""
    log_lams = np.log(lams)
    fine = np.linspace(log_lams[0], log_lams[-1], 500)
    share = np.interp(fine, log_lams, outside.mean(axis=0))
    width = np.interp(fine, log_lams, _median(spread))
    few_outside, narrow = share <= MOST_OUTSIDE, width <= _widest(spread, bayes_spread)
    good = np.flatnonzero(few_outside & narrow)
    if not len(good):
        return None
    last = good[-1]
    if last == len(fine) - 1:
        return float(np.exp(fine[last])), "the largest λ tried"
    above = last + 1
    what = "the share outside the part that fits" if not few_outside[above] else "the spread"
    return float(np.exp(fine[last])), what


def _widest(spread, bayes_spread) -> float:
    return MOST_SPREAD * max(float(np.median(bayes_spread)), float(_median(spread)[0]))


def _median(spread: Float[np.ndarray, "R L"]) -> Float[np.ndarray, " L"]:
    """Over sets; where nothing fits there is no spread to be too wide."""
    return np.median(np.nan_to_num(spread), axis=0)
