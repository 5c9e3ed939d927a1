"""Which outputs a model needs for its measurements.

An output is an observable with what stands for its placeholders: measurements with other overrides
are another output. Where the noise is a number, it may differ between the rows of one output.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import NamedTuple

from pcuq.errors import InputError
from pcuq.io import expressions as ex
from pcuq.io.expressions import Node
from pcuq.io.petab_tables import Measurement, Observable, Tables


class Output(NamedTuple):
    """An observable as some measurements see it."""

    name: str
    observable: Observable
    formula: Node
    noise: Node | None  # None where it is a number for every row
    rows: tuple[int, ...]
    numbers: tuple[float, ...]  # the noise of these rows, where it is known


def find_outputs(tables: Tables) -> list[Output]:
    """Measurements by observable and by what stands for its placeholders."""
    groups: dict[tuple, list[int]] = {}
    noises: list[Node] = []
    for i, row in enumerate(tables.measurements):
        where = f"row {i + 1} of the measurement table"
        if row.observable not in tables.observables:
            raise InputError(
                f"{where} names the observable {row.observable!r}, which the observable table "
                f"does not have: it has {', '.join(tables.observables)}."
            )
        _check_row(row, where)
        observable = tables.observables[row.observable]
        given = _fill(row.overrides, observable.placeholders, f"observableParameters in {where}")
        filled = _fill(
            row.noise_overrides, observable.noise_placeholders, f"noiseParameters in {where}"
        )
        formula = ex.substitute(observable.formula, given | filled)
        noise = ex.substitute(observable.noise, given | filled | {row.observable: formula})
        noises.append(noise)
        known = None if not ex.names(noise) and not depends_on_time(noise) else noise
        groups.setdefault((row.observable, formula, known), []).append(i)
    several = Counter(name for name, _, _ in groups)
    found, taken = [], set()
    for (name, formula, noise), rows in groups.items():
        first = tables.measurements[rows[0]]
        label = name if several[name] == 1 else _label(name, first, taken)
        taken.add(label)
        numbers = [] if noise is not None else [number_of(noises[i]) for i in rows]
        for value in numbers:
            if not value > 0:
                raise InputError(
                    f"the noise of observable {name!r} must be positive: got {value:g}."
                )
        found.append(
            Output(label, tables.observables[name], formula, noise, tuple(rows), tuple(numbers))
        )
    return found


def _check_row(row: Measurement, where: str) -> None:
    if math.isnan(row.value) or math.isinf(row.value):
        raise InputError(f"{where} has no finite measurement: drop the row.")
    if math.isnan(row.time) or row.time == -math.inf:
        raise InputError(f"{where} has no time: give a number, or inf for a steady state.")


def _fill(given: tuple[Node, ...], placeholders: tuple[str, ...], where: str) -> dict[str, Node]:
    if len(given) != len(placeholders):
        raise InputError(
            f"{where} need {len(placeholders)} values for {', '.join(placeholders) or 'nothing'}: "
            f"got {len(given)}."
        )
    return dict(zip(placeholders, given, strict=True))


def _label(name: str, row: Measurement, taken: set[str]) -> str:
    label = f"{name}({', '.join(map(repr, row.overrides))})" if row.overrides else name
    if label in taken:
        label = f"{label} ± {', '.join(map(repr, row.noise_overrides))}"
    return label


def depends_on_time(formula: Node) -> bool:
    """Whether the time itself stands in a formula."""
    return any(part.op == ex.TIME for part in ex.walk(formula))


def number_of(formula: Node) -> float:
    """The value of a formula without names."""
    return float(ex.evaluate(formula, dict.__getitem__, dict.__getitem__, 0.0, {}))  # pyright: ignore
