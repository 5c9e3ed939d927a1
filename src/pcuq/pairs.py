"""Sums of κ0 over particles, tile by tile, with their gradient.

    rows_a = Σ_b c_ab κ0(a, b)        and its gradient in the representation of a,

for a in one set of particles and b in another (or the same, a ≠ b). The sum over pairs is never
differentiated as a whole: κ0 is symmetric, so the derivative in the first argument is all that is
needed, and it is taken inside each tile. A tile is (atom pairs, A, B), atoms leading, so that its
sums run over contiguous memory. It holds at most TILE numbers, or what one a takes with all b for
one pair of atoms if that is more: memory grows with N, not with N².
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

FAR = 1e15  # kernel widths: in single precision larger numbers grow by their logarithm only
LARGEST = 1e37  # of squares that are added in single precision
TILE = 2**17  # numbers of a tile, per output: a megabyte, which stays in the cache


class PairSum:
    """κ0 between particles from the representations (N, M, ...) of their atoms."""

    def __init__(self, embedding: Any):
        design = embedding.setting.design
        self.embedding = embedding
        self.diagonal = design.diagonal
        self.left, self.right = design.pair_left, design.pair_right
        self.weights = design.pair_weights
        self.constants = embedding.pair_constants()

    def block(self, a: Any, b: Any) -> Float[Array, "A B"]:
        """κ0 between all of a and all of b."""
        rows, chunk = self._tiling(_count(a), _count(b))
        pieces = self._pieces(chunk)

        def one(a_rows):
            def value(piece):
                tile = self.embedding.pair(
                    _left(_atoms(a_rows, piece["left"])),
                    _right(_atoms(b, piece["right"])),
                    _broad(piece["constants"]),
                )
                return jnp.sum(tile * piece["weights"][:, None, None], axis=0)

            return _add_up(value, pieces)

        return _by_rows(one, a, rows)

    def rows(
        self, a: Any, b: Any, c: Float[Array, " B"], exclude_self: bool = False
    ) -> Float[Array, " A"]:
        """Σ_b c_b κ0(a, b); `exclude_self` leaves b = a out of the sum."""
        rows, _ = self._tiling(_count(a), _count(b))

        def one(packed):
            a_rows, a_index = packed
            return jnp.sum(_coefficients(a_index, c, exclude_self) * self.block(a_rows, b), axis=1)

        return _by_rows(one, (a, jnp.arange(_count(a))), rows)

    def rows_and_gradient(
        self, a: Any, b: Any, c: Float[Array, " B"], exclude_self: bool = False
    ) -> tuple[Float[Array, " A"], Any]:
        """Σ_b c_b κ0(a, b) and its gradient in a; `exclude_self` leaves b = a out of the sum."""
        rows, chunk = self._tiling(_count(a), _count(b))
        pieces = self._pieces(chunk)

        def one(packed):
            a_rows, a_index = packed
            coefficients = _coefficients(a_index, c, exclude_self)

            def sums_and_gradient(piece):
                return self.embedding.pair_rows_and_gradient(
                    _atoms(a_rows, piece["left"]),
                    _atoms(b, piece["right"]),
                    piece["weights"],
                    coefficients,
                    piece["constants"],
                )

            if self.diagonal:
                # Each atom occurs in one pair: its gradient is written once, nothing is added up.
                if len(pieces["weights"]) == 1:
                    sums, gradients = sums_and_gradient(jax.tree.map(lambda leaf: leaf[0], pieces))
                else:
                    sums, gradients = jax.lax.map(sums_and_gradient, pieces)
                    sums = jnp.sum(sums, axis=0)
                    gradients = jax.tree.map(lambda g: g.reshape(-1, *g.shape[2:]), gradients)
                gradient = jax.tree.map(
                    lambda g, leaf: jnp.moveaxis(g[: leaf.shape[1]], 0, 1), gradients, a_rows
                )
                return sums, gradient

            def add(carry, piece):
                total, gradient = carry
                sums, piece_gradient = sums_and_gradient(piece)
                gradient = jax.tree.map(
                    lambda g, h: g.at[:, piece["left"]].add(jnp.moveaxis(h, 0, 1)),
                    gradient,
                    piece_gradient,
                )
                return (total + sums, gradient), None

            start = (jnp.zeros(_count(a_rows)), jax.tree.map(jnp.zeros_like, a_rows))
            return jax.lax.scan(add, start, pieces)[0]

        return _by_rows(one, (a, jnp.arange(_count(a))), rows)

    def _tiling(self, size_a: int, size_b: int) -> tuple[int, int]:
        """Rows of a and atom pairs in one tile."""
        row = max(size_b, 1) * self.embedding.pair_size
        rows = max(1, min(size_a, TILE // row))
        chunk = max(1, min(len(self.weights), TILE // (rows * row)))
        return rows, chunk

    def _pieces(self, size: int):
        """The list of atom pairs cut into pieces of one size, the last filled up with weight 0."""
        total = len(self.weights)
        pieces = -(-total // size)
        index = np.minimum(np.arange(pieces * size), total - 1).reshape(pieces, size)
        real = np.arange(pieces * size).reshape(pieces, size) < total
        return {
            "left": self.left[index],
            "right": self.right[index],
            "weights": np.where(real, self.weights[index], 0.0),
            "constants": jax.tree.map(lambda leaf: np.asarray(leaf)[index], self.constants),
        }


class SinglePrecision:
    """κ0 in single precision, several times as fast, where atoms meet only themselves.

        κ0(a, b) = Σ_m ω_m exp(−Σ_c (z_amc − z_bmc)²),    z = π^½ (w − centre),

    for e0 that are Gaussian. z is formed in double precision about the data, so that it loses
    nothing that matters: what is left of a κ0 is wrong by some 10⁻⁷ of it.
    """

    def __init__(self, pairs: PairSum, centre: Float[np.ndarray, "M k"]):
        gaussian = pairs.embedding.gaussian_pairs()
        assert gaussian is not None and pairs.diagonal
        precision, factor = gaussian
        order = np.argsort(pairs.left)
        self.root, self.centre = np.sqrt(precision[order]), centre
        self.weights = (pairs.weights * factor)[order].astype(np.float32)

    @staticmethod
    def serves(pairs: PairSum) -> bool:
        return pairs.diagonal and pairs.embedding.gaussian_pairs() is not None

    def represent(self, representation: Any) -> Float[Array, "N k M"]:
        (w,) = representation
        z = _within_reach(self.root * (w - self.centre))
        return jnp.swapaxes(z, 1, 2).astype(jnp.float32)

    def block(self, a: Float[Array, "A k M"], b: Float[Array, "B k M"]) -> Float[Array, "A B"]:
        weights = jnp.asarray(self.weights)

        def row(one):
            # Entry by entry, and the sum over atoms as a product: loops that vectorise.
            squares = sum((one[c] - b[:, c]) ** 2 for c in range(len(one)))
            return jnp.exp(-squares) @ weights

        return jax.lax.map(row, a).astype(jnp.float64)


class SinglePrecisionScaled:
    """The same where the noise is normal and its sd σ comes with the particles.

        κ0(a, b) = Σ_m ω_m Π_c T_c^−½ exp(−(z_amc − z_bmc)²/(2 T_c)),    T = 1 + t_amc + t_bmc,

    with z = (w − centre)/ℓ and t = σ²/ℓ², both 0 where nothing is measured.
    """

    def __init__(self, pairs: PairSum, centre: Float[np.ndarray, "M k"]):
        scaled = pairs.embedding.scaled_gaussian_pairs()
        assert scaled is not None and pairs.diagonal
        order = np.argsort(pairs.left)
        self.length2, self.mask = (leaf[order] for leaf in scaled)
        self.centre, self.weights = centre, pairs.weights[order].astype(np.float32)

    @staticmethod
    def serves(pairs: PairSum) -> bool:
        return pairs.diagonal and pairs.embedding.scaled_gaussian_pairs() is not None

    def represent(self, representation: Any) -> Float[Array, "N 2k M"]:
        w, s = representation
        z = _within_reach((w - self.centre) / np.sqrt(self.length2))
        t = jnp.minimum(s**2 / self.length2, LARGEST)
        both = jnp.concatenate([self.mask * z, self.mask * t], axis=2)
        return jnp.swapaxes(both, 1, 2).astype(jnp.float32)

    def block(self, a: Float[Array, "A k2 M"], b: Float[Array, "B k2 M"]) -> Float[Array, "A B"]:
        weights, k = jnp.asarray(self.weights), a.shape[1] // 2

        def row(one):
            total = [1.0 + one[k + c] + b[:, k + c] for c in range(k)]
            squares = sum((one[c] - b[:, c]) ** 2 / total[c] for c in range(k))
            return (jnp.exp(-0.5 * squares) * jax.lax.rsqrt(math.prod(total))) @ weights

        return jax.lax.map(row, a).astype(jnp.float64)


def _within_reach(z):
    """Squares must stay in range, and what has exploded must not come together at its edge."""
    beyond = jnp.sign(z) * FAR * (1 + jnp.log(jnp.maximum(jnp.abs(z) / FAR, 1.0)))
    return jnp.where(jnp.abs(z) < FAR, z, beyond)


def tile_gradient(embedding, a, b, weights, coefficients, constants):
    """Row sums of a tile and their gradient in a, by differentiating inside the tile.

    a: leaves (C, A, ...), b: leaves (C, B, ...) for C atom pairs; coefficients (A, B).
    """

    def total(a):
        tile = embedding.pair(_left(a), _right(b), _broad(constants))
        sums = jnp.sum(jnp.sum(tile * weights[:, None, None], axis=0) * coefficients, axis=1)
        return jnp.sum(sums), sums

    gradient, sums = jax.grad(total, has_aux=True)(a)
    return sums, gradient


def _count(representation) -> int:
    return len(jax.tree.leaves(representation)[0])


def _coefficients(a_index, c, exclude_self: bool) -> Float[Array, "A B"]:
    """c_b for each (a, b), 0 where b is a and is to be left out."""
    itself = a_index[:, None] == jnp.arange(len(c))
    return jnp.where(itself & exclude_self, 0.0, c)


def _atoms(representation, atoms):
    """(N, M, ...) → (C, N, ...) for the chosen atoms."""
    return jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 1, 0)[atoms], representation)


def _left(a):
    return jax.tree.map(lambda leaf: leaf[:, :, None], a)


def _right(b):
    return jax.tree.map(lambda leaf: leaf[:, None], b)


def _broad(constants):
    """(C, ...) → (C, 1, 1, ...)."""
    return jax.tree.map(lambda leaf: leaf[:, None, None], constants)


def _add_up(function, pieces):
    """Σ over pieces; without a loop where there is only one."""
    first = jax.tree.map(lambda leaf: leaf[0], pieces)
    if len(pieces["weights"]) == 1:
        return function(first)
    shape = jax.eval_shape(function, jax.tree.map(jnp.asarray, first))
    start = jnp.zeros(shape.shape, shape.dtype)
    return jax.lax.scan(lambda total, piece: (total + function(piece), None), start, pieces)[0]


def _by_rows(function, tree, rows: int):
    """Apply to blocks of `rows` leading entries, padded with copies of the last one."""
    size = _count(tree)
    if size == rows:
        return function(tree)
    blocks = -(-size // rows)
    index = np.minimum(np.arange(blocks * rows), size - 1).reshape(blocks, rows)
    results = jax.lax.map(function, jax.tree.map(lambda leaf: leaf[index], tree))
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[:size], results)
