r"""Two schemes for du = f(u) dx + g dW with constant g, for which Itô and Stratonovich agree.

Heun's:             v = u_n + f(u_n) h + g dW,     u_{n+1} = u_n + 1/2 (f(u_n) + f(v)) h + g dW
reversible Heun's:  z_{n+1} = 2 u_n - z_n + f(z_n) h + g dW,
                    u_{n+1} = u_n + 1/2 (f(z_n) + f(z_{n+1})) h + g dW,              z_0 = u_0

Both are of second order without noise. The reversible one carries a second solution z - u, whose
sign flips at each step and whose size follows e' = -f'(u) e: it grows without limit where u decays,
however small the step is, so its answers hold for a limited time only.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]
Drift = Callable[[Array], Array]


def heun(drift: Drift, diffusion: ArrayLike, start: ArrayLike, dW: Array, h: float) -> Array:
    """Path (steps + 1, ..., k) from `start` (..., k) along the increments `dW` (steps, ..., k)."""
    u = np.asarray(start, dtype=np.float64)
    path = [u]
    for kick in np.asarray(diffusion) * dW:
        f = drift(u)
        u = u + 0.5 * h * (f + drift(u + h * f + kick)) + kick
        path.append(u)
    return np.stack(path)


def reversible_heun(
    drift: Drift, diffusion: ArrayLike, start: ArrayLike, dW: Array, h: float
) -> Array:
    """As `heun`, one drift per step; see above for how long to trust it."""
    u = z = np.asarray(start, dtype=np.float64)
    f = drift(z)
    path = [u]
    for kick in np.asarray(diffusion) * dW:
        z = 2.0 * u - z + h * f + kick
        f_next = drift(z)
        u = u + 0.5 * h * (f + f_next) + kick
        f = f_next
        path.append(u)
    return np.stack(path)


SCHEMES = {"heun": heun, "reversible-heun": reversible_heun}
