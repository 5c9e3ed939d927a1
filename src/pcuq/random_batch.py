r"""Many particles: each is repelled by some of the others, drawn anew at every step.

    (1/(N−1)) Σ_{j≠i} κ0(θ_i, θ_j)  ≈  (1/(B−1)) Σ_{j≠i in i's group} κ0(θ_i, θ_j),

with the particles shared out at random into groups of about B. Any other is as likely as the next
to be in i's group, so the drift of the unadjusted flow is unbiased, at a cost that grows as N B and
not as N². Its error is that of a mean over B − 1 draws without replacement: for each component the
sd over j of ∇κ0(θ_i, θ_j), times ((1/(B−1)) (N−B)/(N−2))^½. (The random batch method: Jin, Li, Liu,
Journal of Computational Physics 400, 2020.)
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from pcuq._given import whole_number
from pcuq.objective import Features, Objective


class RandomBatches:
    """An objective for `Flow` whose pair term is that of random groups of about `batch`."""

    def __init__(self, objective: Objective, batch: int):
        self.objective, self.batch = objective, whole_number("pair_batch", batch, 2)
        self.problem = objective.problem

    def joint_evaluation(self, thetas: Float[Array, "N p"], lam: Array | float, key: Array):
        """Unbiased estimates of log π(Θ) and its gradient; v and ok."""

        def others(features):
            return self.mean_over_group(features, key)

        return self.objective.joint_evaluation(thetas, lam, others=others)

    def mean_over_group(self, features: Features, key: Array) -> tuple[Array, Any]:
        """Rows (N,) and their gradient, each over the others in a particle's group."""
        count = len(features.ok)
        places, sizes = groups(count, self.batch)
        order = jax.random.permutation(key, count)[places]
        real = np.arange(places.shape[1]) < sizes[:, None]

        def of_group(packed):
            members, real, size = packed
            a = jax.tree.map(lambda leaf: leaf[members], features.representation)
            share = jnp.where(real & features.ok[members], 1.0 / (size - 1), 0.0)
            return self.objective.pairs.rows_and_gradient(a, a, share, exclude_self=True)

        found = jax.lax.map(of_group, (order, real, sizes))
        # Each particle is once in a real place: back to where it was.
        back = jnp.zeros(count, int).at[order[real]].set(np.flatnonzero(real))
        return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[back], found)


def groups(count: int, batch: int) -> tuple[np.ndarray, np.ndarray]:
    """(places (G, B) of 0..count−1 in groups of about `batch`, their sizes (G,)).

    Sizes differ by one at most; a smaller group is filled up with a place of its own, repeated.
    """
    number = max(1, round(count / batch))
    number = min(number, max(1, count // 2))  # one alone would have no others
    parts = np.array_split(np.arange(count), number)
    sizes = np.array([len(part) for part in parts])
    filled = [np.append(part, np.full(sizes.max() - len(part), part[-1])) for part in parts]
    return np.stack(filled), sizes
