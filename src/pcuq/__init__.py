"""Prediction-centric uncertainty quantification: honest predictions from models that are wrong.

problem = pcuq.Problem(model, pcuq.Data(y, x, noise=1.0))
fit = pcuq.fit(problem, regularisation=3e-5)
fit.predict(times, do=pcuq.Intervention(scale={"k6": 0.01}))
"""

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pcuq.calibrate import calibrate
    from pcuq.check import Check, check
    from pcuq.data import Data
    from pcuq.errors import ComputationError, InputError
    from pcuq.exact import solve_on_grid
    from pcuq.fit import fit
    from pcuq.interventions import Intervention
    from pcuq.io.petab import from_petab
    from pcuq.io.sbml import from_sbml
    from pcuq.kernels import (
        GaussianKernel,
        GaussianMixtureKernel,
        InverseMultiquadricKernel,
        MaternKernel,
        RationalQuadraticKernel,
    )
    from pcuq.likelihood import log_likelihood
    from pcuq.models.external import ExternalModel
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
    from pcuq.null import Null, load_null
    from pcuq.objective import joint_log_density, kappa, mmd2
    from pcuq.parameters import Parameter
    from pcuq.predict import Prediction, prior_predictive
    from pcuq.problem import Problem
    from pcuq.result import Fit, load
    from pcuq.score import Scores, score
    from pcuq.selection import select_by_score

__version__ = "0.1.0"

__all__ = [
    "Check",
    "ComputationError",
    "CustomNoise",
    "Data",
    "ExternalModel",
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
    "Null",
    "ODEModel",
    "Parameter",
    "Poisson",
    "Prediction",
    "Problem",
    "RationalQuadraticKernel",
    "Scores",
    "StudentT",
    "calibrate",
    "check",
    "fit",
    "from_petab",
    "from_sbml",
    "joint_log_density",
    "kappa",
    "load",
    "load_null",
    "log_likelihood",
    "mmd2",
    "prior_predictive",
    "score",
    "select_by_score",
    "solve_on_grid",
]

# Where each public name lives. It is imported when it is asked for: `pcuq --help` answers at once,
# and what needs an extra is not looked for before it is used.
_HOMES = {
    "calibrate": ("calibrate",),
    "check": ("Check", "check"),
    "data": ("Data",),
    "errors": ("ComputationError", "InputError"),
    "exact": ("solve_on_grid",),
    "fit": ("fit",),
    "interventions": ("Intervention",),
    "io.petab": ("from_petab",),
    "io.sbml": ("from_sbml",),
    "kernels": (
        "GaussianKernel",
        "GaussianMixtureKernel",
        "InverseMultiquadricKernel",
        "MaternKernel",
        "RationalQuadraticKernel",
    ),
    "likelihood": ("log_likelihood",),
    "models.external": ("ExternalModel",),
    "models.function": ("FunctionModel",),
    "models.ode": ("ODEModel",),
    "noise": (
        "CustomNoise",
        "Gaussian",
        "JointNoise",
        "Laplace",
        "LogNormal",
        "NegativeBinomial",
        "Poisson",
        "StudentT",
    ),
    "null": ("Null", "load_null"),
    "objective": ("joint_log_density", "kappa", "mmd2"),
    "parameters": ("Parameter",),
    "predict": ("Prediction", "prior_predictive"),
    "problem": ("Problem",),
    "result": ("Fit", "load"),
    "score": ("Scores", "score"),
    "selection": ("select_by_score",),
}
_HOME = {name: f"pcuq.{module}" for module, names in _HOMES.items() for name in names}


def __getattr__(name: str):
    if name in _HOME:
        found = getattr(importlib.import_module(_HOME[name]), name)
        globals()[name] = found
        return found
    if not name.startswith("_"):
        try:
            return importlib.import_module(f"pcuq.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"pcuq.{name}":
                raise
    raise AttributeError(f"module 'pcuq' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Package(ModuleType):
    """`pcuq.fit` is the function, also once the module of that name has been imported."""

    def __setattr__(self, name: str, value) -> None:
        if not (name in _HOME and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
