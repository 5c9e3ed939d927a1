"""Monte Carlo embeddings against closed forms: unbiased, and closer as 1/√R."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from pcuq.data import Data
from pcuq.errors import InputError
from pcuq.kernels import GaussianKernel
from pcuq.models import FunctionModel
from pcuq.monte_carlo import MonteCarloObjective
from pcuq.noise import JointNoise, LogNormal, NegativeBinomial, Poisson
from pcuq.objective import Objective
from pcuq.parameters import Parameter
from pcuq.problem import Problem

LAM = 0.05
LENGTHS = np.array([0.7, 1.2])
X = np.array([0.0, 1.0, 1.0])
Y = np.array([[0.2, 1.1], [0.9, np.nan], [1.2, 1.9]])
THETAS = np.array([[0.3, 0.2, -0.4], [-0.2, 0.5, -0.7]])
MODEL = FunctionModel(
    lambda x, p: [1 + p["a"] * x, p["b"] + 0.5 * x],
    {"a": Parameter("identity"), "b": Parameter("log"), "sd": Parameter("log")},
    ("u", "v"),
)
COVARIANCE = np.array([[1.0, 0.6], [0.6, 0.8]])
FACTOR = np.linalg.cholesky(COVARIANCE)


def problem_with(noise, y=Y, **kernel):
    return Problem(MODEL, Data(y, X, noise), GaussianKernel(LENGTHS, **kernel))


def correlated(key, w, s):
    return w + s * (jnp.asarray(FACTOR) @ jax.random.normal(key, (2,)))


def correlated_log_pdf(y, w, s):
    scaled = jnp.linalg.solve(jnp.asarray(FACTOR), (y - w) / s)
    log_det = jnp.log(jnp.asarray(FACTOR)[0, 0] * jnp.asarray(FACTOR)[1, 1]) + jnp.sum(jnp.log(s))
    return -0.5 * jnp.sum(scaled**2) - log_det - jnp.log(2 * jnp.pi)


def estimates(objective, keys, thetas=THETAS):
    """Values (K,) and gradients (K, N·p) of the joint log density over keys."""

    @jax.jit
    def one(key):
        value, gradient = objective.joint_value_and_gradient(jnp.asarray(thetas), LAM, key)
        return jnp.concatenate([value[None], gradient.ravel()])

    return np.asarray(jax.lax.map(one, keys, batch_size=100))


def wanted(problem, thetas=THETAS):
    value, gradient = jax.jit(Objective(problem).joint_value_and_gradient)(jnp.asarray(thetas), LAM)
    return np.concatenate([[value], np.ravel(gradient)])


def z_scores(found, target):
    """Standardised errors; rounding alone where nothing is random, as for a scale without part."""
    error = found.std(axis=0, ddof=1) / np.sqrt(len(found))
    return (found.mean(axis=0) - target) / np.maximum(error, 1e-9)


KEYS = jax.random.split(jax.random.key(1), 2000)
# Seven numbers: by chance 4 standard errors are passed in 1 of 2,000 runs.
Z = 4.0


@functools.cache
def estimates_with(strategy, draws):
    """Shared by the tests: compiling is most of the time."""
    return estimates(MonteCarloObjective(problem_with("sd"), draws, strategy), KEYS)


@pytest.mark.quick("score")
@pytest.mark.parametrize("strategy", ["reparametrisation", "score"])
def test_value_and_gradient_are_unbiased(strategy):
    scores = z_scores(estimates_with(strategy, 4), wanted(problem_with("sd")))
    assert np.max(np.abs(scores)) < Z


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["reparametrisation", "score"])
def test_a_sum_over_outputs_and_a_kernel_over_x_are_unbiased(strategy):
    problem = problem_with("sd", combine="sum", lengthscale_x=0.8)
    scores = z_scores(estimates(MonteCarloObjective(problem, 4, strategy), KEYS), wanted(problem))
    assert np.max(np.abs(scores)) < Z


class SharedDraws(MonteCarloObjective):
    """Broken: all particles use the same draws."""

    def particle_keys(self, key, count):
        return jnp.broadcast_to(key, (count,))


def test_draws_shared_between_particles_are_rejected():
    problem = problem_with("sd")
    scores = z_scores(estimates(SharedDraws(problem, 4), KEYS), wanted(problem))
    assert np.max(np.abs(scores)) > 2 * Z


@pytest.mark.quick("reparametrisation")
@pytest.mark.parametrize("strategy", ["reparametrisation", "score"])
def test_the_error_falls_as_one_over_the_square_root_of_the_draws(strategy):
    target, few, many = wanted(problem_with("sd")), 4, 16
    errors = []
    for draws in (few, many):
        found = estimates_with(strategy, draws)[:200]
        errors.append(np.sqrt(np.mean((found - target) ** 2, axis=0)))

    def as_expected(errors):
        ratio = errors[0] / errors[1] / np.sqrt(many / few)
        # The ratio of two such errors from 200 keys has a relative sd of 1/√200 = 7 %.
        return np.all((ratio > 0.7) & (ratio < 1.4))

    assert as_expected(errors)
    # An error that does not fall, as of an estimate that uses the first draws alone.
    found = estimates_with(strategy, few)[200:400]
    assert not as_expected([errors[0], np.sqrt(np.mean((found - target) ** 2, axis=0))])


def closed_form_of_correlated(thetas, y, covariance=COVARIANCE):
    """e = |L|/|L + Σ|^½ exp(−½ rᵀ(L² + Σ)⁻¹r), Σ = diag(s) S diag(s); e0 with the sum of two Σ."""
    length2, variances = jnp.diag(jnp.asarray(LENGTHS) ** 2), covariance

    def mean(r, covariance):
        total = length2 + covariance
        scale = jnp.sqrt(jnp.linalg.det(length2) / jnp.linalg.det(total))
        return scale * jnp.exp(-0.5 * r @ jnp.linalg.solve(total, r))

    def predict(theta):
        w = jnp.stack([1 + theta[0] * X, jnp.exp(theta[1]) + 0.5 * X], axis=-1)
        return w, jnp.exp(theta[2]) ** 2 * jnp.asarray(variances)

    same = X[:, None] == X[None]

    def log_density(thetas):
        energy = 0.0
        for a, theta in enumerate(thetas):
            w, covariance = predict(theta)
            each = jax.vmap(lambda r: jax.vmap(lambda q: mean(r - q, covariance))(w))  # noqa: B023
            energy += jnp.sum(same * each(jnp.asarray(y)))
            for vartheta in thetas[:a]:
                u, other = predict(vartheta)
                both = jax.vmap(lambda r: jax.vmap(lambda q: mean(r - q, covariance + other))(u))  # noqa: B023
                energy -= jnp.sum(same * both(w)) / (len(thetas) - 1)
        log_prior = -0.5 * jnp.sum(thetas**2) - thetas.size / 2 * jnp.log(2 * jnp.pi)
        return log_prior + energy / len(X) ** 2 / LAM

    value, gradient = jax.jit(jax.value_and_grad(log_density))(jnp.asarray(thetas))
    return np.concatenate([[value], np.ravel(gradient)])


@pytest.mark.quick("score")
@pytest.mark.parametrize("strategy", ["reparametrisation", "score"])
def test_correlated_outputs_agree_with_their_closed_form(strategy):
    y = np.where(np.isnan(Y), 1.3, Y)
    noise = JointNoise("sd", draw=correlated, log_pdf=correlated_log_pdf)
    found = estimates(MonteCarloObjective(problem_with(noise, y), 4, strategy), KEYS)
    assert np.max(np.abs(z_scores(found, closed_form_of_correlated(THETAS, y)))) < Z
    # Outputs of the same variances that do not depend on each other are something else.
    separate = closed_form_of_correlated(THETAS, y, np.diag(np.diag(COVARIANCE)))
    assert np.max(np.abs(z_scores(found, separate))) > 2 * Z


@pytest.mark.slow
def test_correlation_is_not_ignored():
    """Broken: the noise of the problem is independent over outputs."""
    y = np.where(np.isnan(Y), 1.3, Y)

    def independent(key, w, s):
        return w + s * jnp.sqrt(jnp.diag(jnp.asarray(COVARIANCE))) * jax.random.normal(key, (2,))

    objective = MonteCarloObjective(problem_with(JointNoise("sd", draw=independent), y), 4)
    scores = z_scores(estimates(objective, KEYS), closed_form_of_correlated(THETAS, y))
    assert np.max(np.abs(scores)) > 2 * Z


@pytest.mark.slow
def test_joint_noise_marginalises_missing_entries_and_single_outputs():
    """A row with a gap, and the sum over outputs, see the marginals of the joint draws."""
    noise = JointNoise("sd", draw=correlated)
    scale = [lambda x, w, p, v=v: jnp.sqrt(v) * p["sd"] for v in np.diag(COVARIANCE)]
    separate = lambda x, w, p: jnp.stack([f(x, w, p) for f in scale])  # noqa: E731
    y = np.array([[0.2, np.nan], [0.9, np.nan], [np.nan, 1.9]])
    for combine in ("product", "sum"):
        objective = MonteCarloObjective(problem_with(noise, y, combine=combine), 4)
        target = wanted(problem_with(separate, y, combine=combine))
        scores = z_scores(estimates(objective, KEYS), target)
        assert np.max(np.abs(scores)) < Z


@pytest.mark.slow
@pytest.mark.parametrize("noise", [NegativeBinomial("sd"), LogNormal("sd")])
def test_every_family_agrees_with_its_deterministic_rule(noise):
    y = np.array([[0.0, 1.0], [1.0, np.nan], [2.0, 3.0]])
    if not noise.discrete:
        y = y + 0.3
    problem = problem_with(noise, y)
    scores = z_scores(estimates(MonteCarloObjective(problem, 4), KEYS), wanted(problem))
    assert np.max(np.abs(scores)) < Z


@pytest.mark.slow
def test_the_reported_standard_error_is_that_of_v():
    problem = problem_with(0.6)
    objective = MonteCarloObjective(problem, 16)
    exact = Objective(problem)
    v = np.asarray(exact.data_terms(exact.features(jnp.asarray(THETAS))))
    report = jax.jit(lambda key: objective.report(jnp.asarray(THETAS), LAM, key))
    reports = jax.lax.map(report, KEYS[:1000], batch_size=100)
    spread = (np.asarray(reports.v) - v).std(axis=0) / LAM
    np.testing.assert_allclose(
        np.sqrt(np.mean(reports.standard_error**2, axis=0)), spread, rtol=0.1
    )
    scores = (np.asarray(reports.v).mean(axis=0) - v) / (spread * LAM / np.sqrt(1000))
    assert np.max(np.abs(scores)) < Z
    one = objective.features(jnp.asarray(THETAS), KEYS[0])
    np.testing.assert_allclose(objective.data_terms(one), reports.v[0], rtol=1e-12)


@pytest.mark.slow
def test_a_failed_particle_has_the_prior_alone():
    model = FunctionModel(lambda x, p: [jnp.sqrt(p["a"])], {"a": Parameter("identity")}, ("y",))
    problem = Problem(model, Data([[1.0], [2.0]], [0.0, 1.0], 0.5), GaussianKernel())
    objective = MonteCarloObjective(problem, 8)
    thetas = jnp.array([[0.5], [-1.0], [2.0]])
    value, gradient = jax.jit(objective.joint_value_and_gradient)(thetas, LAM, jax.random.key(0))
    assert np.isfinite(value) and np.all(np.isfinite(gradient))
    assert gradient[1, 0] == 1.0
    report = jax.jit(objective.report)(thetas, LAM, jax.random.key(0))
    assert report.v[1] == 0 and report.standard_error[1] == 0


@pytest.mark.slow
def test_forward_and_reverse_mode_agree():
    problem = problem_with("sd")
    results = [
        jax.jit(MonteCarloObjective(problem, 4, mode=mode).joint_value_and_gradient)(
            jnp.asarray(THETAS), LAM, jax.random.key(3)
        )
        for mode in ("forward", "reverse")
    ]
    np.testing.assert_allclose(results[0][0], results[1][0], rtol=1e-13)
    np.testing.assert_allclose(results[0][1], results[1][1], rtol=1e-10)


@pytest.mark.parametrize(
    ("noise", "options", "message"),
    [
        (0.5, {"draws": 1}, "`draws` needs a whole number of at least 2: got 1"),
        (0.5, {"strategy": "reinforce"}, "`strategy` needs 'auto' or one of"),
        (
            Poisson(),
            {"strategy": "reparametrisation"},
            "Poisson noise has none; use strategy='score'",
        ),
        (JointNoise(1.0, draw=correlated), {"strategy": "score"}, "needs its `log_pdf`"),
    ],
)
def test_what_cannot_be_done_is_said(noise, options, message):
    y = np.ones((3, 2))
    with pytest.raises(InputError, match=message):
        MonteCarloObjective(problem_with(noise, y), **options)


def test_another_key_gives_other_draws():
    objective = MonteCarloObjective(problem_with("sd"), 4)
    one = jnp.asarray(THETAS[:1])
    first, again, other = (objective.features(one, jax.random.key(i))[0][0] for i in (5, 5, 6))
    np.testing.assert_array_equal(first, again)
    assert np.abs(np.asarray(first - other)).min() > 0


@pytest.mark.slow
def test_draws_follow_the_law():
    """Gaussian noise: draws of one atom against the normal distribution, with a fixed key."""
    objective = MonteCarloObjective(problem_with("sd"), 4000)
    one = jnp.asarray(THETAS[:1])
    ((draws,), (weights,)), (ok,) = objective.features(one, jax.random.key(5))
    sd, w = np.exp(-0.4), 1 + 0.3 * 1.0
    assert ok and draws.shape == (3, 4000, 2)
    np.testing.assert_allclose(weights, 1 / 4000)
    last = int(np.flatnonzero(objective.problem.design.atom_rows == 2)[0])
    assert stats.kstest(np.asarray(draws[last, :, 0]), stats.norm(w, sd).cdf).pvalue > 1e-3
