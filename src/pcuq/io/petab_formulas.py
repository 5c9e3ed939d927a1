"""PEtab's formulas, parsed by PEtab's own grammar, as formulas of this library.

PEtab's parser makes sympy expressions; each class of sympy that it can make is paired with an
operation here. Nothing is evaluated as text.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

from pcuq.errors import InputError
from pcuq.io import expressions as ex
from pcuq.io.expressions import Node


def read_formula(given: Any, where: str) -> Node:
    """A formula, given as text, as a number or as PEtab has parsed it."""
    from petab.v1.math import sympify_petab

    if isinstance(given, str) and not given.strip():
        raise InputError(f"{where} is empty: a formula was wanted.")
    try:
        parsed = sympify_petab(given) if isinstance(given, (str, int, float)) else given
    except Exception as error:
        said = " ".join(str(error).split()) or "it has no value"
        raise InputError(f"{where} cannot be read: {given!r}: {said.rstrip('.')}.") from None
    return _translate(parsed, where)


def _translate(expression: Any, where: str) -> Node:
    import sympy as sp

    if expression.is_Symbol:
        return ex.time() if expression.name == ex.TIME else ex.name(expression.name)
    if expression is sp.true or expression is sp.false:
        return ex.node(str(expression).lower())
    if expression is sp.nan:
        return ex.number(math.nan)
    if expression.is_number and not expression.args:
        if not expression.is_comparable:  # i, or infinity in no direction
            raise InputError(f"{where} divides by zero, or takes a root of a negative number.")
        return ex.number(float(expression))
    if isinstance(expression, sp.Piecewise):
        parts = [_translate(part, where) for pair in expression.args for part in pair.args]
        return ex.node("piecewise", *parts)
    operation = _operations().get(expression.func)
    if operation is None:
        raise InputError(f"{where} uses {expression.func.__name__!r}, which is not supported.")
    return ex.node(operation, *(_translate(arg, where) for arg in expression.args))


@cache
def _operations() -> dict[Any, str]:
    import sympy as sp

    return {
        sp.Add: "plus",
        sp.Mul: "times",
        sp.Pow: "power",
        sp.exp: "exp",
        sp.log: "ln",
        sp.Abs: "abs",
        sp.sign: "sign",
        sp.Min: "min",
        sp.Max: "max",
        sp.And: "and",
        sp.Or: "or",
        sp.Xor: "xor",
        sp.Not: "not",
        sp.Eq: "eq",
        sp.Ne: "neq",
        sp.StrictLessThan: "lt",
        sp.LessThan: "leq",
        sp.StrictGreaterThan: "gt",
        sp.GreaterThan: "geq",
        sp.floor: "floor",
        sp.ceiling: "ceiling",
        **{getattr(sp, name): name for name in ("sin", "cos", "tan", "sec", "csc", "cot")},
        **{getattr(sp, name): name for name in ("sinh", "cosh", "tanh", "sech", "csch", "coth")},
        **{
            getattr(sp, f"a{name}"): f"arc{name}"
            for base in ("sin", "cos", "tan", "sec", "csc", "cot")
            for name in (base, f"{base}h")
        },
    }
