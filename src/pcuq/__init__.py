"""Prediction-centric uncertainty quantification: honest predictions from models that are wrong.

problem = pcuq.Problem(model, pcuq.Data(y, x, noise=1.0))
fit = pcuq.fit(problem, regularisation=3e-5)
fit.predict(times, do=pcuq.Intervention(scale={"k6": 0.01}))
"""

import importlib
from typing import TYPE_CHECKING

from pcuq.calibrate import calibrate, select_by_score
from pcuq.data import Data
from pcuq.errors import ComputationError, InputError
from pcuq.exact import solve_on_grid
from pcuq.fit import fit
from pcuq.interventions import Intervention
from pcuq.kernels import (
    GaussianKernel,
    GaussianMixtureKernel,
    InverseMultiquadricKernel,
    MaternKernel,
    RationalQuadraticKernel,
)
from pcuq.likelihood import log_likelihood
from pcuq.models.function import FunctionModel
from pcuq.models.ode import ODEModel
from pcuq.noise import (
    CustomNoise,
    Gaussian,
    JointNoise,
    Laplace,
    LogNormal,
    NegativeBinomial,
    Poisson,
    StudentT,
)
from pcuq.objective import joint_log_density, kappa, mmd2
from pcuq.parameters import Parameter
from pcuq.predict import Prediction, prior_predictive
from pcuq.problem import Problem
from pcuq.result import Fit, load

if TYPE_CHECKING:
    from pcuq.io.petab import from_petab
    from pcuq.io.sbml import from_sbml

__version__ = "0.1.0"

# What needs an extra is imported when it is asked for.
_LAZY = {"from_petab": "pcuq.io.petab", "from_sbml": "pcuq.io.sbml"}


def __getattr__(name: str):
    if name not in _LAZY:
        raise AttributeError(f"module 'pcuq' has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY[name]), name)


__all__ = [
    "ComputationError",
    "CustomNoise",
    "Data",
    "Fit",
    "FunctionModel",
    "Gaussian",
    "GaussianKernel",
    "GaussianMixtureKernel",
    "InputError",
    "Intervention",
    "InverseMultiquadricKernel",
    "JointNoise",
    "Laplace",
    "LogNormal",
    "MaternKernel",
    "NegativeBinomial",
    "ODEModel",
    "Parameter",
    "Poisson",
    "Prediction",
    "Problem",
    "RationalQuadraticKernel",
    "StudentT",
    "calibrate",
    "fit",
    "from_petab",
    "from_sbml",
    "joint_log_density",
    "kappa",
    "load",
    "log_likelihood",
    "mmd2",
    "prior_predictive",
    "select_by_score",
    "solve_on_grid",
]
