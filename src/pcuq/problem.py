"""A problem: a model, data and a kernel, bundled once and never changed."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, Bool, Float

from pcuq._given import as_numbers
from pcuq._x64 import x64
from pcuq.data import Data
from pcuq.design import Design, Points, make_design, make_points
from pcuq.errors import InputError
from pcuq.interventions import Equilibration, Intervention
from pcuq.kernels import GaussianKernel, Kernel
from pcuq.models.base import LARGEST_OUTPUT, kept, solve_many, why
from pcuq.models.causes import FINE
from pcuq.models.family import families
from pcuq.parameters import Parameters


@dataclass(frozen=True, eq=False)
class Problem:
    """What is to be inferred: `model` says what can happen, `data` what did.

    `kernel`: pcuq.GaussianKernel() by default. `conditions`: {label: Intervention, list of them,
    or None for the unchanged model} for the labels in `data.condition`.
    `nominal`: a θ known beforehand to be sensible, tried as a start. `unset`: names that have a
    value in conditions only.
    """

    model: Any
    data: Data
    kernel: Kernel = None  # pyright: ignore[reportAssignmentType]: None is the default kernel
    conditions: Mapping[str, Any] | None = None
    nominal: Any = None
    unset: tuple[str, ...] = ()
    points: Points = field(init=False, repr=False)

    def __post_init__(self):
        for attribute in ("parameters", "outputs", "constants", "do", "solver"):
            if not hasattr(self.model, attribute):
                raise InputError(
                    "`model` needs a pcuq.ODEModel, pcuq.FunctionModel or the like: got "
                    f"{type(self.model).__name__}."
                )
        if not len(self.model.parameters):
            raise InputError(
                "a problem needs at least one parameter to infer, and the model has none: say "
                "which of its constants are unknown with `parameters={name: pcuq.Parameter(...)}`."
            )
        if not isinstance(self.data, Data):
            raise InputError(f"`data` needs a pcuq.Data: got {type(self.data).__name__}.")
        if self.kernel is None:
            object.__setattr__(self, "kernel", GaussianKernel())
        if not isinstance(self.kernel, Kernel):
            raise InputError(
                f"`kernel` needs a kernel such as pcuq.GaussianKernel(): got {self.kernel!r}."
            )
        self._check_outputs()
        self._check_noise_names()
        self._check_conditions()
        object.__setattr__(self, "points", make_points(self.data))
        self._check_covariates()
        if self.nominal is not None:
            nominal = as_numbers("nominal", self.nominal)
            if nominal.shape != (len(self.parameters),) or not np.isfinite(nominal).all():
                raise InputError(
                    f"`nominal` needs {len(self.parameters)} finite numbers: got {self.nominal}."
                )
            object.__setattr__(self, "nominal", nominal)

    def take(self, rows: Any) -> Problem:
        """The problem with some rows of its data, by position or by n truth values.

        To fit some and score the others.
        """
        rows = np.arange(self.data.n)[np.asarray(rows)]
        if rows.ndim != 1 or not rows.size:
            raise InputError("`rows` needs positions or truth values that choose at least one row.")
        return self.with_data(self.data.take(rows))

    def with_data(self, data: Data) -> Problem:
        """The problem with other data, and all else the same."""
        return replace(self, data=data)

    @property
    def parameters(self) -> Parameters:
        """What is inferred: the model's parameters, in order."""
        return self.model.parameters

    @cached_property
    def outputs(self) -> tuple[str, ...]:
        """Names of the data's columns."""
        return tuple(self.model.outputs if self.data.outputs is None else self.data.outputs)

    @cached_property
    def columns(self) -> np.ndarray:
        """Which of the model's outputs each column of the data is."""
        return np.array([self.model.outputs.index(name) for name in self.outputs])

    @cached_property
    def scale(self) -> Scale:
        """The noise scale of every entry, which may depend on θ."""
        return Scale(self)

    @cached_property
    def design(self) -> Design:
        """Data and predictions as weighted pairs."""
        return make_design(self.data, self.kernel, self.points, self.scale.static)

    def meant(self, condition: str | None, given: Iterable[str] = ()) -> str | None:
        """The condition: where none is named and the model needs one, the only one of the data.

        `given`: names to which an intervention gives a value.
        """
        missing = sorted({*self.unset} - {*given})
        if not missing or (condition is not None and condition in (self.conditions or {})):
            return condition
        labels = sorted(set(self.data.condition.tolist()))
        if condition or len(labels) > 1:
            raise InputError(
                f"{', '.join(missing)} {'have' if len(missing) > 1 else 'has'} a value in "
                f"conditions only: say which condition, one of {labels}."
            )
        return labels[0]

    def model_for(self, condition: str | None):
        """The model as it is under one experimental condition, "" for rows without a label.

        The model itself for None, and where nothing is said of rows without a label.
        """
        changes = self.conditions or {}
        if condition is None or (condition == "" and "" not in changes):
            return self.model
        labels = set(changes) or set(self.data.condition.tolist())
        if condition not in labels:
            raise InputError(f"unknown condition {condition!r}: the problem has {sorted(labels)}.")
        known = self.__dict__.setdefault("_models", {})
        if condition not in known:
            change = changes.get(condition)
            known[condition] = self.model if change is None else self.model.do(change)
        return known[condition]

    def predictor(self, representatives: np.ndarray | None = None, **options) -> Predictor:
        """The model at all points of the data; options as `model.solver` takes them."""
        return Predictor(self, representatives, **options)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of data, names, kernel and conditions, to tell one problem from another."""
        digest = hashlib.sha256()
        data = self.data
        for array in (data.y, data.x, data.condition):
            digest.update(b"-" if array is None else np.ascontiguousarray(array).tobytes())
        kernel = {k: str(v) for k, v in vars(self.kernel).items()}
        noise = [
            (type(noise).__name__, noise.transform, getattr(noise, "df", None))
            for noise in data.noises
        ]
        constants = sorted((k, float(v)) for k, v in self.model.constants.items())
        described = (
            self.parameters.names,
            tuple((p.transform, p.prior_on, p.lower, p.upper) for p in self.parameters.values()),
            [_describe(p.prior) for p in self.parameters.values()],
            sorted(self.scale.named.items()),
            tuple(self.outputs),
            constants,
            type(self.kernel).__name__,
            kernel,
            noise,
            sorted((self.conditions or {}).items(), key=lambda item: item[0]),
        )
        digest.update(repr(described).encode())
        digest.update(self.scale.static.tobytes())
        return digest.hexdigest()

    def _check_outputs(self):
        known = tuple(self.model.outputs)
        if self.data.outputs is None:
            if self.data.d != len(known):
                raise InputError(
                    f"`y` needs one column per output of the model ({', '.join(known)}): got "
                    f"{self.data.d} columns; name the measured ones with Data(..., outputs=[...])."
                )
            return
        unknown = [name for name in self.data.outputs if name not in known]
        if unknown:
            raise InputError(
                f"the data name outputs {unknown} that the model does not have: it has "
                f"{', '.join(known)}."
            )

    def _check_noise_names(self):
        known = {**dict.fromkeys(self.parameters), **dict.fromkeys(self.model.constants)}
        for noise in self.data.noises:
            parts = noise.scale if isinstance(noise.scale, (list, tuple)) else [noise.scale]
            for part in parts:
                if isinstance(part, str) and part not in known:
                    raise InputError(
                        f"the noise scale names {part!r}, which is no parameter or constant of "
                        f"the model: it has {', '.join(known)}."
                    )

    def _check_conditions(self):
        if self.conditions is None:
            return
        if not isinstance(self.conditions, Mapping):
            raise InputError("`conditions` needs a mapping from label to pcuq.Intervention.")
        missing = sorted(set(self.data.condition.tolist()) - set(self.conditions) - {""})
        if missing:
            raise InputError(
                f"the data have conditions {missing} that `conditions` does not define: add them, "
                "with None where the model is unchanged."
            )
        for label, change in self.conditions.items():
            changes = change if isinstance(change, (list, tuple)) else [change]
            known = (Intervention, Equilibration)
            if not all(part is None or isinstance(part, known) for part in changes):
                raise InputError(
                    f"condition {label!r} needs a pcuq.Intervention, a list of them or None."
                )
            if change is not None:
                self.model.do(change)
            changed = {
                name for part in changes if isinstance(part, Intervention) for name in part.names
            }
            for name in sorted(changed & set(self.scale.named.values())):
                raise InputError(
                    f"condition {label!r} changes {name!r}, which is the scale of the noise: give "
                    "the noise of each row as numbers, or make it a function of an output."
                )
        if "" in self.data.condition and "" not in self.conditions:
            object.__setattr__(self, "conditions", {**self.conditions, "": None})

    def _check_covariates(self):
        lengthscale = self.kernel.lengthscale_y
        if np.ndim(lengthscale) == 1 and len(lengthscale) != self.data.d:
            raise InputError(
                f"`lengthscale_y` needs one number per output ({self.data.d}): "
                f"got {len(lengthscale)}."
            )
        start = getattr(self.model, "t0", None)
        if start is None:
            if self.data.x is not None and not np.isfinite(self.data.x).all():
                raise InputError("`x` must be finite: only an ODE model has a state of rest.")
            return
        if self.data.x is None or self.data.x.ndim != 1:
            raise InputError("data for an ODE model need one time per row: give `x`.")
        if self.data.x.min() < start:
            raise InputError(
                f"the first measurement, at {self.data.x.min():g}, lies before the model's start "
                f"t0 = {start:g}: set t0 to the time of the initial state."
            )


def check_problem(given: Any) -> Problem:
    """Refuse anything else in its place."""
    if not isinstance(given, Problem):
        raise InputError(f"`problem` needs a pcuq.Problem: got {type(given).__name__}.")
    return given


def _describe(prior: Any) -> tuple[list[str], list[Any]]:
    """What a prior is made of: names of classes, those of a truncated one's parts too; numbers.

    By the names of its fields: numpyro has them in a set, whose order differs between processes.
    """
    names, numbers = [type(prior).__name__], []
    for name in sorted(type(prior).gather_pytree_data_fields()):
        parts, structure = jax.tree.flatten(
            vars(prior).get(name), is_leaf=lambda part: isinstance(part, dist.Distribution)
        )
        names += re.findall(r"CustomNode\((\w+)", str(structure))
        for part in parts:
            if isinstance(part, dist.Distribution):
                inner = _describe(part)
                names += inner[0]
                numbers += inner[1]
            else:
                numbers.append(np.asarray(part, np.float32).tolist())
    return names, numbers


class Scale:
    """The noise scale s of every row and output: known numbers, parameters or callables."""

    def __init__(self, problem: Problem):
        data = problem.data
        self.problem = problem
        self.static = np.zeros((data.n, data.d))  # 0 where it depends on θ
        self.named: dict[int, str] = {}
        self.computed: dict[int, tuple[Any, int]] = {}
        for column, noise in enumerate(data.noises):
            width = 1 if isinstance(data.noise, tuple) else data.d
            position = 0 if isinstance(data.noise, tuple) else column
            scale = noise.scale
            if callable(scale):
                self.computed[column] = (scale, position)
                continue
            if isinstance(scale, (list, tuple)) and any(isinstance(s, str) for s in scale):
                scale = scale[position]
            if isinstance(scale, str):
                self.named[column] = scale
                continue
            values = np.asarray(scale, dtype=float)
            if values.ndim == 0:
                self.static[:, column] = values
            else:
                self.static[:, column] = np.broadcast_to(values, (data.n, width))[:, position]

    @property
    def depends_on_theta(self) -> bool:
        return bool(self.named or self.computed)

    def __call__(self, values: Mapping[str, Array], rows: np.ndarray, w: Array, x: Any) -> Array:
        """(m, d) scales for rows of the table, given the model's outputs w (m, d_model) there."""
        static = jnp.asarray(self.static[rows])
        if not self.depends_on_theta:
            return static
        known = {**self.problem.model.constants, **values}
        columns = [static[:, column] for column in range(static.shape[1])]
        for column, name in self.named.items():
            columns[column] = jnp.broadcast_to(known[name], (len(rows),))
        for column, (function, position) in self.computed.items():

            def of_row(x_row, w_row, function=function, position=position):
                outputs = dict(zip(self.problem.model.outputs, w_row, strict=True))
                scale = jnp.asarray(function(x_row, outputs, known))
                return scale if scale.ndim == 0 else scale[position]

            columns[column] = jax.vmap(of_row, in_axes=(None if x is None else 0, 0))(x, w)
        return jnp.stack(columns, axis=-1)


class Predictor:
    """θ ↦ the model's outputs at all points of the data, and whether the solve succeeded."""

    @x64
    def __init__(self, problem: Problem, representatives=None, **options):
        self.problem = problem
        values = None
        if representatives is not None:
            thetas = jnp.atleast_2d(jnp.asarray(representatives, dtype=float))
            values = {k: np.asarray(v) for k, v in problem.parameters.constrain(thetas).items()}
        models = [problem.model_for(label) for label in problem.points.labels]
        xs = problem.points.covariates
        self._groups = families(models, xs)
        self.solvers = [
            models[group].solver(xs[group], representatives=values, **options)
            if isinstance(group, int)
            else group.solver(values, **options)
            for group in self._groups
        ]

    def __call__(self, theta: Float[Array, " p"]) -> tuple[Float[Array, "G d"], Bool[Array, ""]]:
        w, ok = self.many(theta[None])
        return w[0], ok[0]

    def many(self, thetas: Float[Array, "L p"]) -> tuple[Float[Array, "L G d"], Bool[Array, " L"]]:
        """The same for many particles at once, side by side where the solver can."""
        values = self.problem.parameters.constrain(thetas)
        parts: dict[int, Array] = {}
        fine = []
        for group, solver in zip(self._groups, self.solvers, strict=True):
            if isinstance(group, int):
                parts[group], good = solve_many(solver, values, len(thetas))
            else:
                found, good = group(solver, values, len(thetas))
                parts |= dict(zip(group.members, found, strict=True))
            fine.append(good)
        in_order = [
            parts[i].reshape(len(thetas), -1, parts[i].shape[-1]) for i in range(len(parts))
        ]
        return kept(jnp.concatenate(in_order, axis=1), jnp.all(jnp.stack(fine), axis=0))

    def tightly(self, thetas: Float[np.ndarray, "K p"], tolerance: float):
        """(outputs (K, G, d), ok (K,)) as of the models themselves, whatever this solver is."""
        problem = self.problem
        found = problem.parameters.constrain(jnp.asarray(thetas))
        values = {name: np.asarray(value) for name, value in found.items()}
        parts: dict[int, np.ndarray] = {}
        fine = []
        for group in self._groups:
            if isinstance(group, int):
                model = problem.model_for(problem.points.labels[group])
                x = problem.points.covariates[group]
                parts[group], good = model.solve_tightly(x, values, tolerance)
            else:
                outputs, good = group.solve_tightly(values, tolerance)
                parts |= dict(zip(group.members, outputs, strict=True))
            fine.append(good)
        w = np.concatenate(
            [parts[i].reshape(len(thetas), -1, parts[i].shape[-1]) for i in range(len(parts))],
            axis=1,
        )
        with np.errstate(invalid="ignore"):
            ok = np.all(fine, axis=0) & np.all(np.abs(w) < LARGEST_OUTPUT, axis=(1, 2))
        return np.where(ok[:, None, None], w, 0.0), ok

    def why(self, thetas: Float[np.ndarray, "K p"]) -> list[str]:
        """Why each of them cannot be solved, "" where it can."""
        found = self.problem.parameters.constrain(jnp.asarray(thetas))
        values = {name: np.asarray(value) for name, value in found.items()}
        causes = [
            why(solver, values) if isinstance(group, int) else group.why(solver, values)
            for group, solver in zip(self._groups, self.solvers, strict=True)
        ]
        return [next(filter(None, of_theta), FINE) for of_theta in zip(*causes, strict=True)]

    def describe(self) -> list[dict]:
        return [solver.describe() for solver in self.solvers]
