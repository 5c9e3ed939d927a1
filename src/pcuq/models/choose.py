"""Which solver: a mesh where one serves the representatives, else adaptive steps.

The representatives are solved adaptively. The mesh follows their largest step density 1/h(t), and
is made finer (or coarser) until its error against an accurate solve,

    max over t |w_mesh(t) − w(t)| / (max over t |w(t)| + 10⁻³ · typical magnitude),

is below the tolerance for every output of every representative that counts. One whose solution
explodes does not count, nor does one that needs far more steps than the rest.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from pcuq._program import Program
from pcuq.errors import ComputationError, InputError
from pcuq.models import adaptive, mesh
from pcuq.models.base import Solver, by_lanes
from pcuq.models.placement import MOST_STEPS, density_of, search
from pcuq.models.survey import (
    LENIENT,
    SURVEY_STEPS,
    Survey,
    Surveyor,
    bearable,
    if_stiff,
    strictly,
    surveyor_of,
)

if TYPE_CHECKING:
    from pcuq.models.ode import ODEModel

METHODS = ("auto", "adaptive", "mesh", *adaptive.METHODS)
MESH_TOLERANCE = 1e-4
ADAPTIVE_TOLERANCE = 1e-8
# Representatives that need this many times the steps of nine in ten others do not count.
MUCH_HARDER = 4
# With more, a step is so dear that no particle should take more of them than it needs.
MOST_STIFF_STATES = 40
# Of a stiff mesh: with more, adaptive steps are fewer for most particles, and no dearer.
MOST_STIFF = 1000
# Any finer, and some solves take more steps than they may.
FINEST_IMPLICIT = 1e-9


def choose(
    model: ODEModel,
    x: np.ndarray,
    representatives: Mapping[str, Any] | None,
    method: str,
    tolerance: float | None,
    mode: str,
) -> Solver:
    """The solver for outputs at x."""
    if method not in METHODS:
        raise InputError(f"`method` needs one of {', '.join(METHODS)}: got {method!r}.")
    if tolerance is not None and not 0 < tolerance < 1:
        raise InputError(f"`tolerance` needs a number between 0 and 1: got {tolerance!r}.")
    survey = surveyor_of(model, x, SURVEY_STEPS)
    segments = survey.segments
    wants_mesh = method == "mesh" or (method == "auto" and representatives is not None)
    if model.rest is not None or any(s.moving or s.end == np.inf for s in segments):
        if method == "mesh":
            raise InputError(
                "a mesh needs fixed times, and this model switches at a time that depends on "
                "fitted parameters, or comes to rest: use method='auto'."
            )
        wants_mesh = False
    values = _as_values(model, representatives)
    tolerance = tolerance or (MESH_TOLERANCE if wants_mesh else ADAPTIVE_TOLERANCE)

    if wants_mesh:
        first = survey(values, "explicit", tolerance)
        implicit = if_stiff(survey, values, first, tolerance)
        stiff = implicit is not None
        most = MOST_STIFF if stiff and method == "auto" else MOST_STEPS
        first = implicit or first
        found = _find_mesh(model, segments, survey, values, first, tolerance, stiff, most)
        if found is not None:
            grids, info = found
            return mesh.MeshSolver(model, segments, grids, mode, info)
        if method == "mesh":
            raise ComputationError(
                f"no mesh of at most {MOST_STEPS} steps reaches the tolerance {tolerance:g} for "
                "these parameter values: use method='auto' or 'implicit'."
            )
        # Locally more accurate than the mesh was to be in the end: errors add up, and where a model
        # is not stiff over many more steps.
        tolerance = (5e-1 if stiff else 1e-2) * tolerance

    rough = max(tolerance, 1e-6)
    first = survey(values, "implicit" if method == "implicit" else "explicit", rough)
    if method in ("auto", "adaptive"):
        implicit = if_stiff(survey, values, first, rough)
        method = "explicit" if implicit is None else "implicit"
        first = implicit or first
        if method == "implicit":
            tolerance = max(tolerance, FINEST_IMPLICIT)
    fine = first.fine if first.fine.any() else np.ones_like(first.fine)
    scale = np.median(first.scale[fine], axis=0)
    if method == "implicit":
        floor = LENIENT
        if representatives is not None:
            _, floor = strictly(survey, values, method, tolerance, first)
        scale = bearable(scale, floor)
    info = {"representatives": len(fine), "failed": int(np.sum(~first.fine))}
    return adaptive.AdaptiveSolver(model, segments, method, tolerance, scale, mode, info)


def _as_values(model: ODEModel, representatives: Mapping[str, Any] | None) -> dict[str, Any]:
    if representatives is None:
        centre = model.parameters.constrain(jnp.zeros((1, len(model.parameters))))
        return {name: jnp.asarray(value, float) for name, value in centre.items()}
    missing = [name for name in model.parameters if name not in representatives]
    if missing:
        raise InputError(f"`representatives` needs values of every parameter: missing {missing}.")
    values = {
        name: np.atleast_1d(np.asarray(representatives[name], dtype=float))
        for name in model.parameters
    }
    sizes = {value.shape for value in values.values()}
    if len(sizes) != 1 or len(shape := sizes.pop()) != 1 or shape[0] < 1:
        raise InputError("`representatives` needs one array (R,) per parameter, R ≥ 1 for all.")
    return {name: jnp.asarray(value) for name, value in values.items()}


def _find_mesh(
    model, segments, survey: Surveyor, values, first: Survey, tolerance: float, stiff: bool, most
):
    """(grids, description), or None if no mesh of bearable size is accurate enough."""
    if not first.fine.any() or (stiff and len(model.states) > MOST_STIFF_STATES):
        return None
    method = "implicit" if stiff else "explicit"
    accuracy = min((1e-2 if stiff else 1e-3) * tolerance, 1e-6 if stiff else 1e-7)
    truth, _ = strictly(survey, values, method, accuracy, first)
    fine = first.fine & truth.fine
    kept = fine & ~_much_harder(first.steps, fine)
    if not kept.any():
        return None
    magnitude = np.max(np.abs(truth.outputs[kept]), axis=1)  # (R, d)
    typical = np.median(magnitude, axis=0)
    unit = magnitude + 1e-3 * np.where(typical > 0, typical, np.max(typical) or 1.0)
    representatives = {name: np.asarray(value)[kept] for name, value in values.items()}

    def error_on(grids) -> float:
        solver = mesh.MeshSolver(model, segments, tuple(map(mesh.padded, grids)))
        solve = Program(lambda values: solver.many(values, len(next(iter(values.values()))))[0])
        found = by_lanes(solve, representatives)
        with np.errstate(all="ignore"):
            apart = np.max(np.abs(found - truth.outputs[kept]), axis=1)
        each = np.max(apart / unit, axis=1)
        # The wildest one in a hundred does not count: what a fit keeps is verified after it.
        error = np.quantile(np.where(np.isfinite(each), each, np.inf), 0.99, method="lower")
        return float(error)

    density = [density_of(s, t[kept], stiff) for s, t in zip(segments, first.times, strict=True)]
    best = search(segments, density, error_on, tolerance, stiff, most)
    if best is None:
        return None
    grids, error = best
    info = {
        "error": error,
        "tolerance": float(tolerance),
        "representatives": len(fine),
        "failed": int(np.sum(~fine)),
        "dropped": int(np.sum(fine & ~kept)),
    }
    return grids, info


def _much_harder(steps: np.ndarray, fine: np.ndarray) -> np.ndarray:
    if np.sum(fine) < 5:
        return np.zeros_like(fine)
    return steps > MUCH_HARDER * np.quantile(steps[fine], 0.9, method="lower")
