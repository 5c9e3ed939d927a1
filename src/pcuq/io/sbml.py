"""pcuq.from_sbml: an SBML file as an ODE model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np

from pcuq._x64 import x64
from pcuq.errors import InputError
from pcuq.io import expressions as ex
from pcuq.io.sbml_document import Document, read
from pcuq.io.sbml_system import Evaluation, Start, System
from pcuq.io.sbml_times import Clock
from pcuq.models.ode import ODEModel
from pcuq.parameters import Parameter

# An ODE needs a state; a model of assignment rules alone has none.
IDLE = "no state"


def from_sbml(
    path: str | Path | Document, parameters: Mapping[str, Parameter] | None = None
) -> ODEModel:
    """The model of an SBML file (levels 2 and 3); its outputs are all species.

    `parameters`: {id: pcuq.Parameter} for what is to be fitted: parameters of the model, local
    ones as "reaction.parameter", and compartments or species that nothing changes. Everything else
    that is constant is in `model.constants` and can be changed by `do`. `model.simulate` gives
    every species (an amount or a concentration, as the file says), parameter, compartment and
    reaction rate. Events at fixed times are supported; `delay` in formulas, algebraic rules, fast
    reactions, other events and the packages comp and fbc are refused.
    """
    document = path if isinstance(path, Document) else read(path)
    system = System(document)
    model = build(system, parameters or {})
    if not parameters:
        _check_finite(system)
    return model


@ex.shallow()
def build(system: System, parameters: Mapping[str, Parameter], **options: Any) -> ODEModel:
    """The ODE model of a system; options go to ODEModel."""
    fitted = set(parameters)
    document = system.document
    _check_fitted(system, fitted)
    constants = {name: value for name, value in system.constants.items() if name not in fitted}
    t0 = float(options.get("t0", 0.0))
    clock = Clock(system, fitted, t0)
    outputs = tuple(document.species) or document.quantities or (IDLE,)

    def initial(p):
        start = Start(system, t0, p)
        return {name: start.held(name) for name in system.states} or {IDLE: 0.0}

    def rhs(t, u, p):
        values = Evaluation(system, t, u, p)
        return [values(system.rates[name]) for name in system.states] or [0.0]

    def observe(t, u, p):
        values = Evaluation(system, t, u, p)
        return [values.value(name) if name != IDLE else 0.0 for name in outputs]

    def report(t, u, p):
        values = Evaluation(system, t, u, p)
        known = [name for name in document.quantities if _has_value(values, name)]
        return {name: values.value(name) for name in known}

    return ODEModel(
        **{
            "rhs": jax.jit(rhs),  # traced once, however often a solver's step calls it
            "initial": initial,
            "parameters": parameters,
            "outputs": outputs,
            "observe": observe,
            "constants": constants,
            "states": system.states or (IDLE,),
            "breaks": clock.breaks(),
            "report": report,
            "jumps": clock.jumps(),
            **options,
        }
    )


def _check_fitted(system: System, fitted: set[str]) -> None:
    free = {*system.constants, *(n for n, v in system.document.parameters.items() if v is None)}
    free -= set(system.states) | set(system.assigned)
    for name in sorted(fitted - free):
        known = name in system.document.quantities
        what = "is set by a rule, an initial assignment or a reaction" if known else "is not there"
        raise InputError(
            f"`parameters` names {name!r}, which {what}: constants of the model are "
            f"{', '.join(sorted(free)) or 'none'}."
        )


@x64
def _check_finite(system: System) -> None:
    start = Start(system, 0.0, dict(system.constants))
    for name in system.states:
        if not np.isfinite(value := float(start.held(name))):
            raise InputError(
                f"the initial value of {name!r} is {value}: a finite number was wanted; correct it "
                "or its initial assignment."
            )


def _has_value(values: Evaluation, name: str) -> bool:
    try:
        values.value(name)
    except InputError:
        return False
    return True
