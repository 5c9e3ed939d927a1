"""Formulas as data: a graph whose equal parts are one node, evaluated with jax.

A node is a number, a name, the time, or an operation on nodes. Nodes are interned: two equal
formulas are one object, so that an evaluation that remembers nodes computes every common
subexpression once. Nothing here evaluates text.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp

from pcuq.errors import InputError

Lookup = Callable[[str], Any]
TIME = "time"
RELATIONS = ("eq", "neq", "lt", "leq", "gt", "geq")


class Node:
    """`op` applied to `args`; `value` is the payload of a number or a name."""

    __slots__ = ("__weakref__", "args", "op", "value")
    op: str
    args: tuple[Node, ...]
    value: Any

    def __repr__(self) -> str:
        if self.op in ("number", "name"):
            return str(self.value)
        return f"{self.op}({', '.join(map(repr, self.args))})" if self.args else self.op


_interned: weakref.WeakValueDictionary[tuple, Node] = weakref.WeakValueDictionary()


def node(op: str, *args: Node, value: Any = None) -> Node:
    """The one node that stands for this operation on these arguments."""
    key = (op, *map(id, args), value)
    found = _interned.get(key)
    if found is None:
        found = Node()
        found.op, found.args, found.value = op, args, value
        _interned[key] = found
    return found


def number(value: float) -> Node:
    """A number; NaN is one node too."""
    value = float(value)
    return node("number", value="nan" if math.isnan(value) else value)


def name(identifier: str) -> Node:
    """A reference to a quantity of the model."""
    return node("name", value=identifier)


def time() -> Node:
    """The current time."""
    return node(TIME)


@contextmanager
def shallow() -> Iterator[None]:
    """Refuse formulas that stand on each other more deeply than Python can follow."""
    try:
        yield
    except RecursionError:
        raise InputError(
            "formulas are nested too deeply, or stand on each other in too long a row: write them "
            "with fewer levels."
        ) from None


def walk(root: Node) -> Iterator[Node]:
    """Every node once, arguments before what uses them."""
    seen: set[Node] = set()
    stack: list[tuple[Node, bool]] = [(root, False)]
    while stack:
        here, ready = stack.pop()
        if ready:
            yield here
        elif here not in seen:
            seen.add(here)
            stack.append((here, True))
            stack.extend((arg, False) for arg in reversed(here.args))


def names(*roots: Node) -> set[str]:
    """Every name that the formulas refer to; rates of change count as references."""
    return {part.value for root in roots for part in walk(root) if part.op in ("name", "rate")}


def substitute(root: Node, replace: Mapping[str, Node]) -> Node:
    """The formula with names replaced by formulas."""
    if not replace:
        return root
    made: dict[Node, Node] = {}
    for part in walk(root):
        if part.op == "name" and part.value in replace:
            made[part] = replace[part.value]
        elif part.op == "rate" and part.value in replace:
            made[part] = node("rate", value=replace[part.value].value)
        elif part.args:
            made[part] = node(part.op, *(made[arg] for arg in part.args), value=part.value)
        else:
            made[part] = part
    return made[root]


def cycle(graph: Mapping[str, Iterable[str]]) -> list[str] | None:
    """Names that depend on each other in a circle, None where there is an order."""
    state: dict[str, int] = {}
    for start in graph:
        if start in state:
            continue
        path, stack = [], [(start, iter(sorted(graph[start])))]
        state[start] = 1
        path.append(start)
        while stack:
            here, rest = stack[-1]
            for following in rest:
                if following not in graph:
                    continue
                if state.get(following) == 1:
                    return [*path[path.index(following) :], following]
                if following not in state:
                    state[following] = 1
                    path.append(following)
                    stack.append((following, iter(sorted(graph[following]))))
                    break
            else:
                state[here] = 2
                stack.pop()
                path.pop()
    return None


def evaluate(root: Node, lookup: Lookup, rate: Lookup, t: Any, memory: dict[Node, Any]) -> Any:
    """The value of a formula; `memory` is shared by all formulas of one evaluation."""
    for part in walk_unknown(root, memory):
        if part.op == "number":
            memory[part] = math.nan if part.value == "nan" else part.value
        elif part.op == "name":
            memory[part] = lookup(part.value)
        elif part.op == TIME:
            memory[part] = t
        elif part.op == "rate":
            memory[part] = rate(part.value)
        else:
            memory[part] = OPERATIONS[part.op](*(memory[arg] for arg in part.args))
    return memory[root]


def walk_unknown(root: Node, memory: Mapping[Node, Any]) -> Iterator[Node]:
    """As `walk`, without what is known already."""
    stack: list[tuple[Node, bool]] = [(root, False)]
    while stack:
        here, ready = stack.pop()
        if here in memory:
            continue
        if ready or not here.args:
            yield here
        else:
            stack.append((here, True))
            stack.extend((arg, False) for arg in reversed(here.args) if arg not in memory)


def truth(value: Any) -> Any:
    """As a condition: a number is true where it is not zero."""
    if isinstance(value, bool):
        return value
    value = jnp.asarray(value)
    return value if value.dtype == bool else value != 0


def numeric(value: Any) -> Any:
    """As a number: true is 1 and false is 0."""
    if isinstance(value, (float, int)) and not isinstance(value, bool):
        return value
    value = jnp.asarray(value)
    return value.astype(float) if value.dtype == bool else value


def _numeric(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: function(*map(numeric, args))


def _reduce(function: Callable[[Any, Any], Any], empty: float) -> Callable[..., Any]:
    return lambda *args: functools.reduce(function, map(numeric, args)) if args else empty


def _logic(function: Callable[[Any, Any], Any], empty: bool) -> Callable[..., Any]:
    return lambda *args: functools.reduce(function, map(truth, args)) if args else empty


def _chain(compare: Callable[[Any, Any], Any]) -> Callable[..., Any]:
    """a < b < c: every neighbouring pair."""

    def relation(*args):
        values = [jnp.asarray(numeric(arg), float) for arg in args]
        pairs = [compare(a, b) for a, b in itertools.pairwise(values)]
        return functools.reduce(jnp.logical_and, pairs) if pairs else jnp.bool_(True)

    return relation


def _power(base: Any, exponent: Any) -> Any:
    if isinstance(exponent, (float, int)):
        if abs(exponent) <= 64 and exponent == round(exponent):
            base = jnp.asarray(base, float)
            # Its derivative is right at zero and for negative bases, where that of b^x is not.
            return jax.lax.integer_pow(base, int(exponent))
        if exponent == 0.5:
            return jnp.sqrt(base)
    return jnp.power(jnp.asarray(base, float), exponent)


def _root(degree: Any, radicand: Any) -> Any:
    if isinstance(degree, (float, int)) and degree == 2:
        return jnp.sqrt(jnp.asarray(radicand, float))
    return jnp.power(jnp.asarray(radicand, float), jnp.divide(1.0, degree))


def _log(base: Any, argument: Any) -> Any:
    if isinstance(base, (float, int)) and base == 10:
        return jnp.log10(jnp.asarray(argument, float))
    return jnp.log(jnp.asarray(argument, float)) / jnp.log(jnp.asarray(base, float))


def _piecewise(*args: Any) -> Any:
    """value, condition, value, condition, ..., otherwise; NaN where nothing holds."""
    pairs, rest = args[: len(args) // 2 * 2], args[len(args) // 2 * 2 :]
    result = rest[0] if rest else math.nan
    logical = all(_is_condition(value) for value in (*pairs[::2], *rest))
    for value, condition in reversed(list(zip(pairs[::2], pairs[1::2], strict=True))):
        if not logical:
            value, result = jnp.asarray(numeric(value), float), jnp.asarray(numeric(result), float)
        result = jnp.where(truth(condition), value, result)
    return result


def _is_condition(value: Any) -> bool:
    return isinstance(value, bool) or getattr(value, "dtype", None) == jnp.bool_


def _factorial(n: Any) -> Any:
    return jnp.exp(jax.lax.lgamma(jnp.asarray(n, float) + 1.0))


def _quotient(a: Any, b: Any) -> Any:
    return jnp.trunc(jnp.asarray(a, float) / b)


def _remainder(a: Any, b: Any) -> Any:
    """The sign is that of the dividend, as with quotient: a = b · quotient + rem."""
    return jax.lax.rem(*jnp.broadcast_arrays(jnp.asarray(a, float), jnp.asarray(b, float)))


def _minus(*args: Any) -> Any:
    return -args[0] if len(args) == 1 else args[0] - args[1]


def _of_float(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda x: function(jnp.asarray(numeric(x), float))


OPERATIONS: dict[str, Callable[..., Any]] = {
    "plus": _reduce(operator.add, 0.0),
    "times": _reduce(operator.mul, 1.0),
    "minus": _numeric(_minus),
    "divide": _numeric(lambda a, b: jnp.asarray(a, float) / b),
    "power": _numeric(_power),
    "root": _numeric(_root),
    "log": _numeric(_log),
    "ln": _of_float(jnp.log),
    "exp": _of_float(jnp.exp),
    "abs": _of_float(jnp.abs),
    "sign": _of_float(jnp.sign),
    "floor": _of_float(jnp.floor),
    "ceiling": _of_float(jnp.ceil),
    "factorial": _numeric(_factorial),
    "quotient": _numeric(_quotient),
    "rem": _numeric(_remainder),
    "min": _reduce(jnp.minimum, math.inf),
    "max": _reduce(jnp.maximum, -math.inf),
    "sin": _of_float(jnp.sin),
    "cos": _of_float(jnp.cos),
    "tan": _of_float(jnp.tan),
    "sec": _of_float(lambda x: 1 / jnp.cos(x)),
    "csc": _of_float(lambda x: 1 / jnp.sin(x)),
    "cot": _of_float(lambda x: 1 / jnp.tan(x)),
    "sinh": _of_float(jnp.sinh),
    "cosh": _of_float(jnp.cosh),
    "tanh": _of_float(jnp.tanh),
    "sech": _of_float(lambda x: 1 / jnp.cosh(x)),
    "csch": _of_float(lambda x: 1 / jnp.sinh(x)),
    "coth": _of_float(lambda x: 1 / jnp.tanh(x)),
    "arcsin": _of_float(jnp.arcsin),
    "arccos": _of_float(jnp.arccos),
    "arctan": _of_float(jnp.arctan),
    "arcsec": _of_float(lambda x: jnp.arccos(1 / x)),
    "arccsc": _of_float(lambda x: jnp.arcsin(1 / x)),
    "arccot": _of_float(lambda x: jnp.arctan(1 / x)),
    "arcsinh": _of_float(jnp.arcsinh),
    "arccosh": _of_float(jnp.arccosh),
    "arctanh": _of_float(jnp.arctanh),
    "arcsech": _of_float(lambda x: jnp.arccosh(1 / x)),
    "arccsch": _of_float(lambda x: jnp.arcsinh(1 / x)),
    "arccoth": _of_float(lambda x: jnp.arctanh(1 / x)),
    "piecewise": _piecewise,
    "true": lambda: jnp.bool_(True),
    "false": lambda: jnp.bool_(False),
    "and": _logic(jnp.logical_and, True),
    "or": _logic(jnp.logical_or, False),
    "xor": _logic(jnp.logical_xor, False),
    "not": lambda a: jnp.logical_not(truth(a)),
    "implies": lambda a, b: jnp.logical_or(jnp.logical_not(truth(a)), truth(b)),
    "eq": _chain(operator.eq),
    "neq": _chain(operator.ne),
    "lt": _chain(operator.lt),
    "leq": _chain(operator.le),
    "gt": _chain(operator.gt),
    "geq": _chain(operator.ge),
}
