"""The default sampler: proposals for all particles at once, accepted one by one.

Each iteration makes a few sweeps over the N particles, all exact for the joint density

    log π(Θ) = Σ_i log q0(θ_i) + (1/λ) [Σ_i v(θ_i) − (1/(N−1)) Σ_{i<j} κ0(θ_i, θ_j)]:

some of *local moves*, some of *jumps*, both shaped by a mixture fitted to earlier positions (see
`mixture.py`). A proposal does not depend on where the other particles are, so all of them are
solved in parallel; then each is accepted or rejected in turn with the exact ratio of π, given the
current others. What that needs of κ0 are little more than N² new values, and no more solves. No
derivative of the model is taken. The mixture and the length of local moves change in warm-up only.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float

from pcuq.objective import Features, Objective
from pcuq.parameters import Parameters
from pcuq.samplers import mixture as mixtures
from pcuq.samplers.base import Draw
from pcuq.samplers.mixture import Mixture, fit_mixture, log_components, log_jump_density
from pcuq.samplers.shared import LogDensity, at_least_lowest

# Local moves of several lengths, relative to the adapted one: where the mixture is too wide for the
# density, a particle would not move by long ones.
LENGTHS = (2.0, 0.7, 0.2)
JUMPS = 2  # sweeps of them in each iteration
TARGET_ACCEPTANCE = 0.4  # of local moves, over all lengths
ADAPTATION_RATE = 0.3
MOST_BLOCKS = 5  # of proposals that are accepted together: fewer compute more of κ0


class Particles(NamedTuple):
    """N positions and what the acceptance ratios need of them."""

    theta: Float[Array, "N p"]
    log_prior: Float[Array, " N"]
    v: Float[Array, " N"]
    features: Features
    log_parts: Float[Array, "N R"]  # of the mixture


class State(NamedTuple):
    """The particles, κ0 between them, and log s of the local moves."""

    particles: Particles
    kappa0: Float[Array, "N N"]
    log_step: Float[Array, ""]


class Info(NamedTuple):
    """What happened in one iteration."""

    walked: Float[Array, ""]  # share of local moves that were accepted
    jumped: Float[Array, ""]
    log_step: Float[Array, ""]
    failed: Float[Array, ""]  # share of proposals that could not be solved


class Tuning(NamedTuple):
    """Everything that is adapted in warm-up and fixed afterwards."""

    mixture: Mixture
    lam: Array  # a number of the run, not of the program: every λ runs the same
    adapting: Array


class Ensemble:
    """`tune`, `init` and `step` for one objective and one λ."""

    name = "ensemble"

    def __init__(self, objective: Objective, lam: float):
        self.objective, self.lam = objective, lam
        self.prior = objective.problem.parameters

    def tune(self, thetas: Float[np.ndarray, "T S N p"], v: np.ndarray, warmed: float) -> Tuning:
        """Tuning from earlier positions, oldest first."""
        return self.shaped_by(thetas)._replace(adapting=jnp.asarray(float(warmed < 1)))

    def shaped_by(self, thetas: Float[np.ndarray, "T S N p"]) -> Tuning:
        """Tuning whose moves follow these positions, and whose steps adapt."""
        scale = self.prior.standard_deviations()
        mixture = fit_mixture(thetas.reshape(-1, thetas.shape[-1]), scale)
        return Tuning(mixture, jnp.asarray(self.lam), jnp.asarray(1.0))

    def init(self, thetas: Float[Array, "N p"], tuning: Tuning, log_step) -> State:
        particles = self.evaluate(thetas, tuning)
        kappa0 = self.objective.quick_pair_block(particles.features, particles.features)
        return State(particles, kappa0, jnp.asarray(log_step))

    def evaluate(self, thetas: Float[Array, "N p"], tuning: Tuning) -> Particles:
        """Everything about N positions, with one solve for each."""
        features = self.objective.features(thetas)
        return Particles(
            thetas,
            self.objective.log_priors(thetas),
            self.objective.data_terms(features),
            self.objective.quick_features(features),
            jax.vmap(lambda theta: log_components(tuning.mixture, theta))(thetas),
        )

    def draw(self, state: State) -> Draw:
        particles = state.particles
        return Draw(particles.theta, particles.v, ~particles.features.ok)

    def step(self, key: Array, state: State, tuning: Tuning) -> tuple[State, Info]:
        def sweep(state, packed):
            key, length = packed
            return self._sweep(key, length, state, tuning)

        # One loop over both kinds of sweep, jumps last: solving is compiled once.
        lengths = jnp.array([*LENGTHS, *[0.0] * JUMPS])
        keys = jax.random.split(key, len(lengths))
        state, (accepted, failed) = jax.lax.scan(sweep, state, (keys, lengths))
        walked, jumped = jnp.mean(accepted[:-JUMPS]), jnp.mean(accepted[-JUMPS:])
        change = tuning.adapting * ADAPTATION_RATE * (walked - TARGET_ACCEPTANCE)
        log_step = jnp.minimum(state.log_step + change, 0.0)
        state = state._replace(log_step=log_step)
        return state, Info(walked, jumped, log_step, jnp.mean(failed))

    def _sweep(self, key, length, state: State, tuning: Tuning):
        """Local moves of one length, or jumps for length 0."""
        jumping = length == 0
        move_key, jump_key, accept_key = jax.random.split(key, 3)
        old, mixture = state.particles, tuning.mixture
        s = jnp.minimum(1.0, length * jnp.exp(state.log_step))
        moved = jax.vmap(mixtures.move, in_axes=(None, 0, 0, 0, None))(
            mixture, jax.random.split(move_key, len(old.theta)), old.theta, old.log_parts, s
        )
        jumped = mixtures.sample(mixture, self.prior, jump_key, len(old.theta))
        new = self.evaluate(jnp.where(jumping, jumped, moved), tuning)
        ratio = _log_reference(old, jumping) - _log_reference(new, jumping)
        state, accepted = self._accept(accept_key, state, new, ratio, tuning.lam)
        return state, (jnp.mean(accepted), jnp.mean(~new.features.ok))

    def _accept(self, key, state: State, new: Particles, log_proposal_ratio, lam):
        """Accept or reject each particle in turn, given where the others are by then.

        κ0 is computed for some proposals at a time, with all particles as they are by then. Within
        such a block the repulsion of i changes by κ0(i', k') − κ0(i', k) − κ0(i, k') + κ0(i, k) for
        each earlier k that moved to k'.
        """
        old = state.particles
        count = len(old.theta)
        own = (new.log_prior - old.log_prior) + (new.v - old.v) / lam + log_proposal_ratio
        log_uniform = jnp.log(jax.random.uniform(key, (count,)))
        share = 1.0 / (lam * max(count - 1, 1))

        def block(carry, members):
            features, kappa0 = carry
            proposed = jax.tree.map(lambda leaf: leaf[members], new.features)
            with_all = self.objective.quick_pair_block(proposed, features)
            with_each_other = self.objective.quick_pair_block(proposed, proposed)
            change = with_all - kappa0[members]
            change = jnp.where(jnp.arange(count) == members[:, None], 0.0, change)
            with_block = with_all[:, members]
            mutual = with_each_other - with_block - with_block.T + kappa0[members][:, members]
            limit = (own[members] - log_uniform[members]) / share - jnp.sum(change, axis=1)

            def one(accepted, place):
                take = accepted @ mutual[place] < limit[place]
                return accepted.at[place].set(jnp.where(take, 1.0, 0.0)), None

            places = jnp.arange(len(members))
            moved, _ = jax.lax.scan(one, jnp.zeros(len(members)), places)
            accepted = moved > 0
            # κ0 within the block as it is now: of pairs of which both moved, one, or none.
            of_moved = jnp.where(accepted, with_each_other, with_block)
            of_stayed = jnp.where(accepted, with_block.T, kappa0[members][:, members])
            rows = _where(accepted, with_all, kappa0[members])
            rows = rows.at[:, members].set(_where(accepted, of_moved, of_stayed))
            kappa0 = kappa0.at[members].set(rows).at[:, members].set(rows.T)
            features = jax.tree.map(
                lambda all, some: all.at[members].set(_where(accepted, some, all[members])),
                features,
                proposed,
            )
            return (features, kappa0), accepted

        blocks = jnp.arange(count).reshape(_blocks(count), -1)
        (_, kappa0), accepted = jax.lax.scan(block, (old.features, state.kappa0), blocks)
        accepted = accepted.reshape(count)
        particles = jax.tree.map(lambda a, b: _where(accepted, a, b), new, old)
        return state._replace(particles=particles, kappa0=kappa0), accepted


class ParallelEnsemble(Ensemble):
    """N independent chains by the same moves, for a log density of one θ (see `LogDensity`)."""

    name = "parallel-ensemble"

    def __init__(self, log_density: LogDensity, prior: Parameters):
        self.log_density, self.prior, self.lam = log_density, prior, 1.0

    def init(self, thetas: Float[Array, "N p"], tuning: Tuning, log_step) -> State:
        return State(self.evaluate(thetas, tuning), jnp.zeros((0, 0)), jnp.asarray(log_step))

    def evaluate(self, thetas: Float[Array, "N p"], tuning: Tuning) -> Particles:
        value, (v, ok) = self.log_densities(thetas, tuning)
        parts = jax.vmap(lambda theta: log_components(tuning.mixture, theta))(thetas)
        log_prior = jax.vmap(self.prior.log_prior)(thetas)
        return Particles(thetas, log_prior, v, Features(at_least_lowest(value), ok), parts)

    def log_densities(self, thetas: Float[Array, "N p"], tuning: Tuning):
        return jax.vmap(self.log_density)(thetas)

    def _accept(self, key, state: State, new: Particles, log_proposal_ratio, lam):
        log_ratio = log_proposal_ratio + (
            new.features.representation - state.particles.features.representation
        )
        log_uniform = jnp.log(jax.random.uniform(key, log_ratio.shape))
        accepted = log_uniform < jnp.where(jnp.isnan(log_ratio), -jnp.inf, log_ratio)
        particles = jax.tree.map(lambda a, b: _where(accepted, a, b), new, state.particles)
        return state._replace(particles=particles), accepted


def _blocks(count: int) -> int:
    return max(n for n in range(1, MOST_BLOCKS + 1) if count % n == 0)


def _where(accepted, a, b):
    return jnp.where(accepted.reshape(-1, *(1,) * (a.ndim - 1)), a, b)


def _log_reference(particles: Particles, jumping):
    """The density that a proposal leaves invariant: m for local moves, g for jumps."""
    log_mixture = logsumexp(particles.log_parts, axis=1)
    return jnp.where(jumping, log_jump_density(particles.log_prior, log_mixture), log_mixture)
