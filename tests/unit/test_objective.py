"""The objective against double loops over data and particles, over a grid of kinds of data."""

import math
from typing import NamedTuple

import brute_force
import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

from pcuq.data import Data
from pcuq.interventions import Intervention
from pcuq.kernels import GaussianKernel, GaussianMixtureKernel
from pcuq.models import FunctionModel
from pcuq.noise import Gaussian, LogNormal
from pcuq.objective import Objective
from pcuq.parameters import Parameter
from pcuq.problem import Problem

LAM = 0.03
LENGTHS = np.array([0.6, 1.1])
MULTIPLES, SHARES = (0.5, 2.0), (0.25, 0.75)


def law(time, p, xp):
    """Outputs u and v of the test model, both positive."""
    return [2 + p["a"] * xp.sin(time) * p["dose"], p["b"] * xp.exp(0.2 * time)]


def time_of(x):
    """The model's time: a covariate, two of them combined, or 0.4 where there are none."""
    return 0.4 if x is None else x if jnp.ndim(x) == 0 else x[0] + 0.5 * x[1]


PARAMETERS = {
    "a": Parameter("interval", lower=-1.0, upper=1.0),
    "b": Parameter("log", prior=dist.Normal(0.2, 0.7)),
    "sd": Parameter("log", prior=dist.LogNormal(-0.5, 0.5), prior_on="natural"),
}
CONDITIONS = {"control": None, "drug": Intervention(set={"dose": 0.3}, scale={"b": 1.5})}
MODEL = FunctionModel(
    lambda x, p: law(time_of(x), p, jnp), PARAMETERS, ("u", "v"), constants={"dose": 1.0}
)


def natural(theta):
    return {
        "a": -1 + 2 / (1 + jnp.exp(-theta[0])),
        "b": jnp.exp(theta[1]),
        "sd": jnp.exp(theta[2]),
    }


def log_prior(theta):
    """Written out: Normal(0, 1), Normal(0.2, 0.7), and log sd ~ Normal(−0.5, 0.5)."""
    squares = theta[0] ** 2 + ((theta[1] - 0.2) / 0.7) ** 2 + ((theta[2] + 0.5) / 0.5) ** 2
    return -squares / 2 - math.log(0.7 * 0.5) - 1.5 * math.log(2 * math.pi)


class Case(NamedTuple):
    """`noise`: what Data takes. `scale(p, u, v)`: the same for both columns, written out."""

    noise: object
    scale: object
    x: str = "replicates"
    conditions: bool = False
    missing: bool = False
    lengthscale_x: float = 0.0
    combine: str = "product"
    mixture: bool = False
    log: tuple[str, str] = ("identity", "identity")


PER_ROW = np.random.default_rng(3).uniform(0.3, 1.0, (9, 2))
X = {
    "none": None,
    "distinct": np.linspace(0.0, 4.0, 9),
    "replicates": np.array([0.0, 1, 1, 1, 2, 2, 3, 3.5, 3.5]),
    "table": np.array([[0.0, 1], [0, 1], [1, 0], [1, 2], [2, 0], [2, 0], [2, 1], [3, 1], [3, 1]]),
}
SHARED = (0.7, lambda p, u, v: (0.7, 0.7))
EACH = ([0.5, 0.9], lambda p, u, v: (0.5, 0.9))
BY_ROW = (PER_ROW, lambda p, u, v: PER_ROW.T)
NAMED = ("sd", lambda p, u, v: (p["sd"], p["sd"]))
NAMES = (["sd", 0.4], lambda p, u, v: (p["sd"], 0.4))
CALLED = (
    lambda x, w, p: jnp.stack([0.1 * w["v"] + p["sd"], 0.2 * w["u"] * p["dose"]]),
    lambda p, u, v: (0.1 * v + p["sd"], 0.2 * u),
)
LOGGED = (LogNormal([0.3, 0.5]), lambda p, u, v: (0.3, 0.5))
LOGGED_NAMED = (LogNormal("sd"), NAMED[1])
MIXED = ((Gaussian("sd"), LogNormal(0.4, transform="log10")), NAMES[1])

CASES = {
    "independent": Case(*SHARED, x="none"),
    "independent, rows differ, gaps": Case(*BY_ROW, x="none", missing=True),
    "everything at once": Case(*BY_ROW, conditions=True, missing=True),
    "everything, over x": Case(*BY_ROW, conditions=True, missing=True, lengthscale_x=0.8),
    "everything, sum, over x": Case(
        *BY_ROW, conditions=True, missing=True, combine="sum", lengthscale_x=0.8, mixture=True
    ),
    "named, over x, mixture": Case(*NAMED, missing=True, lengthscale_x=0.8, mixture=True),
    "names": Case(*NAMES, conditions=True, missing=True, combine="sum"),
    "called": Case(*CALLED, missing=True),
    "called, over x, sum": Case(*CALLED, lengthscale_x=0.5, combine="sum"),
    "several covariates, over x": Case(*NAMED, x="table", lengthscale_x=0.8),
    "log-normal": Case(*LOGGED, missing=True, log=("log", "log")),
    "log-normal, named, over x": Case(*LOGGED_NAMED, lengthscale_x=0.8, log=("log", "log")),
    "mixed scales": Case(*MIXED, missing=True, conditions=True, log=("identity", "log10")),
}


def problem_of(case: Case) -> tuple[Problem, brute_force.BruteForce, object]:
    rng = np.random.default_rng(1)
    x, n = X[case.x], 9
    y = np.exp(rng.normal(0.6, 0.4, (n, 2)))
    if case.missing:
        y[[1, 6], 0] = np.nan
        y[[2, 4], 1] = np.nan
    condition = np.array((["control"] * 2 + ["drug"]) * 3) if case.conditions else None
    kernel = (
        GaussianMixtureKernel(LENGTHS, case.lengthscale_x, case.combine, MULTIPLES, SHARES)
        if case.mixture
        else GaussianKernel(LENGTHS, case.lengthscale_x, case.combine)
    )
    data = Data(y, x, case.noise, condition)
    problem = Problem(MODEL, data, kernel, CONDITIONS if case.conditions else None)

    times = np.full(n, 0.4) if x is None else x if x.ndim == 1 else x[:, 0] + 0.5 * x[:, 1]
    drug = np.zeros(n, bool) if condition is None else condition == "drug"
    logs = {"identity": lambda z: z, "log": jnp.log, "log10": jnp.log10}

    def predict(theta):
        """(n, 2) outputs on the kernel's scale, and their noise, in jax.numpy."""
        p = natural(theta)
        b = jnp.where(drug, 1.5, 1.0) * p["b"]
        w = law(times, {**p, "b": b, "dose": jnp.where(drug, 0.3, 1.0)}, jnp)
        s = [jnp.broadcast_to(column, (n,)) for column in case.scale(p, *w)]
        w = [logs[g](column) for g, column in zip(case.log, w, strict=True)]
        return jnp.stack(w, axis=-1), jnp.stack(s, axis=-1)

    on_scale = np.stack([logs[g](y[:, c]) for c, g in enumerate(case.log)], axis=-1)
    terms = tuple(zip(SHARES, MULTIPLES, strict=True)) if case.mixture else ((1.0, 1.0),)
    brute = brute_force.gaussian(
        LENGTHS,
        terms,
        y=on_scale,
        predict=lambda theta: tuple(map(np.asarray, predict(theta))),
        x=x,
        condition=condition,
        lengthscale_x=case.lengthscale_x,
        combine=case.combine,
    )
    plain = brute_force.plain_joint_log_density(brute, LENGTHS, predict, log_prior, terms)
    return problem, brute, plain


def particles(count, seed=0):
    return np.random.default_rng(seed).normal(0.0, 0.5, (count, 3)) - np.array([0.0, 0.0, 0.5])


def relative(found, wanted):
    return np.max(np.abs(np.asarray(found) - np.asarray(wanted))) / np.max(np.abs(wanted))


@pytest.mark.parametrize("name", CASES)
def test_everything_equals_the_double_loops(name):
    problem, brute, plain = problem_of(CASES[name])
    objective, thetas = Objective(problem), particles(3)

    @jax.jit
    def compute(thetas):
        features = objective.features(thetas)
        return (
            objective.data_terms(features),
            objective.pair_block(features, features),
            objective.joint_log_density(thetas, LAM),
            objective.joint_value_and_gradient(thetas, LAM),
        )

    v, block, value, (same_value, gradient) = compute(jnp.asarray(thetas))
    assert relative(objective.constant, brute.constant()) < 1e-12
    assert relative(v, [brute.v(theta) for theta in thetas]) < 1e-12
    kappa0 = [[brute.kappa0(theta, vartheta) for vartheta in thetas] for theta in thetas]
    assert relative(block, kappa0) < 1e-12
    joint = brute.joint_log_density(thetas, LAM, log_prior)
    assert relative([value, same_value], joint) < 1e-12
    assert relative(gradient, jax.jit(jax.grad(plain))(jnp.asarray(thetas), LAM)) < 1e-11
