"""PEtab's formulas, parsed by PEtab's own grammar, as formulas of this library.

PEtab's parser makes sympy expressions; each class of sympy that it can make is paired with an
operation here. Nothing is evaluated as text. sympy computes what has no names in it, with as many
digits as it takes: 9^9^9^9 or sin(1e10000000) would never end, so that numbers have a limit.
"""

from __future__ import annotations

import importlib
import math
from functools import cache
from typing import Any

from pcuq.errors import InputError
from pcuq.io import expressions as ex
from pcuq.io.expressions import Node

LARGEST = 1e308


@ex.shallow()
def read_formula(given: Any, where: str) -> Node:
    """A formula, given as text, as a number or as PEtab has parsed it."""
    from petab.v1.math import sympify_petab

    if isinstance(given, str):
        parsed = parse(given, where)
    else:
        parsed = sympify_petab(given) if isinstance(given, (int, float)) else given
    return _translate(parsed, where)


def parse(text: str, where: str) -> Any:
    """A formula as PEtab parses it, refused before a number in it becomes too large."""
    module = importlib.import_module("petab.v1.math.sympify")
    if not text.strip():
        raise InputError(f"{where} is empty: a formula was wanted.")
    try:
        listener = module.MathErrorListener()
        lexer = module.PetabMathExprLexer(module.InputStream(text))
        parser = module.PetabMathExprParser(module.CommonTokenStream(lexer))
        for part in (lexer, parser):
            part.removeErrorListeners()
            part.addErrorListener(listener)
        parsed = module.bool2num(_bounded()().visit(parser.petabExpression()))
        if parsed.is_extended_real is False:
            raise ValueError("it is not real")
    except Exception as error:
        said = " ".join(str(error).split()) or "it has no value"
        raise InputError(f"{where} cannot be read: {text!r:.200}: {said.rstrip('.')}.") from None
    return parsed


@cache
def _bounded() -> type:
    from petab.v1.math.SympyVisitor import MathVisitorSympy

    class Bounded(MathVisitorSympy):
        """Computes the parts of a formula before the whole, and stops at what is too large."""

        def visitNumber(self, ctx: Any) -> Any:
            text = ctx.getText().lower()
            value, mantissa = float(text), text.partition("e")[0]
            if text != "inf" and (value > LARGEST or (value == 0 and mantissa.strip("0."))):
                raise ValueError(f"it exceeds {LARGEST:g}, or is as small")
            return super().visitNumber(ctx)

        def visit(self, tree: Any) -> Any:
            found: Any = super().visit(tree)
            if getattr(found, "is_Float", False) and abs(found) > LARGEST:
                raise ValueError(f"it exceeds {LARGEST:g}")
            return found

    return Bounded


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
