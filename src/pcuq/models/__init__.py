"""What a deterministic model is, and how it is solved."""

from pcuq.models.base import Model, Solver
from pcuq.models.external import ExternalModel
from pcuq.models.function import FunctionModel
from pcuq.models.ode import ODEModel

__all__ = ["ExternalModel", "FunctionModel", "Model", "ODEModel", "Solver"]
