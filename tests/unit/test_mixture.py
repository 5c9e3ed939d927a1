"""The mixture that shapes proposals: its density, its fit, and a local move reversible in it."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from pcuq.parameters import Parameter, Parameters
from pcuq.samplers import mixture as mixtures
from pcuq.samplers.mixture import (
    Mixture,
    fit_mixture,
    log_components,
    log_density,
    number_of_components,
)

PRIOR = Parameters({name: Parameter("identity", dist.Normal(0, 2)) for name in "ab"})


def narrow_and_wide() -> Mixture:
    factors = np.array([[[0.05, 0.0], [0.09, 0.02]], [[1.0, 0.0], [-0.5, 0.8]]])
    return Mixture(
        jnp.array([[1.0, 2.0], [0.0, 0.0]]),
        jnp.asarray(factors),
        jnp.asarray(np.linalg.inv(factors)),
        jnp.log(jnp.array([0.6, 0.4])),
    )


def draws(mixture, count, seed=0):
    """Points of m alone, written out once more."""
    keys = jax.random.split(jax.random.key(seed), 3)
    r = jax.random.categorical(keys[0], mixture.log_weights, shape=(count,))
    nu = mixtures.DEGREES
    scale = jnp.sqrt(jax.random.chisquare(keys[1], nu, (count, 1)) / nu)
    noise = jax.random.normal(keys[2], (count, 2)) / scale
    return mixture.centres[r] + jnp.einsum("kpq,kq->kp", mixture.factors[r], noise)


def test_the_mixture_is_a_density():
    axis = np.linspace(-40, 40, 1601)
    mixture = narrow_and_wide()._replace(log_weights=jnp.log(jnp.array([1e-12, 1.0])))
    points = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    density = np.exp(np.asarray(jax.jit(log_density)(mixture, jnp.asarray(points))))
    assert density.sum() * (axis[1] - axis[0]) ** 2 == pytest.approx(1.0, abs=1e-4)


def moved(mixture, points, s, move=mixtures.move):
    chance = mixtures.chances(jax.random.key(5), points.shape[:1], points.shape[1])
    parts = jax.vmap(lambda t: log_components(mixture, t))
    step = jax.jit(jax.vmap(lambda chance, t, part: move(mixture, chance, t, part, s)))
    return step(chance, points, parts(points))


def asymmetries(before, after):
    """z of E f(θ) h(θ') − E h(θ) f(θ') and of E f(θ') − E f(θ): all zero for a reversible move."""
    features = lambda t: np.stack(  # noqa: E731
        [
            np.tanh(t[:, 0]),
            np.tanh(3 * (t[:, 1] - 1)),
            (np.abs(t - np.array([1.0, 2.0])).max(axis=1) < 0.1),
            np.minimum(np.sum(t**2, axis=1), 20.0),
            np.sum(t**2, axis=1) > 12.0,
        ],
        axis=-1,
    )
    f, g = features(np.asarray(before)), features(np.asarray(after))
    terms = [g[:, i] - f[:, i] for i in range(f.shape[1])]
    terms += [f[:, i] * g[:, j] - f[:, j] * g[:, i] for i in range(5) for j in range(i)]
    return np.array([t.mean() / (t.std() / np.sqrt(len(t)) + 1e-12) for t in terms])


@pytest.mark.quick("0.6")
@pytest.mark.parametrize("s", [0.1, 0.6, 1.0])
def test_the_local_move_is_reversible_in_the_mixture(s):
    mixture = narrow_and_wide()
    before = draws(mixture, 200_000)
    z = asymmetries(before, moved(mixture, before, s))
    assert np.abs(z).max() < 4.5, z


def test_a_move_that_keeps_students_scale_at_one_is_found_out():
    def without_scale(mixture, chance, theta, parts, s):
        r = mixtures.pick(chance.pick, parts)
        step = mixture.factors[r] @ chance.direction
        return mixture.centres[r] + jnp.sqrt(1 - s**2) * (theta - mixture.centres[r]) + s * step

    mixture = narrow_and_wide()
    before = draws(mixture, 200_000)
    z = asymmetries(before, moved(mixture, before, 0.6, without_scale))
    assert np.abs(z).max() > 9


@pytest.mark.slow
def test_jumps_have_the_density_that_they_are_said_to_have():
    """E over g of m/g is 1, and of q0/g is 1: importance sampling with g's own points."""
    mixture = narrow_and_wide()
    points = mixtures.sample(mixture, PRIOR, jax.random.key(1), 200_000)
    log_prior = jax.vmap(PRIOR.log_prior)(points)
    log_mixture = log_density(mixture, points)
    log_g = mixtures.log_jump_density(log_prior, log_mixture)
    for log_other in (log_prior, log_mixture):
        ratio = np.exp(np.asarray(log_other - log_g))
        assert abs(ratio.mean() - 1) < 4.5 * ratio.std() / np.sqrt(len(ratio))


@pytest.mark.slow
def test_it_finds_a_narrow_part_beside_a_wide_one():
    truth = narrow_and_wide()
    seen, unseen = draws(truth, 4000), draws(truth, 4000, seed=9)
    fitted = fit_mixture(np.asarray(seen), PRIOR.standard_deviations)
    lost = float(jnp.mean(log_density(truth, unseen) - log_density(fitted, unseen)))
    assert -0.01 < lost < 0.2, lost
    one = np.linalg.cholesky(np.cov(np.asarray(seen).T))[None]
    single = Mixture(
        jnp.mean(seen, axis=0)[None],
        jnp.asarray(one),
        jnp.asarray(np.linalg.inv(one)),
        jnp.zeros(1),
    )
    assert float(jnp.mean(log_density(fitted, unseen) - log_density(single, unseen))) > 1.5


@pytest.mark.quick("1")
@pytest.mark.parametrize("count", [1, 3, 40])
def test_few_positions_or_one_repeated_give_a_proper_density(count):
    positions = np.random.default_rng(0).normal(size=(count, 2))
    fitted = fit_mixture(np.repeat(positions, 5, axis=0), PRIOR.standard_deviations)
    assert all(np.isfinite(leaf).all() for leaf in fitted)
    assert np.isfinite(log_density(fitted, jnp.asarray(positions))).all()
    assert float(jnp.sum(jnp.exp(fitted.log_weights))) == pytest.approx(1.0)


def test_it_is_fitted_to_all_particles():
    """Fifty particles are in one place, but each for a short while, in turn, in another.

    Evenly spaced positions, one for each iteration, can be just those in the other place.
    """
    iterations, particles = mixtures.POINTS[0] + 2 * mixtures.POINTS[1], 50
    turn = np.arange(iterations)[:, None] * particles // iterations == np.arange(particles)
    noise = np.random.default_rng(0).normal(size=(iterations, particles, 2))
    positions = (np.where(turn[..., None], 30.0, 0.0) + 0.1 * noise).reshape(-1, 2)
    evenly = np.linspace(0, len(positions) - 1, iterations).round().astype(int)
    assert np.mean(positions[evenly, 0] > 15) > 0.5
    fitted = fit_mixture(positions, np.ones(2))
    elsewhere = np.exp(fitted.log_weights)[fitted.centres[:, 0] > 15].sum()
    assert 0.01 < elsewhere < 0.03


MANY = 14  # parameters: more than the points can tell the shapes of all components apart in


def wandering(seed=0, clusters=1, iterations=40, particles=40):
    """Particles (T, C, p), each near one of some centres, and slow to leave where it is."""
    rng = np.random.default_rng(seed)
    centres = 30 * rng.normal(size=(clusters, MANY)) * (clusters > 1)
    at = centres[rng.integers(0, clusters, particles)]
    z = rng.normal(size=(particles, MANY))
    positions = []
    for _ in range(iterations):
        z = 0.95 * z + np.sqrt(1 - 0.95**2) * rng.normal(size=z.shape)
        positions.append(at + z)
    return np.stack(positions)


def test_few_components_are_fitted_where_more_would_only_say_where_the_points_are():
    thetas, scale = wandering(), np.ones(MANY)
    number = number_of_components(thetas, scale)
    assert number < 20
    others = jnp.asarray(wandering(seed=1).reshape(-1, MANY))
    flat = thetas.reshape(-1, MANY)
    few, many = (fit_mixture(flat, scale, None, n) for n in (number, None))
    held_out = [float(jnp.mean(log_density(mixture, others))) for mixture in (few, many)]
    assert held_out[0] > held_out[1] + 1  # what the rest of the room would have lost
    assert len(few.log_weights) == len(many.log_weights)  # one program serves both
    assert np.isclose(jnp.sum(jnp.exp(few.log_weights)), 1)


def test_as_many_components_are_fitted_as_there_are_places():
    number = number_of_components(wandering(clusters=25, particles=400), np.ones(MANY))
    assert number > 20


def test_all_components_are_fitted_where_points_are_enough_to_tell():
    thetas = np.random.default_rng(0).normal(size=(30, 100, 2))
    assert number_of_components(thetas, np.ones(2)) == 30
