"""Simulators that know nothing of JAX, at the top of a module so that workers can import them."""

import os
import time

import numpy as np
from scipy.integrate import solve_ivp


def decay(x, p):
    """a exp(−k x) + c."""
    return p["a"] * np.exp(-p["k"] * x) + p["c"]


def decay_jacobian(x, p):
    """In a and k, in this order."""
    shape = np.exp(-p["k"] * x)
    return np.stack([shape, -x * p["a"] * shape], axis=-1)[:, None, :]


def decay_batch(x, p):
    assert p["a"].ndim == 1
    return (p["a"] * np.exp(-np.multiply.outer(x, p["k"])) + p["c"]).T[..., None]


def decay_batch_jacobian(x, p):
    shape = np.exp(-np.multiply.outer(p["k"], x))
    return np.stack([shape, -x * p["a"][:, None] * shape], axis=-1)[:, :, None, :]


def lotka_volterra(x, p):
    def slope(t, u):
        return [
            p["alpha"] * u[0] - p["beta"] * u[0] * u[1],
            p["delta"] * u[0] * u[1] - p["gamma"] * u[1],
        ]

    start = [p["prey_0"], p["predator_0"]]
    solved = solve_ivp(slope, (0.0, x[-1]), start, t_eval=x, rtol=1e-10, atol=1e-10)
    return solved.y.T


def moody(x, p):
    """Fails in every way, by the value of k."""
    kind = int(p["k"])
    if kind == 1:
        raise ValueError(f"no step size below {p['a']:.8f} was small enough")
    if kind == 2:
        return np.full(len(x), np.nan)
    if kind == 3:
        os._exit(1)
    if kind == 4:
        time.sleep(60)
    return p["a"] * x


def moody_batch(x, p):
    if (p["k"] >= 1).any():
        raise RuntimeError("one of them is bad")
    return np.multiply.outer(p["a"], x)[..., None]


def square(number):
    return number**2
