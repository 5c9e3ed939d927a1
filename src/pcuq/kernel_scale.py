"""Data as the kernel sees them: on the scale where noise is additive, in units of ℓ_Y."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from pcuq.problem import Problem
from pcuq.start import noise_at_starting_fit


def default_lengthscale(problem: Problem) -> Float[np.ndarray, " d"]:
    """ℓ_Y: as given, else the noise's sd, or its median over rows where rows differ."""
    given = problem.kernel.lengthscale_y
    if given is not None:
        return np.broadcast_to(np.asarray(given, dtype=float), (problem.data.d,)).copy()
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
