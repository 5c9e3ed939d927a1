"""The front door: what it refuses, what it says of a fit, and that a file is the fit again."""

from __future__ import annotations

import importlib
import sys
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from made_fits import CALIBRATION
from scipy.stats import norm

import pcuq
from pcuq.checkpoint import FitCheckpoint
from pcuq.fixed_point import fixed_point
from pcuq.objective import FORWARD_UP_TO, Objective
from pcuq.random_batch import RandomBatches
from pcuq.samplers.mixture import MANY
from pcuq.settings import LENGTHS, MANY_LENGTHS, make_settings, with_lam
from pcuq.sharded import ShardedObjective
from pcuq.trust import convergence, settled, verdict
from pcuq.verify import SolverCheck

fit_module = importlib.import_module("pcuq.fit")  # pcuq.fit itself is the function
settings_module = importlib.import_module("pcuq.settings")
LAM = 0.02


def location_problem(y=(-0.9, 0.2, 0.4, 1.1)) -> pcuq.Problem:
    model = pcuq.FunctionModel(
        lambda x, p: [p["mu"]], {"mu": pcuq.Parameter("identity", dist.Normal(0.0, 1.0))}, ["y"]
    )
    return pcuq.Problem(model, pcuq.Data(np.array(y)[:, None], noise=0.5))


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"method": "abc"}, "`method`"),
        ({"regularisation": -1.0}, "`regularisation`"),
        ({"regularisation": float("nan")}, "`regularisation`"),
        ({"particles": 1}, "`particles`"),
        ({"systems": 0}, "`systems`"),
        ({"draws": 2}, "`draws`"),
        ({"seed": -1}, "`seed`"),
        ({"sampler": "gibbs"}, "`sampler`"),
        ({"method": "bayes", "sampler": "flow"}, "`sampler`"),
        ({"method": "mmd-bayes", "beta": 0}, "`beta`"),
        ({"pair_batch": 8}, "`pair_batch`"),
        ({"sampler": "flow", "pair_batch": 1}, "`pair_batch`"),
        ({"devices": 1}, "`devices`"),
        ({"sampler": "mala", "devices": 1000}, "`devices`"),
    ],
)
def test_bad_settings_are_named(wrong, named):
    with pytest.raises(pcuq.InputError, match=named):
        pcuq.fit(location_problem(), **{"regularisation": LAM, **wrong})


def of_many(p, kind=pcuq.FunctionModel):
    """One measurement, of the first of p parameters."""
    parameters = {f"p{i}": pcuq.Parameter("identity") for i in range(p)}
    model = kind(lambda x, q: [q["p0"] * x], parameters, ["y"])
    return pcuq.Problem(model, pcuq.Data([[1.0]], [1.0], noise=1.0))


def test_many_parameters_get_more_particles_and_fewer_iterations():
    def sizes(
        p, particles="auto", sampler=None, method="pcuq", draws=None, kind=pcuq.FunctionModel
    ):
        problem = of_many(p, kind)
        made = make_settings(
            problem, method, LAM, particles, 2, sampler, None, draws, None, 0, "matched"
        )
        return made.particles, made.warmup, made.draws, made.thin

    usual = LENGTHS["ensemble"]
    assert sizes(MANY - 1) == (50, *usual)
    assert sizes(MANY) == (30 * MANY, *MANY_LENGTHS)
    assert sizes(100)[0] == 1000
    assert sizes(MANY, particles=50) == (50, *usual)
    assert sizes(MANY, sampler="mala")[0] == 50
    assert sizes(MANY, method="bayes", sampler="ensemble") == (30 * MANY, *MANY_LENGTHS)
    assert sizes(MANY, method="bayes")[0] == 4
    assert sizes(MANY, draws=7) == (30 * MANY, MANY_LENGTHS[0], 7, MANY_LENGTHS[2])
    # A solve of a simulator of one's own is dear.
    assert sizes(MANY, kind=pcuq.ExternalModel) == (50, *usual)


def test_many_particles_begin_along_paths_once(monkeypatch, tmp_path):
    """Not those whose number was given, and not again where a run goes on."""
    began, lengths = [], dict(regularisation=0.05, warmup=4, draws=4, thin=1)

    def begin(objective, lam, thetas, shape, seed):
        assert objective.mode == "forward"
        began.append((lam, shape, seed))
        return np.tile(thetas[0], (*shape, 1)) + np.arange(shape[1])[:, None] / shape[1]

    monkeypatch.setattr(fit_module, "begun_along_paths", begin)
    monkeypatch.setattr(settings_module, "FOR_EACH_PARAMETER", 1)
    kept = dict(checkpoint=tmp_path / "run")
    fit = pcuq.fit(of_many(MANY), seed=5, **lengths, **kept)
    assert began == [(0.05, (2, MANY), 5)] and len(fit.thetas) == 2 * 4 * MANY
    pcuq.fit(of_many(MANY), particles=MANY, **lengths)
    pcuq.fit(of_many(MANY - 1), **lengths)
    pcuq.fit(of_many(MANY), method="bayes", sampler="ensemble", warmup=4, draws=4, thin=1)
    assert len(began) == 1
    again = pcuq.fit(of_many(MANY), seed=5, **lengths, **kept, resume=True)
    assert len(began) == 1
    np.testing.assert_array_equal(again.thetas, fit.thetas)
    pcuq.fit(
        of_many(FORWARD_UP_TO + 1), **lengths
    )  # for which reverse derivatives would be cheaper
    assert len(began) == 2


@pytest.mark.parametrize("name", ["fit", "calibrate", "check", "select_by_score"])
def test_a_whole_number_may_be_given_as_a_float(name, monkeypatch):
    def starting_fit(problem, seed):
        assert seed == 3 and type(seed) is int
        raise pcuq.ComputationError("as far as this")

    run = getattr(pcuq, name)
    monkeypatch.setattr(sys.modules[run.__module__], "starting_fit", starting_fit)
    options = {"regularisation": 1e-3} if name in ("fit", "check") else {}
    with pytest.raises(pcuq.ComputationError, match="as far as this"):
        run(location_problem(), seed=3.0, **options)


def test_a_file_is_the_fit_again_and_belongs_to_its_problem(tmp_path):
    problem = location_problem()
    fit = pcuq.fit(problem, regularisation=LAM, particles=6, warmup=20, draws=10, thin=1)
    again = pcuq.load(fit.save(tmp_path / "run.nc"), problem)
    np.testing.assert_array_equal(again.thetas, fit.thetas)
    assert (again.status, again.diagnostics) == (fit.status, fit.diagnostics)
    with pytest.raises(pcuq.InputError, match="another problem"):
        pcuq.load(tmp_path / "run.nc", location_problem(y=(0.0, 0.1)))


def short(**options):
    lengths = {"particles": 6, "warmup": 12, "draws": 8, "thin": 1, "systems": 2}
    return pcuq.fit(location_problem(), regularisation=LAM, **lengths, **options).thetas


@pytest.mark.slow
def test_a_system_on_devices_of_its_own_draws_the_same():
    """One device here; several are compared in test_sharded."""
    np.testing.assert_allclose(
        short(sampler="mala", devices=1), short(sampler="mala"), rtol=1e-8, atol=1e-10
    )


@pytest.mark.slow
def test_a_flow_in_which_all_are_one_batch_draws_the_same():
    whole, some = short(sampler="flow", pair_batch=6), short(sampler="flow", pair_batch=2)
    exact = short(sampler="flow")
    np.testing.assert_allclose(whole, exact, rtol=1e-8, atol=1e-10)
    assert np.abs(some - exact).max() > 1e-3


def test_the_paper_s_beta_gives_a_point_and_says_so():
    y = np.random.default_rng(0).normal(size=60)
    fit = pcuq.fit(location_problem(y), method="mmd-bayes", beta="paper")
    assert "point mass" in fit.status
    assert np.ptp(fit.thetas) == 0


def test_devices_share_the_particles_evenly(monkeypatch):
    monkeypatch.setattr(jax, "local_device_count", lambda: 4)
    asked = (location_problem(), "pcuq", LAM, 6, 2, "mala", None, None, None, 0, "matched")
    assert make_settings(*asked, devices=3).devices == 3
    with pytest.raises(pcuq.InputError, match="divides the 6 particles: got 4"):
        make_settings(*asked, devices=4)


def test_large_systems_are_summed_as_was_asked():
    objective = Objective(location_problem())
    settings = make_settings(
        location_problem(), "pcuq", LAM, 6, 2, "flow", None, None, None, 0, "matched"
    )
    assert fit_module._at_scale(settings, objective) is objective
    batches = fit_module._at_scale(settings._replace(pair_batch=3), objective)
    assert isinstance(batches, RandomBatches)
    spread = fit_module._at_scale(settings._replace(devices=1), objective)
    assert isinstance(spread, ShardedObjective)


def test_a_regularisation_that_was_found_is_kept_and_not_found_again(tmp_path, monkeypatch):
    said = []

    def calibrate(problem, seed, tell):
        tell("one fit")
        return CALIBRATION

    monkeypatch.setattr(fit_module, "calibrate", calibrate)
    keeper = FitCheckpoint(tmp_path / "run", "identity", resume=False)
    assert keeper.latest() == (0, None, False)
    assert fit_module._calibration(location_problem(), 0, None, said.append) is CALIBRATION
    assert fit_module._calibration(location_problem(), 0, keeper, said.append) is CALIBRATION
    assert said == ["choosing λ: one fit"] * 2
    monkeypatch.setattr(fit_module, "calibrate", lambda *args, **options: pytest.fail("again"))
    again = FitCheckpoint(tmp_path / "run", "identity", resume=True)
    found = fit_module._calibration(location_problem(), 0, again, said.append)
    assert found.to_dict() == CALIBRATION.to_dict()


def test_a_regularisation_that_was_found_brings_the_beta_that_belongs_to_it():
    def settings(method):
        asked = (method, "auto", 6, 2, "mala", 10, 10, 1, 0, "matched")
        return with_lam(make_settings(location_problem(), *asked), 2e-3)

    assert settings("pcuq").lam == 2e-3 and np.isnan(settings("pcuq").beta)
    assert settings("mmd-bayes").beta == pytest.approx(1 / (2 * 2e-3))


@pytest.mark.parametrize(
    ("method", "usable", "said"),
    [
        ("bayes", False, "no starting particle can be solved"),
        ("pcuq", True, r"no starting particle explains any of the data \(v = 0"),
    ],
)
def test_particles_that_cannot_begin_are_an_error_that_says_what_to_do(method, usable, said):
    objective = SimpleNamespace(
        data_terms_of_many=lambda thetas: np.zeros(len(thetas)),
        usable_of_many=lambda thetas: np.full(len(thetas), usable),
    )
    starts, settings = np.zeros((2, 3, 1)), SimpleNamespace(method=method)
    with pytest.raises(pcuq.ComputationError, match=said):
        fit_module._run(None, starts, objective, settings, None, None, False)


def test_joint_noise_is_refused_where_it_cannot_be_fitted():
    noise = pcuq.JointNoise(draw=lambda key, w, s: w)
    model = pcuq.FunctionModel(
        lambda x, p: [p["mu"], p["mu"]], {"mu": pcuq.Parameter("identity")}, ["a", "b"]
    )
    problem = pcuq.Problem(
        model, pcuq.Data(np.ones((4, 2)), noise=noise), pcuq.GaussianKernel(lengthscale_y=0.5)
    )
    with pytest.raises(pcuq.InputError, match="sampler='flow'"):
        pcuq.fit(problem, regularisation=LAM, sampler="ensemble")
    with pytest.raises(pcuq.InputError, match="check under JointNoise"):
        pcuq.check(problem, regularisation=LAM)
    with pytest.raises(pcuq.InputError, match="JointNoise"):
        pcuq.calibrate(problem)


def sound(**changes):
    """Arguments of a verdict on a fit that is to be trusted, but for the changes."""
    settings = SimpleNamespace(method="pcuq", systems=2, sampler="ensemble")
    figures = {
        "rhat_max": 1.01,
        "ess_min": 500.0,
        "fixed_point_ess": 1000.0,
        "fixed_point_mass": 0.01,
        "fixed_point_mean": 0.05,
        "fixed_point_mass_error": 0.005,
        "fixed_point_mean_error": 0.03,
        "share_outside_fit": 0.0,
    }
    check = SolverCheck(1e-4, 1e-3, 0, np.zeros((1, 1)))
    figures.update(changes.pop("figures", {}))
    for name, value in changes.pop("settings", {}).items():
        setattr(settings, name, value)
    return settings, figures, changes.get("check", check), changes.get("failed", 0.0)


def test_a_sound_fit_is_trusted():
    assert verdict(*sound())[0]


def test_systems_of_the_same_distribution_are_trusted_whatever_their_r_hat():
    trusted, status = verdict(*sound(figures={"rhat_max": 1.08, "systems_apart": 0.03}))
    assert trusted and status.startswith("Converged: halves of systems agree within 0.030 in mass")
    assert "R-hat over systems is 1.08: it is of means and sds" in status
    trusted, status = verdict(*sound(figures={"rhat_max": 1.08, "systems_apart": 0.06}))
    assert not trusted and "R-hat over systems is 1.08" in status


BETWEEN = np.array([0.0, 1.0])[:, None, None, None]  # systems


@pytest.mark.parametrize(
    ("change", "apart"),
    [
        (lambda theta: theta, 0.0),
        (lambda theta: theta + 0.3 * BETWEEN, 2 * norm.cdf(0.15) - 1),
        (lambda theta: theta * np.exp(BETWEEN), 0.22),
        (lambda theta: theta + 0.3 * (np.arange(400) >= 200)[:, None, None], 0.12),  # a drift
        (lambda theta: theta + 99 * (np.arange(50) < 2)[:, None] * BETWEEN, 0.04),  # another place
    ],
)
def test_how_far_systems_are_apart_is_told_in_mass(change, apart):
    theta = change(np.random.default_rng(0).normal(size=(2, 400, 50, 1)))
    settings = make_settings(location_problem(), "pcuq", LAM, 50, 2, None, None, None, None, 0, 1)
    found = convergence(settings, theta)
    assert found["systems_apart"] == pytest.approx(apart, abs=0.015)


def wandering(draws: int, memory: float) -> np.ndarray:
    """Two systems of fifty standard normal particles each, whose positions are correlated."""
    rng = np.random.default_rng(0)
    theta = rng.normal(size=(2, draws, 50, 1))
    for t in range(1, draws):
        theta[:, t] = memory * theta[:, t - 1] + np.sqrt(1 - memory**2) * theta[:, t]
    return theta


@pytest.mark.parametrize(
    ("draws", "memory", "shift", "rests"),
    [
        (300, 0.99, 0.0, True),  # apart by chance
        (300, 0.99, 1.5, False),
        (300, 0.0, 0.2, True),  # apart by too little to matter
        (300, 0.0, 0.6, False),
        (20, 0.999, 0.4, False),  # stuck, so that it may be no chance
    ],
)
def test_systems_have_settled_unless_they_are_farther_apart_than_by_chance(
    draws, memory, shift, rests
):
    theta = wandering(draws, memory) + shift * BETWEEN
    settings = make_settings(location_problem(), "pcuq", LAM, 50, 2, None, None, None, None, 0, 1)
    assert convergence(settings, theta)["rhat_max"] > 1.2
    assert settled(settings, theta) == rests


def test_what_the_points_cannot_tell_apart_is_no_doubt():
    # 0.15 sd and 0.05 in mass, and twice the standard error.
    assert verdict(*sound(figures={"fixed_point_mean": 0.2, "fixed_point_mass": 0.059}))[0]


def test_a_fixed_point_that_could_not_be_checked_is_said():
    trusted, status = verdict(*sound(figures={"fixed_point_ess": 16.0, "fixed_point_mean": 0.9}))
    assert trusted
    assert "could not be told" in status and "only 16" in status
    assert "could not be told" not in verdict(*sound())[1]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"figures": {"rhat_max": 1.2}}, "R-hat over systems is 1.20"),
        ({"figures": {"rhat_max": float("nan")}}, "R-hat"),
        ({"figures": {"ess_min": 20.0}}, "effective sample size"),
        ({"figures": {"fixed_point_mass": 0.07}}, "fixed-point"),
        ({"figures": {"fixed_point_mean": 0.25}}, "fixed-point"),
        ({"figures": {"fixed_point_mass": 0.9, "fixed_point_ess": 3.0}}, "fixed-point"),
        ({"settings": {"systems": 1}}, "one system"),
        ({"settings": {"sampler": "flow"}}, "bias"),
        ({"check": SolverCheck(1.0, 1.0, 0, np.zeros((1, 1)))}, "solver"),
        ({"failed": 0.9}, "cannot be solved"),
    ],
)
def test_each_doubt_is_named_and_ends_trust(change, words):
    trusted, status = verdict(*sound(**change))
    assert not trusted
    assert words in status


def residual_of(objective, thetas, lam: float):
    with jax.enable_x64(True):
        v = np.asarray(objective.data_terms(objective.features(jnp.asarray(thetas))))
        return fixed_point(objective, lam, thetas, v, particles=1)


@pytest.fixture(scope="module")
def location():
    """A λ at which the fit is worth 55 nats, and the exact mixing distribution on a grid."""
    objective, grid = Objective(location_problem()), np.linspace(-5, 5, 1001)
    lam = float(objective.data_terms_of_many(grid[:, None]).max()) / 55
    weights = pcuq.solve_on_grid(objective.problem, lam, grid[:, None], grid[1] - grid[0])
    return objective, lam, grid, np.asarray(weights)


def test_random_draws_of_the_exact_answer_pass_and_others_do_not(location):
    objective, lam, grid, weights = location
    exact = np.random.default_rng(0).choice(grid, 2000, p=weights)[:, None]
    found = residual_of(objective, exact, lam)
    assert found.ess > 500
    assert found.mean_difference < 4.5 * np.hypot(found.mean_error, 1 / np.sqrt(2000))
    assert found.mass_difference < 4.5 * np.hypot(found.mass_error, 0.5 / np.sqrt(2000))
    prior = np.exp(objective.log_priors_of_many(grid[:, None])) * (grid[1] - grid[0])
    here = weights > 1e-300
    assert found.kl == pytest.approx(weights[here] @ np.log(weights[here] / prior[here]), abs=0.1)
    mean = weights @ grid
    shifted = residual_of(objective, exact + 0.3 * np.sqrt(weights @ (grid - mean) ** 2), lam)
    assert shifted.mean_difference == pytest.approx(0.3, abs=0.1)


@pytest.mark.slow
def test_joint_noise_is_fitted_by_the_flow_and_by_nothing_else():
    def correlated(key, w, s):
        a, b = 0.5 * jax.random.normal(key, (2,))
        return w + jnp.array([a, 0.8 * a + 0.6 * b])

    def log_pdf(y, w, s):
        a, b = y - w
        return -(a**2 + ((b - 0.8 * a) / 0.6) ** 2) / (2 * 0.5**2)

    model = pcuq.FunctionModel(
        lambda x, p: [p["mu"], p["mu"]],
        {"mu": pcuq.Parameter("identity", dist.Normal(0.0, 1.0))},
        ["a", "b"],
    )
    y = np.array([[0.9, 1.1], [1.6, 1.4], [1.0, 1.2], [1.3, 0.6]])
    noise = pcuq.JointNoise(draw=correlated, log_pdf=log_pdf)
    kernel = pcuq.GaussianKernel(lengthscale_y=0.5)
    problem = pcuq.Problem(model, pcuq.Data(y, noise=noise), kernel)
    fit = pcuq.fit(problem, regularisation=LAM, particles=10, warmup=300, draws=50, thin=2)
    assert fit.tree.attrs["sampler"] == "flow"
    assert "unadjusted" in fit.status
    # The data's mean is 1.14, the prior's 0: Q lies around the former.
    assert fit.thetas.mean() == pytest.approx(1.0, abs=0.35)
    with pytest.raises(pcuq.InputError, match="sampler='flow'"):
        pcuq.fit(problem, regularisation=LAM, sampler="ensemble")
