"""A problem checks its parts against each other, and says what does not fit."""

import os
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import pcuq
from pcuq.data import Data
from pcuq.design import similarities_of
from pcuq.errors import InputError
from pcuq.interventions import Intervention
from pcuq.kernel_scale import default_lengthscale
from pcuq.kernels import GaussianKernel, MaternKernel
from pcuq.models import FunctionModel, ODEModel
from pcuq.noise import Gaussian, StudentT
from pcuq.parameters import Parameter
from pcuq.predict import predict
from pcuq.problem import Problem

PARAMETERS = {"a": Parameter("identity"), "sd": Parameter("log")}
MODEL = FunctionModel(
    lambda x, p: [p["a"] * x, p["dose"] + x], PARAMETERS, ("u", "v"), constants={"dose": 1.0}
)
ODE = ODEModel(lambda t, u, p: [-p["a"] * u[0]], [1.0], PARAMETERS, outputs=["u"], t0=1.0)
Y = np.ones((3, 2))
X = [0.0, 1.0, 2.0]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Problem("model", Data(Y)), "`model` needs a pcuq.ODEModel.*got str"),
        (lambda: Problem(MODEL, Y), "`data` needs a pcuq.Data: got ndarray"),
        (lambda: Problem(MODEL, Data(Y, X), kernel="gaussian"), "`kernel` needs a kernel such as"),
        (lambda: Problem(MODEL, Data(np.ones((3, 1)), X)), r"\(u, v\): got 1 columns; name the"),
        (lambda: Problem(MODEL, Data(Y, X, outputs=["u", "z"])), r"\['z'\].*it has u, v"),
        (lambda: Problem(MODEL, Data(Y, X, "tau")), "names 'tau'.*it has a, sd, dose"),
        (lambda: Problem(MODEL, Data(Y, X, ["sd", "tau"])), "names 'tau'"),
        (
            lambda: Problem(MODEL, Data(Y, X), GaussianKernel([1.0, 2.0, 3.0])),
            r"one number per output \(2\): got 3",
        ),
        (lambda: Problem(MODEL, Data(Y, X), conditions=["a"]), "a mapping from label"),
        (
            lambda: Problem(MODEL, Data(Y, X, condition=["a", "b", "b"]), conditions={"a": None}),
            r"conditions \['b'\] that `conditions` does not define: add them",
        ),
        (
            lambda: Problem(MODEL, Data(Y, X, condition=["a"] * 3), conditions={"a": 3.0}),
            "condition 'a' needs a pcuq.Intervention",
        ),
        (
            lambda: Problem(
                MODEL,
                Data(Y, X, condition=["a"] * 3),
                conditions={"a": Intervention(set={"zeta": 1.0})},
            ),
            "unknown name 'zeta'",
        ),
        (lambda: Problem(MODEL, Data(Y, X), nominal=[0.0]), "`nominal` needs 2 finite numbers"),
        (lambda: Problem(ODE, Data(np.ones((3, 1)))), "need one time per row: give `x`"),
        (lambda: Problem(ODE, Data(np.ones((3, 1)), X)), "at 0, lies before .* t0 = 1: set t0"),
    ],
)
def test_parts_that_do_not_fit_are_named(make, message):
    with pytest.raises(InputError, match=message):
        make()


def test_data_may_name_some_of_the_outputs_in_their_own_order():
    problem = Problem(MODEL, Data(np.ones((3, 2)), X, outputs=["v", "u"]))
    np.testing.assert_array_equal(problem.columns, [1, 0])
    assert Problem(MODEL, Data(np.ones(3), X, outputs=["v"])).outputs == ("v",)


def test_each_condition_has_its_own_model_and_covariates():
    data = Data(Y, X, condition=["control", "drug", "drug"])
    problem = Problem(
        MODEL, data, conditions={"control": None, "drug": Intervention(set={"dose": 5.0})}
    )
    outputs, ok = jax.jit(problem.predictor())(jnp.array([2.0, 0.0]))
    assert ok
    np.testing.assert_allclose(outputs[problem.points.of_row], [[0.0, 1.0], [2.0, 6.0], [4.0, 7.0]])
    with pytest.raises(InputError, match="unknown condition 'placebo'"):
        problem.model_for("placebo")


def test_a_condition_cannot_change_what_the_noise_is_named_by():
    data = Data(Y, X, noise="sd", condition=["control", "drug", "drug"])
    conditions = {"control": None, "drug": Intervention(scale={"sd": 2.0})}
    with pytest.raises(InputError, match="'drug' changes 'sd', which is the scale of the noise"):
        Problem(MODEL, data, conditions=conditions)


def test_the_fingerprint_tells_problems_apart():
    def problem(y=Y, x=X, noise=0.5, kernel=None, model=MODEL):
        return Problem(model, Data(y, x, noise), kernel or GaussianKernel()).fingerprint

    wider = {**PARAMETERS, "a": Parameter("interval", lower=0.0, upper=2.0)}
    believed = {**PARAMETERS, "a": Parameter("identity", dist.Normal(0.0, 2.0))}
    # Of these, numpyro names no numbers but the bound.
    positive = [
        {**PARAMETERS, "a": Parameter("log", dist.TruncatedNormal(*law, low=0.0), "natural")}
        for law in ((2.0, 1.0), (5.0, 3.0))
    ]
    different = [
        *(
            problem(model=FunctionModel(MODEL.f, p, ("u", "v"), constants={"dose": 1.0}))
            for p in positive
        ),
        problem(y=2 * Y),
        problem(x=[0.0, 1.0, 3.0]),
        problem(noise=0.6),
        problem(noise="sd"),
        problem(noise=["sd", 0.5]),
        problem(noise=StudentT(0.5)),
        problem(noise=StudentT(0.5, df=7.0)),
        problem(kernel=GaussianKernel(2.0)),
        problem(kernel=MaternKernel()),
        problem(model=FunctionModel(MODEL.f, believed, ("u", "v"), constants={"dose": 1.0})),
        problem(model=FunctionModel(MODEL.f, wider, ("u", "v"), constants={"dose": 1.0})),
        problem(model=FunctionModel(MODEL.f, PARAMETERS, ("u", "v"), constants={"dose": 2.0})),
    ]
    assert problem() == problem()
    assert len({problem(), *different}) == len(different) + 1


def test_the_fingerprint_is_the_same_in_every_process():
    """Python gives sets of names another order in each: of these two, for all fields below."""
    code = """if True:
        import numpyro.distributions as dist, pcuq
        laws = {
            "a": pcuq.Parameter("identity", dist.Normal(2.0, 1.0)),
            "b": pcuq.Parameter("log", dist.TruncatedNormal(2.0, 1.0, low=0.0), "natural"),
            "c": pcuq.Parameter("logit", dist.Uniform(0.25, 0.75), "natural", 0.25, 0.75),
        }
        model = pcuq.FunctionModel(lambda x, p: [p["a"]], laws, ["u"], constants={"d": 1.0})
        data = pcuq.Data([1.0, 2.0], [0.0, 1.0], noise=0.5, condition=["one", "two"])
        conditions = {"one": None, "two": pcuq.Intervention(set={"d": "a"}, scale={"b": 2.0})}
        print(pcuq.Problem(model, data, conditions=conditions).fingerprint)
    """
    found = [
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True, text=True, check=True,
        ).stdout
        for seed in ("0", "5")
    ]  # fmt: skip
    assert found[0] == found[1] != ""


def test_rows_that_are_taken_keep_their_noise_and_condition():
    y = np.arange(8.0).reshape(4, 2)
    scale = np.arange(1.0, 9.0).reshape(4, 2)
    model = pcuq.FunctionModel(
        lambda x, p: [p["a"], p["a"] * x], {"a": pcuq.Parameter("log")}, ["u", "v"]
    )
    for noise in (scale, (pcuq.Gaussian(scale[:, [0]]), pcuq.Laplace(scale[:, [1]])), "a", 0.5):
        data = pcuq.Data(y, np.arange(4.0), noise=noise, condition=list("abab"))
        problem = pcuq.Problem(model, data, conditions={"a": None, "b": None}, nominal=[0.0])
        parts = [problem.take(data.condition == "b"), problem.take([0, 2])]
        assert parts[0].data.y.tolist() == y[1::2].tolist()
        assert parts[0].data.x.tolist() == [1.0, 3.0]
        assert set(parts[0].data.condition) == {"b"}
        assert np.array_equal(parts[0].scale.static, problem.scale.static[1::2])
        # Independent measurements: the log-likelihood is the sum over the parts.
        whole, *some = (float(pcuq.log_likelihood(p, [0.3])) for p in (problem, *parts))
        assert sum(some) == pytest.approx(whole)
    with pytest.raises(pcuq.InputError, match="at least one row"):
        problem.take(np.zeros(4, bool))


def test_an_output_that_was_never_measured_leaves_the_others_as_they_are():
    y = np.column_stack([[0.1, 1.2, 1.9], np.full(3, np.nan)])
    fitted = Problem(MODEL, Data(y, X, noise="sd"))
    np.testing.assert_array_equal(np.isfinite(default_lengthscale(fitted)), [True, True])
    mixed = Data(y, X, noise=(Gaussian(0.5), StudentT(0.5)))
    alone = Problem(MODEL, Data(y[:, 0], X, Gaussian(0.5), outputs=["u"]))
    thetas = np.array([[0.9, 0.0], [1.3, 0.0]])
    found = pcuq.mmd2(Problem(MODEL, mixed), thetas)
    np.testing.assert_allclose(found, pcuq.mmd2(alone, thetas), rtol=1e-12)


def test_rest_is_alike_to_itself_alone():
    times = np.array([[1.0], [np.inf]])
    found = similarities_of(times[:, None], times[None], 2.0)
    np.testing.assert_array_equal(found, np.eye(2))


def test_rest_can_be_predicted_where_a_model_has_time():
    problem = Problem(ODE, Data(np.ones((3, 1)), [1.0, 2.0, 3.0], 0.1))
    prediction = predict(problem, np.zeros((2, 2)) + 0.5, [2.0, np.inf], noise=False)
    np.testing.assert_allclose(prediction.trajectories[:, 1], 0.0, atol=1e-6)
    with pytest.raises(InputError, match="needs finite covariates"):
        predict(Problem(MODEL, Data(Y, X)), np.zeros((2, 2)), [np.inf], noise=False)
