"""The equations of an SBML model.

A species' value is its amount where it has only substance units, else its concentration. With the
amount n = V c in a compartment of size V, reactions of rates v_r and stoichiometries s_r, and a
conversion factor f,

    dn/dt = f Σ_r s_r v_r,        dc/dt = (dn/dt − c dV/dt) / V.

States are held in the species' value, so that an intervention on a state means what it means in
SBML; only where V follows an assignment rule, dV/dt being unknown, is the amount held. What has an
initial assignment and never changes is a state too, with derivative zero: the assignment is
evaluated once, at the start, from parameters that may be fitted.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any

from pcuq.errors import InputError
from pcuq.io import expressions as ex
from pcuq.io.expressions import Node
from pcuq.io.sbml_document import Document

ZERO = ex.number(0.0)


class System:
    """States, constants, and formulas for everything else.

    `states` have a formula in `initial` and in `rates`; `constants` are numbers; `assigned` follow
    from the others at all times.
    """

    def __init__(self, document: Document):
        self.document = document
        self.assigned = dict(document.assignments)
        self._changed = {name for event in document.events.values() for name in event.assign}
        self.reacting = {
            species
            for reaction in document.reactions.values()
            for species, _ in reaction.changes
            if document.species[species].reacts
        }
        self.held_as_amount = {
            name
            for name, species in document.species.items()
            if not species.substance_only
            and species.compartment in self.assigned
            and name not in self.assigned
            and name not in document.rates
        }
        self.states = tuple(name for name in self._holders() if self._is_state(name))
        self.constants = {
            name: value
            for name in self._holders()
            if name not in self.states and (value := self._number(name)) is not None
        }
        self.initial = {
            name: formula for name in self.states if (formula := self._start(name)) is not None
        }
        self.rates = {name: self._rate(name) for name in self.states}
        self._check_circles()

    @cached_property
    def index(self) -> dict[str, int]:
        return {name: i for i, name in enumerate(self.states)}

    @property
    def steady(self) -> set[str]:
        """States that never change by themselves."""
        events = {name for event in self.document.events.values() for name in event.assign}
        return {name for name in self.states if self.rates[name] is ZERO} - events

    def compartment_value(self, name: str) -> Node:
        """The size of the compartment that a species is in."""
        return ex.name(self.document.species[name].compartment)

    def behind(self, part: Node) -> list[Node]:
        """The formula that a name or a rate of change stands for."""
        name = part.value
        if part.op == "rate":
            return [self.rates[name]] if name in self.rates else []
        if name in self.held_as_amount:
            return [self.compartment_value(name)]
        if name in self.assigned:
            return [self.assigned[name]]
        reactions = self.document.reactions
        return [reactions[name].rate] if name in reactions else []

    def reachable(self, roots: Iterable[Node], through_rates: bool = True) -> list[Node]:
        """Every node that formulas stand on, through rules, reactions and rates of change."""
        seen: dict[Node, None] = {}
        waiting, followed = list(roots), set()
        while waiting:
            for part in ex.walk(waiting.pop()):
                seen[part] = None
                named = part.op == "name" or (through_rates and part.op == "rate")
                if named and part not in followed:
                    followed.add(part)
                    waiting += self.behind(part)
        return list(seen)

    def _holders(self) -> list[str]:
        """What has a value of its own: neither a reaction nor set by an assignment rule."""
        found = self.document
        everything = (*found.species, *found.compartments, *found.parameters)
        return [name for name in everything if name not in self.assigned]

    def _is_state(self, name: str) -> bool:
        found = self.document
        if name in found.rates or name in found.initial or name in self._changed:
            return True
        if name not in found.species:
            return False
        species = found.species[name]
        place = species.compartment
        moves = place in found.rates or place in self.assigned or place in self._changed
        return (
            name in self.reacting
            or (moves and not species.substance_only)
            or self._number(name) is None
        )

    def _number(self, name: str) -> float | None:
        """The value as the file gives it, None where it has to be computed or is missing."""
        found = self.document
        if name in found.compartments:
            size = found.compartments[name].size
            return 1.0 if size is None else size  # as other simulators take it
        if name in found.parameters:
            return found.parameters[name]
        species = found.species[name]
        return species.amount if species.substance_only else species.concentration

    def _start(self, name: str) -> Node | None:
        """The initial value of a state, as it is held."""
        found = self.document
        value = found.initial.get(name)
        if name in found.species:
            species, size = found.species[name], self.compartment_value(name)
            if value is None and species.substance_only and species.concentration is not None:
                value = ex.node("times", ex.number(species.concentration), size)
            elif value is None and not species.substance_only and species.amount is not None:
                value = ex.node("divide", ex.number(species.amount), size)
        if value is None and (known := self._number(name)) is not None:
            value = ex.number(known)
        if value is not None and name in self.held_as_amount:
            value = ex.node("times", value, self.compartment_value(name))
        return value

    def _rate(self, name: str) -> Node:
        found = self.document
        if name in found.rates:
            return found.rates[name]
        if name not in found.species:
            return ZERO
        species, terms = found.species[name], []
        if name in self.reacting:
            for identifier, reaction in found.reactions.items():
                for other, stoichiometry in reaction.changes:
                    if other == name:
                        terms.append(ex.node("times", stoichiometry, ex.name(identifier)))
        amount = ex.node("plus", *terms) if terms else ZERO
        if terms and species.conversion is not None:
            amount = ex.node("times", ex.name(species.conversion), amount)
        if species.substance_only or name in self.held_as_amount:
            return amount
        size = self.compartment_value(name)
        if species.compartment in found.rates:
            growth = ex.node("times", ex.name(name), ex.node("rate", value=species.compartment))
            amount = ex.node("minus", amount, growth)
        return amount if amount is ZERO else ex.node("divide", amount, size)

    def _check_circles(self) -> None:
        now = {name: ex.names(formula) for name, formula in self.assigned.items()}
        now |= {name: ex.names(r.rate) for name, r in self.document.reactions.items()}
        for name in self.held_as_amount:
            now[name] = {self.document.species[name].compartment}
        start = now | {name: ex.names(formula) for name, formula in self.initial.items()}
        rates = {
            f"d{name}/dt": {
                f"d{part.value}/dt"
                for part in self.reachable([formula], through_rates=False)
                if part.op == "rate"
            }
            for name, formula in self.rates.items()
        }
        for graph, what in (
            (now, "assignment rules"),
            (start, "initial assignments"),
            (rates, "rates of change"),
        ):
            circle = ex.cycle(graph)
            if circle:
                raise InputError(
                    f"the {what} are circular ({' → '.join(circle)}): each must follow from those "
                    "before it."
                )


class Evaluation:
    """Values of a system's quantities at one time t, state u and parameters p."""

    def __init__(self, system: System, t: Any, u: Any, p: dict[str, Any]):
        self.system, self.t, self.u, self.p = system, t, u, p
        self.memory: dict[Node, Any] = {}

    @ex.shallow()
    def __call__(self, formula: Node) -> Any:
        return ex.evaluate(formula, self.value, self.rate, self.t, self.memory)

    def value(self, name: str) -> Any:
        """A quantity in its SBML meaning."""
        system = self.system
        if name in system.index:
            held = self.u[system.index[name]]
            by_amount = name in system.held_as_amount
            return held / self(system.compartment_value(name)) if by_amount else held
        if name in self.p:
            return self.p[name]
        if name in system.assigned:
            return self(system.assigned[name])
        if name in system.document.reactions:
            return self(system.document.reactions[name].rate)
        raise missing(name)

    def rate(self, name: str) -> Any:
        """Its rate of change."""
        system = self.system
        if name in system.held_as_amount or name in system.assigned:
            raise InputError(
                f"the rate of change of {name!r} is asked for, which follows an assignment rule: "
                "that is not supported; write the rate as a formula."
            )
        return self(system.rates[name]) if name in system.rates else 0.0


class Start(Evaluation):
    """Values at the start, where states follow from their initial formulas.

    A state that p holds has that value: an intervention sets it before others follow from it.
    """

    def __init__(self, system: System, t: Any, p: dict[str, Any]):
        super().__init__(system, t, None, p)

    def held(self, name: str) -> Any:
        """The initial value of a state, as it is held."""
        if name in self.p:
            return self.p[name]
        if name not in self.system.initial:
            raise missing(name)
        return self(self.system.initial[name])

    def value(self, name: str) -> Any:
        if name not in self.system.index:
            return super().value(name)
        held = self.held(name)
        if name in self.system.held_as_amount:
            return held / self(self.system.compartment_value(name))
        return held


def missing(name: str) -> InputError:
    """What to say of a quantity without a value."""
    return InputError(
        f"{name!r} has no value: the model gives it neither a number nor a rule nor an initial "
        "assignment."
    )
