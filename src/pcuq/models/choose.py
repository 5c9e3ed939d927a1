"""Which solver: a mesh where one serves the representatives, else adaptive steps.

The representatives are solved adaptively. The mesh follows their largest step density 1/h(t), and
is made finer (or coarser) until its error against an accurate solve,

    max over t |w_mesh(t) − w(t)| / (max over t |w(t)| + 10⁻³ · typical magnitude),

is below the tolerance for every output of every representative that counts. One whose solution
explodes does not count, nor does one that needs far more steps than the rest.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pcuq._program import Program
from pcuq.errors import ComputationError, InputError
from pcuq.models import adaptive, mesh
from pcuq.models.base import Solver, by_lanes
from pcuq.models.segments import Segment, begin, cut

if TYPE_CHECKING:
    from pcuq.models.ode import ODEModel

METHODS = ("auto", "adaptive", "mesh", *adaptive.METHODS)
MESH_TOLERANCE = 1e-4
ADAPTIVE_TOLERANCE = 1e-8
MOST_STEPS = 20_000
# From this many steps on, it is worth asking whether an implicit method needs far fewer.
MANY_STEPS = 2000
STIFF = 50
# Representatives that need this many times the steps of nine in ten others do not count.
MUCH_HARDER = 4
# A solve that takes more steps (for implicit ones, a part of it) is given up where a solver is
# chosen: lanes wait for the slowest, and one that is stuck would hold up all others.
SURVEY_STEPS = 8192
# With more, the matrices of a stiff mesh cost more than adaptive steps, which factor them seldom.
MOST_STIFF_STATES = 40
ROUNDS = 8
# A magnitude that errors are held against, relative to the largest: see `_bearable`.
STRICT, LENIENT = 1e-9, 1e-3
NEARLY_ALL = 0.8
FLOORS = {"explicit": (0.0,), "implicit": (STRICT, 1e-6, LENIENT)}
# Any finer, and rounding errors keep Newton's iteration from converging in some solves.
FINEST_IMPLICIT = 1e-9
SURVEYORS = "_surveyors"  # where a model keeps them


class Survey(NamedTuple):
    """Adaptive solves of all representatives."""

    outputs: np.ndarray  # (R, n, d)
    states: np.ndarray  # (R, n, k)
    fine: np.ndarray  # (R,)
    steps: np.ndarray  # (R,)
    times: tuple[np.ndarray, ...]  # per segment (R, steps): where steps end, then inf
    scale: np.ndarray  # (R, k) largest magnitude of each state, never zero


class Surveyor:
    """Adaptive solves at any accuracy, compiled once per method."""

    def __init__(
        self, model: ODEModel, segments: tuple[Segment, ...], most_steps: int | None = None
    ):
        self.model, self.segments, self.most_steps = model, segments, most_steps
        self._solves = {method: self._compile(method) for method in adaptive.METHODS}

    def __call__(self, values, method: str, rtol: float, scale: np.ndarray | None = None) -> Survey:
        values = {name: np.asarray(value) for name, value in values.items()}
        if scale is None:
            scale = self._first_scale(values)
        solve = self._solves[method]
        taken = by_lanes(lambda given: solve(given[0], rtol, given[1]), (values, scale))
        states = taken.states
        with np.errstate(invalid="ignore"):
            fine = taken.fine & np.isfinite(taken.outputs).all(axis=(1, 2))
            seen = np.max(np.abs(states), axis=1)
        seen = np.where(np.isfinite(seen), seen, 0.0)
        largest = np.max(seen, axis=1, keepdims=True)
        return Survey(
            outputs=taken.outputs,
            states=states,
            fine=fine,
            steps=np.sum([steps for steps, _, _ in taken.extras], axis=0),
            times=tuple(times for _, times, _ in taken.extras),
            scale=np.where(seen > 0, seen, np.where(largest > 0, largest, scale)),
        )

    def _compile(self, method: str):
        def solve(values, rtol, scale):
            return adaptive.integrate(
                self.model, self.segments, values, method, rtol, scale,
                keep_steps=True, most_steps=self.most_steps,
            )  # fmt: skip

        return Program(jax.vmap(solve, in_axes=(0, None, 0)))

    @cached_property
    def _magnitudes(self):
        def magnitude(values, _):
            p, u, _, _ = begin(self.model, values)
            slope = self.model.derivative(self.model.t0, u, p)
            ends = [segment.end for segment in self.segments if np.isfinite(segment.end)]
            span = max([*ends, self.model.t0]) - self.model.t0
            return jnp.max(jnp.abs(u)), jnp.max(jnp.abs(slope)) * span

        return Program(jax.vmap(magnitude))

    def _first_scale(self, values) -> np.ndarray:
        """Before anything is known: the initial state, or where its slope leads, or 1."""
        lanes = np.zeros(next(map(len, values.values()), 1))  # one where nothing is fitted
        start, reach = by_lanes(lambda given: self._magnitudes(*given), (values, lanes))
        size = np.where(np.isfinite(start) & (start > 0), start, reach)
        size = np.where(np.isfinite(size) & (size > 0), size, 1.0)
        return np.broadcast_to(size[:, None], (len(size), len(self.model.states)))


def surveyor_of(model: ODEModel, x: np.ndarray, most_steps: int | None = None) -> Surveyor:
    """Made once for a model, times and number of explicit steps after which a solve is given up."""
    known = model.__dict__.setdefault(SURVEYORS, {})
    key = (x.tobytes(), most_steps)
    if key not in known:
        known[key] = Surveyor(model, cut(model, x), most_steps)
    return known[key]


def tightly(model: ODEModel, x: np.ndarray, values: dict[str, Any], rtol: float):
    """(outputs (R, n, d), fine (R,)) with adaptive steps: if one method fails, by the other."""
    rough, quick, patient = 1e-6, surveyor_of(model, x, SURVEY_STEPS), surveyor_of(model, x)
    first = quick(values, "explicit", rough)
    explicit = [(survey, "explicit", rtol, 0.0) for survey in (quick, patient)]
    implicit = [(survey, "implicit", rtol, STRICT) for survey in (quick, patient)]
    # Where rounding errors forbid so much, better all states less well than some not at all.
    last = [(quick, "implicit", accuracy, STRICT) for accuracy in (1e2 * rtol, 1e4 * rtol)]
    last += [(survey, "implicit", rtol, LENIENT) for survey in (quick, patient)]
    ways, stiff = [*explicit, *implicit, *last], _if_stiff(quick, values, first, rough)
    if stiff is not None:
        # The magnitudes are those of solves that succeed, and the first ones may have failed.
        first, ways = stiff, [*implicit, *explicit, *last]
    outputs, fine = np.array(first.outputs), np.zeros_like(first.fine)
    for survey, method, accuracy, floor in ways:
        # With patience only what was solved roughly: the rest would hold up all, in vain.
        due = ~fine & first.fine if survey is patient else ~fine
        if due.any():
            found = survey(values, method, accuracy, _bearable(first.scale, floor))
            outputs = np.where(fine[:, None, None], outputs, found.outputs)
            fine = fine | found.fine
    return outputs, fine


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
        implicit = _if_stiff(survey, values, first, tolerance)
        stiff = implicit is not None
        found = _find_mesh(model, segments, survey, values, implicit or first, tolerance, stiff)
        if found is not None:
            grids, info = found
            return mesh.MeshSolver(model, segments, grids, mode, info)
        if method == "mesh":
            raise ComputationError(
                f"no mesh of at most {MOST_STEPS} steps reaches the tolerance {tolerance:g} for "
                "these parameter values: use method='auto' or 'implicit'."
            )
        # Locally a hundred times as accurate as the mesh was to be in the end: errors add up.
        tolerance = 1e-2 * tolerance

    rough = max(tolerance, 1e-6)
    first = survey(values, "implicit" if method == "implicit" else "explicit", rough)
    if method in ("auto", "adaptive"):
        implicit = _if_stiff(survey, values, first, rough)
        method = "explicit" if implicit is None else "implicit"
        first = implicit or first
        if method == "implicit":
            tolerance = max(tolerance, FINEST_IMPLICIT)
    fine = first.fine if first.fine.any() else np.ones_like(first.fine)
    scale = np.median(first.scale[fine], axis=0)
    if method == "implicit":
        floor = LENIENT
        if representatives is not None:
            _, floor = _strictly(survey, values, method, tolerance, first)
        scale = _bearable(scale, floor)
    info = {"representatives": len(fine), "failed": int(np.sum(~first.fine))}
    return adaptive.AdaptiveSolver(model, segments, method, tolerance, scale, mode, info)


def accurate(surveyor: Surveyor, values: dict[str, Any], rtol: float) -> Survey:
    """An accurate solve by whichever method can do it; a little less so if neither can."""
    for accuracy, method in itertools.product((rtol, 1e2 * rtol, 1e4 * rtol), adaptive.METHODS):
        first = surveyor(values, method, 1e-6)
        if first.fine.all():
            last, _ = _strictly(surveyor, values, method, accuracy, first)
            if last.fine.all():
                return last
    raise ComputationError(
        "the model could not be solved: the solution explodes, is not finite, or takes more than "
        f"{adaptive.EXPLICIT_STEPS} steps; check the right-hand side at these parameter values."
    )


def _strictly(survey: Surveyor, values, method: str, rtol: float, first: Survey):
    """(solves, floor of magnitudes) with the least floor at which nearly all succeed."""
    for floor in FLOORS[method]:
        found = survey(values, method, rtol, _bearable(first.scale, floor))
        if np.sum(first.fine & found.fine) >= NEARLY_ALL * np.sum(first.fine):
            break
    return found, floor


def _bearable(scale: np.ndarray, floor: float) -> np.ndarray:
    """The magnitudes that errors are held against.

    In a stiff model many tiny states are fast ones that follow the others: to hold them to their
    own magnitude takes an implicit method many times the steps, down to rounding errors. Others
    are what is measured, and solves that ignore them are wrong: the floor is as low as can be.
    """
    return np.maximum(scale, floor * np.max(scale, axis=-1, keepdims=True))


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


def _if_stiff(survey: Surveyor, values, first: Survey, rtol: float) -> Survey | None:
    """Implicit solves, if they do with far fewer steps, asked only where many are taken."""
    if first.fine.any():
        typical = np.median(first.steps[first.fine])
        if np.mean(first.fine) >= 0.5 and typical < MANY_STEPS:
            return None
    implicit = survey(values, "implicit", rtol)
    if np.sum(implicit.fine) > 2 * np.sum(first.fine):
        return implicit
    both = first.fine & implicit.fine
    stiff = both.any() and np.median(first.steps[both] / implicit.steps[both]) > STIFF
    return implicit if stiff else None


def _find_mesh(
    model, segments, survey: Surveyor, values, first: Survey, tolerance: float, stiff: bool
):
    """(grids, description), or None if no mesh of bearable size is accurate enough."""
    if not first.fine.any() or (stiff and len(model.states) > MOST_STIFF_STATES):
        return None
    method = "implicit" if stiff else "explicit"
    accuracy = min((1e-2 if stiff else 1e-3) * tolerance, 1e-6 if stiff else 1e-7)
    truth, _ = _strictly(survey, values, method, accuracy, first)
    fine = first.fine & truth.fine
    kept = fine & ~_much_harder(first.steps, fine)
    if not kept.any():
        return None
    magnitude = np.max(np.abs(truth.outputs[kept]), axis=1)  # (R, d)
    typical = np.median(magnitude, axis=0)
    unit = magnitude + 1e-3 * np.where(typical > 0, typical, np.max(typical) or 1.0)
    representatives = {name: np.asarray(value)[kept] for name, value in values.items()}

    def error_on(grids) -> float:
        padded = tuple(map(mesh.padded, grids))
        solve = jax.vmap(lambda values: mesh.integrate(model, segments, padded, values).outputs)
        found = by_lanes(Program(solve), representatives)
        with np.errstate(all="ignore"):
            apart = np.max(np.abs(found - truth.outputs[kept]), axis=1)
        each = np.max(apart / unit, axis=1)
        # The wildest one in a hundred does not count: what a fit keeps is verified after it.
        error = np.quantile(np.where(np.isfinite(each), each, np.inf), 0.99, method="lower")
        return float(error)

    density = [_density(s, t[kept], stiff) for s, t in zip(segments, first.times, strict=True)]
    best = _search(segments, density, error_on, tolerance, stiff)
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


def _search(segments, density, error_on, tolerance, stiff: bool):
    """Scale the density until the error is just below the tolerance."""
    power = 1 / (4 if stiff else 5)  # of the method's order
    near_enough = 1 / (6 if stiff else 30)  # steps with linear systems are worth saving
    fewest = mesh.count(_place(segments, density, 0.0, stiff))
    factor, best, too_coarse = 1.0, None, False
    for _ in range(ROUNDS):
        grids = _place(segments, density, factor, stiff)
        steps = mesh.count(grids)
        if steps > MOST_STEPS:
            break
        error = error_on(grids)
        if error <= tolerance:
            best = (grids, error)
            if too_coarse or error > near_enough * tolerance or steps == fewest:
                break
        else:
            too_coarse = True
            if best is not None:
                break
        change = (error / (0.5 * tolerance)) ** power if 0 < error < np.inf else 2.0
        if error <= tolerance:
            change = 0.5 if error == 0 else max(0.4, change)
        else:
            change = min(3.0, max(1.15, change))
        factor *= change
    return best


def _much_harder(steps: np.ndarray, fine: np.ndarray) -> np.ndarray:
    if np.sum(fine) < 5:
        return np.zeros_like(fine)
    return steps > MUCH_HARDER * np.quantile(steps[fine], 0.9, method="lower")


def _density(segment: Segment, times: np.ndarray, stiff: bool) -> tuple[np.ndarray, np.ndarray]:
    """Nodes t and ∫ from the start to t of the largest 1/h over representatives.

    In stiff models, whose fast parts come at times of their own, the root mean square does with
    far fewer steps: a method that is stable there needs no short steps for what is over.
    """
    if segment.end <= segment.start:
        return np.array([segment.start]), np.zeros(1)
    ends = [np.concatenate([[segment.start], row[np.isfinite(row)]]) for row in times]
    nodes = np.unique(np.concatenate([*ends, [segment.end]]))
    middles = 0.5 * (nodes[1:] + nodes[:-1])
    total = np.zeros(len(middles))
    for row in ends:
        index = np.clip(np.searchsorted(row, middles), 1, len(row) - 1)
        density = 1.0 / (row[index] - row[index - 1])
        total = total + density**2 / len(ends) if stiff else np.maximum(total, density)
    steps = (np.sqrt(total) if stiff else total) * np.diff(nodes)
    return nodes, np.concatenate([[0.0], np.cumsum(steps)])


def _place(segments, density, factor: float, stiff: bool) -> tuple[mesh.Grid, ...]:
    """Nodes at equal shares of the density between neighbouring outputs and cuts."""
    grids = []
    for segment, (nodes, total) in zip(segments, density, strict=True):
        stops = np.unique([segment.start, *segment.x, segment.end])
        shares = np.interp(stops, nodes, total)
        parts = [stops[:1]]
        for i in range(len(stops) - 1):
            number = max(1, int(np.ceil(factor * (shares[i + 1] - shares[i]) - 1e-9)))
            inner = np.linspace(shares[i], shares[i + 1], number + 1)[1:-1]
            inside = np.interp(inner, total, nodes)
            inside = inside[(inside > stops[i]) & (inside < stops[i + 1])]
            parts += [np.unique(inside), stops[i + 1 : i + 2]]
        placed = _rounded_up(np.concatenate(parts), nodes, total)
        grids.append(mesh.make_grid(segment, placed, stiff))
    return tuple(grids)


def _rounded_up(placed: np.ndarray, nodes: np.ndarray, total: np.ndarray) -> np.ndarray:
    """With a round number of steps, the hardest ones halved: meshes then share programs."""
    steps = len(placed) - 1
    unit = 2 ** max(0, (steps - 1).bit_length() - 4)
    extra = -steps % unit
    hardest = np.argsort(-np.diff(np.interp(placed, nodes, total)), kind="stable")[:extra]
    middles = 0.5 * (placed[hardest] + placed[hardest + 1])
    return np.sort(np.concatenate([placed, middles]))
