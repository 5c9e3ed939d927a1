"""MathML, as libsbml has parsed it, into formulas.

A call of a function definition becomes the definition's body with the arguments in place, so that
what comes out has no functions of its own. What SBML allows and this library does not is refused
with the id of the element that it stands in.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache
from typing import Any, NamedTuple

from pcuq.errors import InputError
from pcuq.io import expressions as ex
from pcuq.io.expressions import Node

AVOGADRO = 6.02214179e23  # the value that the SBML specification fixes


class Function(NamedTuple):
    """A function definition: its arguments and its body, in which other calls are expanded."""

    arguments: tuple[str, ...]
    body: Node | None  # None where the file gives none: it must not be called


class Reader:
    """AST → formula, with the model's function definitions."""

    def __init__(self, functions: Mapping[str, Function]):
        self.functions = functions

    def __call__(self, ast: Any, where: str) -> Node:
        """`where` says which element the formula belongs to, for messages."""
        if ast is None:
            raise InputError(f"{where} has no formula: a <math> element with one was wanted.")
        kind = ast.getType()
        leaf = _leaf(ast, kind, where)
        if leaf is not None:
            return leaf
        if kind == _types()["delay"]:
            raise InputError(f"{where} uses delay(), which is not supported: remove the delay.")
        args = [self(ast.getChild(i), where) for i in range(ast.getNumChildren())]
        if kind == _types()["function"]:
            return self._call(ast.getName(), args, where)
        if kind == _types()["rate"]:
            if len(args) != 1 or args[0].op != "name":
                raise InputError(f"{where} uses rateOf on what is not one name: name a quantity.")
            return ex.node("rate", value=args[0].value)
        operation = _operations().get(kind)
        if operation is None:
            raise InputError(
                f"{where} uses {ast.getName() or 'an operation'!r}, which is not supported: "
                "write it with the MathML functions of SBML."
            )
        return _apply(operation, args, where)

    def _call(self, name: str, args: list[Node], where: str) -> Node:
        if name not in self.functions:
            raise InputError(
                f"{where} calls the function {name!r}, which the model does not define: "
                f"it defines {', '.join(self.functions) or 'none'}."
            )
        wanted, body = self.functions[name]
        if body is None:
            raise InputError(f"{where} calls the function {name!r}, which has no body: add it.")
        if len(args) != len(wanted):
            raise InputError(
                f"{where} calls {name!r} with {len(args)} arguments: it takes {len(wanted)}."
            )
        return ex.substitute(body, dict(zip(wanted, args, strict=True)))


def read_functions(model: Any) -> dict[str, Function]:
    """The function definitions of a model; one may call those before and after it."""
    definitions = {
        definition.getId(): definition
        for definition in map(model.getFunctionDefinition, range(model.getNumFunctionDefinitions()))
    }
    found: dict[str, Function] = {}
    under_way: list[str] = []

    class Lazily(dict):
        def __iter__(self):
            return iter(definitions)

        def __contains__(self, name):
            return name in definitions

        def __getitem__(self, name):
            if name not in found:
                read(name)
            return found[name]

    reader = Reader(Lazily())

    def read(name: str) -> None:
        where = f"function definition {name!r}"
        if name in under_way:
            raise InputError(
                f"{where} calls itself ({' → '.join([*under_way, name])}): a function of SBML "
                "must not be recursive."
            )
        under_way.append(name)
        definition = definitions[name]
        arguments = tuple(
            definition.getArgument(i).getName() for i in range(definition.getNumArguments())
        )
        body = definition.getBody()
        found[name] = Function(arguments, None if body is None else reader(body, where))
        under_way.pop()

    for name in definitions:
        if name not in found:
            read(name)
    return found


def _leaf(ast: Any, kind: int, where: str) -> Node | None:
    types = _types()
    if kind in types["numbers"]:
        value = float(ast.getInteger()) if kind == types["integer"] else float(ast.getReal())
        return ex.number(value)
    if kind == types["avogadro"]:
        return ex.number(AVOGADRO)
    if kind == types["time"]:
        return ex.time()
    if kind == types["name"]:
        return ex.name(ast.getName())
    if kind in types["constants"]:
        return types["constants"][kind]
    return None


def _apply(operation: str, args: list[Node], where: str) -> Node:
    # libsbml has put in the base of a logarithm and the degree of a root that were left out.
    fewest, most = ARITY.get(operation, (1, 1))
    if not fewest <= len(args) <= most:
        several = f"{fewest} or more" if most == MANY else f"{fewest} to {most}"
        raise InputError(
            f"{where} uses {operation!r} with {len(args)} arguments: it takes "
            f"{fewest if fewest == most else several}."
        )
    return ex.node(operation, *args)


MANY = 10**9
ARITY = {
    **dict.fromkeys(("plus", "times", "and", "or", "xor"), (0, MANY)),
    **dict.fromkeys(("min", "max", "piecewise"), (1, MANY)),
    **dict.fromkeys(ex.RELATIONS, (2, MANY)),
    **dict.fromkeys(("divide", "power", "root", "log", "quotient", "rem", "implies"), (2, 2)),
    "minus": (1, 2),
}


@cache
def _types() -> dict[str, Any]:
    import libsbml

    return {
        "integer": libsbml.AST_INTEGER,
        "numbers": (
            libsbml.AST_INTEGER,
            libsbml.AST_REAL,
            libsbml.AST_REAL_E,
            libsbml.AST_RATIONAL,
        ),
        "name": libsbml.AST_NAME,
        "time": libsbml.AST_NAME_TIME,
        "avogadro": libsbml.AST_NAME_AVOGADRO,
        "delay": libsbml.AST_FUNCTION_DELAY,
        "rate": libsbml.AST_FUNCTION_RATE_OF,
        "function": libsbml.AST_FUNCTION,
        "constants": {
            libsbml.AST_CONSTANT_E: ex.number(math.e),
            libsbml.AST_CONSTANT_PI: ex.number(math.pi),
            libsbml.AST_CONSTANT_TRUE: ex.node("true"),
            libsbml.AST_CONSTANT_FALSE: ex.node("false"),
        },
    }


@cache
def _operations() -> dict[int, str]:
    import libsbml

    plain = {"plus": "PLUS", "minus": "MINUS", "times": "TIMES", "divide": "DIVIDE"}
    table = {getattr(libsbml, f"AST_{theirs}"): ours for ours, theirs in plain.items()}
    table[libsbml.AST_POWER] = "power"
    for kind in ("FUNCTION", "LOGICAL", "RELATIONAL"):
        for ours in ex.OPERATIONS:
            theirs = f"AST_{kind}_{ours.upper()}"
            if hasattr(libsbml, theirs):
                table[getattr(libsbml, theirs)] = ours
    return table
