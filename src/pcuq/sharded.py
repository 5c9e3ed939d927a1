r"""One particle system over several devices: each holds and solves N/D particles.

    Σ_{j≠i} κ0(θ_i, θ_j) = Σ over devices, one after the other, of the sum over the particles there.

Blocks of predictions go round a ring: in each of D − 1 turns a device passes on the block that it
has and adds the sums with the one that it gets. Nothing of size N × N, and no table of all
predictions, is ever on one device: what it needs falls as 1/D. With `jax.distributed` the devices
may be those of several processes or machines.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import Array, Float

from pcuq.errors import InputError
from pcuq.objective import Features, Objective

AXIS = "particles"


class ShardedObjective:
    """An objective for `Mala` and `Flow` whose particles are spread over devices."""

    def __init__(self, objective: Objective, devices: Sequence[Any] | None = None):
        self.objective, self.problem = objective, objective.problem
        self.mesh = Mesh(np.array(jax.devices() if devices is None else list(devices)), (AXIS,))
        self.count = self.mesh.devices.size

    def place(self, thetas: Float[np.ndarray, "N p"]) -> Array:
        """Positions, each device holding its own; the same on every process."""
        self._check(len(thetas))
        thetas = np.asarray(thetas, dtype=float)
        sharding = NamedSharding(self.mesh, P(AXIS))
        return jax.make_array_from_callback(thetas.shape, sharding, lambda index: thetas[index])

    def joint_evaluation(self, thetas: Float[Array, "N p"], lam: Array | float):
        """(log π(Θ), its gradient, v, ok), as of the objective on one device."""
        self._check(len(thetas))
        spread = P(AXIS)
        evaluate = jax.shard_map(
            self._here,
            mesh=self.mesh,
            in_specs=(spread, P()),
            out_specs=(P(), spread, spread, spread),
            check_vma=False,
        )
        return evaluate(thetas, jnp.asarray(lam))

    def _here(self, thetas, lam):
        value, *rest = self.objective.joint_evaluation(thetas, lam, others=self._ring)
        return jax.lax.psum(value, AXIS), *rest

    def _ring(self, features: Features):
        """(1/(N−1)) Σ_{j≠i} κ0(i, j), and its gradient, for the particles that are here."""
        here, ok = features
        each = 1.0 / (len(ok) * self.count - 1)
        sums = self.objective.pairs.rows_and_gradient
        found = sums(here, here, jnp.where(ok, each, 0.0), exclude_self=True)
        onward = partial(
            jax.lax.ppermute,
            axis_name=AXIS,
            perm=[(i, (i + 1) % self.count) for i in range(self.count)],
        )

        def turn(_, carry):
            block, found = carry
            block = jax.tree.map(onward, block)
            more = sums(here, block[0], jnp.where(block[1], each, 0.0))
            return block, jax.tree.map(jnp.add, found, more)

        return jax.lax.fori_loop(1, self.count, turn, ((here, ok), found))[1]

    def _check(self, particles: int) -> None:
        if particles % self.count:
            raise InputError(
                f"{particles} particles cannot be spread evenly over {self.count} devices: use "
                f"{self.count * -(-particles // self.count)}."
            )
