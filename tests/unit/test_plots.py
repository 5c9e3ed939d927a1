"""Plots draw what they are given, on the Axes they are given."""

import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import pytest
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
