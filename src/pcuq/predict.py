r"""Predictions: the mixture of trajectories that a distribution over parameters implies.

    w_s(x) = w_{θ_s}(x),   y_s(x) ~ p(· | w_s(x)),   θ_s ~ Q,   s = 1..S,

under an experimental condition, under an intervention, or under neither. Two predictions from the
same draws are paired: w_s under treatment minus w_s in control is the effect for that θ_s.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray

from pcuq._given import as_numbers, check_memory, check_seed, whole_number
from pcuq._program import Program
from pcuq._x64 import x64
from pcuq.data import Data
from pcuq.errors import ComputationError, InputError
from pcuq.functionals import Prediction
from pcuq.interventions import Intervention, parse
from pcuq.models import mesh
from pcuq.noise import ROUNDING, Noise
from pcuq.problem import Problem, check_problem

Array = NDArray[np.float64]
Changes = Intervention | str | Iterable[Intervention | str] | None

MAX_DRAWS = 4000
# The mesh is chosen from this many draws.
REPRESENTATIVES = 32
# Draws solved at once: memory follows it, and adaptive steps wait for the slowest draw.
BATCH, ADAPTIVE_BATCH = 256, 64
# Halving steps divides the error by 32: what is kept is then as good as the mesh was meant to be.
MESH_DIFFERENCE = 3e-3
ADAPTIVE_TOLERANCE = 1e-6
# Draws of noise and of the prior from one seed must not be the same numbers.
NOISE_STREAM, PRIOR_STREAM = 1, 2


@x64
def predict(
    problem: Problem,
    thetas: ArrayLike,
    x: ArrayLike | None,
    condition: str | None = None,
    do: Changes = None,
    weights: ArrayLike | None = None,
    seed: int = 0,
    noise: bool = True,
    max_draws: int | None = MAX_DRAWS,
    method: str = "auto",
) -> Prediction:
    """The trajectories w_θ(x) of all draws `thetas` (S, p), and noisy observations of them.

    `x`: covariates in any order, None for data without. `condition`: one of the problem's, None
    for the model as it is (of a PEtab problem whose conditions say what it is, the only one).
    `do`: interventions on top of it, also as text such as "k6*=0.01".
    `weights` (S,): of the draws, equal by default. `noise=False` leaves the observations out.
    `max_draws`: from more draws than this, that many are taken at evenly spaced shares of the total
    weight (every fifth of 20,000 equal ones for 4000), and have equal weights; None takes all.
    `method`: how the model is solved, where it is known that no mesh serves these draws.

    Observations have the data's noise. Where its scale was given row by row, it is the median over
    the observed rows of the condition, or of all where that has none. A scale that depends on
    parameters sees what `do` does to them from the start, not what it does at a later time.
    Outputs that were not measured have no known noise, and NaN for observations.
    """
    check_problem(problem)
    seed = check_seed(seed)
    table = _thetas(problem, thetas)
    share = _weights(weights, len(table))
    changes = _changes(do)
    condition = problem.meant(condition, (name for one in changes for name in one.set))
    model = problem.model_for(condition)
    model = model.do(changes) if changes else model
    given = len(table)
    draws, share = _thinned(given, share, max_draws)
    table = table[draws]
    points = _covariates(problem, x)
    _check_size(problem, len(table), points)
    distinct, back = None, np.zeros(1, dtype=int)
    if points is not None:
        distinct, back = np.unique(points, axis=0, return_inverse=True)
    trajectories, ok, solver = _solve_draws(model, table, distinct, back.reshape(-1), method)
    if not ok.any():
        raise ComputationError(
            f"the model could not be solved for any of {len(table)} draws: check the intervention "
            "and the covariates, or try a shorter range of x."
        )
    observations = None
    if noise:
        law = _NoiseLaw(problem, condition, changes)
        observations = law.sample(points, trajectories, table, seed)
    return Prediction(
        x=points,
        outputs=tuple(model.outputs),
        trajectories=trajectories,
        observations=observations,
        weights=share,
        thetas=table,
        draws=draws,
        given=given,
        seed=seed,
        solver=solver,
    )


@x64
def prior_predictive(
    problem: Problem,
    x: ArrayLike | None,
    condition: str | None = None,
    do: Changes = None,
    draws: int = 1000,
    seed: int = 0,
    noise: bool = True,
) -> Prediction:
    """What the prior Q0 predicts: `predict` for that many draws from it."""
    check_problem(problem)
    draws = whole_number("draws", draws, 1)
    _check_size(problem, draws, x)
    key = jax.random.fold_in(jax.random.key(check_seed(seed)), PRIOR_STREAM)
    thetas = problem.parameters.draws(key, draws)
    return predict(problem, thetas, x, condition, do, seed=seed, noise=noise, max_draws=None)


def _solve_draws(
    model, thetas: Array, x: Array | None, back: NDArray[np.int_], method: str = "auto"
):
    """(w (S, n, d), NaN where it failed; ok (S,); how it was done).

    On a mesh chosen from some of the draws, each draw is solved with the steps as they are and
    halved, and the halved ones are kept. A draw for which the two differ, or which the mesh cannot
    follow at all, is solved again with adaptive steps: explicit, then implicit.
    """
    distinct, of_draw = np.unique(thetas, axis=0, return_inverse=True)
    of_draw = of_draw.reshape(-1)
    found = np.full((len(thetas), len(back), len(model.outputs)), np.nan)

    def keep(which: NDArray[np.int_], w: Array) -> None:
        place = np.full(len(distinct), -1)
        place[which] = np.arange(len(which))
        draws = np.flatnonzero(place[of_draw] >= 0)
        found[draws] = w[place[of_draw[draws]]][:, back]

    accurate = {} if method == "auto" else {"method": method, "tolerance": ADAPTIVE_TOLERANCE}
    solver = model.solver(x, representatives=_some(model, distinct), **accurate)
    method = solver.describe()["method"]
    size = BATCH if method in ("mesh", "function") else ADAPTIVE_BATCH
    ok = np.zeros(len(distinct), dtype=bool)
    apart, largest = np.zeros((2, len(distinct), len(model.outputs)))
    for which, (w, fine, difference, magnitude) in _batches(
        _compared(model, solver), model, distinct, np.arange(len(distinct)), size
    ):
        keep(which, np.where(fine[:, None, None], w, np.nan))
        ok[which], apart[which], largest[which] = fine, difference, magnitude

    doubtful = ~ok | _differ(apart, largest, ok)
    tried = {"method": method, "doubtful": int(doubtful.sum())}
    for again in ("explicit", "implicit") if method in ("mesh", "explicit", "implicit") else ():
        if again == method or not doubtful.any():
            continue
        hard = np.flatnonzero(doubtful)
        better = model.solver(
            x,
            representatives=_some(model, distinct[hard]),
            method=again,
            tolerance=ADAPTIVE_TOLERANCE,
        )
        for which, (w, fine) in _batches(better, model, distinct, hard, ADAPTIVE_BATCH):
            keep(which, np.where(fine[:, None, None], w, np.nan))
            ok[which], doubtful[which] = fine, ~fine
        tried[again] = len(hard)
    return found, ok[of_draw], {**solver.describe(), **tried}


def _compared(model, solver) -> Callable[[dict[str, Any]], tuple]:
    """values → (w, ok, largest change when steps are halved (d,), largest |w| (d,))."""
    if not isinstance(solver, mesh.MeshSolver):

        def unchanged(values):
            w, ok = solver(values)
            return w, ok, jnp.zeros(w.shape[-1]), jnp.ones(w.shape[-1])

        return unchanged
    grids = [_halved(*pair) for pair in zip(solver.segments, solver.grids, strict=True)]
    finer = mesh.MeshSolver(model, solver.segments, tuple(grids))

    def compared(values):
        coarse, one = solver(values)
        w, other = finer(values)
        largest = jnp.max(jnp.abs(w), axis=0)
        return w, one & other, jnp.max(jnp.abs(w - coarse), axis=0), largest

    return compared


def _halved(segment, grid: mesh.Grid) -> mesh.Grid:
    if len(grid.steps) == 0:
        return grid
    nodes = np.append(grid.times[:, 0], segment.end)
    middles = 0.5 * (nodes[1:] + nodes[:-1])
    return mesh.make_grid(segment, np.unique(np.concatenate([nodes, middles])), grid.stiff)


def _differ(apart: Array, largest: Array, ok: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which draws change by more than the tolerance, relative to their size or the usual one."""
    usual = np.median(largest[ok], axis=0) if ok.any() else np.ones(largest.shape[1])
    unit = largest + 1e-3 * np.where(usual > 0, usual, usual.max() or 1.0)
    return np.any(apart > MESH_DIFFERENCE * unit, axis=1)


def _batches(solve, model, thetas: Array, which: NDArray[np.int_], size: int) -> Iterator:
    """(rows, results) for `which` rows, in batches of one size: one compilation.

    Few rows are filled up to a power of two, so that calls with other numbers of them share it.
    """
    size = min(size, 2 ** max(0, len(which) - 1).bit_length())
    step = Program(jax.vmap(lambda theta: solve(model.parameters.constrain(theta))))
    for start in range(0, len(which), size):
        rows = which[start : start + size]
        results = step(thetas[np.resize(rows, size)])
        yield rows, tuple(np.asarray(result)[: len(rows)] for result in results)


def _some(model, thetas: Array) -> dict[str, Array]:
    """Natural values of a few of the draws, for a mesh or a method to be chosen from."""
    rows = np.unique(np.linspace(0, len(thetas) - 1, REPRESENTATIVES).round().astype(int))
    values = model.parameters.constrain(jnp.asarray(thetas[rows]))
    return {name: np.asarray(value) for name, value in values.items()}


class _NoiseLaw:
    """p(y | w) for every output that was measured, at covariates that need not be the data's."""

    def __init__(self, problem: Problem, condition: str | None, changes: tuple[Intervention, ...]):
        self.problem = problem
        self.known = _typical_scales(problem, condition)
        self.changes = [change for change in changes if change.at is None]

    def sample(self, x: Array | None, w: Array, thetas: Array, seed: int) -> Array:
        """(S, n, d) draws; the s-th depends on the seed and on s, not on what is done."""
        key = jax.random.fold_in(jax.random.key(seed), NOISE_STREAM)
        one = Program(
            jax.vmap(lambda s, theta, w: self._draw(jax.random.fold_in(key, s), theta, w, x))
        )
        found = np.full(w.shape, np.nan)
        size = min(BATCH, len(w))
        for start in range(0, len(w), size):
            rows = np.arange(start, min(start + size, len(w)))
            padded = np.resize(rows, size)
            draws = np.asarray(one(padded, thetas[padded], w[padded]))[: len(rows)]
            found[rows[:, None], :, self.problem.columns] = np.moveaxis(draws, 2, 1)
        return found

    def _draw(self, key, theta, w, x):
        scale = self._scale(theta, w, x)
        return sample_noise(self.problem.data, key, w[:, self.problem.columns], scale)

    def _scale(self, theta, w, x):
        """(n, d): known numbers, or what the parameters and outputs say."""
        scale = self.problem.scale
        known = jnp.broadcast_to(self.known, (len(w), len(self.known)))
        if not scale.depends_on_theta:
            return known
        values = {**self.problem.model.constants, **self.problem.parameters.constrain(theta)}
        unknown = jnp.full(len(getattr(self.problem.model, "states", ())), jnp.nan)
        for change in self.changes:
            named = [k for k in change.names if k in values]
            values |= {k: change.apply(k, values[k], values, unknown) for k in named}
        computed = scale(
            values, np.zeros(len(w), dtype=int), w, None if x is None else jnp.asarray(x)
        )
        depends = np.isin(np.arange(len(self.known)), [*scale.named, *scale.computed])
        return jnp.where(depends, computed, known)


def sample_noise(data: Data, key, w, scale):
    """One draw of y (n, d) around w (n, d); NaN where w cannot have been observed."""
    fine = jnp.isfinite(w) & jnp.isfinite(scale) & (scale > 0)
    for column, noise in enumerate(data.noises):
        if noise.transform != "identity" or noise.discrete:
            lowest = -ROUNDING * jnp.max(jnp.abs(w[:, column]))
            fine = fine.at[:, column].set(fine[:, column] & (w[:, column] >= lowest))
            w = w.at[:, column].set(jnp.maximum(w[:, column], 0.0))
    w, scale = jnp.where(fine, w, 1.0), jnp.where(fine, scale, 1.0)
    return jnp.where(fine, _sample(data.noise, key, w, scale), jnp.nan)


def sample_rows(problem: Problem, key, thetas, w):
    """y (S, n, d) for draws with outputs w at the rows of the data, as `sample_noise` makes it."""
    data, every = problem.data, np.arange(problem.data.n)
    x = None if data.x is None else jnp.asarray(data.x)
    static = np.where(problem.scale.static > 0, problem.scale.static, np.nan)

    def draw(s, theta, w):
        scale = jnp.asarray(static)
        if problem.scale.depends_on_theta:
            scale = problem.scale(problem.parameters.constrain(theta), every, w, x)
        return sample_noise(data, jax.random.fold_in(key, s), w[:, problem.columns], scale)

    return jax.vmap(draw)(jnp.arange(len(thetas)), thetas, w)


def _sample(noise: Noise | tuple[Noise, ...], key, w, scale):
    if isinstance(noise, Noise):
        return noise.sample(key, w, scale)
    columns = zip(noise, jax.random.split(key, len(noise)), w.T, scale.T, strict=True)
    return jnp.stack([law.sample(k, mean, s) for law, k, mean, s in columns], axis=-1)


def _typical_scales(problem: Problem, condition: str | None) -> Array:
    """(d,) median over the observed rows, of the condition where it has any; NaN without rows."""
    data, found = problem.data, np.full(problem.data.d, np.nan)
    for column in range(data.d):
        rows = data.observed[:, column]
        here = rows & (data.condition == ("" if condition is None else condition))
        rows = here if here.any() else rows
        if rows.any():
            found[column] = np.median(problem.scale.static[rows, column])
    return found


def _thetas(problem: Problem, thetas: ArrayLike) -> Array:
    table = np.atleast_2d(as_numbers("thetas", thetas))
    p = len(problem.parameters)
    if table.ndim != 2 or table.shape[1] != p or len(table) == 0 or not np.isfinite(table).all():
        raise InputError(
            f"`thetas` needs finite numbers of shape (S, {p}), one column for each of "
            f"{', '.join(problem.parameters)}: got shape {np.shape(thetas)}."
        )
    return table


def _weights(weights: ArrayLike | None, size: int) -> Array | None:
    if weights is None:
        return None
    share = as_numbers("weights", weights)
    if share.shape != (size,) or not np.isfinite(share).all() or share.min() < 0 or not share.any():
        raise InputError(
            f"`weights` needs {size} finite numbers, one per draw, none negative and not all zero: "
            f"got shape {share.shape}."
        )
    return share / share.sum()


def _thinned(size: int, weights: Array | None, most: int | None):
    """(rows, their weights): all, or `most` at the middles of equal shares of the weight."""
    most = None if most is None else whole_number("max_draws", most, 1)
    if most is None or size <= most:
        return np.arange(size), weights
    middles = (np.arange(most) + 0.5) / most
    if weights is None:
        return np.floor(middles * size).astype(int), None
    rows = np.searchsorted(np.cumsum(weights), middles)
    return np.minimum(rows, np.flatnonzero(weights)[-1]), None


def _changes(do: Changes) -> tuple[Intervention, ...]:
    given = () if do is None else (do,) if isinstance(do, (str, Intervention)) else do
    if not isinstance(given, Iterable):
        raise InputError(f"`do` needs a pcuq.Intervention, text or a list: got {do!r}.")
    changes = tuple(parse(part) if isinstance(part, str) else part for part in given)
    for change in changes:
        if not isinstance(change, Intervention):
            raise InputError(
                f"`do` needs pcuq.Intervention objects, or text such as 'k6*=0.01': got {change!r}."
            )
    return changes


def _check_size(problem: Problem, draws: int, x) -> None:
    """Refuse more trajectories than fit into memory: with noise, and a copy of both on the way."""
    points = 1 if x is None else np.size(x)
    needed = 4 * 8.0 * draws * (points * len(problem.model.outputs) + len(problem.parameters))
    check_memory(needed, f"a prediction of {draws} draws at {points} points", "ask for fewer")


def _covariates(problem: Problem, x: ArrayLike | None) -> Array | None:
    if x is None:
        return None
    points = np.atleast_1d(as_numbers("x", x))
    # The time inf is rest, which only a model in time can come to.
    most = points <= np.inf if hasattr(problem.model, "t0") else points < np.inf
    if points.ndim > 2 or points.size == 0 or not (most & (points > -np.inf)).all():
        raise InputError(
            f"`x` needs finite covariates, (n,) or (n, k) with n ≥ 1: got shape {points.shape}."
        )
    data = problem.data.x
    if data is not None and points.shape[1:] != data.shape[1:]:
        raise InputError(
            f"`x` needs rows like the data's, of shape {data.shape[1:]}: got {points.shape[1:]}."
        )
    return points
