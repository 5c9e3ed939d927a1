"""Programs that differ only in numbers are compiled once.

`jax.jit` compiles the arrays that a function closes over into the program. Here they are passed to
it instead: fits of other data, of another regularisation or on another mesh of as many steps then
run the program that is there. Compiling takes seconds, and finding the program a fraction of one.
"""

from __future__ import annotations

import hashlib
import os
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import eval_jaxpr

from pcuq._x64 import x64

LEVEL = "xla_backend_optimization_level"
KEPT = 200  # programs: a study of one problem needs a few dozen
_programs: OrderedDict[str, Future[Any]] = OrderedDict()
_lock = Lock()
# Two programs that factor matrices, run by two threads, can wait for each other for ever.
FACTORED, _factoring = "lapack_dgetrf", Lock()


class Program:
    """`function`, compiled for each shape of its arguments; it may not be differentiated."""

    def __init__(self, function: Callable[..., Any]):
        self.function = function
        self._by_shape: dict[Any, Callable[[list], Any]] = {}
        self._lock = Lock()

    def __call__(self, *args: Any) -> Any:
        leaves, structure = jax.tree.flatten(args)
        leaves = [_strong(leaf) for leaf in leaves]
        shapes = structure, jax.config.read("jax_enable_x64"), *((x.shape, x.dtype) for x in leaves)
        with self._lock:
            if shapes not in self._by_shape:
                self._by_shape[shapes] = _compile(self.function, structure, leaves)
        return self._by_shape[shapes](leaves)


def side_by_side(program: Program, parts: int, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
    """What the program makes of equal parts of the arrays, as many at a time as there are cores."""

    @x64
    def run(given):
        return [np.asarray(leaf) for leaf in program(*given)]

    pieces = zip(*(np.split(array, parts) for array in arrays), strict=True)
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        found = list(pool.map(run, pieces))
    return tuple(np.concatenate(leaves) for leaves in zip(*found, strict=True))


def _compile(function, structure, leaves) -> Callable[[list], Any]:
    traced, shape = jax.make_jaxpr(
        lambda *leaves: function(*jax.tree.unflatten(structure, leaves)), return_shape=True
    )(*leaves)
    constants = [_strong(constant) for constant in traced.consts]

    def evaluate(*numbers):
        first = len(constants)
        return eval_jaxpr(traced.jaxpr, numbers[:first], *numbers[first:])

    lowered = jax.jit(evaluate).lower(*constants, *leaves)
    program, output = _compiled(lowered), jax.tree.structure(shape)

    def run(leaves):
        return jax.tree.unflatten(output, program(*constants, *leaves))

    return _one_by_one(run) if FACTORED in lowered.as_text() else run


def _one_by_one(run: Callable[[list], Any]) -> Callable[[list], Any]:
    def run_alone(leaves):
        with _factoring:
            return jax.block_until_ready(run(leaves))

    return run_alone


def _compiled(lowered):
    """The program, compiled by the thread that needs it first while the others wait."""
    # An argument that is not used does not show in the text, and its shape is checked all the same.
    described = f"{lowered.in_avals}\n{lowered.as_text()}"
    name = hashlib.sha256(described.encode()).hexdigest()
    with _lock:
        first = name not in _programs
        future = _programs.setdefault(name, Future())
        _programs.move_to_end(name)
        if len(_programs) > KEPT:
            _programs.popitem(last=False)
    if first:
        try:
            future.set_result(lowered.compile(compiler_options=options()))
        except BaseException as error:
            with _lock:
                _programs.pop(name, None)
            future.set_exception(error)
    return future.result()


def options() -> dict[str, Any]:
    """At level 3, LLVM takes longer over a loop of sweeps, which then runs half as fast as at 2."""
    given = LEVEL in os.environ.get("XLA_FLAGS", "")
    return {} if given or jax.default_backend() != "cpu" else {LEVEL: 2}


def _strong(leaf: Any) -> jax.Array:
    """As an array whose type does not give way to others, as that of a Python number would."""
    if isinstance(leaf, jax.Array):
        return leaf.astype(leaf.dtype) if getattr(leaf, "weak_type", False) else leaf
    return jnp.asarray(np.asarray(leaf))
