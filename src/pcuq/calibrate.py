"""λ★: as much regularisation as an honest answer bears, found on data from the model itself.

The model is fitted, and data are simulated from it several times. On them

    λ★ = largest λ with  share of Q outside the part that fits ≤ 5 %  and
                         spread of Q ≤ 1.25 max(spread of Bayes, spread of Q as λ → 0),

both averaged over the simulated sets; the spread is the geometric mean over parameters of the sd
of θ within the part that fits. Q is followed from small λ to large, each λ going on from where the
one before ended: from the fit mass escapes to the prior by single jumps, while the other way much
of it would be caught in poor fits. The whole curve costs about as much as one or two fits.

The second selector, `select_by_score`, simulates nothing: it holds out the last quarter of the
data and takes the λ that predicts it best.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jaxtyping import Float

from pcuq._given import check_seed, whole_number
from pcuq._x64 import x64
from pcuq.baselines import bayes
from pcuq.data import Data
from pcuq.errors import ComputationError, InputError
from pcuq.objective import Objective, default_lengthscale, part_that_fits
from pcuq.predict import predict
from pcuq.problem import Predictor, Problem, check_problem
from pcuq.samplers.anchors import find_anchors
from pcuq.samplers.base import Crew
from pcuq.samplers.ensemble import Ensemble, ParallelEnsemble
from pcuq.scores import crps
from pcuq.start import (
    MESH_TOLERANCE,
    Start,
    representatives,
    starting_fit,
    starting_particles,
)
from pcuq.synthetic import with_synthetic_data

REPLICATES = 3
PARTICLES = 50
ITERATIONS = 80  # for each λ, of which the first 40 % go to settling
SETTLING = 0.4
CHAINS, BAYES_ITERATIONS = 50, 200
# λ from v/300 to v/30, v the data term of the fit: the fit is then worth 300 to 30 nats. At smaller
# λ fifty particles no longer stand well for Q, because leaving out the overlap of each with itself
# begins to show: they are tried only where none of these will do.
FEWEST_NATS, MOST_NATS, LAMS = 30.0, 300.0, 6
SHIFTS = (1.0, 10.0, 100.0)
MOST_OUTSIDE = 0.05
MOST_SPREAD = 1.25
HELD_OUT = 0.25

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
    seconds: float

    @property
    def floor(self) -> float:
        """Spread of Q at the smallest λ."""
        return float(self.spread[:, 0].mean())

    @property
    def widest(self) -> float:
        """The spread that λ★ may have."""
        return MOST_SPREAD * max(float(self.bayes_spread.mean()), self.floor)

    def to_dict(self) -> dict[str, Any]:
        """Everything, as JSON can say it."""
        return {
            "regularisation": self.regularisation,
            "bound_by": self.bound_by,
            "lams": self.lams.tolist(),
            "outside": self.outside.tolist(),
            "spread": self.spread.tolist(),
            "bayes_spread": self.bayes_spread.tolist(),
            "floor": self.floor,
            "seconds": self.seconds,
        }

    @classmethod
    def from_dict(cls, said: dict[str, Any]) -> Calibration:
        """What `to_dict` gave."""
        arrays = {name: np.array(said[name]) for name in ("lams", "outside", "spread")}
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
    whole_number("replicates", replicates, 1)
    check_seed(seed)
    _refuse_joint_noise(problem)
    began = time.perf_counter()
    tell("finding the fit that data are simulated from")
    start = starting_fit(problem, seed)
    copies = with_synthetic_data(
        problem, start.best, [seed + 1000 * (r + 1) for r in range(replicates)]
    )
    predictor = _predictor(problem, start, seed)
    lengthscale = default_lengthscale(problem)
    objectives = [Objective(copy, predictor, lengthscale) for copy in copies]
    value = float(np.mean([o.data_terms_of_many(start.best[None])[0] for o in objectives]))
    bayes_spread = np.array(_each(objectives, lambda o: _bayes_spread(o, start, seed)))
    for shift in SHIFTS:
        lams = _lams(value / shift)
        tell(f"following Q from λ = {lams[0]:.2g} to {lams[-1]:.2g} on {replicates} simulated sets")
        found = _each(objectives, lambda o, lams=lams: _curves(sweep(o, start, lams, seed)))
        outside, spread = map(np.array, zip(*found, strict=True))
        chosen = _largest(lams, outside, spread, bayes_spread)
        if chosen is not None:
            return Calibration(
                regularisation=chosen[0],
                bound_by=chosen[1],
                lams=lams,
                outside=outside,
                spread=spread,
                bayes_spread=bayes_spread,
                seconds=time.perf_counter() - began,
            )
    raise ComputationError(
        f"no λ down to {lams[0]:.2g} leaves at most {MOST_OUTSIDE:.0%} of Q outside the part that "
        f"fits (it is {outside[:, 0].mean():.0%} there): give `regularisation` as a number."
    )


def _each(objectives, work):
    def in_64_bits(objective):  # the setting is a thread's own
        with jax.enable_x64(True):
            return work(objective)

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        return list(pool.map(in_64_bits, objectives))


@dataclass(frozen=True)
class Selection:
    """The λ that predicts held-out data best, and the score of every λ tried."""

    regularisation: float
    lams: Float[np.ndarray, " L"]
    crps: Float[np.ndarray, " L"]  # mean over held-out entries, each in sds of its output
    held_out: int  # entries
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Everything, as JSON can say it."""
        return {
            "regularisation": self.regularisation,
            "lams": self.lams.tolist(),
            "crps": self.crps.tolist(),
            "held_out": self.held_out,
            "seconds": self.seconds,
        }


@x64
def select_by_score(problem: Problem, seed: int = 0, tell: Tell = lambda line: None) -> Selection:
    """The λ of least CRPS on the last quarter of the data, fitted to the rest."""
    _refuse_joint_noise(problem)
    began = time.perf_counter()
    kept, held = split(problem.data, seed)
    training = problem.take(kept)
    tell(f"fitting {len(kept)} of {problem.data.n} rows, to predict the others")
    start = starting_fit(training, seed)
    predictor = _predictor(training, start, seed)
    objective = Objective(training, predictor, default_lengthscale(training))
    lams = _lams(float(objective.data_terms_of_many(start.best[None])[0]))
    scores = [
        _score(training, problem.data, held, draws.theta.reshape(-1, len(start.best)))
        for draws in sweep(objective, start, lams, seed)
    ]
    best = int(np.argmin(scores))
    return Selection(
        regularisation=float(lams[best]),
        lams=lams,
        crps=np.array(scores),
        held_out=int(problem.data.observed[held].sum()),
        seconds=time.perf_counter() - began,
    )


def sweep(objective: Objective, start: Start, lams: np.ndarray, seed: int) -> list[Any]:
    """Draws of one particle system at each λ, smallest first, each going on from the one before."""
    sampler = Ensemble(objective, float(lams[0]))
    crew = Crew(sampler, 1, seed, ITERATIONS)
    noise = np.asarray(jax.random.normal(jax.random.key(seed), (PARTICLES, len(start.best))))
    thetas = start.best + 3.0 * noise @ np.linalg.cholesky(start.covariance).T
    pool, log_steps, found = thetas[None, None], np.full(1, -2.0), []
    settling = round(SETTLING * ITERATIONS)
    for number, lam in enumerate(lams):
        anchors = find_anchors(objective, float(lam), start, seed)
        tune = Ensemble(objective, float(lam), anchors).shaped_by
        # The first λ begins at the fit and not where another ended.
        counts = (settling,) * (3 if number == 0 else 1) + (ITERATIONS - settling,)
        found.append(crew.in_stages(pool, counts, log_steps, tune))
        pool, log_steps = found[-1].theta, crew.log_steps()
    return found


def _curves(found: list[Any]) -> tuple[list[float], list[float]]:
    """(share outside the part that fits, spread within it) at each λ."""
    best = max(float(draw.v.max()) for draw in found)
    outside, widths = [], []
    for draw in found:
        fits = part_that_fits(np.append(draw.v.ravel(), best))[:-1]
        inside = draw.theta.reshape(-1, draw.theta.shape[-1])[fits]
        outside.append(float(1 - fits.mean()))
        widths.append(spread(inside) if len(inside) > 1 else math.nan)
    return outside, widths


def _bayes_spread(objective: Objective, start: Start, seed: int) -> float:
    problem = objective.problem
    density = bayes.log_posterior(problem, objective.predictor)
    sampler = ParallelEnsemble(density, problem.parameters)
    crew = Crew(sampler, 1, seed, BAYES_ITERATIONS)
    noise = np.asarray(jax.random.normal(jax.random.key(seed), (CHAINS, len(start.best))))
    thetas = start.best + noise @ np.linalg.cholesky(start.covariance).T
    counts = (BAYES_ITERATIONS // 8, BAYES_ITERATIONS // 4, BAYES_ITERATIONS // 2)
    draw = crew.in_stages(thetas[None, None], counts, np.full(1, -0.5), sampler.shaped_by)
    return spread(draw.theta.reshape(-1, draw.theta.shape[-1]))


def spread(thetas: Float[np.ndarray, "K p"]) -> float:
    """Geometric mean over parameters of the sd."""
    return float(np.exp(np.mean(np.log(thetas.std(axis=0) + 1e-300))))


def _largest(lams, outside, spread, bayes_spread) -> tuple[float, str] | None:
    """The largest λ that meets both conditions, between those tried, and what bound it."""
    log_lams = np.log(lams)
    fine = np.linspace(log_lams[0], log_lams[-1], 500)
    share = np.interp(fine, log_lams, outside.mean(axis=0))
    # Where nothing fits there is no spread to be too wide.
    width = np.interp(fine, log_lams, np.nan_to_num(spread).mean(axis=0))
    widest = MOST_SPREAD * max(bayes_spread.mean(), spread[:, 0].mean())
    few_outside, narrow = share <= MOST_OUTSIDE, width <= widest
    good = np.flatnonzero(few_outside & narrow)
    if not len(good):
        return None
    last = good[-1]
    if last == len(fine) - 1:
        return float(np.exp(fine[last])), "the largest λ tried"
    above = last + 1
    what = "the share outside the part that fits" if not few_outside[above] else "the spread"
    return float(np.exp(fine[last])), what


def _lams(value: float) -> np.ndarray:
    """Smallest first."""
    if not value > 0:
        raise ComputationError(
            "the best fit explains none of the data (v = 0): widen the kernel with lengthscale_y, "
            "check the noise scale, or give the problem a `nominal`."
        )
    return value / np.geomspace(MOST_NATS, FEWEST_NATS, LAMS)


def _predictor(problem: Problem, start: Start, seed: int) -> Predictor:
    particles = starting_particles(problem, start, np.random.default_rng(seed), PARTICLES)
    return problem.predictor(representatives(problem, start, particles), tolerance=MESH_TOLERANCE)


def split(data: Data, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows that are kept and held out: the last quarter of covariates, at random without them."""
    if data.x is None:
        order = np.random.default_rng(seed).permutation(data.n)
        held = np.sort(order[: max(1, round(HELD_OUT * data.n))])
    else:
        first = data.x if data.x.ndim == 1 else data.x[:, 0]
        held = np.flatnonzero(first > np.quantile(first, 1 - HELD_OUT, method="lower"))
    kept = np.setdiff1d(np.arange(data.n), held)
    if not len(held) or not len(kept):
        raise InputError(
            "the data cannot be split into a part to fit and a later part to predict: they have "
            "too few different covariates; use calibrate instead."
        )
    return kept, held


def _score(problem: Problem, data: Data, held: np.ndarray, thetas: np.ndarray) -> float:
    """Mean CRPS of noisy predictions over held-out entries, in sds of the output's data."""
    unit = np.nanstd(data.y, axis=0)
    unit = np.where(unit > 0, unit, 1.0)
    total, entries = 0.0, 0
    for label in np.unique(data.condition[held]):
        rows = held[data.condition[held] == label]
        x = None if data.x is None else data.x[rows]
        prediction = predict(problem, thetas, x, condition=label or None, max_draws=500)
        assert prediction.observations is not None
        draws = prediction.observations[prediction.ok][..., problem.columns]
        draws = np.broadcast_to(draws, (len(draws), len(rows), data.d))
        seen = data.observed[rows]
        values = crps(draws[:, seen], data.y[rows][seen])
        total += float(np.sum(values / np.broadcast_to(unit, seen.shape)[seen]))
        entries += int(seen.sum())
    return total / entries


def _refuse_joint_noise(problem: Problem) -> None:
    if problem.data.noises[0].joint:
        raise InputError(
            "λ cannot be chosen under JointNoise, which only the unadjusted flow can use: give "
            "`regularisation` as a number."
        )
