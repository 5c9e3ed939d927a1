"""Adaptive steps: by diffrax, or of `stepping` for stiff models, also to choose a mesh from.

Local error per step below rtol · (|u| + 10⁻³ · scale) for each state, where `scale` holds the
states' magnitudes; the integration restarts at every cut. A solve is fine if diffrax says so *and*
everything is finite: with NaN in the right-hand side diffrax may report success.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from pcuq.models import base, causes
from pcuq.models.causes import CAUSES, NOT_FINITE
from pcuq.models.lanes import Lanes
from pcuq.models.segments import ROUNDING, Advance, Derivative, Segment, Walk, walk
from pcuq.models.stepping import ABSOLUTE, SHORTEST, travel

if TYPE_CHECKING:
    from pcuq.models.ode import ODEModel

METHODS = ("explicit", "implicit")
# A right-hand side that never lets a solve finish must end; these are per segment.
EXPLICIT_STEPS = 16384
IMPLICIT_STEPS = 16384
# An implicit step is longer, and dearer: where solves are given up early, so many times fewer.
DEARER = 4
# At rest, a state would change by less than this share if the time that has passed passed again.
REST = 1e-8
FOREVER = 1e15


class AdaptiveSolver:
    """values → (w, ok) with adaptive steps; only the derivative that `mode` names works."""

    def __init__(
        self,
        model: ODEModel,
        segments: tuple[Segment, ...],
        method: str,
        rtol: float,
        scale: np.ndarray,
        mode: str = "forward",
        info: dict[str, Any] | None = None,
    ):
        rests = model.rest is not None or segments[-1].end == np.inf
        by_jacobian = method == "implicit" or rests
        inner = "forward" if by_jacobian else mode

        def guarded(solve):
            if mode == "forward":
                return base.guarded(solve)
            # Backward through an implicit solve, a NaN of one particle would be one of all.
            return base.guarded_vjp(solve, by_jacobian=by_jacobian)

        def solve(values):
            taken = integrate(model, segments, values, method, rtol, scale, mode=inner)
            return taken.outputs, taken.fine

        def solve_lanes(values):
            lanes = Lanes(model, len(next(iter(values.values()))))
            taken = integrate(lanes, segments, values, method, rtol, np.asarray(scale)[:, None])
            return jnp.moveaxis(taken.outputs, -1, 0), taken.fine

        self._solve = guarded(solve)
        self._many = guarded(solve_lanes) if side_by_side(method, segments) else None
        self._given: Any = model, segments, method, rtol, scale
        self._info = {"method": method, "rtol": float(rtol), **(info or {})}

    def __call__(self, values) -> tuple[Float[Array, "n d"], Bool[Array, ""]]:
        return self._solve(values)

    def many(self, values, count: int) -> tuple[Float[Array, "L n d"], Bool[Array, " L"]]:
        """The same for values {name: (L,)}, L = `count`, side by side where that can be."""
        if self._many is None or not values:
            return jax.vmap(self._solve, axis_size=count)(values)
        return self._many(values)

    def describe(self) -> dict[str, Any]:
        return dict(self._info)

    def why(self, values) -> list[str]:
        model, segments, *options = self._given

        def code(values):
            taken = integrate(model, segments, values, *options)
            return causes.first([cause for _, _, cause in taken.extras], taken)

        return causes.in_words(code, values)


def side_by_side(method: str, segments: tuple[Segment, ...]) -> bool:
    """Whether many particles can be solved as `Lanes`: jumps are functions of one state."""
    return method == "implicit" and not any(s.jumps or s.moving for s in segments)


def integrate(
    model: ODEModel | Lanes,
    segments: tuple[Segment, ...],
    values: dict[str, Any],
    method: str,
    rtol: Any,
    scale: Any,
    mode: str = "forward",
    keep_steps: bool = False,
    most_steps: int | None = None,  # explicit ones, and a part of that if they are implicit
) -> Walk:
    """The trajectory of one particle, or of `Lanes` of them where they go side by side.

    Extras: (number of steps, their end times if kept, why it ended early as a place in CAUSES).
    """
    fine = jnp.bool_(True)

    def advance(index: int, segment: Segment, f: Derivative, u: Array, p: dict) -> Advance:
        nonlocal fine
        if segment.end == np.inf:
            end, rests = settle(f, u, p, segment.earliest)
            fine = fine & rests
            return Advance(end[None], end, rests, _no_steps(u))
        if segment.end <= segment.start:
            states = jnp.broadcast_to(u, (len(segment.x), *u.shape))
            return Advance(states, u, jnp.bool_(True), _no_steps(u))
        take = _advance_moving if segment.moving else _advance
        options = (method, rtol, scale, mode, keep_steps, most_steps)
        taken = take(segment, f, u, p, fine, *options)
        fine = fine & taken.fine & jnp.all(jnp.isfinite(taken.end), axis=0)
        return taken

    def settle(f: Derivative, u: Array, p: dict, t: Any) -> tuple[Array, Array]:
        return _settle(f, u, p, t, scale)

    return walk(model, segments, values, advance, settle)


def _no_steps(u: Array) -> tuple[Array, Array, Array]:
    """What `integrate` says of a segment without any."""
    each = u.shape[1:]
    return jnp.zeros(each, int), jnp.full((1, *each), jnp.inf), jnp.zeros(each, int)


def _settle(f, u, p, start, scale) -> tuple[Array, Array]:
    """The state of rest: where (t − t0) |du/dt| is a rounding error beside |u|.

    Over as long a time again nothing more would happen; this needs no unit of time. Time stands
    still for the right-hand side.
    """

    def slope(_, u, p):
        return f(start, u, p)

    def at_rest(t, u, p, scale):
        magnitude = jnp.abs(u) + ABSOLUTE * scale
        return jnp.all(t * jnp.abs(slope(t, u, p)) <= REST * magnitude, axis=0)

    fine, still = _begun(jnp.bool_(True), f, start, u, p)
    between, most = (0.0, FOREVER), IMPLICIT_STEPS
    taken = travel(slope, still, p, (), between, fine, 1e-10, scale, most, until=at_rest)
    return taken.u, taken.fine


def _begun(fine, f, t, u, p) -> tuple[Array, Array]:
    """A particle that is lost already stands still, so that the others do not wait for it."""
    fine = fine & jnp.all(jnp.isfinite(u), axis=0) & jnp.all(jnp.isfinite(f(t, u, p)), axis=0)
    return fine, jnp.where(fine, u, 0.0)


def _advance_stiff(segment, f, u, p, fine, rtol, scale, keep_steps, most) -> Advance:
    def inside(t):
        # The first and the last stage must not see the neighbouring segments.
        return jnp.clip(t, segment.earliest, segment.latest)

    begun, still = _begun(fine, f, segment.start, u, p)
    between = segment.start, segment.end
    taken = travel(
        f, still, p, segment.x, between, begun, rtol, scale, most, inside, keep_steps=keep_steps
    )
    cause = jnp.zeros(u.shape[1:], int)
    if u.ndim == 1:
        cause = causes.of_stop(lambda t, u: f(t, u, p), taken.t, taken.u, scale, segment)
        cause = jnp.where(begun, cause, CAUSES.index(NOT_FINITE))
        cause = jnp.where(taken.fine, 0, cause)
    return Advance(taken.kept[:-1], taken.u, taken.fine, (taken.steps, taken.times, cause))


def _advance(segment, f, u, p, fine, method, rtol, scale, mode, keep_steps, most_steps) -> Advance:
    most = _most_steps(segment, method, most_steps)
    if method == "implicit":
        return _advance_stiff(segment, f, u, p, fine, rtol, scale, keep_steps, most)
    begun, still = _begun(fine, f, segment.start, u, p)

    def scaled(t, v, given):
        p, fine, scale = given
        # The first and the last stage must not see the neighbouring segments.
        t = jnp.clip(t, segment.earliest, segment.latest)
        return jnp.where(fine, f(t, v * scale, p), 0.0) / scale

    forward = mode == "forward"
    adjoint = diffrax.ForwardMode() if forward else diffrax.RecursiveCheckpointAdjoint()
    saved = {"end": diffrax.SubSaveAt(t1=True)}
    if len(segment.x):
        saved["states"] = diffrax.SubSaveAt(ts=jnp.asarray(segment.x))
    if keep_steps:
        saved["times"] = diffrax.SubSaveAt(steps=True, fn=lambda t, v, _: t)
    solution = diffrax.diffeqsolve(
        diffrax.ODETerm(scaled),
        diffrax.Tsit5(),
        t0=segment.start,
        t1=segment.end,
        dt0=None,
        y0=still / scale,
        args=(p, begun, scale),
        saveat=diffrax.SaveAt(subs=saved),
        stepsize_controller=diffrax.PIDController(
            rtol=rtol,
            atol=ABSOLUTE * rtol,
            dtmin=SHORTEST * (segment.end - segment.start),
            force_dtmin=False,
        ),
        adjoint=adjoint,
        max_steps=most,
        throw=False,
    )
    fine = begun & (solution.result == diffrax.RESULTS.successful)
    kept: Any = solution.ys
    end = kept["end"][0] * scale
    states = kept["states"] * scale if len(segment.x) else jnp.zeros((0, *u.shape))
    steps = solution.stats["num_accepted_steps"]
    stopped: Any = solution.ts
    cause = causes.of_stop(lambda t, u: f(t, u, p), stopped["end"][0], end, scale, segment)
    cause = jnp.where(fine, 0, jnp.where(begun, cause, CAUSES.index(NOT_FINITE)))
    return Advance(states, end, fine, (steps, kept.get("times"), cause))


def _advance_moving(segment, f, u, p, fine, *options) -> Advance:
    """[a, b] in parts that end at times τ(p): each is [0, 1] in its own time s.

    With t = τ_i + (τ_{i+1} − τ_i) s the ends are fixed and the derivative in τ is that of the
    right-hand side.
    """
    a, b = segment.start, segment.end
    times = jnp.stack([jnp.asarray(moving(p), float) for moving in segment.moving])
    times = jnp.clip(jnp.where(jnp.isnan(times), b, times), a, b)
    ends = jnp.concatenate([jnp.array([a]), jnp.sort(times), jnp.array([b])])

    def stretched(s, u, given):
        p, low, width = given
        inside = ROUNDING * jnp.abs(low + width)
        t = jnp.clip(low + width * s, low + inside, low + width - inside)
        return width * f(t, u, p)

    x, steps, kept, cause = jnp.asarray(segment.x), 0, [], jnp.array(0)
    states = jnp.zeros((len(segment.x), *u.shape))
    for low, high in itertools.pairwise(ends):
        width = high - low
        safe = jnp.where(width > 0, width, 1.0)
        share = jnp.clip((x - low) / safe, 0.0, 1.0)
        fixed = jax.lax.stop_gradient(share)
        part = Segment(0.0, 1.0, fixed, ())  # pyright: ignore[reportArgumentType]: traced

        given = (p, low, width)
        taken = _advance(part, stretched, u, given, fine, *options)
        u, fine = taken.end, fine & taken.fine
        here = taken.states
        if len(segment.x):
            # The derivative at a fixed t: the part's own time s there moves with its ends.
            slope = jax.vmap(stretched, in_axes=(0, 0, None))(fixed, here, given)
            here = here + slope * (share - fixed)[:, None]
        states = jnp.where((x >= low)[:, None], here, states)
        steps, cause = steps + taken.extra[0], jnp.where(cause, cause, taken.extra[2])
        if taken.extra[1] is not None:
            kept.append(low + width * taken.extra[1])
    return Advance(states, u, fine, (steps, jnp.concatenate(kept) if kept else None, cause))


def _most_steps(segment: Segment, method: str, given: int | None) -> int:
    if method == "explicit":
        return given or EXPLICIT_STEPS
    most = IMPLICIT_STEPS if given is None else given // DEARER
    return most + 4 * len(segment.x)
