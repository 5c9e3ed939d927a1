"""du/dt = rhs(t, u, p),  u(t0) = initial(p),  w = observe(t, u, p): a model that is an ODE."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from pcuq._given import as_numbers, finite_number
from pcuq._x64 import x64
from pcuq.errors import InputError
from pcuq.interventions import (
    Equilibration,
    Intervention,
    as_interventions,
    check_names,
    split,
)
from pcuq.models import base
from pcuq.models.base import Solver
from pcuq.models.choose import choose
from pcuq.models.segments import as_times
from pcuq.models.survey import SURVEYORS, Surveyor, accurate, surveyor_of, tightly
from pcuq.parameters import Parameters

# Some models amplify errors ten-thousandfold.
SIMULATE_RTOL = 1e-11
Function = Callable[..., Any]


@dataclass(frozen=True, eq=False)
class ODEModel:
    """An ordinary differential equation with named parameters, states and outputs.

    `rhs(t, u, p)`: du/dt, as an array (k,), a list of scalars, or a mapping by state; u is an
    array (k,) and p holds natural parameter values and constants by name. Write it with jax.numpy.
    `initial`: u(t0), as numbers, as {state: number or name of a parameter or constant}, or as a
    function of p that returns either.
    `observe(t, u, p)`: the outputs (d,), likewise; without it the outputs are the states.
    `constants`: named numbers that are not fitted. `breaks`: times at which rhs jumps, such as the
    ends of an infusion, or functions (p, end) -> times; the solver restarts there exactly. `jumps`:
    times at which the state changes at once (pcuq.models.segments.Jump).
    `states`: names; by default the keys of `initial`, else the outputs if there is no `observe`,
    else u0, u1, ... `report(t, u, p)`: {id: scalar}, more quantities for `simulate` alone.
    `interventions`, and a `rest` before the start, are added by `do`.
    """

    # Any: what is given is looser than what is kept, which is Parameters, tuples and a dict.
    rhs: Function
    initial: Any
    parameters: Any
    outputs: Any = None
    observe: Any = None
    constants: Any = None
    t0: float = 0.0
    states: Any = None
    breaks: Any = ()
    report: Any = None
    jumps: Any = ()
    interventions: tuple[Intervention, ...] = ()
    rest: Equilibration | None = None

    @x64
    def __post_init__(self):
        for name in ("rhs", "observe", "report"):
            function = getattr(self, name)
            if not (callable(function) or (function is None and name != "rhs")):
                raise InputError(f"`{name}` needs a function of (t, u, p): got {function!r}.")
        parameters = Parameters(self.parameters, may_be_none=True)
        self._fill(parameters=parameters, t0=finite_number("t0", self.t0))
        self._fill(constants=base.as_constants(self.constants, self.parameters))
        for name in ("breaks", "jumps"):
            if isinstance(given := getattr(self, name), str) or not isinstance(given, Iterable):
                raise InputError(f"`{name}` needs a sequence: got {given!r}.")
        moving = tuple(b for b in self.breaks if callable(b))
        fixed = {finite_number("breaks", b) for b in self.breaks if not callable(b)}
        self._fill(breaks=(*sorted(fixed), *moving), jumps=tuple(self.jumps))
        self._fill(states=self._state_names())
        if self.outputs is None and self.observe is not None:
            raise InputError("`observe` needs `outputs`: the names of what it returns.")
        outputs = self.states if self.outputs is None else self.outputs
        self._fill(outputs=base.check_names("outputs", outputs, {}))
        self._check_functions()
        self._check_changes()

    def _check_changes(self) -> None:
        self._fill(interventions=as_interventions(self.interventions))
        before = () if self.rest is None else self.rest.changes
        changes = (*before, *self.interventions)
        check_names(changes, (*self.parameters, *self.constants), self.states)
        early = [c.at for c in self.interventions if c.at is not None and c.at < self.t0]
        if early:
            raise InputError(
                f"an intervention at {early[0]:g} lies before the model's start t0 = {self.t0:g}: "
                "leave `at` out for the start."
            )

    def do(self, interventions: Any) -> ODEModel:
        """The model under one or more interventions, after those it already has.

        A pcuq.interventions.Equilibration among them says that it starts from a state of rest.
        """
        rest, changes = split(interventions)
        # A copy, and not `replace`: the functions are the same and need not be tried out again.
        changed = copy(self)
        changed.__dict__.pop(SURVEYORS, None)
        changed._fill(rest=rest or self.rest, interventions=(*self.interventions, *changes))
        changed._check_changes()
        return changed

    @x64
    def solver(
        self,
        x,
        representatives: Mapping[str, Any] | None = None,
        method: str = "auto",
        tolerance: float | None = None,
        mode: str = "forward",
    ) -> Solver:
        """A function of natural parameter values that gives the outputs at times x.

        `representatives` {name: (R,)}: values for which a mesh must be good; None: adaptive steps.
        `method`: "mesh", "explicit" (Tsit5) or "implicit" (Rodas, for stiff models), "adaptive"
        for the one of these two that stiffness asks for, or "auto": a mesh if the representatives
        allow it, else adaptive.
        `tolerance`: of a mesh, the largest error of an output relative to its largest magnitude
        over x (1e-4 by default); of adaptive steps, the relative error per step (1e-8).
        `mode`: the derivative that will be taken, "forward" or "reverse".
        """
        base.check_mode(mode)
        return choose(self, as_times(x, self.t0), representatives, method, tolerance, mode)

    @x64
    def solve_tightly(self, x, values: Mapping[str, Any], tolerance: float):
        """(outputs (R, n, d), fine (R,)) for natural values {name: (R,)}, with adaptive steps."""
        return tightly(self, as_times(x, self.t0), dict(values), tolerance)

    @x64
    def simulate(self, times, parameters: Mapping[str, float] | None = None):
        """{id: (n,)}: outputs and states at `times`, in any order, accurately solved.

        `parameters`: natural values, of constants too; fitted ones that are not given are at the
        prior's centre θ = 0. The time inf stands for the state of rest.
        """
        given = base.as_mapping("parameters", parameters)
        constants = {name: given.pop(name) for name in list(given) if name in self.constants}
        if constants:
            return self.do(Intervention(set=constants)).simulate(times, given)
        values = base.natural_values(self.parameters, given)
        times = np.atleast_1d(as_numbers("times", times))
        distinct, position = np.unique(times, return_inverse=True)
        as_times(distinct, self.t0)
        surveyor = _surveyor(self, tuple(distinct.tolist()))
        solved = accurate(surveyor, {k: jnp.full(1, v) for k, v in values.items()}, SIMULATE_RTOL)
        found = dict(zip(self.states, solved.states[0].T, strict=True))
        found |= dict(zip(surveyor.model.outputs, solved.outputs[0].T, strict=True))
        return {name: series[position] for name, series in found.items()}

    def initial_state(self, p: dict[str, Any]) -> Array:
        """u(t0) as (k,)."""
        found = self.initial(p) if callable(self.initial) else self.initial
        if isinstance(found, Mapping):
            found = {s: p[v] if isinstance(v, str) else v for s, v in found.items()}
        return base.as_vector(found, self.states, "initial")

    def derivative(self, t: Any, u: Array, p: dict[str, Any]) -> Array:
        """du/dt as (k,)."""
        return base.as_vector(self.rhs(t, u, p), self.states, "rhs")

    def observed(self, t: Any, u: Array, p: dict[str, Any]) -> Array:
        """w as (d,)."""
        if self.observe is None:
            return u if self.outputs == self.states else u[self._columns]
        return base.as_vector(self.observe(t, u, p), self.outputs, "observe")

    @property
    def _columns(self) -> np.ndarray:
        return np.array([self.states.index(name) for name in self.outputs])

    def _fill(self, **fields: Any) -> None:
        for name, value in fields.items():
            object.__setattr__(self, name, value)

    def _try_out(self, what: str, function: Function, *shapes: Any) -> Any:
        return base.try_out(what, function, shapes, self.parameters, self.constants)

    def _state_names(self) -> tuple[str, ...]:
        initial, number, keys = self.initial, 0, None
        if callable(initial):
            found = []
            self._try_out("initial", lambda p: found.append(initial(p)))
            initial = found[0]
        # The length of a list, and not np.shape: its entries may be traced.
        sized = isinstance(initial, (list, tuple, Mapping))
        shape = (len(initial),) if sized else jnp.shape(initial)
        if isinstance(initial, Mapping) and initial:
            keys = list(initial)
            self._check_references(initial)
        elif len(shape) == 1 and shape[0] > 0:
            number = shape[0]
            if not callable(self.initial):
                self._fill(initial=_numbers(initial))
        else:
            raise InputError(
                "`initial` needs k ≥ 1 numbers, a mapping {state: number or name}, or a function "
                f"of p that returns either: got {type(initial).__name__} of shape {shape}."
            )
        names = self.states
        if names is None:
            from_outputs = self.outputs if self.observe is None else None
            names = keys or from_outputs or [f"u{i}" for i in range(number)]
        taken = dict.fromkeys(self.parameters, "a parameter")
        taken |= dict.fromkeys(self.constants, "a constant")
        names = base.check_names("states", names, taken)
        if (set(names) != set(keys)) if keys else (len(names) != number):
            got = ", ".join(map(str, keys)) if keys else f"{number} numbers"
            raise InputError(
                f"`initial` needs one value for each state ({', '.join(names)}): got {got}."
            )
        return names

    def _check_references(self, initial: Mapping[str, Any]) -> None:
        known = (*self.parameters, *self.constants)
        for state, value in initial.items():
            if isinstance(value, str) and value not in known:
                raise InputError(
                    f"`initial` names {value!r} for {state!r}, which is no parameter or constant: "
                    f"there are {', '.join(known)}."
                )
            if not isinstance(value, str) and not callable(self.initial):
                _numbers([value])

    def _check_functions(self) -> None:
        if not self.outputs:
            raise InputError("`outputs` needs at least one name.")
        if self.observe is None and not set(self.outputs) <= set(self.states):
            raise InputError(
                f"without `observe`, `outputs` are states: got {', '.join(self.outputs)} where the "
                f"states are {', '.join(self.states)}; write `observe`, or set `states`."
            )
        t = jax.ShapeDtypeStruct((), float)
        u = self._try_out("initial", self.initial_state)
        self._try_out("rhs", self.derivative, t, u)
        self._try_out("observe", self.observed, t, u)


@functools.lru_cache(maxsize=32)
def _surveyor(model: ODEModel, times: tuple[float, ...]) -> Surveyor:
    """Accurate solves of the model with everything it can report; a model does not change."""
    return surveyor_of(model if model.report is None else _reporting(model), np.array(times))


def _reporting(model: ODEModel) -> ODEModel:
    found: list[Mapping[str, Any]] = []
    t, u = jax.ShapeDtypeStruct((), float), jax.ShapeDtypeStruct((len(model.states),), float)
    model._try_out("report", lambda t, u, p: found.append(model.report(t, u, p)), t, u)
    more = [name for name in found[0] if name not in model.outputs]

    def observe(t, u, p):
        reported = model.report(t, u, p)
        return [*model.observed(t, u, p), *(reported[name] for name in more)]

    return replace(
        model, outputs=(*model.outputs, *more), observe=observe, states=model.states, report=None
    )


def _numbers(given: Any) -> np.ndarray:
    try:
        numbers = np.asarray(given, dtype=float)
    except (TypeError, ValueError):
        numbers = np.full(1, np.nan)
    if not np.all(np.isfinite(numbers)):
        raise InputError(f"`initial` needs finite numbers: got {given!r}.")
    return numbers
