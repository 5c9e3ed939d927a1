"""What a model and its solver are, and what is common to all kinds.

A solver maps natural parameter values to (w, ok). Where a solve fails, w = 0 with zero derivatives,
so that one bad particle cannot spoil a sum over all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from pcuq._given import as_numbers, finite_number
from pcuq.errors import InputError
from pcuq.interventions import check_names as check_changed_names
from pcuq.parameters import Parameters

Values = dict[str, Any]
MODES = ("forward", "reverse")
# Larger outputs count as failed: squares and derivatives must not overflow.
LARGEST_OUTPUT = 1e100
UNKNOWN = "it cannot be told why"
LANES = 64  # solved together: any number of values up to it is compiled once


@runtime_checkable
class Solver(Protocol):
    """values → (w (n, d), ok); works under jit, vmap and the derivative it was made for."""

    def __call__(self, values: Values) -> tuple[Float[Array, "n d"], Bool[Array, ""]]: ...

    def describe(self) -> dict[str, Any]: ...


@runtime_checkable
class TellingSolver(Solver, Protocol):
    """One that can say why it fails at values {name: (L,)}, "" where it does not."""

    def why(self, values: Values) -> list[str]: ...


@runtime_checkable
class ManySolver(Solver, Protocol):
    """One that has a faster way for many values {name: (L,)} than a map."""

    def many(
        self, values: Values, count: int
    ) -> tuple[Float[Array, "L n d"], Bool[Array, " L"]]: ...


@runtime_checkable
class Model(Protocol):
    """A deterministic model: immutable, changed only by `do`, which returns another."""

    parameters: Parameters
    outputs: tuple[str, ...]
    constants: dict[str, float]

    def do(self, interventions: Any) -> Model: ...

    def solver(self, x: Any, representatives: Any = None, **options: Any) -> Solver: ...

    def solve_tightly(
        self, x: Any, values: Any, tolerance: float
    ) -> Iterable[Any]:  # (outputs (R, n, d), fine (R,)), for many values at once
        ...

    def simulate(self, times: Any, parameters: Any = None) -> dict[str, np.ndarray]: ...


Solve = Callable[[Values], tuple[Array, Array]]


def guarded(solve: Solve) -> Solve:
    """w → w where the solve is fine, 0 elsewhere, with the same for tangents.

    The select stops NaN going forward. Going backward, 0 · NaN = NaN: see `guarded_reverse`.
    """

    def safe(values):
        return kept(*solve({name: jnp.asarray(value, float) for name, value in values.items()}))

    return safe


def kept(w: Float[Array, "*L n d"], fine: Bool[Array, "*L"]) -> tuple[Array, Array]:
    """(w, ok) with zeros where it is not."""
    ok = fine & jnp.all(jnp.abs(w) < LARGEST_OUTPUT, axis=(-2, -1))  # false for NaN too
    return jnp.where(ok[..., None, None], w, 0.0), ok


def solve_many(
    solver: Solver, values: Values, count: int
) -> tuple[Float[Array, "L n d"], Bool[Array, " L"]]:
    """A solver's results for values {name: (L,)}, L = `count`."""
    if isinstance(solver, ManySolver):
        return solver.many(values, count)
    return jax.vmap(solver, axis_size=count)(values)


def why(solver: Solver, values: Values) -> list[str]:
    """Why it fails at each of values {name: (L,)}, "" where it does not."""
    if isinstance(solver, TellingSolver):
        return solver.why(values)
    count = len(next(iter(values.values())))
    return ["" if ok else UNKNOWN for ok in np.asarray(solve_many(solver, values, count)[1])]


def by_lanes(solve: Callable[[Any], Any], given: Any) -> Any:
    """What `solve` makes of the lanes of `given`, some at a time: any number is one program."""
    count = len(jax.tree.leaves(given)[0])
    size = 1 if count == 1 else LANES

    def some(first: int):
        filled = jax.tree.map(lambda leaf: _fill(leaf[first : first + size], size), given)
        return jax.tree.map(lambda leaf: np.asarray(leaf)[: count - first], solve(filled))

    pieces = [some(first) for first in range(0, count, size)]
    return jax.tree.map(lambda *leaves: np.concatenate(leaves), *pieces)


def _fill(leaf, lanes: int):
    return np.concatenate([leaf, np.repeat(leaf[-1:], lanes - len(leaf), axis=0)])


def guarded_reverse(solve: Solve) -> Solve:
    """As `guarded`, and cotangents of failed solves are zero; jvp works as well.

    The linearisation is masked on the side of the inputs too, where 0 · NaN would come out. It
    keeps what the backward pass needs, so that `guarded` is faster for forward derivatives.
    """
    safe = guarded(solve)

    @jax.custom_jvp
    def masked(values):
        w, ok = safe(values)
        return w, ok.astype(float)  # a float, since a tangent is due for every result

    @masked.defjvp
    def _(primals, tangents):
        w, push, ok = jax.linearize(safe, primals[0], has_aux=True)
        directions = jax.tree.map(lambda v: jnp.where(ok, v, 0.0), tangents[0])
        fine = ok.astype(float)
        return (w, fine), (push(directions), jnp.zeros_like(fine))

    return _with_flag(masked)


def guarded_vjp(solve: Solve, by_jacobian: bool = False) -> Solve:
    """As `guarded_reverse`, for a solve that has no jvp, or (`by_jacobian`) only a jvp.

    By Jacobian, `solve` may be one of many values (L,) at once.
    """
    safe = guarded(solve)

    @jax.custom_vjp
    def masked(values):
        w, ok = safe(values)
        return w, ok.astype(float)

    def forward(values):
        if by_jacobian:
            w, ok = safe(values)
            pull = jax.tree_util.Partial(_pulled, _slopes(lambda v: safe(v)[0], values))
        else:
            w, pull, ok = jax.vjp(safe, values, has_aux=True)
        return (w, ok.astype(float)), (pull, ok)

    def backward(residuals, cotangents):
        pull, ok = residuals
        (gradient,) = pull(cotangents[0])
        return (jax.tree.map(lambda g: jnp.where(ok, g, 0.0), gradient),)

    masked.defvjp(forward, backward)
    return _with_flag(masked)


def _slopes(solve, values: Values) -> Values:
    """∂w/∂ each value, of one solve or of many, in which lanes do not see each other."""

    def along(direction):  # the same in every lane
        ways = {name: jnp.full_like(values[name], direction[i]) for i, name in enumerate(values)}
        return jax.jvp(solve, (values,), (ways,))[1]

    return dict(zip(values, jax.vmap(along)(jnp.eye(len(values))), strict=True))


def _pulled(slopes: Values, c: Array) -> tuple[Values]:
    return (jax.tree.map(lambda slope: jnp.sum(slope * c, axis=(-2, -1)), slopes),)


def _with_flag(masked: Callable[[Values], tuple[Array, Array]]) -> Solve:
    def call(values):
        w, fine = masked({name: jnp.asarray(value, float) for name, value in values.items()})
        return w, fine > 0.5

    return call


def as_vector(result: Any, names: tuple[str, ...], what: str) -> Array:
    """What a user's function returned, as one vector in the order of `names`."""
    wanted = f"`{what}` needs {len(names)} numbers, for {', '.join(names)}"
    if isinstance(result, Mapping):
        missing, unknown = set(names) - set(result), set(result) - set(names)
        if missing or unknown:
            raise InputError(
                f"{wanted}: got a mapping without {sorted(missing)} and with unknown "
                f"{sorted(map(str, unknown))}."
            )
        result = [result[name] for name in names]
    if isinstance(result, (list, tuple)):
        shapes = [jnp.shape(item) for item in result]
        if any(shapes):
            raise InputError(f"{wanted}: got a sequence of shapes {shapes}; give scalars.")
        result = jnp.stack([jnp.asarray(item, float) for item in result]) if result else np.zeros(0)
    vector = jnp.asarray(result, float)
    if vector.ndim == 0 and len(names) == 1:
        vector = vector[None]
    if vector.shape != (len(names),):
        raise InputError(f"{wanted}: wanted shape ({len(names)},), got {vector.shape}.")
    return vector


def try_out(
    what: str, function: Callable[..., Any], shapes: tuple[Any, ...], parameters, constants
) -> Any:
    """Call function(*shapes, p) on shapes alone, and say what is wrong if it cannot be called."""
    unknown = dict.fromkeys(parameters.names, jax.ShapeDtypeStruct((), float))
    try:
        return jax.eval_shape(
            lambda p, *rest: function(*rest, {**constants, **p}), unknown, *shapes
        )
    except InputError:
        raise
    except KeyError as error:
        known = ", ".join((*parameters.names, *constants))
        raise InputError(f"`{what}` asks for {error}, which is not known: p has {known}.") from None
    except Exception as error:
        raise InputError(
            f"`{what}` could not be called: {type(error).__name__}: {error}\nIt must be written "
            "with jax.numpy, and with jnp.where in place of `if` on parameters, states or time."
        ) from error


def check_names(what: str, names: Iterable[Any], taken: Mapping[str, str]) -> tuple[str, ...]:
    """Non-empty distinct strings that are not `taken` (name → what it is) already."""
    if isinstance(names, str):
        raise InputError(f"`{what}` needs a sequence of names: got the string {names!r}.")
    try:
        names = tuple(names)
    except TypeError:
        raise InputError(f"`{what}` needs a sequence of names: got {names!r}.") from None
    for name in names:
        if not isinstance(name, str) or not name:
            raise InputError(f"a name in `{what}` must be a non-empty string: got {name!r}.")
        if names.count(name) > 1:
            raise InputError(f"`{what}` has {name!r} more than once: names must differ.")
        if name in taken:
            raise InputError(f"`{what}` has {name!r}, which is already {taken[name]}: rename one.")
    return names


def as_mapping(what: str, given: Any) -> dict[str, Any]:
    """A copy; {} for None."""
    if given is not None and not isinstance(given, Mapping):
        raise InputError(f"`{what}` needs a mapping from name to number: got {given!r}.")
    return dict(given or {})


def as_constants(constants: Mapping[str, float] | None, parameters: Parameters) -> dict[str, float]:
    """Named finite numbers, none of them named like a parameter."""
    constants = as_mapping("constants", constants)
    check_names("constants", constants, dict.fromkeys(parameters.names, "a parameter"))
    return {name: finite_number(f"constants[{name!r}]", v) for name, v in constants.items()}


def natural_values(parameters: Parameters, given: Mapping[str, float] | None) -> dict[str, float]:
    """Natural values by name; those not given are the bijector's image of θ = 0."""
    given = as_mapping("parameters", given)
    unknown = [name for name in given if name not in parameters.names]
    if unknown:
        raise InputError(
            f"unknown parameters {unknown}: the model has {', '.join(parameters.names)}; constants "
            "and states are changed by `do`."
        )
    for name, value in given.items():
        if np.ndim(value) != 0 or not np.isfinite(as_numbers(name, value)):
            raise InputError(f"parameter {name!r} needs one finite number: got {value!r}.")
    centre = parameters.constrain(jnp.zeros(len(parameters)))
    return {name: float(given.get(name, centre[name])) for name in parameters.names}


def check_mode(mode: str) -> None:
    """Refuse a derivative that does not exist."""
    if mode not in MODES:
        raise InputError(f"`mode` needs one of {', '.join(MODES)}: got {mode!r}.")


def as_covariates(x) -> np.ndarray | None:
    """Rows of finite covariates, for a model that is no ODE."""
    if x is None:
        return None
    x = np.atleast_1d(as_numbers("x", x))
    if x.ndim > 2 or x.size == 0 or not np.all(np.isfinite(x)):
        raise InputError(
            "`x` needs finite covariates, shape (n,) or (n, k) with n ≥ 1, or None: got shape "
            f"{x.shape}."
        )
    return x


def check_timeless(kind: str, changes: Iterable[Any], parameters, constants) -> None:
    """Refuse interventions that only a model with time and states can follow."""
    changes = tuple(changes)
    for change in changes:
        if change.at is not None or change.hold:
            raise InputError(
                f"a {kind} has no time and no states: `at` and `hold` are for an ODEModel; use "
                "set, scale or shift of parameters and constants."
            )
    check_changed_names(changes, (*parameters, *constants), ())
