"""Interventions: what is done to a model, by name.

From time `at` on (from the start where `at` is None), a named quantity z becomes

    set:  z ← a        scale:  z ← a z        shift:  z ← z + a,

in this order within one intervention. z is a parameter, a constant or a state. A state is changed
once and then evolves by its own equation; with `hold=True` it stays at the value that was set:
its derivative is zero from then on. A list of interventions applies in order of time, and in the
order of the list where times are equal.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from pcuq._given import finite_number
from pcuq.errors import InputError

KINDS = ("set", "scale", "shift")


@dataclass(frozen=True)
class Formula:
    """A value that is computed from time, states and parameters before the change.

    `function(t, u, p)` works on one particle and on many side by side, u (k,) or (k, L); t is None
    at the start. `text` tells it from other formulas.
    """

    text: str
    function: Callable[[float | None, Any, Mapping[str, Any]], Any] = field(
        compare=False, repr=False
    )


@dataclass(frozen=True)
class Intervention:
    """A change of named quantities; see the module's text for its meaning.

    `set`, `scale`, `shift`: {name: number}; a value in `set` may also be the name of a parameter or
    constant, whose value it then is, or a Formula. `at`: the time from which it applies, None for
    the start. `hold=True`: the states in `set` are clamped to their value; only states may be held.
    With `at=None`, parameters and constants change before the initial state is computed from them,
    and states after that.
    """

    # Any: a mapping or None is given, a dict is kept.
    set: Any = None
    scale: Any = None
    shift: Any = None
    at: float | None = None
    hold: bool = False

    def __post_init__(self):
        for kind in KINDS:
            numbers = _numbers(kind, getattr(self, kind), names=kind == "set")
            object.__setattr__(self, kind, numbers)
        if not self.names:
            raise InputError(
                "an Intervention needs something to change: give `set`, `scale` or `shift` as "
                "{name: number}."
            )
        if self.at is not None:
            object.__setattr__(self, "at", finite_number("at", self.at))
        if not isinstance(self.hold, bool):
            raise InputError(f"`hold` needs True or False: got {self.hold!r}.")
        if self.hold and (not self.set or self.scale or self.shift):
            raise InputError(
                "`hold=True` clamps states to the value in `set`: give `set` alone, and put other "
                "changes into an Intervention of their own."
            )

    def __hash__(self) -> int:
        changes = tuple(tuple(sorted(getattr(self, kind).items())) for kind in KINDS)
        return hash((changes, self.at, self.hold))

    @property
    def names(self) -> tuple[str, ...]:
        """Every name that it changes, each once."""
        return tuple(dict.fromkeys(name for kind in KINDS for name in (getattr(self, kind) or {})))

    def in_words(self) -> str:
        """For people: "k × 0.5 from 6 on"."""
        held = "{} held at {}" if self.hold else "{} = {}"
        parts = [held.format(name, _short(value)) for name, value in self.set.items()]
        parts += [f"{name} × {_short(value)}" for name, value in self.scale.items()]
        for name, value in self.shift.items():
            parts.append(f"{name} {'−' if value < 0 else '+'} {_short(abs(value))}")
        return ", ".join(parts) + ("" if self.at is None else f" from {self.at:g} on")

    @property
    def computed(self) -> bool:
        """Whether a value follows from a formula."""
        return any(isinstance(value, Formula) for value in self.set.values())

    @property
    def sources(self) -> tuple[str, ...]:
        """The names that values are taken from."""
        return tuple(value for value in self.set.values() if isinstance(value, str))

    def apply(
        self, name: str, value: Any, p: Mapping[str, Any] = MappingProxyType({}), u: Any = None
    ) -> Any:
        """z → a z + b: the changed value of the quantity `name`, unchanged if it is not named.

        `p`, `u`: parameters, constants and states before the change, for values that are names or
        formulas.
        """
        if name in self.set:
            value = self.set[name]
            value = p[value] if isinstance(value, str) else value
            value = value.function(self.at, u, p) if isinstance(value, Formula) else value
        if name in self.scale:
            value = self.scale[name] * value
        if name in self.shift:
            value = value + self.shift[name]
        return value


@dataclass(frozen=True)
class Equilibration:
    """Before the start the model has come to rest under `changes`.

    The interventions that follow it in a list apply to the state of rest; parameters and constants
    are again as they were without `changes`.
    """

    changes: tuple[Intervention, ...] = ()

    def __post_init__(self):
        object.__setattr__(self, "changes", as_interventions(self.changes))
        if any(change.at is not None for change in self.changes):
            raise InputError("`changes` of an Equilibration hold at all times: leave `at` out.")


def _short(value: float | str | Formula) -> str:
    if isinstance(value, Formula):
        return value.text
    return value if isinstance(value, str) else f"{value:g}"


def parse(text: str) -> Intervention:
    """An intervention as it is written on the command line.

    "k6=2" sets, "k6*=0.01" and "k6/=100" scale, "k6+=2" and "k6-=2" shift, "ERK:=0" sets a state
    and holds it there. "@30" at the end: from time 30 on.
    """
    match = re.fullmatch(r"\s*(.+?)\s*([*/+:-]?=)\s*([^@=]+?)\s*(?:@\s*(\S+))?\s*", str(text))
    if match is None:
        raise InputError(
            f"cannot read the intervention {text!r}: write name=value, name*=factor, "
            "name+=amount, or name:=value to hold a state, and @time at the end for a start."
        )
    name, operator, value, time = match.groups()
    number = _number(text, value)
    at = None if time is None else _number(text, time)
    if operator == "/=":
        if number == 0:
            raise InputError(f"cannot divide by zero in the intervention {text!r}.")
        return Intervention(scale={name: 1 / number}, at=at)
    if operator == "*=":
        return Intervention(scale={name: number}, at=at)
    if operator in ("+=", "-="):
        return Intervention(shift={name: number if operator == "+=" else -number}, at=at)
    return Intervention(set={name: number}, at=at, hold=operator == ":=")


def split(given: Any) -> tuple[Equilibration | None, tuple[Intervention, ...]]:
    """What a list for `do` says of the time before the start, and the interventions in it."""
    several = (given,) if isinstance(given, (Intervention, Equilibration)) else given
    if isinstance(several, (list, tuple)):
        rests = [item for item in several if isinstance(item, Equilibration)]
        several = [item for item in several if not isinstance(item, Equilibration)]
        return (rests[-1] if rests else None), as_interventions(several)
    return None, as_interventions(several)


def as_interventions(given: Intervention | Iterable[Intervention]) -> tuple[Intervention, ...]:
    """One intervention or several, as a tuple."""
    several = (given,) if isinstance(given, Intervention) else given
    if isinstance(several, (str, Mapping)) or not isinstance(several, Iterable):
        raise InputError(
            f"`do` needs a pcuq.Intervention or a list of them: got {type(given).__name__}; text "
            "such as 'k6*=0.01' is read by pcuq.interventions.parse."
        )
    several = tuple(several)
    for item in several:
        if not isinstance(item, Intervention):
            raise InputError(f"`do` needs pcuq.Intervention objects: got {type(item).__name__}.")
    return several


def check_names(
    interventions: Iterable[Intervention], adjustable: Iterable[str], states: Iterable[str]
) -> None:
    """Refuse names that the model does not have, and `hold` on what is not a state."""
    adjustable, states = tuple(adjustable), tuple(states)
    for intervention in interventions:
        for name in intervention.sources:
            if name not in adjustable:
                raise InputError(
                    f"an Intervention sets a quantity to {name!r}, which is no parameter or "
                    f"constant: this model has {', '.join(adjustable)}."
                )
        for name in intervention.names:
            if name not in adjustable and name not in states:
                raise InputError(
                    f"unknown name {name!r} in an Intervention: this model has "
                    f"{', '.join((*adjustable, *states))}."
                )
            if intervention.hold and name not in states:
                raise InputError(
                    f"`hold=True` is for states, and {name!r} is a parameter or constant: it keeps "
                    f"a set value anyway; leave `hold` out. States: {', '.join(states) or 'none'}."
                )


def _numbers(kind: str, given: Mapping[str, Any] | None, names: bool) -> dict[str, Any]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise InputError(f"`{kind}` needs a mapping from name to number: got {given!r}.")
    for name in given:
        if not isinstance(name, str) or not name:
            raise InputError(f"a name in `{kind}` must be a non-empty string: got {name!r}.")
    return {
        name: value
        if names and isinstance(value, (str, Formula))
        else finite_number(f"{kind}[{name!r}]", value)
        for name, value in given.items()
    }


def _number(text: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise InputError(
            f"{value!r} in the intervention {text!r} is not a number: write for example "
            "'k6*=0.01' or 'ERK=0@30'."
        ) from None
