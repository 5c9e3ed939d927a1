"""What a PEtab problem says, whatever its version: five plain tables."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from pcuq.errors import InputError
from pcuq.io.expressions import Node
from pcuq.io.sbml_document import Document

TRANSFORMS = {"lin": "identity", "log": "log", "log10": "log10"}  # by PEtab's name of a scale


class Unknown(NamedTuple):
    """A row of the parameter table; numbers on the natural scale."""

    estimate: bool
    scale: str
    lower: float
    upper: float
    nominal: float | None
    prior: str | None  # None: uniform on the parameter's scale within its bounds
    prior_numbers: tuple[float, ...]


class Observable(NamedTuple):
    """A formula and its noise: additive on the scale of `transform`, with the law's name."""

    formula: Node
    noise: Node
    transform: str  # identity, log or log10
    law: str  # normal or laplace
    placeholders: tuple[str, ...]
    noise_placeholders: tuple[str, ...]


class Experiment(NamedTuple):
    """What is changed, as {id: value}: while the model comes to rest before, then from times on."""

    before: dict[str, Node] | None
    periods: tuple[tuple[float, dict[str, Node]], ...]


class Measurement(NamedTuple):
    """One number, and what stands for the placeholders of its observable."""

    observable: str
    experiment: str
    time: float
    value: float
    overrides: tuple[Node, ...]
    noise_overrides: tuple[Node, ...]


@dataclass(frozen=True)
class Tables:
    """A PEtab problem."""

    document: Document
    parameters: dict[str, Unknown]
    observables: dict[str, Observable]
    experiments: dict[str, Experiment]
    measurements: tuple[Measurement, ...]


def import_petab() -> Any:
    """petab, or an error that says how to get it."""
    try:
        import petab
    except ImportError:
        raise InputError(
            'reading PEtab needs the petab package: install it with pip install "pcuq[petab]".'
        ) from None
    return petab


def as_number(value: Any, where: str) -> float:
    """A number, or an error that says where one was wanted."""
    try:
        return float(value)
    except (TypeError, ValueError):
        raise InputError(f"{where} needs a number: got {value!r}.") from None


def check_parameter(name: str, row: Unknown) -> None:
    """Refuse bounds and nominal values that cannot be used."""
    where = f"parameter {name!r}"
    if row.nominal is not None and math.isnan(row.nominal):
        raise InputError(f"{where} has no nominal value (nominalValue is NaN): give it a number.")
    if not row.estimate:
        if row.nominal is None:
            raise InputError(f"{where} is not estimated and has no nominalValue: give it a number.")
        return
    if math.isnan(row.lower) or math.isnan(row.upper) or not row.lower < row.upper:
        raise InputError(
            f"{where} needs lowerBound < upperBound: got {row.lower:g} and {row.upper:g}."
        )
    if row.scale != "lin" and row.lower < 0:
        raise InputError(
            f"{where} is on the {row.scale} scale and has the lower bound {row.lower:g}: it must "
            "be positive."
        )
    # Zero has no logarithm: the lower bound stands for it.
    off = row.scale != "lin" and row.nominal == 0
    if row.nominal is not None and not off and not row.lower <= row.nominal <= row.upper:
        raise InputError(
            f"the nominal value {row.nominal:g} of {where} lies outside its bounds "
            f"[{row.lower:g}, {row.upper:g}]: widen them, or correct it."
        )


def check_distinct(what: str, names: Iterable[str]) -> None:
    """Refuse ids that come twice."""
    seen = set()
    for name in names:
        if name in seen:
            raise InputError(f"the {what} table has the id {name!r} twice: ids must differ.")
        seen.add(name)
