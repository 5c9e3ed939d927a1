"""`pcuq.check`: its statistic, its null and what it says."""

import json
import sys

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import numpyro.distributions as dist
import pytest
from typer.testing import CliRunner

import pcuq
from pcuq import cli, runs
from pcuq.errors import InputError
from pcuq.kernel_scale import on_kernel_scale
from pcuq.likelihood import log_likelihood_function
from pcuq.objective import Objective
from pcuq.plots import plot_check, plot_misfit
from pcuq.refits import on_noise_scale, pair_integrals
from pcuq.start import climber, starting_fit
from pcuq.synthetic import with_synthetic_data

LAM = 4e-5  # the fit is then worth some 400 nats, and next to none of Q falls back to the prior
REPLICATES = 19
FILE = """
import numpy as np
import numpyro.distributions as dist
import pcuq

model = pcuq.FunctionModel(
    lambda x, p: [p["slope"] * x],
    {"slope": pcuq.Parameter("identity", dist.Normal(0, 8))},
    ("y",),
)
x = np.linspace(0.1, 1.0, 30)
y = 2 * x + BEND * (x - 0.5) ** 2 + np.random.default_rng(1).normal(0, 0.3, 30)
problem = pcuq.Problem(model, pcuq.Data(y[:, None], x, 0.3))
"""


def line(seed=0, bend=0.0, n=30, model=None, **kernel):
    """A straight line through the origin; the data bend away from it, or do not."""
    model = model or pcuq.FunctionModel(
        lambda x, p: [p["slope"] * x],
        {"slope": pcuq.Parameter("identity", dist.Normal(0, 8))},
        ("y",),
    )
    x = np.linspace(0.1, 1.0, n)
    y = 2.0 * x + bend * (x - 0.5) ** 2 + np.random.default_rng(seed).normal(0, 0.3, n)
    return pcuq.Problem(model, pcuq.Data(y[:, None], x, 0.3), pcuq.GaussianKernel(**kernel))


@pytest.fixture(scope="module")
def checked():
    return pcuq.check(line(), REPLICATES, regularisation=LAM)


@pytest.fixture(scope="module")
def bent(checked):
    return pcuq.check(line(1, bend=12.0), null=checked.null)


@pytest.mark.parametrize("combine", ["product", "sum"])
def test_statistic_is_the_double_sum_without_self_pairs(combine):
    objective = Objective(line(n=5, combine=combine))
    rng = np.random.default_rng(0)
    q, b = rng.normal(2, 1, (6, 1)), rng.normal(2, 0.1, (4, 1))
    v = objective.data_terms_of_many

    def kappa0(one, other):  # from the public κ: C and both v taken out
        kappa = float(pcuq.kappa(objective.problem, one, other))
        return kappa - objective.constant + v(one[None])[0] + v(other[None])[0]

    def mean(a, c, same):
        pairs = [(i, j) for i in range(len(a)) for j in range(len(c)) if not (same and i == j)]
        return np.mean([kappa0(a[i], c[j]) for i, j in pairs])

    expected = mean(q, q, True) - 2 * mean(q, b, False) + mean(b, b, True)
    solved = objective.solve_many(q), objective.solve_many(b)
    found = float(pair_integrals(objective)(q, solved[0], b, solved[1]))
    assert found == pytest.approx(expected, rel=1e-9)
    # The variant that keeps self-pairs is biased, and differs by far more than rounding.
    assert abs(mean(q, q, False) - 2 * mean(q, b, False) + mean(b, b, False) - expected) > 1e-3


def test_other_data_in_place_give_what_their_own_problem_gives():
    problem, other = line(0), line(5)
    objective, theta = Objective(problem), jnp.array([1.7])
    y = on_kernel_scale(other)
    swapped = jax.jit(lambda y, t: objective.given(y).data_terms(objective.features(t[None])))
    np.testing.assert_allclose(swapped(y, theta), Objective(other).data_terms_of_many(theta[None]))
    mine, theirs = (log_likelihood_function(p, p.predictor()) for p in (problem, other))
    assert float(mine(theta, other.data.y)) == pytest.approx(float(theirs(theta)))
    assert float(mine(theta)) != pytest.approx(float(theirs(theta)))
    climbed = climber(problem, problem.predictor())(theta[None], other.data.y)
    np.testing.assert_allclose(climbed.best, starting_fit(other).best, atol=1e-6)


def test_short_runs_of_bayes_are_draws_of_the_conjugate_posterior():
    problem, other = line(0), line(3)
    objective = Objective(problem)
    start = climber(problem, problem.predictor())(np.array([[2.0]]), other.data.y)
    draws = runs.BayesRuns(objective).draws(start, other.data.y, 0)
    x, y = other.data.x, other.data.y[:, 0]
    precision = np.sum(x**2) / 0.3**2 + 1 / 8**2
    mean = np.sum(x * y) / 0.3**2 / precision
    assert draws.std() * np.sqrt(precision) == pytest.approx(1.0, abs=0.1)
    assert abs(draws.mean() - mean) * np.sqrt(precision) < 0.15


def test_p_value_counts_the_data_among_the_simulated(checked):
    simulated = checked.null.figures.statistic
    assert len(simulated) == REPLICATES
    assert checked.null.p_value("statistic", np.inf) == 1 / (REPLICATES + 1)
    assert checked.null.p_value("statistic", simulated.max()) == 2 / (REPLICATES + 1)
    assert checked.null.p_value("statistic", -np.inf) == 1.0


def test_a_right_model_is_not_rejected_and_a_wrong_one_is(checked, bent):
    assert checked.p_value > 0.05 and not checked.misspecified
    assert checked.verdict.startswith("No sign that the model is wrong")
    assert bent.p_value == 1 / (REPLICATES + 1)
    assert bent.misspecified and bent.autocorrelation_p_value <= 0.05
    assert "wrong" in bent.verdict and "from" in bent.verdict


def test_bands_should_be_wider_where_the_model_is_wrong(bent):
    ratio, low, high = bent.wider["overall"]
    assert 0.8 < low < high < 1.5
    assert ratio > high
    assert bent.wider["y"][0] == pytest.approx(ratio)


def test_it_says_where_the_model_fails(bent):
    said = [window for window in bent.to_dict()["windows"] if window["fails"]]
    assert said
    worst = max(said, key=lambda window: window["misfit"])
    assert worst["misfit"] > worst["limit"] > worst["expected"][1]
    # The data bend upwards away from the line where x is small: the line lies below them there.
    assert worst["end"] < 0.5 and worst["shift"] > 0


def test_everything_is_said_as_json(bent):
    said = json.loads(json.dumps(bent.to_dict(), allow_nan=False))
    assert said["p_value"] == bent.p_value and said["verdict"] == bent.verdict
    assert len(said["windows"]) == len(bent.windows)
    assert sum(said["pit"]["counts"]) == 30


def test_the_null_is_the_same_when_read_back(checked, bent, tmp_path):
    path = tmp_path / "null.npz"
    checked.null.save(path)
    read = pcuq.load_null(path)
    for one, other in zip(read.figures, checked.null.figures, strict=True):
        np.testing.assert_array_equal(one, other)
    again = pcuq.check(line(1, bend=12.0), null=path)
    assert again.statistic == bent.statistic and again.p_value == bent.p_value


def test_a_null_of_something_else_is_refused(checked, tmp_path):
    curve = pcuq.FunctionModel(
        lambda x, p: [p["slope"] * x**2],
        {"slope": pcuq.Parameter("identity", dist.Normal(0, 8))},
        ("y",),
    )
    with pytest.raises(InputError, match="another model"):
        pcuq.check(line(model=curve), null=checked.null)
    with pytest.raises(InputError, match="another design"):
        pcuq.check(line(n=29), null=checked.null)
    with pytest.raises(InputError, match=r"simulated with λ = 4e-05"):
        pcuq.check(line(), null=checked.null, regularisation=1e-3)
    with pytest.raises(InputError, match="there is no file"):
        pcuq.check(line(), null=tmp_path / "none.npz")
    for name, content in (("a.npz", b"PK no"), ("b.npz", b"")):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match="not a file of simulated checks"):
            pcuq.load_null(tmp_path / name)
    np.savez(tmp_path / "c.npz", said=np.array([{"version": 1}], dtype=object))
    with pytest.raises(InputError, match="not a file of simulated checks"):  # nothing is unpickled
        pcuq.load_null(tmp_path / "c.npz")


def test_what_cannot_be_checked_is_refused():
    with pytest.raises(InputError, match="at least 19"):
        pcuq.check(line(), replicates=5)
    with pytest.raises(InputError, match="a number λ > 0"):
        pcuq.check(line(), 19, regularisation=-1.0)
    with pytest.raises(InputError, match="needs what a check simulated"):
        pcuq.check(line(), null=3)


def test_residuals_of_log_normal_noise_are_on_the_log_scale():
    problem = pcuq.Problem(
        pcuq.FunctionModel(lambda x, p: [p["a"]], {"a": pcuq.Parameter("log")}, ("y",)),
        pcuq.Data(np.array([[1.0], [2.0]]), np.arange(2.0), pcuq.LogNormal(0.1)),
    )
    found = on_noise_scale(problem, np.array([[np.e], [np.nan]]))
    np.testing.assert_allclose(found, [[1.0], [np.nan]])


def test_figure_names_its_axes_and_marks_what_fails_also_without_colour(bent):
    figure = plot_check(bent)
    labels = [axes.get_xlabel() + axes.get_ylabel() for axes in figure.axes]
    assert any("times as wide" in label for label in labels)
    assert any("residual" in label for label in labels)
    assert not any("MMD" in label for label in labels)
    markers = {artist.get_marker() for artist in figure.axes[1].lines}
    assert {"^", "o"} <= markers
    with pytest.raises(InputError, match="nothing was measured of 'z'"):
        plot_misfit(bent, "z")
    plt.close("all")


def test_command_writes_the_null_once_and_the_figure_and_says_a_sentence(
    checked, tmp_path, monkeypatch
):
    # What is simulated is that of the same model and design: it need not be done twice.
    monkeypatch.setattr(sys.modules["pcuq.check"], "simulate", lambda *args: checked.null)
    right, wrong = tmp_path / "right.py", tmp_path / "wrong.py"
    right.write_text(FILE.replace("BEND", "0"))
    wrong.write_text(FILE.replace("BEND", "12"))
    null, figure = tmp_path / "null.npz", tmp_path / "figure.png"

    def invoke(*arguments):
        return CliRunner().invoke(cli.app, ["check", *map(str, arguments)])

    short = ("--replicates", 19, "--regularisation", LAM, "--null", null)
    first = invoke(right, *short)
    assert first.exit_code == 0, first.stderr
    assert first.stdout.count("\n") == 1 and null.exists()
    written = null.read_bytes()
    second = invoke(wrong, "--null", null, "--out", figure, "--json")
    assert second.exit_code == 0, second.stderr
    assert json.loads(second.stdout)["misspecified"] is True
    assert figure.stat().st_size > 10_000 and null.read_bytes() == written
    assert invoke(right, "--out", tmp_path / "figure.txt").exit_code == 2
    assert invoke(right, "--null", tmp_path / "null.txt").exit_code == 2
    null.write_bytes(b"no")
    assert invoke(right, "--null", null).exit_code == 2


def test_simulated_data_are_fitted_anew(checked):
    # A null that kept the fit to the observed data would have misfits that are larger on average.
    misfits = checked.null.figures.misfit
    assert abs(np.mean(misfits**2) - 29 / 30) < 4 * np.sqrt(2 / misfits.size / 3)
    (copy,) = with_synthetic_data(line(), checked.null.theta, [1])
    assert np.isfinite(copy.data.y).all()
