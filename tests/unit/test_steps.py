"""One step of each sampler, by hand, on Gaussian densities; and the laws of their draws."""

from functools import partial
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy import stats

from pcuq import diagnostics
from pcuq.objective import Features
from pcuq.parameters import Parameter, Parameters
from pcuq.samplers import ensemble, nuts, shared
from pcuq.samplers import mixture as mixtures
from pcuq.samplers.base import sample
from pcuq.samplers.ensemble import TARGET_ACCEPTANCE, Ensemble, ParallelEnsemble
from pcuq.samplers.flow import Flow
from pcuq.samplers.mala import Mala, ParallelMala, log_proposal_ratio, propose
from pcuq.samplers.nuts import JointNuts, ParallelNuts
from pcuq.samplers.shared import LOWEST, Tuning
from pcuq.sharded import ShardedObjective
from pcuq.straight import Straight

KEY = jax.random.key(5)
MEAN = np.array([0.5, -1.0])
COVARIANCE = np.array([[1.0, 0.5], [0.5, 0.8]])
PRECISION = np.linalg.inv(COVARIANCE)
FACTOR = np.array([[0.7, 0.0], [-0.4, 1.3]])
TUNING = Tuning(jnp.asarray(FACTOR), jnp.asarray(1.0))


def log_normal(theta):
    """(log density, (v, ok)) of Normal(MEAN, COVARIANCE), but for a constant."""
    apart = theta - MEAN
    return -0.5 * apart @ PRECISION @ apart, (jnp.sum(theta), jnp.asarray(True))


class Gaussian:
    """As an Objective: independent particles of that law; v = θ_0, where θ_0 < 50 it is solved."""

    def joint_evaluation(self, thetas, lam):
        values = jax.vmap(lambda theta: log_normal(theta)[0])(thetas)
        gradient = -(thetas - MEAN) @ PRECISION
        return jnp.sum(values) / lam, gradient / lam, thetas[:, 0], thetas[:, 0] < 50

    def joint_value_and_gradient(self, thetas, lam):
        return self.joint_evaluation(thetas, lam)[:2]

    def features(self, thetas):
        return Features(thetas, thetas[:, 0] < 50)

    def data_terms(self, features):
        return features.representation[:, 0]


def z_of_normal(theta):
    """z of means, variances and covariance of draws (S, T, N, 2) of N chains of one system."""
    chains = np.moveaxis(theta[0], 0, 1) - MEAN
    quantities = np.stack(
        [chains[..., 0], chains[..., 1], chains[..., 0] ** 2, chains[..., 1] ** 2, chains.prod(-1)],
        axis=-1,
    )
    wanted = np.array([0, 0, COVARIANCE[0, 0], COVARIANCE[1, 1], COVARIANCE[0, 1]])
    return (quantities.mean(axis=(0, 1)) - wanted) / diagnostics.mcse_mean(quantities)


def follow_the_law(theta):
    """And the same draws, half as wide again or half an sd away, do not."""
    assert np.abs(z_of_normal(theta)).max() < 4.5
    assert np.abs(z_of_normal(MEAN + 1.5 * (theta - MEAN))).max() > 4.5
    assert np.abs(z_of_normal(theta + 0.5)).max() > 4.5


def starts(particles):
    return MEAN + np.random.default_rng(2).normal(size=(1, particles, 2))


# --- what they share ----------------------------------------------------------------------------


def test_the_step_size_follows_the_acceptance_less_and_less_and_only_in_warm_up():
    adapt = partial(shared.adapt, -1.0, acceptance=0.9, target=0.5)
    assert float(adapt(age=0.0, tuning=TUNING)) == pytest.approx(-1.0 + 0.4)
    assert float(adapt(age=31.0, tuning=TUNING)) == pytest.approx(-1.0 + 0.4 / 8)
    assert float(adapt(age=0.0, tuning=TUNING._replace(adapting=jnp.asarray(0.0)))) == -1.0


def test_a_ratio_that_is_no_number_is_never_accepted():
    logs = jnp.array([-jnp.inf, np.log(0.25), 0.0, 3.0, jnp.inf, jnp.nan])
    np.testing.assert_allclose(shared.probability(logs), [0, 0.25, 1, 1, 1, 0])
    values = jnp.array([-jnp.inf, jnp.nan, -3.0, 2.0])
    np.testing.assert_array_equal(shared.at_least_lowest(values), [LOWEST, LOWEST, -3.0, 2.0])


def regular(covariance):
    return 0.95 * covariance + 0.05 * np.diag(np.diag(covariance))


@pytest.mark.parametrize("warmed", [0.0, 0.99, 1.0])
def test_the_preconditioner_is_the_covariance_of_the_part_that_fits(warmed):
    thetas = np.random.default_rng(0).normal(size=(10, 2, 3, 2)) @ FACTOR.T
    v = np.where(np.arange(60) % 3 == 0, 0.19, 0.2).reshape(10, 2, 3)
    v[0, 0, 1] = 1.0
    tuning = shared.tuning_of_fit(thetas, v, warmed)
    fits = thetas.reshape(60, 2)[np.arange(60) % 3 > 0]
    found = np.asarray(tuning.factor)
    np.testing.assert_allclose(found @ found.T, regular(np.cov(fits.T)))
    assert np.triu(found, 1).max() == 0 and float(tuning.adapting) == (warmed < 1)


def test_chains_that_are_stuck_do_not_shape_the_preconditioner():
    """Further below the median than five times what the best is above it."""
    thetas = np.random.default_rng(0).normal(size=(20, 1, 1, 2))
    v = 7.0 + np.linspace(-1.0, 1.0, 20).reshape(20, 1, 1)
    whole = shared.tuning_of_most(thetas, v, 0.5).factor
    np.testing.assert_allclose(whole @ whole.T, regular(np.cov(thetas.reshape(20, 2).T)))
    v[0], v[1], v[2], thetas[:2] = -np.inf, 7 - 5.5, 7 - 4.9, 100.0
    equal = np.where(v < 7 - 5, -np.inf, 7.0)  # where the best is no better than most
    for values in (v, equal):
        most = shared.tuning_of_most(thetas, values, 0.5).factor
        np.testing.assert_allclose(most @ most.T, regular(np.cov(thetas[2:].reshape(18, 2).T)))


def test_few_positions_still_give_a_preconditioner():
    one = shared.tuning_of_fit(np.ones((1, 1, 1, 2)), np.ones((1, 1, 1)), 0.0)
    np.testing.assert_allclose(one.factor, np.eye(2))
    # Two have a variance, and no more than one direction.
    thetas = np.array([1.0, 4.0]).reshape(2, 1, 1, 1) * [1.0, -2.0]
    two = np.asarray(shared.tuning_of_fit(thetas, np.ones((2, 1, 1)), 0.0).factor)
    np.testing.assert_allclose(two @ two.T, regular(4.5 * np.array([[1.0, -2.0], [-2.0, 4.0]])))
    # Of equal positions the least that can be factored.
    equal = shared.tuning_of_fit(np.ones((5, 1, 1, 2)), np.ones((5, 1, 1)), 0.0)
    np.testing.assert_allclose(np.asarray(equal.factor) ** 2, 5e-14 * np.eye(2))
    # Of 2 p and fewer that fit, all positions count.
    thetas = np.random.default_rng(0).normal(size=(12, 1, 1, 2))
    for fit, used in ((4, 12), (5, 5)):
        v = np.where(np.arange(12) < fit, 1.0, 0.0).reshape(12, 1, 1)
        found = np.asarray(shared.tuning_of_fit(thetas, v, 0.0).factor)
        np.testing.assert_allclose(found @ found.T, regular(np.cov(thetas[:used, 0, 0].T)))


@pytest.mark.parametrize("mode", ["forward", "reverse"])
def test_where_a_density_is_no_number_its_gradient_is_finite(mode):
    def density(theta):
        return jnp.sum(jnp.sqrt(theta)), (theta[0], theta[0] > 0)

    evaluate = shared.value_and_gradient(density, mode)
    fine, bad = evaluate(jnp.array([4.0, 1.0])), evaluate(jnp.array([-1.0, 4.0]))
    assert (float(fine.value), float(fine.v), bool(fine.ok)) == (3.0, 4.0, True)
    np.testing.assert_allclose(fine.gradient, [0.25, 0.5])
    assert float(bad.value) == LOWEST and not bad.ok
    assert bad.gradient[0] == 0 and np.isfinite(bad.gradient).all()


def test_forward_mode_serves_a_loop_whose_length_is_not_known():
    """Such a loop, as of an adaptive solver, cannot be differentiated in reverse."""

    def density(theta):
        halved = jax.lax.while_loop(lambda x: jnp.max(x) > 1, lambda x: x / 2, theta)
        return jnp.sum(halved), (theta[0], jnp.asarray(True))

    found = shared.value_and_gradient(density, "forward")(jnp.array([3.0, 1.0]))
    assert float(found.value) == 1.0
    np.testing.assert_allclose(found.gradient, [0.25, 0.25])


def test_reverse_mode_serves_a_density_that_has_no_other_derivative():
    value = jax.custom_vjp(lambda theta: jnp.sum(theta**2))
    value.defvjp(lambda theta: (value(theta), theta), lambda theta, slope: (2 * slope * theta,))
    found = shared.value_and_gradient(lambda t: (value(t), (t[0], True)), "reverse")(
        jnp.arange(3.0)
    )
    assert float(found.value) == 5.0
    np.testing.assert_allclose(found.gradient, [0.0, 2.0, 4.0])


# --- Langevin steps -----------------------------------------------------------------------------


def test_a_langevin_proposal_has_the_law_that_its_ratio_is_of():
    """θ' ~ Normal(θ + ε P ∇, 2 ε P), P = L Lᵀ: both densities by scipy."""
    rng = np.random.default_rng(0)
    theta, gradient, noise, back = rng.normal(size=(4, 3, 2))
    log_step, P = -0.7, FACTOR @ FACTOR.T
    step = np.exp(log_step)
    new, move = propose(theta, gradient, noise, log_step, TUNING)
    wanted = theta + step * gradient @ P + np.sqrt(2 * step) * noise @ FACTOR.T
    np.testing.assert_allclose(new, wanted)

    def log_g(to, at, slope):
        law = stats.multivariate_normal(np.zeros(2), 2 * step * P)
        return law.logpdf(to - at - step * slope @ P)

    ratio = log_g(theta, np.asarray(new), back) - log_g(np.asarray(new), theta, gradient)
    np.testing.assert_allclose(log_proposal_ratio(back, noise, move, log_step, TUNING), ratio)


def test_the_first_step_of_a_langevin_chain_evaluates_and_stays():
    sampler, thetas = ParallelMala(log_normal), jnp.asarray(starts(4)[0])
    state = sampler.init(thetas, TUNING, -1.0)
    first, info = sampler.step(KEY, state, TUNING)
    np.testing.assert_array_equal(first.at.theta, thetas)
    values, (v, _) = jax.vmap(log_normal)(thetas)
    np.testing.assert_allclose(first.at.value, values)
    np.testing.assert_allclose(first.at.v, v)
    assert first.at.ok.all() and float(first.log_step) == -1.0 and float(info.acceptance) == 1.0
    then, info = sampler.step(KEY, first, TUNING)
    moved = (np.asarray(then.at.theta) != np.asarray(thetas)).any(axis=1)
    assert moved.any() and (float(first.age), float(then.age)) == (1.0, 2.0)
    wanted = -1.0 + 2**-0.6 * (float(info.acceptance) - 0.574)
    assert float(then.log_step) == float(info.log_step) == pytest.approx(wanted)


@pytest.mark.parametrize("together", [True, False])
def test_mala_decides_for_a_system_as_a_whole_or_for_each_chain(together):
    """By hand; where θ_0 ≥ 1 the model is said to fail, which is told of proposals and draws."""

    class Failing(Gaussian):
        def joint_evaluation(self, thetas, lam):
            return *super().joint_evaluation(thetas, lam)[:3], thetas[:, 0] < 1

    def failing(theta):
        return log_normal(theta)[0], (theta[1], theta[0] < 1)

    sampler = Mala(Failing(), 1.2) if together else ParallelMala(failing)  # pyright: ignore
    thetas = jnp.asarray(starts(5)[0])
    log_step, tuning = -1.0, TUNING._replace(adapting=jnp.asarray(0.0))
    step, evaluate = jax.jit(sampler.step), jax.jit(sampler._evaluate)
    state, _ = step(KEY, sampler.init(thetas, tuning, log_step), tuning)
    moved = []
    for key in jax.random.split(KEY, 6):
        new, info = step(key, state, tuning)
        noise_key, accept_key = jax.random.split(key)
        noise = jax.random.normal(noise_key, (5, 2))
        proposed, move = propose(thetas, state.at.gradient, noise, log_step, tuning)
        there = evaluate(proposed)
        ratio = log_proposal_ratio(there.gradient, noise, move, log_step, tuning)
        chance = np.exp(there.value - state.at.value + (ratio.sum() if together else ratio))
        accepted = jax.random.uniform(accept_key, chance.shape) < chance
        moved.append(np.broadcast_to(accepted, 5))
        for leaf, a, b in zip(new.at, there, state.at, strict=True):
            wanted = np.array(b)
            wanted[accepted] = np.asarray(a)[accepted]
            np.testing.assert_allclose(leaf, wanted)
        assert float(info.acceptance) == pytest.approx(np.minimum(chance, 1).mean())
        assert float(info.failed_proposals) == np.mean(np.asarray(proposed)[:, 0] >= 1)
        drawn = sampler.draw(new)
        np.testing.assert_array_equal(drawn.theta, new.at.theta)
        np.testing.assert_array_equal(drawn.v, new.at.v)
        np.testing.assert_array_equal(drawn.failed, drawn.theta[:, 0] >= 1)
    assert 0 < np.sum(moved) < np.size(moved)


def test_the_flow_takes_every_step_and_tells_what_mala_would_have_thought():
    lam, step = 0.5, 0.2
    flow = Flow(Gaussian(), lam, step_size=step)
    thetas = MEAN + 0.2 * (starts(3)[0] - MEAN)  # from further away every step is accepted
    tuning = flow.tune(thetas[None, None], np.ones((1, 1, 3)), 0.0)
    np.testing.assert_array_equal(tuning.factor, np.eye(2))
    assert float(tuning.adapting) == 0.0
    state = flow.init(jnp.asarray(thetas), tuning, -9.0)
    assert float(state.log_step) == pytest.approx(np.log(step))
    new, info = flow.step(KEY, state, tuning)
    value, gradient, *_ = flow.objective.joint_evaluation(thetas, lam)
    noise = (np.asarray(new.at.theta) - thetas - step * gradient) / np.sqrt(2 * step)
    assert np.abs(noise).max() < 4 and len(np.unique(noise)) == 6
    again = flow.objective.joint_evaluation(new.at.theta, lam)
    back = np.asarray(new.at.theta) - thetas + step * np.asarray(again[1])
    log_ratio = again[0] - value + np.sum(noise**2) / 2 - np.sum(back**2) / (4 * step)
    assert 0.05 < float(info.acceptance) < 0.95  # where each of its parts can be seen
    assert float(info.acceptance) == pytest.approx(np.exp(float(log_ratio)), rel=1e-9)
    assert float(new.log_step) == float(info.log_step) == float(state.log_step)
    assert (float(info.failed_proposals), float(new.age)) == (0.0, 1.0)
    drawn = flow.draw(new)
    np.testing.assert_array_equal(drawn.v, new.at.theta[:, 0])
    assert not drawn.failed.any()


def test_a_flow_without_a_step_size_adapts_it():
    flow = Flow(Gaussian(), 1.0)
    thetas = starts(30)
    tuning = flow.tune(thetas[None], np.ones((1, 1, 30)), 0.5)
    assert float(tuning.adapting) == 1.0 and float(tuning.factor[1, 0]) != 0
    state = flow.init(jnp.asarray(thetas[0]), tuning, -9.0)
    assert float(state.log_step) == -9.0
    new, info = flow.step(KEY, state, tuning)
    assert float(new.log_step) == pytest.approx(-9.0 + float(info.acceptance) - 0.9)


@pytest.mark.parametrize("kind", [Flow, Mala])
def test_a_sampler_says_whether_its_objective_has_devices_of_its_own(kind):
    """Its loops would wait for each other for ever in threads side by side."""
    spread = ShardedObjective.__new__(ShardedObjective)  # nothing of it is asked
    assert kind(spread, 1.0).own_devices
    assert not kind(Gaussian(), 1.0).own_devices


class Noisy(Gaussian):
    """Its gradient is random and needs a key."""

    def joint_evaluation(self, thetas, lam, key):
        value, gradient, v, ok = super().joint_evaluation(thetas, lam)
        return value + 1e3 * jax.random.uniform(key), gradient, v, ok


def test_a_random_objective_has_the_same_numbers_at_both_ends_of_a_step():
    """Its noise of a thousand nats cancels in what MALA would have thought, and only there."""
    flow, plain = Flow(Noisy(), 1.0, 0.02), Flow(Gaussian(), 1.0, 0.02)
    thetas = jnp.asarray(starts(3)[0])
    tuning = flow.tune(np.asarray(thetas)[None, None], np.ones((1, 1, 3)), 1.0)
    states = [f.init(thetas, tuning, 0.0) for f in (flow, plain)]
    for key in jax.random.split(KEY, 2):
        results = [f.step(key, s, tuning) for f, s in zip((flow, plain), states, strict=True)]
        states = [state for state, _ in results]
        assert float(results[0][1].acceptance) == pytest.approx(float(results[1][1].acceptance))
        np.testing.assert_allclose(states[0].at.theta, states[1].at.theta)
    assert abs(float(states[0].at.value - states[1].at.value)) > 1


# --- the laws -----------------------------------------------------------------------------------


def test_nuts_of_a_whole_system_draws_from_its_density():
    run = sample(JointNuts(Gaussian(), 1.0), starts(8), np.ones((1, 8)), 3, 100, 120, 1)
    follow_the_law(run.theta)
    np.testing.assert_array_equal(run.v, run.theta[..., 0])
    assert not run.failed.any()
    assert run.info["acceptance"].mean() == pytest.approx(0.8, abs=0.12)
    log_step = run.info["log_step"]
    assert (log_step == log_step[:, :1]).all() and (log_step != -2.0).all()
    # A force that is not that of the density never turns round: 511 steps, and few other draws.
    assert (run.info["leapfrog"] >= 1).all() and 1 < run.info["leapfrog"].mean() < 30
    assert run.info["divergent"].max() == run.info["failed_proposals"].max() == 0


def test_a_system_of_nuts_that_begins_where_its_density_is_zero_leaves():
    """Where θ_0 > 3, from which it takes several leapfrog steps: they must not end it."""

    class Cut(Gaussian):
        def joint_evaluation(self, thetas, lam):
            value, gradient, v, ok = super().joint_evaluation(thetas, lam)
            return jnp.where(jnp.max(thetas[:, 0]) > 3, -jnp.inf, value), gradient, v, ok

    sampler, thetas = JointNuts(Cut(), 1.0), jnp.array([[9.0, 1.0], [1.0, 0.0]])
    tuning = TUNING._replace(adapting=jnp.asarray(0.0))
    state = sampler.init(thetas, tuning, jnp.log(0.05))
    assert float(state.inner.logdensity) == LOWEST
    step = jax.jit(lambda key, state: sampler.step(key, state, tuning)[0])
    for key in jax.random.split(KEY, 5):
        state = step(key, state)
    assert float(jnp.max(state.theta[:, 0])) < 3
    # What is drawn is what the trajectory was of, in other coordinates.
    wanted = sampler.objective.joint_evaluation(state.theta, 1.0)[0]
    assert float(state.inner.logdensity) == pytest.approx(float(wanted))


def test_what_chains_of_nuts_draw_is_what_their_trajectories_are_of():
    sampler = ParallelNuts(log_normal)
    state = sampler.init(jnp.asarray(starts(3)[0]), TUNING, -1.0)
    new, _ = jax.jit(lambda state: sampler.step(KEY, state, TUNING))(state)
    assert not (new.theta == state.theta).any()
    for at in (state, new):
        np.testing.assert_allclose(at.inner.position @ TUNING.factor.T, at.theta, rtol=1e-9)
        np.testing.assert_allclose(at.inner.logdensity, jax.vmap(log_normal)(at.theta)[0])
        gradient = -(at.theta - MEAN) @ PRECISION @ TUNING.factor
        np.testing.assert_allclose(at.inner.logdensity_grad, gradient)


def test_nuts_adapts_less_and_less_by_the_mean_acceptance():
    """A trajectory whose acceptance is no number was not accepted."""
    ok = jnp.array([True, False, True, True])
    old = nuts.State(
        None, jnp.zeros((4, 2)), jnp.zeros(4), ok, jnp.asarray(-1.0), jnp.asarray(31.0)
    )
    info = SimpleNamespace(
        acceptance_rate=jnp.array([1.0, jnp.nan, 0.8, 0.6]),
        is_divergent=jnp.array([False, True, False, False]),
        num_integration_steps=jnp.array([1, 3, 7, 7]),
    )
    new, told = nuts._adapted(old, old, info, TUNING)
    assert (float(new.age), float(new.log_step)) == (32.0, pytest.approx(-1.0 + (0.6 - 0.8) / 8))
    np.testing.assert_allclose(told, [0.6, 0.25, 4.5, new.log_step, 0.25])


def test_a_value_with_its_own_gradient_has_that_gradient():
    value = nuts._with_own_gradient(lambda z: (jnp.sum(z**3), 7 * z))
    z = jnp.array([1.0, 2.0])
    assert float(value(z)) == 9.0
    np.testing.assert_allclose(jax.grad(lambda z: 2 * value(z))(z), 14 * z)


def test_chains_of_nuts_draw_from_their_density():
    run = sample(ParallelNuts(log_normal), starts(8), np.ones((1, 8)), 3, 100, 120, 1)
    assert not run.failed.any()
    follow_the_law(run.theta)
    np.testing.assert_allclose(run.v, run.theta.sum(axis=-1))
    assert run.info["acceptance"].mean() == pytest.approx(0.8, abs=0.12)
    assert 1 < run.info["leapfrog"].mean() < 30


PRIOR = Parameters({name: Parameter("identity", dist.Normal(0, 3)) for name in "ab"})


def chains_of(log_density, prior=PRIOR):
    """Chains by the default moves, for a log density of one θ."""
    return ParallelEnsemble(jax.vmap(log_density), prior)


def test_chains_of_the_default_moves_draw_from_their_density():
    run = sample(chains_of(log_normal), starts(16), np.ones((1, 16)), 3, 150, 150, 1)
    follow_the_law(run.theta)
    np.testing.assert_allclose(run.v, run.theta.sum(axis=-1))
    assert not run.failed.any()
    log_step = run.info["log_step"]
    assert (log_step == log_step[:, :1]).all() and (log_step <= 0).all()
    assert run.info["walked"].mean() > TARGET_ACCEPTANCE - 0.1
    assert run.info["jumped"].mean() > 0.3
    assert run.info["failed_proposals"].max() == 0


# --- the default moves ----------------------------------------------------------------------------


def known_chains(wider=5, count=12):
    """Chains of which all is known, their sampler, and a tuning by positions that are wider."""
    chains = chains_of(log_normal)
    thetas = jnp.asarray(starts(count)[0])
    tuning = chains.tune(wider * np.asarray(thetas)[None, None], np.ones((1, 1, count)), 0.5)
    state = chains.init(thetas, tuning, -0.5)
    state = state._replace(particles=chains.evaluate(thetas, tuning), known=jnp.asarray(True))
    return chains, tuning, state


def plain(uniform, new):
    """Moves of which none draws a parameter from its prior."""
    return ensemble.Move(jnp.asarray(uniform), new, jnp.zeros(len(new.eta), bool))


def test_a_sweep_moves_by_one_of_four_lengths_or_jumps():
    chains, tuning, state = known_chains(wider=2)
    state = state._replace(log_step=jnp.asarray(-1.0))
    chance = mixtures.chances(KEY, (12,), 2)
    from_prior = PRIOR.sample(KEY, (12,))
    sweep = jax.jit(chains._sweep)
    at = np.asarray(state.particles.eta)
    quarter = np.floor(4 * np.asarray(chance.choice)).astype(int)
    lengths = np.array([2.0, 0.7, 0.2, 0.05])[quarter]
    s = np.minimum(1.0, lengths * np.exp(-1.0))
    proposals = jax.vmap(mixtures.move, (None, 0, 0, 0, 0))(
        tuning.mixture, chance, at, state.particles.log_parts, s
    )
    found, (share, failed) = sweep(state, tuning, False, chance, from_prior)
    new = chains.evaluate(proposals, tuning)
    wanted, accepted = chains._accept(plain(chance.accept, new), state, tuning.lam)
    np.testing.assert_allclose(found.particles.eta, wanted.particles.eta)
    assert accepted.sum() < 12 and float(share) == pytest.approx(accepted.sum() / 12)
    assert len(np.unique(s[accepted])) == 4  # some of each length
    assert float(failed) == 0 and found.known

    chains, tuning, state = known_chains(wider=1)
    jumps = jax.vmap(mixtures.jump, (None, 0, 0))(tuning.mixture, chance, from_prior)
    found, (share, _) = sweep(state, tuning, True, chance, from_prior)
    new = chains.evaluate(jumps, tuning)
    wanted, accepted = chains._exchange(plain(chance.accept, new), state, tuning.lam)
    np.testing.assert_allclose(found.particles.eta, wanted.particles.eta)
    assert accepted.any() and float(share) == pytest.approx(accepted.sum() / 12)

    # Particles that are not known yet stay, and nothing is said of the moves; so also where a move
    # would not be accepted.
    at = at + 30.0
    blank = chains.init(jnp.asarray(at), tuning, -0.5)
    found, (share, _) = sweep(blank, tuning, False, chance, from_prior)
    np.testing.assert_array_equal(found.particles.eta, at)
    np.testing.assert_allclose(found.particles.v, at.sum(axis=1))
    assert float(share) == pytest.approx(TARGET_ACCEPTANCE)


def test_the_length_of_local_moves_follows_their_acceptance_and_is_at_most_one():
    chains, tuning, state = known_chains()
    step = jax.jit(chains.step)
    for log_step, adapting in ((-0.5, 1.0), (-0.5, 0.0), (0.0, 1.0), (0.5, 0.0), (-6.0, 1.0)):
        begun = state._replace(log_step=jnp.asarray(log_step))
        new, info = step(KEY, begun, tuning._replace(adapting=jnp.asarray(adapting)))
        change = adapting * 0.3 * (float(info.walked) - 0.4)
        assert float(new.log_step) == pytest.approx(min(0.0, log_step + change), abs=1e-6)
        assert float(info.log_step) == float(new.log_step)
        assert float(info.jumped) != float(info.walked)


@pytest.mark.parametrize(("warmed", "adapting"), [(0.0, 1.0), (0.99, 1.0), (1.0, 0.0)])
def test_the_default_sampler_adapts_until_the_warm_up_is_over(warmed, adapting):
    chains = chains_of(log_normal)
    tuning = chains.tune(starts(12)[None], np.ones((1, 1, 12)), warmed)
    assert float(tuning.adapting) == adapting and float(tuning.lam) == 1.0
    assert float(chains.shaped_by(starts(12)[None]).adapting) == 1.0


def test_a_heated_sampler_has_more_lambda_and_a_share_of_moves_for_hot_positions():
    objective = SimpleNamespace(problem=SimpleNamespace(parameters=PRIOR))
    sampler = Ensemble(objective, 0.5)  # pyright: ignore[reportArgumentType]
    assert sampler.anneals  # so that it is asked
    cold = sampler.tune(starts(12)[None], np.ones((1, 1, 12)), 0.5)
    hot = starts(12)[None] + 5.0
    points = jnp.asarray(np.random.default_rng(0).normal(2, 3, (20, len(PRIOR))))

    def height(mixture):
        return np.exp(np.asarray(mixtures.log_density(mixture, points)))

    warm, warmer = sampler.heated(cold, 10.0, None), sampler.heated(cold, 2.0, hot)
    assert (float(warm.lam), float(warmer.lam)) == (5.0, 1.0)
    np.testing.assert_allclose(height(warm.mixture), height(cold.mixture))
    both = 2 / 3 * height(cold.mixture) + 1 / 3 * height(sampler.shaped_by(hot).mixture)
    np.testing.assert_allclose(height(warmer.mixture), both)
    # Another run of the same sampler knows nothing of them.
    anew = sampler.heated(cold, 1.0, None)
    np.testing.assert_allclose(height(anew.mixture), height(cold.mixture))
    shapes = [jax.tree.map(jnp.shape, tuning.mixture) for tuning in (warm, warmer)]
    assert shapes[0] == shapes[1]  # one program for both


def test_chances_of_a_step_are_new_for_each_sweep_and_each_key():
    chains, tuning, state = known_chains()
    step = jax.jit(chains.step)
    thetas = [step(key, state, tuning)[0].particles.eta for key in jax.random.split(KEY, 3)]
    assert not (thetas[0] == thetas[1]).all() and not (thetas[1] == thetas[2]).all()


def test_proposals_that_fail_are_counted_over_both_sweeps():
    def sometimes(theta):
        value, (v, _) = log_normal(theta)
        return jnp.where(theta[0] < 0.5, value, -jnp.inf), (v, theta[0] < 0.5)

    chains = chains_of(sometimes)
    thetas = jnp.asarray(starts(12)[0])
    tuning = chains.tune(np.asarray(thetas)[None, None], np.ones((1, 1, 12)), 0.5)
    state = chains.init(thetas, tuning, -0.5)
    new, info = jax.jit(chains.step)(KEY, state, tuning)
    there = np.asarray(thetas)[:, 0] >= 0.5
    # The first sweep evaluates the particles where they are; the second jumps.
    jumps = 12 * (2 * float(info.failed_proposals) - there.mean())
    assert jumps == pytest.approx(round(jumps), abs=1e-4) and 0 < round(jumps) < 12
    drawn = chains.draw(new)
    np.testing.assert_array_equal(drawn.failed, np.asarray(drawn.theta)[:, 0] >= 0.5)
    assert drawn.failed.sum() < there.sum()


# One parameter between bounds, uniform there, and one without.
BOUNDED = Parameters(
    {
        "a": Parameter("logit", dist.Uniform(0, 1), prior_on="natural"),
        "b": Parameter("identity", dist.Normal(0, 3)),
    }
)


class Repelled(Gaussian):
    """With what the default sampler asks: particles of BOUNDED that repel each other."""

    problem = SimpleNamespace(parameters=BOUNDED)

    def log_priors(self, thetas):
        return jax.vmap(BOUNDED.log_prior)(thetas)

    def quick_features(self, features):
        return features

    def quick_pair_block(self, a, b):
        apart = a.representation[:, None] - b.representation
        return jnp.exp(-jnp.sum(apart**2, axis=-1))


def default_samplers():
    return Ensemble(Repelled(), 1.0), chains_of(log_normal, BOUNDED)  # pyright: ignore[reportArgumentType]


def moves_about(centre, sd):
    """A tuning by one Student density."""
    mixture = mixtures.student_mixture(np.array([centre]), np.diag(np.square(sd))[None])
    return ensemble.Tuning(mixture, jnp.asarray(1.0), jnp.asarray(1.0))


def test_densities_between_bounds_are_those_of_the_coordinates_of_the_moves():
    """Of a uniform parameter η is uniform from −2 to 2; other densities are over the slope."""
    eta = np.array([[-1.9, 0.5], [0.4, -2.0], [1.2, 3.0]])
    x = (eta[:, 0] + 2) / 4
    thetas = np.stack([np.log(x / (1 - x)), eta[:, 1]], axis=1)
    tuning = moves_about([0.0, 0.0], [1.0, 1.0])
    for sampler in default_samplers():
        found = jax.jit(sampler.evaluate)(eta, tuning)
        wanted = stats.norm(0, 3).logpdf(eta[:, 1]) - np.log(4)
        np.testing.assert_allclose(found.log_prior, wanted)
        drawn = sampler.draw(sampler.init(jnp.asarray(thetas), tuning, 0.0))
        np.testing.assert_allclose(drawn.theta, thetas)
    wanted = jax.vmap(log_normal)(thetas)[0] - np.log(4 * x * (1 - x))
    np.testing.assert_allclose(found.features.representation, wanted)


@pytest.mark.parametrize("which", [0, 1], ids=["particles", "chains"])
def test_what_lies_beyond_a_bound_is_never_accepted(which):
    sampler, tuning = default_samplers()[which], moves_about([2.1, 0.0], [0.3, 1.0])
    rng = np.random.default_rng(0)
    eta = jnp.asarray(np.stack([rng.uniform(1.5, 2.0, 12), rng.normal(size=12)], axis=1))
    particles = jax.jit(sampler.evaluate)(eta, tuning)
    state = sampler.init(eta, tuning, 0.0)._replace(
        particles=particles, kappa0=sampler._pairs(particles), known=jnp.asarray(True)
    )
    chance, nowhere = mixtures.chances(KEY, (12,), 2), jnp.full((12, 2), 9.0)
    s = np.minimum(1.0, np.array([2.0, 0.7, 0.2, 0.05])[np.floor(4 * chance.choice).astype(int)])
    moves = jax.vmap(mixtures.move, (None, 0, 0, 0, 0))(
        tuning.mixture, chance, eta, particles.log_parts, s
    )
    jumps = jax.vmap(mixtures.jump, (None, 0, 0))(tuning.mixture, chance, nowhere)
    sweep = jax.jit(sampler._sweep)
    for jumping, proposals in ((False, moves), (True, jumps)):
        beyond = np.asarray(proposals)[:, 0] >= 2
        assert 3 <= beyond.sum() <= 9
        found, (share, failed) = sweep(state, tuning, jumping, chance, nowhere)
        places = np.concatenate([eta, np.asarray(proposals)[~beyond]])
        same = np.isclose(np.asarray(found.particles.eta)[:, None], places).all(axis=-1)
        # Each is at a place of its own, which is one of those inside.
        assert (same.sum(axis=1) == 1).all() and same.sum(axis=0).max() == 1
        moved = same[:, 12:].any(axis=1) if jumping else ~np.diag(same[:, :12])
        assert moved.any() and float(share) == pytest.approx(moved.mean())
        assert float(failed) == 0.0 and np.isfinite(found.particles.log_prior).all()


def test_chains_leave_where_their_density_is_no_number():
    def density(theta):
        value, (v, _) = log_normal(theta)
        return jnp.where(theta[0] > 0, value, jnp.nan), (v, theta[0] > 0)

    chains, tuning = chains_of(density), moves_about([0.0, 0.0], [1.0, 1.0])
    rng = np.random.default_rng(0)
    thetas, proposed = rng.normal(size=(2, 6, 2))
    thetas[:, 0] = np.abs(thetas[:, 0]) * np.array([1, -1, 1, -1, 1, -1])
    evaluate, exchange = jax.jit(chains.evaluate), jax.jit(chains._exchange)
    state = chains.init(jnp.asarray(thetas), tuning, 0.0)
    state = state._replace(particles=evaluate(thetas, tuning), known=jnp.asarray(True))
    fine = evaluate(np.abs(proposed), tuning)
    _, accepted = jax.jit(chains._accept)(plain(np.full(6, 0.999), fine), state, tuning.lam)
    assert accepted[1::2].all()
    found, _ = exchange(plain(rng.uniform(size=6), fine), state, tuning.lam)
    assert (found.particles.eta[:, 0] > 0).all()
    assert len(np.unique(found.particles.eta, axis=0)) == 6
    # Where it is a number nowhere, each still has a place of its own.
    thetas[:, 0], proposed[:, 0] = -1.0, -2.0
    state = state._replace(particles=evaluate(thetas, tuning))
    move = plain(rng.uniform(size=6), evaluate(proposed, tuning))
    found, _ = exchange(move, state, tuning.lam)
    assert len(np.unique(found.particles.eta, axis=0)) == 6


def test_a_lone_chain_moves_and_jumps_by_its_density_over_that_of_proposals():
    chains, tuning = chains_of(log_normal), moves_about([0.0, 0.0], [2.0, 2.0])
    points = np.array([[0.3, -0.5], [1.5, 0.2]])
    evaluate, exchange = jax.jit(chains.evaluate), jax.jit(chains._exchange)
    state = chains.init(jnp.asarray(points[:1]), tuning, 0.0)
    state = state._replace(particles=evaluate(points[:1], tuning), known=jnp.asarray(True))
    jump = evaluate(points[1:], tuning)
    near = np.exp(mixtures.log_density(tuning.mixture, jnp.asarray(points)))
    far = stats.norm(0, 3).pdf(points).prod(axis=1)
    height = np.exp(jax.vmap(log_normal)(points)[0])
    weights = height / (0.85 * near + 0.15 * far)
    stays = weights[0] / weights.sum()
    assert 0.1 < stays < 0.9
    for uniform, place in ((stays - 1e-6, 0), (stays + 1e-6, 1)):
        found, moved = exchange(plain([uniform], jump), state, tuning.lam)
        np.testing.assert_allclose(found.particles.eta, points[place][None])
        assert bool(moved[0]) == (place == 1)
    ratio = float(height[1] / height[0] * near[0] / near[1])
    assert 0.1 < ratio < 0.9
    accept = jax.jit(chains._accept)
    for uniform, place in ((ratio - 1e-6, 1), (ratio + 1e-6, 0)):
        found, moved = accept(plain([uniform], jump), state, tuning.lam)
        np.testing.assert_allclose(found.particles.eta, points[place][None])
        assert bool(moved[0]) == (place == 1)


@pytest.mark.parametrize(("count", "blocks"), [(2, 2), (7, 1), (12, 4), (18, 3), (50, 5)])
def test_particles_are_gone_through_in_up_to_five_equal_blocks(count, blocks):
    assert ensemble._blocks(count) == blocks


def test_a_share_of_moves_stays_with_anchors_between_bounds():
    anchors = mixtures.student_mixture(np.array([[2.0, 1.0]]), np.array([[[0.2, 0.1], [0.1, 0.3]]]))
    thetas = np.random.default_rng(0).normal(size=(1, 1, 12, 2)) * [8.0, 1.0]
    plain, anchored = (
        Ensemble(Repelled(), 1.0, given).shaped_by(thetas).mixture  # pyright: ignore[reportArgumentType]
        for given in (None, anchors)
    )
    assert np.abs(plain.centres[:, 0]).max() < 2  # fitted to η, which are within the bounds
    points = jnp.asarray(np.random.default_rng(1).uniform(-2, 2, (20, 2)))
    of_anchors = mixtures.straightened(anchors, Straight(np.array([True, False])))
    heights = [np.exp(mixtures.log_density(m, points)) for m in (plain, anchored, of_anchors)]
    np.testing.assert_allclose(heights[1], 0.95 * heights[0] + 0.05 * heights[2])


def test_particles_of_a_block_notice_each_other_as_they_move():
    """Fourteen near each other, in two blocks; each decision is a thousandth of a nat near.

    Against a loop that computes the whole density each time.
    """
    lam, count = 0.1, 14
    sampler, tuning = Ensemble(Repelled(), lam), moves_about([0.0, 0.0], [1.0, 1.0])  # pyright: ignore[reportArgumentType]
    rng = np.random.default_rng(0)
    places = 0.7 * rng.normal(size=(2 * count, 2))
    points = jax.jit(sampler.evaluate)(places, tuning)
    kappa0 = np.asarray(sampler._pairs(points))
    own = np.asarray(points.log_prior + points.v / lam)
    log_m = np.asarray(mixtures.log_density(tuning.mixture, jnp.asarray(places)))

    def density(at):
        pairs = kappa0[np.ix_(at, at)]
        return own[at].sum() - (pairs.sum() - np.trace(pairs)) / 2 / (lam * (count - 1))

    at, wanted, near = np.arange(count), rng.uniform(size=count) < 0.6, []
    for i in range(count):
        there = np.where(np.arange(count) == i, count + i, at)
        ratio = density(there) - density(at) + log_m[i] - log_m[count + i]
        near.append(np.exp(ratio + (-1e-3 if wanted[i] else 1e-3)))
        at = there if wanted[i] else at
    old = jax.tree.map(lambda leaf: leaf[:count], points)
    new = jax.tree.map(lambda leaf: leaf[count:], points)
    state = sampler.init(jnp.asarray(places[:count]), tuning, 0.0)
    state = state._replace(
        particles=old, kappa0=jnp.asarray(kappa0[:count, :count]), known=jnp.asarray(True)
    )
    found, accepted = jax.jit(sampler._accept)(plain(near, new), state, lam)
    np.testing.assert_array_equal(accepted, wanted)
    np.testing.assert_allclose(found.particles.eta, places[at])
    np.testing.assert_allclose(found.kappa0, kappa0[np.ix_(at, at)])
