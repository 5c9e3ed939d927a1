"""v, κ0, κ, MMD² and the joint log density as double loops over data: slow, and easy to check.

Derived from the definition alone. A datum i has a covariate z_i = (x_i, condition_i, observed
outputs_i) and values y_i; P_n puts 1/n on each (z_i, y_i), and the model puts 1/n on each z_j with
the law of row j there. With K(z, z') = 0 where conditions or observed outputs differ, else k_X,

    C = (1/n²) Σ_ij K_ij k(y_i, y_j),            v(θ) = (1/n²) Σ_ij K_ij E k(y_i, Y_j),
    κ0(θ, ϑ) = (1/n²) Σ_ij K_ij E k(Y_i, Y'_j),  Y_j ~ P_θ(row j), Y' ~ P_ϑ independent of it.

Under the sum over outputs each observed entry is a datum, and its output is part of z.
"""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
from scipy.integrate import quad


def gaussian_mean(difference, variance, length):
    """E exp(−(difference + √variance ε)² / (2 length²)), ε ~ N(0, 1)."""
    total = length**2 + variance
    return math.sqrt(length**2 / total) * math.exp(-(difference**2) / (2 * total))


@dataclass
class BruteForce:
    """`predict(θ)` → (w, s), both (n, d), on the scale where kernels act; so is `y`.

    `kernel(c, r)`: k_c of a difference. `single(c, y, w, s)`: E k_c(y, Y). `double(c, w, s, u, t)`:
    E k_c(Y, Y'), Y' with location u and scale t. All of one output, and of plain numbers.
    """

    y: np.ndarray
    predict: Callable
    kernel: Callable
    single: Callable
    double: Callable
    x: np.ndarray | None = None
    condition: np.ndarray | None = None
    lengthscale_x: float = 0.0
    combine: str = "product"

    def data(self):
        """(row, observed outputs) of every datum."""
        n, d = self.y.shape
        if self.combine == "product":
            return [(i, tuple(c for c in range(d) if not np.isnan(self.y[i, c]))) for i in range(n)]
        return [(i, (c,)) for i in range(n) for c in range(d) if not np.isnan(self.y[i, c])]

    def covariate_kernel(self, one, other):
        (i, outputs), (j, other_outputs) = one, other
        if outputs != other_outputs:
            return 0.0
        if self.condition is not None and self.condition[i] != self.condition[j]:
            return 0.0
        if self.x is None:
            return 1.0
        difference = np.atleast_1d(self.x[i]) - np.atleast_1d(self.x[j])
        if self.lengthscale_x == 0:
            return float(np.all(difference == 0))
        return math.exp(-np.sum(difference**2) / (2 * self.lengthscale_x**2))

    def double_sum(self, factor):
        """(1/n²) Σ_ij K_ij Π_c factor(i, j, c)."""
        data, total = self.data(), 0.0
        for one, other in itertools.product(data, data):
            similarity = self.covariate_kernel(one, other)
            if similarity > 0:
                total += similarity * math.prod(factor(one[0], other[0], c) for c in one[1])
        return total / len(data) ** 2

    def constant(self):
        return self.double_sum(lambda i, j, c: self.kernel(c, self.y[i, c] - self.y[j, c]))

    def v(self, theta):
        w, s = self.predict(theta)
        return self.double_sum(lambda i, j, c: self.single(c, self.y[i, c], w[j, c], s[j, c]))

    def kappa0(self, theta, vartheta):
        (w, s), (u, t) = self.predict(theta), self.predict(vartheta)
        return self.double_sum(lambda i, j, c: self.double(c, w[i, c], s[i, c], u[j, c], t[j, c]))

    def kappa(self, theta, vartheta):
        return self.constant() - self.v(theta) - self.v(vartheta) + self.kappa0(theta, vartheta)

    def mmd2(self, thetas, weights):
        pairs = itertools.product(zip(weights, thetas, strict=True), repeat=2)
        return sum(a * b * self.kappa(theta, vartheta) for (a, theta), (b, vartheta) in pairs)

    def joint_log_density(self, thetas, lam, log_prior):
        count = len(thetas)
        energy = sum(self.v(theta) for theta in thetas)
        for i in range(count):
            for j in range(i):
                energy -= self.kappa0(thetas[i], thetas[j]) / (count - 1)
        return sum(log_prior(theta) for theta in thetas) + energy / lam


def gaussian(lengths, terms=((1.0, 1.0),), **rest) -> BruteForce:
    """Gaussian noise and the kernel Σ_t a_t exp(−r²/(2 (m_t ℓ_c)²)), terms (a_t, m_t)."""

    def mean(c, difference, variance):
        return sum(a * gaussian_mean(difference, variance, m * lengths[c]) for a, m in terms)

    return BruteForce(
        kernel=lambda c, r: mean(c, r, 0.0),
        single=lambda c, y, w, s: mean(c, y - w, s**2),
        double=lambda c, w, s, u, t: mean(c, w - u, s**2 + t**2),
        **rest,
    )


def plain_joint_log_density(brute: BruteForce, lengths, predict, log_prior, terms=((1.0, 1.0),)):
    """The joint density with Gaussian noise in plain jax.numpy, on all N² n² d numbers at once."""
    data = brute.data()
    rows = np.array([i for i, _ in data])
    d = brute.y.shape[1]
    mask = np.array([[c in outputs for c in range(d)] for _, outputs in data])
    similarity = np.array([[brute.covariate_kernel(a, b) for b in data] for a in data])
    y = np.where(mask, brute.y[rows], 0.0)

    def mean(difference, variance):
        total = 0.0
        for a, m in terms:
            length2 = (m * np.asarray(lengths)) ** 2
            scaled = difference**2 / (2 * (length2 + variance))
            total = total + a * jnp.sqrt(length2 / (length2 + variance)) * jnp.exp(-scaled)
        return jnp.prod(jnp.where(mask[:, None], total, 1.0), axis=-1)

    def v(prediction):
        w, s = prediction
        e = mean(y[:, None] - w[rows][None], (s[rows] ** 2)[None])
        return jnp.sum(similarity * e) / len(data) ** 2

    def kappa0(one, other):
        (w, s), (u, t) = one, other
        variance = (s[rows] ** 2)[:, None] + (t[rows] ** 2)[None]
        e0 = mean(w[rows][:, None] - u[rows][None], variance)
        return jnp.sum(similarity * e0) / len(data) ** 2

    def log_density(thetas, lam):
        predictions = jax.vmap(predict)(thetas)
        pairs = jax.vmap(lambda a: jax.vmap(lambda b: kappa0(a, b))(predictions))(predictions)
        above = jnp.sum(jnp.triu(pairs, 1)) / (len(thetas) - 1)
        energy = jnp.sum(jax.vmap(v)(predictions)) - above
        return jnp.sum(jax.vmap(log_prior)(thetas)) + energy / lam

    return log_density


def integral(function, centre, scale, breaks=()):
    """∫ function over the line: adaptive, cut at the breaks and at multiples of the scale."""
    steps = (0, 1, 2, 4, 8, 16, 40, 100, 1000, 10_000)
    edges = {centre + sign * step * scale for step in steps for sign in (-1, 1)} | set(breaks)
    edges = sorted(edges)
    pieces = (
        quad(function, a, b, epsabs=1e-14, epsrel=1e-12, limit=200)[0]
        for a, b in itertools.pairwise(edges)
    )
    return math.fsum(pieces)
