r"""Influenza in an English boarding school, January 1978: counts of boys in bed.

    S' = -beta S I / N,   I' = beta S I / N - gamma I,   R' = gamma I,     N = 763,  I(0) = 1
    in bed on day x ~ NegativeBinomial(mean I(x), variance I + phi_inv I^2),  or Poisson(I)

x = 1 is 22 January, the first of 14 days. Priors, all on the natural scale and positive:

    beta ~ Normal(2, 1),   gamma ~ Normal(0.4, 0.5),   phi_inv ~ Exponential(5)

as in Grinsztajn, Semenova, Margossian and Riou (2021), "Bayesian workflow for disease transmission
modeling in Stan". The model is wrong in plain sight: boys were infectious before they lay in bed,
and lay there after. Data: anonymous, "Influenza in a boarding school", British Medical Journal,
4 March 1978, p. 587; as in the R package outbreaks, influenza_england_1978_school.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpyro.distributions as dist

from pcuq._x64 import x64
from pcuq.data import Data
from pcuq.errors import InputError
from pcuq.kernels import GaussianKernel
from pcuq.models.ode import ODEModel
from pcuq.noise import NegativeBinomial, Poisson
from pcuq.parameters import Parameter
from pcuq.problem import Problem

IN_BED = np.array([3, 8, 26, 76, 225, 298, 258, 233, 189, 128, 68, 29, 14, 4])
DAYS = np.arange(1.0, 15.0)
BOYS = 763.0
NOISES = ("negative-binomial", "poisson")


@x64
def model(noise: str = "negative-binomial") -> ODEModel:
    """The epidemic with its rates, and the dispersion where the noise has one, to be fitted."""
    parameters = {
        "beta": Parameter("log", dist.TruncatedNormal(2.0, 1.0, low=0.0), "natural"),
        "gamma": Parameter("log", dist.TruncatedNormal(0.4, 0.5, low=0.0), "natural"),
    }
    if _noise(noise) == "negative-binomial":
        parameters["phi_inv"] = Parameter("log", dist.Exponential(5.0), "natural")
    return ODEModel(
        _rhs,
        initial={"S": BOYS - 1.0, "I": 1.0, "R": 0.0},
        parameters=parameters,
        outputs=("in_bed",),
        observe=_in_bed,
        constants={"N": BOYS},
    )


def data(noise: str = "negative-binomial") -> Data:
    """Boys in bed on 14 days."""
    law = NegativeBinomial(_concentration) if _noise(noise) == "negative-binomial" else Poisson()
    return Data(IN_BED[:, None], DAYS, noise=law)


def problem(noise: str = "negative-binomial", **kernel: Any) -> Problem:
    """Model and data, ready to fit; `kernel` holds arguments of `GaussianKernel`."""
    return Problem(model(noise), data(noise), GaussianKernel(**kernel))


def _rhs(x, u, p):
    susceptible, infected = u[0], u[1]
    infections = p["beta"] * susceptible * infected / p["N"]
    recoveries = p["gamma"] * infected
    return [-infections, infections - recoveries, recoveries]


def _in_bed(x, u, p):
    return [u[1]]


def _concentration(x, w, p):
    return 1.0 / p["phi_inv"]


def _noise(name: str) -> str:
    if name not in NOISES:
        raise InputError(f"`noise` needs one of {', '.join(NOISES)}: got {name!r}.")
    return name
