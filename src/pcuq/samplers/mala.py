"""Metropolis-adjusted Langevin: of a particle system as a whole, or of independent chains.

    θ' = θ + ε P ∇log π(θ) + (2ε)^½ P^½ ξ,    accepted with probability
    min(1, π(θ') g(θ | θ') / (π(θ) g(θ' | θ))),    g(θ' | θ) the density of the proposal.

`Mala` does this to all N particles at once, with π their joint density and one decision for all, as
the paper does; `ParallelMala` to N independent chains with one decision each. The gradient is that
of the value which decides. A step takes one new gradient: the old one is carried.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from pcuq.objective import Objective
from pcuq.samplers import shared
from pcuq.samplers.base import Draw
from pcuq.samplers.shared import LogDensity, Tuning
from pcuq.sharded import ShardedObjective

TARGET_ACCEPTANCE = 0.574


class Point(NamedTuple):
    """N positions with all that is known of them."""

    theta: Float[Array, "N p"]
    value: Float[Array, "..."]  # log π: one number, or one per chain
    gradient: Float[Array, "N p"]
    v: Float[Array, " N"]
    ok: Bool[Array, " N"]


class State(NamedTuple):
    """Where the particles are; the gradient there is carried."""

    at: Point
    log_step: Float[Array, ""]
    age: Float[Array, ""]  # steps since the tuning was made


class Info(NamedTuple):
    """What happened in one iteration."""

    acceptance: Float[Array, ""]  # mean probability of acceptance
    log_step: Float[Array, ""]
    failed_proposals: Float[Array, ""]  # share that could not be solved


class Langevin:
    """What both kinds do with `_evaluate`: θ (N, p) ↦ Point."""

    _evaluate: Callable[[Array], Point]

    def init(self, thetas: Float[Array, "N p"], tuning: Tuning, log_step) -> State:
        """Positions of which nothing else is known: the first step evaluates them and stays there.

        The model is then solved at one place of the program, and compiled once.
        """
        shapes = jax.eval_shape(self._evaluate, thetas)
        blank = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        return State(blank._replace(theta=thetas), jnp.asarray(log_step), jnp.zeros(()))

    def step(self, key: Array, state: State, tuning: Tuning) -> tuple[State, Info]:
        return _step(key, state, tuning, self._evaluate)

    def draw(self, state: State) -> Draw:
        return Draw(state.at.theta, state.at.v, ~state.at.ok)


class Mala(Langevin):
    """All particles of a system at once, for one objective and one λ."""

    name = "mala"

    def __init__(self, objective: Objective | ShardedObjective, lam: float):
        self.objective, self.own_devices = objective, isinstance(objective, ShardedObjective)
        self.lam: Any = lam

    def tune(self, thetas: Float[np.ndarray, "T S N p"], v: np.ndarray, warmed: float) -> Tuning:
        return shared.tuning_of_fit(thetas, v, warmed)

    def _evaluate(self, thetas) -> Point:
        return Point(thetas, *self.objective.joint_evaluation(thetas, self.lam))


class ParallelMala(Langevin):
    """N independent chains for a log density of one θ (see `shared.LogDensity`)."""

    name = "parallel-mala"

    def __init__(self, log_density: LogDensity, mode: str = "forward"):
        self.value_and_gradient = shared.value_and_gradient(log_density, mode)

    def tune(self, thetas: Float[np.ndarray, "T S N p"], v: np.ndarray, warmed: float) -> Tuning:
        return shared.tuning_of_most(thetas, v, warmed)

    def _evaluate(self, thetas) -> Point:
        return Point(thetas, *jax.vmap(self.value_and_gradient)(thetas))


def _step(key, state: State, tuning: Tuning, evaluate) -> tuple[State, Info]:
    """One step; there are as many decisions as the log density has values."""
    noise_key, accept_key = jax.random.split(key)
    old = state.at
    noise = jax.random.normal(noise_key, old.theta.shape)
    thetas, move = propose(old.theta, old.gradient, noise, state.log_step, tuning)
    known = state.age > 0
    new = evaluate(jnp.where(known, thetas, old.theta))
    proposals = log_proposal_ratio(new.gradient, noise, move, state.log_step, tuning)
    together = old.value.ndim == 0
    log_ratio = new.value - old.value + (jnp.sum(proposals) if together else proposals)
    acceptance = jnp.where(known, shared.probability(log_ratio), 1.0)
    accepted = jax.random.uniform(accept_key, acceptance.shape) < acceptance

    def choose(a, b):
        return jnp.where(accepted if together else accepted.reshape(-1, *(1,) * (a.ndim - 1)), a, b)

    acceptance = jnp.mean(acceptance)
    adapted = shared.adapt(state.log_step, state.age, acceptance, TARGET_ACCEPTANCE, tuning)
    log_step = jnp.where(known, adapted, state.log_step)
    info = Info(acceptance, log_step, jnp.mean(~new.ok, dtype=float))
    return State(jax.tree.map(choose, new, old), log_step, state.age + 1), info


def propose(theta, gradient, noise, log_step, tuning: Tuning):
    """θ' and the move in the coordinates z = L⁻¹ θ, where the proposal is plain Langevin."""
    step = jnp.exp(log_step)
    move = step * gradient @ tuning.factor + jnp.sqrt(2 * step) * noise
    return theta + move @ tuning.factor.T, move


def log_proposal_ratio(new_gradient, noise, move, log_step, tuning: Tuning) -> Float[Array, " N"]:
    """log g(θ | θ') − log g(θ' | θ) of each particle."""
    step = jnp.exp(log_step)
    back = -move - step * new_gradient @ tuning.factor
    return 0.5 * jnp.sum(noise**2, axis=1) - jnp.sum(back**2, axis=1) / (4 * step)
