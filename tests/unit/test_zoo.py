"""The zoo: conserved quantities, known data, reproducible draws, schemes that converge."""

import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.integrate import solve_ivp

from pcuq import zoo
from pcuq.errors import InputError
from pcuq.zoo import _sde, erk, influenza, lotka_volterra, lynx_hare

SCHEMES = sorted(_sde.SCHEMES)


# -- schemes ---------------------------------------------------------------------------------------


def _oscillator(u):
    return np.stack([u[..., 1], -np.sin(u[..., 0])], axis=-1)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_schemes_are_of_second_order_without_noise(scheme):
    start, end = [1.0, 0.0], 4.0
    exact = solve_ivp(lambda t, u: _oscillator(u), (0, end), start, rtol=1e-12, atol=1e-12).y[:, -1]
    errors = []
    for steps in (100, 200, 400):
        path = _sde.SCHEMES[scheme](_oscillator, 0.0, start, np.zeros((steps, 2)), end / steps)
        errors.append(np.abs(path[-1] - exact).max())
    orders = np.log2(np.array(errors[:-1]) / errors[1:])
    np.testing.assert_allclose(orders, 2.0, atol=0.1)


def test_schemes_take_the_step_of_their_formula():
    # f(u) = -u from u = 1, h = 0.5, g dW = 0.2: v = z = 0.7, u' = 1 - 0.25 (1 + 0.7) + 0.2 = 0.775;
    # reversible: z'' = 2 * 0.775 - 0.7 - 0.35 + 0.2 = 0.7, u'' = 0.775 - 0.25 * 1.4 + 0.2 = 0.625
    # Heun: v = 0.775 - 0.3875 + 0.2 = 0.5875, u'' = 0.775 - 0.25 (0.775 + 0.5875) + 0.2 = 0.634375
    kicks = np.full((2, 1), 0.1)
    heun, reversible = (
        _sde.SCHEMES[name](lambda u: -u, 2.0, [1.0], kicks, 0.5)[:, 0]
        for name in ("heun", "reversible-heun")
    )
    np.testing.assert_allclose(heun, [1.0, 0.775, 0.634375], rtol=1e-14)
    np.testing.assert_allclose(reversible, [1.0, 0.775, 0.625], rtol=1e-14)


@pytest.mark.statistical
@pytest.mark.parametrize("scheme", SCHEMES)
def test_schemes_have_the_law_of_an_ornstein_uhlenbeck_process(scheme):
    rate, sd, start, end, steps, paths = 1.0, 0.8, 2.0, 1.0, 100, 20_000
    h = end / steps
    dW = np.sqrt(h) * np.random.default_rng(0).normal(size=(steps, paths, 1))
    last = _sde.SCHEMES[scheme](lambda u: -rate * u, sd, np.full((paths, 1), start), dW, h)[-1]
    mean = start * np.exp(-rate * end)
    variance = sd**2 * (1 - np.exp(-2 * rate * end)) / (2 * rate)
    assert abs(last.mean() - mean) < 4 * np.sqrt(variance / paths)
    assert abs(last.var() / variance - 1) < 4 * np.sqrt(2 / paths)
    # broken variant: a drift of twice the rate is rejected
    wrong = start * np.exp(-2 * rate * end)
    assert abs(last.mean() - wrong) > 4 * np.sqrt(variance / paths)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_schemes_converge_path_by_path_at_first_order(scheme):
    # strong order 1 for additive noise, here on a path of the oscillator
    end, finest = 2.0, 6400
    g = np.array([0.0, 0.5])
    dW = np.sqrt(end / finest) * np.random.default_rng(1).normal(size=(finest, 200, 2))
    start = np.tile([1.0, 0.0], (200, 1))
    reference = _sde.heun(_oscillator, g, start, dW, end / finest)[-1]
    errors, wrong = [], []
    for steps in (50, 100, 200):
        coarse = dW.reshape(steps, -1, 200, 2).sum(axis=1)
        last = _sde.SCHEMES[scheme](_oscillator, g, start, coarse, end / steps)[-1]
        errors.append(np.sqrt(np.mean((last - reference) ** 2)))
        # broken variant: the kicks of the path in another order
        last = _sde.SCHEMES[scheme](_oscillator, g, start, coarse[::-1], end / steps)[-1]
        wrong.append(np.sqrt(np.mean((last - reference) ** 2)))
    orders, of_wrong = (np.log2(np.array(e[:-1]) / e[1:]) for e in (errors, wrong))
    assert (orders > 0.8).all() and not (of_wrong > 0.8).any()


def test_reversible_heun_is_unstable_where_heun_is_not():
    # why Heun is the default: no noise, the alternative setting, the paper's step
    s = lotka_volterra.SETTINGS["alternative"]
    drift = lotka_volterra._drift(s)
    exact = solve_ivp(lambda t, u: drift(u), (0, 90), s.initial, rtol=1e-10, atol=1e-10).y[:, -1]
    still = np.zeros((9000, 2))
    with np.errstate(all="ignore"):
        heun, reversible = (
            _sde.SCHEMES[name](drift, 0.0, s.initial, still, 0.01)[-1]
            for name in ("heun", "reversible-heun")
        )
    np.testing.assert_allclose(heun, exact, atol=2e-3)
    assert not np.allclose(reversible, exact, atol=1.0)


# -- Lotka-Volterra --------------------------------------------------------------------------------


def test_the_stochastic_drift_is_the_right_hand_side():
    s = lotka_volterra.SETTINGS["alternative"]
    u, p = np.array([7.0, 3.0]), vars(s)
    np.testing.assert_allclose(lotka_volterra._drift(s)(u), lotka_volterra._rhs(0.0, u, p))


def test_settings_are_those_of_the_paper():
    main, other = (lotka_volterra.SETTINGS[k] for k in ("main", "alternative"))
    logit = lambda q: np.log(q / (1 - q))  # noqa: E731
    np.testing.assert_allclose([logit(main.alpha), logit(main.beta)], [-2, -4])
    np.testing.assert_allclose([logit(other.alpha), logit(other.beta)], [-1, -3])
    assert (main.initial, main.epsilon) == ((10.0, 10.0), (0.0, 0.4))
    assert (other.initial, other.epsilon) == ((10.0, 15.0), (0.1, 0.2))
    assert (main.gamma, main.delta) == (other.gamma, other.delta) == (0.4, 0.02)


@pytest.mark.slow
@pytest.mark.parametrize("setting", ["main", "alternative"])
def test_lotka_volterra_truth_keeps_its_invariant(setting):
    # V = delta u1 - gamma log u1 + beta u2 - alpha log u2 is constant along solutions
    s = lotka_volterra.SETTINGS[setting]
    u1, u2 = lotka_volterra.simulate(setting=setting).truth.T
    v = s.delta * u1 - s.gamma * np.log(u1) + s.beta * u2 - s.alpha * np.log(u2)
    np.testing.assert_allclose(v, v[0], rtol=1e-7)
    assert np.ptp(u1) > 10  # and not because nothing moves


def test_lotka_volterra_data_have_the_shapes_and_times_of_the_paper():
    for misspecified in (False, True):
        made = lotka_volterra.simulate(1, misspecified)
        np.testing.assert_array_equal(made.times, np.arange(61))
        assert made.y.shape == (61, 2)
        assert made.truth.shape == (901, 2)
        np.testing.assert_allclose(made.truth_times[[0, 10, -1]], [0, 1, 90])
        np.testing.assert_allclose(made.truth[0], [10, 10])
        residuals = made.y - made.truth[:601:10]
        assert made.noise_sd == 1.0
        assert 0.8 < residuals.std() < 1.2


def test_lotka_volterra_data_are_reproducible_by_seed():
    first, again, other = (lotka_volterra.simulate(s, misspecified=True) for s in (3, 3, 4))
    np.testing.assert_array_equal(first.y, again.y)
    np.testing.assert_array_equal(first.truth, again.truth)
    assert not np.array_equal(first.truth, other.truth)
    plain = lotka_volterra.simulate(3)
    np.testing.assert_allclose(
        plain.y - plain.truth[:601:10], first.y - first.truth[:601:10], atol=1e-12
    )


def test_exploding_paths_are_redrawn_and_counted():
    # about three in ten paths explode: all of 16 seeds without one has a chance of 0.3 %
    largest = lotka_volterra.simulate().truth.max(axis=0)
    counts = []
    for seed in range(16):
        made = lotka_volterra.simulate(seed, misspecified=True)
        assert (made.truth <= 5 * largest).all()
        assert (made.truth >= -largest / 10).all()
        counts.append(made.exploded_paths)
    assert max(counts) > 0
    assert min(counts) == 0
    assert lotka_volterra.simulate(0).exploded_paths == 0


def test_the_path_kept_is_the_first_that_does_not_explode_however_many_are_drawn_at_once(
    monkeypatch,
):
    before = lotka_volterra.simulate(16, misspecified=True)
    monkeypatch.setattr(lotka_volterra, "BATCH", 1)
    after = lotka_volterra.simulate(16, misspecified=True)
    assert before.exploded_paths == after.exploded_paths > 0
    np.testing.assert_allclose(before.truth, after.truth, atol=1e-9)


def test_unknown_choices_are_named():
    with pytest.raises(InputError, match="main, alternative: got 'other'"):
        lotka_volterra.simulate(setting="other")
    with pytest.raises(InputError, match="heun, reversible-heun: got 'euler'"):
        lotka_volterra.simulate(scheme="euler")
    with pytest.raises(InputError, match="negative-binomial, poisson: got 'normal'"):
        influenza.problem(noise="normal")


def test_lotka_volterra_problem_holds_the_simulated_data():
    problem = lotka_volterra.problem(2, misspecified=True, lengthscale_y=3.0)
    np.testing.assert_array_equal(problem.data.y, lotka_volterra.simulate(2, True).y)
    assert problem.model.parameters.names == ("alpha", "beta")
    assert problem.kernel.lengthscale_y == 3.0


# -- ERK -------------------------------------------------------------------------------------------

TOTALS = {
    "Raf1": (["Raf1", "Raf1_RKIP", "Raf1_RKIP_ERKPP"], 2.0),
    "RKIP": (["RKIP", "Raf1_RKIP", "Raf1_RKIP_ERKPP", "RKIPP", "RKIPP_RP"], 2.5),
    "ERK": (["ERK", "ERKPP", "MEKPP_ERK", "Raf1_RKIP_ERKPP"], 2.5),
    "MEK": (["MEKPP", "MEKPP_ERK"], 2.5),
    "RP": (["RP", "RKIPP_RP"], 3.0),
}


@pytest.fixture(scope="module")
def erk_data():
    return erk.simulate(0)


@pytest.mark.slow
@pytest.mark.parametrize("protein", TOTALS)
def test_each_protein_is_conserved(erk_data, protein):
    species, total = TOTALS[protein]
    columns = [erk.OUTPUTS.index(name) for name in species]
    for truth in (erk_data.truth, erk_data.truth_inhibited):
        np.testing.assert_allclose(truth[:, columns].sum(axis=1), total, rtol=1e-8)


def _independent(x, u, inhibited, wavering):
    # the reactions as stoichiometry times fluxes, from the network and not from the equations
    b = np.array([0.53, 0.0072, 0.625, 0.00245, 0.0315, 0.8, 0.0075, 0.071, 0.92, 0.00122, 0.87])
    b[5] *= 0.01 if inhibited else 1.0
    b *= 1 + 0.5 * np.sin(2 * np.pi * x / 45) if wavering else 1.0
    reactions = [
        ([0, 1], [2]), ([2], [0, 1]), ([2, 8], [3]), ([3], [2, 8]), ([3], [0, 4, 5]),
        ([4, 6], [7]), ([7], [4, 6]), ([7], [6, 8]), ([5, 9], [10]), ([10], [5, 9]), ([10], [1, 9]),
    ]  # fmt: skip
    slope = np.zeros(11)
    for rate, (consumed, made) in zip(b, reactions, strict=True):
        flux = rate * np.prod(u[consumed])
        slope[consumed] -= flux
        slope[made] += flux
    return slope


@pytest.mark.slow
@pytest.mark.parametrize("wavering", [True, False])
def test_erk_truth_is_that_of_an_independent_solver(wavering):
    made = erk.simulate(0, misspecified=wavering)
    for truth, inhibited in ((made.truth, False), (made.truth_inhibited, True)):
        solution = solve_ivp(
            _independent, (0, 60), list(erk.INITIAL.values()), "LSODA", made.truth_times,
            args=(inhibited, wavering), rtol=1e-10, atol=1e-12,
        )  # fmt: skip
        np.testing.assert_allclose(truth, solution.y.T, atol=1e-7)


def test_erk_data_have_the_shapes_and_noise_of_the_paper(erk_data):
    np.testing.assert_allclose(erk_data.times, 0.57 * np.arange(80))
    assert erk_data.y.shape == (80, 11)
    assert erk_data.truth.shape == erk_data.truth_inhibited.shape == (601, 11)
    assert erk_data.truth_times[-1] == 60.0
    uniform = np.random.default_rng(0).uniform(0, 60, 20_000)
    columns = [np.interp(uniform, erk_data.truth_times, u).std() for u in erk_data.truth.T]
    np.testing.assert_allclose(erk_data.noise_sd, 0.1 * np.array(columns), rtol=0.05)
    at_data = np.stack(
        [np.interp(erk_data.times, erk_data.truth_times, u) for u in erk_data.truth.T], axis=1
    )
    z = (erk_data.y - at_data) / erk_data.noise_sd
    assert abs(z.std() - 1) < 4 / np.sqrt(2 * z.size) + 0.02  # 0.02: interpolation


def test_erk_data_are_reproducible_by_seed(erk_data):
    np.testing.assert_array_equal(erk.simulate(0).y, erk_data.y)
    other = erk.simulate(1)
    assert not np.array_equal(other.y, erk_data.y)
    np.testing.assert_array_equal(other.truth, erk_data.truth)


def test_the_inhibitor_frees_erk(erk_data):
    free = erk.OUTPUTS.index("ERK")
    assert erk_data.truth_inhibited[-1, free] > 5 * erk_data.truth[-1, free]


def test_erk_problem_fits_eleven_rates_with_standard_normal_priors(erk_data):
    problem = erk.problem(0, combine="sum")
    assert problem.model.parameters.names == tuple(f"beta{i}" for i in range(1, 12))
    assert problem.kernel.combine == "sum"
    np.testing.assert_array_equal(problem.data.y, erk_data.y)
    with jax.enable_x64(True):
        got = problem.model.parameters.log_prior(jnp.full(11, 0.3))
    assert float(got) == pytest.approx(11 * stats.norm.logpdf(0.3))


# -- real data -------------------------------------------------------------------------------------


def test_lynx_hare_prior_is_the_published_one():
    # the density of theta = log value: that of the value times the value
    parameters = lynx_hare.model().parameters
    value = {"alpha": 0.5, "beta": 0.03, "gamma": 0.8, "delta": 0.02}
    value |= {"hare_0": 30.0, "lynx_0": 6.0, "sigma_1": 0.25, "sigma_2": 0.3}
    with jax.enable_x64(True):
        got = parameters.log_prior(jnp.log(jnp.array([value[k] for k in parameters.names])))
    expected = sum(np.log(v) for v in value.values())
    for name, mean, sd in (("alpha", 1, 0.5), ("gamma", 1, 0.5), ("beta", 0.05, 0.05),
                           ("delta", 0.05, 0.05)):  # fmt: skip
        expected += stats.truncnorm.logpdf(value[name], -mean / sd, np.inf, mean, sd)
    for name in ("hare_0", "lynx_0"):
        expected += stats.lognorm.logpdf(value[name], 1.0, scale=10.0)
    for name in ("sigma_1", "sigma_2"):
        expected += stats.lognorm.logpdf(value[name], 1.0, scale=np.exp(-1.0))
    assert float(got) == pytest.approx(expected, rel=1e-12)


def test_lynx_hare_data_and_model_agree_at_the_reference_means():
    problem = lynx_hare.problem()
    assert problem.data.y.shape == (21, 2)
    np.testing.assert_array_equal(problem.data.y[3], [77.4, 35.2])  # 1903: hare, lynx
    np.testing.assert_allclose(problem.data.y.sum(axis=0), [715.7, 423.5])
    means = {"alpha": 0.547, "beta": 0.0277, "gamma": 0.800, "delta": 0.0241}
    means |= {"hare_0": 34.0, "lynx_0": 5.94, "sigma_1": 0.248, "sigma_2": 0.251}
    fitted = problem.model.simulate(problem.data.x, means)
    for column, name in enumerate(lynx_hare.OUTPUTS):
        residuals = np.log(problem.data.y[:, column]) - np.log(fitted[name])
        assert 0.15 < residuals.std() < 0.35  # sigma is 0.25


@pytest.mark.slow
def test_influenza_model_keeps_all_boys_and_fits_the_epidemic():
    model = influenza.model()
    values = {"beta": 1.73, "gamma": 0.54, "phi_inv": 0.1}
    infected = np.asarray(model.simulate(influenza.DAYS, values)["in_bed"])
    assert np.corrcoef(infected, influenza.IN_BED)[0, 1] > 0.98
    assert np.argmax(infected) in (5, 6)
    slopes = influenza._rhs(0.0, np.array([700.0, 50.0, 13.0]), {**values, "N": 763.0})
    assert sum(slopes) == pytest.approx(0.0, abs=1e-12)
    assert slopes[2] == pytest.approx(0.54 * 50)


@pytest.mark.parametrize("noise", influenza.NOISES)
def test_influenza_problem_has_the_parameters_that_its_noise_needs(noise):
    problem = influenza.problem(noise)
    assert problem.data.y.shape == (14, 1)
    assert ("phi_inv" in problem.model.parameters.names) == (noise == "negative-binomial")
    assert problem.data.y.sum() == 1559


@pytest.mark.default_precision
def test_problems_do_not_depend_on_the_callers_precision():
    narrow = lotka_volterra._solution.__wrapped__("main")
    with jax.enable_x64(True):
        wide = lotka_volterra._solution.__wrapped__("main")
    np.testing.assert_array_equal(narrow, wide)


def test_every_module_has_a_model_and_a_problem_and_is_short():
    for name in zoo.__all__:
        module = getattr(zoo, name)
        assert callable(module.model)
        assert callable(module.problem)
        assert len(inspect.getsource(module).splitlines()) < 200
