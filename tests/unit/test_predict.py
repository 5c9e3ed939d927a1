"""Predictions: exact trajectories under interventions, noise, pairing, and what is read off."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pcuq import functionals
from pcuq.data import Data
from pcuq.errors import ComputationError, InputError
from pcuq.functionals import Functional
from pcuq.interventions import Intervention
from pcuq.models import FunctionModel, ODEModel
from pcuq.noise import Gaussian, LogNormal, Poisson
from pcuq.parameters import Parameter
from pcuq.predict import Prediction, predict, prior_predictive
from pcuq.problem import Problem

X = np.linspace(0, 4, 9)
LOG_K = np.log(np.random.default_rng(0).uniform(0.3, 1.5, size=(40, 1)))
K = np.exp(LOG_K)


def decay(conditions=None, labels=None) -> Problem:
    """u' = −k u, u(0) = 3."""
    model = ODEModel(lambda t, u, p: -p["k"] * u, {"u": 3.0}, {"k": Parameter("log")})
    data = Data(np.ones((9, 1)), X, 0.1, labels)
    return Problem(model, data, conditions=conditions)


def line(noise=0.1, outputs=("a", "b"), measured=None, **constants) -> Problem:
    """a(x) = k x, b(x) = k: exact and quick."""
    model = FunctionModel(
        lambda x, p: [p["k"] * x, p["k"]], {"k": Parameter("identity")}, outputs, constants
    )
    d = 2 if measured is None else len(measured)
    return Problem(model, Data(np.ones((9, d)), X, noise, outputs=measured))


@pytest.fixture(scope="module")
def control() -> Prediction:
    return predict(decay(), LOG_K, X)


def test_trajectories_are_the_exact_solution(control):
    assert np.allclose(control.trajectories[:, :, 0], 3 * np.exp(-K * X), rtol=1e-4)
    assert control.failed == 0
    assert control.outputs == ("u",)
    assert np.array_equal(control.draws, np.arange(40))
    assert not control.thinned


def test_a_method_that_is_given_is_used_and_finds_the_same():
    found = predict(decay(), LOG_K, X, method="implicit", noise=False)
    assert found.solver["method"] == "implicit" and found.failed == 0
    assert np.allclose(found.trajectories[:, :, 0], 3 * np.exp(-K * X), rtol=1e-5)


@pytest.mark.slow
def test_interventions_act_from_their_time_on():
    found = predict(decay(), LOG_K, X, do="k*=0.5@2", noise=False).trajectories[:, :, 0]
    rate = K * (np.minimum(X, 2.0) + 0.5 * np.maximum(X - 2.0, 0.0))
    assert np.allclose(found, 3 * np.exp(-rate), rtol=1e-4)


@pytest.mark.parametrize(
    "do",
    ["k*=2", ["k*=2"], Intervention(scale={"k": 2.0}), ["k=1", Intervention(set={"k": 6.0})]],
    ids=["text", "texts", "intervention", "both"],
)
def test_interventions_may_be_text_or_several(do):
    found = predict(line(), [[3.0]], X, do=do, noise=False)
    assert np.allclose(found.trajectories[0, :, 0], 6.0 * X)


def test_do_acts_after_the_condition():
    model = line().model
    data = Data(np.ones((9, 2)), X, condition=["low"] * 9)
    problem = Problem(model, data, conditions={"low": Intervention(set={"k": 1.0})})
    assert np.allclose(predict(problem, [[7.0]], [2.0], "low").trajectories, [2.0, 1.0])
    assert np.allclose(predict(problem, [[7.0]], [2.0], "low", "k+=4").trajectories, [10.0, 5.0])
    assert np.allclose(predict(problem, [[7.0]], [2.0], do="k+=4").trajectories, [22.0, 11.0])


def test_covariates_may_be_unsorted_and_repeated():
    x = np.array([2.0, 0.5, 2.0, 0.0])
    found = predict(line(), [[1.5], [-2.0]], x)
    assert np.array_equal(found.x, x)
    assert np.allclose(found.trajectories[:, :, 0], np.array([[1.5], [-2.0]]) * x)
    # two measurements at one x have their own errors
    assert np.all(found.observations[:, 0] != found.observations[:, 2])


@pytest.mark.slow
def test_draws_that_the_mesh_cannot_follow_are_solved_again():
    # Nearly all draws are slow, so that long steps serve the representatives.
    slow = np.linspace(np.log(0.2), np.log(0.3), 400)
    thetas = np.append(slow, np.log([40.0, 2000.0]))[:, None]
    x = np.linspace(0, 8, 5)
    found = predict(decay(), thetas, x, noise=False)
    exact = 3 * np.exp(-np.exp(thetas) * x)
    assert found.solver["doubtful"] >= 1
    assert found.failed == 0
    assert np.allclose(found.trajectories[:, :, 0], exact, atol=1e-4)


def test_failures_are_counted_and_left_out():
    model = FunctionModel(
        lambda x, p: [jnp.where(p["k"] > 0, jnp.sqrt(p["k"]), jnp.nan) + x],
        {"k": Parameter("identity")},
        ("w",),
    )
    problem = Problem(model, Data(np.ones((9, 1)), X, 0.1))
    found = predict(problem, [[-1.0], [4.0], [9.0], [-2.0]], [0.0, 1.0], weights=[5, 1, 3, 5])
    assert found.failed == 2
    assert np.isnan(found.trajectories[[0, 3]]).all()
    assert np.isnan(found.observations[[0, 3]]).all()
    assert np.allclose(found.mean()[:, 0], [2.75, 3.75])
    assert np.allclose(found.quantile(0.2)[:, 0], [2, 3])
    assert np.isfinite(found.mean(noisy=True)).all()
    peak = found.peak("w")
    assert peak.failed == 2
    assert peak.mean() == pytest.approx(3.75)
    assert found.functional(lambda x, w: w["w"][0]).mean() == pytest.approx(2.75)
    with pytest.raises(ComputationError, match="any of 1 draws"):
        predict(problem, [[-1.0]], [0.0])


def test_equal_draws_are_solved_once_and_observed_anew():
    solved = []

    def f(x, p):
        jax.debug.callback(lambda k: solved.append(float(k)), p["k"])
        return [p["k"]]

    problem = Problem(
        FunctionModel(f, {"k": Parameter("identity")}, ("w",)), Data(np.ones((9, 1)), noise=0.1)
    )
    found = predict(problem, [[1.0]] * 5 + [[2.0]] * 3, None)
    jax.effects_barrier()
    assert sorted(solved) == [1.0, 2.0]
    assert np.allclose(found.trajectories[:, 0, 0], [1.0] * 5 + [2.0] * 3)
    assert found.x is None
    assert len(np.unique(found.observations)) == 8


def test_quantiles_are_those_of_numpy(control):
    q = [0.05, 0.5, 0.77]
    assert np.allclose(control.quantile(q), np.quantile(control.trajectories, q, axis=0))
    assert np.allclose(control.mean(), control.trajectories.mean(axis=0))
    low, high = control.band(0.5, noisy=True)
    assert np.allclose(low, np.quantile(control.observations, 0.25, axis=0))
    assert np.allclose(high, np.quantile(control.observations, 0.75, axis=0))


def test_weighted_quantiles_are_those_of_repeated_draws():
    rng = np.random.default_rng(1)
    values, times = rng.normal(size=(30, 2)), rng.integers(0, 5, 30)
    repeated = np.repeat(values, times, axis=0)
    for q in (0.0, 0.1, 0.5, 0.93, 1.0):
        found = functionals.quantile(values, q, times / times.sum())
        assert np.allclose(found, np.quantile(repeated, q, axis=0, method="inverted_cdf"))
    assert np.allclose(functionals.mean(values, times / times.sum()), repeated.mean(axis=0))


def test_missing_values_are_left_out_and_infinite_ones_are_largest():
    values = np.array([[1.0, np.inf], [np.nan, 2.0], [3.0, np.inf], [2.0, np.nan]])
    assert np.allclose(functionals.quantile(values, 0.5), [2.0, np.inf])
    assert np.allclose(functionals.quantile(values, 0.25), [1.5, np.inf])
    assert np.allclose(functionals.quantile(values, 0.0), [1.0, 2.0])
    assert np.allclose(functionals.mean(values), [2.0, np.inf])
    assert np.isnan(functionals.quantile(np.full((3, 1), np.nan), 0.5)).all()


def test_bands_are_missing_where_no_draw_could_be_solved(control):
    lost = replace(control, trajectories=np.full_like(control.trajectories, np.nan))
    points = control.trajectories.shape[1:]
    assert lost.mean().shape == points and np.isnan(lost.mean()).all()
    found = lost.quantile([0.1, 0.9])
    assert found.shape == (2, *points) and np.isnan(found).all()
    assert np.isnan(lost.band(0.9)).all()


def test_noise_has_its_scale():
    thetas = np.ones((4000, 1))
    found = predict(line(noise=[0.1, 0.7]), thetas, X)
    errors = found.observations - found.trajectories
    # 36,000 errors: the sd of their sd is 0.4 %
    assert np.allclose(errors.std(axis=(0, 1)), [0.1, 0.7], rtol=0.02)
    assert np.all(np.abs(errors.mean(axis=(0, 1))) < 4 * np.array([0.1, 0.7]) / np.sqrt(36_000))


def test_noise_may_be_named_computed_or_given_by_row():
    thetas = np.full((4000, 1), 2.0)
    named = predict(line(noise=["s", 0.5], s=0.3), thetas, X, do="s*=2")
    errors = (named.observations - named.trajectories).std(axis=(0, 1))
    assert np.allclose(errors, [0.6, 0.5], rtol=0.02)
    computed = predict(line(noise=Gaussian(lambda x, w, p: 0.1 + w["a"] / p["k"])), thetas, X)
    errors = (computed.observations - computed.trajectories).std(axis=0)
    assert np.allclose(errors, (0.1 + X)[:, None], rtol=0.06)
    rows = np.full((9, 2), 0.2)
    rows[0] = 5.0
    by_row = predict(line(noise=rows), thetas, [10.0])
    assert np.allclose((by_row.observations - by_row.trajectories).std(axis=0), 0.2, rtol=0.06)


def test_observations_of_other_noise_models():
    thetas = np.append(np.full(4000, 3.0), -3.0)[:, None]
    found = predict(line(noise=(LogNormal(0.2), Poisson())), thetas, [0.0, 2.0], max_draws=None)
    assert found.failed == 0
    assert np.isnan(found.observations[-1, 1]).all()  # neither has a law for a negative output
    observations = found.observations[:-1]
    assert np.all(observations[:, 0, 0] == 0)  # log-normal about zero
    assert np.log(observations[:, 1, 0] / 6).std() == pytest.approx(0.2, rel=0.05)
    counts = observations[:, 1, 1]
    assert np.all(counts == np.round(counts))
    assert counts.mean() == pytest.approx(3.0, abs=4 * np.sqrt(3 / 4000))


def test_outputs_that_were_not_measured_have_no_observations():
    found = predict(line(measured=["b"]), np.ones((50, 1)), X)
    assert np.isnan(found.observations[:, :, 0]).all()
    assert np.isfinite(found.observations[:, :, 1]).all()
    assert np.isnan(found.mean(noisy=True)[:, 0]).all()
    assert np.isfinite(found.quantile(0.5, noisy=True)[:, 1]).all()


def test_one_seed_gives_the_same_noise_whatever_is_done():
    thetas = np.linspace(1, 2, 30)[:, None]
    one, again = predict(line(), thetas, X, seed=3), predict(line(), thetas, X, seed=3)
    treated = predict(line(), thetas, X, do="k*=2", seed=3)
    other = predict(line(), thetas, X, seed=4)
    assert np.array_equal(one.observations, again.observations)
    errors = one.observations - one.trajectories
    assert np.allclose(treated.observations - treated.trajectories, errors)
    assert not np.allclose(other.observations - other.trajectories, errors)


def test_contrasts_are_paired_by_draw(control):
    treated = predict(decay(), LOG_K, X, do="u*=1.1@1", seed=1)
    effect = treated.contrast(control)
    exact = 0.1 * 3 * np.exp(-K * X) * (X >= 1)
    assert np.allclose(effect.trajectories[:, :, 0], exact, atol=3e-3)
    unpaired = treated.trajectories - np.roll(control.trajectories, 7, axis=0)
    later = X >= 1
    assert np.all(effect.trajectories.std(axis=0)[later] < 0.5 * unpaired.std(axis=0)[later])
    # separate measurements: the noise of both
    noise = effect.observations - effect.trajectories
    assert noise.std() == pytest.approx(0.1 * np.sqrt(2), rel=0.15)


def test_noise_that_would_cancel_is_left_out_of_a_contrast():
    thetas = np.linspace(1, 2, 30)[:, None]
    effect = predict(line(), thetas, X).contrast(predict(line(), thetas, X, do="k*=2"))
    assert effect.observations is None
    assert "noisy_mean" not in effect.to_frame()
    with pytest.raises(InputError, match="another `seed`"):
        effect.mean(noisy=True)


def test_contrasts_of_different_draws_are_refused():
    one = predict(line(), [[1.0], [2.0]], X)
    with pytest.raises(InputError, match="same draws"):
        one.contrast(predict(line(), [[1.0], [2.5]], X))
    with pytest.raises(InputError, match="same draws"):
        one.contrast(predict(line(), [[1.0], [2.0]], X, weights=[1, 2]))
    with pytest.raises(InputError, match="same x"):
        one.contrast(predict(line(), [[1.0], [2.0]], X[:3]))
    with pytest.raises(InputError, match="Prediction"):
        one.contrast(3)


def test_many_draws_are_thinned_evenly():
    thetas = np.arange(100.0)[:, None]
    found = predict(line(), thetas, [1.0], max_draws=20)
    assert found.given == 100
    assert found.thinned
    assert np.array_equal(found.draws, 2 + 5 * np.arange(20))
    # half of the weight on one draw: half of those that are kept
    weights = np.ones(100)
    weights[50] = 99.0
    found = predict(line(), thetas, [1.0], weights=weights, max_draws=20)
    assert found.weights is None
    assert np.sum(found.draws == 50) == 10
    assert len(np.unique(found.observations[:, 0, 0])) == 20
    assert len(predict(line(), thetas, [1.0], max_draws=None).draws) == 100


def test_prior_predictive_is_reproducible():
    one = prior_predictive(line(), X, draws=200, seed=5)
    again = prior_predictive(line(), X, draws=200, seed=5)
    other = prior_predictive(line(), X, draws=200, seed=6)
    assert np.array_equal(one.trajectories, again.trajectories)
    assert np.array_equal(one.observations, again.observations)
    assert not np.allclose(one.trajectories, other.trajectories)
    assert one.thetas.std() == pytest.approx(1.0, abs=4 / np.sqrt(400))
    errors = (one.observations - one.trajectories)[:, 0, 0]
    assert abs(np.corrcoef(errors, one.thetas[:, 0])[0, 1]) < 4 / np.sqrt(200)


def curve(w, x) -> Prediction:
    """A prediction that is known beforehand."""
    w = np.asarray(w, dtype=float)[:, :, None]
    s = len(w)
    return Prediction(
        x=np.asarray(x, dtype=float),
        outputs=("w",),
        trajectories=w,
        observations=None,
        weights=None,
        thetas=np.zeros((s, 1)),
        draws=np.arange(s),
        given=s,
        seed=0,
        solver={},
    )


def test_functionals_of_known_curves():
    # by x = 0, 1, 2, 4: (0, 4, 2, 1) and (0, 1, 1, 0), given out of order, and a failed draw
    found = curve([[4, 0, 1, 2], [1, 0, 0, 1], [np.nan] * 4], [1, 0, 4, 2])
    expected = {
        "peak": [4, 1],
        "time_of_peak": [1, 1],
        "area_under_curve": [2 + 3 + 3, 0.5 + 1 + 1],
    }
    for name, values in expected.items():
        functional = getattr(found, name)("w")
        assert isinstance(functional, Functional)
        assert np.allclose(functional.values[:2], values)
        assert np.isnan(functional.values[2])
        assert functional.mean() == pytest.approx(np.mean(values))
    rises = found.time_to_threshold("w", 3.0)
    assert np.array_equal(rises.values[:2], [0.75, np.inf])
    assert rises.never == 1
    assert rises.failed == 1
    assert rises.quantile(0.0) == 0.75
    assert rises.quantile(1.0) == np.inf
    assert rises.mean() == np.inf
    assert np.allclose(found.time_to_threshold("w", 0.0).values[:2], 0.0)
    falls = found.time_to_threshold("w", -0.5, "down")
    assert falls.never == 2
    assert np.allclose(found.time_to_threshold("w", 0.0, "down").values[:2], 0.0)
    low, high = found.peak("w").band(0.5)
    assert (low, high) == (1.75, 3.25)


def test_falling_curves_reach_their_threshold_between_the_points():
    found = curve([[4, 2, 1]], [0, 1, 3]).time_to_threshold("w", 1.5, "down")
    assert np.allclose(found.values, 2.0)


def test_any_function_of_a_trajectory_is_a_functional():
    found = predict(line(), [[1.0], [3.0]], X)
    ratio = found.functional(lambda x, w: w["a"][-1] / x[-1], "slope")
    assert ratio.name == "slope"
    assert ratio.mean() == pytest.approx(2.0)
    assert found.functional(lambda x, w: w["a"]).quantile([0.1, 0.5]).shape == (2, 9)


def test_a_functional_of_several_shapes_is_refused():
    found = curve([[4, 2, 1], [1, 2, 4]], [0, 1, 3])
    with pytest.raises(InputError, match="'above' needs values of one shape"):
        found.functional(lambda x, w: x[: int(w["w"][0])], "above")


def test_times_need_one_covariate_and_two_are_kept_apart():
    plane = replace(curve([[4, 2, 1]], [0, 1, 3]), x=np.array([[0, 1], [1, 1], [3, 2.0]]))
    with pytest.raises(InputError, match=r"along one covariate: use .functional"):
        plane.time_of_peak("w")
    np.testing.assert_array_equal(plane.to_dataset()["covariates"], plane.x)
    assert list(plane.to_frame().columns[:3]) == ["x0", "x1", "output"]
    alone = replace(plane, x=None)
    assert "x" not in alone.to_dataset().coords and "x" not in alone.to_frame().columns


def test_predictions_and_functionals_tell_how_many_draws_they_have():
    found = curve([[4, 2, 1], [np.nan] * 3], [0, 1, 3])
    assert repr(found) == "Prediction(2 of 2 draws, 1 failed; 3 points; w)"
    never = found.time_to_threshold("w", 9.0)
    assert repr(never) == f"Functional({never.name!r}, 2 draws, never=1)"


def test_equal_weights_are_none():
    values = np.array([[1.0], [2.0], [4.0]])
    found = functionals.quantile(values, 0.25, np.full(3, 1 / 3))
    np.testing.assert_array_equal(found, functionals.quantile(values, 0.25))


def test_frame_has_a_row_per_point_and_output():
    frame = predict(line(), [[1.0], [3.0]], X).to_frame()
    assert list(frame.columns[:3]) == ["x", "output", "mean"]
    summaries = ["mean", "q05", "q25", "q50", "q75", "q95"]
    assert list(frame.columns[2:]) == [*summaries, *(f"noisy_{name}" for name in summaries)]
    assert len(frame) == 18
    row = frame[(frame.x == 4.0) & (frame.output == "a")].iloc[0]
    assert row["mean"] == pytest.approx(8.0)
    assert row["q25"] == pytest.approx(6.0)


def test_dataset_has_every_draw():
    found = predict(line(), [[1.0], [3.0]], X, weights=[1, 3])
    dataset = found.to_dataset()
    assert dataset["trajectories"].dims == ("sample", "x", "output")
    assert np.array_equal(dataset["observations"], found.observations)
    assert dataset["trajectories"].sel(x=4.0, output="a", sample=1) == pytest.approx(12.0)
    assert np.allclose(dataset["weights"], [0.25, 0.75])
    assert dataset.attrs == {"failed": 0, "given": 2}


@pytest.mark.default_precision
def test_predictions_are_in_64_bits_whatever_the_flag():
    found = predict(line(), [[1 / 3]], X)
    assert found.trajectories.dtype == found.observations.dtype == np.float64
    assert found.trajectories[0, -1, 0] == pytest.approx(4 / 3, rel=1e-15)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"condition": "high"}, "unknown condition 'high': the problem has"),
        ({"x": [-1.0]}, "before the model's start"),
        ({"x": [np.nan]}, "finite covariates"),
        ({"x": [[1.0, 2.0]]}, "rows like the data's"),
        ({"x": None}, "1-D array of finite times"),
        ({"thetas": [[1.0, 2.0]]}, r"shape \(S, 1\)"),
        ({"thetas": [[np.nan]]}, "finite"),
        ({"weights": [1.0]}, "40 finite numbers"),
        ({"weights": -np.ones(40)}, "none negative"),
        ({"do": "z=1"}, "unknown name 'z'"),
        ({"do": "k"}, "cannot read the intervention"),
        ({"do": 3}, "`do` needs"),
        ({"do": [3]}, "`do` needs"),
        ({"max_draws": 0}, "`max_draws`"),
    ],
)
def test_what_cannot_be_used_is_refused(options, message):
    with pytest.raises(InputError, match=message):
        predict(decay(), **{"thetas": LOG_K, "x": X, **options})


def test_unknown_names_and_shares_are_refused(control):
    with pytest.raises(InputError, match="unknown output 'v': there are u"):
        control.peak("v")
    with pytest.raises(InputError, match="`direction`"):
        control.time_to_threshold("u", 1.0, "sideways")
    with pytest.raises(InputError, match="between 0 and 1"):
        control.quantile(1.5)
    with pytest.raises(InputError, match="`level`"):
        control.band(90)
    known = decay(conditions={"low": None}, labels=["low"] * 9)
    with pytest.raises(InputError, match="low"):
        predict(known, LOG_K, X, "high")
