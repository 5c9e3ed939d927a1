"""The no-U-turn sampler: of a particle system as a whole, or of independent chains.

    H(z, r) = −log π(L z) + |r|²/2,    θ = L z,    L Lᵀ = P the covariance of earlier positions,

so that the metric is the identity in z: for the joint density of N particles that is one block P
per particle. Trajectories and their sampling are blackjax's. The log density carries its own
gradient, because solvers that only have forward sensitivities cannot be differentiated in reverse.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import blackjax.mcmc.nuts as blackjax_nuts
import jax
import jax.numpy as jnp
import numpy as np
from blackjax.mcmc.hmc import HMCState
from jaxtyping import Array, Bool, Float

from pcuq.objective import Objective
from pcuq.samplers import shared
from pcuq.samplers.base import Draw
from pcuq.samplers.shared import LogDensity, Tuning

TARGET_ACCEPTANCE = 0.8
MOST_DOUBLINGS = 9  # of a trajectory: at most 2⁹ − 1 leapfrog steps


class State(NamedTuple):
    """Positions, and what blackjax carries of them."""

    inner: Any  # HMCState: z, log density, gradient; with an axis N for independent chains
    theta: Float[Array, "N p"]
    v: Float[Array, " N"]
    ok: Bool[Array, " N"]
    log_step: Float[Array, ""]
    age: Float[Array, ""]


class Info(NamedTuple):
    """What happened in one iteration, the mean over chains."""

    acceptance: Float[Array, ""]
    divergent: Float[Array, ""]
    leapfrog: Float[Array, ""]  # steps taken, each with one gradient
    log_step: Float[Array, ""]
    failed_proposals: Float[Array, ""]  # share of ends of trajectories that could not be solved


class JointNuts:
    """All particles of a system at once, for one objective and one λ."""

    name = "nuts"

    def __init__(self, objective: Objective, lam: float):
        self.objective = objective
        self.lam: Any = lam

    def tune(self, thetas: Float[np.ndarray, "T S N p"], v: np.ndarray, warmed: float) -> Tuning:
        return shared.tuning_of_fit(thetas, v, warmed)

    def init(self, thetas: Float[Array, "N p"], tuning: Tuning, log_step) -> State:
        value, gradient, v, ok = self.objective.joint_evaluation(thetas, self.lam)
        inner = _inner(thetas, shared.at_least_lowest(value), gradient, tuning)
        return State(inner, thetas, v, ok, jnp.asarray(log_step), jnp.zeros(()))

    def step(self, key: Array, state: State, tuning: Tuning) -> tuple[State, Info]:
        inner, info = _trajectory(key, state.inner, self._log_density(tuning), state.log_step)
        theta = inner.position @ tuning.factor.T
        features = self.objective.features(theta)
        v = self.objective.data_terms(features)
        return _adapted(state, State(inner, theta, v, features.ok, *state[4:]), info, tuning)

    def draw(self, state: State) -> Draw:
        return Draw(state.theta, state.v, ~state.ok)

    def _log_density(self, tuning: Tuning):
        def value_and_gradient(z):
            value, gradient = self.objective.joint_value_and_gradient(z @ tuning.factor.T, self.lam)
            return shared.at_least_lowest(value), gradient @ tuning.factor

        return _with_own_gradient(value_and_gradient)


class ParallelNuts:
    """N independent chains for a log density of one θ (see `shared.LogDensity`)."""

    name = "parallel-nuts"

    def __init__(self, log_density: LogDensity, mode: str = "forward"):
        self.log_density = log_density
        self.value_and_gradient = shared.value_and_gradient(log_density, mode)

    def tune(self, thetas: Float[np.ndarray, "T S N p"], v: np.ndarray, warmed: float) -> Tuning:
        return shared.tuning_of_most(thetas, v, warmed)

    def init(self, thetas: Float[Array, "N p"], tuning: Tuning, log_step) -> State:
        value, gradient, v, ok = jax.vmap(self.value_and_gradient)(thetas)
        inner = _inner(thetas, value, gradient, tuning)
        return State(inner, thetas, v, ok, jnp.asarray(log_step), jnp.zeros(()))

    def step(self, key: Array, state: State, tuning: Tuning) -> tuple[State, Info]:
        keys = jax.random.split(key, len(state.theta))
        log_density = self._log_density(tuning)
        inner, info = jax.vmap(
            lambda key, inner: _trajectory(key, inner, log_density, state.log_step)
        )(keys, state.inner)
        theta = inner.position @ tuning.factor.T
        _, kept = jax.vmap(self.log_density)(theta)
        return _adapted(state, State(inner, theta, *kept, *state[4:]), info, tuning)

    def draw(self, state: State) -> Draw:
        return Draw(state.theta, state.v, ~state.ok)

    def _log_density(self, tuning: Tuning):
        def value_and_gradient(z):
            at = self.value_and_gradient(tuning.factor @ z)
            return at.value, at.gradient @ tuning.factor

        return _with_own_gradient(value_and_gradient)


def _inner(thetas, value, gradient, tuning: Tuning) -> HMCState:
    """What blackjax carries, in the coordinates z = L⁻¹ θ."""
    z = jax.scipy.linalg.solve_triangular(tuning.factor, thetas.T, lower=True).T
    return HMCState(z, value, gradient @ tuning.factor)


def _trajectory(key, inner: Any, log_density, log_step) -> tuple[Any, Any]:
    kernel: Any = blackjax_nuts.build_kernel()
    metric = jnp.ones(inner.position.size)
    return kernel(key, inner, log_density, jnp.exp(log_step), metric, MOST_DOUBLINGS)


def _adapted(old: State, new: State, info, tuning: Tuning) -> tuple[State, Info]:
    acceptance = jnp.mean(jnp.nan_to_num(info.acceptance_rate))
    log_step = shared.adapt(old.log_step, old.age, acceptance, TARGET_ACCEPTANCE, tuning)
    new = new._replace(log_step=log_step, age=old.age + 1)
    divergent = jnp.mean(info.is_divergent, dtype=float)
    leapfrog = jnp.mean(info.num_integration_steps, dtype=float)
    return new, Info(acceptance, divergent, leapfrog, log_step, jnp.mean(~new.ok, dtype=float))


def _with_own_gradient(value_and_gradient):
    """A function of z whose derivative in reverse is the gradient computed beside its value."""

    @jax.custom_vjp
    def value(z):
        return value_and_gradient(z)[0]

    def backward(gradient, cotangent):
        return (cotangent * gradient,)

    value.defvjp(value_and_gradient, backward)
    return value
