"""Parameters between bounds, of which the data want one beyond its bound: the law that is drawn.

The moves are made in other coordinates than θ (see `samplers/straight.py`). Draws are held against
the exact law on a grid, and so is a law in which the density of these coordinates is taken for that
of θ, which must be told apart.
"""

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest

import pcuq
from pcuq.objective import Objective

LAM, FARTHEST = 2e-3, 0.05
CELLS = 72, 60
X = np.linspace(0.5, 3.0, 8)


@pytest.fixture(scope="module")
def problem():
    model = pcuq.FunctionModel(
        lambda x, p: [p["level"] * jnp.exp(-p["rate"] * x)],
        {
            "level": pcuq.Parameter("interval", dist.Uniform(0.0, 3.0), "natural", 0.0, 3.0),
            "rate": pcuq.Parameter("log10", dist.Uniform(-2.0, 0.0), "scale", 0.01, 1.0),
        },
        ("y",),
    )
    y = 1.4 * np.exp(-1.2 * X) + 0.1 * np.array([1, -1, 0.4, -0.3, 1.2, 0, -0.8, 0.5])
    return pcuq.Problem(model, pcuq.Data(y[:, None], X, 0.2), pcuq.GaussianKernel(0.2))


def grid():
    """Middles of cells of equal prior mass as θ, and their volumes."""
    shares = [(np.arange(k) + 0.5) / k for k in CELLS]
    u = np.stack(np.meshgrid(*shares, indexing="ij"), -1).reshape(-1, 2)
    return np.log(u / (1 - u)), np.prod(1 / (u * (1 - u)), axis=1) / np.prod(CELLS)


def exact(problem, method):
    """The masses of the cells."""
    points, volumes = grid()
    if method == "pcuq":
        return np.asarray(pcuq.solve_on_grid(problem, LAM, points, volumes))
    gain = jax.vmap(lambda theta: pcuq.log_likelihood(problem, theta))(jnp.asarray(points))
    log_prior = Objective(problem).log_priors_of_many(points)
    masses = volumes * np.exp(log_prior + np.asarray(gain - jnp.max(gain)))
    return masses / masses.sum()


def distance(thetas, masses):
    """Between distribution functions at the borders of cells, largest over parameters."""
    shares, table = 1 / (1 + np.exp(-thetas)), masses.reshape(CELLS)
    found = []
    for k, cells in enumerate(CELLS):
        borders = np.arange(1, cells + 1) / cells
        below = np.searchsorted(np.sort(shares[:, k]), borders) / len(shares)
        found.append(np.abs(below - np.cumsum(table.sum(axis=1 - k))).max())
    return max(found)


@pytest.mark.parametrize("method", ["pcuq", "bayes"])
def test_draws_have_the_exact_law_up_to_the_bounds(problem, method):
    given = {"regularisation": LAM} if method == "pcuq" else {"method": "bayes"}
    fitted = pcuq.fit(problem, sampler="ensemble", seed=0, **given)
    assert fitted.status.startswith("Converged")
    masses = exact(problem, method)
    # The bound matters: much of the law lies in the last tenth of the range.
    assert masses.reshape(CELLS)[:, -6:].sum() > 0.2
    assert distance(fitted.thetas, masses) < FARTHEST
    u = 1 / (1 + np.exp(-grid()[0]))
    wrong = masses * np.prod(u * (1 - u), axis=1)
    assert distance(fitted.thetas, wrong / wrong.sum()) > 2 * FARTHEST
    if method == "pcuq":
        figures = fitted.diagnostics
        assert figures["fixed_point_ess"] > 200
        assert figures["fixed_point_mean"] < 0.15 and figures["fixed_point_mass"] < 0.05
