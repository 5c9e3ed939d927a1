"""w_θ(x) = simulate(x, p): a simulator that is not written in JAX."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from pcuq._given import whole_number
from pcuq._x64 import x64
from pcuq.errors import ComputationError, InputError
from pcuq.interventions import Intervention, as_interventions
from pcuq.models import base
from pcuq.models.callback import ExternalSolver
from pcuq.models.simulations import Named, Runner
from pcuq.parameters import Parameter, Parameters

STEP = 1e-3


class ExternalModel:
    """Any Python callable on NumPy arrays.

    `simulate(x, p)`: the outputs (n, d) at covariates x (n,), or {output: (n,)}; x is None for
    data without a covariate, and the outputs are then (1, d). p holds natural parameter values and
    constants by name, and `p.vector` the parameters as an array. An exception, or output that is
    not finite, is that particle's failure, counted by cause in `failures`.
    `jacobian(x, p)`: (n, d, p), derivatives in natural parameters; differences of `step` prior
    sds stand for it where it is left out. The default sampler takes no derivatives; the best fit
    that it starts from does, and so do the samplers of Bayes.
    `batch=True`: both are called with arrays (B,) in p, and return (B, n, d) and (B, n, d, p).
    `workers`: that many processes; `simulate` must then be defined at the top of a module, and a
    script needs `if __name__ == "__main__":`. A process that dies, or takes longer than `timeout`
    seconds over one call, costs one particle. Without workers it runs in this process, one call at
    a time, and must not use JAX, which waits for it.
    """

    def __init__(
        self,
        simulate: Callable[[Any, Named], Any],
        parameters: Mapping[str, Parameter],
        outputs: Sequence[str],
        jacobian: Callable[[Any, Named], Any] | None = None,
        batch: bool = False,
        workers: int | None = None,
        constants: Mapping[str, float] | None = None,
        step: float = STEP,
        timeout: float | None = None,
    ):
        for name, function in (("simulate", simulate), ("jacobian", jacobian)):
            if not (callable(function) or (function is None and name == "jacobian")):
                raise InputError(f"`{name}` needs a function of (x, p): got {function!r}.")
        self.parameters = Parameters(parameters)
        self.constants = base.as_constants(constants, self.parameters)
        self.outputs = base.check_names("outputs", outputs, {})
        if not self.outputs:
            raise InputError("`outputs` needs at least one name.")
        for name, value in (("step", step), ("timeout", timeout)):
            if value is not None and not (np.ndim(value) == 0 and 0 < value < np.inf):
                raise InputError(f"`{name}` needs a number > 0: got {value!r}.")
        workers = None if workers is None else whole_number("workers", workers, 1)
        if timeout is not None and workers is None:
            raise InputError("`timeout` needs `workers`: only another process can be stopped.")
        self.batch, self.workers, self.step = bool(batch), workers, step
        self.has_jacobian = jacobian is not None
        self.interventions: tuple[Intervention, ...] = ()
        self.runner = Runner((simulate, jacobian), self.batch, workers, timeout)

    def do(self, interventions) -> ExternalModel:
        """The model under one or more interventions, after those it already has."""
        changed = copy.copy(self)  # with the same processes and counts
        changed.interventions = (*self.interventions, *as_interventions(interventions))
        base.check_timeless("ExternalModel", changed.interventions, self.parameters, self.constants)
        return changed

    @property
    def failures(self) -> dict[str, int]:
        """How many simulations failed, by cause, also under interventions."""
        return dict(self.runner.failures)

    def close(self) -> None:
        """End the worker processes; they are started again when they are needed."""
        self.runner.close()

    @x64
    def solver(
        self, x=None, representatives=None, method="auto", tolerance=None, mode="forward"
    ) -> ExternalSolver:
        """The simulator at all of x; its accuracy is its own affair, whatever is asked for here.

        Tried out at some of the `representatives`, to say at once what is wrong with it.
        """
        base.check_mode(mode)
        solver = ExternalSolver(self, base.as_covariates(x))
        solver.try_out(representatives)
        return solver

    @x64
    def solve_tightly(self, x, values, tolerance: float):
        """(outputs (R, n, d), fine (R,)) for natural values {name: (R,)}."""
        w = ExternalSolver(self, base.as_covariates(x)).outputs(dict(values))
        fine: np.ndarray = np.all(np.isfinite(w), axis=(1, 2))
        return np.where(fine[:, None, None], w, 0.0), fine

    def simulate(self, times=None, parameters=None) -> dict[str, np.ndarray]:
        """{output: (n,)} at covariates `times`; parameters not given are at the prior's centre."""
        with jax.enable_x64(True):
            values = base.natural_values(self.parameters, parameters)
        rows = {name: np.array([value]) for name, value in values.items()}
        seen = Counter(self.failures)
        w = ExternalSolver(self, base.as_covariates(times)).outputs(rows)[0]
        if not np.isfinite(w).all():
            cause = ", ".join(Counter(self.failures) - seen)
            raise ComputationError(f"the simulation at {values} failed: {cause}.")
        return dict(zip(self.outputs, w.T, strict=True))

    def changed(self, values: Mapping[str, Any]) -> Named:
        """Parameters and constants under the interventions, as the simulator sees them."""
        p = {**self.constants, **values}
        for change in self.interventions:
            p.update({name: change.apply(name, p[name], p) for name in change.names})
        return Named(p, self.parameters.names)
