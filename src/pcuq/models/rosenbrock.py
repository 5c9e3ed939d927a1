"""One step for stiff models that needs no iteration: Rodas, a Rosenbrock method of order 4.

With J = ∂f/∂u and W = 1/(γ h) − J at the start of a step, each stage solves one linear system,

    W k_i = f(t + c_i h, u + Σ_{j<i} a_ij k_j) + (1/h) Σ_{j<i} g_ij k_j + h d_i ∂f/∂t,

and u ← u + Σ_j a_6j k_j + k_6, of which k_6 estimates the error. It is L-stable: what decays faster
than a step is long is gone after it. On a frozen mesh the result is a smooth function of the
parameters. Coefficients: Hairer and Wanner, Solving Ordinary Differential Equations II, IV.10.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

Slope = Callable[[Any, Array], Array]  # (t, u) → du/dt
GAMMA = 0.25
NODES = np.array([0.0, 0.386, 0.21, 0.63, 1.0, 1.0])
TIME = (0.25, -0.1043, 0.1035, -0.0362, 0.0, 0.0)
_FIFTH = (1.221224509226641, 6.019134481288629, 12.53708332932087, -0.6878860361058950)
POSITIONS = (
    (),
    (1.544,),
    (0.9466785280815826, 0.2557011698983284),
    (3.314825187068521, 2.896124015972201, 0.9986419139977817),
    _FIFTH,
    (*_FIFTH, 1.0),
)
COUPLINGS = (
    (),
    (-5.6688,),
    (-2.430093356833875, -0.2063599157091915),
    (-0.1073529058151375, -9.594562251023355, -20.47028614809616),
    (7.496443313967647, -10.24680431464352, -33.99990352819905, 11.70890893206160),
    (
        8.083246795921522,
        -7.981132988064893,
        -31.52159432874371,
        16.31930543123136,
        -6.058818238834054,
    ),
)


def step(f: Slope, u: Array, times: Array, h: Array) -> Array:
    """One step of length h, with stages at `times`, from a state (k,), or from L of them (k, L)."""
    return step_and_error(f, u, times, h)[0]


def step_and_error(f: Slope, u: Array, times: Array, h: Array) -> tuple[Array, Array]:
    """The step and how far a method of order 3 is from it."""

    def first(u):
        return f(times[0], u)

    inverse = inverted(_diagonal(u) / (GAMMA * h) - jax.lax.stop_gradient(_jacobian(first, u)))

    def times_w(k):
        return k / (GAMMA * h) - jax.jvp(first, (u,), (k,))[1]

    def solve(b):
        # Differentiated as W dk = db − dW k, which needs no derivative of the whole inverse.
        return jax.lax.custom_linear_solve(
            times_w,
            b,
            lambda _, b: _product(inverse, b),
            lambda _, b: _product(inverse.swapaxes(0, 1), b),
        )

    slope, in_time = jax.jvp(lambda t: f(t, u), (times[0],), (jnp.ones_like(times[0]),))
    k: list[Array] = []
    at = u
    for i, (position, coupling) in enumerate(zip(POSITIONS, COUPLINGS, strict=True)):
        if i > 0:
            at = u + _combine(position, k)
            slope = f(times[i], at) + _combine(coupling, k) / h
        k.append(solve(slope + (h * TIME[i]) * in_time if TIME[i] else slope))
    return at + k[-1], k[-1]


def _diagonal(u: Array) -> Array:
    """Ones, (k, k), or (k, k, 1) for states side by side."""
    return jnp.eye(len(u)).reshape(len(u), len(u), *[1] * (u.ndim - 1))


def _jacobian(function: Callable[[Array], Array], u: Array) -> Array:
    """∂f_i/∂u_j, (k, k) or (k, k, L)."""
    ways = jnp.broadcast_to(_diagonal(u), (len(u), *u.shape))
    return jax.vmap(lambda way: jax.jvp(function, (u,), (way,))[1], out_axes=1)(ways)


# Loops that stay loops: unrolled, XLA would compute the parts of a product over and over.


def _product(matrix: Array, b: Array) -> Array:
    """A b, column by column."""

    def add(j, total):
        return total + _at(matrix, j, 1) * _at(b, j)

    return jax.lax.fori_loop(0, len(b), add, jnp.zeros_like(b))


def inverted(matrix: Array) -> Array:
    """By Gauss and Jordan, with pivots on the diagonal.

    There 1/(γ h) and what decays add up, and a mesh is tried against accurate solves before it is
    used. LAPACK takes longer for matrices this small, and two threads that call it through JAX can
    wait for each other for ever.
    """
    number = jnp.arange(len(matrix)).reshape(-1, *[1] * (matrix.ndim - 2))

    def eliminate(j, matrix):
        here, pivot_row = number == j, _at(matrix, j)
        row = jnp.where(here, 1.0, pivot_row) / _at(pivot_row, j)
        column = jnp.where(here, 0.0, _at(matrix, j, 1))
        rest = jnp.where(here, 0.0, matrix) - column[:, None] * row
        return jnp.where(here[:, None], row, rest)

    return jax.lax.fori_loop(0, len(matrix), eliminate, matrix)


def _at(array: Array, j, axis: int = 0) -> Array:
    return jax.lax.dynamic_index_in_dim(array, j, axis, keepdims=False)


def _combine(coefficients: tuple[float, ...], k: list[Array]) -> Array:
    total = coefficients[0] * k[0]
    for c, one in zip(coefficients[1:], k[1:], strict=True):
        total = total + c * one
    return total
