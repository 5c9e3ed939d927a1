"""The frozen mesh: Tsitouras' 5(4) method on steps that were chosen beforehand.

    k_1 = f(t, u),   k_i = f(t + c_i h, u + h Σ_{j<i} a_ij k_j),   u ← u + h Σ_i b_i k_i,

or for stiff models the Rosenbrock method of `rosenbrock.py`.
On one mesh for all particles the trajectory is a smooth function of the parameters, whose
derivative is exactly that of the computed value, and it is many times faster than adaptive steps.
Output times and cuts are nodes of the mesh. Stages never reach over the end of their segment.
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from pcuq.models import base, causes, rosenbrock
from pcuq.models.causes import Watched, watched_segments
from pcuq.models.lanes import Lanes
from pcuq.models.segments import Advance, Derivative, Segment, Walk, walk

if TYPE_CHECKING:
    from pcuq.models.ode import ODEModel

Slope = Callable[[Any, Array], Array]  # (t, u) → du/dt
_TABLEAU = diffrax.Tsit5.tableau
# The seventh stage only serves the error estimate and is left out: six evaluations per step.
STAGES = tuple(tuple(map(float, row)) for row in _TABLEAU.a_lower[:5])
NODES = np.concatenate([[0.0], np.asarray(_TABLEAU.c)[:5]])
WEIGHTS = tuple(map(float, np.asarray(_TABLEAU.b_sol)[:6]))
# Above this many steps per output, only the outputs' rows are kept in forward mode.
DENSE = 4


class Grid(NamedTuple):
    """The steps of one segment."""

    times: np.ndarray  # (M, 6) stage times
    steps: np.ndarray  # (M,) step lengths
    rows: np.ndarray  # (len(segment.x),) the outputs' nodes, 0 being the segment's start
    stiff: bool = False


class MeshSolver:
    """values → (w, ok) on a mesh; both derivatives work, `mode` says which one is to be best."""

    def __init__(
        self,
        model: ODEModel,
        segments: tuple[Segment, ...],
        grids: tuple[Grid, ...],
        mode: str = "forward",
        info: dict[str, Any] | None = None,
    ):
        def solve(values):
            taken = integrate(model, segments, grids, values, mode)
            return taken.outputs, taken.fine

        self._solve = (base.guarded if mode == "forward" else base.guarded_reverse)(solve)
        self._model, self._mode = model, mode
        self.segments, self.grids, self._info = segments, grids, dict(info or {})

    def __call__(self, values) -> tuple[Float[Array, "n d"], Bool[Array, ""]]:
        return self._solve(values)

    def many(self, values, count: int) -> tuple[Float[Array, "L n d"], Bool[Array, " L"]]:
        """The same for values {name: (L,)}, L = `count`, side by side where that can be."""
        # Jumps are functions of one state.
        if self._mode == "reverse" or any(segment.jumps for segment in self.segments):
            return jax.vmap(self._solve, axis_size=count)(values)
        taken = integrate(Lanes(self._model, count), self.segments, self.grids, values)
        return base.kept(jnp.moveaxis(taken.outputs, -1, 0), taken.fine)

    def why(self, values) -> list[str]:
        def code(values):
            segments = watched_segments(self.segments)
            taken = integrate(Watched(self._model), segments, self.grids, values)
            return causes.first([causes.of_ends(taken.ends)], taken)

        return causes.in_words(code, values)

    def describe(self) -> dict[str, Any]:
        stiff = any(grid.stiff for grid in self.grids)
        return {"method": "mesh", "steps": count(self.grids), "stiff": stiff, **self._info}


def make_grid(segment: Segment, nodes: np.ndarray, stiff: bool = False) -> Grid:
    """The grid on `nodes`, which go from the segment's start to its end over all its outputs."""
    steps = np.diff(nodes)
    times = nodes[:-1, None] + steps[:, None] * (rosenbrock.NODES if stiff else NODES)
    times = np.clip(times, segment.earliest, segment.latest)
    return Grid(times, steps, np.searchsorted(nodes, segment.x), stiff)


def padded(grid: Grid) -> Grid:
    """With steps too short to matter at the end: grids of many lengths then share a program."""
    count = len(grid.steps)
    if count == 0:
        return grid
    more = 2 ** (count - 1).bit_length() - count
    times = np.concatenate([grid.times, np.full((more, grid.times.shape[1]), grid.times[-1, -1])])
    steps = np.concatenate([grid.steps, np.full(more, 1e-12 * grid.steps[-1])])
    return grid._replace(times=times, steps=steps)


def uniform(segments: tuple[Segment, ...], spacing: float, stiff: bool = False) -> tuple[Grid, ...]:
    """Equal steps of at most `spacing` between neighbouring outputs and cuts."""
    grids = []
    for segment in segments:
        stops = np.unique([segment.start, *segment.x, segment.end])
        parts = [
            np.linspace(a, b, int(np.ceil((b - a) / spacing - 1e-9)) + 1)[1:]
            for a, b in itertools.pairwise(stops)
        ]
        grids.append(make_grid(segment, np.concatenate([stops[:1], *parts]), stiff))
    return tuple(grids)


def count(grids: tuple[Grid, ...]) -> int:
    """Steps in all."""
    return sum(len(grid.steps) for grid in grids)


def integrate(
    model: ODEModel | Lanes | Watched,
    segments: tuple[Segment, ...],
    grids: tuple[Grid, ...],
    values: dict[str, Any],
    mode: str = "forward",
) -> Walk:
    """The trajectory of one particle on the mesh, or of `Lanes` of them."""

    def advance(index: int, segment: Segment, f: Derivative, u: Array, p: dict) -> Advance:
        return _advance(grids[index], lambda t, u: f(t, u, p), u, mode)

    return walk(model, segments, values, advance)


def step(f: Slope, u: Array, times: Array, h: Array) -> Array:
    """One step of length h, with stages at `times`."""
    k = [f(times[0], u)]
    for i, row in enumerate(STAGES, start=1):
        k.append(f(times[i], u + h * _combine(row, k)))
    return u + h * _combine(WEIGHTS, k)


def _step(grid: Grid):
    return rosenbrock.step if grid.stiff else step


def _combine(coefficients: tuple[float, ...], k: list[Array]) -> Array:
    return functools.reduce(
        operator.add, [c * ki for c, ki in zip(coefficients, k, strict=True) if c != 0]
    )


def _advance(grid: Grid, f: Slope, u: Array, mode: str) -> Advance:
    fine = jnp.bool_(True)
    at_start, later = grid.rows == 0, grid.rows[grid.rows > 0]
    first = jnp.broadcast_to(u, (int(at_start.sum()), *u.shape))
    if len(grid.steps) == 0:
        return Advance(first, u, fine)
    if mode == "forward" and len(grid.steps) > DENSE * max(1, len(later)):
        end, states = _keep_outputs(grid, f, u, later)
    else:
        end, states = _keep_all(grid, f, u, later, mode)
    return Advance(jnp.concatenate([first, states]) if at_start.any() else states, end, fine)


def _keep_all(grid: Grid, f: Slope, u: Array, later: np.ndarray, mode: str):
    def body(u, xs):
        u = _step(grid)(f, u, *xs)
        return u, u

    if mode == "reverse":
        body = jax.checkpoint(body)  # a step is cheaper to repeat than its stages are to store
    end, nodes = jax.lax.scan(body, u, (grid.times, grid.steps))
    return end, nodes if len(later) == len(grid.steps) else nodes[later - 1]


def _keep_outputs(grid: Grid, f: Slope, u: Array, later: np.ndarray):
    # Every step writes to the row of the next output, and the step that reaches it writes last;
    # steps after the last output write to a spare row. Memory then follows outputs, not steps.
    row = np.searchsorted(later, np.arange(1, len(grid.steps) + 1))

    def body(carry, xs):
        u, kept = carry
        times, h, i = xs
        u = _step(grid)(f, u, times, h)
        return (u, kept.at[i].set(u)), None

    kept = jnp.zeros((len(later) + 1, *u.shape))
    (end, kept), _ = jax.lax.scan(body, (u, kept), (grid.times, grid.steps, row))
    return end, kept[:-1]
