"""w_θ(x) = f(x, p): a model that is a function."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from pcuq._x64 import x64
from pcuq.errors import ComputationError, InputError
from pcuq.interventions import Intervention, as_interventions
from pcuq.models import base, causes
from pcuq.models.causes import CAUSES, OUTPUT
from pcuq.parameters import Parameters


@dataclass(frozen=True, eq=False)
class FunctionModel:
    """f(x, p) → (d,): any differentiable map, written with jax.numpy.

    x is one covariate (a scalar, or a vector (k,) for several), or None for data without one.
    p holds natural parameter values and constants by name. `outputs` names the d results; f may
    return an array, a list of scalars, or a mapping by name.
    """

    f: Callable[[Any, dict[str, Any]], Any]
    # Any: what is given is looser than what is kept, which is Parameters, a tuple and a dict.
    parameters: Any
    outputs: Any
    constants: Any = None
    interventions: tuple[Intervention, ...] = ()

    def __post_init__(self):
        fill = lambda name, value: object.__setattr__(self, name, value)  # noqa: E731
        if not callable(self.f):
            raise InputError(f"`f` needs a function f(x, p): got {type(self.f).__name__}.")
        fill("parameters", Parameters(self.parameters))
        fill("constants", base.as_constants(self.constants, self.parameters))
        fill("outputs", base.check_names("outputs", self.outputs, {}))
        if not self.outputs:
            raise InputError("`outputs` needs at least one name.")
        fill("interventions", as_interventions(self.interventions))
        base.check_timeless("FunctionModel", self.interventions, self.parameters, self.constants)

    def do(self, interventions) -> FunctionModel:
        """The model under one or more interventions, after those it already has."""
        return replace(self, interventions=(*self.interventions, *as_interventions(interventions)))

    @x64
    def solver(
        self, x=None, representatives=None, method="auto", tolerance=None, mode="forward"
    ) -> FunctionSolver:
        """f at every row of x; the other arguments are those of all models, and change nothing."""
        base.check_mode(mode)
        x = base.as_covariates(x)
        row = () if x is None else (jax.ShapeDtypeStruct(x.shape[1:], float),)
        check = self._outputs if row else functools.partial(self._outputs, None)
        base.try_out("f", check, row, self.parameters, self.constants)
        return FunctionSolver(self, x, mode)

    @x64
    def solve_tightly(self, x, values, tolerance: float):
        """(outputs (R, n, d), fine (R,)) for natural values {name: (R,)}."""
        return map(np.asarray, jax.jit(jax.vmap(self.solver(x)))(dict(values)))

    @x64
    def simulate(self, times=None, parameters=None) -> dict[str, np.ndarray]:
        """{output: (n,)} at covariates `times`; parameters not given are at the prior's centre."""
        values = base.natural_values(self.parameters, parameters)
        w, ok = jax.jit(self.solver(times))(values)
        if not ok:
            raise ComputationError(f"the model has no finite outputs at {values}.")
        return dict(zip(self.outputs, np.asarray(w).T, strict=True))

    def _outputs(self, x, values) -> Array:
        p = {**self.constants, **values}
        for change in self.interventions:
            p.update({name: change.apply(name, p[name], p) for name in change.names})
        return base.as_vector(self.f(x, p), self.outputs, "f")


class FunctionSolver:
    """values → (f(x_i, p))_i, and whether all are finite."""

    def __init__(self, model: FunctionModel, x: np.ndarray | None, mode: str):
        def solve(values):
            if x is None:
                return model._outputs(None, values)[None], jnp.bool_(True)
            w = jax.vmap(lambda row: model._outputs(row, values))(jnp.asarray(x))
            return w, jnp.bool_(True)

        guard = base.guarded if mode == "forward" else base.guarded_reverse
        self._solve = guard(solve)
        self.rows = 1 if x is None else len(x)

    def __call__(self, values) -> tuple[Float[Array, "n d"], Bool[Array, ""]]:
        return self._solve(values)

    def why(self, values) -> list[str]:
        return causes.in_words(
            lambda values: jnp.where(self._solve(values)[1], 0, CAUSES.index(OUTPUT)), values
        )

    def describe(self) -> dict[str, Any]:
        return {"method": "function", "steps": 0, "rows": self.rows}
