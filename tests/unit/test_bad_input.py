"""A table of bad input: each kind is refused in one sentence, and nothing is half-written.

`python tests/unit/test_bad_input.py` prints how many there are, and the sentences of Python.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pandas as pd
import petab_text
import pytest
import sbml_text as sb
from typer.testing import CliRunner

import pcuq
from pcuq import cli
from pcuq.interventions import Equilibration, parse

NAN, INF = float("nan"), float("inf")
FREE = {"a": pcuq.Parameter("identity")}
LINE = """
import pcuq

model = pcuq.FunctionModel(
    lambda x, p: [p["slope"] * x], {"slope": pcuq.Parameter("identity")}, ("y",)
)
problem = pcuq.Problem(model, pcuq.Data([0.1, 0.6, 0.9, 1.7], [0.0, 1.0, 2.0, 3.0], noise=0.2))
"""
MODEL = LINE.rsplit("\n", 2)[0]  # without its data


def line(parameters=FREE) -> pcuq.FunctionModel:
    name = next(iter(parameters))
    return pcuq.FunctionModel(lambda x, p: [p[name] * x], parameters, ["y"])


def ode(**changes) -> pcuq.ODEModel:
    given = {"rhs": lambda t, u, p: -p["a"] * u, "initial": {"u": 1.0}, "parameters": FREE}
    return pcuq.ODEModel(**{**given, **changes})


def data(y=(1.0, 2.0), x=(0.0, 1.0), **options) -> pcuq.Data:
    return pcuq.Data(list(y), None if x is None else list(x), **options)


PROBLEM = pcuq.Problem(line(), data())
POINT = np.array([[0.5]])


def fit(**options):
    return pcuq.fit(PROBLEM, **{"regularisation": 1e-2, **options})


def predict(x=(0.0, 1.0), thetas=POINT, problem=PROBLEM, **options):
    return pcuq.predict.predict(problem, thetas, x, **options)


# Each: what is done, and words that the sentence must have.
PYTHON = {
    # parameters
    "unknown transform": (lambda: pcuq.Parameter("logg"), "`transform` needs one of"),
    "unknown scale of a prior": (lambda: pcuq.Parameter(prior_on="log"), "`prior_on` needs one of"),
    "a prior's scale without prior": (
        lambda: pcuq.Parameter(prior_on="natural"), "needs a `prior`"),
    "a number for a prior": (lambda: pcuq.Parameter("log", prior=1.0), "numpyro distribution"),
    "a prior of two numbers": (
        lambda: pcuq.Parameter("log", prior=dist.Normal(jnp.zeros(2), 1.0)), "of one number"),
    "a prior of counts": (lambda: pcuq.Parameter("log", prior=dist.Poisson(3.0)), "continuous"),
    "a prior that cannot be drawn from": (
        lambda: pcuq.Parameter("identity", dist.ImproperUniform(dist.constraints.real, (), ())),
        "improper"),
    "a prior of positive θ alone": (
        lambda: pcuq.Parameter("identity", dist.HalfNormal(1.0)), "gives no density"),
    "a prior with a density beyond its support": (
        lambda: pcuq.Parameter("identity", dist.Exponential(1.0, validate_args=False)),
        "gives no density"),
    "a prior that does not cover the bijector": (
        lambda: pcuq.Parameter("log", dist.Uniform(0.0, 1.0), prior_on="natural"),
        "set `lower` and `upper`"),
    "a prior outside the bijector's range": (
        lambda: pcuq.Parameter("logit", dist.Normal(5.0, 0.5), prior_on="natural"), "only 0%"),
    "bounds the wrong way round": (
        lambda: pcuq.Parameter("interval", lower=1.0, upper=0.0), "lower < upper"),
    "equal bounds": (lambda: pcuq.Parameter("interval", lower=1.0, upper=1.0), "lower < upper"),
    "one bound": (lambda: pcuq.Parameter("interval", lower=1.0), "go together"),
    "an interval without bounds": (lambda: pcuq.Parameter("interval"), "needs both"),
    "an infinite bound": (lambda: pcuq.Parameter("interval", lower=0.0, upper=INF), "finite"),
    "text for a bound": (lambda: pcuq.Parameter("interval", lower="0", upper=1.0), "finite"),
    "a negative bound on a log scale": (
        lambda: pcuq.Parameter("log", lower=-1.0, upper=1.0), "needs `lower` > 0"),
    "a value outside the range": (
        lambda: pcuq.Parameter("logit").unconstrain(2.0), "lies outside"),
    # models
    "no parameters": (lambda: pcuq.FunctionModel(len, {}, ["y"]),
                      "at least one entry"),
    "parameters as a list": (lambda: pcuq.FunctionModel(len, ["a"], ["y"]), "needs a mapping"),
    "a number for a parameter": (lambda: pcuq.FunctionModel(len, {"a": 1.0}, ["y"]),
                                 "must be a pcuq.Parameter"),
    "a number for a name": (lambda: pcuq.FunctionModel(len, {1: pcuq.Parameter()}, ["y"]),
                            "non-empty string"),
    "a name that is a coordinate of draws": (
        lambda: line({"chain": pcuq.Parameter()}), "choose another name"),
    "a name with a slash": (lambda: line({"a/b": pcuq.Parameter()}), "choose another name"),
    "a model that is no function": (lambda: pcuq.FunctionModel(1, FREE, ["y"]), "needs a function"),
    "no outputs": (lambda: pcuq.FunctionModel(len, FREE, []), "at least one name"),
    "a number of outputs": (lambda: pcuq.FunctionModel(len, FREE, 1), "sequence of names"),
    "text for outputs": (lambda: pcuq.FunctionModel(len, FREE, "y"), "sequence of names"),
    "an output twice": (lambda: pcuq.FunctionModel(len, FREE, ["y", "y"]), "more than once"),
    "a constant named like a parameter": (
        lambda: pcuq.FunctionModel(len, FREE, ["y"], {"a": 1.0}), "already a parameter"),
    "a constant that is NaN": (
        lambda: pcuq.FunctionModel(len, FREE, ["y"], {"c": NAN}), "finite number"),
    "constants as a list": (lambda: pcuq.FunctionModel(len, FREE, ["y"], [1.0]), "needs a mapping"),
    "a function with too many results": (
        lambda: pcuq.FunctionModel(lambda x, p: [1.0, 2.0], FREE, ["y"]).solver([0.0]),
        "needs 1 numbers"),
    "a function that asks for what is not there": (
        lambda: pcuq.FunctionModel(lambda x, p: p["b"], FREE, ["y"]).solver([0.0]), "not known"),
    "a function that branches on a parameter": (
        lambda: pcuq.FunctionModel(lambda x, p: max(p["a"], 0.0), FREE, ["y"]).solver([0.0]),
        "jnp.where"),
    "text for covariates": (lambda: line().solver(["now"]), "`x` needs numbers"),
    "an infinite covariate of a function": (lambda: line().solver([0.0, INF]), "finite covariates"),
    "a right-hand side that is no function": (lambda: ode(rhs=3), "needs a function"),
    "a right-hand side of the wrong length": (
        lambda: ode(rhs=lambda t, u, p: [u[0], u[0]]), "`rhs` needs 1 numbers"),
    "a right-hand side that returns nothing": (lambda: ode(rhs=lambda t, u, p: None), "`rhs`"),
    "a right-hand side that raises": (lambda: ode(rhs=lambda t, u, p: 1 / 0), "ZeroDivisionError"),
    "a right-hand side with an unknown name": (
        lambda: ode(rhs=lambda t, u, p: p["b"] * u), "not known"),
    "an initial state that is NaN": (lambda: ode(initial=[NAN]), "finite numbers"),
    "no initial state": (lambda: ode(initial=[]), "k ≥ 1 numbers"),
    "an initial state with an unknown name": (lambda: ode(initial={"u": "b"}), "no parameter or"),
    "a state named like a parameter": (lambda: ode(initial={"a": 1.0}), "already a parameter"),
    "states and initial values that differ": (lambda: ode(states=["v"]), "one value for each"),
    "an output that is no state": (lambda: ode(outputs=["v"]), "without `observe`"),
    "observe without outputs": (lambda: ode(observe=lambda t, u, p: u), "needs `outputs`"),
    "a start that is NaN": (lambda: ode(t0=NAN), "`t0` needs a finite number"),
    "a start that is text": (lambda: ode(t0="now"), "`t0` needs a finite number"),
    "a break that is infinite": (lambda: ode(breaks=[INF]), "`breaks` needs a finite number"),
    "a number of breaks": (lambda: ode(breaks=3), "`breaks` needs a sequence"),
    "times that are not sorted": (lambda: ode().solver([1.0, 0.0]), "sorted and distinct"),
    "times that come twice": (lambda: ode().solver([1.0, 1.0]), "sorted and distinct"),
    "a time before the start": (lambda: ode(t0=1.0).solver([0.5]), "before the model's start"),
    "no times": (lambda: ode().solver([]), "1-D array"),
    "a time that is NaN": (lambda: ode().solver([NAN]), "finite times"),
    "an unknown way to solve": (lambda: ode().solver([1.0], method="magic"), "`method` needs one"),
    "a tolerance of zero": (lambda: ode().solver([1.0], tolerance=0.0), "between 0 and 1"),
    "an unknown derivative": (lambda: ode().solver([1.0], mode="sideways"), "`mode` needs one"),
    "text for times to simulate": (lambda: ode().simulate(["now"]), "`times` needs numbers"),
    "a simulation of an unknown parameter": (
        lambda: ode().simulate([1.0], {"b": 1.0}), "unknown parameters"),
    "a simulation of text": (lambda: ode().simulate([1.0], {"a": "big"}), "needs numbers"),
    "a simulation of a NaN": (lambda: ode().simulate([1.0], {"a": NAN}), "finite number"),
    "a simulation of a list": (lambda: ode().simulate([1.0], [1.0]), "needs a mapping"),
    "no workers": (lambda: pcuq.ExternalModel(len, FREE, ["y"], workers=0), "at least 1"),
    "a step of zero": (lambda: pcuq.ExternalModel(len, FREE, ["y"], step=0.0), "`step` needs"),
    # data
    "no data": (lambda: data([]), "`y` is empty"),
    "data of three dimensions": (lambda: pcuq.Data(np.zeros((2, 2, 2))), "needs shape"),
    "data that are one number": (lambda: pcuq.Data(3.0), "needs shape"),
    "data that are text": (lambda: data(["high", "low"]), "`y` needs numbers"),
    "data that are nothing": (lambda: pcuq.Data(None), "`y`"),
    "data that are complex": (lambda: data([1j, 2j]), "`y` needs numbers"),
    "rows of unequal length": (lambda: pcuq.Data([[1.0], [1.0, 2.0]]), "unequal length"),
    "an infinite datum": (lambda: data([1.0, INF]), "mark missing values NaN"),
    "a row with nothing in it": (lambda: data([1.0, NAN]), "rows with nothing observed"),
    "too few covariates": (lambda: data(x=[0.0]), "one row per `x`"),
    "a covariate that is NaN": (lambda: data(x=[0.0, NAN]), "`x` must be finite"),
    "a covariate that is −∞": (lambda: data(x=[0.0, -INF]), "`x` must be finite"),
    "dates for covariates": (
        lambda: data(x=np.array(["2024-01-01", "2024-01-02"], "M8[D]")), "`x` needs numbers"),
    "noise of zero": (lambda: data(noise=0.0), "positive and finite"),
    "negative noise": (lambda: data(noise=-1.0), "positive and finite"),
    "noise that is NaN": (lambda: data(noise=NAN), "positive and finite"),
    "noise that is infinite": (lambda: data(noise=INF), "positive and finite"),
    "noise of zero at one datum": (lambda: data(noise=[[1.0], [0.0]]), "positive and finite"),
    "noise of the wrong shape": (lambda: data(noise=[1.0, 2.0, 3.0]), "got shape"),
    "no noise": (lambda: data(noise=None), "`noise` needs"),
    "an empty list of noise": (lambda: data(noise=[]), "`noise` is empty"),
    "one noise model for two outputs": (
        lambda: pcuq.Data(np.ones((2, 2)), noise=[pcuq.Gaussian()]), "one model per output"),
    "negative data under log noise": (
        lambda: data([-1.0, 1.0], noise=pcuq.LogNormal(0.1)), "positive"),
    "zero under log noise": (lambda: data([0.0, 1.0], noise=pcuq.LogNormal(0.1)), "positive"),
    "fractions under Poisson noise": (
        lambda: data([0.5, 1.0], noise=pcuq.Poisson()), "needs counts"),
    "negative counts": (lambda: data([-1.0, 1.0], noise=pcuq.Poisson()), "needs counts"),
    "an unknown transform of noise": (lambda: pcuq.Gaussian(1.0, "sqrt"), "`transform` of noise"),
    "degrees of freedom of zero": (lambda: pcuq.StudentT(1.0, df=0), "`df`"),
    "degrees of freedom as text": (lambda: pcuq.StudentT(1.0, df="4"), "`df`"),
    "noise of one's own without a density": (lambda: pcuq.CustomNoise(1.0), "needs `log_pdf`"),
    "joint noise without draws": (lambda: pcuq.JointNoise(1.0), "needs `draw`"),
    "labels for some rows": (lambda: data(condition=["a"]), "one label per row"),
    "a name for two columns": (
        lambda: pcuq.Data(np.ones((2, 2)), outputs=["y", "y"]), "different names"),
    "text for names of columns": (
        lambda: pcuq.Data(np.ones((2, 2)), outputs="yz"), "different names"),
    "a table without the column": (
        lambda: pcuq.Data.from_frame(pd.DataFrame({"y": [1.0]}), "time"), "no column"),
    "a table with a column twice": (
        lambda: pcuq.Data.from_frame(pd.DataFrame([[0, 1, 2]], columns=["time", "y", "y"])),
        "same name"),
    "a table that is a list": (lambda: pcuq.Data.from_frame([1.0]), "pandas.DataFrame"),
    "a table without rows": (
        lambda: pcuq.Data.from_frame(pd.DataFrame({"time": [], "y": []})), "`y` is empty"),
    # kernels and problems
    "a lengthscale of zero": (lambda: pcuq.GaussianKernel(0.0), "`lengthscale_y` needs a positive"),
    "a negative lengthscale across": (
        lambda: pcuq.GaussianKernel(lengthscale_x=-1.0), "must not be negative"),
    "a lengthscale that is NaN": (lambda: pcuq.GaussianKernel(NAN), "`lengthscale_y` needs"),
    "a lengthscale that is text": (lambda: pcuq.GaussianKernel("wide"), "`lengthscale_y` needs"),
    "an unknown combination": (lambda: pcuq.GaussianKernel(combine="mean"), "`combine` needs"),
    "multiples that are text": (lambda: pcuq.GaussianMixtureKernel(multiples="12"), "`multiples`"),
    "an exponent of zero": (lambda: pcuq.RationalQuadraticKernel(alpha=0.0), "`alpha` must be"),
    "an exponent that is text": (lambda: pcuq.RationalQuadraticKernel(alpha="1"), "`alpha` needs"),
    "a model that is none": (lambda: pcuq.Problem(3, data()), "`model` needs"),
    "data that are a list": (lambda: pcuq.Problem(line(), [1.0]), "`data` needs"),
    "a kernel that is text": (lambda: pcuq.Problem(line(), data(), "gaussian"), "`kernel` needs"),
    "nothing to infer": (
        lambda: pcuq.Problem(ode(parameters={}, constants={"a": 1.0}), data()),
        "at least one parameter"),
    "too many columns": (lambda: pcuq.Problem(line(), pcuq.Data(np.ones((2, 2)), [0, 1])),
                         "one column per output"),
    "an output that the model does not have": (
        lambda: pcuq.Problem(line(), data(outputs=["z"])), "does not have"),
    "noise named like nothing": (lambda: pcuq.Problem(line(), data(noise="sigma")), "no parameter"),
    "an ODE without times": (lambda: pcuq.Problem(ode(), data(x=None)), "one time per row"),
    "data before the start": (
        lambda: pcuq.Problem(ode(t0=0.5), data()), "before the model's start"),
    "rest of what is no ODE": (lambda: pcuq.Problem(line(), data(x=[0.0, INF])), "state of rest"),
    "lengthscales of other outputs": (
        lambda: pcuq.Problem(line(), data(), pcuq.GaussianKernel([1.0, 2.0])),
        "one number per output"),
    "a condition without meaning": (
        lambda: pcuq.Problem(line(), data(condition=["a", "b"]), conditions={"a": None}),
        "does not define"),
    "a condition that is a number": (
        lambda: pcuq.Problem(line(), data(condition=["a", "a"]), conditions={"a": 3}),
        "needs a pcuq.Intervention"),
    "conditions as a list": (
        lambda: pcuq.Problem(line(), data(), conditions=["a"]), "needs a mapping"),
    "a nominal point of two numbers": (
        lambda: pcuq.Problem(line(), data(), nominal=[0.0, 0.0]), "`nominal` needs 1"),
    "a nominal point that is text": (
        lambda: pcuq.Problem(line(), data(), nominal="here"), "`nominal`"),
    "rows that are none": (lambda: PROBLEM.take([False, False]), "at least one row"),
    "too many data to compare with each other": (
        lambda: pcuq.Problem(line(), pcuq.Data(np.ones(10**6), np.arange(10**6)),
                             pcuq.GaussianKernel(lengthscale_x=1.0)).design,
        r"about 64 TB of memory"),
    # interventions
    "an intervention on nothing": (lambda: pcuq.Intervention(), "something to change"),
    "an intervention on an unknown name": (
        lambda: line().do(pcuq.Intervention(set={"b": 1.0})), "unknown name 'b'"),
    "an intervention by NaN": (lambda: pcuq.Intervention(scale={"a": NAN}), "finite number"),
    "an intervention at infinity": (lambda: pcuq.Intervention(set={"a": 1.0}, at=INF), "finite"),
    "an intervention in time on a function": (
        lambda: line().do(pcuq.Intervention(set={"a": 1.0}, at=1.0)), "no time and no states"),
    "an intervention before the start": (
        lambda: ode().do(pcuq.Intervention(set={"a": 1.0}, at=-1.0)), "before the model's start"),
    "holding a parameter": (
        lambda: ode().do(pcuq.Intervention(set={"a": 1.0}, hold=True)), "is for states"),
    "holding without a value": (
        lambda: pcuq.Intervention(scale={"u": 1.0}, hold=True), "value in `set`"),
    "a list of texts to do": (lambda: line().do(["a=1"]), "pcuq.Intervention objects"),
    "a rest with a time": (
        lambda: Equilibration((pcuq.Intervention(set={"a": 1.0}, at=1.0),)), "leave `at` out"),
    "an intervention that cannot be read": (lambda: parse("a is 3"), "cannot read"),
    "an intervention without a number": (lambda: parse("a=much"), "is not a number"),
    "a division by zero": (lambda: parse("a/=0"), "divide by zero"),
    # fits
    "a fit of a model": (lambda: pcuq.fit(line()), "`problem` needs a pcuq.Problem"),
    "an unknown method": (lambda: fit(method="magic"), "`method` needs one of"),
    "an unknown sampler": (lambda: fit(sampler="gibbs"), "`sampler` needs one of"),
    "a sampler of another method": (lambda: fit(method="bayes", sampler="flow"), "`sampler` for"),
    "λ of zero": (lambda: fit(regularisation=0), "λ > 0: got 0"),
    "a negative λ": (lambda: fit(regularisation=-1.0), "λ > 0"),
    "λ that is NaN": (lambda: fit(regularisation=NAN), "λ > 0"),
    "an infinite λ": (lambda: fit(regularisation=INF), "λ > 0"),
    "λ that is text": (lambda: fit(regularisation="small"), "λ > 0: got 'small'"),
    "λ that is nothing": (lambda: fit(regularisation=None), "λ > 0: got None"),
    "λ that is True": (lambda: fit(regularisation=True), "λ > 0: got True"),
    "several λ": (lambda: fit(regularisation=[1.0, 2.0]), "λ > 0"),
    "one particle": (lambda: fit(particles=1), "`particles` needs a whole number of at least 2"),
    "half a particle": (lambda: fit(particles=2.5), "`particles` needs"),
    "particles that are NaN": (lambda: fit(particles=NAN), "`particles` needs"),
    "particles as text": (lambda: fit(particles="50"), "`particles` needs"),
    "no particles": (lambda: fit(particles=None), "`particles` needs"),
    "infinitely many systems": (lambda: fit(systems=INF), "`systems` needs"),
    "a negative warm-up": (lambda: fit(warmup=-1), "`warmup` needs"),
    "two draws": (lambda: fit(draws=2), "`draws` needs"),
    "thinned to nothing": (lambda: fit(thin=0), "`thin` needs"),
    "a negative seed": (lambda: fit(seed=-1), "`seed` needs"),
    "a seed that is text": (lambda: fit(seed="random"), "`seed` needs"),
    "no seed": (lambda: fit(seed=None), "`seed` needs"),
    "a seed that is too large": (lambda: fit(seed=2**32), "`seed` needs"),
    "a β of zero": (lambda: fit(method="mmd-bayes", beta=0), "`beta` needs"),
    "a β that is a word": (lambda: fit(method="mmd-bayes", beta="large"), "`beta` needs"),
    "an unknown solver": (lambda: fit(solver="magic"), "`solver` needs one of"),
    "a mesh without error": (lambda: fit(mesh_tolerance=0.0), "`mesh_tolerance` needs"),
    "a mesh tolerance that is text": (lambda: fit(mesh_tolerance="fine"), "`mesh_tolerance` needs"),
    "a listener that cannot be told": (lambda: fit(progress=3), "`progress` needs a function"),
    "a batch for a sampler without": (lambda: fit(pair_batch=8), "`pair_batch` is for"),
    "a batch of one": (lambda: fit(sampler="flow", pair_batch=1), "`pair_batch` needs"),
    "more devices than there are": (lambda: fit(sampler="mala", devices=1000), "`devices` needs"),
    "devices as text": (lambda: fit(sampler="mala", devices="all"), "`devices` needs"),
    "to go on with nothing": (lambda: fit(resume=True), "needs the folder"),
    "a thousand million particles": (lambda: fit(particles=10**9), r"about [\d.]+ EB of memory"),
    "a million million draws": (lambda: fit(draws=10**12), r"about [\d.]+ PB of memory"),
    "a thousand million systems": (lambda: fit(systems=10**9), r"about [\d.]+ TB of memory"),
    "a million million iterations of warm-up": (lambda: fit(warmup=10**12), "PB of memory"),
    "one draw out of ten thousand million": (lambda: fit(thin=10**10), "TB of memory"),
    "too many particles for another sampler": (
        lambda: fit(sampler="mala", particles=10**12), "PB of memory"),
    # what is read off
    "a prediction at text": (lambda: predict(["now"]), "`x` needs numbers"),
    "a prediction at NaN": (lambda: predict([NAN]), "finite covariates"),
    "a prediction nowhere": (lambda: predict([]), "finite covariates"),
    "a prediction at rows of covariates": (lambda: predict([[0.0, 1.0]]), "rows like the data's"),
    "a prediction of another problem": (lambda: predict(problem=3), "`problem` needs"),
    "draws with too many columns": (lambda: predict(thetas=[[0.0, 1.0]]), "`thetas` needs"),
    "a draw that is NaN": (lambda: predict(thetas=[[NAN]]), "`thetas` needs finite"),
    "draws that are text": (lambda: predict(thetas=[["a"]]), "`thetas` needs numbers"),
    "weights of other draws": (lambda: predict(weights=[0.5, 0.5]), "`weights` needs 1"),
    "weights that are text": (lambda: predict(weights=["all"]), "`weights` needs numbers"),
    "a negative weight": (lambda: predict(weights=[-1.0]), "`weights` needs"),
    "an unknown condition": (lambda: predict(condition="treated"), "unknown condition"),
    "to do what cannot be read": (lambda: predict(do="a is 3"), "cannot read"),
    "to do a number": (lambda: predict(do=[3]), "`do` needs"),
    "a prediction's seed that is text": (lambda: predict(seed="random"), "`seed` needs"),
    "no draws of a prediction": (lambda: predict(max_draws=0), "`max_draws` needs"),
    "a million million prior draws": (
        lambda: pcuq.prior_predictive(PROBLEM, [0.0], draws=10**12), "TB of memory"),
    "a prediction at too many points": (
        lambda: predict(np.arange(10.0**6), np.zeros((10**5, 1)), max_draws=None), "TB of memory"),
    "a grid of the wrong shape": (
        lambda: pcuq.solve_on_grid(PROBLEM, 1e-2, [0.0, 1.0], 1.0), "`points` needs shape"),
    "a grid with a NaN": (lambda: pcuq.solve_on_grid(PROBLEM, 1e-2, [[NAN]], 1.0), "finite values"),
    "a grid of text": (lambda: pcuq.solve_on_grid(PROBLEM, 1e-2, [["a"]], 1.0), "`points` needs"),
    "a grid without volume": (lambda: pcuq.solve_on_grid(PROBLEM, 1e-2, POINT, 0.0), "positive"),
    "a grid of a million points": (
        lambda: pcuq.solve_on_grid(PROBLEM, 1e-2, np.zeros((10**6, 1)), 1.0),
        "about 16 TB of memory"),
    "κ of two numbers": (lambda: pcuq.kappa(PROBLEM, [0.0, 1.0], [0.0]), "θ needs one number"),
    "κ of text": (lambda: pcuq.kappa(PROBLEM, ["a"], [0.0]), "θ needs numbers"),
    "κ of a model": (lambda: pcuq.kappa(line(), [0.0], [0.0]), "`problem` needs"),
    "MMD² with weights of others": (
        lambda: pcuq.mmd2(PROBLEM, POINT, [0.5, 0.5]), "one number per particle"),
    "a density for λ of zero": (lambda: pcuq.joint_log_density(PROBLEM, 0.0), "λ > 0"),
    "a likelihood of two numbers": (
        lambda: pcuq.log_likelihood(PROBLEM, [0.0, 1.0]), "θ needs one number"),
    "a calibration without data sets": (
        lambda: pcuq.calibrate(PROBLEM, replicates=0), "`replicates` needs"),
    "a selection of λ for no problem": (lambda: pcuq.select_by_score(None), "`problem` needs"),
    "a check with too few data sets": (lambda: pcuq.check(PROBLEM, replicates=5), "at least 19"),
    "a check with a negative λ": (lambda: pcuq.check(PROBLEM, regularisation=-1.0), "λ > 0"),
    # files
    "a run that is not there": (lambda: pcuq.load("none.nc"), "there is no file"),
    "a run that is a folder": (lambda: pcuq.load(tempfile.gettempdir()), "it is a folder"),
    "a run that cannot be read": (lambda: pcuq.load("/proc/self/mem"), "cannot be read"),
    "a run with too long a name": (lambda: pcuq.load("a" * 5000), "there is no file"),
    "a run that is a number": (lambda: pcuq.load(3), "a path was wanted"),
    "a run that is text": (lambda: pcuq.load(__file__), "not a readable netCDF"),
    "a checkpoint below a file": (
        lambda: fit(checkpoint=Path(__file__) / "kept", resume=True), "no checkpoint to resume"),
}  # fmt: skip


def refused(act) -> str:
    """The sentence with which it is refused."""
    with pytest.raises(pcuq.InputError) as caught:
        act()
    return str(caught.value)


@pytest.mark.parametrize("kind", PYTHON)
def test_python_says_it_in_one_sentence(kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    act, words = PYTHON[kind]
    said = refused(act)
    assert re.search(words, said), said
    assert said.endswith(".") and len(said) < 600 and "Traceback" not in said
    assert not list(tmp_path.iterdir())


# --- the command line ----------------------------------------------------------------------------

FIT = ("fit", "line.py", "--regularisation", "1e-2")
TABLE = ("fit", "model.py", "--regularisation", "1e-2", "--data")
PROBLEM_FILE = ("--problem", "line.py")
FILES = {
    "line.py": LINE,
    "model.py": MODEL,
    "empty.py": "",
    "number.py": "problem = 3\n",
    "raises.py": "1 / 0\n",
    "exits.py": "import sys\nsys.exit(0)\n",
    "syntax.py": "problem = (\n",
    "bad_prior.py": "import pcuq\npcuq.Parameter('logg')\n",
    "data.csv": "time,y\n0,0.1\n1,0.6\n",
    "empty.csv": "",
    "header.csv": "time,y\n",
    "words.csv": "time,y\n0,high\n1,low\n",
    "twice.csv": "time,y,y\n0,1,2\n",
    "other.csv": "hour,z\n0,1\n",
    "ragged.csv": "time,y\n0,1,2,3\n1,2\n",
    "infinite.csv": "time,y\n0,inf\n",
    "gaps.csv": "time,y\n0,\n1,2\n",
    "no_time.csv": "time,y\n,1\n1,2\n",
    "not.yaml": "]",
    "list.yaml": "- 1\n",
    "date.yaml": "format_version: 2001-99-99\n",
    "version.yaml": "format_version: 7\n",
    "keys.yaml": "1: 2\nformat_version: 1\nproblems: []\n",
    "deep.yaml": "[" * 3000,
    "run.nc": "not a run",
    "problem.txt": LINE,
}
BINARY = b"\xff\xfe\x00\x9f\x80\n\x00"
CLI = {
    "no problem": (("fit",), "Missing argument"),
    "a problem that is not there": (("fit", "none.py"), "there is no file none.py"),
    "a problem that is a folder": (("fit", "."), "it is a folder"),
    "a problem of another kind": (("fit", "problem.txt"), "needs to be a PEtab YAML file"),
    "a problem with too long a name": (("fit", "a" * 5000), "there is no file"),
    "a file without problem": (("fit", "empty.py"), "needs to define `problem`"),
    "a file whose problem is a number": (("fit", "number.py"), "got int"),
    "a file that raises": (("fit", "raises.py"), "ZeroDivisionError"),
    "a file that exits": (("fit", "exits.py"), "SystemExit"),
    "a file that is no Python": (("fit", "syntax.py"), "SyntaxError"),
    "a file with a bad prior": (("fit", "bad_prior.py"), "`transform` needs one of"),
    "a file that is no text": (("fit", "binary.py"), "stopped with"),
    "a model without data": (("fit", "model.py"), "give its measurements with --data"),
    "an option that is not there": ((*FIT, "--lambda", "1"), "No such option"),
    "λ that is a word": ((*FIT[:2], "--regularisation", "small"), "needs a number or auto"),
    "λ of zero": ((*FIT[:2], "--regularisation", "0"), "λ > 0"),
    "λ that is NaN": ((*FIT[:2], "--regularisation", "nan"), "λ > 0"),
    "an unknown method": ((*FIT, "--method", "magic"), "`method` needs one of"),
    "an unknown sampler": ((*FIT, "--sampler", "gibbs"), "`sampler` needs one of"),
    "β that is a word": ((*FIT, "--beta", "big"), "--beta needs a number"),
    "one particle": ((*FIT, "--particles", "1"), "`particles` needs"),
    "half a particle": ((*FIT, "--particles", "2.5"), "--particles"),
    "a thousand million particles": ((*FIT, "--particles", "1000000000"), "of memory"),
    "a million million draws": ((*FIT, "--draws", "1000000000000"), "of memory"),
    "no systems": ((*FIT, "--systems", "0"), "`systems` needs"),
    "a negative seed": ((*FIT, "--seed", "-1"), "--seed"),
    "a seed that is too large": ((*FIT, "--seed", "4294967296"), "--seed"),
    "times that cannot be read": ((*FIT, "--times", "0:1"), "--times needs"),
    "too many times": ((*FIT, "--times", "0:1e9:1e-9"), "--times needs"),
    "an output of another kind": ((*FIT, "--out", "run.csv"), "--out needs a file ending in .nc"),
    "an output in no folder": ((*FIT, "--out", "no/run.nc"), "cannot be written"),
    "an output below a file": ((*FIT, "--out", "line.py/run.nc"), "cannot be written"),
    "an output where nothing may be written": (
        (*FIT, "--out", "/proc/run.nc"), "cannot be written"),
    "an output that is a folder": ((*FIT, "--out", "folder.nc"), "cannot be written"),
    "an output with too long a name": ((*FIT, "--out", "a" * 300 + ".nc"), "cannot be written"),
    "an output without room for its checkpoint's name": (
        (*FIT, "--out", "a" * 251 + ".nc"), "cannot be written"),
    "simulated checks with too long a name": (
        ("check", "line.py", "--null", "a" * 300 + ".npz"), "cannot be written"),
    "to go on with nothing": ((*FIT, "--resume", "--out", "new.nc"), "no checkpoint to resume"),
    "to go on and begin anew": ((*FIT, "--resume", "--restart"), "give one of them"),
    "noise without data": ((*FIT, "--noise", "0.1"), "give --data"),
    "a covariate without data": ((*FIT, "--x", "days"), "give --data"),
    "data for a PEtab problem": (("fit", "not.yaml", "--data", "data.csv", "--noise", "1"),
                                 "leave --data out"),
    "data that are not there": ((*TABLE, "none.csv", "--noise", "1"), "there is no file"),
    "data that are a folder": ((*TABLE, ".", "--noise", "1"), "it is a folder"),
    "data that cannot be read": ((*TABLE, "/proc/self/mem", "--noise", "1"), "cannot be read"),
    "data that are no text": ((*TABLE, "binary.csv", "--noise", "1"), "not text in UTF-8"),
    "data without noise": ((*TABLE, "data.csv"), "--data needs --noise"),
    "noise of zero": ((*TABLE, "data.csv", "--noise", "0"), "positive and finite"),
    "negative noise": ((*TABLE, "data.csv", "--noise=-1"), "positive and finite"),
    "noise named like nothing": ((*TABLE, "data.csv", "--noise", "sigma"), "no parameter"),
    "noise that is empty": ((*TABLE, "data.csv", "--noise", ","), "--noise needs"),
    "an empty table": ((*TABLE, "empty.csv", "--noise", "1"), "cannot be read as CSV"),
    "a table of a header": ((*TABLE, "header.csv", "--noise", "1"), "`y` is empty"),
    "a table of words": ((*TABLE, "words.csv", "--noise", "1"), "`y` needs numbers"),
    "a table with a column twice": ((*TABLE, "twice.csv", "--noise", "1"), "same name"),
    "a table of something else": ((*TABLE, "other.csv", "--noise", "1"), "no column named like"),
    "a table with rows of unequal length": (
        (*TABLE, "ragged.csv", "--noise", "1"), "than the header"),
    "a table with an infinite value": ((*TABLE, "infinite.csv", "--noise", "1"), "infinite"),
    "a table with an empty row": ((*TABLE, "gaps.csv", "--noise", "1"), "nothing observed"),
    "a table with a time missing": ((*TABLE, "no_time.csv", "--noise", "1"), "`x` must be finite"),
    "a table without the column of times": (
        (*TABLE, "data.csv", "--noise", "1", "--x", "hour"), "no column"),
    "a table without the column of outputs": (
        (*TABLE, "data.csv", "--noise", "1", "--outputs", "z"), "no column"),
    "a table without the column of conditions": (
        (*TABLE, "data.csv", "--noise", "1", "--condition", "arm"), "no column"),
    "YAML that is none": (("fit", "not.yaml"), "not valid YAML"),
    "YAML that is a list": (("fit", "list.yaml"), "no PEtab problem"),
    "YAML with a date that is none": (("fit", "date.yaml"), "not valid YAML"),
    "YAML with numbers for keys": (("fit", "keys.yaml"), "needs one entry"),
    "YAML that is nested too deeply": (("fit", "deep.yaml"), "not valid YAML"),
    "PEtab of another version": (("fit", "version.yaml"), "1 and 2 are supported"),
    "YAML that is no text": (("fit", "binary.yaml"), "not text in UTF-8"),
    "a run that is not there": (("predict", "none.nc", *PROBLEM_FILE), "there is no file"),
    "a run that is none": (("predict", "run.nc", *PROBLEM_FILE), "not a readable netCDF"),
    "a run that is a folder": (("predict", "folder.nc", *PROBLEM_FILE), "it is a folder"),
    "a prediction of another kind": (("predict", "run.nc", "--out", "p.txt"), "--out needs a file"),
    "a prediction at no times": (("predict", "run.nc", "--times", ""), "--times needs"),
    "a report of nothing": (("report",), "Missing argument"),
    "a report of no run": (("report", "run.nc"), "not a readable netCDF"),
    "a report of another kind": (("report", "run.nc", "--out", "r.pdf"), "--out needs a file"),
    "a score of nothing": (("score", "run.nc"), "after it the held-out problem"),
    "an exploration of no run": (("explore", "run.nc", "--no-open"), "not a readable netCDF|panel"),
    "a port that is none": (("explore", "run.nc", "--port", "70000"), "--port"),
    "a check with too few data sets": (("check", "line.py", "--replicates", "5"), "--replicates"),
    "a check with a negative λ": (
        ("check", "line.py", "--regularisation=-1", "--replicates", "19"), "λ > 0"),
    "a check with a null that is none": (
        ("check", "line.py", "--null", "data.csv", "--regularisation", "1"), "simulated checks"),
    "a calibration without data sets": (
        ("calibrate", "line.py", "--replicates", "0"), "`replicates`"),
    "a calibration's plot of another kind": (
        ("calibrate", "line.py", "--plot", "c.txt"), "needs a file ending in"),
    "a study of another kind": (
        ("study", "magic", "--problem", "line.py", "--out", "s"), "a study is one of"),
    "a study of nothing": (("study", "coverage", "--problem", "none.py", "--out", "s"), "no file"),
    "a study of a million million sets": (
        ("study", "coverage", "--problem", "line.py", "--out", "s", "--replicates",
        "1000000000000"),
        "`replicates` needs"),
    "a study of YAML that is none": (
        ("study", "coverage", "--problem", "not.yaml", "--out", "s"), "not valid YAML"),
    "a study with two places to run": (
        ("study", "coverage", "--problem", "line.py", "--out", "s", "--workers", "1", "--scheduler",
         "tcp://127.0.0.1:1"), "exclude each other"),
    "a demonstration below a file": (("demo", "--out", "line.py/demo"), "cannot be a folder"),
    "an unknown experiment": (("reproduce", "magic", "--out", "made"), "magic"),
    "an unknown command": (("magic",), "No such command"),
}  # fmt: skip


@pytest.fixture
def workplace(tmp_path, monkeypatch) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    for name in ("binary.py", "binary.csv", "binary.yaml"):
        (tmp_path / name).write_bytes(BINARY)
    (tmp_path / "folder.nc").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("kind", CLI)
def test_the_command_line_says_it_in_one_sentence(kind, workplace):
    arguments, words = CLI[kind]
    before = {path: path.stat().st_mtime_ns for path in sorted(workplace.rglob("*"))}
    result = CliRunner().invoke(cli.app, list(arguments))
    assert result.exit_code == 2, (result.exit_code, result.output, result.exception)
    said = " ".join(re.sub("[│╭╮╰╯─]", " ", result.stderr).split())
    assert re.search(words, said), said
    assert "Traceback" not in said and result.stdout == ""
    made = {path: path.stat().st_mtime_ns for path in sorted(workplace.rglob("*"))}
    made = {path: when for path, when in made.items() if "__pycache__" not in path.parts}
    assert made == before
    errors = [line for line in result.stderr.splitlines() if line.lower().startswith("error")]
    assert len(errors) <= 1


# --- SBML ----------------------------------------------------------------------------------------

ONE = sb.species("A", concentration=1)
COMP = "http://www.sbml.org/sbml/level3/version1/comp/version1"
SBML = {
    "no XML": ("A + B -> C", "not valid SBML"),
    "an empty file": ("", "not valid SBML"),
    "XML of something else": ("<html/>", "not valid SBML|no SBML model"),
    "no model": ('<?xml version="1.0"?><sbml xmlns="http://www.sbml.org/sbml/level3/version2/core" '
                 'level="3" version="2"/>', "no SBML model"),
    "a document that ends early": (sb.model(species=ONE)[:-20], "not valid SBML"),
    "an id twice": (sb.model(species=ONE, parameters=sb.parameter("A", 1.0)), "twice"),
    "a species in no compartment": (
        sb.model(species=sb.species("A", concentration=1, compartment="D")), "does not have"),
    "a reaction of an unknown species": (
        sb.model(species=ONE, reactions=sb.reaction("r", "1", {"B": 1})), "no species"),
    "a rate with an unknown name": (
        sb.model(species=ONE, reactions=sb.reaction("r", "k*A", {"A": 1})), "does not have"),
    "rules in a circle": (
        sb.model(parameters=sb.parameter("p", 1.0, False) + sb.parameter("q", 1.0, False),
                 rules=sb.assignment("p", "q") + sb.assignment("q", "p")), "circular"),
    "two rules for one thing": (
        sb.model(parameters=sb.parameter("p", 1.0, False),
                 rules=sb.assignment("p", "1") + sb.assignment("p", "2")),
        "more than one rule|not valid"),
    "an algebraic rule": (
        sb.model(parameters=sb.parameter("p", 1.0, False),
                 rules=f"<algebraicRule>{sb.math('p - 1')}</algebraicRule>"), "not supported"),
    "a delay": (sb.model(species=ONE, rules=sb.rate("A", "delay(A, 1)")), "delay"),
    "an event of the state": (
        sb.model(species=ONE, events=sb.event("e", "A < 0.5", {"A": "1"})), "not supported"),
    "a function that is not defined": (
        sb.model(species=ONE, rules=sb.rate("A", "f(A)")), "does not define"),
    "a species without a start": (
        sb.model(species=sb.species("A"), rules=sb.rate("A", "A")), "no value|nan"),
    "a start that is infinite": (
        sb.model(species=ONE, initial=sb.start("A", "1/0"), rules=sb.rate("A", "A")),
        "finite number"),
    "a fast reaction": (
        sb.model(species=ONE, reactions=sb.reaction("r", "A", {"A": 1}, more='fast="true"'),
                 level=(3, 1)), "fast"),
    "a package that is not supported": (
        sb.model(species=ONE, packages=f'xmlns:comp="{COMP}" comp:required="true"').replace(
            "</model>", '<comp:listOfPorts><comp:port comp:idRef="A" comp:id="in"/>'
            "</comp:listOfPorts></model>"), "package"),
}  # fmt: skip


@pytest.mark.parametrize("kind", SBML)
def test_sbml_is_refused_in_one_sentence(kind, tmp_path):
    text, words = SBML[kind]
    path = tmp_path / "model.xml"
    path.write_text(text)
    said = refused(lambda: pcuq.from_sbml(path))
    assert re.search(words, said), said
    assert "\n" not in said and said.endswith(".")


def test_sbml_that_is_not_there_or_a_folder_is_refused(tmp_path):
    assert "no SBML file" in refused(lambda: pcuq.from_sbml(tmp_path / "none.xml"))
    assert "it is a folder" in refused(lambda: pcuq.from_sbml(tmp_path))


# --- PEtab ---------------------------------------------------------------------------------------


def changed(table: str, old: str, new: str, files=petab_text.V1) -> dict[str, str]:
    name = next(name for name in files if name.split(".")[0] == table)
    assert old in files[name]
    return {table: files[name].replace(old, new)}


MEASURED = "observableId\tsimulationConditionId\ttime\tmeasurement\n"
PETAB = {
    "no measurements": ({"measurements": MEASURED}, "no rows|at least one"),
    "a table of measurements that is empty": ({"measurements": ""}, "measurements|cannot be read"),
    "a table that is not there": ({"measurements": None}, "which is not there"),
    "a model that is not there": ({"model": None}, "which is not there"),
    "a model that is none": ({"model": "<sbml/>"}, "model.xml"),
    "two problems": (changed("problem", "problems:\n-", "problems:\n- {}\n-"), "one entry"),
    "a measurement that is a word": (changed("measurements", "0.7", "high"), "high"),
    "a measurement that is NaN": (changed("measurements", "0.7", "nan"), "."),
    "a measurement that is infinite": (changed("measurements", "0.7", "inf"), "infinite|finite"),
    "a time that is a word": (changed("measurements", "c0\t0\t", "c0\tlater\t"), "later"),
    "a time before the start": (changed("measurements", "c0\t0\t", "c0\t-1\t"), "before|-1"),
    "an unknown observable": (changed("measurements", "obs_a\tc0\t0", "obs_b\tc0\t0"), "obs_b"),
    "an unknown condition": (changed("measurements", "obs_a\tc0\t0", "obs_a\tc1\t0"), "c1"),
    "noise of zero": (changed("observables", "A\t0.5", "A\t0"), "must be positive"),
    "negative noise": (changed("observables", "A\t0.5", "A\t-1"), "must be positive"),
    "an observable of an unknown name": (changed("observables", "A\t0.5", "Z\t0.5"), "Z"),
    "an observable twice": (
        {"observables": petab_text.V1["observables.tsv"] + "obs_a\tB\t0.5\n"}, "twice|obs_a"),
    "code for a formula": (
        changed("observables", "A\t0.5", "__import__('os').getcwd()\t0.5"), "observableFormula"),
    "an unknown scale": (changed("parameters", "log10", "log7"), "log7|parameterScale"),
    "bounds the wrong way round": (changed("parameters", "0.01\t10", "10\t0.01"), "lowerBound"),
    "bounds that are NaN": (changed("parameters", "0.01\t10", "nan\t10"), "lowerBound"),
    "a nominal value outside its bounds": (changed("parameters", "10\t0.8", "10\t80"), "outside"),
    "a negative bound on a log scale": (changed("parameters", "0.01\t10", "-1\t10"), "positive"),
    "nothing to estimate": (
        {"parameters": petab_text.V1["parameters.tsv"].replace("\t1\n", "\t0\n")}, "estimates no"),
    "a parameter twice": (
        {"parameters": petab_text.V1["parameters.tsv"] + "k1\tlog10\t0.01\t10\t0.8\t1\n"},
        "k1|twice"),
    "a parameter that is a species": (changed("parameters", "k1\t", "A\t"), "A"),
    "a parameter of nothing": (changed("parameters", "k1\t", "k9\t"), "remove it"),
    "a parameter named time": (changed("parameters", "k1\t", "time\t"), "remove it"),
    "a condition of an unknown name": (
        {"conditions": "conditionId\tk9\nc0\t1\n"}, "k9"),
    "a condition twice": ({"conditions": "conditionId\nc0\nc0\n"}, "c0|twice"),
    "a file outside the folder": (
        changed("problem", "[measurements.tsv]", "[../../none.tsv]"), "which is not there"),
}  # fmt: skip


@pytest.mark.parametrize("kind", PETAB)
def test_petab_is_refused_in_one_sentence(kind, tmp_path):
    changes, words = PETAB[kind]
    path = petab_text.write(tmp_path, petab_text.V1, **changes)
    said = refused(lambda: pcuq.from_petab(path))
    assert re.search(words, said), said
    assert "\n" not in said


def test_a_run_file_cannot_make_pcuq_read_other_files(tmp_path):
    from pcuq.io.source import petab_source, rebuild

    source = petab_source(petab_text.write(tmp_path, petab_text.V1))
    text = source.files["problem.yaml"]
    for name in ("/etc/passwd", "../../etc/passwd", "http://127.0.0.1:9/measurements.tsv"):
        source.files["problem.yaml"] = text.replace("measurements.tsv", name)
        assert re.search("does not hold|lies outside", refused(lambda: rebuild(source)))


# --- what is unusual, and is not bad -------------------------------------------------------------


def test_the_table_is_as_long_as_it_should_be():
    """As docs/reliability.md says."""
    lengths = len(PYTHON), len(CLI), len(SBML), len(PETAB)
    page = (Path(__file__).parents[2] / "docs" / "reliability.md").read_text(encoding="utf-8")
    n = r"(\d+)"
    words = rf"table of {n} kinds: {n} in Python, {n} on the command\s+line, {n} in SBML and {n}"
    said = re.search(words, page)
    assert said is not None
    assert tuple(map(int, said.groups())) == (sum(lengths), *lengths)


@pytest.mark.parametrize("name", ["lambda", "time", "λ", "class", "x", "a b", "a.b"])
def test_names_are_only_names(name):
    """They are never evaluated, so none of Python's own words is in the way."""
    problem = pcuq.Problem(line({name: pcuq.Parameter("identity")}), data())
    assert problem.parameters.names == (name,)
    assert parse(f"{name}*=2").scale == {name: 2.0}


def test_numbers_in_32_bits_are_the_same_numbers():
    y, x = np.array([0.5, 1.25]), np.array([0.0, 1.5])
    wide, narrow = pcuq.Data(y, x, 0.5), pcuq.Data(*np.float32([y, x]), np.float32(0.5))
    assert narrow.y.dtype == narrow.x.dtype == np.float64
    fingerprints = {pcuq.Problem(line(), each).fingerprint for each in (wide, narrow)}
    assert len(fingerprints) == 1


def test_data_in_any_order_and_with_replicates_are_fine():
    problem = pcuq.Problem(ode(), data([1.0, 2.0, 3.0], [2.0, 0.5, 2.0]))
    assert problem.points.covariates[0].tolist() == [0.5, 2.0]


def test_what_is_masked_is_missing():
    y = np.ma.MaskedArray([[1.0, 2.0], [3.0, 4.0]], mask=[[False, True], [False, False]])
    assert np.isnan(pcuq.Data(y).y).tolist() == [[False, True], [False, False]]


if __name__ == "__main__":
    tables = {"Python": PYTHON, "command line": CLI, "SBML": SBML, "PEtab": PETAB}
    print({where: len(table) for where, table in tables.items()})
    for kind, (act, _) in PYTHON.items():
        print(f"{kind}: {refused(act)}")
