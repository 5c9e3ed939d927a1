"""The default sampler: proposals for all particles at once, accepted one by one.

Each iteration makes two sweeps over the N particles, both exact for the joint density

    log π(Θ) = Σ_i log q0(θ_i) + (1/λ) [Σ_i v(θ_i) − (1/(N−1)) Σ_{i<j} κ0(θ_i, θ_j)]:

* a *walk*: a Langevin proposal θ' = θ + ε G⁻¹ ∇U(θ) + (2ε G⁻¹)^½ ξ, drifting along a function of
  that particle alone, U(θ) = log q0(θ) + (v(θ) − mean over a frozen reference ensemble of κ0)/λ, in
  the metric G(θ) = (Gauss–Newton curvature of −v)/λ + that of the prior: steps are short only
  where, and in the directions in which, the model is sensitive;
* a *jump* from a fixed density (see `jumps.py`).

A proposal does not depend on where the other particles are, so all of them are solved in parallel;
then each is accepted or rejected in turn with the exact ratio of π, given the current others. What
that needs of κ0 are three N × N blocks (old with old, new with old, new with new), no more solves.
The reference ensemble, ε and the jump density change in warm-up only.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from pcuq.objective import Features, Objective, part_that_fits
from pcuq.samplers import jumps as jump_density
from pcuq.samplers.base import Draw
from pcuq.samplers.jumps import Jumps, choose_centres, make_jumps

REFERENCE = 64
TARGET_ACCEPTANCE = 0.574
ADAPTATION_RATE = 0.3
MOST_CURVED = 1e10


class Particles(NamedTuple):
    """N positions and what the energy and the drift need of them."""

    theta: Float[Array, "N p"]
    log_prior: Float[Array, " N"]
    v: Float[Array, " N"]
    features: Features
    gradient: Float[Array, "N p"]  # of U
    metric: Float[Array, "N p p"]  # lower Cholesky factor C of G = C Cᵀ


class State(NamedTuple):
    """The particles, κ0 between them, and the walk's step size."""

    particles: Particles
    kappa0: Float[Array, "N N"]
    log_step: Float[Array, ""]


class Info(NamedTuple):
    """What happened in one iteration."""

    walked: Float[Array, ""]  # share of particles that moved
    jumped: Float[Array, ""]
    log_step: Float[Array, ""]
    failed: Float[Array, ""]  # share of proposals that could not be solved


class Tuning(NamedTuple):
    """Everything that is adapted in warm-up and fixed afterwards."""

    reference: Features
    metric: Float[Array, "p p"]  # of the prior, or of earlier positions where there is no J
    jumps: Jumps
    adapting: Array


class Ensemble:
    """`tune`, `init` and `step` for one objective and one λ."""

    name = "ensemble"

    def __init__(self, objective: Objective, lam: float):
        self.objective, self.lam = objective, lam
        self.prior = objective.problem.parameters

        def prepare(reference, centres, metric):
            features, _, outputs = objective.features_and_pull_back(centres)
            return objective.features(reference), self._curvature(features, outputs, metric)

        self._prepare = jax.jit(prepare)

    def tune(self, thetas: Float[np.ndarray, "K p"], v: np.ndarray, adapting: bool) -> Tuning:
        """Tuning from earlier positions (K, p), oldest first, and their data terms."""
        reference = thetas[np.linspace(0, len(thetas) - 1, REFERENCE).round().astype(int)]
        fits = part_that_fits(v)
        inside = thetas[fits] if fits.sum() > 2 * thetas.shape[1] else thetas
        floor = np.maximum(inside.std(axis=0), 1e-9)
        if self.objective.mode == "forward":
            metric = np.eye(thetas.shape[1]) / np.maximum(self._prior_variance(), floor**2)
        else:
            covariance = np.cov(inside.T).reshape(thetas.shape[1], -1)
            metric = np.linalg.inv(0.95 * covariance + 0.05 * np.diag(floor**2))
        centres = choose_centres(thetas)
        features, curvature = self._prepare(
            jnp.asarray(reference), jnp.asarray(centres), jnp.asarray(metric)
        )
        return Tuning(
            features,
            jnp.asarray(metric),
            make_jumps(centres, floor, np.asarray(curvature)),
            jnp.asarray(1.0 if adapting else 0.0),
        )

    def _curvature(self, features, outputs, metric):
        """G of each particle."""
        if outputs is None:
            return jnp.broadcast_to(metric, (len(features.ok), *metric.shape))
        curvature = self.objective.curvature(features, *outputs) / self.lam
        size = jnp.trace(curvature, axis1=1, axis2=2)
        # Beyond this ratio a Cholesky factor is rounding error: scale down, and stay exact.
        shrink = jnp.minimum(1.0, MOST_CURVED * jnp.min(jnp.diag(metric)) / (size + 1e-300))
        shrink = jnp.where(jnp.isfinite(size), shrink, 0.0)[:, None, None]
        return shrink * jnp.where(shrink > 0, curvature, 0.0) + metric

    def _prior_variance(self) -> np.ndarray:
        draws = np.asarray(self.prior.sample(jax.random.key(0), (1000,)))
        return draws.var(axis=0)

    def init(self, thetas: Float[Array, "N p"], tuning: Tuning, log_step=0.0) -> State:
        particles = self.evaluate(thetas, tuning)
        kappa0 = self.objective.pair_block(particles.features, particles.features)
        return State(particles, kappa0, jnp.asarray(log_step))

    def evaluate(self, thetas: Float[Array, "N p"], tuning: Tuning) -> Particles:
        """Everything about N positions, with one solve and its Jacobian for each."""
        objective, lam = self.objective, self.lam
        log_prior, prior_gradient = objective.prior_and_gradient(thetas)
        features, pull_back, outputs = objective.features_and_pull_back(thetas)
        v, v_gradient = objective.data_terms_and_gradient(features)
        weights = jnp.where(tuning.reference.ok, 1.0, 0.0) / len(tuning.reference.ok)
        _, reference_gradient = objective.pairs.rows_and_gradient(
            features.representation, tuning.reference.representation, weights
        )
        gradient = pull_back(jax.tree.map(jnp.subtract, v_gradient, reference_gradient))
        metric = jnp.linalg.cholesky(self._curvature(features, outputs, tuning.metric))
        return Particles(thetas, log_prior, v, features, prior_gradient + gradient / lam, metric)

    def draw(self, state: State) -> Draw:
        particles = state.particles
        return Draw(particles.theta, particles.v, ~particles.features.ok)

    def step(self, key: Array, state: State, tuning: Tuning) -> tuple[State, Info]:
        def sweep(state, packed):
            key, jumping = packed
            return self._sweep(key, state, tuning, jumping)

        # One loop over the two kinds of sweep: solving is compiled once.
        keys = jax.random.split(key)
        state, (accepted, failed) = jax.lax.scan(sweep, state, (keys, jnp.array([False, True])))
        walked, jumped = accepted[0], accepted[1]
        log_step = state.log_step + tuning.adapting * ADAPTATION_RATE * (walked - TARGET_ACCEPTANCE)
        state = state._replace(log_step=log_step)
        return state, Info(walked, jumped, log_step, jnp.mean(failed))

    def _sweep(self, key, state: State, tuning: Tuning, jumping):
        walk_key, jump_key, accept_key = jax.random.split(key, 3)
        old, step = state.particles, jnp.exp(state.log_step)
        walk_to = old.theta + self._walk(walk_key, old, step)
        jump_to = jump_density.sample(tuning.jumps, self.prior, jump_key, len(old.theta))
        new = self.evaluate(jnp.where(jumping, jump_to, walk_to), tuning)
        walk_ratio = _log_walk(old, new, step) - _log_walk(new, old, step)
        jump_ratio = jump_density.log_density(
            tuning.jumps, old.log_prior, old.theta
        ) - jump_density.log_density(tuning.jumps, new.log_prior, new.theta)
        ratio = jnp.where(jumping, jump_ratio, walk_ratio)
        state, accepted = self._accept(accept_key, state, new, ratio)
        return state, (jnp.mean(accepted), jnp.mean(~new.features.ok))

    def _walk(self, key, old: Particles, step):
        """ε G⁻¹ ∇U + (2ε G⁻¹)^½ ξ = C⁻ᵀ (ε C⁻¹ ∇U + (2ε)^½ ξ)."""
        noise = jax.random.normal(key, old.theta.shape)
        whitened = _solve(old.metric, old.gradient)
        return _solve(old.metric, step * whitened + jnp.sqrt(2 * step) * noise, transposed=True)

    def _accept(self, key, state: State, new: Particles, log_proposal_ratio):
        """Accept or reject each particle in turn, given where the others are by then."""
        old = state.particles
        count = len(old.theta)
        old_old = state.kappa0
        new_old = self.objective.pair_block(new.features, old.features)  # [i new, j old]
        new_new = self.objective.pair_block(new.features, new.features)
        own = (new.log_prior - old.log_prior) + (new.v - old.v) / self.lam + log_proposal_ratio
        log_uniform = jnp.log(jax.random.uniform(key, (count,)))
        share = 1.0 / (self.lam * max(count - 1, 1))

        def one(accepted, i):
            # Row i of κ0 with the others as they are now; its own column is left out.
            others = jnp.arange(count) != i
            with_new = jnp.where(accepted, new_new[i], new_old[i])
            with_old = jnp.where(accepted, new_old[:, i], old_old[i])
            repulsion = jnp.sum(jnp.where(others, with_new - with_old, 0.0))
            log_ratio = own[i] - share * repulsion
            take = log_uniform[i] < log_ratio
            return accepted.at[i].set(take), None

        accepted, _ = jax.lax.scan(one, jnp.zeros(count, bool), jnp.arange(count))
        particles = jax.tree.map(
            lambda a, b: jnp.where(accepted.reshape(-1, *(1,) * (a.ndim - 1)), a, b), new, old
        )
        a, b = accepted[:, None], accepted[None, :]
        kappa0 = jnp.where(a, jnp.where(b, new_new, new_old), jnp.where(b, new_old.T, old_old))
        return state._replace(particles=particles, kappa0=kappa0), accepted


def _log_walk(to: Particles, start: Particles, step) -> Float[Array, " N"]:
    """log density of walking to `to` from `start`, up to a constant."""
    move = jnp.einsum("npq,np->nq", start.metric, to.theta - start.theta)  # Cᵀ (θ' − θ)
    noise = move - step * _solve(start.metric, start.gradient)
    log_volume = jnp.sum(jnp.log(jnp.diagonal(start.metric, axis1=1, axis2=2)), axis=1)
    return log_volume - jnp.sum(noise**2, axis=1) / (4 * step)


def _solve(factor, vector, transposed: bool = False):
    """C⁻¹ x, or C⁻ᵀ x."""
    return jax.scipy.linalg.solve_triangular(
        factor, vector[..., None], lower=True, trans=1 if transposed else 0
    )[..., 0]
