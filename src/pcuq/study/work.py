"""What a worker does: prepare a study once, and run its tasks.

Both are called by name with plain numbers and texts. The world is kept in the process, and with it
the programs of `pcuq._program`: they are compiled for the first task and found by the others.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from pcuq import scores
from pcuq._x64 import x64
from pcuq.calibrate import calibrate
from pcuq.errors import ComputationError
from pcuq.fit import fit
from pcuq.kernel_scale import default_lengthscale
from pcuq.kernels import Kernel
from pcuq.objective import Objective
from pcuq.result import Fit
from pcuq.study.plan import Plan, Setting, Task
from pcuq.study.worlds import WELL, Replicate, World, world_of

LEVELS = (0.5, 0.9)
MOST_DRAWS = 2000
FIGURES = ("rhat_max", "ess_min", "fixed_point_residual", "share_outside_fit", "spread")
COMPILED = "/jax/core/compile/backend_compile_duration"

Said = Mapping[str, Any]


@x64
def prepare(said: Said) -> dict[str, Any]:
    """θ that data are simulated from, λ, ℓ_Y, and λ's multiple for each setting.

    v at the fit differs between kernels and sizes, and λ is measured by it: each setting has the λ
    for which its fit is worth as many nats as that of the base.
    """
    plan = Plan.from_dict(said)
    world = world_of(plan.origin, plan.times)
    anchors = world.anchors(seed=0)
    regularisation = plan.regularisation
    if regularisation == "auto":
        regularisation = calibrate(world.problem).regularisation
    prepared = {"anchors": anchors, "regularisation": regularisation, "factors": [1.0]}
    if plan.settings != (Setting(),):
        prepared["lengthscale"] = default_lengthscale(world.problem).tolist()
        values = [
            _data_term(plan, world, prepared, setting) for setting in [Setting(), *plan.settings]
        ]
        prepared["factors"] = [value / values[0] for value in values[1:]]
    return prepared


def run_task(said: Said, prepared: Said, number: int) -> dict[str, Any]:
    """Simulate, fit and score; an error is an answer too.

    `run` holds what may differ from one run to the next, everything else may not.
    """
    plan = Plan.from_dict(said)
    task = plan.tasks()[number]
    began, before = time.perf_counter(), compilations()
    record = plan.heading(number)
    try:
        record |= _outcome(plan, prepared, task)
    except Exception as error:  # one bad replicate does not end a study
        record["error"] = {"kind": type(error).__name__, "message": str(error)}
    count, seconds = (now - then for now, then in zip(compilations(), before, strict=True))
    record["run"] = {
        "seconds": round(time.perf_counter() - began, 3),
        "compiled": count,
        "compile_seconds": round(seconds, 3),
        "pid": os.getpid(),
    }
    return record


@x64
def _outcome(plan: Plan, prepared: Said, task: Task) -> dict[str, Any]:
    world = world_of(plan.origin, plan.times)
    replicate = _replicate(plan, world, prepared, task.case, task.replicate, task.setting)
    factor = prepared["factors"][plan.settings.index(task.setting)]
    found = fit(
        replicate.problem,
        method=task.method,
        regularisation=prepared["regularisation"] * factor * task.setting.regularisation,
        seed=plan.fit_seed(task.number),
        **plan.options.get(task.method, {}),
    )
    figures = found.diagnostics
    return {
        "n": replicate.problem.data.n,
        "exploded_paths": replicate.exploded_paths,
        "status": found.status,
        "trusted": found.trusted,
        "regularisation": _number(found.tree.attrs["regularisation"]),
        **{name: _number(figures.get(name)) for name in FIGURES},
        **_scores(found, replicate),
    }


def _scores(found: Fit, replicate: Replicate) -> dict[str, Any]:
    """Of noise-free predictions against the noise-free truth, over all targets."""
    columns = replicate.problem.columns
    drawn, truth, ok = [], [], True
    for target in replicate.targets:
        prediction = found.predict(
            target.x, condition=target.condition, noise=False, max_draws=MOST_DRAWS
        )
        drawn.append(prediction.trajectories[..., columns].reshape(len(prediction.ok), -1))
        truth.append(target.truth.ravel())
        ok = ok & prediction.ok
    draws, wanted = np.concatenate(drawn, axis=1)[ok], np.concatenate(truth)
    if not len(draws):
        raise ComputationError("no draw could be solved at all covariates that are scored.")
    coverage = scores.coverage(draws, wanted, LEVELS)
    width = np.subtract(*np.quantile(draws, [0.95, 0.05], axis=0))
    return {
        "coverage": {f"{level:g}": share for level, share in coverage.items()},
        "crps": float(np.mean(scores.crps(draws, wanted))),
        "width": float(np.mean(width)),
        "failed_predictions": int(np.sum(~np.asarray(ok))),
    }


def _replicate(plan, world: World, prepared, case, number, setting: Setting) -> Replicate:
    kernel = _kernel(world.problem.kernel, prepared.get("lengthscale"), setting)
    seed = plan.data_seed(number)
    return world.replicate(case, seed, prepared["anchors"], kernel, setting.size)


def _kernel(kernel: Kernel, lengthscale: list[float] | None, setting: Setting) -> Kernel:
    """The problem's own; where settings are compared, ℓ_Y is that of the problem's own data."""
    if lengthscale is None:
        return kernel
    width = setting.width * np.asarray(lengthscale)
    return replace(kernel, lengthscale_y=width, combine=setting.combine or kernel.combine)


def _data_term(plan, world: World, prepared, setting: Setting) -> float:
    replicate = _replicate(plan, world, prepared, WELL, 0, setting)
    theta = np.asarray(prepared["anchors"][WELL])[None]
    objective = Objective(replicate.problem, replicate.problem.predictor(theta))
    value = float(objective.data_terms_of_many(theta)[0])
    if not value > 0:
        raise ComputationError(
            f"the fit explains none of the data under the setting {setting.name!r} (v = 0): leave "
            "it out."
        )
    return value


def _number(value: Any) -> float | None:
    return float(value) if value is not None and math.isfinite(value) else None


# --- how much is compiled -------------------------------------------------------------------------

_compilations = [0, 0.0]
_listening: list[bool] = []


def compilations() -> tuple[int, float]:
    """(programs compiled in this process since this was first asked, seconds that it took)."""
    if not _listening:
        import jax.monitoring

        _listening.append(True)
        jax.monitoring.register_event_duration_secs_listener(_heard)
    return int(_compilations[0]), float(_compilations[1])


def _heard(event: str, duration_secs: float, **kwargs: str | int) -> None:
    if event == COMPILED:
        _compilations[0] += 1
        _compilations[1] += duration_secs
