r"""ERK signalling in a cell: eleven species, eleven rates, and a drug that the data never saw.

    u1'  = -b1 u1 u2 + b2 u3 + b5 u4              Raf1              u1(0)  = 2
    u2'  = -b1 u1 u2 + b2 u3 + b11 u11            RKIP              u2(0)  = 2.5
    u3'  =  b1 u1 u2 - b2 u3 - b3 u3 u9 + b4 u4   Raf1_RKIP         u3(0)  = 0
    u4'  =  b3 u3 u9 - b4 u4 - b5 u4              Raf1_RKIP_ERKPP   u4(0)  = 0
    u5'  =  b5 u4 - b6 u5 u7 + b7 u8              ERK               u5(0)  = 0
    u6'  =  b5 u4 - b9 u6 u10 + b10 u11           RKIPP             u6(0)  = 0
    u7'  = -b6 u5 u7 + b7 u8 + b8 u8              MEKPP             u7(0)  = 2.5
    u8'  =  b6 u5 u7 - b7 u8 - b8 u8              MEKPP_ERK         u8(0)  = 0
    u9'  = -b3 u3 u9 + b4 u4 + b8 u8              ERKPP             u9(0)  = 2.5
    u10' = -b9 u6 u10 + b10 u11 + b11 u11         RP                u10(0) = 3
    u11' =  b9 u6 u10 - b10 u11 - b11 u11         RKIPP_RP          u11(0) = 0

(Cho et al. 2003; BioModels BIOMD0000000647.) All rates are fitted on the logit scale with a
standard normal prior. In the misspecified truth every rate is b_i (1 + 1/2 sin(2 pi x / 45)). Data
are all species at 80 times, with noise of sd 0.1 times the sd of u_i(X), X uniform on (0, 60). The
truth runs on to x = 60, in control cells and under a MEK inhibitor, which multiplies b6 by 0.01.

The paper has the 80 times "from 0 to 45 in increments of 0.57"; 79 increments end at 45.03, and the
increment is what is kept here. Six species start at exactly 0, where noise makes their first datum
negative half of the time: the noise is additive, so nothing needs them positive.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from pcuq._x64 import x64
from pcuq.data import Data
from pcuq.interventions import Intervention
from pcuq.kernels import GaussianKernel
from pcuq.models.ode import ODEModel
from pcuq.parameters import Parameter
from pcuq.problem import Problem

Array = NDArray[np.float64]

INITIAL = {
    "Raf1": 2.0,
    "RKIP": 2.5,
    "Raf1_RKIP": 0.0,
    "Raf1_RKIP_ERKPP": 0.0,
    "ERK": 0.0,
    "RKIPP": 0.0,
    "MEKPP": 2.5,
    "MEKPP_ERK": 0.0,
    "ERKPP": 2.5,
    "RP": 3.0,
    "RKIPP_RP": 0.0,
}
OUTPUTS = tuple(INITIAL)
RATES = {
    "beta1": 0.53,
    "beta2": 0.0072,
    "beta3": 0.625,
    "beta4": 0.00245,
    "beta5": 0.0315,
    "beta6": 0.8,
    "beta7": 0.0075,
    "beta8": 0.071,
    "beta9": 0.92,
    "beta10": 0.00122,
    "beta11": 0.87,
}
GRID = np.arange(6001) / 100  # holds the data's times and the truth's, and is fine enough for sds
DATA_ROWS = 57 * np.arange(80)
TRUTH_ROWS = slice(None, None, 10)
TIMES = GRID[DATA_ROWS]
TRUTH_TIMES = GRID[TRUTH_ROWS]


@dataclass(frozen=True, eq=False)
class ERKData:
    """Noisy control data on [0, 45] and the noise-free truths on [0, 60], each (times, species)."""

    times: Array
    y: Array
    truth_times: Array
    truth: Array
    truth_inhibited: Array
    noise_sd: Array
    seed: int
    misspecified: bool


@x64
def model() -> ODEModel:
    """The differential equations with constant rates, to be fitted."""
    return _model(_rhs)


@x64
def truth_model(misspecified: bool = True) -> ODEModel:
    """What makes the data: the same reactions, at rates that rise and fall together."""
    return _model(_wavering_rhs if misspecified else _rhs)


def inhibitor(activity: float = 0.01) -> Intervention:
    """A MEK inhibitor: MEKPP binds ERK at `activity` times its rate, from the start."""
    return Intervention(scale={"beta6": activity})


def simulate(seed: int = 0, misspecified: bool = True) -> ERKData:
    """Truths and data; the seed makes the measurement noise, the truth has no chance in it."""
    truth, inhibited = _truths(misspecified)
    sd = 0.1 * _sd_over_time(truth)
    y = truth[DATA_ROWS] + sd * np.random.default_rng(seed).normal(size=(len(TIMES), len(OUTPUTS)))
    return ERKData(
        TIMES, y, TRUTH_TIMES, truth[TRUTH_ROWS], inhibited[TRUTH_ROWS], sd, seed, misspecified
    )  # fmt: skip


def problem(seed: int = 0, misspecified: bool = True, **kernel: Any) -> Problem:
    """What `simulate` made, ready to fit; `kernel` holds arguments of `GaussianKernel`."""
    made = simulate(seed, misspecified)
    return Problem(model(), Data(made.y, made.times, made.noise_sd), GaussianKernel(**kernel))


def _model(rhs) -> ODEModel:
    return ODEModel(
        rhs, INITIAL, {name: Parameter("logit") for name in RATES}, outputs=OUTPUTS
    )  # fmt: skip


def _rhs(x, u, p):
    # Sums written out: as a stoichiometric matrix times fluxes this is an order of magnitude slower
    b1, b2, b3, b4, b5, b6, b7, b8, b9, b10, b11 = (p[name] for name in RATES)
    u1, u2, u3, u4, u5, u6, u7, u8, u9, u10, u11 = (u[i] for i in range(11))
    return [
        -b1 * u1 * u2 + b2 * u3 + b5 * u4,
        -b1 * u1 * u2 + b2 * u3 + b11 * u11,
        b1 * u1 * u2 - b2 * u3 - b3 * u3 * u9 + b4 * u4,
        b3 * u3 * u9 - b4 * u4 - b5 * u4,
        b5 * u4 - b6 * u5 * u7 + b7 * u8,
        b5 * u4 - b9 * u6 * u10 + b10 * u11,
        -b6 * u5 * u7 + b7 * u8 + b8 * u8,
        b6 * u5 * u7 - b7 * u8 - b8 * u8,
        -b3 * u3 * u9 + b4 * u4 + b8 * u8,
        -b9 * u6 * u10 + b10 * u11 + b11 * u11,
        b9 * u6 * u10 - b10 * u11 - b11 * u11,
    ]


def _wavering_rhs(x, u, p):
    # every term has one rate, so a factor common to the rates is one on the right-hand side
    factor = 1 + 0.5 * jnp.sin(2 * jnp.pi * x / 45)
    return [factor * slope for slope in _rhs(x, u, p)]


@cache
def _truths(misspecified: bool) -> tuple[Array, Array]:
    control = truth_model(misspecified)
    solutions = [m.simulate(GRID, RATES) for m in (control, control.do(inhibitor()))]
    truth, inhibited = (np.stack([np.asarray(s[k]) for k in OUTPUTS], axis=-1) for s in solutions)
    for array in (truth, inhibited):
        array.setflags(write=False)  # shared between calls
    return truth, inhibited


def _sd_over_time(truth: Array) -> Array:
    """sd of u(X) for X uniform on (0, 60), by the trapezium rule."""
    mean, square = (np.trapezoid(f, GRID, axis=0) / GRID[-1] for f in (truth, truth**2))
    return np.sqrt(square - mean**2)
