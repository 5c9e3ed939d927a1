"""The kernel integrated over the noise.

    e(y; θ, x)         = ∫ k(y, y') dP_θ(y' | x)
    e0(θ, x; ϑ, x')    = ∫∫ k(y, y') dP_θ(y | x) dP_ϑ(y' | x')

For noise that is independent over outputs both are products of one-dimensional factors, written
here as sums of logarithms over the entries (last axis k) of an atom:

* closed form: Gaussian noise, and a kernel that is a sum of Gaussians a_t exp(−r²/(2 ℓ_t²)):
      e_c = Σ_t a_t (ℓ_t²/(ℓ_t²+s²))^½ exp(−r²/(2(ℓ_t²+s²))),  e0_c with s_i² + s_j² for s²;
* tables: additive noise whose scale does not depend on θ. Either factor is a function of one
  difference, tabulated once by fine quadrature and interpolated: log e by cubic Hermite pieces in
  arsinh of the difference, so that what lies beyond the table is a power law;
* scale mixtures: Student t and Laplace noise of unknown scale is Gaussian with a random variance,
  and under such kernels a short sum of closed forms;
* quadrature: everything else; nodes and weights that are differentiable in w and s;
* Monte Carlo (`monte_carlo.py`): joint noise, and the unadjusted flow.

An embedding turns the predictions w, s of a particle's atoms into a *representation*, and evaluates
e and e0 on representations. Constants that belong to a (datum, atom) or an (atom, atom) pair are
kept apart, so that the pair sum can be cut into tiles along them.
"""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from scipy.interpolate import CubicSpline

from pcuq.design import Design
from pcuq.errors import InputError
from pcuq.kernels import Kernel
from pcuq.noise import Gaussian, LocationScale, LogNormal, Noise
from pcuq.pairs import tile_gradient
from pcuq.quadrature import convolve, node_count, nodes_and_weights, total_mass, variance_rule

MOST_TABLES = 64
TABLE_STEP = 0.01  # in arsinh(difference / width): relative error about 1e-8, more for little noise
TABLE_REACH = 1e4  # in widths; beyond, a power law
TINY = 1e-290  # keeps a logarithm finite where there is no overlap left


class Setting(NamedTuple):
    """What an embedding is made of: everything per atom and entry (M, k) that is known."""

    design: Design
    kernel: Kernel
    lengthscale: np.ndarray  # (M, k)
    scale: np.ndarray | None  # (M, k), None where the scale depends on θ


def make_embedding(
    design: Design,
    kernel: Kernel,
    noises: tuple[Noise, ...],
    lengthscale: np.ndarray,
    static_scale: np.ndarray | None,
    force: str | None = None,
):
    """The cheapest exact strategy for each kind of noise. `lengthscale` (d,), scale (n, d)."""
    scale = None
    if static_scale is not None:
        scale = np.where(design.mask, design.at_atoms(static_scale), 1.0)
    setting = Setting(design, kernel, lengthscale[design.columns], scale)
    of_kind: dict[Any, list[int]] = {}
    for column, noise in enumerate(noises):
        of_kind.setdefault(_kind(noise), []).append(column)
    parts = []
    for columns in of_kind.values():
        # To a part, outputs with noise of another kind are as if they were missing.
        mask = design.mask & np.isin(design.columns, columns)
        if not mask.any() and len(of_kind) > 1:
            continue
        own = setting._replace(design=design._replace(mask=mask))
        parts.append(_strategy(noises[columns[0]], own, force))
    return parts[0] if len(parts) == 1 else ByOutput(setting, parts)


def _kind(noise: Noise):
    """Noises of one kind share an embedding: they differ at most in scale and transform."""
    if type(noise) in (Gaussian, LogNormal):
        return Gaussian
    names = [field.name for field in fields(noise) if field.name not in ("scale", "transform")]
    return type(noise), *(getattr(noise, name) for name in names)


def _strategy(noise: Noise, setting: Setting, force: str | None):
    if noise.joint:
        raise InputError(
            "JointNoise has no exact embedding: use sampler='flow', which integrates by Monte "
            "Carlo, or noise that is independent over outputs."
        )
    gaussian = isinstance(noise, Gaussian) and setting.kernel.gaussian_terms is not None
    additive = isinstance(noise, LocationScale) and setting.scale is not None
    if force is not None:
        return STRATEGIES[force](setting, noise)
    if gaussian:
        return ClosedForm(setting, noise)
    if additive and _distinct_tables(setting) <= MOST_TABLES:
        return Table(setting, noise)
    if setting.kernel.gaussian_terms is not None and variance_rule(noise) is not None:
        return ScaleMixture(setting, noise)
    return Quadrature(setting, noise)


class Embedding:
    """`represent(w, s)` for one particle's atoms (M, k); e and e0 from logs over entries."""

    pair_size = data_size = 1  # numbers that one entry of a pair, or of a datum, takes

    noise: Noise  # of all outputs, or of those that its mask leaves

    def __init__(self, setting: Setting, noise: Noise | None = None):
        self.setting = setting
        if noise is not None:
            self.noise = noise

    def represent(self, w: Array, s: Array) -> Any:
        """A pytree of arrays with leading axis M; the scale is left out where it is known."""
        return (w,) if self.setting.scale is not None else (w, s)

    @property
    def _terms(self) -> tuple[np.ndarray, np.ndarray]:
        """(weights, widths) of a kernel that is a sum of Gaussians."""
        terms = self.setting.kernel.gaussian_terms
        assert terms is not None
        return terms

    def data_constants(self) -> Any:
        """A pytree of arrays with leading axis L, one entry per (datum, atom)."""
        return self.constants(self.setting.design.data_atoms)

    def pair_constants(self) -> Any:
        """A pytree of arrays with leading axis P, one entry per (atom, atom)."""
        return self.constants(self.setting.design.pair_left)

    def constants(self, atoms: np.ndarray) -> Any:
        """Both, where they depend on the one atom alone."""
        raise NotImplementedError

    def log_data(self, y, representation, constants):
        raise NotImplementedError

    def log_pair(self, left, right, constants):
        raise NotImplementedError

    def data(self, y, representation, constants):
        """e: (..., k) entries → (...)."""
        return jnp.exp(jnp.sum(self.log_data(y, representation, constants), axis=-1))

    def pair(self, left, right, constants):
        """e0: (..., k) entries → (...)."""
        return jnp.exp(jnp.sum(self.log_pair(left, right, constants), axis=-1))

    def pair_rows_and_gradient(self, a, b, weights, coefficients, constants):
        """Weighted row sums of a tile of e0 and their gradient in a; see `pairs.py`."""
        return tile_gradient(self, a, b, weights, coefficients, constants)

    def gaussian_pairs(self) -> tuple[np.ndarray, np.ndarray] | None:
        """(π (P, k), f (P,)) where e0 is f exp(−Σ_c π_c (w_c − w'_c)²), else None."""
        return None

    def scaled_gaussian_pairs(self) -> tuple[np.ndarray, np.ndarray] | None:
        """(ℓ² (P, k), mask (P, k)) where e0 is, over the entries of the mask,

            Π_c (ℓ_c²/S_c)^½ exp(−(w_c − w'_c)²/(2 S_c)),   S = ℓ² + σ² + σ'²,

        with a σ that comes with the particles; else None.
        """
        return None


class ClosedForm(Embedding):
    """Gaussian noise and a sum of Gaussians as kernel.

    log e_c = log Σ_t a_t (1 + S/ℓ_t²)^(−½) exp(−r²/(2(ℓ_t² + S))), S the summed noise variance.
    """

    def data_constants(self):
        atoms = self.setting.design.data_atoms
        return self._constants(atoms, lambda s: s[atoms] ** 2)

    def pair_constants(self):
        left, right = self.setting.design.pair_left, self.setting.design.pair_right
        return self._constants(left, lambda s: s[left] ** 2 + s[right] ** 2)

    def _constants(self, atoms, variance):
        weights, widths = self._terms
        mask = self.setting.design.mask[atoms][..., None]
        length2 = (self.setting.lengthscale[atoms][..., None] * widths) ** 2
        if self.setting.scale is None:
            return {"length2": length2, "mask": mask[..., 0].astype(float)}
        total = variance(self.setting.scale)[..., None]
        log_factor = np.log(weights) - 0.5 * np.log1p(total / length2)
        precision = 0.5 / (length2 + total)
        # A missing entry contributes the factor 1.
        log_factor = np.where(mask, log_factor, -np.log(len(weights)))
        constants = {"log_factor": log_factor, "precision": np.where(mask, precision, 0.0)}
        if len(weights) == 1:
            return {name: value[..., 0] for name, value in constants.items()}
        return constants

    def log_data(self, y, representation, constants):
        variance = None if len(representation) == 1 else representation[1] ** 2
        return self._log(y - representation[0], variance, constants)

    def log_pair(self, left, right, constants):
        variance = None if len(left) == 1 else left[1] ** 2 + right[1] ** 2
        return self._log(left[0] - right[0], variance, constants)

    def data(self, y, representation, constants):
        if not self._single_known:
            return super().data(y, representation, constants)
        return self._gaussian(y, representation[0], constants)

    def pair(self, left, right, constants):
        if not self._single_known:
            return super().pair(left, right, constants)
        return self._gaussian(left[0], right[0], constants)

    def _gaussian(self, a, b, constants):
        # Entry by entry: a sum over a short last axis would keep the loop from vectorising.
        exponent = jnp.sum(constants["log_factor"], axis=-1)
        for c in range(b.shape[-1]):
            exponent = exponent - constants["precision"][..., c] * (a[..., c] - b[..., c]) ** 2
        return jnp.exp(exponent)

    def pair_rows_and_gradient(self, a, b, weights, coefficients, constants):
        """∇_a Σ_b c_ab E_ab = −2 precision (a Σ_b c_ab E_ab − Σ_b c_ab E_ab b), E Gaussian."""
        if not self._single_known:
            return super().pair_rows_and_gradient(a, b, weights, coefficients, constants)
        (w,), (other,) = a, b
        broad = {name: value[:, None, None] for name, value in constants.items()}
        tile = self.pair((w[:, :, None],), (other[:, None],), broad)
        tile = tile * (weights[:, None, None] * coefficients)
        sums = jnp.sum(tile, axis=2)
        pulled = jnp.einsum("cab,cbk->cak", tile, other)
        gradient = -2 * constants["precision"][:, None] * (w * sums[..., None] - pulled)
        return jnp.sum(sums, axis=0), (gradient,)

    def gaussian_pairs(self):
        if not self._single_known:
            return None
        constants = self.pair_constants()
        return constants["precision"], np.exp(np.sum(constants["log_factor"], axis=-1))

    def scaled_gaussian_pairs(self):
        if self.setting.scale is not None or len(self._terms[0]) > 1:
            return None
        constants = self.pair_constants()
        return constants["length2"][..., 0], constants["mask"]

    @property
    def _single_known(self) -> bool:
        """One Gaussian and a scale that is known: the case that must be fast."""
        return self.setting.scale is not None and len(self._terms[0]) == 1

    def _log(self, r, variance, constants):
        weights, _ = self._terms
        if variance is None:
            if len(weights) == 1:
                return constants["log_factor"] - constants["precision"] * r**2
            terms = constants["log_factor"] - constants["precision"] * r[..., None] ** 2
            return jax.scipy.special.logsumexp(terms, axis=-1)
        total = constants["length2"] + variance[..., None]
        terms = 0.5 * jnp.log(constants["length2"] / total) - 0.5 * r[..., None] ** 2 / total
        if len(weights) == 1:
            return constants["mask"] * terms[..., 0]
        return constants["mask"] * jax.scipy.special.logsumexp(terms, axis=-1, b=weights)


class Table(Embedding):
    """Additive noise with known scale: log e and log e0 as tables over |difference|."""

    def __init__(self, setting: Setting, noise: Noise):
        super().__init__(setting, noise)
        self._tables: list[tuple[np.ndarray, np.ndarray]] = []  # values and slopes
        design = setting.design
        self._data = self._constants(design.data_atoms, None)
        self._pairs = self._constants(design.pair_left, design.pair_right)
        self.values, self.slopes = map(np.stack, zip(*self._tables, strict=True))

    def data_constants(self):
        return self._data

    def pair_constants(self):
        return self._pairs

    def log_data(self, y, representation, constants):
        return self._interpolate(y - representation[0], constants)

    def log_pair(self, left, right, constants):
        return self._interpolate(left[0] - right[0], constants)

    def _constants(self, left, right):
        mask = self.setting.design.mask[left]
        ratios = _ratios(self.setting, left, right)[mask]
        ratios, inverse = np.unique(ratios, axis=0, return_inverse=True)
        table, width = np.zeros(mask.shape, dtype=int), np.ones(mask.shape)
        table[mask] = len(self._tables) + inverse.ravel()
        self._tables += [tabulate(self.setting.kernel, self.noise, *r) for r in ratios.tolist()]
        width[mask] = np.sqrt(1 + (ratios**2).sum(axis=1))[inverse.ravel()]
        return {
            "table": table,
            "unit": 1.0 / (width * self.setting.lengthscale[left]),
            "mask": mask.astype(float),
        }

    def _interpolate(self, r, constants):
        u = jnp.arcsinh(jnp.abs(r) * constants["unit"]) / TABLE_STEP
        last = self.values.shape[1] - 1
        cell = jnp.clip(jnp.floor(jax.lax.stop_gradient(u)), 0, last - 1).astype(jnp.int32)
        index = constants["table"] * (last + 1) + cell
        values, slopes = jnp.asarray(self.values).ravel(), jnp.asarray(self.slopes).ravel()
        y0, y1, m0, m1 = values[index], values[index + 1], slopes[index], slopes[index + 1]
        t = jnp.minimum(u - cell, 1.0)
        beyond = jnp.maximum(u - last, 0.0)
        cubic = (
            y0 + t * m0 + t**2 * (3 * (y1 - y0) - 2 * m0 - m1) + t**3 * (2 * (y0 - y1) + m0 + m1)
        )
        return constants["mask"] * (cubic + beyond * m1)


def tabulate(kernel: Kernel, noise: Noise, ratio: float, other: float):
    """log e and its slope per step, on arsinh(|r| / width) = 0, h, 2h, …, in units of ℓ.

    `ratio` is s/ℓ of one noise, `other` that of a second one, or 0; width² = 1 + ratio² + other².
    """
    assert isinstance(noise, LocationScale)
    steps = np.arange(math.ceil(math.asinh(TABLE_REACH) / TABLE_STEP) + 1) * TABLE_STEP

    def log_spline(width, values):
        logs = np.log(np.maximum(values, TINY))
        spline = CubicSpline(steps, logs, bc_type=((1, 0.0), "not-a-knot"))  # pyright: ignore[reportArgumentType]
        return logs, spline, lambda r: np.exp(spline(np.arcsinh(r / width)))

    with jax.enable_x64(True), jax.ensure_compile_time_eval():
        profile = lambda r: np.asarray(kernel.profile(jnp.asarray(r)))  # noqa: E731
        width = math.hypot(1.0, ratio)
        e = convolve(profile, 1.0, noise, ratio, width * np.sinh(steps))
        logs, spline, smooth = log_spline(width, e)
        if other > 0:
            width = math.hypot(width, other)
            e0 = convolve(smooth, 1.0, noise, other, width * np.sinh(steps))
            logs, spline, _ = log_spline(width, e0)
    return logs, spline(steps, 1) * TABLE_STEP


def _ratios(setting: Setting, left: np.ndarray, right: np.ndarray | None) -> np.ndarray:
    """(…, k, 2) noise of the two sides in units of ℓ, the larger first; 0 for no noise."""
    assert setting.scale is not None
    one = setting.scale[left]
    other = np.zeros_like(one) if right is None else setting.scale[right]
    both = np.stack([np.maximum(one, other), np.minimum(one, other)], axis=-1)
    ratios = both / setting.lengthscale[left][..., None]
    # Rounded to ten digits: outputs whose ℓ is the same multiple of their noise share a table.
    return np.where(ratios > 0, np.exp(np.round(np.log(np.maximum(ratios, TINY)), 10)), 0.0)


def _distinct_tables(setting: Setting) -> int:
    design = setting.design
    ratios = _ratios(setting, design.pair_left, design.pair_right)
    return len(np.unique(ratios[design.mask[design.pair_left]], axis=0))


class ScaleMixture(Embedding):
    """ε ~ Normal(0, V) with V random, and a sum of Gaussians as kernel.

    e_c = Σ_q ω_q Σ_t a_t (ℓ_t²/S)^½ exp(−r²/(2S)),  S = ℓ_t² + s² V_q,
    and e0_c with s² V_q + t² V_q' for s² V_q.
    """

    def __init__(self, setting: Setting, noise: Noise):
        super().__init__(setting._replace(scale=None), noise)
        rule = variance_rule(noise)
        assert rule is not None and setting.kernel.gaussian_terms is not None
        self.variances, self.weights = rule
        self.data_size = len(self.weights) * len(setting.kernel.gaussian_terms[0])
        self.pair_size = self.data_size * len(self.weights)

    def constants(self, atoms):
        return {
            "length2": self.setting.lengthscale[atoms] ** 2,
            "mask": self.setting.design.mask[atoms].astype(float),
        }

    def log_data(self, y, representation, constants):
        w, s = representation
        variance = s[..., None] ** 2 * self.variances
        return self._log(y - w, variance, self.weights, constants)

    def log_pair(self, left, right, constants):
        (w, s), (other, t) = left, right
        one, two = s[..., None] ** 2 * self.variances, t[..., None] ** 2 * self.variances
        variance = one[..., :, None] + two[..., None, :]
        flat = variance.reshape(*variance.shape[:-2], -1)
        return self._log(w - other, flat, np.outer(self.weights, self.weights).ravel(), constants)

    def _log(self, r, variance, weights, constants):
        half_squares, total = 0.5 * r[..., None] ** 2, 0.0
        for a, width in zip(*self._terms, strict=True):
            length2 = constants["length2"][..., None] * width**2
            precision = 1 / (length2 + variance)
            e = jnp.sqrt(length2 * precision) * jnp.exp(-half_squares * precision)
            total = total + a * jnp.sum(weights * e, axis=-1)
        return constants["mask"] * jnp.log(total + TINY)


class Quadrature(Embedding):
    """Any law that is independent over outputs, as nodes and weights of its own."""

    def __init__(self, setting: Setting, noise: Noise):
        super().__init__(setting, noise)
        self.data_size = node_count(noise)
        self.pair_size = self.data_size**2
        if not isinstance(noise, LocationScale):
            _check_normalised(noise)

    def represent(self, w, s):
        return nodes_and_weights(self.noise, w, s)

    def constants(self, atoms):
        return {
            "length": self.setting.lengthscale[atoms],
            "mask": self.setting.design.mask[atoms].astype(float),
        }

    def log_data(self, y, representation, constants):
        nodes, weights = representation
        r = (y[..., None] - nodes) / constants["length"][..., None]
        total = jnp.sum(weights * self.setting.kernel.profile(r), axis=-1)
        return constants["mask"] * jnp.log(total + TINY)

    def log_pair(self, left, right, constants):
        (nodes, weights), (other_nodes, other_weights) = left, right
        length = constants["length"][..., None, None]
        r = (nodes[..., :, None] - other_nodes[..., None, :]) / length
        total = jnp.einsum(
            "...q,...qr,...r->...", weights, self.setting.kernel.profile(r), other_weights
        )
        return constants["mask"] * jnp.log(total + TINY)


def _check_normalised(noise: Noise):
    for location, s in ((5.0, 1.0), (20.0, 2.0)):
        mass = total_mass(noise, location, s)
        if not abs(mass - 1) < 0.01:
            raise InputError(
                f"{type(noise).__name__} does not integrate to 1: its mass is {mass:.4g} at w = "
                f"{location:g}, s = {s:g}; normalise `log_pdf`, and let s be its scale."
            )


class ByOutput(Embedding):
    """Outputs with noise of different kinds: a product of parts, each 1 where it does not apply."""

    def __init__(self, setting: Setting, parts: list[Embedding]):
        super().__init__(setting)
        self.parts = parts
        self.data_size = max(part.data_size for part in parts)
        self.pair_size = max(part.pair_size for part in parts)

    def represent(self, w, s):
        # 1 is in the range of every noise; another output's value may not be, and give NaN.
        own = [part.setting.design.mask for part in self.parts]
        return tuple(
            part.represent(jnp.where(mask, w, 1.0), jnp.where(mask, s, 1.0))
            for part, mask in zip(self.parts, own, strict=True)
        )

    def data_constants(self):
        return tuple(part.data_constants() for part in self.parts)

    def pair_constants(self):
        return tuple(part.pair_constants() for part in self.parts)

    def log_data(self, y, representation, constants):
        each = zip(self.parts, representation, constants, strict=True)
        return sum(part.log_data(y, own, c) for part, own, c in each)

    def log_pair(self, left, right, constants):
        each = zip(self.parts, left, right, constants, strict=True)
        return sum(part.log_pair(a, b, c) for part, a, b, c in each)


STRATEGIES = {
    "closed": ClosedForm,
    "table": Table,
    "mixture": ScaleMixture,
    "quadrature": Quadrature,
}
