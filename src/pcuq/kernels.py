"""Kernels on data: k((x, y), (x', y')) = k_X(x, x') Π_c k_c((y_c − y'_c) / ℓ_c).

A kernel is defined on one pair of one output, as a function of the scaled difference r, with
k(0) = 1; outputs combine by a product or, with `combine="sum"`, each observed entry is a datum of
its own. k_X is Gaussian, exp(−|x − x'|² / (2 ℓ_X²)), or 1[x = x'] in the limit `lengthscale_x=0`.

    GaussianKernel            exp(−r²/2)
    GaussianMixtureKernel     Σ_k a_k exp(−r²/(2 m_k²)),   Σ a_k = 1
    InverseMultiquadricKernel (1 + r²)^(−1/2)
    RationalQuadraticKernel   (1 + r²/(2α))^(−α)
    MaternKernel              ν = 3/2 or 5/2
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from pcuq._given import as_numbers
from pcuq.errors import InputError


@dataclass(frozen=True, eq=False)
class Kernel:
    """`lengthscale_y`: None (set from the noise), a number, or one per output.

    "residuals" sets it from what the starting fit leaves unexplained: three times its root mean
    square, and at least the noise.
    """

    lengthscale_y: Any = None
    lengthscale_x: float = 0.0
    combine: str = "product"

    def __post_init__(self):
        if self.combine not in ("product", "sum"):
            raise InputError(f"`combine` needs 'product' or 'sum': got {self.combine!r}.")
        across = _numbers(self.lengthscale_x)
        if across is None or across.ndim != 0 or not np.isfinite(across):
            raise InputError(f"`lengthscale_x` needs one finite number: got {self.lengthscale_x}.")
        if across < 0:
            raise InputError(
                f"`lengthscale_x` must not be negative: got {self.lengthscale_x}; 0 is the limit "
                "in which only data at the same covariate are compared."
            )
        if self.lengthscale_y is not None and not self.by_residuals:
            along = _numbers(self.lengthscale_y)
            if along is None or along.ndim > 1 or not np.all(np.isfinite(along) & (along > 0)):
                raise InputError(
                    "`lengthscale_y` needs a positive number, or one per output: "
                    f"got {self.lengthscale_y}; 'residuals' sets it from the starting fit."
                )

    @property
    def by_residuals(self) -> bool:
        """Whether the width is left to what a starting fit cannot explain."""
        return isinstance(self.lengthscale_y, str) and self.lengthscale_y == "residuals"

    def profile(self, r):
        """k as a function of the scaled difference of one output."""
        raise NotImplementedError

    @property
    def gaussian_terms(self) -> tuple[np.ndarray, np.ndarray] | None:
        """(weights, widths) where the kernel is a sum of Gaussians: closed forms exist then."""
        return None


def _positive(numbers: np.ndarray) -> np.ndarray:
    return np.isfinite(numbers) & (numbers > 0)


def _numbers(given) -> np.ndarray | None:
    """As floats, None where they are not numbers."""
    try:
        return np.asarray(given, dtype=float)
    except (TypeError, ValueError):
        return None


@dataclass(frozen=True, eq=False)
class GaussianKernel(Kernel):
    """k(r) = exp(−r²/2)."""

    def profile(self, r):
        return jnp.exp(-0.5 * r**2)

    @property
    def gaussian_terms(self):
        return np.ones(1), np.ones(1)


@dataclass(frozen=True, eq=False)
class GaussianMixtureKernel(Kernel):
    """k(r) = Σ_k a_k exp(−r²/(2 m_k²)): several widths at once, as multiples m_k of ℓ."""

    multiples: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0)
    weights: tuple[float, ...] | None = None

    def __post_init__(self):
        super().__post_init__()
        multiples = as_numbers("multiples", self.multiples)
        if multiples.ndim != 1 or not len(multiples) or not np.all(_positive(multiples)):
            raise InputError(f"`multiples` needs positive numbers: got {self.multiples}.")
        weights = as_numbers("weights", np.ones(1) if self.weights is None else self.weights)
        if self.weights is not None and (
            weights.shape != multiples.shape or not np.all(_positive(weights))
        ):
            raise InputError(
                f"`weights` needs one positive number per multiple: got {self.weights}."
            )

    def profile(self, r):
        weights, widths = self.gaussian_terms
        return jnp.sum(weights * jnp.exp(-0.5 * (r[..., None] / widths) ** 2), axis=-1)

    @property
    def gaussian_terms(self):
        widths = np.asarray(self.multiples, dtype=float)
        weights = np.ones(len(widths)) if self.weights is None else np.asarray(self.weights, float)
        return weights / weights.sum(), widths


@dataclass(frozen=True, eq=False)
class InverseMultiquadricKernel(Kernel):
    """k(r) = (1 + r²)^(−1/2)."""

    def profile(self, r):
        return 1.0 / jnp.sqrt(1.0 + r**2)


@dataclass(frozen=True, eq=False)
class RationalQuadraticKernel(Kernel):
    """k(r) = (1 + r²/(2α))^(−α)."""

    alpha: float = 1.0

    def __post_init__(self):
        super().__post_init__()
        if np.ndim(self.alpha) or not _positive(as_numbers("alpha", self.alpha)):
            raise InputError(f"`alpha` must be positive: got {self.alpha}.")

    def profile(self, r):
        return (1.0 + r**2 / (2 * self.alpha)) ** (-self.alpha)


@dataclass(frozen=True, eq=False)
class MaternKernel(Kernel):
    """ν = 3/2: (1 + a) exp(−a), a = √3 |r|;   ν = 5/2: (1 + a + a²/3) exp(−a), a = √5 |r|."""

    nu: float = 1.5

    def __post_init__(self):
        super().__post_init__()
        if self.nu not in (1.5, 2.5):
            raise InputError(f"`nu` needs 1.5 or 2.5: got {self.nu}.")

    def profile(self, r):
        a = math.sqrt(2 * self.nu) * jnp.abs(r)
        polynomial = 1 + a if self.nu == 1.5 else 1 + a + a**2 / 3
        return polynomial * jnp.exp(-a)
