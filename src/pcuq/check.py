r"""Is the model wrong, and does it matter? What Bayes and PCUQ predict, compared by simulation.

    T = MMD²(P_Q, P_B),      p = (1 + #{T* ≥ T}) / (R + 1),

T* of data that the fitted model itself made. Where the model is right, Bayes and PCUQ come to
predict alike; where it is wrong, Bayes narrows around one curve and PCUQ keeps many (the idea of
arXiv 2512.01667). Beside the p-value stand figures in units of the data: how much wider bands
should be, and the stretches of time in which residuals are larger than simulated ones ever are.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from pcuq import misfit
from pcuq._given import check_regularisation, check_seed, whole_number
from pcuq._x64 import x64
from pcuq.calibrate import calibrate
from pcuq.errors import InputError
from pcuq.kernel_scale import default_lengthscale
from pcuq.misfit import Windows
from pcuq.null import Null, load_null, refitter_for, simulate
from pcuq.problem import Problem, check_problem
from pcuq.refits import Refit, Refitter
from pcuq.runs import PARTICLES
from pcuq.start import MESH_TOLERANCE, representatives, starting_fit, starting_particles

REPLICATES = 99
LEVEL = 0.05
LEAST = 19  # replicates: 1 in 20 is the level
MATTERS = 1.1  # bands that should be wider by less than a tenth change no decision

Tell = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class Check:
    """What was found; `print(check.verdict)` says it in a sentence."""

    problem: Problem
    refit: Refit
    null: Null
    windows: Windows
    seconds: float

    @property
    def statistic(self) -> float:
        """T = MMD²(P_Q, P_B)."""
        return float(self.refit.figures.statistic)

    @property
    def p_value(self) -> float:
        """Of T: small where the predictions differ more than under a model that is right."""
        return self.null.p_value("statistic", self.statistic)

    @property
    def misspecified(self) -> bool:
        """p ≤ 0.05."""
        return self.p_value <= LEVEL

    @cached_property
    def wider(self) -> dict[str, tuple[float, float, float]]:
        """How many times as wide as those of Bayes bands for measurements should be.

        For each output and "overall": (ratio, and where nine of ten simulated ratios lie).
        """
        found, simulated = self.refit.figures.width, self.null.figures.width
        said = {
            name: (float(found[c]), *_nine_in_ten(simulated[:, c]))
            for c, name in enumerate(self.problem.outputs)
        }
        of_all = np.array([misfit.overall(ratios) for ratios in simulated])
        return {**said, "overall": (misfit.overall(found), *_nine_in_ten(of_all))}

    @cached_property
    def window_p_values(self) -> Float[np.ndarray, " W"]:
        """How often the worst window of simulated data, in its sds, is as bad as this one."""
        z, worst = self._worst
        return (1 + np.sum(worst[:, None] >= z, axis=0)) / (len(worst) + 1)

    @cached_property
    def window_limit(self) -> Float[np.ndarray, " W"]:
        """The misfit that no window exceeds in nineteen of twenty simulated data sets."""
        simulated = self.null.figures.misfit
        mean, sd = simulated.mean(axis=0), simulated.std(axis=0, ddof=1)
        return mean + np.quantile(self._worst[1], 1 - LEVEL) * sd

    @cached_property
    def _worst(self):
        """Misfits in sds of simulated ones, and the largest of each simulated set.

        A simulated set is held against the others alone, as the data are: in sds that it has a
        share in, a set that stands out would seem to do so less than data that do as much.
        """
        simulated = self.null.figures.misfit
        mean, sd = simulated.mean(axis=0), simulated.std(axis=0, ddof=1) + 1e-300
        count, apart = len(simulated), simulated - mean
        of_others = (count - 1) * sd**2 - apart**2 * count / (count - 1)
        apart = apart * count / (count - 1)  # from the mean of the others
        alone = apart / (np.sqrt(np.maximum(of_others, 0.0) / (count - 2)) + 1e-300)
        return (self.refit.figures.misfit - mean) / sd, np.max(alone, axis=1)

    @property
    def autocorrelation_p_value(self) -> float:
        """Of ρ_1 of the residuals, on both sides of its simulated mean."""
        simulated = self.null.figures.autocorrelation[:, 0]
        apart = np.abs(simulated - simulated.mean())
        here = abs(float(self.refit.figures.autocorrelation[0]) - simulated.mean())
        return float(1 + np.sum(apart >= here)) / (len(simulated) + 1)

    @property
    def pit_p_value(self) -> float:
        """Of the distance of PIT values from uniform ones."""
        return self.null.p_value("pit_distance", float(self.refit.figures.pit_distance))

    @property
    def verdict(self) -> str:
        """One sentence."""
        return _verdict(self)

    def to_dict(self) -> dict[str, Any]:
        """Everything, as JSON can say it."""
        figures, simulated = self.refit.figures, self.null.figures
        lags = [
            {"lag": k + 1, "value": float(value), "expected": _nine_in_ten(column)}
            for k, (value, column) in enumerate(
                zip(figures.autocorrelation, simulated.autocorrelation.T, strict=True)
            )
        ]
        return {
            "verdict": self.verdict,
            "misspecified": self.misspecified,
            "p_value": self.p_value,
            "statistic": self.statistic,
            "statistic_expected": _nine_in_ten(simulated.statistic),
            "replicates": len(self.null),
            "failed_replicates": self.null.failed,
            "regularisation": self.null.regularisation,
            "band_width_ratio": {
                name: {"value": ratio, "expected": (low, high)}
                for name, (ratio, low, high) in self.wider.items()
            },
            "curve_band_width_ratio": dict(
                zip(self.problem.outputs, figures.curve_width.tolist(), strict=True)
            ),
            "windows": [self._window(k) for k in range(len(self.windows))],
            "autocorrelation": {"p_value": self.autocorrelation_p_value, "lags": lags},
            "pit": {
                "p_value": self.pit_p_value,
                "counts": np.histogram(self.refit.pit, 10, (0, 1))[0].tolist(),
            },
            "seconds": self.seconds,
        }

    def _window(self, k: int) -> dict[str, Any]:
        figures, windows, simulated = self.refit.figures, self.windows, self.null.figures
        return {
            "condition": windows.condition[k],
            "output": windows.output[k],
            "start": float(windows.start[k]),
            "end": float(windows.end[k]),
            "measurements": len(windows.rows[k]),
            "misfit": float(figures.misfit[k]),
            "expected": _nine_in_ten(simulated.misfit[:, k]),
            "limit": float(self.window_limit[k]),
            "shift": float(figures.shift[k]),
            "gap": float(figures.gap[k]),
            "p_value": float(self.window_p_values[k]),
            "fails": bool(self.window_p_values[k] <= LEVEL),
        }


@x64
def check(
    problem: Problem,
    replicates: int = REPLICATES,
    seed: int = 0,
    regularisation: float | str = "auto",
    null: Null | str | Path | None = None,
    tell: Tell = lambda line: None,
) -> Check:
    """Whether the model is misspecified, how much wider bands should be, and where it fails.

    `replicates`: data sets that are simulated from the best fit; the smallest p-value that can be
    found is 1/(replicates + 1). `regularisation`: λ, or "auto" for that of `pcuq.calibrate`.
    `null`: what an earlier check of the same model and design simulated (`check.null`, or the file
    that its `save` wrote), with its λ; nothing is simulated then. `tell` is called with a line for
    every stage.
    """
    began = time.perf_counter()
    check_problem(problem)
    replicates, seed = whole_number("replicates", replicates, LEAST), check_seed(seed)
    if regularisation != "auto":
        check_regularisation(regularisation)
    if problem.data.noises[0].joint:
        raise InputError("a check under JointNoise is not known: only the unadjusted flow fits it.")
    known = load_null(null) if isinstance(null, (str, Path)) else null
    if known is not None and not isinstance(known, Null):
        raise InputError(f"`null` needs what a check simulated, or a file: got {null!r}.")
    tell("finding the best fit")
    start = starting_fit(problem, seed)
    if known is not None:
        _check_lam(known, regularisation)
        refitter = refitter_for(known, problem)
    else:
        lam = _lam(problem, regularisation, seed, tell)
        particles = starting_particles(problem, start, np.random.default_rng(seed), PARTICLES)
        points = representatives(problem, start, particles)
        predictor = problem.predictor(points, tolerance=MESH_TOLERANCE)
        refitter = Refitter(problem, predictor, default_lengthscale(problem), lam)
        tell(f"fitting {replicates} simulated data sets by both methods")
        known = simulate(problem, start, refitter, points, lam, replicates, seed, tell)
    tell("fitting the data by both methods")
    found = refitter(problem, refitter.climb(start.best[None], problem.data.y), seed)
    return Check(problem, found, known, refitter.windows, time.perf_counter() - began)


def _lam(problem: Problem, regularisation: float | str, seed: int, tell: Tell) -> float:
    if regularisation != "auto":
        return check_regularisation(regularisation)
    return calibrate(problem, seed=seed, tell=tell).regularisation


def _check_lam(null: Null, regularisation: float | str) -> None:
    if regularisation != "auto" and not math.isclose(
        check_regularisation(regularisation), null.regularisation, rel_tol=1e-9
    ):
        raise InputError(
            f"`null` was simulated with λ = {null.regularisation:g}: leave `regularisation` out, "
            "or `null`."
        )


def _nine_in_ten(values: Float[np.ndarray, " R"]) -> tuple[float, float]:
    low, high = np.quantile(values, [0.05, 0.95])
    return float(low), float(high)


def _verdict(found: Check) -> str:
    ratio, low, high = found.wider["overall"]
    p = f"p = {found.p_value:.2g}"
    width = f"{ratio:.2g} times as wide as those of Bayes"
    expected = f"{low:.2g} to {high:.2g} if the model were right"
    if not found.misspecified:
        said = f"No sign that the model is wrong ({p}): Bayes and PCUQ predict alike"
        doubts = [
            f"{what} (p = {value:.2g})"
            for what, value in (
                ("residuals are correlated", found.autocorrelation_p_value),
                ("PIT values are not uniform", found.pit_p_value),
            )
            if value <= LEVEL
        ]
        return f"{said}, but {' and '.join(doubts)}." if doubts else f"{said}."
    if ratio < max(MATTERS, high):
        said = f"The model is wrong ({p}), but it matters little: bands for measurements "
        said += f"should be {width} ({expected})"
    else:
        said = f"The model is wrong, and it matters ({p}): bands for measurements should be "
        said += f"{width} ({expected})"
    k = int(np.argmax(found._worst[0]))
    if found.window_p_values[k] > LEVEL:
        return f"{said}."
    return f"{said}; it fails most in {_where(found, k)}."


def _where(found: Check, k: int) -> str:
    windows = found.windows
    place = windows.output[k]
    if windows.condition[k]:
        place += f" under {windows.condition[k]}"
    if found.problem.data.x is not None:
        place += f" from {windows.start[k]:g} to {windows.end[k]:g}"
    typical = float(np.mean(found.null.figures.misfit[:, k]))
    times = found.refit.figures.misfit[k] / typical
    return f"{place}, where residuals are {times:.2g} times as large as they should be"
