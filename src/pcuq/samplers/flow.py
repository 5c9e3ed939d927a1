"""The particle flow of the paper, discretised and not adjusted.

    dθ_i = λ ∇_i log π(Θ) dt + (2λ)^½ dW_i

with the joint density π of all particles. Euler–Maruyama with time step h is, with ε = λh,

    θ_i ← θ_i + ε P ∇_i log π(Θ) + (2ε)^½ P^½ ξ_i,    P the identity in the paper.

`step_size` is ε, not h: in these units it compares with the ε of MALA. No step is rejected, so
draws have a bias of order ε; the acceptance that MALA would have is reported with each step, and
where it is not near 1 the bias matters. In return the objective may be a Monte Carlo estimate.
"""

from __future__ import annotations

import inspect
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from pcuq.samplers import shared
from pcuq.samplers.base import Draw
from pcuq.samplers.mala import Point, log_proposal_ratio, propose
from pcuq.samplers.shared import Tuning
from pcuq.sharded import ShardedObjective

TARGET_ACCEPTANCE = 0.9  # that MALA would have, where the step size is not given


class State(NamedTuple):
    """Where the particles are; the gradient there is carried, unless it is random."""

    at: Point
    log_step: Float[Array, ""]
    age: Float[Array, ""]


class Info(NamedTuple):
    """What happened in one iteration."""

    acceptance: Float[Array, ""]  # the probability at which MALA would have taken the step
    log_step: Float[Array, ""]
    failed_proposals: Float[Array, ""]  # share that could not be solved


class Flow:
    """Unadjusted steps of all particles, for one objective and one λ.

    `step_size`: ε, with P the identity; None: ε and P are found in warm-up. `objective`: an
    Objective, or a random one whose `joint_evaluation` takes a `key` as well.
    """

    name = "flow"

    def __init__(self, objective: Any, lam: float, step_size: float | None = None):
        self.objective, self.lam, self.step_size = objective, lam, step_size
        self.own_devices = isinstance(objective, ShardedObjective)
        self.random = "key" in inspect.signature(objective.joint_evaluation).parameters

    def tune(self, thetas: Float[np.ndarray, "T S N p"], v: np.ndarray, warmed: float) -> Tuning:
        if self.step_size is None:
            return shared.tuning_of_fit(thetas, v, warmed)
        return Tuning(jnp.eye(thetas.shape[-1]), jnp.zeros(()))

    def init(self, thetas: Float[Array, "N p"], tuning: Tuning, log_step) -> State:
        log_step = log_step if self.step_size is None else jnp.log(self.step_size)
        evaluated = self._evaluate(jax.random.key(0), thetas)
        return State(evaluated, jnp.asarray(log_step), jnp.zeros(()))

    def step(self, key: Array, state: State, tuning: Tuning) -> tuple[State, Info]:
        noise_key, objective_key = jax.random.split(key)
        old = state.at
        if self.random:
            # With other random numbers at either end their noise would pass for a step too long.
            old = self._evaluate(objective_key, old.theta)
        noise = jax.random.normal(noise_key, old.theta.shape)
        thetas, move = propose(old.theta, old.gradient, noise, state.log_step, tuning)
        new = self._evaluate(objective_key, thetas)
        proposals = log_proposal_ratio(new.gradient, noise, move, state.log_step, tuning)
        acceptance = shared.probability(new.value - old.value + jnp.sum(proposals))
        log_step = shared.adapt(state.log_step, state.age, acceptance, TARGET_ACCEPTANCE, tuning)
        info = Info(acceptance, log_step, jnp.mean(~new.ok, dtype=float))
        return State(new, log_step, state.age + 1), info

    def draw(self, state: State) -> Draw:
        return Draw(state.at.theta, state.at.v, ~state.at.ok)

    def _evaluate(self, key, thetas) -> Point:
        keys = (key,) if self.random else ()
        return Point(thetas, *self.objective.joint_evaluation(thetas, self.lam, *keys))
