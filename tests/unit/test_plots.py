"""Plots draw what they are given, on the Axes they are given."""

from dataclasses import replace

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import pytest
from made_fits import growth_problem, made_fit
from matplotlib.figure import Figure

from pcuq import plots
from pcuq.data import Data
from pcuq.errors import InputError
from pcuq.functionals import Prediction
from pcuq.models import FunctionModel
from pcuq.parameters import Parameter
from pcuq.problem import Problem
from pcuq.result import Fit, make_tree

X = np.array([2.0, 0.0, 1.0])  # in any order


@pytest.fixture
def ax():
    return Figure().subplots()


@pytest.fixture
def prediction() -> Prediction:
    """Eleven lines of slopes 0, 1, …, 10: at x the quantile q is 10 q x."""
    slopes = np.arange(11.0)
    return Prediction(
        x=X,
        outputs=("a", "b"),
        trajectories=np.stack([slopes[:, None] * X, 0 * slopes[:, None] * X], axis=-1),
        observations=None,
        weights=None,
        thetas=slopes[:, None],
        draws=np.arange(11),
        given=11,
        seed=0,
        solver={},
    )


def test_bands_are_the_quantiles_in_order_of_x(ax, prediction):
    assert plots.plot_bands(ax, prediction, "a", levels=(0.5,)) is ax
    (line,) = ax.get_lines()
    assert np.allclose(line.get_xydata(), [[0, 0], [1, 5], [2, 10]])
    (band,) = ax.collections
    edges = band.get_paths()[0].vertices
    assert np.allclose(edges[edges[:, 0] == 2][:, 1].min(), 5.0)
    assert np.allclose(edges[edges[:, 0] == 2][:, 1].max(), 15.0)


@pytest.mark.parametrize("style", plots.STYLES)
def test_bands_of_every_style_can_be_written_as_pdf(ax, prediction, style, tmp_path):
    plots.plot_bands(ax, prediction, "a", levels=(0.9, 0.5), style=style)
    ax.figure.savefig(tmp_path / "bands.pdf")
    assert (tmp_path / "bands.pdf").stat().st_size > 1000


def test_methods_differ_by_more_than_colour():
    styles = plots.STYLES.values()
    for feature in ("colour", "line", "marker"):
        assert len({getattr(style, feature) for style in styles}) == len(styles)


def test_bands_refuse_what_is_not_there(ax, prediction):
    with pytest.raises(InputError, match="unknown output 'c'"):
        plots.plot_bands(ax, prediction, "c")


def test_data_and_draws_are_drawn_where_they_are(ax):
    plots.plot_data(ax, [0.0, 1.0], [3.0, np.nan])
    assert np.array_equal(ax.get_lines()[0].get_xdata(), [0.0, 1.0])
    plots.plot_pairs2d(ax, [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], columns=(2, 0), style="bayes")
    assert np.array_equal(ax.collections[0].get_offsets(), [[3.0, 1.0], [6.0, 4.0]])


def test_traces_show_as_many_paths_of_each_system():
    model = FunctionModel(
        lambda x, p: [p["a"] + jnp.log(p["b"])],
        {"a": Parameter("identity"), "b": Parameter("log")},
        ("y",),
    )
    problem = Problem(model, Data([0.0, 1.0], noise=1.0))
    theta = np.random.default_rng(0).normal(size=(2, 8, 6, 2))
    shape = theta.shape[:3]
    attributes = {"method": "pcuq", "status": "fine", "trusted": 1}
    tree = make_tree(problem, theta, np.ones(shape), np.zeros(shape, bool), {}, attributes)
    axes = plots.plot_traces(Fit(tree, problem), paths=4)
    assert [ax.get_ylabel() for ax in axes] == ["a", "b"]
    assert [len(ax.get_lines()) for ax in axes] == [4, 4]
    with pytest.raises(InputError, match="unknown parameters"):
        plots.plot_traces(Fit(tree, problem), ["c"])
    plt.close("all")


@pytest.fixture(scope="module")
def fit() -> Fit:
    return made_fit(growth_problem(outputs=("prey", "predator")), "pcuq", 0.2)


def test_a_fit_is_drawn_from_what_it_carries(ax, fit):
    plots.plot_fit(fit, "predator", ax=ax)
    curve, dots = ax.get_lines()
    assert np.array_equal(dots.get_ydata(), fit.problem.data.y[:, 1])
    kept = fit.tree["predictions"]["y"].isel(chain=0, condition=0, output=1)
    assert np.allclose(curve.get_ydata(), kept.median("draw"))
    bare = made_fit(fit.problem, "pcuq", 0.2, curves=False)  # then at the data
    plots.plot_fit([bare, bare], "prey", ax=ax)
    assert np.array_equal(ax.get_lines()[2].get_xdata(), fit.problem.data.x)
    with pytest.raises(InputError, match="no predictions for condition 'other'"):
        plots.plot_fit(fit, "prey", "other", ax)


def test_a_contrast_is_the_difference_of_the_same_draws(ax, prediction):
    doubled = replace(prediction, trajectories=2 * prediction.trajectories)
    plots.plot_contrast(doubled, prediction, "a", ax)
    zero, line = ax.get_lines()
    assert zero.get_ydata() == [0.0, 0.0]
    assert np.allclose(line.get_xydata(), [[0, 0], [1, 5], [2, 10]])


def test_predictions_are_drawn_over_each_other(ax, prediction):
    plots.plot_prediction({"pcuq": prediction, "bayes": prediction}, "b", ax)
    assert [line.get_label() for line in ax.get_lines()] == ["PCUQ", "Bayes"]
    assert ax.get_ylabel() == "b"


def test_pairs_stand_below_the_diagonal_with_the_prior(fit):
    axes = plots.plot_pairs([fit, fit])
    assert axes.shape == (2, 2)
    assert not axes[0, 1].axison
    prior, first, second = axes[1, 0].collections
    assert np.array_equal(first.get_offsets(), second.get_offsets())
    assert len(prior.get_offsets()) == fit.tree["prior"].sizes["draw"]
    # θ is what is drawn: the value itself where it is not transformed.
    assert (axes[1, 0].get_xlabel(), axes[1, 0].get_ylabel()) == ("rate", "log start")
    natural = plots.plot_pairs(fit, unconstrained=False)
    assert natural[1, 0].get_ylabel() == "start"
    plt.close("all")


def test_a_parameter_that_is_a_point_is_a_line(ax, fit):
    plots.plot_parameter(made_fit(fit.problem, "mmd-bayes", 0.0, curves=False), "rate", ax)
    assert np.allclose(ax.get_lines()[-1].get_xdata(), 0.5)


def test_pit_counts_each_value_once_and_leaves_out_missing_ones(ax):
    plots.plot_pit([0.05, 0.06, 0.95, np.nan], ax, bins=10)
    heights = [patch.get_height() for patch in ax.patches if patch.get_width() < 0.2]
    assert heights == [2, 0, 0, 0, 0, 0, 0, 0, 0, 1]
    with pytest.raises(InputError, match="no PIT values"):
        plots.plot_pit([np.nan], ax)


def test_sensitivity_is_sorted_by_lambda_and_marks_the_choice(ax):
    plots.plot_sensitivity([1e-3, 1e-5, 1e-4], {"spread": [3, 1, 2]}, ax, chosen=1e-4)
    line, chosen = ax.get_lines()
    assert np.array_equal(line.get_xdata(), [1e-5, 1e-4, 1e-3])
    assert np.array_equal(line.get_ydata(), [1, 2, 3])
    assert chosen.get_xdata() == [1e-4, 1e-4]
    assert ax.get_xscale() == "log"


def test_spread_is_drawn_by_method_with_the_usual_slope(ax):
    plots.plot_spread([10, 40], {"pcuq": [0.5, 0.5], "bayes": [0.2, 0.1]}, ax)
    slope = ax.get_lines()[-1]
    assert slope.get_label() == "1/√n"
    assert np.allclose(slope.get_ydata(), [0.2, 0.1])


def test_without_axes_a_figure_is_made(prediction):
    ax = plots.plot_bands(None, prediction, "a")
    assert ax.figure is plt.gcf()
    plt.close("all")


def test_arviz_draws_from_the_file_of_a_fit(fit, tmp_path):
    az = pytest.importorskip("arviz", reason="arviz is not installed")
    path = fit.save(tmp_path / "run.nc")
    if hasattr(az, "InferenceData"):  # before 1.0
        read = az.from_netcdf(path, engine="h5netcdf")
        drawn = [
            az.plot_trace(read, var_names=["rate"]),
            az.plot_posterior(read, var_names=["rate", "start"]),
            az.plot_pair(read, var_names=["rate", "start"]),
            az.plot_forest(read, var_names=["rate"]),
            az.plot_ppc(read, data_pairs={"y": "y"}, num_pp_samples=20),
            az.plot_dist_comparison(read, var_names=["rate"]),
        ]
        assert all(np.size(axes) for axes in drawn)
        groups = set(read.groups())
    else:
        read = az.from_netcdf(path)
        for plot in (az.plot_trace, az.plot_dist, az.plot_forest):
            plot(read, var_names=["rate"])
        groups = set(read.children)
    wanted = {"posterior", "sample_stats", "observed_data", "constant_data", "prior"}
    assert wanted | {"posterior_predictive", "predictions"} <= groups
    plt.close("all")


def test_groups_stay_small(fit):
    sizes = {
        name: fit.tree[name].dataset.nbytes for name in ("posterior_predictive", "predictions")
    }
    assert sizes["posterior_predictive"] <= 200 * 11 * 2 * 2 * 4 + 2_000
    assert fit.tree["predictions"]["w"].dtype == np.float32
    assert fit.tree["predictions"].sizes["draw"] <= 400


def test_calibration_is_drawn_with_its_bounds():
    known = {
        "regularisation": 4e-5,
        "lams": [1e-5, 3e-5, 1e-4],
        "outside": [[0.0, 0.02, 0.2]],
        "spread": [[0.03, 0.035, 0.05]],
        "bayes_spread": [0.01],
        "settled": [[True, False, True]],
        "floor": 0.03,
    }
    spread, share = plots.plot_calibration(known)
    labels = spread.get_legend_handles_labels()[1]
    assert "λ★ = 4e-05" in labels and "floor: 0.03" in labels and "Bayes: 0.01" in labels
    assert share.lines[-1].get_ydata()[0] == 0.05
    with pytest.raises(InputError, match="two Axes"):
        plots.plot_calibration(known, [spread])
