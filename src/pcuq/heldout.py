"""Noisy predictions of the measurements of one problem from the draws of another.

Parameters are matched by name. Each measurement is predicted under its own condition, at its own
covariate and with its own noise, which may differ from row to row.
"""

from __future__ import annotations

from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from pcuq.errors import InputError
from pcuq.likelihood import outputs_and_scales
from pcuq.parameters import Parameter
from pcuq.predict import sample_noise
from pcuq.problem import Predictor, Problem
from pcuq.result import Fit

Array = NDArray[np.float64]

BATCH = 64
TOLERANCE = 1e-6
REPRESENTATIVES = 16
# A draw that rounding has put on a bound is moved inside by this share of the width.
INSIDE = 1e-12
PROBE = 0.3  # how far θ moves to see whether an output depends on it


def matched(
    fit: Fit, heldout: Problem, fixed: Mapping[str, float] | None, draws: int
) -> tuple[Array, tuple[str, ...]]:
    """θ of the held-out problem (draws, p), at evenly spaced draws of the fit, and what was fixed.

    Draws are repeated where the fit has fewer: each has noise of its own.
    """
    known, given = fit.draws, dict(fixed or {})
    unknown = sorted(set(given) - set(heldout.parameters))
    if unknown:
        raise InputError(
            f"`fixed` names {unknown}, which the held-out problem does not estimate: it has "
            f"{', '.join(heldout.parameters)}."
        )
    constants = {} if fit.problem is None else fit.problem.model.constants
    total = len(next(iter(known.values())))
    chosen = np.floor((np.arange(draws) + 0.5) / draws * total).astype(int)
    lacking = [n for n in heldout.parameters if n not in known and n not in given]
    lacking = [name for name in lacking if name not in constants]
    of_noise = _noise_only(heldout, lacking)
    needed = [name for name in lacking if name not in of_noise]
    if needed:
        raise InputError(
            f"the held-out problem needs the parameters {needed}, which the fit does not have (it "
            f"has {', '.join(known)}): fit them too, do not estimate them there, or give their "
            "values in `fixed`."
        )
    columns, notes = [], []
    for name, parameter in heldout.parameters.items():
        if name in given or name not in known:
            value = given.get(name, constants.get(name, of_noise.get(name)))
            source = "`fixed`" if name in given else "the fitted problem"
            source = "the held-out nominal point" if name in of_noise else source
            notes.append(f"{name} = {float(value):g} from {source}")  # pyright: ignore
            values = np.full(draws, float(value))  # pyright: ignore[reportArgumentType]
        else:
            values = known[name][chosen]
        columns.append(_unconstrained(name, parameter, values))
    return np.stack(columns, axis=-1), tuple(notes)


def predict_rows(problem: Problem, thetas: Array, seed: int) -> tuple[Array, int]:
    """(noisy predictions (S, n, d) of the table, draws that could not be solved).

    Solved with adaptive steps, explicit or implicit as stiffness asks; what that cannot solve, by
    implicit ones.
    """
    distinct, of_draw = np.unique(thetas, axis=0, return_inverse=True)
    of_draw = of_draw.reshape(-1)
    some = distinct[np.linspace(0, len(distinct) - 1, REPRESENTATIVES).round().astype(int)]
    w, ok = _solve(problem.predictor(some, method="adaptive", tolerance=TOLERANCE), distinct)
    if not ok.all() and hasattr(problem.model, "t0"):
        left = np.flatnonzero(~ok)
        again = problem.predictor(some, method="implicit", tolerance=TOLERANCE)
        w[left], ok[left] = _solve(again, distinct[left])
    kept = np.flatnonzero(ok[of_draw])
    keys = jax.random.split(jax.random.key(seed), len(thetas))
    draw = jax.jit(jax.vmap(_noisy(problem)))
    found = [
        np.asarray(draw(keys[rows], w[of_draw[rows]], thetas[rows]))
        for rows in np.array_split(kept, max(1, len(kept) // BATCH))
        if len(rows)
    ]
    shape = (0, problem.data.n, problem.data.d)
    noisy = np.concatenate(found) if found else np.zeros(shape)
    # A mean that is no number for this noise, such as a negative count, is a failure too.
    fine = np.all(np.isfinite(noisy) | ~problem.data.observed, axis=(1, 2))
    return noisy[fine], len(thetas) - int(fine.sum())


def _solve(predictor: Predictor, thetas: Array) -> tuple[Array, NDArray[np.bool_]]:
    """(outputs at the points (S, G, d), ok (S,)), some at a time."""
    step, parts = jax.jit(jax.vmap(predictor)), []
    size = min(BATCH, len(thetas))
    for first in range(0, len(thetas), size):
        batch = thetas[first : first + size]
        full = np.concatenate([batch, np.repeat(batch[-1:], size - len(batch), axis=0)])
        parts.append([np.asarray(leaf)[: len(batch)] for leaf in step(full)])
    w, ok = (np.concatenate(leaves) for leaves in zip(*parts, strict=True))
    return w, ok


def _noisy(problem: Problem):
    """(key, outputs at the points, θ) → one noisy observation of each entry of the table."""

    def draw(key, outputs, theta):
        return sample_noise(problem.data, key, *outputs_and_scales(problem, outputs, theta))

    return draw


def _noise_only(heldout: Problem, names: list[str]) -> dict[str, float]:
    """Nominal values of those that no predicted output depends on, only its noise."""
    if not names or heldout.nominal is None:
        return {}
    place = [heldout.parameters.names.index(name) for name in names]
    thetas = np.tile(heldout.nominal, (len(names) + 1, 1))
    thetas[1 + np.arange(len(names)), place] += PROBE
    predictor = heldout.predictor(heldout.nominal[None], method="adaptive", tolerance=TOLERANCE)
    w, ok = _solve(predictor, thetas)
    w = w[:, :, heldout.columns]
    same = ok & ok[0] & np.all(w == w[0], axis=(1, 2))
    nominal = heldout.parameters.constrain(jnp.asarray(heldout.nominal))
    return {n: float(nominal[n]) for n, is_same in zip(names, same[1:], strict=True) if is_same}


def _unconstrained(name: str, parameter: Parameter, values: Array) -> Array:
    """θ of natural values, refused where the held-out problem does not allow them."""
    scaled = {"log": np.log, "log10": np.log10}.get(parameter.transform, lambda v: v)
    with np.errstate(invalid="ignore", divide="ignore"):
        on_scale = scaled(values)
    if parameter._bounds is None:
        if not np.isfinite(on_scale).all():
            raise InputError(
                f"the fit has values of {name!r} (such as {values[~np.isfinite(on_scale)][0]:g}) "
                f"that the held-out problem's {parameter.transform!r} transform does not allow."
            )
        return on_scale
    low, high = parameter._bounds
    slack = INSIDE * (high - low)
    if not np.all((on_scale >= low - slack) & (on_scale <= high + slack)):
        ends = [float(parameter.constrain(t)) for t in (-np.inf, np.inf)]
        raise InputError(
            f"the fit has values of {name!r} from {values.min():g} to {values.max():g}, and the "
            f"held-out problem allows {ends[0]:g} to {ends[1]:g}: give both the same bounds."
        )
    inside = np.clip(on_scale, low + slack, high - slack)
    return np.log(inside - low) - np.log(high - inside)
