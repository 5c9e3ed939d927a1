"""Where the authors' public code departs from the paper, and what each departure changes.

Lotka–Volterra by PCUQ: as in the paper at λ★, and with one departure at a time.

| departure | the paper | the code |
|---|---|---|
| kernel | ℓ_Y = σ | ℓ_Y² = σ²/10 |
| regularisation | λ★ | λ = 10⁻³ without the 1/n² of the objective, so 10⁻³/59² here |
| both of these | | |
| start | u(0) = ξ | u = ξ at the first time of the data, which is 1.02 |
| particles | N as large as it needs to be | N = 10 |

The code's accept step also counts each pair of particles twice, so its chain has another target
than its drift; one density with its own gradient cannot be made to do that, and it is left out.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pcuq.data import Data
from pcuq.kernels import GaussianKernel
from pcuq.problem import Problem
from pcuq.reproduce.cases import CASES, EVERY, LATER, SCORED_ON, TIMES
from pcuq.reproduce.methods import Size, fit_by
from pcuq.reproduce.replicates import SEEDS_APART, star, store_of
from pcuq.reproduce.rows import Row, Tell, convergence, line, mean_row, performance
from pcuq.zoo import lotka_volterra
from pcuq.zoo.lotka_volterra import LVData

CODE_TIMES = 60.0 / 59 * np.arange(1, 60)
CODE_WIDTH = float(np.sqrt(0.1))
CODE_LAMBDA = 1e-3 / len(CODE_TIMES) ** 2


class Departure(NamedTuple):
    """What is done otherwise than in the paper."""

    lengthscale: float | None = None
    lam: float | None = None
    late_start: bool = False
    particles: int | None = None


DEPARTURES = {
    "the paper": Departure(),
    "ℓ² = 0.1": Departure(lengthscale=CODE_WIDTH),
    "λ = 1e-3/n²": Departure(lam=CODE_LAMBDA),
    "both": Departure(lengthscale=CODE_WIDTH, lam=CODE_LAMBDA),
    "late start": Departure(late_start=True),
    "N = 10": Departure(particles=10),
}


def departures(out: Path, seed: int, size: Size, tell: Tell) -> dict[str, Any]:
    """Summary by case and departure; parts on disk are not computed again."""
    store = store_of(out / "parts", seed, size)
    lam = star(store, "main", seed, size, tell)
    cases: dict[str, Any] = {case: {} for case in CASES}
    for case in CASES:
        for k, (name, departure) in enumerate(DEPARTURES.items()):
            rows = []
            for r in range(size.prior_replicates):

                def compute(case=case, name=name, departure=departure, r=r) -> Row:
                    data = lotka_volterra.simulate(SEEDS_APART * seed + r, CASES[case])
                    row = _fit(data, departure, lam, size, r)
                    tell(line(f"{case}, set {r}, {name}", row))
                    return row

                rows.append(store.get(f"departure-{case}-{k}-{r:03d}", compute))
            cases[case][name] = mean_row(rows)
            tell(line(f"{case}, {name}, mean of {len(rows)}", cases[case][name]))
    return {
        "cases": cases,
        "regularisation": lam,
        "scored_on": SCORED_ON,
        "parts": repr(store),
    }


def problem_with(data: LVData, departure: Departure) -> Problem:
    """The problem as the departure poses it."""
    model = lotka_volterra.model(data.setting)
    kernel = GaussianKernel(lengthscale_y=departure.lengthscale)
    if not departure.late_start:
        return Problem(model, Data(data.y, data.times, data.noise_sd), kernel)
    truth = np.stack([np.interp(CODE_TIMES, data.truth_times, c) for c in data.truth.T], axis=-1)
    noise = np.random.default_rng([data.seed, 59]).normal(size=truth.shape)
    late = replace(model, t0=float(CODE_TIMES[0]))
    return Problem(late, Data(truth + data.noise_sd * noise, CODE_TIMES, data.noise_sd), kernel)


def _fit(data: LVData, departure: Departure, lam: float, size: Size, seed: int) -> Row:
    run = size.pcuq
    if departure.particles is not None:
        run = replace(run, particles=departure.particles)
    problem = problem_with(data, departure)
    fitted, seconds = fit_by("pcuq", problem, departure.lam or lam, run, seed)
    # A late start knows nothing of earlier times.
    prediction = fitted.predict(TIMES[LATER], noise=False, max_draws=size.most_draws)
    truth = data.truth[::EVERY][LATER]
    return convergence(fitted, seconds) | performance(prediction, truth)
