"""Deterministic rules for noise that has no closed form: its law as nodes and weights.

For any smooth h,  ∫ h(y) p(y | w, s) dy ≈ Σ_q weight_q h(node_q),  with nodes that move with w and
s, so that the rule is a differentiable function of them. Smooth densities use the trapezoidal rule
(exponentially accurate there), in z for light tails and in arsinh z for heavy ones; Laplace noise
has a kink at 0 and uses Gauss–Legendre on either side. Counts that keep away from 0 are summed with
a stride, which is the trapezoidal rule; else from 0 on over panels of integers that grow, each with
the Gauss rule of the counting measure, which is the plain sum where a panel has no more integers
than nodes.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from pcuq.noise import Gaussian, Laplace, LocationScale, Noise, Poisson, StudentT

POISSON_NODES = 48
PANELS, PANEL_NODES = 8, 8  # of other counts
LONGEST_EXACT_PANEL = 256
# Counts: sd below and above w that are summed. An overdispersed law has an exponential tail.
REACH_BELOW, REACH_ABOVE, REACH_TAIL = 7.5, 9.0, 24.0
AWAY_FROM_0 = 3.5  # w/sd from which on a count has no mass near 0 that a stride would miss


def standard_rule(noise: Noise) -> tuple[np.ndarray, np.ndarray]:
    """Nodes z and weights of dz for y = w + s z: weights times density sum to one."""
    if isinstance(noise, Laplace):
        # z = 15 (e^t − 1)/(e − 1), t in (0, 1): error below 3e-6 for kernels of width s/2 or more.
        x, weights = np.polynomial.legendre.leggauss(30)
        t = (x + 1) / 2
        z = 15 * np.expm1(t) / (math.e - 1)
        weights = weights / 2 * 15 * np.exp(t) / (math.e - 1)
        return np.concatenate([-z[::-1], z]), np.concatenate([weights[::-1], weights])
    if isinstance(noise, Gaussian):
        step = 0.4
        nodes = np.arange(-16, 17) * step
        return nodes, np.full(len(nodes), step)
    # Heavy or unknown tails: z = sinh(u) reaches ± 1,000 with 77 nodes.
    u = np.linspace(-math.asinh(1000.0), math.asinh(1000.0), 77)
    return np.sinh(u), np.cosh(u) * (u[1] - u[0])


def variance_rule(noise: Noise) -> tuple[np.ndarray, np.ndarray] | None:
    """(variances V, weights) where ε is Normal(0, V) with V random, else None.

    Laplace: V = 2 E, E ~ Exp(1). Student t: V = 1/G, G ~ Gamma(df/2, rate df/2). The trapezoidal
    rule in the logarithm of E or G has an error of about exp(−π²/h), below 1e-6.
    """
    if isinstance(noise, Laplace):
        step = 0.5
        u = np.arange(-19, 7) * step
        weights = step * np.exp(u - np.exp(u))
        # Below the first node V is 0 for all purposes, and the rule a geometric series.
        weights[0] += step * np.exp(u[0]) / np.expm1(step)
        return 2 * np.exp(u), weights / weights.sum()
    if isinstance(noise, StudentT):
        a = noise.df / 2
        step = min(0.5, 0.8 / math.sqrt(a))
        u = np.arange(-80, 80) * step
        log_weights = a * math.log(a) - math.lgamma(a) + a * (u - np.exp(u)) + math.log(step)
        # Where G is small V is large, and e is no more than V^(−½): what is left out has no e.
        keep = log_weights + np.minimum(u / 2, 0) > -18
        return np.exp(-u[keep]), np.exp(log_weights[keep])
    return None


def node_count(noise: Noise) -> int:
    """Nodes that `nodes_and_weights` gives."""
    if noise.discrete:
        return POISSON_NODES if isinstance(noise, Poisson) else PANELS * PANEL_NODES
    return len(standard_rule(noise)[0])


def nodes_and_weights(
    noise: Noise, location: Float[Array, "..."], s: Float[Array, "..."]
) -> tuple[Float[Array, "... q"], Float[Array, "... q"]]:
    """The law of g(y) as nodes and weights, which sum to one."""
    location, s = location[..., None], s[..., None]
    if noise.discrete:
        centre = jax.lax.stop_gradient(location)
        spread = jax.lax.stop_gradient(noise.sd(location, s))
        rule = _strided(centre, spread, node_count(noise))
        if not isinstance(noise, Poisson):
            # A Poisson law with mass at 0 is narrow: its stride is 1. Others may be wide there.
            inside = centre > AWAY_FROM_0 * spread
            panels = _panels(centre + REACH_TAIL * spread)
            rule = tuple(jnp.where(inside, a, b) for a, b in zip(rule, panels, strict=True))
        nodes, steps = rule
        log_weights = noise.log_density(nodes, location, s) + jnp.log(steps)
    else:
        z, dz = standard_rule(noise)
        nodes = location + s * z
        log_weights = noise.log_density(nodes, location, s) + jnp.log(s) + jnp.log(dz)
    # Normalised: what little mass lies outside must not make the law defective.
    weights = jax.nn.softmax(log_weights, axis=-1)
    return nodes, weights


def _strided(centre, spread, count: int):
    """Every stride-th count around the centre, the stride a whole number."""
    first = jnp.maximum(jnp.floor(centre - REACH_BELOW * spread), 0.0)
    last = centre + REACH_ABOVE * spread
    stride = jnp.maximum(jnp.ceil((last - first) / (count - 1)), 1.0)
    return first + stride * jnp.arange(count), jnp.broadcast_to(stride, (*first.shape[:-1], count))


def _panels(last):
    """Counts from 0 to `last` (…, 1) in panels of m, m r, m r², … integers; nodes (…, q)."""
    nodes, weights = gram_rules()
    sizes, growths = _growth_table()
    growth = jnp.exp(jnp.interp(jnp.log(last + 1), sizes, growths))
    lengths = jnp.round(PANEL_NODES * growth ** jnp.arange(PANELS))  # (…, panels)
    starts = jnp.cumsum(lengths, axis=-1) - lengths
    rule = (jnp.minimum(lengths, LONGEST_EXACT_PANEL + 1) - PANEL_NODES).astype(int)
    middles, lengths = (starts + (lengths - 1) / 2)[..., None], lengths[..., None]
    nodes = middles + lengths / 2 * jnp.asarray(nodes)[rule]
    weights = lengths * jnp.asarray(weights)[rule]
    flat = (*nodes.shape[:-2], PANELS * PANEL_NODES)
    return nodes.reshape(flat), weights.reshape(flat)


def gram_rules() -> tuple[np.ndarray, np.ndarray]:
    """Gauss rules of the counting measure on L integers, L = m, …, and of the integral at last.

    Nodes on (−1, 1) for a panel (−L/2, L/2) and weights that sum to 1, from the three-term
    recurrence of the discrete Chebyshev polynomials: β_k = k² (L² − k²) / (4 (4k² − 1)).
    """
    k = np.arange(1, PANEL_NODES)
    rules = []
    for length in [*range(PANEL_NODES, LONGEST_EXACT_PANEL + 1), np.inf]:
        below = np.sqrt(k**2 * (1 - (k / length) ** 2) / (4 * k**2 - 1))  # in units of L/2
        nodes, vectors = np.linalg.eigh(np.diag(below, 1) + np.diag(below, -1))
        rules.append((nodes, vectors[0] ** 2))
    nodes, weights = map(np.stack, zip(*rules, strict=True))
    return nodes, weights


def _growth_table() -> tuple[np.ndarray, np.ndarray]:
    """log of the number of integers covered, for values of log r from 0 on."""
    growths = np.linspace(0.0, math.log(50.0), 400)
    powers = np.exp(np.outer(growths, np.arange(PANELS)))
    return np.log(PANEL_NODES * powers.sum(axis=1)), growths


def total_mass(noise: Noise, location: float, s: float) -> float:
    """Mass that the rule finds before it is normalised: 1 for a density that is one."""
    if noise.discrete:
        support = jnp.arange(100_000.0)
        return float(jnp.sum(jnp.exp(noise.log_density(support, location, s))))
    z, dz = standard_rule(noise)
    return float(jnp.sum(jnp.exp(noise.log_density(location + s * z, location, s)) * s * dz))


def convolve(
    function: Callable[[np.ndarray], np.ndarray],
    width: float,
    noise: LocationScale,
    s: float,
    points: np.ndarray,
) -> np.ndarray:
    """∫ function(|r − s z|) p(z) dz at each r, for tables made once on the host.

    Gauss–Legendre panels that grow away from both places where something happens: the centre of
    the density, where it may have a kink, and that of the function, whose features have `width`.
    """
    steps = np.concatenate([np.arange(0.0, 2.0, 0.5), 2 * 1.35 ** np.arange(52)])  # to 9e6
    negligible = np.asarray(noise.standard_log_density(steps)) < -80
    reach = steps[np.argmax(negligible)] if negligible.any() else steps[-1]
    near = np.concatenate([-steps[::-1], steps[1:]])
    own = np.concatenate([-steps[steps <= reach][::-1], steps[(steps <= reach) & (steps > 0)]])
    x, weights = np.polynomial.legendre.leggauss(8)
    blocks = -(-len(points) // 128)
    padded = np.resize(points, 128 * blocks)  # blocks of one shape are compiled once
    result = np.empty(len(padded))
    for start in range(0, len(padded), 128):
        r = padded[start : start + 128, None]
        edges = np.concatenate(
            [np.broadcast_to(own, (len(r), len(own))), r / s + width / s * near], axis=1
        )
        edges = np.sort(np.clip(edges, -reach, reach), axis=1)
        half = np.diff(edges)[..., None] / 2
        z = (edges[:, :-1, None] + half) + half * x
        mass = half * weights * np.exp(np.asarray(noise.standard_log_density(z)))
        values = mass * function(np.abs(r[..., None] - s * z))
        result[start : start + 128] = values.sum(axis=(1, 2)) / mass.sum(axis=(1, 2))
    return result[: len(points)]
