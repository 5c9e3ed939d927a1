"""The paper's problems with closed forms in place of equations, and draws in place of sampling.

Names, parameters, data, truths and λ are those of the experiments, which run as they are from the
data to the files that they write. What compiles and samples for minutes is replaced: the models by
functions, a fit by draws about the truth that are said not to have converged, and figures are put
together without being rendered.
"""

import json
import math
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure
from scipy.special import logit

from pcuq import FunctionModel, Parameter
from pcuq.reproduce import methods
from pcuq.result import Fit, make_tree
from pcuq.zoo import erk, lotka_volterra

STATUS = "Do not trust this fit yet: made up."


@dataclass(frozen=True, eq=False)
class Closed(FunctionModel):
    """A function that may be told when it begins, as equations may."""

    t0: float = 0.0


def populations(x, p):
    """Two curves that alpha and beta rule, each one."""
    return [
        10 + 100 * p["alpha"] * (1 - jnp.exp(-x / 30)),
        10 + 300 * p["beta"] * jnp.sin(x / 20) ** 2,
    ]


def species(x, p):
    """A rate for each species."""
    return [p[name] * (1 - jnp.exp(-x / 20)) for name in erk.RATES]


def lotka_volterra_model(setting="main"):
    named = {"alpha": Parameter("logit"), "beta": Parameter("logit")}
    return Closed(populations, named, lotka_volterra.OUTPUTS)


def erk_model():
    return Closed(species, {name: Parameter("logit") for name in erk.RATES}, erk.OUTPUTS)


def solution(setting):
    """The truth of the well-specified case."""
    values = lotka_volterra.true_parameters(setting)
    return np.stack([*np.asarray(populations(lotka_volterra.TRUTH_TIMES, values))], axis=-1)


def path(seed, setting, largest, scheme):
    """One that wavers, after three that exploded."""
    times = lotka_volterra.TRUTH_TIMES
    return solution("main") + np.sin(times / 4 + seed)[:, None], 3


def truths(misspecified):
    """(control, under the inhibitor), rates rising and falling together."""
    times = erk.GRID[:, None]
    wave = 1 + 0.5 * np.sin(2 * np.pi * times / 45) * misspecified
    rates = np.array(list(erk.RATES.values()))
    weaker = np.where(np.array(list(erk.RATES)) == "beta6", 0.01, 1.0)
    return tuple(wave * rates * factor * (1 - np.exp(-times / 20)) for factor in (1.0, weaker))


def drawn(
    problem, method="pcuq", regularisation=1.0, seed=0, particles=6, systems=2, draws=12, **_
):
    """A fit whose draws scatter about the truth; a point for MMD-Bayes in the paper's limit."""
    truth = {**lotka_volterra.true_parameters("main"), **erk.RATES}
    centre = np.array([logit(truth[name]) for name in problem.parameters])
    width = {"pcuq": 0.1, "bayes": 0.02, "mmd-bayes": 0.0}[method]
    shape = (systems, draws, particles)
    scatter = np.random.default_rng(seed).normal(size=(*shape, len(centre)))
    figures = {"rhat_max": 1.3, "ess_min": 30.0, "spread": width}
    if method == "pcuq":
        figures |= {"share_outside_fit": 0.02, "fixed_point_residual": 0.1}
    attributes = {
        "method": method,
        "sampler": "ensemble",
        "regularisation": math.nan if method == "bayes" else regularisation,
        "seed": seed,
        "settings": json.dumps({"particles": particles, "systems": systems, "draws": draws}),
        "status": STATUS,
        "trusted": 0,
        "diagnostics": json.dumps(figures),
        "solver": "[]",
        "seconds": "{}",
        "versions": "{}",
    }
    theta = centre + width * scatter
    return Fit(
        make_tree(problem, theta, np.ones(shape), np.zeros(shape, bool), {}, attributes), problem
    )


def composed(figure, file, **_):
    """A figure that has been put together and is not rendered, which takes longest of all."""
    file.write_bytes(b"composed, not rendered\n" * 64)


def put_in_place(monkeypatch):
    """Until the test is over."""
    monkeypatch.setattr(lotka_volterra, "model", lotka_volterra_model)
    monkeypatch.setattr(lotka_volterra, "_solution", solution)
    monkeypatch.setattr(lotka_volterra, "_stochastic_path", path)
    monkeypatch.setattr(erk, "model", erk_model)
    monkeypatch.setattr(erk, "_truths", truths)
    monkeypatch.setattr(methods, "fit", drawn)
    monkeypatch.setattr(Figure, "savefig", composed)


def twice(number: int) -> list[str]:
    """A task for a process, which must find it in a module."""
    return [f"{2 * number} in {jnp.zeros(1).dtype}"]
