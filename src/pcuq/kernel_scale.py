"""Data as the kernel sees them: on the scale where noise is additive, in units of ℓ_Y."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from pcuq.likelihood import predictions
from pcuq.problem import Problem
from pcuq.start import noise_at_starting_fit, starting_fit

# Residuals of a width of the kernel lose two fifths of a datum's similarity, and those of a third
# one in twenty: a fit that leaves so much is still seen as one, and a better one as better.
BEYOND = 3.0


def default_lengthscale(problem: Problem) -> Float[np.ndarray, " d"]:
    """ℓ_Y: as given, else the noise's sd, or its median over rows where rows differ."""
    given = problem.kernel.lengthscale_y
    if problem.kernel.by_residuals:
        return np.maximum(_noise(problem), BEYOND * residuals_at_starting_fit(problem))
    if given is not None:
        return np.broadcast_to(np.asarray(given, dtype=float), (problem.data.d,)).copy()
    return _noise(problem)


def residuals_at_starting_fit(problem: Problem) -> Float[np.ndarray, " d"]:
    """Root mean square of data less predictions, where kernels act; 0 where none is measured."""
    theta = jnp.asarray(starting_fit(problem).best)
    design = problem.design
    with jax.enable_x64(True):
        w, _, _ = predictions(problem, *problem.predictor()(theta), theta)
    # Of all that a datum is compared with, what is predicted at its own covariate.
    own = (
        design.atom_points[design.data_atoms]
        == problem.points.of_row[design.rows][design.data_index]
    )
    index, atoms = design.data_index[own], design.data_atoms[own]
    apart = on_kernel_scale(problem)[index] - np.asarray(w)[atoms]
    found = np.zeros(problem.data.d)
    for column in range(problem.data.d):
        here = design.datum_mask[index] & (design.datum_columns[index] == column)
        if here.any():
            found[column] = np.sqrt(np.mean(apart[here] ** 2))
    return found


def _noise(problem: Problem) -> Float[np.ndarray, " d"]:
    """The noise's sd, or its median over rows."""
    needs_fit = problem.scale.depends_on_theta or any(
        noise.discrete or getattr(noise, "standard_deviation", None) is not None
        for noise in problem.data.noises
    )
    observed, noises = problem.data.observed, problem.data.noises
    if needs_fit:
        return noise_at_starting_fit(problem)
    return np.array(
        [
            np.median(noises[c].sd(None, problem.scale.static[observed[:, c], c]))
            if observed[:, c].any()
            else 1.0
            for c in range(problem.data.d)
        ]
    )


def on_kernel_scale(problem: Problem) -> np.ndarray:
    """(n, k) data on the scale where kernels act, 0 where missing."""
    data, design = problem.data, problem.design
    with jax.enable_x64(True):
        columns = [
            np.asarray(noise.forward(jnp.where(data.observed[:, c], data.y[:, c], 1.0)))
            for c, noise in enumerate(data.noises)
        ]
    table = np.stack(columns, axis=-1)
    values = np.take_along_axis(table[design.rows], design.datum_columns, axis=1)
    return np.where(design.datum_mask, values, 0.0)
