r"""Where a law may reach that no particle has been to: along each parameter, the best that fits.

From the point of the largest v, one parameter at a time is moved up or down, step by step, and
after each step all others climb v again while that one rests: a profile of v, by its two paths.
Where data tell a sum of two rates, say, but neither of them, the law is an L in their logarithms,
and its arms may be many decades long and thin. Particles that begin at the best fit enter such arms
one after the other, over thousands of iterations, in all systems alike. Begun along the paths, they
are there.

The climb is that of Levenberg and Marquardt. Its metric is how fast the embedding of a prediction
changes, G = ∂_θ ∂_ϑ κ0(θ, ϑ) at ϑ = θ: as v(θ) = ⟨μ_data, μ_θ⟩ and κ0 = ⟨μ_θ, μ_ϑ⟩, this is the
curvature of −v where predictions come near the data. A step begins along the valley that G shows.
All is done in the coordinates η of `straight.py`, in units of the prior's sd where a parameter has
no bounds, and all paths are walked side by side.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from pcuq._program import Program, side_by_side
from pcuq.models.rosenbrock import inverted
from pcuq.objective import Objective
from pcuq.straight import Straight

STEP = 0.12  # of η: a thirty-third of the way between two bounds
STEPS, CLIMBS = 36, 8  # on a path, and of the climb after each
FIRST_CLIMBS = 40  # to the point where paths begin
ORIGINS = 16  # fits that are climbed from
WORTH = 0.8  # of the largest v: paths end where less is explained
WALKS, BETTER = 3, 1.05  # how often paths are walked, if the first lead to a v so much larger
ALMOST = 0.9  # of the largest v: where particles begin
LONGEST = 0.5  # of η, in one step of a climb
EDGE = 2 - 1e-6  # as near to a bound as a walker comes
PARTS = 2  # of all walkers, each on a core
SOFT = 1.0  # curvature in nats below which nothing is known


class Walkers(NamedTuple):
    """Points with all that a step of the climb needs, from one solve with its Jacobian each."""

    eta: Any  # (L, p)
    value: Any  # (L,) v/λ
    gradient: Any  # (L, p)
    metric: Any  # (L, p, p)
    damping: Any  # (L,)


def begun_along_paths(
    objective: Objective,
    lam: float,
    thetas: Float[np.ndarray, "K p"],
    shape: tuple[int, int],
    seed: int,
) -> Float[np.ndarray, "S N p"]:
    """Systems of particles, at points of the paths that fit almost as well as the best."""
    points, v = profile_paths(objective, lam, thetas)
    rng = np.random.default_rng(seed)
    return rng.choice(points[v >= ALMOST * v.max()], shape)


def profile_paths(
    objective: Objective, lam: float, thetas: Float[np.ndarray, "K p"]
) -> tuple[Float[np.ndarray, "P p"], Float[np.ndarray, " P"]]:
    """Points of all paths from the best that is reached from `thetas`, and v there."""
    axes, p = Straight(objective.problem.parameters.bounded), thetas.shape[1]
    unit, walk = _units(objective), Program(_walk(objective, axes, lam))

    def advance(walkers: Walkers, ways: Float[np.ndarray, "L p"], climbs: int) -> Walkers:
        count = np.full(len(ways), climbs)
        return Walkers(*side_by_side(walk, PARTS, *walkers, ways, count))

    origins = np.asarray(axes.straight(thetas[:ORIGINS])) / unit
    ends = advance(_unknown(np.resize(origins, (2 * p, p))), np.zeros((2 * p, p)), FIRST_CLIMBS)
    for _ in range(WALKS):
        etas, values = _profile(axes, advance, ends)
        best = np.argmax(values)
        if values[best] < BETTER * ends.value.max():
            break
        # A path has led to a fit that is another: to be profiled in place of the first.
        ends = advance(_unknown(np.tile(etas[best], (2 * p, 1))), np.zeros((2 * p, p)), CLIMBS)
    good = values >= WORTH * values[best]
    return np.asarray(axes.bent(jnp.asarray(unit * etas[good]))), lam * values[good]


def _units(objective: Objective) -> Float[np.ndarray, " p"]:
    """What a step is measured by: 1 between bounds, else the prior's sd."""
    prior = objective.problem.parameters
    return np.where(prior.bounded, 1.0, prior.standard_deviations)


def _profile(axes: Straight, advance, ends: Walkers) -> tuple[np.ndarray, np.ndarray]:
    """(η, v/λ) on paths from the best of the walkers, for each parameter up and down."""
    p, best = ends.eta.shape[1], np.argmax(ends.value)
    here = jax.tree.map(lambda leaf: np.repeat(leaf[best : best + 1], 2 * p, axis=0), ends)
    ways = np.concatenate([np.eye(p), -np.eye(p)])
    largest, going = ends.value[best], np.ones(2 * p, bool)
    points, values = [ends.eta[best][None]], [ends.value[best][None]]
    for _ in range(STEPS):
        here = advance(here, ways, CLIMBS)
        largest = max(largest, here.value.max())
        going &= (here.value > WORTH * largest) & _within(axes, here.eta, ways)
        if not going.any():
            break
        points.append(here.eta[going])
        values.append(here.value[going])
    return np.concatenate(points), np.concatenate(values)


def _unknown(etas: Float[np.ndarray, "L p"]) -> Walkers:
    """Of which only the place is known: the first step of a climb finds the rest."""
    count, p = etas.shape
    zeros = np.zeros((count, p)), np.zeros((count, p, p))
    return Walkers(etas, np.full(count, -np.inf), *zeros, np.full(count, 1e-2))


def _within(axes: Straight, etas, ways) -> np.ndarray:
    """Whether the parameter that is moved has not come to a bound."""
    moved = np.sum(np.abs(ways) * np.where(axes.bounded, etas, 0.0), axis=1)
    return np.abs(moved) < EDGE


def _walk(objective: Objective, axes: Straight, lam: float):
    p, unit = len(axes.bounded), _units(objective)
    one_by_one = jnp.eye(p)

    def kappa0(a, b):
        each = (jax.tree.map(lambda leaf: leaf[None], objective.represent(x)) for x in (a, b))
        return objective.pairs.block(*each)[0, 0]

    def metric(prediction, jacobian):
        """G = Jᵀ (∂_a ∂_b κ0) J of one walker."""

        def along(direction):
            of_b = jax.grad(kappa0, argnums=1)
            return jax.jvp(lambda a: of_b(a, prediction), (prediction,), (direction,))[1]

        bent = jax.vmap(along, in_axes=-1, out_axes=-1)(jacobian)
        return sum(map(_product, jax.tree.leaves(bent), jax.tree.leaves(jacobian)))

    def at(etas, damping) -> Walkers:
        def along(direction):
            every = jnp.broadcast_to(direction, etas.shape)
            return jax.jvp(lambda e: objective.predict(axes.bent(unit * e)), (etas,), (every,))

        (predictions, ok), (jacobian, _) = jax.vmap(along, out_axes=((None, None), (-1, None)))(
            one_by_one
        )
        v, slope = jax.vmap(
            jax.value_and_grad(lambda one: objective.data_term(objective.represent(one)))
        )(predictions)
        gradient = sum(
            jax.vmap(_product)(*leaves)[:, 0]
            for leaves in zip(
                jax.tree.leaves(jax.tree.map(lambda leaf: leaf[..., None], slope)),
                jax.tree.leaves(jacobian),
                strict=True,
            )
        )
        parts = jnp.where(ok, v, -jnp.inf), gradient, jax.vmap(metric)(predictions, jacobian)
        value, gradient, curvature = (jnp.nan_to_num(part, neginf=-jnp.inf) / lam for part in parts)
        return Walkers(etas, value, gradient, curvature, damping)

    def step(first, here: Walkers, ways) -> Walkers:
        """Along the way at the first step, which is taken wherever it leads; then up."""
        rests = jnp.abs(ways)
        free = (1 - rests)[:, :, None] * (1 - rests)[:, None, :]
        diagonal = jnp.diagonal(here.metric, axis1=1, axis2=2)
        damped = jnp.where(first, SOFT, SOFT + here.damping[:, None] * (diagonal + SOFT))
        a = free * here.metric + (damped * (1 - rests) + rests)[:, :, None] * one_by_one
        forward = STEP * ways
        pull = jnp.where(first, -_times(here.metric, forward), here.gradient) * (1 - rests)
        move = _times(jax.vmap(inverted)(a), pull)
        longest = jnp.max(jnp.abs(move), axis=1, keepdims=True)
        move = move * jnp.minimum(1.0, LONGEST / (longest + 1e-12))
        etas = here.eta + move + jnp.where(first, forward, 0.0)
        etas = jnp.where(axes.bounded, jnp.clip(etas, -EDGE, EDGE), etas)
        there = at(etas, here.damping)
        better = there.value > here.value
        damping = jnp.clip(here.damping * jnp.where(better, 0.25, 4.0), 1e-6, 1e8)

        def chosen(new, old):
            return jnp.where((first | better).reshape(-1, *[1] * (new.ndim - 1)), new, old)

        return jax.tree.map(chosen, there, here)._replace(damping=jnp.where(first, 1e-2, damping))

    def walk(*given):
        *leaves, ways, climbs = given
        return jax.lax.fori_loop(
            0, climbs[0] + 1, lambda i, here: step(i == 0, here, ways), Walkers(*leaves)
        )

    return walk


def _product(a, b):
    """AᵀB of arrays whose last axis is kept."""
    return a.reshape(-1, a.shape[-1]).T @ b.reshape(-1, b.shape[-1])


def _times(matrices, vectors):
    return jnp.einsum("lpq,lq->lp", matrices, vectors)
