"""Sums of κ0 over particles, tile by tile, with their gradient.

    rows_a = Σ_b c_b κ0(a, b)        and its gradient in the representation of a,

for a in one set of particles and b in another (or the same, a ≠ b). The sum over pairs is never
differentiated as a whole: κ0 is symmetric, so the derivative in the first argument is all that is
needed, and it is taken inside each tile. A tile holds at most TILE entries, whatever the number of
particles: memory grows with N, not with N².
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

TILE = 2**16  # entries of a tile: half a megabyte in float64, which stays in the cache


class PairSum:
    """κ0 between particles from the representations of their atoms."""

    def __init__(self, embedding: Any):
        design = embedding.setting.design
        self.embedding = embedding
        self.diagonal = design.diagonal
        self.left, self.right = design.pair_left, design.pair_right
        self.weights = design.pair_weights
        self.constants = embedding.pair_constants()

    def block(self, a: Any, b: Any) -> Float[Array, "A B"]:
        """κ0 between all of a and all of b."""
        tile = self._tile_value
        rows, chunk = self._tiling(_count(a), _count(b))
        chunks = self._chunks(chunk)

        def one(a_rows):
            def add(total, piece):
                return total + tile(a_rows, b, piece), None

            start = jnp.zeros((_count(a_rows), _count(b)))
            return jax.lax.scan(add, start, chunks)[0]

        return _by_rows(one, a, rows)

    def rows(self, a: Any, b: Any, c: Float[Array, " B"]) -> Float[Array, " A"]:
        """Σ_b c_b κ0(a, b)."""
        rows, chunk = self._tiling(_count(a), _count(b))
        chunks = self._chunks(chunk)

        def one(a_rows):
            def add(total, piece):
                return total + self._tile_value(a_rows, b, piece) @ c, None

            return jax.lax.scan(add, jnp.zeros(_count(a_rows)), chunks)[0]

        return _by_rows(one, a, rows)

    def rows_and_gradient(
        self, a: Any, b: Any, c: Float[Array, " B"], exclude_self: bool = False
    ) -> tuple[Float[Array, " A"], Any]:
        """Σ_b c_b κ0(a, b) and its gradient in a; `exclude_self` leaves b = a out of the sum."""
        rows, chunk = self._tiling(_count(a), _count(b))
        chunks = self._chunks(chunk)
        index = jnp.arange(_count(a))

        def one(packed):
            a_rows, a_index = packed
            coefficients = jnp.broadcast_to(c, (_count(a_rows), _count(b)))
            if exclude_self:
                itself = a_index[:, None] == jnp.arange(_count(b))[None, :]
                coefficients = jnp.where(itself, 0.0, coefficients)

            def piece_value_and_gradient(piece):
                taken = _take(a_rows, piece["left"])

                def total(taken):
                    tile = self._tile_of(taken, _take(b, piece["right"]), piece)
                    sums = jnp.sum(coefficients * tile, axis=1)
                    return jnp.sum(sums), sums

                gradient, sums = jax.grad(total, has_aux=True)(taken)
                return sums, gradient

            if self.diagonal:
                # Each atom occurs in one pair: its gradient is written once, nothing is added up.
                sums, gradients = jax.lax.map(piece_value_and_gradient, chunks)
                gradient = jax.tree.map(
                    lambda g, leaf: jnp.moveaxis(g, 0, 1).reshape(g.shape[1], -1, *g.shape[3:])[
                        :, : leaf.shape[1]
                    ],
                    gradients,
                    a_rows,
                )
                return jnp.sum(sums, axis=0), gradient

            def add(carry, piece):
                total, gradient = carry
                sums, piece_gradient = piece_value_and_gradient(piece)
                gradient = jax.tree.map(
                    lambda g, h: g.at[:, piece["left"]].add(h), gradient, piece_gradient
                )
                return (total + sums, gradient), None

            start = (jnp.zeros(_count(a_rows)), jax.tree.map(jnp.zeros_like, a_rows))
            return jax.lax.scan(add, start, chunks)[0]

        return _by_rows(one, (a, index), rows)

    def _tile_value(self, a, b, piece):
        return self._tile_of(_take(a, piece["left"]), _take(b, piece["right"]), piece)

    def _tile_of(self, a, b, piece) -> Float[Array, "A B"]:
        a = jax.tree.map(lambda leaf: leaf[:, None], a)
        b = jax.tree.map(lambda leaf: leaf[None], b)
        values = self.embedding.pair(a, b, piece["constants"])
        return jnp.sum(values * piece["weights"], axis=-1)

    def _tiling(self, size_a: int, size_b: int) -> tuple[int, int]:
        """Rows of a and atom pairs in one tile."""
        rows = max(1, min(size_a, TILE // max(size_b, 1)))
        chunk = max(1, min(len(self.weights), TILE // (rows * max(size_b, 1))))
        return rows, chunk

    def _chunks(self, size: int):
        """The list of atom pairs cut into pieces of one size, the last filled up with weight 0."""
        total = len(self.weights)
        pieces = -(-total // size)
        index = np.minimum(np.arange(pieces * size), total - 1).reshape(pieces, size)
        real = np.arange(pieces * size).reshape(pieces, size) < total
        left, right = self.left[index], self.right[index]
        return {
            "left": jnp.asarray(left),
            "right": jnp.asarray(right),
            "weights": jnp.asarray(np.where(real, self.weights[index], 0.0)),
            "constants": jax.tree.map(lambda leaf: jnp.asarray(leaf[index]), self.constants),
        }


def _count(representation) -> int:
    return len(jax.tree.leaves(representation)[0])


def _take(representation, atoms):
    return jax.tree.map(lambda leaf: leaf[:, atoms], representation)


def _by_rows(function, tree, rows: int):
    """Apply to blocks of `rows` leading entries, padded with copies of the last one."""
    size = _count(tree)
    if size == rows:
        return function(tree)
    blocks = -(-size // rows)
    index = np.minimum(np.arange(blocks * rows), size - 1).reshape(blocks, rows)
    results = jax.lax.map(function, jax.tree.map(lambda leaf: leaf[index], tree))
    return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[:size], results)
