r"""Prey and predator: the paper's test bed, well specified and not.

    u1' = alpha u1 - beta u1 u2,      u1(0) = xi1
    u2' = delta u1 u2 - gamma u2,     u2(0) = xi2

alpha and beta are fitted on the logit scale with a standard normal prior; gamma, delta and the
initial values are known. Data are u at x = 0, 1, ..., 60 with noise of sd 1, and the truth runs on
to x = 90. The misspecified truth has intrinsic noise, which the model knows nothing of:

    du1 = (alpha u1 - beta u1 u2) dx + epsilon1 dW1
    du2 = (delta u1 u2 - gamma u2) dx + epsilon2 dW2

Its noise does not stop at zero. A predator pushed below zero, where prey abound, falls without end
and the prey explodes. The rule, applied to the path alone before any fit: *with M the largest value
that a population has in the differential equation on [0, 90], a path is redrawn, from the next
sub-seed, when that population ever leaves [-M/10, 5 M] there.* Shallower dips below zero mostly
heal, and are kept: they are what these equations say. The number of redrawn paths is recorded.

The paper integrates with reversible Heun at step 0.01, and to x = 60. That scheme is unstable here:
with the alternative setting it blows up before x = 90 even without noise. The default is Heun's
scheme with the same step, which has the same limit; `scheme="reversible-heun"` is the paper's.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from pcuq._x64 import x64
from pcuq.data import Data
from pcuq.errors import ComputationError, InputError
from pcuq.kernels import GaussianKernel
from pcuq.models.ode import ODEModel
from pcuq.parameters import Parameter
from pcuq.problem import Problem
from pcuq.zoo._sde import SCHEMES

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Setting:
    """The parameters that make the data, and the sd of the intrinsic noise."""

    alpha: float
    beta: float
    gamma: float
    delta: float
    initial: tuple[float, float]
    epsilon: tuple[float, float]


SETTINGS = {
    "main": Setting(float(expit(-2)), float(expit(-4)), 0.4, 0.02, (10.0, 10.0), (0.0, 0.4)),
    "alternative": Setting(float(expit(-1)), float(expit(-3)), 0.4, 0.02, (10.0, 15.0), (0.1, 0.2)),
}

OUTPUTS = ("prey", "predator")
TIMES = np.arange(61.0)
TRUTH_TIMES = np.arange(901) / 10
NOISE_SD = 1.0
STEP = 0.01
LOWEST, HIGHEST = -0.1, 5.0  # of a path, times the largest value in the differential equation
BATCH, MAX_BATCHES = 4, 50  # paths are drawn several at once: it costs no more than one


@dataclass(frozen=True, eq=False)
class LVData:
    """Noisy data on [0, 60] and the noise-free truth on [0, 90], each (times, outputs)."""

    times: Array
    y: Array
    truth_times: Array
    truth: Array
    noise_sd: float
    seed: int
    exploded_paths: int
    setting: str
    misspecified: bool


@cache
@x64
def model(setting: str = "main") -> ODEModel:
    """The differential equation with alpha and beta to be fitted."""
    s = _setting(setting)
    return ODEModel(
        _rhs,
        initial=dict(zip(OUTPUTS, s.initial, strict=True)),
        parameters={"alpha": Parameter("logit"), "beta": Parameter("logit")},
        outputs=OUTPUTS,
        constants={"gamma": s.gamma, "delta": s.delta},
    )


def true_parameters(setting: str = "main") -> dict[str, float]:
    """The values of the fitted parameters that made the data."""
    s = _setting(setting)
    return {"alpha": s.alpha, "beta": s.beta}


def simulate(
    seed: int = 0, misspecified: bool = False, setting: str = "main", scheme: str = "heun"
) -> LVData:
    """Truth and data. The measurement noise depends on the seed alone, not on the other choices."""
    if scheme not in SCHEMES:
        raise InputError(f"`scheme` needs one of {', '.join(SCHEMES)}: got {scheme!r}.")
    truth, exploded = _solution(setting), 0
    if misspecified:
        truth, exploded = _stochastic_path(seed, _setting(setting), truth.max(axis=0), scheme)
    at_data = truth[:: len(TRUTH_TIMES) // 90][: len(TIMES)]
    noise = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(1,)))
    y = at_data + NOISE_SD * noise.normal(size=at_data.shape)
    return LVData(
        TIMES, y, TRUTH_TIMES, truth, NOISE_SD, seed, exploded, setting, misspecified
    )  # fmt: skip


def problem(
    seed: int = 0, misspecified: bool = False, setting: str = "main", **kernel: Any
) -> Problem:
    """What `simulate` made, ready to fit; `kernel` holds arguments of `GaussianKernel`."""
    made = simulate(seed, misspecified, setting)
    data = Data(y=made.y, x=made.times, noise=made.noise_sd)
    return Problem(model(setting), data, GaussianKernel(**kernel))


def _rhs(x, u, p):
    prey, predator = u[0], u[1]
    return [
        p["alpha"] * prey - p["beta"] * prey * predator,
        p["delta"] * prey * predator - p["gamma"] * predator,
    ]


def _drift(s: Setting):
    """The right-hand side for paths (..., 2): each population times its growth per head."""
    alone, together = np.array([s.alpha, -s.gamma]), np.array([-s.beta, s.delta])
    return lambda u: u * (alone + together * u[..., ::-1])


@cache
def _solution(setting: str) -> Array:
    solution = model(setting).simulate(TRUTH_TIMES, true_parameters(setting))
    truth = np.stack([np.asarray(solution[name]) for name in OUTPUTS], axis=-1)
    truth.setflags(write=False)  # shared between calls
    return truth


def _stochastic_path(seed: int, s: Setting, largest: Array, scheme: str) -> tuple[Array, int]:
    """The first path of the seed that does not explode, and how many did before it."""
    steps, every = round(TRUTH_TIMES[-1] / STEP), round(TRUTH_TIMES[1] / STEP)
    start = np.tile(s.initial, (BATCH, 1))
    for first in range(0, BATCH * MAX_BATCHES, BATCH):
        streams = [np.random.SeedSequence(seed, spawn_key=(0, first + k)) for k in range(BATCH)]
        draws = [np.random.default_rng(stream).normal(size=(steps, 2)) for stream in streams]
        with np.errstate(over="ignore", invalid="ignore"):
            dW = np.sqrt(STEP) * np.stack(draws, axis=1)
            paths = SCHEMES[scheme](_drift(s), s.epsilon, start, dW, STEP)
            stays = (LOWEST * largest <= paths) & (paths <= HIGHEST * largest)  # NaN does not
        good = np.flatnonzero(stays.all(axis=(0, 2)))
        if good.size:
            return paths[::every, good[0]], first + int(good[0])
    raise ComputationError(
        f"all of the first {BATCH * MAX_BATCHES} stochastic paths exploded: try another seed."
    )


def _setting(name: str) -> Setting:
    if name not in SETTINGS:
        raise InputError(f"`setting` needs one of {', '.join(SETTINGS)}: got {name!r}.")
    return SETTINGS[name]
