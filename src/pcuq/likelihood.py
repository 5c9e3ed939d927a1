"""Predictions at the atoms, and the usual log-likelihood.

    log p(y | θ) = Σ over observed entries of log p(y_ic | w_c(x_i), s_ic),

constants included, in the units of the data: what Bayes and the starting fit use.
"""

from __future__ import annotations

import functools
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from pcuq._x64 import x64, x64_gradient
from pcuq.errors import InputError
from pcuq.problem import Predictor, Problem, check_problem

# Where noise is small beside the outputs, a log-likelihood needs many digits of them; in some stiff
# models rounding errors leave fewer.
TOLERANCES = (1e-10, 1e-8)


@x64
def log_likelihood(problem: Problem, theta) -> Float[Array, ""]:
    """log p(y | θ), constants included; −∞ where the model cannot be solved.

    Solved with adaptive steps of the method that suits the problem's nominal point, if it has one.
    """
    theta = point(problem, theta)
    return _accurate(problem)(theta)


@functools.lru_cache(maxsize=8)
def _accurate(problem: Problem):
    """Compiled once for a problem, which never changes."""

    def solved(tolerance: float):
        options: dict[str, Any] = {} if problem.nominal is None else {"method": "adaptive"}
        predictor = problem.predictor(problem.nominal, tolerance=tolerance, **options)
        return jax.jit(log_likelihood_function(problem, predictor))

    @x64
    def build():
        first = solved(TOLERANCES[0])
        if problem.nominal is None or np.isfinite(first(problem.nominal)):
            return first
        second = solved(TOLERANCES[1])
        return second if np.isfinite(second(problem.nominal)) else first

    # A thread of its own: the caller may be tracing, and solvers are chosen by real solves.
    with ThreadPoolExecutor(1) as elsewhere:
        return x64_gradient(elsewhere.submit(build).result(), forward_mode=True)


def log_likelihood_function(problem: Problem, predictor: Predictor):
    """θ ↦ log p(y | θ), on a given way of solving the model; also (θ, other data)."""
    of_outputs = log_likelihood_of_outputs(problem)
    return lambda theta, *y: of_outputs(*predictor(theta), theta, *y)


def log_likelihood_of_outputs(problem: Problem):
    """(outputs at the points, ok, θ) ↦ log p(y | θ); y may be other data of the same shape."""
    data = problem.data
    observed = jnp.asarray(data.observed)
    if data.noises[0].joint and not data.observed.all():
        raise InputError(
            "a likelihood under JointNoise needs complete rows: y has missing values; drop those "
            "rows, or use noise that is independent over outputs."
        )

    def log_density(outputs, ok, theta, y=data.y):
        measured = jnp.asarray(y)
        w, s = outputs_and_scales(problem, outputs, theta)
        good = (s > 0) & jnp.isfinite(s)
        ok = ok & jnp.all(good | ~observed)
        s = jnp.where(good & observed, s, 1.0)
        if data.noises[0].joint:
            return jnp.where(ok, jnp.sum(data.noise.log_prob(measured, w, s)), -jnp.inf)
        total = 0.0
        for column, noise in enumerate(data.noises):
            values, fine = noise.measurable(w[:, column])
            ok = ok & jnp.all(fine | ~observed[:, column])
            known = jnp.where(observed[:, column], measured[:, column], 1.0)
            terms = noise.log_prob(known, values, s[:, column])
            total = total + jnp.sum(jnp.where(observed[:, column], terms, 0.0))
        return jnp.where(ok, total, -jnp.inf)

    return log_density


def predictions(problem: Problem, outputs: Array, ok: Array, theta: Float[Array, " p"]):
    """(w, s, ok) at the atoms from the outputs at the points, w on the scale of the kernels."""
    design = problem.design
    scales = scales_at_points(problem, outputs, theta)
    at_atoms = (design.atom_points[:, None], design.columns)
    w = outputs[:, problem.columns]
    on_scale, in_range = [], []
    for column, noise in enumerate(problem.data.noises):
        values, fine = noise.measurable(w[:, column])
        on_scale.append(noise.forward(values))
        in_range.append(fine)
    w = jnp.stack(on_scale, axis=-1)[at_atoms]
    # An output that is not observed at a point may be zero there.
    ok = ok & jnp.all(jnp.stack(in_range, axis=-1)[at_atoms] | ~design.mask)
    if scales is None:
        s = jnp.asarray(known_scale(problem))
    else:
        static = design.at_atoms(problem.scale.static)
        s = jnp.where(static > 0, static, scales[at_atoms])
        good = (s > 0) & jnp.isfinite(s)
        ok = ok & jnp.all(good | ~design.mask)
        s = jnp.where(good & design.mask, s, 1.0)
    # 1 is in the range of every noise: e and e0 of a failed particle must be finite, to be cut.
    return jnp.where(ok, w, 1.0), jnp.where(ok, s, 1.0), ok


def known_scale(problem: Problem) -> Float[np.ndarray, "M k"]:
    """The scale at the atoms where it does not depend on θ, 1 where nothing is observed."""
    design = problem.design
    return np.where(design.mask, design.at_atoms(problem.scale.static), 1.0)


def outputs_and_scales(problem: Problem, outputs: Array, theta: Array) -> tuple[Array, Array]:
    """(w, s), each (n, d), of every entry of the data, from the outputs at the points."""
    of_row, static = problem.points.of_row, jnp.asarray(problem.scale.static)
    scales = scales_at_points(problem, outputs, theta)
    s = static if scales is None else jnp.where(static > 0, static, scales[of_row])
    return outputs[of_row][:, problem.columns], s


def scales_at_points(problem: Problem, outputs: Array, theta: Array):
    """(G, d) scales at the points, None where the scale does not depend on θ."""
    if not problem.scale.depends_on_theta:
        return None
    covariates = problem.points.covariates
    x = None if covariates[0] is None else jnp.concatenate([jnp.asarray(x) for x in covariates])
    first_row = np.unique(problem.points.of_row, return_index=True)[1]
    values = problem.parameters.constrain(theta)
    return problem.scale(values, first_row, outputs, x)


def point(problem: Problem, theta) -> Float[Array, " p"]:
    """θ as an array of the right shape."""
    check_problem(problem)
    try:
        theta = jnp.asarray(theta).astype(jnp.float64)
    except (TypeError, ValueError):
        raise InputError(f"θ needs numbers, one per parameter: got {theta!r}.") from None
    if theta.shape != (len(problem.parameters),):
        raise InputError(
            f"θ needs one number per parameter ({', '.join(problem.parameters)}): "
            f"got shape {theta.shape}."
        )
    return theta
