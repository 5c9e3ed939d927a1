"""Where to begin: the best fit from many starts, found without knowing the truth.

Levenberg–Marquardt ascent of the log posterior from prior draws, from what differential evolution
makes of them, and from the nominal point. Curvature is Fisher's, J_wᵀ diag(1/sd²) J_w +
J_sᵀ diag(2/s²) J_s + the prior's. Half of the ascents temper the likelihood first, its sd
multiplied by the factors below, because far from the data an oscillating model has local optima
everywhere; the other half, which begin at the evolved points, do not, because with a noise that is
fitted a tempered likelihood is at its best with a flat trajectory and a large noise.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from pcuq._program import Program, side_by_side
from pcuq._x64 import x64
from pcuq.errors import ComputationError
from pcuq.likelihood import log_likelihood_of_outputs, predictions
from pcuq.models.external import ExternalModel
from pcuq.models.rosenbrock import inverted
from pcuq.problem import Predictor, Problem
from pcuq.straight import Straight

# Prior draws that are looked at, and ascents of either kind, which begin at the best of each of as
# many groups: the best of all are often near the same local optimum. A fit whose phase must match
# is a small target, and may lie where the prior hardly ever draws: without the evolution few
# ascents find it, or none.
SURVEYED, STARTS, GENERATIONS = 4096, 48, 20
OUTSIDE = 256, 24, 0  # of a simulator outside of JAX, which is dearer
POPULATION, CROSSED = 512, 0.9
GIVEN_UP_AFTER = 2048  # draws of which none can be solved
AT_ONCE = 256
CLIMBED_TOGETHER = 2
TEMPERING = (30.0, 10.0, 3.0, 1.0)
ITERATIONS = (10, 10, 10, 25)  # at each temperature
LONGEST_MOVE = 3.0
ASCENT_TOLERANCE = 1e-3  # of the mesh on which fits are sought
PRIOR_REPRESENTATIVES = 80
MESH_TOLERANCE = 2e-4  # of the mesh on which draws are made


class Start(NamedTuple):
    """End points of the ascents, best first."""

    thetas: Float[np.ndarray, "K p"]
    log_posterior: Float[np.ndarray, " K"]
    covariance: Float[np.ndarray, "p p"]  # inverse curvature at the best one
    bounded: Bool[np.ndarray, " p"] | bool = False  # which parameters are, see `straight.py`

    @property
    def best(self) -> np.ndarray:
        return self.thetas[0]

    def scattered(self, noise: Float[np.ndarray, "*K p"], width: float = 1.0) -> np.ndarray:
        """Standard normal numbers as points about the best one, `width` sds apart."""
        axes = Straight(np.broadcast_to(self.bounded, self.best.shape))
        return axes.scattered(self.best, self.covariance, width * noise)


@x64
def starting_fit(problem: Problem, seed: int = 0) -> Start:
    """Multi-start fit, made once per problem and seed."""
    known = problem.__dict__.setdefault("_starts", {})
    if seed not in known:
        known[seed] = _starting_fit(problem, seed)
    return known[seed]


def _starting_fit(problem: Problem, seed: int) -> Start:
    outside = isinstance(problem.model, ExternalModel)
    surveyed, starts, generations = OUTSIDE if outside else (SURVEYED, STARTS, GENERATIONS)
    draws = problem.parameters.draws(jax.random.key(seed), surveyed)
    if problem.nominal is not None:
        draws[0] = problem.nominal
    # The same for every seed: fits of one design then share a mesh, and what is compiled for it.
    some = problem.parameters.draws(jax.random.key(0), 32)
    if problem.nominal is not None:
        some[0] = problem.nominal
    predictor = problem.predictor(some, mode="forward", tolerance=ASCENT_TOLERANCE)
    survey = Program(_likelihoods_and_priors(problem, predictor))
    found = []
    for part in np.split(draws, max(1, surveyed // GIVEN_UP_AFTER)):
        found.append(side_by_side(survey, max(1, len(part) // AT_ONCE), part))
        if not np.isfinite(sum(found[0])).any():
            raise ComputationError(
                f"none of {len(part)} prior draws can be solved: check the model's right-hand side "
                "and initial state, or narrow the priors to values at which it can be solved."
            )
    likelihood, prior = np.concatenate(found, axis=1)
    schedule = np.repeat(TEMPERING, ITERATIONS)
    tempered = likelihood / schedule[0] ** 2 + prior
    chosen = [
        draws[_best_of_groups(tempered, starts)],
        _bred(survey, draws, likelihood + prior, starts, generations, seed),
    ]
    if problem.nominal is not None:
        for points in chosen:
            points[0] = problem.nominal
    factors = np.repeat([schedule, np.ones_like(schedule)], starts, axis=0)
    climb = Program(_ascents(problem, predictor))
    ends, posterior, curvature = side_by_side(
        climb, CLIMBED_TOGETHER, np.concatenate(chosen), factors
    )
    posterior = np.where(np.isfinite(posterior), posterior, -np.inf)
    order = np.argsort(-posterior, kind="stable")
    order = order[np.isfinite(posterior[order])]
    covariance = _inverse(curvature[order[0]])
    return Start(ends[order], posterior[order], covariance, problem.parameters.bounded)


def _bred(survey, draws, values, count: int, generations: int, seed: int) -> np.ndarray:
    """Points of high posterior, from those of the survey by differential evolution.

    Each of the population is held against a + F (b − c), three others of it, with some coordinates
    left as they are, and gives way where that is better.
    """
    rng = np.random.default_rng(seed)
    size = min(POPULATION, len(draws))
    chosen = _best_of_groups(values, size)
    points, values = draws[chosen], np.nan_to_num(values[chosen], nan=-np.inf)
    for _ in range(generations):
        a, b, c = (points[rng.permutation(size)] for _ in range(3))
        tried = a + rng.uniform(0.4, 1.0, (size, 1)) * (b - c)
        tried = np.where(rng.uniform(size=tried.shape) < CROSSED, tried, points)
        found = np.nan_to_num(
            sum(side_by_side(survey, max(1, size // AT_ONCE), tried)), nan=-np.inf
        )
        better = found > values
        points, values = np.where(better[:, None], tried, points), np.where(better, found, values)
    return points[_best_of_groups(values, count)]


def _best_of_groups(values: Float[np.ndarray, " K"], count: int) -> np.ndarray:
    """The places of the largest value in each of some groups at random."""
    values = np.where(np.isfinite(values), values, -np.inf)
    groups = np.array_split(np.random.default_rng(0).permutation(len(values)), count)
    return np.array([group[np.argmax(values[group])] for group in groups])


def climber(problem: Problem, predictor: Predictor):
    """(points, other data) ↦ the best fit near the points: one program for all data."""
    climb = Program(_ascents(problem, predictor))

    def climb_from(thetas: Float[np.ndarray, "K p"], y: Float[np.ndarray, "n d"]) -> Start:
        factors = np.ones((len(thetas), ITERATIONS[-1]))
        ends, posterior, curvature = map(np.asarray, climb(np.asarray(thetas), factors, y))
        posterior = np.where(np.isfinite(posterior), posterior, -np.inf)
        order = np.argsort(-posterior, kind="stable")
        covariance = _inverse(curvature[order[0]])
        return Start(ends[order], posterior[order], covariance, problem.parameters.bounded)

    return climb_from


def _inverse(curvature: Float[np.ndarray, "p p"]) -> Float[np.ndarray, "p p"]:
    """A covariance, positive definite whatever rounding errors there are."""
    covariance = np.linalg.inv(curvature)
    values, vectors = np.linalg.eigh(0.5 * (covariance + covariance.T))
    values = np.maximum(values, 1e-12 * values[-1])
    return (vectors * values) @ vectors.T


def noise_at_starting_fit(problem: Problem) -> np.ndarray:
    """ℓ_Y where the noise depends on θ: the median over rows of its sd at the best fit."""
    theta = jnp.asarray(starting_fit(problem).best)
    with jax.enable_x64(True):
        w, s, _ = predictions(problem, *problem.predictor()(theta), theta)
        w, s = np.asarray(w), np.asarray(s)
        design, noises = problem.design, problem.data.noises
        medians = []
        for column, noise in enumerate(noises):
            here = design.mask & (design.columns == column)
            counts = np.broadcast_to(design.counts[:, None], here.shape)[here]
            sd = np.asarray(noise.sd(jnp.asarray(w[here]), jnp.asarray(s[here])))
            medians.append(np.median(np.repeat(sd, counts)) if here.any() else 1.0)
    return np.array(medians)


def _likelihoods_and_priors(problem: Problem, predictor: Predictor):
    likelihood = jax.vmap(log_likelihood_of_outputs(problem))
    log_prior = jax.vmap(problem.parameters.log_prior)
    return lambda thetas: (likelihood(*predictor.many(thetas), thetas), log_prior(thetas))


class Climbers(NamedTuple):
    """Points of ascents with what their next steps need: one solve of each with its Jacobian."""

    theta: Float[Array, "K p"]
    likelihood: Float[Array, " K"]
    likelihood_gradient: Float[Array, "K p"]
    fisher: Float[Array, "K p p"]
    prior: Float[Array, " K"]
    prior_gradient: Float[Array, "K p"]
    prior_curvature: Float[Array, "K p"]
    damping: Float[Array, " K"]

    def value(self, factor: Float[Array, " K"]) -> Float[Array, " K"]:
        return self.likelihood / factor**2 + self.prior

    def gradient(self, factor: Float[Array, " K"]) -> Float[Array, "K p"]:
        return self.likelihood_gradient / factor[:, None] ** 2 + self.prior_gradient

    def curvature(self, factor: Float[Array, " K"]) -> Float[Array, "K p p"]:
        return self.fisher / factor[:, None, None] ** 2 + _diagonal(self.prior_curvature)


def _ascents(problem: Problem, predictor: Predictor):
    """(θ (K, p), tempering of their steps (K, T)) ↦ (end points, log posterior, curvature there).

    A third argument is other data of the same shape.
    """
    noises, design = problem.data.noises, problem.design
    weight = jnp.asarray(design.mask * design.counts[:, None])
    log_prior = problem.parameters.log_prior
    likelihoods = jax.vmap(log_likelihood_of_outputs(problem), (0, 0, 0, None))

    def at(thetas, damping, y) -> Climbers:
        def solve(thetas):
            outputs, ok = predictor.many(thetas)
            w, s, _ = jax.vmap(lambda *given: predictions(problem, *given))(outputs, ok, thetas)
            return likelihoods(outputs, ok, thetas, y), w, s

        def along(direction):  # the same in every lane: lanes stay side by side
            return jax.jvp(solve, (thetas,), (jnp.broadcast_to(direction, thetas.shape),))

        (value, w, s), (gradient, jacobian_w, jacobian_s) = jax.vmap(
            along, out_axes=((None,) * 3, (-1,) * 3)
        )(jnp.eye(thetas.shape[1]))
        sd = jnp.select(
            [design.columns == c for c in range(len(noises))],
            [noise.sd(w, s) for noise in noises],
        )
        fisher = jnp.einsum("lmkp,lmk,lmkq->lpq", jacobian_w, weight / sd**2, jacobian_w)
        by_scale = jnp.einsum("lmkp,lmk,lmkq->lpq", jacobian_s, 2 * weight / s**2, jacobian_s)
        prior, prior_gradient = jax.vmap(jax.value_and_grad(log_prior))(thetas)
        curvature = -jax.vmap(lambda theta: jnp.diag(jax.hessian(log_prior)(theta)))(thetas)
        # A prior that is convex somewhere must not make the curvature negative.
        curvature = jnp.maximum(jnp.nan_to_num(curvature), 1e-3)
        return Climbers(
            thetas,
            value,
            jnp.nan_to_num(gradient),
            jnp.nan_to_num(fisher + by_scale),
            prior,
            prior_gradient,
            curvature,
            damping,
        )

    def step(here: Climbers, factor, y):
        a = here.curvature(factor)
        diagonal = jnp.diagonal(a, axis1=1, axis2=2)
        a = a + _diagonal(here.damping[:, None] * diagonal)
        move = jax.vmap(_solution)(a, here.gradient(factor))
        longest = jnp.max(jnp.abs(move), axis=1, keepdims=True)
        move = move * jnp.minimum(1.0, LONGEST_MOVE / (longest + 1e-12))
        there = at(here.theta + move, here.damping, y)
        better = there.value(factor) > here.value(factor)
        damping = jnp.clip(here.damping * jnp.where(better, 0.25, 4.0), 1e-8, 1e8)

        def chosen(new, old):
            return jnp.where(better.reshape(-1, *[1] * (new.ndim - 1)), new, old)

        return jax.tree.map(chosen, there, here)._replace(damping=damping), None

    def climb(thetas, factors, y=problem.data.y):
        y = jnp.asarray(y)
        first = at(thetas, jnp.ones(len(thetas)), y)
        end, _ = jax.lax.scan(lambda here, factor: step(here, factor, y), first, factors.T)
        untempered = jnp.ones(len(thetas))
        return end.theta, end.value(untempered), end.curvature(untempered)

    return climb


def _diagonal(values: Float[Array, "K p"]) -> Float[Array, "K p p"]:
    return values[:, :, None] * jnp.eye(values.shape[1])


def _solution(a: Float[Array, "p p"], b: Float[Array, " p"]) -> Float[Array, " p"]:
    """a⁻¹ b of a positive definite a: LAPACK could be called by one thread at a time only."""
    scale = 1 / jnp.sqrt(jnp.diagonal(a))
    return scale * (inverted(scale[:, None] * a * scale) @ (scale * b))


def starting_particles(
    problem: Problem, start: Start, rng: np.random.Generator, count: int
) -> Float[np.ndarray, "N p"]:
    """Most particles at the best fit, some at other optima, some drawn from the prior."""
    near = round(0.6 * count)
    elsewhere = round(0.15 * count)
    scattered = start.scattered(rng.normal(size=(near, len(start.best))), 3.0)
    others = rng.integers(len(start.thetas), size=elsewhere)
    key = jax.random.key(rng.integers(2**32))
    prior = problem.parameters.draws(key, count - near - elsewhere)
    return np.concatenate([scattered, start.thetas[others], prior])


def representatives(
    problem: Problem,
    start: Start,
    particles: Float[np.ndarray, "N p"],
    from_prior: int = PRIOR_REPRESENTATIVES,
) -> Float[np.ndarray, "R p"]:
    """Values that a mesh must serve: fits, particles, and where the prior may lead them.

    A draw that only the mesh cannot solve would be repelled by none, and so attract the system.
    """
    some = particles[:: max(1, len(particles) // 44)]
    prior = problem.parameters.draws(jax.random.key(0), from_prior)
    return np.concatenate([start.thetas[:4], some[:44], prior])
