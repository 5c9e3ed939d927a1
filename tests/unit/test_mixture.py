"""The mixture that shapes proposals: its density, its fit, and a local move reversible in it."""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

from pcuq.parameters import Parameter, Parameters
from pcuq.samplers import mixture as mixtures
from pcuq.samplers.mixture import (
    Mixture,
    fit_mixture,
    log_components,
    log_density,
    number_of_components,
    student_mixture,
    with_hot,
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


def points_of_g(mixture, count):
    chance_key, prior_key = jax.random.split(jax.random.key(1))
    return np.asarray(mixtures.sample(mixture, PRIOR.sample(prior_key, (count,)), chance_key))


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


def test_a_short_local_move_ends_where_it_began():
    """One to the other side of the component would be as reversible."""
    mixture = narrow_and_wide()
    before = draws(mixture, 50)
    after = moved(mixture, before, 1e-6)
    np.testing.assert_allclose(after, before, atol=1e-4)
    assert not (after == before).any()


def test_a_move_that_keeps_students_scale_at_one_is_found_out():
    def without_scale(mixture, chance, theta, parts, s):
        r = mixtures.pick(chance.pick, parts)
        step = mixture.factors[r] @ chance.direction
        return mixture.centres[r] + jnp.sqrt(1 - s**2) * (theta - mixture.centres[r]) + s * step

    mixture = narrow_and_wide()
    before = draws(mixture, 200_000)
    z = asymmetries(before, moved(mixture, before, 0.6, without_scale))
    assert np.abs(z).max() > 9


def test_a_place_is_picked_in_proportion_to_its_weight():
    logs = jnp.log(jnp.array([0.0, 0.3, 0.0, 0.5, 0.2, 0.0])) + 700.0
    uniform = jnp.array([0.0, 0.29, 0.31, 0.79, 0.81, 1 - 1e-12])
    picked = jax.vmap(lambda u: mixtures.pick(u, logs))(uniform)
    np.testing.assert_array_equal(picked, [1, 1, 3, 3, 4, 4])
    # Rounding up to 1 itself leads to no place beyond the last.
    assert int(mixtures.pick(1.0, jnp.zeros(3))) == 2


def test_chances_are_uniform_and_normal_and_do_not_depend_on_each_other():
    count, p = 20_000, 2
    chance = mixtures.chances(jax.random.key(3), (count,), p)
    assert chance.direction.shape == (count, p)
    assert chance.scale.shape == (count, p + mixtures.DEGREES)
    uniform = np.stack([chance.accept, chance.pick, chance.choice], axis=1)
    normal = np.concatenate([chance.direction, chance.scale], axis=1)
    for columns, law in ((uniform, stats.uniform), (normal, stats.norm)):
        for column in columns.T:
            assert stats.kstest(column, law.cdf).pvalue > 1e-4
            assert stats.kstest(1.1 * column, law.cdf).pvalue < 1e-4  # a tenth wider

    def depend(columns):
        return np.abs(np.triu(np.corrcoef(columns.T), 1)).max() > 5 / np.sqrt(count)

    columns = np.concatenate([uniform, normal], axis=1)
    assert not depend(columns)
    columns[:, -1] += 0.1 * columns[:, 3]
    assert depend(columns)


def test_a_jump_is_a_draw_of_the_prior_or_of_a_component():
    mixture, p, nu = narrow_and_wide(), 2, mixtures.DEGREES
    chance = mixtures.chances(jax.random.key(1), (400,), p)
    from_prior = 100.0 + jnp.arange(800.0).reshape(400, 2)
    found = jax.vmap(mixtures.jump, (None, 0, 0))(mixture, chance, from_prior)
    of_prior = np.asarray(chance.choice) < mixtures.PRIOR_SHARE
    np.testing.assert_array_equal(found[of_prior], from_prior[of_prior])
    r = np.where(np.asarray(chance.pick) < 0.6, 0, 1)
    chi2 = np.sum(np.asarray(chance.scale)[:, :nu] ** 2, axis=1)
    apart = np.einsum("kpq,kq->kp", np.asarray(mixture.factors)[r], chance.direction)
    near = np.asarray(mixture.centres)[r] + apart / np.sqrt(chi2 / nu)[:, None]
    np.testing.assert_allclose(np.asarray(found)[~of_prior], near[~of_prior])
    assert 0.08 < of_prior.mean() < 0.25 and 0.5 < 1 - r.mean() < 0.7


def test_the_density_of_a_jump_is_that_of_prior_and_mixture():
    w = mixtures.PRIOR_SHARE
    found = mixtures.log_jump_density(jnp.log(0.4), jnp.log(3.0), 2)
    assert float(found) == pytest.approx(np.log(w * 0.4 + (1 - w) * 3.0))


def test_log_components_are_those_of_scipy():
    mixture = narrow_and_wide()
    points = np.array([[1.0, 2.1], [0.3, -4.0], [30.0, 2.0]])
    found = jax.vmap(lambda theta: log_components(mixture, theta))(jnp.asarray(points))
    for r, share in enumerate((0.6, 0.4)):
        factor = np.asarray(mixture.factors[r])
        law = stats.multivariate_t(mixture.centres[r], factor @ factor.T, df=mixtures.DEGREES)
        np.testing.assert_allclose(found[:, r], np.log(share) + law.logpdf(points), rtol=1e-10)


def test_points_of_g_are_jumps_with_random_numbers_of_their_own():
    mixture = narrow_and_wide()
    points = points_of_g(mixture, 20_000)
    assert points.shape == (20_000, 2) and len(np.unique(points, axis=0)) == 20_000
    near = np.abs(points - np.array([1.0, 2.0])).max(axis=1) < 0.5
    assert np.mean(near) == pytest.approx(0.85 * 0.6 + 0.02, abs=0.03)


def test_the_mixture_has_the_moments_of_the_positions():
    """Expectation–maximisation keeps mean and covariance; the parts are widened after it."""
    rng = np.random.default_rng(1)
    wide = rng.normal(size=(3000, 2)) @ np.array([[1.0, 0.0], [-0.6, 0.5]]).T
    positions = np.concatenate([wide, [8.0, 3.0] + 0.05 * rng.normal(size=(1000, 2))])
    fitted = fit_mixture(positions, np.ones(2))
    weights = np.exp(np.asarray(fitted.log_weights))
    centres, factors = np.asarray(fitted.centres), np.asarray(fitted.factors)
    assert weights.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(
        fitted.inverses @ factors, np.broadcast_to(np.eye(2), factors.shape), atol=1e-9
    )
    inflation = np.repeat(mixtures.INFLATION, len(weights) // mixtures.PARTS)
    inside = factors @ np.swapaxes(factors, 1, 2) / inflation[:, None, None]
    mean = weights @ centres
    covariance = np.einsum("r,rpq->pq", weights, inside)
    covariance += np.einsum("r,rp,rq->pq", weights, centres - mean, centres - mean)
    sd = positions.std(axis=0)
    np.testing.assert_allclose(mean / sd, positions.mean(axis=0) / sd, atol=0.03)
    np.testing.assert_allclose(covariance, np.cov(positions.T), rtol=0.06)
    # A quarter is in the narrow part, where components are narrow.
    there = np.linalg.norm(centres - [8.0, 3.0], axis=1) < 0.5
    assert weights[there].sum() == pytest.approx(0.25, abs=0.03)
    widths = np.sqrt(inside[there][:, 0, 0])
    assert np.average(widths, weights=weights[there]) < 0.15


@pytest.mark.slow
def test_jumps_have_the_density_that_they_are_said_to_have():
    """E over g of m/g is 1, and of q0/g is 1: importance sampling with g's own points."""
    mixture = narrow_and_wide()
    points = points_of_g(mixture, 200_000)
    log_prior = jax.vmap(PRIOR.log_prior)(points)
    log_mixture = log_density(mixture, points)
    log_g = mixtures.log_jump_density(log_prior, log_mixture, 2)
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


def test_a_fit_begins_at_points_drawn_by_their_squared_distance_from_those_before(monkeypatch):
    """Not at the farthest each time, which would be outliers."""
    z, places, shares = np.array([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0], [6.0, 8.0]]), [1, 0, 2], []

    def noted(key, logits):
        shares.append(np.asarray(jax.nn.softmax(logits)))
        return places[len(shares) - 1]

    monkeypatch.setattr(jax.random, "categorical", noted)
    with jax.disable_jit():
        chosen = mixtures._scattered(jnp.asarray(z), 3)
    np.testing.assert_array_equal(chosen, z[places])
    for found, squares in zip(shares, ([1] * 4, [25, 0, 18, 25], [0, 0, 1, 25]), strict=True):
        np.testing.assert_allclose(found, np.array(squares) / np.sum(squares), atol=1e-12)


def maximised(shares, z, repeats):
    """Weights, means and covariances of components, one by one."""
    count, p = z.shape
    found = []
    for share in shares.T:
        members = share.sum()
        mean = share @ z / members
        scatter = (z - mean).T @ (share[:, None] * (z - mean))
        missing = max(0.0, 2 * p * repeats - members)
        covariance = (scatter + missing * np.eye(p)) / (members + missing)
        found.append((members / count, mean, covariance + mixtures.NARROWEST * np.eye(p)))
    return found


def test_a_fit_is_expectation_maximisation_with_few_points_as_wide_as_all():
    """Written out once more, with scipy's densities."""
    rng = np.random.default_rng(4)
    wide, less = rng.normal(size=(60, 2)), rng.normal([5.0, -4.0], 1.0, (30, 2))
    some = [wide @ [[2.0, 0.0], [-1.2, 0.5]], less, np.full((40, 2), 9.0), [[-30.0, 5.0]] * 4]
    points = np.concatenate(some)
    whole = np.linalg.cholesky(np.cov(points.T, bias=True))
    z = np.linalg.solve(whole, (points - points.mean(axis=0)).T).T
    first = np.asarray(mixtures._scattered(jnp.asarray(z), 4))
    shares = np.eye(4)[np.argmin(np.sum((z[:, None] - first) ** 2, axis=2), axis=1)]
    for _ in range(mixtures.ITERATIONS):
        heights = [
            w * stats.multivariate_normal(*law).pdf(z) for w, *law in maximised(shares, z, 1.5)
        ]
        shares = np.transpose(heights) / np.sum(heights, axis=0)[:, None]
    weights, means, covariances = map(np.array, zip(*maximised(shares, z, 1.5), strict=True))

    found = jax.jit(mixtures._fit, static_argnums=3)(points, np.ones(2), 1.5, 4)
    np.testing.assert_allclose(np.exp(found.log_weights), weights, rtol=1e-6)
    np.testing.assert_allclose(found.centres, points.mean(axis=0) + means @ whole.T, rtol=1e-6)
    inside = found.factors @ jnp.swapaxes(found.factors, 1, 2)
    np.testing.assert_allclose(inside, whole @ covariances @ whole.T, rtol=1e-5, atol=1e-8)
    np.testing.assert_allclose(found.inverses, np.linalg.inv(found.factors), rtol=1e-6, atol=1e-9)
    # One is where forty are, as narrow as any may be. One is where four are: of the six that it
    # takes, two are missing.
    narrow, few = np.argmin(covariances[:, 0, 0]), np.argmin(weights)
    hair = mixtures.NARROWEST * whole @ whole.T
    np.testing.assert_allclose(inside[narrow], hair, rtol=0.01)
    np.testing.assert_allclose(covariances[few], np.eye(2) / 3, atol=1e-6)


def test_positions_without_width_give_a_hair_of_the_prior():
    """And of forty points that are one position, none says anything of a shape."""
    scale = np.array([3.0, 0.2])
    found = jax.jit(mixtures._fit, static_argnums=3)(jnp.ones((40, 2)), scale, 40.0, 3)
    factors = np.einsum("p,rpq->rpq", 1 / (1e-8 * scale), found.factors)
    wanted = np.sqrt(np.array([120 / 160, 1.0, 1.0]) + mixtures.NARROWEST)
    np.testing.assert_allclose(factors, wanted[:, None, None] * np.eye(2), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found.centres[0], np.ones(2))
    np.testing.assert_allclose(np.exp(found.log_weights), [1, 0, 0], atol=1e-11)


def test_parts_have_equal_shares_and_each_is_as_wide_as_its_fit_times_its_inflation():
    points = jnp.asarray(np.random.default_rng(3).normal(size=(6, 50, 2)))
    found = mixtures._fit_parts(points, np.ones(2), 1.0, 4)
    fit = jax.jit(mixtures._fit, static_argnums=3)
    for part, inflation in enumerate((1.1, 1.1, 1.2, 1.2, 2.0, 4.0)):
        alone = fit(points[part], np.ones(2), 1.0, 4)
        own = Mixture(*(leaf[4 * part : 4 * part + 4] for leaf in found))
        np.testing.assert_allclose(own.centres, alone.centres)
        np.testing.assert_allclose(own.factors, np.sqrt(inflation) * alone.factors)
        np.testing.assert_allclose(own.inverses, alone.inverses / np.sqrt(inflation))
        np.testing.assert_allclose(own.log_weights, alone.log_weights - np.log(6))


def test_room_is_filled_with_components_of_no_weight():
    mixture, points = narrow_and_wide(), draws(narrow_and_wide(), 20)
    room, height = 6 * (20 + 5 * 2), jax.jit(log_density)
    for filled, count in ((mixtures._padded(mixture, 5), 5), (with_hot(mixture, None), 2 + room)):
        assert [leaf.shape for leaf in filled] == [(count, *leaf.shape[1:]) for leaf in mixture]
        np.testing.assert_allclose(height(filled, points), height(mixture, points))


def test_each_part_is_fitted_to_positions_of_its_own_and_repeated_ones_count_once(monkeypatch):
    monkeypatch.setattr(mixtures, "_fit_parts", lambda *given: given)
    for count, repeats in ((70, 1400 / 70), (1400, 1.0), (3000, 1.0)):
        positions = np.random.default_rng(0).normal(size=(count, 2))
        some, scale, found, components = mixtures._fit_some(positions, "scale", 3, 7)  # pyright: ignore
        assert (found, scale, components) == (pytest.approx(repeats), "scale", 7)
        assert some.shape == (3, 1400, 2)
        places = np.array(
            [[np.flatnonzero(positions[:, 0] == x)[0] for x in part[:, 0]] for part in some]
        )
        np.testing.assert_array_equal(positions[places], some)
        # At random: of few all, and others in each part.
        assert len(np.unique(places)) == (70 if count == 70 else pytest.approx(count, rel=0.3))
        assert (places[0] != places[1]).mean() > 0.9


def test_more_points_are_used_where_positions_are_many_but_no_more_than_there_is_time_for():
    points = mixtures._points
    assert points(2, 8500, 30) == 1400
    assert points(2, 8501, 30) == 1700  # of five times as many and more
    assert points(14, 10**6, 30) == 14 * 850
    assert points(14, 10**6, 90) == 8503  # 1.5e8 products
    assert points(20, 10**6, 120) == 5000  # not fewer than of few positions


MANY = 24  # parameters: more than the points can tell the shapes of all components apart in


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


def test_the_most_components_are_taken_that_lose_little_on_particles_they_do_not_know(monkeypatch):
    """Each half is tried on every second or third position of the other, which are few enough."""
    iterations, particles = 4, 5
    each = np.arange(iterations * particles).reshape(iterations, particles)
    thetas = np.repeat(each[..., None], MANY, axis=2).astype(float)
    halves = each[:, :3].ravel(), each[:, 3:].ravel()
    heights = {1: (0.0, 0.0), 4: (3.0, -1.0), 13: (-0.2, 1.4), 40: (2.5, -1.7)}
    tried = []

    def fit(positions, scale, parts, number):
        assert parts == 1 and scale == "scale"
        return positions[:, 0], number

    def height(mixture, thetas):
        positions, number = mixture
        side = int(positions[0] == halves[1][0])
        np.testing.assert_array_equal(positions, halves[side])
        np.testing.assert_array_equal(thetas[:, 0], halves[1 - side][:: 2 + side])
        tried.append((number, side))
        return heights[number][side]

    monkeypatch.setattr(mixtures, "OTHER_POINTS", 5)
    monkeypatch.setattr(mixtures, "_fit_some", fit)
    monkeypatch.setattr(mixtures, "_height", height)
    # The best is 1 on average; 13 are 0.4 below that, and 40 are 0.6.
    assert number_of_components(thetas, "scale") == 13  # pyright: ignore[reportArgumentType]
    assert tried == [(number, side) for number in (1, 4, 13, 40) for side in (0, 1)]


def test_a_number_of_components_is_chosen_where_particles_can_be_compared_and_points_are_few(
    monkeypatch,
):
    tried = []
    monkeypatch.setattr(mixtures, "_fit_some", lambda positions, scale, parts, number: number)
    monkeypatch.setattr(mixtures, "_height", lambda mixture, others: tried.append(mixture) or 0.0)
    for shape, number, chosen in (
        ((4, 1, 24), 40, False),
        ((4, 2, 24), 40, True),
        ((4, 5, 11), 75, False),
        ((4, 5, 14), 40, False),  # parameters few enough for as many components as there may be
        ((100, 40, 24), 40, True),
        ((2600, 40, 24), 40, False),  # so many positions that more points are used
    ):
        tried.clear()
        assert number_of_components(np.zeros(shape), np.ones(shape[2])) == number
        assert len(tried) == 8 * chosen, shape


def test_few_components_are_fitted_where_more_would_only_say_where_the_points_are():
    thetas, scale = wandering(iterations=200, particles=100), np.ones(MANY)
    number = number_of_components(thetas, scale)
    assert number == 4  # more than half a nat better than thirteen and forty
    others = jnp.asarray(wandering(seed=1).reshape(-1, MANY))
    flat = thetas.reshape(-1, MANY)
    few, many = (fit_mixture(flat, scale, None, n) for n in (number, None))
    held_out = [float(jnp.mean(log_density(mixture, others))) for mixture in (few, many)]
    assert held_out[0] > held_out[1] + 0.3  # what the rest of the room would have lost
    assert len(few.log_weights) == len(many.log_weights)  # one program serves both
    assert np.isclose(jnp.sum(jnp.exp(few.log_weights)), 1)


def test_as_many_components_are_fitted_as_there_are_places():
    number = number_of_components(wandering(clusters=25, particles=400), np.ones(MANY))
    assert number > 20


def test_all_components_are_fitted_where_points_are_enough_to_tell():
    thetas = np.random.default_rng(0).normal(size=(30, 100, 2))
    assert number_of_components(thetas, np.ones(2)) == 30


# --- partial moves ------------------------------------------------------------------------------


def three_components(p):
    """A mixture of Student densities that overlap, with shapes of their own."""
    rng = np.random.default_rng(3)
    shapes = rng.normal(size=(3, p, p))
    covariances = shapes @ np.swapaxes(shapes, 1, 2) / p + 0.1 * np.eye(p)
    return student_mixture(1.5 * rng.normal(size=(3, p)), covariances)


def sample_of(mixture, count, seed):
    p = mixture.centres.shape[1]
    chance = mixtures.chances(jax.random.key(seed), (count,), p)
    chance = chance._replace(choice=jnp.ones(count))  # none from the prior
    return jax.vmap(mixtures.jump, (None, 0, 0))(mixture, chance, jnp.zeros((count, p)))


def test_a_partition_has_the_factors_of_the_covariances_in_its_order():
    mixture = three_components(7)
    for number, component, parameter in ((0.0, 0.1, 0.99), (0.5, 0.5, 0.3), (0.999, 0.9, 0.0)):
        part = mixtures.partition(mixture, *map(jnp.asarray, (number, component, parameter)))
        order, factors = np.asarray(part.order), np.asarray(mixture.factors)
        covariances = factors @ np.swapaxes(factors, 1, 2)
        wanted = np.linalg.cholesky(covariances[:, order][:, :, order])
        np.testing.assert_allclose(part.factors, wanted, atol=1e-12)
        np.testing.assert_allclose(part.inverses @ wanted, np.tile(np.eye(7), (3, 1, 1)), atol=1e-9)
        # The one that is chosen is last, and the others stand before it as they depend on it.
        chosen = int(7 * parameter)
        assert order[-1] == chosen and int(part.given) == 6 - int(mixtures.MOST_ANEW * number)
        one = covariances[int(3 * component)]
        sd = np.sqrt(np.diag(one))
        linked = (one[chosen] / sd) ** 2
        assert (np.diff(linked[order[:-1]]) >= 0).all()


@pytest.mark.statistical
@pytest.mark.parametrize("number", [0.0, 0.3, 0.9])
def test_partial_moves_leave_the_mixture_as_it_is_and_are_reversible(monkeypatch, number):
    """E f(θ) g(θ') = E g(θ) f(θ') with 200,000 draws, to 4.5 standard errors.

    Not so where components are chosen as if nothing were given, or drawn with the scale that has.
    """
    count, p = 200_000, 7
    mixture = three_components(p)
    part = mixtures.partition(mixture, *map(jnp.asarray, (number, 0.5, 0.3)))
    stay, go = np.split(np.asarray(part.order), [int(part.given)])
    assert len(go) == 1 + int(mixtures.MOST_ANEW * number)
    before = sample_of(mixture, count, 0)
    chance = mixtures.chances(jax.random.key(1), (count,), p)

    def asymmetry(mixture):
        after = np.asarray(jax.jit(mixtures.redraw)(mixture, part, chance, before))
        np.testing.assert_array_equal(after[:, stay], np.asarray(before)[:, stay])
        assert (after[:, go] != np.asarray(before)[:, go]).all()
        worst = 0.0
        for i, j in ((go[0], stay[0]), (go[-1], stay[-1]), (go[0], stay[len(stay) // 2])):
            first, then = ((np.tanh(x[:, i]), np.abs(x[:, i] + x[:, j])) for x in (before, after))
            apart = first[0] * then[1] - first[1] * then[0]
            worst = max(worst, abs(apart.mean()) / apart.std() * count**0.5)
        return worst

    assert asymmetry(mixture) < 4.5
    skewed = mixture._replace(log_weights=mixture.log_weights + jnp.array([2.0, 0.0, -2.0]))
    assert asymmetry(skewed) > 4.5
