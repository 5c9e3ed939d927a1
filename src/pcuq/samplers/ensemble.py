"""The default sampler: proposals for all particles at once, accepted one by one.

Each iteration makes two sweeps over the N particles, both exact for the joint density

    log π(Θ) = Σ_i log q0(θ_i) + (1/λ) [Σ_i v(θ_i) − (1/(N−1)) Σ_{i<j} κ0(θ_i, θ_j)]:

one of *local moves* and one of *jumps*, both shaped by a mixture fitted to earlier positions (see
`mixture.py`), in coordinates η of θ that know the bounds of parameters (see `straight.py`). A
proposal does not depend on where the other particles are, so all of them are solved in parallel;
then the particles are gone through in turn, with π given the current others:

* a local move is accepted or rejected with the exact ratio;
* in a jump, a particle goes to any of the points where no particle is, or stays. The N proposals A
  are drawn from g, so that Θ and A together have the law π(Θ) Π g(a). Given the others and which
  points there are, θ_i is at x with probability ∝ π(Θ with θ_i = x)/g(x): a Gibbs step. Each
  particle has N places to go to for one solve. The points that are left over are forgotten.

Of many parameters there is always one of which the data tell nothing over much of its range, and a
mixture of what has been seen grows into that range step by step. There, some of the local moves
draw one parameter anew from its prior instead, and half of them draw a few that depend on each
other anew from the mixture, given all others: a mixture knows such a part of the law better than
the whole. Jumps beyond a bound are drawn again there, so that g is cut off at the bounds. And the
mixture is learnt from more particles (see `settings.py`): fifty that move slowly see too few points
that differ, and a mixture of those says where they were.

What this needs of κ0 are little more than N² new values, or 2 N², and no more solves. No
derivative of the model is taken. The mixture and the length of local moves change in warm-up only.

The warm-up cools down to λ from ten times that, where Q is wider. A share of the mixture stays
fitted to positions at three times λ: thin arms of Q, into which no move would otherwise lead, are
wide there. Without that, particles that began at the best fit entered the arms of ERK over tens of
thousands of iterations, in all systems alike, so that comparing systems told nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.special import logsumexp
from jaxtyping import Array, Bool, Float

from pcuq.objective import Features, Objective
from pcuq.parameters import Parameters
from pcuq.samplers import mixture as mixtures
from pcuq.samplers.base import Draw
from pcuq.samplers.mixture import (
    MANY,
    Chances,
    Mixture,
    fit_mixture,
    log_components,
    log_jump_density,
    number_of_components,
    straightened,
    with_hot,
)
from pcuq.samplers.shared import LogDensities, at_least_lowest
from pcuq.straight import Straight

# Local moves have one of several lengths at random, relative to the adapted one: where the mixture
# is too wide for the density, as in its tails, a particle would be stuck without short ones.
LENGTHS = np.array([2.0, 0.7, 0.2, 0.05])
TARGET_ACCEPTANCE = 0.4  # of local moves, over all lengths
ADAPTATION_RATE = 0.3
# Where parameters are MANY, a share of local moves draws one of them anew from its prior: where the
# data tell nothing of it, a mixture would grow step by step over the whole of its range. Another
# share draws some anew from the mixture, given the others.
REDRAWN, PARTIAL = 0.25, 0.5
TRIES = 4  # of a jump that went beyond a bound: of many parameters one often does
MOST_BLOCKS = 5  # of proposals that are accepted together: fewer compute more of κ0


class Particles(NamedTuple):
    """N positions and what the acceptance ratios need of them."""

    eta: Float[Array, "N p"]  # θ in the coordinates of the moves, see `straight.py`
    log_prior: Float[Array, " N"]  # of η
    v: Float[Array, " N"]
    features: Features
    log_parts: Float[Array, "N R"]  # of the mixture


class State(NamedTuple):
    """The particles, κ0 between them, and log s of the local moves."""

    particles: Particles
    kappa0: Float[Array, "N N"]
    log_step: Float[Array, ""]
    known: Bool[Array, ""]  # whether more than θ is known of the particles


class Move(NamedTuple):
    """What is proposed to each particle."""

    uniform: Float[Array, " N"]  # by which it is accepted
    new: Particles
    redrawn: Bool[Array, " N"]  # whether one parameter was drawn anew from its prior


class More(NamedTuple):
    """What more chance has a part in where parameters are MANY."""

    links: Float[Array, "*S B 3"]  # of the partition in each block of particles
    tries: Chances  # of jumps that are drawn again, (*S, TRIES, N)


class Info(NamedTuple):
    """What happened in one iteration."""

    walked: Float[Array, ""]  # share of local moves accepted, but for those that draw anew
    jumped: Float[Array, ""]  # share of particles that came to new points by jumps
    log_step: Float[Array, ""]
    failed_proposals: Float[Array, ""]  # share that could not be solved


class Tuning(NamedTuple):
    """Everything that is adapted in warm-up and fixed afterwards."""

    mixture: Mixture
    lam: Array  # a number of the run, not of the program: every λ runs the same
    adapting: Array


class Ensemble:
    """`tune`, `init` and `step` for one objective and one λ."""

    name = "ensemble"
    anneals = True

    def __init__(self, objective: Objective, lam: float, anchors: Mixture | None = None):
        self.objective, self.lam = objective, lam
        self.prior = objective.problem.parameters
        self.axes = Straight(self.prior.bounded)
        self.anchors = None if anchors is None else straightened(anchors, self.axes)
        self._fitted_to: tuple[np.ndarray | None, Mixture | None] = None, None

    def tune(self, thetas: Float[np.ndarray, "T S N p"], v: np.ndarray, warmed: float) -> Tuning:
        """Tuning from earlier positions, oldest first."""
        return self.shaped_by(thetas)._replace(adapting=jnp.asarray(float(warmed < 1)))

    def shaped_by(self, thetas: Float[np.ndarray, "T S N p"]) -> Tuning:
        """Tuning whose moves follow these positions, and whose steps adapt."""
        mixture = self._fitted(thetas, self.anchors)
        return Tuning(mixture, jnp.asarray(self.lam), jnp.asarray(1.0))

    def heated(self, tuning: Tuning, heat: float, hot: np.ndarray | None) -> Tuning:
        """Tuning at `heat` times λ, with a share of the mixture for `hot` positions if there are.

        The number of components is the same with and without them: one program serves both.
        """
        if self._fitted_to[0] is not hot:
            self._fitted_to = hot, None if hot is None else self._fitted(hot, None)
        mixture = with_hot(tuning.mixture, self._fitted_to[1])
        return tuning._replace(mixture=mixture, lam=jnp.asarray(heat * self.lam))

    def _fitted(self, thetas: Float[np.ndarray, "T S N p"], anchors: Mixture | None) -> Mixture:
        scale, p = self.prior.standard_deviations, thetas.shape[-1]
        thetas = np.asarray(self.axes.straight(thetas))
        number = number_of_components(thetas.reshape(len(thetas), -1, p), scale)
        return fit_mixture(thetas.reshape(-1, p), scale, anchors, number)

    def init(self, thetas: Float[Array, "N p"], tuning: Tuning, log_step) -> State:
        """Particles of which only θ is known: the first sweep evaluates them where they are.

        The model is then solved at one place of the program, and compiled once.
        """

        def known(eta):
            particles = self.evaluate(eta, tuning)
            return particles, self._pairs(particles)

        eta = self.axes.straight(thetas)
        shapes = jax.eval_shape(known, eta)
        particles, kappa0 = jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)
        particles = particles._replace(eta=eta)
        return State(particles, kappa0, jnp.asarray(log_step), jnp.asarray(False))

    def _pairs(self, particles: Particles) -> Float[Array, "N N"]:
        return self.objective.quick_pair_block(particles.features, particles.features)

    def evaluate(self, eta: Float[Array, "N p"], tuning: Tuning) -> Particles:
        """Everything about N positions, with one solve for each."""
        thetas = self.axes.bent(eta)
        features = self.objective.features(thetas)
        return Particles(
            eta,
            self.objective.log_priors(thetas) - self.axes.log_slope(thetas),
            self.objective.data_terms(features),
            self.objective.quick_features(features),
            jax.vmap(lambda one: log_components(tuning.mixture, one))(eta),
        )

    def draw(self, state: State) -> Draw:
        particles = state.particles
        return Draw(self.axes.bent(particles.eta), particles.v, ~particles.features.ok)

    def step(self, key: Array, state: State, tuning: Tuning) -> tuple[State, Info]:
        count, p = state.particles.eta.shape
        chance_key, prior_key, more_key = jax.random.split(key, 3)
        chance = mixtures.chances(chance_key, (2, count), p)
        from_prior = self.axes.straight(self.prior.sample(prior_key, (2, count)))
        more = self._more(more_key, count, p) if p >= MANY else None
        # One loop over both kinds of sweep: solving is compiled once.
        state, ((walked, jumped), failed) = jax.lax.scan(
            lambda state, given: self._sweep(state, tuning, *given),
            state,
            (jnp.array([False, True]), chance, from_prior, more),
        )
        change = tuning.adapting * ADAPTATION_RATE * (walked - TARGET_ACCEPTANCE)
        log_step = jnp.minimum(state.log_step + change, 0.0)
        state = state._replace(log_step=log_step)
        return state, Info(walked, jumped, log_step, jnp.mean(failed))

    def _sweep(self, state: State, tuning: Tuning, jumping, chance: Chances, from_prior, more=None):
        """Local moves, or jumps; `more` chances where parameters are MANY."""
        old, mixture = state.particles, tuning.mixture
        lengths = jnp.asarray(LENGTHS)[(len(LENGTHS) * chance.choice).astype(int)]
        s = jnp.minimum(1.0, lengths * jnp.exp(state.log_step))
        moved = jax.vmap(mixtures.move, (None, 0, 0, 0, 0))(
            mixture, chance, old.eta, old.log_parts, s
        )
        jumped = jax.vmap(mixtures.jump, (None, 0, 0))(mixture, chance, from_prior)
        proposed, redrawn, partial = jnp.where(jumping, jumped, moved), False, False
        if more is not None:
            proposed, redrawn, partial = jax.lax.cond(
                jumping,
                lambda: self._first_inside(mixture, jumped, more.tries, from_prior),
                lambda: self._some_anew(mixture, old.eta, moved, chance, from_prior, more.links),
            )
        redrawn = jnp.broadcast_to(redrawn, len(moved))
        # What lies beyond the bounds is solved for where its particle is, and never accepted.
        beyond = state.known & ~self.axes.inside(proposed)
        stays = beyond | ~state.known
        new = self.evaluate(jnp.where(stays[:, None], old.eta, proposed), tuning)
        new = new._replace(log_prior=jnp.where(beyond, -jnp.inf, new.log_prior))
        move = Move(chance.accept, new, redrawn)
        moved_on, accepted = jax.lax.cond(
            jumping, self._exchange, self._accept, move, state, tuning.lam
        )
        walks = jumping | ~(redrawn | partial)
        share = jnp.mean(accepted, where=walks)
        share = jnp.where(state.known & jnp.any(walks), share, TARGET_ACCEPTANCE)
        moved_on = moved_on._replace(known=jnp.asarray(True))
        return moved_on, (share, jnp.mean(~new.features.ok))

    def _more(self, key: Array, count: int, p: int) -> More:
        """For both sweeps."""
        links, tries = jax.random.split(key)
        return More(
            jax.random.uniform(links, (2, _blocks(count), 3)),
            mixtures.chances(tries, (2, TRIES, count), p),
        )

    def _first_inside(self, mixture: Mixture, jumped, tries: Chances, from_prior):
        """Jumps, of which those beyond a bound are drawn again: points of g within the bounds."""

        def again(jumped, chance):
            other = jax.vmap(mixtures.jump, (None, 0, 0))(mixture, chance, from_prior)
            return jnp.where(self.axes.inside(jumped)[:, None], jumped, other), None

        none = jnp.zeros(len(jumped), bool)
        return jax.lax.scan(again, jumped, tries)[0], none, none

    def _some_anew(self, mixture: Mixture, eta, moved, chance: Chances, from_prior, links):
        """Local moves, some of them replaced: (η', by one of the prior, by a partial move)."""
        redrawn, partial = _kinds(chance.choice, eta.shape[1])
        moved = jnp.where(redrawn, from_prior, moved)

        def some(given):
            link, *rest = given
            return mixtures.redraw(mixture, mixtures.partition(mixture, *link), *rest)

        cut = jax.tree.map(lambda x: x.reshape(len(links), -1, *x.shape[1:]), (chance, eta))
        anew = jax.lax.map(some, (links, *cut)).reshape(eta.shape)
        moved = jnp.where(partial[:, None], anew, moved)
        return moved, jnp.any(redrawn, axis=1), partial

    def _exchange(self, move: Move, state: State, lam):
        """Each particle in turn goes to a point where none is, or stays."""
        old, new = state.particles, move.new
        count = len(old.eta)
        points = jax.tree.map(lambda a, b: jnp.concatenate([a, b]), old, new)
        kappa0 = self._pairs_with(state, new)
        log_mixture = logsumexp(points.log_parts, axis=1)
        log_g = log_jump_density(points.log_prior, log_mixture, old.eta.shape[1])
        own = self._log_own(points, lam) - log_g
        share = 1.0 / (lam * max(count - 1, 1))

        def one(carry, given):
            at, free, repulsion = carry
            i, uniform = given
            here = at[i]
            of_others = repulsion - kappa0[here]
            log_weights = jnp.where(free.at[here].set(True), own - share * of_others, -jnp.inf)
            there = mixtures.pick(uniform, log_weights)
            free = free.at[here].set(True).at[there].set(False)
            return (at.at[i].set(there), free, of_others + kappa0[there]), None

        places = jnp.arange(count)
        free = jnp.arange(2 * count) >= count
        first = places, free, jnp.sum(kappa0[:count], axis=0)
        (at, _, _), _ = jax.lax.scan(one, first, (places, move.uniform))
        particles = jax.tree.map(lambda leaf: leaf[at], points)
        return state._replace(particles=particles, kappa0=kappa0[at][:, at]), at >= count

    def _pairs_with(self, state: State, new: Particles) -> Float[Array, "2N 2N"]:
        """κ0 between all particles and proposals."""
        between = self.objective.quick_pair_block(new.features, state.particles.features)
        return jnp.block([[state.kappa0, between.T], [between, self._pairs(new)]])

    def _log_move(self, old: Particles, move: Move, lam) -> Float[Array, " N"]:
        """The log ratio of a local move that no other particle would notice."""
        new = move.new
        log_mixture = logsumexp(old.log_parts, axis=1) - logsumexp(new.log_parts, axis=1)
        log_prior = old.log_prior - new.log_prior
        by_proposal = jnp.where(move.redrawn, log_prior, log_mixture)
        return self._log_own(new, lam) - self._log_own(old, lam) + by_proposal

    def _log_own(self, points: Particles, lam) -> Float[Array, " K"]:
        """What π has of a particle alone."""
        return points.log_prior + points.v / lam

    def _accept(self, move: Move, state: State, lam):
        """Accept or reject each particle in turn, given where the others are by then.

        κ0 is computed for some proposals at a time, with all particles as they are by then. Within
        such a block the repulsion of i changes by κ0(i', k') − κ0(i', k) − κ0(i, k') + κ0(i, k) for
        each earlier k that moved to k'.
        """
        old, new = state.particles, move.new
        count = len(old.eta)
        log_uniform = jnp.log(move.uniform)
        own = self._log_move(old, move, lam)
        # Of particles that are not known yet, every one is accepted where it is.
        own = jnp.where(state.known, own, jnp.inf)
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
    """N chains by the same moves, for log densities of many θ (see `LogDensities`).

    They do not see each other, but share the points that they may jump to.
    """

    name = "parallel-ensemble"
    anneals = False

    def __init__(self, log_densities: LogDensities, prior: Parameters):
        self._log_densities, self.prior, self.lam, self.anchors = log_densities, prior, 1.0, None
        self.axes = Straight(prior.bounded)

    def _pairs(self, particles: Particles) -> Float[Array, "N N"]:
        return jnp.zeros((len(particles.eta),) * 2)  # chains do not see each other

    def evaluate(self, eta: Float[Array, "N p"], tuning: Tuning) -> Particles:
        thetas = self.axes.bent(eta)
        value, (v, ok) = self.log_densities(thetas, tuning)
        value = at_least_lowest(value) - self.axes.log_slope(thetas)
        parts = jax.vmap(lambda one: log_components(tuning.mixture, one))(eta)
        log_prior = jax.vmap(self.prior.log_prior)(thetas) - self.axes.log_slope(thetas)
        return Particles(eta, log_prior, v, Features(value, ok), parts)

    def log_densities(self, thetas: Float[Array, "N p"], tuning: Tuning):
        return self._log_densities(thetas)

    def _log_own(self, points: Particles, lam) -> Float[Array, " K"]:
        return jnp.where(jnp.isfinite(points.log_prior), points.features.representation, -jnp.inf)

    def _pairs_with(self, state: State, new: Particles) -> Float[Array, "2N 2N"]:
        return jnp.zeros((2 * len(new.eta),) * 2)

    def _accept(self, move: Move, state: State, lam):
        accepted = jnp.log(move.uniform) < self._log_move(state.particles, move, lam)
        accepted = accepted | ~state.known
        particles = jax.tree.map(lambda a, b: _where(accepted, a, b), move.new, state.particles)
        return state._replace(particles=particles), accepted


def _kinds(uniform: Float[Array, " N"], p: int) -> tuple[Bool[Array, "N p"], Bool[Array, " N"]]:
    """Which of p parameters, if any, a local move draws from its prior, and whether it is partial.

    By what is left of a number that chose the length of the move.
    """
    left = (len(LENGTHS) * uniform) % 1.0
    return (left * p / REDRAWN).astype(int)[:, None] == jnp.arange(p), left >= 1 - PARTIAL


def _blocks(count: int) -> int:
    return max(n for n in range(1, MOST_BLOCKS + 1) if count % n == 0)


def _where(accepted, a, b):
    return jnp.where(accepted.reshape(-1, *(1,) * (a.ndim - 1)), a, b)
