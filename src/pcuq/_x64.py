"""Numerics run in 64 bits whatever the caller's global JAX flag says."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import jax

P = ParamSpec("P")
R = TypeVar("R")


def x64(function: Callable[P, R]) -> Callable[P, R]:
    """Run `function` with 64-bit JAX types, and leave the caller's setting as it was.

    The setting is a thread's own: work for other threads is wrapped as well.
    """

    @functools.wraps(function)
    def in_x64(*args: P.args, **kwargs: P.kwargs) -> R:
        with jax.enable_x64(True):
            return function(*args, **kwargs)

    return in_x64


def x64_gradient(function: Callable[..., R], forward_mode: bool = False) -> Callable[..., R]:
    """`function` of float64 arrays, whose reverse derivative also runs in 64 bits.

    A derivative is taken when the caller asks for it, outside the function and its setting.
    `forward_mode`: for a scalar function of one vector, part of which has no reverse derivative.
    """
    differentiable = jax.custom_vjp(function)

    def forward(*args):
        return jax.vjp(function, *args)

    def backward(pull, cotangent):
        with jax.enable_x64(True):
            return pull(cotangent)

    def forward_by_columns(vector):
        directions = jax.numpy.eye(len(vector))
        push = jax.vmap(lambda v: jax.jvp(function, (vector,), (v,)), out_axes=(None, 0))
        return push(directions)

    def backward_by_columns(gradient, cotangent):
        with jax.enable_x64(True):
            return (cotangent * gradient,)

    if forward_mode:
        differentiable.defvjp(forward_by_columns, backward_by_columns)
    else:
        differentiable.defvjp(forward, backward)
    return differentiable
