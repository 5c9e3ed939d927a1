r"""Lynx and hare pelts of the Hudson's Bay Company, 1900-1920: real data, eight unknowns.

    u' = (alpha - beta v) u,   v' = (-gamma + delta u) v,   u(0) = hare_0,  v(0) = lynx_0
    log hare ~ Normal(log u, sigma_1),   log lynx ~ Normal(log v, sigma_2)

u is hare and v lynx, in thousands of pelts; x counts years from 1900, whose pelts are data too.

    alpha, gamma ~ Normal(1, 0.5),  beta, delta ~ Normal(0.05, 0.05),    truncated at 0
    hare_0, lynx_0 ~ LogNormal(log 10, 1),   sigma_1, sigma_2 ~ LogNormal(-1, 1)

Model and priors are those of Carpenter (2018), "Predator-prey population dynamics: the Lotka-
Volterra model in Stan", for which a reference posterior of 10,000 draws exists (posteriordb,
hudson_lynx_hare). Data: P. Howard, "Modeling basics", Texas A&M University, after Hewitt (1921).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpyro.distributions as dist

from pcuq._x64 import x64
from pcuq.data import Data
from pcuq.kernels import GaussianKernel
from pcuq.models.ode import ODEModel
from pcuq.noise import LogNormal
from pcuq.parameters import Parameter
from pcuq.problem import Problem

YEARS = np.arange(1900, 1921)
# fmt: off
HARE = np.array([
    30.0, 47.2, 70.2, 77.4, 36.3, 20.6, 18.1, 21.4, 22.0, 25.4, 27.1,
    40.3, 57.0, 76.6, 52.3, 19.5, 11.2, 7.6, 14.6, 16.2, 24.7,
])
LYNX = np.array([
    4.0, 6.1, 9.8, 35.2, 59.4, 41.7, 19.0, 13.0, 8.3, 9.1, 7.4,
    8.0, 12.3, 19.5, 45.7, 51.1, 29.7, 15.8, 9.7, 10.1, 8.6,
])
# fmt: on
OUTPUTS = ("hare", "lynx")


@x64
def model() -> ODEModel:
    """The differential equation with its rates, initial values and noise to be fitted."""
    rate = Parameter("log", dist.TruncatedNormal(1.0, 0.5, low=0.0), "natural")
    contact = Parameter("log", dist.TruncatedNormal(0.05, 0.05, low=0.0), "natural")
    start = Parameter("log", dist.LogNormal(math.log(10.0), 1.0), "natural")
    sigma = Parameter("log", dist.LogNormal(-1.0, 1.0), "natural")
    return ODEModel(
        _rhs,
        initial={"hare": "hare_0", "lynx": "lynx_0"},
        parameters={
            "alpha": rate,
            "beta": contact,
            "gamma": rate,
            "delta": contact,
            "hare_0": start,
            "lynx_0": start,
            "sigma_1": sigma,
            "sigma_2": sigma,
        },
        outputs=OUTPUTS,
    )


def data() -> Data:
    """The pelts of 21 years, hare first, with noise that is normal on the log scale."""
    pelts = np.stack([HARE, LYNX], axis=-1)
    return Data(pelts, YEARS - 1900.0, noise=LogNormal(["sigma_1", "sigma_2"]))


def problem(**kernel: Any) -> Problem:
    """Model and data, ready to fit; `kernel` holds arguments of `GaussianKernel`."""
    return Problem(model(), data(), GaussianKernel(**kernel))


def _rhs(x, u, p):
    hare, lynx = u[0], u[1]
    return [
        (p["alpha"] - p["beta"] * lynx) * hare,
        (-p["gamma"] + p["delta"] * hare) * lynx,
    ]
