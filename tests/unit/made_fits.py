"""Fits that were made and not sampled: draws by hand, in a tree like that of a real fit."""

import json
import math

import jax.numpy as jnp
import numpy as np

import pcuq
from pcuq.calibrate import Calibration
from pcuq.groups import make_groups, with_predictions
from pcuq.objective import Objective
from pcuq.result import Fit, make_tree, versions
from pcuq.settings import Settings

CALIBRATION = Calibration(
    regularisation=2e-3,
    bound_by="the spread",
    lams=np.array([1e-3, 1e-2]),
    outside=np.zeros((1, 2)),
    spread=np.ones((1, 2)),
    bayes_spread=np.ones(1),
    settled=np.ones((1, 2), bool),
    seconds=1.5,
)

X = np.linspace(0.0, 5.0, 11)


def growth_problem(outputs=("prey",), parameters=("rate", "start"), shift=0.0) -> pcuq.Problem:
    """start + rate x, for any number of outputs."""
    rate, start = parameters
    model = pcuq.FunctionModel(
        lambda x, p: [p[start] + (i + 1) * p[rate] * x for i in range(len(outputs))],
        {rate: pcuq.Parameter("identity"), start: pcuq.Parameter("log")},
        tuple(outputs),
    )
    rng = np.random.default_rng(0)
    mean = np.stack([1 + (i + 1) * 0.5 * X for i in range(len(outputs))], axis=-1)
    y = mean + shift * np.sin(X)[:, None] + 0.2 * rng.normal(size=mean.shape)
    return pcuq.Problem(model, pcuq.Data(y, X, noise=0.2))


def made_fit(
    problem: pcuq.Problem,
    method: str = "pcuq",
    spread: float = 0.1,
    centre=None,
    draws: int = 40,
    trusted: bool = True,
    curves: bool = True,
    particles: int = 5,
    objective: Objective | None = None,
    x=None,
    **figures,
) -> Fit:
    """Independent normal draws around `centre`, said to be a fit by `method`."""
    p = len(problem.parameters)
    centre = np.array([0.5] + [0.0] * (p - 1)) if centre is None else np.asarray(centre)
    systems = 2 if method == "pcuq" else 1
    rng = np.random.default_rng(1 + len(method))
    theta = centre + spread * rng.normal(size=(systems, draws, particles, p))
    objective = objective or Objective(problem)
    pooled = np.moveaxis(theta, 1, 0).reshape(-1, p)
    v = np.asarray(objective.data_terms_of_many(pooled))
    v = np.moveaxis(v.reshape(draws, systems, particles), 0, 1)
    settings = Settings(
        method, 1e-3 if method == "pcuq" else None, math.nan, particles, systems,
        "ensemble" if method == "pcuq" else "nuts", 10, draws, 1, 0,
    )  # fmt: skip
    known = {
        "rhat_max": 1.01 if trusted else 1.7,
        "ess_min": 400.0,
        "share_outside_fit": 0.02 if method == "pcuq" else 0.0,
        "spread": spread,
        "failed_draws": 0,
        "solver_error": 1e-4,
        "solver_density_error": 1e-3,
        "refinements": 0,
        **({"fixed_point_residual": 0.05} if method == "pcuq" else {}),
        **figures,
    }
    attributes = {
        "method": method,
        "sampler": settings.sampler,
        "regularisation": math.nan if settings.lam is None else settings.lam,
        "beta": math.nan,
        "seed": 0,
        "settings": json.dumps(settings._asdict()),
        "lengthscale_y": [float(size) for size in objective.lengthscale],
        "solver": json.dumps(objective.predictor.describe()),
        "status": "Converged: made by hand." if trusted else "Do not trust this fit yet: R-hat.",
        "trusted": int(trusted),
        "diagnostics": json.dumps(known),
        "seconds": json.dumps({"total": 1.0}),
        "versions": json.dumps(versions()),
    }
    failed = np.zeros(theta.shape[:3], bool)
    tree = make_tree(
        problem, theta, v, failed, {}, attributes, extra=make_groups(objective, pooled, 0)
    )
    fit = Fit(tree, problem)
    return with_predictions(fit, x) if curves else fit


def natural(problem: pcuq.Problem, theta) -> dict[str, float]:
    values = problem.parameters.constrain(jnp.asarray(theta))
    return {name: float(value) for name, value in values.items()}
