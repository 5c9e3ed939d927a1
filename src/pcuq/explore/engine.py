"""Predictions that answer at once: quantities are scaled by factors that a compiled program takes.

`fit.predict` makes a program for the intervention it is given. Here the program is made once, for
all quantities z ← a z with the factors a as arguments, from the start or from one time on; a new
time makes a new program. Draws of all fits are solved together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pcuq._x64 import x64
from pcuq.errors import InputError
from pcuq.functionals import Prediction
from pcuq.interventions import Formula, Intervention
from pcuq.models.external import ExternalModel
from pcuq.parameters import Parameter
from pcuq.result import Fit

DRAWS = 200  # of each fit
POINTS = 161
FARTHEST = 2.0  # the horizon, in ranges of the data
LEAST, MOST = 0.01, 100.0  # factors that the mesh must serve
FACTOR = "factor of {}"
SOME = 12


class Engine:
    """Trajectories of all fits, without noise, for factors by name."""

    def __init__(self, fits: Sequence[Fit], condition: str = ""):
        if not fits or any(fit.problem is None for fit in fits):
            raise InputError("exploring needs fits that know their problem: give --problem.")
        if len({fit.tree.attrs["problem"] for fit in fits}) > 1:
            raise InputError("these fits are of different problems: explore one at a time.")
        self.fits = list(fits)
        assert fits[0].problem is not None
        self.problem = fits[0].problem
        if isinstance(self.problem.model, ExternalModel):
            raise InputError(
                "exploring needs a model that answers at once, and this one is a simulator outside "
                "of pcuq: use `pcuq predict` with --do."
            )
        x = self.problem.data.x
        if x is None or x.ndim != 1:
            raise InputError("exploring needs data along one covariate, such as time.")
        self.condition = self._shown(condition)
        self.model = self.problem.model_for(self.condition)
        finite = x[np.isfinite(x)]
        if not finite.size:
            raise InputError("exploring needs data at finite times: these are all at rest.")
        self.start = float(getattr(self.model, "t0", finite.min()))
        self.last = float(finite.max())
        self.end = self.start + FARTHEST * ((self.last - self.start) or 1.0)
        self.x = np.linspace(self.start, self.end, POINTS)
        # Times of doses and switches may follow from constants, and are fixed when a model is cut.
        fixed = any(callable(b) for b in getattr(self.model, "breaks", ())) or bool(
            getattr(self.model, "jumps", ())
        )
        self.names = (*self.problem.parameters.names, *(() if fixed else self.model.constants))
        self._programs: dict[float | None, object] = {}

    def _shown(self, condition: str) -> str:
        """The condition, or the only one of data that all have one."""
        labels = sorted(set(self.problem.data.condition.tolist()))
        if condition or "" in labels:
            return condition
        if len(labels) > 1:
            raise InputError(f"these data have conditions: say which to explore, one of {labels}.")
        return labels[0]

    @property
    def has_time(self) -> bool:
        """Whether an intervention may begin later than the start."""
        return hasattr(self.model, "t0")

    @cached_property
    def thetas(self) -> np.ndarray:
        """Evenly chosen draws of every fit, one after the other."""
        tables = []
        for fit in self.fits:
            rows = np.linspace(0, len(fit.thetas) - 1, min(DRAWS, len(fit.thetas)))
            tables.append(fit.thetas[rows.round().astype(int)])
        self._ends = np.cumsum([len(table) for table in tables])
        return np.concatenate(tables)

    @x64
    def predict(self, factors: Mapping[str, float] | None = None, at: float | None = None):
        """One Prediction per fit, with the named quantities scaled, from `at` on if given."""
        unknown = set(factors or {}) - set(self.names)
        if unknown:
            raise InputError(f"unknown names {sorted(unknown)}: there are {self.names}.")
        a = np.array([(factors or {}).get(name, 1.0) for name in self.names])
        if at is not None and at <= self.start:
            at = None
        if at not in self._programs:
            self._programs[at] = self._program(at)
        thetas = self.thetas
        w, ok = map(np.asarray, self._programs[at](thetas, a))  # pyright: ignore[reportCallIssue]
        w = np.where(ok[:, None, None], w, np.nan)
        starts = np.concatenate([[0], self._ends[:-1]])
        return [self._packed(w[s:e], thetas[s:e]) for s, e in zip(starts, self._ends, strict=True)]

    def _packed(self, w: np.ndarray, thetas: np.ndarray) -> Prediction:
        return Prediction(
            x=self.x,
            outputs=tuple(self.model.outputs),
            trajectories=w,
            observations=None,
            weights=None,
            thetas=thetas,
            draws=np.arange(len(w)),
            given=len(w),
            seed=None,
            solver={},
        )

    def _program(self, at: float | None):
        model = _with_arguments(self.model, [FACTOR.format(name) for name in self.names])
        # After what the condition does: factors of 1 leave its prediction as it is.
        model = model.do(Intervention(set={name: _scaled(name) for name in self.names}, at=at))

        def values(theta, a):
            factors = {FACTOR.format(name): a[i] for i, name in enumerate(self.names)}
            return {**self.problem.parameters.constrain(theta), **factors}

        solver = model.solver(self.x, representatives=self._representatives(values))
        return jax.jit(jax.vmap(lambda theta, a: solver(values(theta, a)), in_axes=(0, None)))

    def _representatives(self, values) -> dict[str, np.ndarray]:
        """Some draws as they are, and each quantity at its least and most."""
        some = self.thetas[np.linspace(0, len(self.thetas) - 1, SOME).round().astype(int)]
        pairs = [(theta, np.ones(len(self.names))) for theta in some]
        for i in range(len(self.names)):
            for factor in (LEAST, MOST):
                a = np.ones(len(self.names))
                a[i] = factor
                pairs.append((some[i % len(some)], a))
        found = [values(jnp.asarray(theta), jnp.asarray(a)) for theta, a in pairs]
        return {name: np.array([float(value[name]) for value in found]) for name in found[0]}


def _scaled(name: str) -> Formula:
    factor = FACTOR.format(name)
    return Formula(f"{factor} times {name}", lambda t, u, p: p[factor] * p[name])


def _with_arguments(model: Any, names: Sequence[str]) -> Any:
    """The model with these names among what a solver is given."""
    more = {name: Parameter("identity") for name in names}
    return replace(model, parameters={**dict(model.parameters), **more})
