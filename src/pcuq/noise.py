"""Measurement noise: the law of a datum y given the model's output w.

A noise model says, for one output, what the density of y given (w, s) is, s being its scale. It is
written elementwise, so that it broadcasts over rows and particles. Noise that is additive after a
transform g (the identity, log or log10) has g(y) = g(w) + s ε, and kernels act on g(y):

    Gaussian     ε ~ Normal(0, 1)            LogNormal   the same with g = log (or log10)
    StudentT     ε ~ t(df)                   Laplace     ε ~ Laplace(0, 1)
    Poisson      y ~ Poisson(w)              NegativeBinomial   mean w, variance w + w²/s
    CustomNoise  any density that the user writes
    JointNoise   any law of the whole output vector: Monte Carlo only

The scale is a number, one per output (d,), one per row and output (n, d), the name of a parameter
or a list of names and numbers (one per output), or a callable (x, w, p) -> scalar or (d,) with w
the model's outputs and p the parameters and constants, both by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import gammaln
from jaxtyping import Array

from pcuq._given import as_numbers
from pcuq.errors import InputError

TRANSFORMS: dict[str, tuple[Callable, Callable]] = {
    "identity": (lambda y: y, lambda z: z),
    "log": (jnp.log, jnp.exp),
    "log10": (lambda y: jnp.log(y) / math.log(10), lambda z: jnp.exp(z * math.log(10))),
}

# An output this far below zero, relative to its largest magnitude, is zero but for the solver.
ROUNDING = 1e-4
LEAST_COUNT = 1e-10  # a mean of counts that is as good as zero, and has a logarithm


@dataclass(frozen=True, eq=False)
class Noise:
    """What every noise model has: a scale and the transform after which kernels act."""

    scale: Any = 1.0
    transform: str = "identity"

    discrete = False
    joint = False

    def __post_init__(self):
        if self.transform not in TRANSFORMS:
            raise InputError(
                f"`transform` of noise needs one of {', '.join(TRANSFORMS)}: "
                f"got {self.transform!r}."
            )
        if self.discrete and self.transform != "identity":
            raise InputError(
                f"counts have no transform, which {type(self).__name__} was given "
                f"({self.transform!r}): leave it out, or use continuous noise."
            )

    def forward(self, y):
        """g(y): to the scale on which the noise is additive and kernels act."""
        return TRANSFORMS[self.transform][0](y)

    def inverse(self, z):
        return TRANSFORMS[self.transform][1](z)

    def measurable(self, w: Array) -> tuple[Array, Array]:
        """Means w (K, …) as the noise can have them, and whether it can.

        Those of counts may be zero, or below it by the solver's error.
        """
        if self.discrete:
            fine = w >= -ROUNDING * jnp.max(jnp.abs(w), axis=0)
            return jnp.where(fine, jnp.maximum(w, LEAST_COUNT), 1.0), fine
        if self.transform != "identity":
            return jnp.where(w > 0, w, 1.0), w > 0
        return w, jnp.ones_like(w, bool)

    def log_density(self, z, location, s):
        """log density of z = g(y) given g(w) = location; a mass function for counts."""
        raise NotImplementedError

    def log_prob(self, y, w, s):
        """log p(y | w, s) in the data's own units: the Jacobian of g included."""
        log_slope = {
            "identity": lambda y: jnp.zeros_like(y),
            "log": lambda y: -jnp.log(y),
            "log10": lambda y: -jnp.log(y) - math.log(math.log(10)),
        }[self.transform](y)
        return self.log_density(self.forward(y), self.forward(w), s) + log_slope

    def sample(self, key: Array, w: Array, s: Array) -> Array:
        """One draw of y for every entry of w."""
        raise NotImplementedError

    def sd(self, w, s):
        """Standard deviation of g(y), or its scale where that may be infinite: sets ℓ_Y."""
        return s


@dataclass(frozen=True, eq=False)
class LocationScale(Noise):
    """g(y) = g(w) + s ε with the law of ε fixed."""

    def standard_log_density(self, z):
        """log density of ε."""
        raise NotImplementedError

    def standard_sample(self, key, shape):
        """Draws of ε."""
        raise NotImplementedError

    def log_density(self, z, location, s):
        return self.standard_log_density((z - location) / s) - jnp.log(s)

    def sample(self, key, w, s):
        draw = self.standard_sample(key, jnp.broadcast_shapes(jnp.shape(w), jnp.shape(s)))
        return self.inverse(self.forward(w) + s * draw)


@dataclass(frozen=True, eq=False)
class Gaussian(LocationScale):
    """y = w + s ε, ε ~ Normal(0, 1)."""

    def standard_log_density(self, z):
        return -0.5 * z**2 - 0.5 * math.log(2 * math.pi)

    def standard_sample(self, key, shape):
        return jax.random.normal(key, shape)


@dataclass(frozen=True, eq=False)
class LogNormal(Gaussian):
    """log y = log w + s ε: w is the median of y, and y and w must be positive."""

    transform: str = "log"


@dataclass(frozen=True, eq=False)
class Laplace(LocationScale):
    """y = w + s ε, ε ~ Laplace(0, 1): s is the mean absolute deviation."""

    def standard_log_density(self, z):
        return -jnp.abs(z) - math.log(2)

    def standard_sample(self, key, shape):
        return jax.random.laplace(key, shape)

    def sd(self, w, s):
        return math.sqrt(2) * s


@dataclass(frozen=True, eq=False)
class StudentT(LocationScale):
    """y = w + s ε, ε ~ t(df): heavy tails."""

    df: float = 4.0

    def __post_init__(self):
        super().__post_init__()
        if np.ndim(self.df) or not 1 <= as_numbers("df", self.df) < np.inf:
            raise InputError(f"`df` of StudentT needs to be at least 1: got {self.df}.")

    def standard_log_density(self, z):
        df = self.df
        constant = math.lgamma((df + 1) / 2) - math.lgamma(df / 2) - 0.5 * math.log(df * math.pi)
        return constant - (df + 1) / 2 * jnp.log1p(z**2 / df)

    def standard_sample(self, key, shape):
        return jax.random.t(key, self.df, shape)


@dataclass(frozen=True, eq=False)
class Poisson(Noise):
    """y ~ Poisson(w): counts; the scale plays no part."""

    discrete = True

    def log_density(self, z, location, s):
        return z * jnp.log(location) - location - gammaln(z + 1)

    def sample(self, key, w, s):
        return jax.random.poisson(key, w).astype(jnp.result_type(float))

    def sd(self, w, s):
        return jnp.sqrt(w)


@dataclass(frozen=True, eq=False)
class NegativeBinomial(Noise):
    """Counts with mean w and variance w + w²/s: s is the concentration, Poisson as s → ∞."""

    discrete = True

    def log_density(self, z, location, s):
        return (
            gammaln(z + s)
            - gammaln(s)
            - gammaln(z + 1)
            + s * (jnp.log(s) - jnp.log(s + location))
            + z * (jnp.log(location) - jnp.log(s + location))
        )

    def sample(self, key, w, s):
        rate_key, count_key = jax.random.split(key)
        shape = jnp.broadcast_shapes(jnp.shape(w), jnp.shape(s))
        rate = jax.random.gamma(rate_key, jnp.broadcast_to(s, shape)) * w / s
        return jax.random.poisson(count_key, rate).astype(rate.dtype)

    def sd(self, w, s):
        return jnp.sqrt(w + w**2 / s)


@dataclass(frozen=True, eq=False)
class CustomNoise(Noise):
    """A density that the user writes: `log_pdf(y, w, s)`, elementwise and differentiable.

    With a `transform`, y and w are on its scale, in `log_pdf` and in `draw`.

    Most of its mass must lie within a few dozen s of w (a few dozen sd for counts, whose sd
    `standard_deviation(w, s)` gives). `draw(key, w, s)` is needed only for noisy predictions;
    without it they are drawn from the density on its quadrature nodes.
    """

    log_pdf: Callable[[Array, Array, Array], Array] | None = None
    draw: Callable[[Array, Array, Array], Array] | None = None
    standard_deviation: Callable[[Array, Array], Array] | None = None
    counts: bool = False

    def __post_init__(self):
        super().__post_init__()
        if not callable(self.log_pdf):
            raise InputError("CustomNoise needs `log_pdf`, a callable (y, w, s) -> log density.")

    @property
    def discrete(self) -> bool:
        return self.counts

    def log_density(self, z, location, s):
        assert self.log_pdf is not None
        return self.log_pdf(z, location, s)

    def sample(self, key, w, s):
        if self.draw is not None:
            return self.inverse(self.draw(key, self.forward(w), s))
        from pcuq.quadrature import nodes_and_weights  # a layer above: only this fallback needs it

        location = jnp.broadcast_to(
            self.forward(w), jnp.broadcast_shapes(jnp.shape(w), jnp.shape(s))
        )
        nodes, weights = nodes_and_weights(self, location, jnp.broadcast_to(s, location.shape))
        choice = jax.random.categorical(key, jnp.log(weights), axis=-1)
        return self.inverse(jnp.take_along_axis(nodes, choice[..., None], axis=-1)[..., 0])

    def sd(self, w, s):
        return s if self.standard_deviation is None else self.standard_deviation(w, s)


@dataclass(frozen=True, eq=False)
class JointNoise(Noise):
    """Noise that is dependent over outputs: `draw(key, w, s) -> (d,)` for one row, in its units.

    `log_pdf(y, w, s) -> scalar` is needed for the score-function gradient and for Bayes. With
    `draw` differentiable in w and s, reparametrisation needs nothing else.
    """

    draw: Callable[[Array, Array, Array], Array] | None = None
    log_pdf: Callable[[Array, Array, Array], Array] | None = None

    joint = True

    def __post_init__(self):
        super().__post_init__()
        if not callable(self.draw):
            raise InputError("JointNoise needs `draw`, a callable (key, w, s) -> y of one row.")

    def sample(self, key, w, s):
        assert self.draw is not None
        rows = w.reshape(-1, w.shape[-1])
        scales = jnp.broadcast_to(s, w.shape).reshape(rows.shape)
        draws = jax.vmap(self.draw)(jax.random.split(key, len(rows)), rows, scales)
        return draws.reshape(w.shape)

    def log_prob(self, y, w, s):
        if self.log_pdf is None:
            raise InputError("a likelihood under JointNoise needs its `log_pdf`: give one.")
        return jnp.vectorize(self.log_pdf, signature="(d),(d),(d)->()")(y, w, s)


def as_noise(noise) -> Noise | tuple[Noise, ...]:
    """A noise model, one per output, or anything that is a scale of Gaussian noise."""
    if isinstance(noise, Noise):
        return noise
    if isinstance(noise, (list, tuple)) and any(isinstance(part, Noise) for part in noise):
        if not all(isinstance(part, Noise) and not part.joint for part in noise):
            raise InputError(
                "`noise` with one model per output needs a noise model for every output, none of "
                "them a JointNoise."
            )
        return tuple(noise)
    if noise is None or isinstance(noise, dict):
        raise InputError(
            "`noise` needs an sd, one per output, one per row and output, a parameter's name or "
            f"names, or a noise model such as pcuq.StudentT(scale=1.0): got {noise!r}."
        )
    if isinstance(noise, (list, tuple, np.ndarray)) and np.size(noise) == 0:
        raise InputError("`noise` is empty: give an sd, one per output, or a noise model.")
    return Gaussian(noise)
