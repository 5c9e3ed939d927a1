"""Scores of fits on data that they have not seen."""

import json

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import petab_text
import pytest
from scipy import stats

import pcuq
from pcuq.heldout import matched, predict_rows
from pcuq.result import make_tree

REAL = {"a": pcuq.Parameter("identity"), "b": pcuq.Parameter("log")}


def line(parameters=REAL, outputs=("y",), **constants):
    return pcuq.FunctionModel(
        lambda x, p: [p["a"] + p["b"] * x + p["c"] for _ in outputs],
        parameters,
        outputs,
        {"c": 0.0, **constants},
    )


def made_fit(problem, thetas, method="pcuq"):
    """A fit with these draws (T, p), without sampling."""
    theta = np.asarray(thetas, float)[None, :, None, :]
    blank = np.zeros(theta.shape[:3])
    attributes = {"method": method, "status": "made up", "trusted": 1}
    return pcuq.Fit(make_tree(problem, theta, blank, blank > 0, {}, attributes), problem)


def fitted(thetas, method="pcuq", **constants):
    problem = pcuq.Problem(line(**constants), pcuq.Data([1.0, 2.0], [0.0, 1.0]))
    return made_fit(problem, thetas, method)


def brute_crps(x, y):
    return np.mean(np.abs(x - y)) - 0.5 * np.mean(np.abs(x[:, None] - x[None]))


def test_scores_are_those_of_the_full_double_sums():
    rng = np.random.default_rng(0)
    fit = fitted(rng.normal(size=(40, 2)))
    y = rng.normal(size=(6, 2))
    y[2, 0] = np.nan
    heldout = pcuq.Problem(
        line(outputs=("y", "z")),
        pcuq.Data(y, np.arange(6.0), noise=0.3, condition=list("aabbbb")),
        conditions={"a": None, "b": pcuq.Intervention(set={"c": 2.0})},
    )
    found = pcuq.score(fit, heldout, draws=60)
    drawn = found.methods["pcuq"].predictions
    assert drawn.shape == (60, 6, 2)
    scores = found.to_dict()["pcuq"]["scores"]
    each = np.array([[brute_crps(drawn[:, i, c], y[i, c]) for c in (0, 1)] for i in range(6)])
    assert (scores["y"]["points"], scores["all"]["points"]) == (5, 11)
    assert scores["y"]["crps"] == pytest.approx(np.nanmean(each[:, 0]))
    assert scores["all"]["crps"] == pytest.approx(np.nanmean(each))

    def energy(curve, truth):
        apart = np.sqrt(np.mean((curve[:, None] - curve[None]) ** 2, axis=-1))
        return np.mean(np.sqrt(np.mean((curve - truth) ** 2, axis=-1))) - 0.5 * np.mean(apart)

    by_condition = [energy(drawn[:, rows, 1], y[rows, 1]) for rows in (slice(0, 2), slice(2, 6))]
    assert scores["z"]["energy_score"] == pytest.approx(np.mean(by_condition))
    z = (y - drawn.mean(axis=0)) / drawn.std(axis=0)
    assert scores["all"]["mean_squared_z"] == pytest.approx(np.nanmean(z**2))
    low, high = np.quantile(drawn, [0.05, 0.95], axis=0)
    inside = (low <= y) & (y <= high)
    assert scores["all"]["coverage"]["0.9"] == pytest.approx(inside.sum() / 11)
    assert sum(scores["all"]["pit"]) == 11


@pytest.mark.slow
def test_the_truth_is_calibrated_and_half_its_noise_is_not():
    rng = np.random.default_rng(1)
    x = np.linspace(0.0, 1.0, 3000)
    sd = rng.uniform(0.1, 2.0, size=(3000, 1))  # every measurement has a noise of its own
    y = 1.0 + 2.0 * x + sd[:, 0] * rng.normal(size=3000)
    truth = fitted(np.array([[1.0, np.log(2.0)]] * 4))
    p_values = []
    for factor in (1.0, 0.5):
        heldout = pcuq.Problem(line(), pcuq.Data(y, x, noise=factor * sd))
        scores = pcuq.score(truth, heldout, draws=500).to_dict()["pcuq"]["scores"]["all"]
        p_values.append(stats.chisquare(scores["pit"]).pvalue)
        if factor == 1.0:
            error = 4 * np.sqrt(0.25 / 3000) + 0.005
            assert scores["coverage"]["0.5"] == pytest.approx(0.5, abs=error)
            assert scores["coverage"]["0.9"] == pytest.approx(0.9, abs=error)
            assert scores["mean_squared_z"] == pytest.approx(1.0, abs=4 * np.sqrt(2 / 3000) + 0.01)
    assert p_values[0] > 1e-3
    assert p_values[1] < 1e-12


def test_a_mixture_over_parameters_is_what_is_predicted():
    # θ ~ Normal(0, 1) and noise of sd 0.5: y ~ Normal(0, 1.25), whose CRPS is known.
    draws = stats.norm.ppf((np.arange(4000) + 0.5) / 4000)
    fit = fitted(np.stack([draws, np.full(4000, -60.0)], axis=-1))
    heldout = pcuq.Problem(line(), pcuq.Data([0.7], [0.0], noise=0.5))
    found = pcuq.score(fit, heldout, draws=4000).to_dict()["pcuq"]["scores"]["all"]["crps"]
    s = np.sqrt(1.25)
    z = 0.7 / s
    exact = s * (z * (2 * stats.norm.cdf(z) - 1) + 2 * stats.norm.pdf(z) - 1 / np.sqrt(np.pi))
    assert found == pytest.approx(exact, abs=4 * s / np.sqrt(4000))


def test_parameters_are_matched_by_name_whatever_order_and_transform():
    thetas = np.array([[0.3, np.log(0.6)], [0.5, np.log(0.2)]])
    other = {
        "b": pcuq.Parameter("logit", lower=0.0, upper=3.0),
        "a": pcuq.Parameter("logit"),
    }
    heldout = pcuq.Problem(line(other), pcuq.Data([1.0], [2.0]))
    found, notes = matched(fitted(thetas), heldout, None, 2)
    values = heldout.parameters.constrain(jnp.asarray(found))
    assert np.allclose(values["a"], thetas[:, 0])
    assert np.allclose(values["b"], np.exp(thetas[:, 1]))
    assert notes == ()


def test_values_that_the_heldout_problem_does_not_allow_are_refused():
    narrow = {**REAL, "b": pcuq.Parameter("logit", lower=0.0, upper=0.5)}
    heldout = pcuq.Problem(line(narrow), pcuq.Data([1.0], [2.0]))
    with pytest.raises(pcuq.InputError, match=r"values of 'b' from 1 to 2.*allows 0 to 0.5"):
        pcuq.score(fitted([[0.0, 0.0], [0.0, np.log(2.0)]]), heldout)


def test_a_parameter_that_the_fit_lacks_is_named():
    more = {**REAL, "c": pcuq.Parameter("log")}
    model = pcuq.FunctionModel(lambda x, p: [p["a"] + p["c"] * x], more, ["y"])
    heldout = pcuq.Problem(model, pcuq.Data([1.0], [2.0]), nominal=np.zeros(3))
    without = made_fit(
        pcuq.Problem(
            pcuq.FunctionModel(lambda x, p: [p["a"] + p["b"]], REAL, ["y"]), pcuq.Data([1.0], [0.0])
        ),
        [[0.0, 0.0]],
    )
    with pytest.raises(pcuq.InputError, match=r"needs the parameters \['c'\].*has a, b"):
        pcuq.score(without, heldout)
    given = pcuq.score(without, heldout, fixed={"c": 3.0}, draws=400)
    assert given.methods["pcuq"].notes == ("c = 3 from `fixed`",)
    assert np.median(given.methods["pcuq"].predictions) == pytest.approx(6.0, abs=0.3)
    with pytest.raises(pcuq.InputError, match="does not estimate"):
        pcuq.score(without, heldout, fixed={"d": 3.0})


def test_a_constant_of_the_fitted_problem_stands_for_an_estimated_one():
    heldout = pcuq.Problem(
        pcuq.FunctionModel(
            lambda x, p: [p["a"] + p["c"] * x], {**REAL, "c": pcuq.Parameter("log")}, ["y"]
        ),
        pcuq.Data([1.0], [2.0]),
    )
    found = pcuq.score(fitted([[0.0, 0.0]], c=5.0), heldout, draws=50)
    assert found.methods["pcuq"].notes == ("c = 5 from the fitted problem",)


def test_a_noise_that_only_the_heldout_problem_has_is_at_its_nominal_value():
    more = {**REAL, "sigma": pcuq.Parameter("log")}
    model = pcuq.FunctionModel(lambda x, p: [p["a"] + p["b"] * x], more, ["y"])
    data = pcuq.Data([1.0], [2.0], noise="sigma")
    nominal = np.array([0.0, 0.0, np.log(0.01)])
    heldout = pcuq.Problem(model, data, nominal=nominal)
    found = pcuq.score(fitted([[1.0, 0.0]]), heldout, draws=500).methods["pcuq"]
    assert found.notes == ("sigma = 0.01 from the held-out nominal point",)
    assert found.predictions.mean() == pytest.approx(3.0, abs=0.002)
    assert found.predictions.std() == pytest.approx(0.01, rel=0.15)
    with pytest.raises(pcuq.InputError, match="sigma"):
        pcuq.score(fitted([[1.0, 0.0]]), pcuq.Problem(model, data))


def test_draws_that_cannot_be_solved_are_left_out_and_counted():
    model = pcuq.FunctionModel(lambda x, p: [jnp.sqrt(p["a"]) + p["b"]], REAL, ["y"])
    heldout = pcuq.Problem(model, pcuq.Data([1.0], [2.0]))
    found = pcuq.score(fitted([[1.0, 0.0], [-1.0, 0.0]]), heldout, draws=10)
    assert found.methods["pcuq"].failed == 5
    assert found.to_dict()["pcuq"]["draws"] == 5
    with pytest.raises(pcuq.ComputationError, match="any draw of 'pcuq'"):
        pcuq.score(fitted([[-1.0, 0.0]]), heldout)


def test_table_json_and_figure_say_the_same():
    fits = {"pcuq": fitted([[0.0, 0.0], [1.0, 0.0]]), "bayes": fitted([[0.4, 0.0]] * 2, "bayes")}
    heldout = pcuq.Problem(line(), pcuq.Data([1.0, 2.0, 3.5], [0.0, 1.0, 2.0], noise=0.2))
    found = pcuq.score(fits, heldout, draws=200)
    table = found.table()
    assert list(table.index) == [(m, g) for m in fits for g in ("y", "all")]
    told = json.loads(found.to_json())
    for method in fits:
        assert table.loc[(method, "y"), "crps"] == told[method]["scores"]["y"]["crps"]
        share = told[method]["scores"]["y"]["coverage"]["0.9"]
        assert table.loc[(method, "y"), "coverage_90"] == share
    entries = found.entries()
    assert entries.groupby("method")["crps"].mean()["bayes"] == pytest.approx(
        told["bayes"]["scores"]["all"]["crps"]
    )
    assert list(found.table("condition").index.names) == ["method", "condition"]
    figure = found.plot()
    assert [ax.get_title() for ax in figure.axes[:2]] == ["PCUQ", "Bayes"]
    plt.close(figure)
    with pytest.raises(pcuq.InputError, match="observable, condition"):
        found.table("row")


@pytest.mark.parametrize(("apart", "scale"), [(0.1, "linear"), (1e4, "log")])
def test_a_method_that_is_far_worse_leaves_the_others_to_be_told_apart(apart, scale):
    thetas = np.stack([np.linspace(0.9, 1.1, 20), np.linspace(1.9, 2.1, 20)], axis=-1)
    near = fitted(thetas)
    fits = {"bayes": near, "pcuq": fitted(thetas + np.array([apart, 0.0]))}
    figure = pcuq.score(fits, near.problem).plot()
    coverage, crps = figure.axes[-2:]
    assert crps.get_yscale() == scale
    figure.canvas.draw()
    # The legends hide no point.
    for ax in (coverage, crps):
        low = ax.get_legend().get_window_extent().y0
        assert all(ax.transData.transform(line.get_xydata())[:, 1].max() < low for line in ax.lines)
    plt.close(figure)


def test_a_number_that_is_not_finite_is_null_in_json(tmp_path):
    model = pcuq.FunctionModel(lambda x, p: [p["a"] * 1e-300], REAL, ["y"])
    heldout = pcuq.Problem(model, pcuq.Data([0.0], [2.0], noise=pcuq.Poisson()))
    found = pcuq.score(fitted([[1.0, 0.0]]), heldout, draws=5)
    text = found.to_json(tmp_path / "scores.json")
    assert "NaN" not in text
    assert "Infinity" not in text
    assert json.loads((tmp_path / "scores.json").read_text()) == json.loads(text)


def test_what_is_no_fit_or_no_problem_is_refused():
    heldout = pcuq.Problem(line(), pcuq.Data([1.0], [0.0]))
    with pytest.raises(pcuq.InputError, match=r"needs a pcuq\.Problem"):
        pcuq.score(fitted([[0.0, 0.0]]), "heldout.yaml")
    with pytest.raises(pcuq.InputError, match="mapping from name"):
        pcuq.score({}, heldout)
    with pytest.raises(pcuq.InputError, match="at least 2"):
        pcuq.score(fitted([[0.0, 0.0]]), heldout, draws=1)


@pytest.mark.slow
def test_a_second_petab_problem_is_predicted_from_the_fit_of_the_first(tmp_path):
    pytest.importorskip("petab", reason="petab is not installed")
    (tmp_path / "fit").mkdir()
    (tmp_path / "new").mkdir()
    first = pcuq.from_petab(petab_text.write(tmp_path / "fit", petab_text.V1))
    parameters = petab_text.V1["parameters.tsv"]
    second = pcuq.from_petab(
        petab_text.write(
            tmp_path / "new",
            petab_text.V1,
            parameters=parameters.replace("k2\tlin\t0\t10\t0.6\t1\n", "")
            + "k2\tlin\t0\t10\t0.6\t1\nsd_b\tlin\t0\t1\t0.02\t1\n",
            conditions="conditionId\tA\tB\nc1\t0\t2\n",
            observables="observableId\tobservableFormula\tnoiseFormula\nobs_b\tB\tsd_b\n",
            measurements="observableId\tsimulationConditionId\ttime\tmeasurement\n"
            "obs_b\tc1\t0\t2\nobs_b\tc1\t1\t1.4\n",
        )
    )
    fit = made_fit(first, np.array([first.nominal] * 2))
    found = pcuq.score(fit, second, draws=400)
    drawn = found.methods["pcuq"].predictions[:, :, 0]
    # B' = k1 A − k2 B from A = 0, B = 2: B = 2 (k1 + k2 e^{−(k1 + k2) t}) / (k1 + k2)
    exact = 2 * (0.8 + 0.6 * np.exp(-1.4)) / 1.4
    assert drawn.mean(axis=0) == pytest.approx([2.0, exact], abs=4 * 0.02 / 20)
    assert drawn.std(axis=0) == pytest.approx([0.02, 0.02], rel=0.2)
    assert found.methods["pcuq"].notes == ("sd_b = 0.02 from the held-out nominal point",)


@pytest.mark.slow
def test_predictions_of_a_stiff_draw_are_those_of_the_model():
    def rhs(t, u, p):
        return [-p["fast"] * (u[0] - jnp.cos(t))]

    model = pcuq.ODEModel(rhs, [0.0], {"fast": pcuq.Parameter("log")}, outputs=["u"])
    problem = pcuq.Problem(model, pcuq.Data([0.5], [1.0], noise=1e-9))
    thetas = np.log([[1.0], [1e6]])
    found, failed = predict_rows(problem, thetas, 0)
    assert failed == 0
    for row, theta in zip(found, thetas, strict=True):
        wanted = model.simulate([1.0], {"fast": float(np.exp(theta[0]))})["u"][0]
        assert row[0, 0] == pytest.approx(wanted, abs=1e-5)
