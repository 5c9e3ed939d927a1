"""Deterministic rules for noise that has no closed form: its law as nodes and weights.

For any smooth h,  ∫ h(y) p(y | w, s) dy ≈ Σ_q weight_q h(node_q),  with nodes that move with w and s,
so that the rule is a differentiable function of them. Smooth densities use the trapezoidal rule
(exponentially accurate there), in z for light tails and in arsinh z for heavy ones; Laplace noise has
a kink at 0 and uses Gauss–Laguerre on either side; counts are summed over a window of their support.
"""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from pcuq.noise import Gaussian, Laplace, LocationScale, Noise

COUNT_NODES = 33  # a window of ± 6.5 sd: at most 1e-10 of the mass is outside
COUNT_REACH = 6.5


def standard_rule(noise: Noise) -> tuple[np.ndarray, np.ndarray]:
    """Nodes z and weights of dz for y = w + s z: weights times density sum to one."""
    if isinstance(noise, Laplace):
        nodes, weights = np.polynomial.laguerre.laggauss(16)
        keep = weights > 1e-14
        nodes, weights = nodes[keep], (weights * np.exp(nodes))[keep]
        return np.concatenate([-nodes[::-1], nodes]), np.concatenate([weights[::-1], weights])
    if isinstance(noise, Gaussian):
        step = 0.4
        nodes = np.arange(-16, 17) * step
        return nodes, np.full(len(nodes), step)
    # Heavy or unknown tails: z = sinh(u) reaches ± 1,000 with 77 nodes.
    u = np.linspace(-math.asinh(1000.0), math.asinh(1000.0), 77)
    return np.sinh(u), np.cosh(u) * (u[1] - u[0])


def nodes_and_weights(
    noise: Noise, location: Float[Array, "..."], s: Float[Array, "..."]
) -> tuple[Float[Array, "... q"], Float[Array, "... q"]]:
    """The law of g(y) as nodes and weights, which sum to one."""
    location, s = location[..., None], s[..., None]
    if noise.discrete:
        spread = jax.lax.stop_gradient(noise.sd(location, s))
        centre = jax.lax.stop_gradient(location)
        half = (COUNT_NODES - 1) // 2
        stride = jnp.ceil(jnp.maximum(COUNT_REACH * spread / half, 1.0))
        first = jnp.maximum(jnp.round(centre) - half * stride, 0.0)
        nodes = first + stride * jnp.arange(COUNT_NODES)
        log_weights = noise.log_density(nodes, location, s)
    else:
        z, dz = standard_rule(noise)
        nodes = location + s * z
        log_weights = noise.log_density(nodes, location, s) + jnp.log(s) + jnp.log(dz)
    # Normalised: what little mass lies outside must not make the law defective.
    weights = jax.nn.softmax(log_weights, axis=-1)
    return nodes, weights


def total_mass(noise: Noise, location: float, s: float) -> float:
    """Mass that the rule finds before it is normalised: 1 for a density that is one."""
    if noise.discrete:
        support = jnp.arange(100_000.0)
        return float(jnp.sum(jnp.exp(noise.log_density(support, location, s))))
    z, dz = standard_rule(noise)
    return float(jnp.sum(jnp.exp(noise.log_density(location + s * z, location, s)) * s * dz))


def fine_rule(noise: LocationScale, width: float) -> tuple[np.ndarray, np.ndarray]:
    """Many nodes of ε with weights (density included), for tables made once on the host.

    Gauss–Legendre panels, no longer than a quarter of `width` (the kernel's, in units of s) where
    the density is large and growing with |z|; a panel ends at 0, where the density may have a kink.
    """
    edges, z, reach = [0.0], 0.0, 1e4
    while z < reach:
        z += max(min(0.5, 0.25 * width), 0.1 * z)
        edges.append(z)
    edges = np.array(edges)
    x, w = np.polynomial.legendre.leggauss(8)
    half = np.diff(edges) / 2
    nodes = ((edges[:-1] + edges[1:])[:, None] / 2 + half[:, None] * x).ravel()
    weights = (half[:, None] * w).ravel()
    with jax.enable_x64(True):
        weights = weights * np.exp(np.asarray(noise.standard_log_density(jnp.asarray(nodes))))
    keep = weights > 1e-25
    nodes, weights = nodes[keep], weights[keep] / (2 * weights[keep].sum())
    return np.concatenate([-nodes[::-1], nodes]), np.concatenate([weights[::-1], weights])
