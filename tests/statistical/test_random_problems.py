"""Every sampler against the exact answer, over random problems with one or two parameters.

    python tests/statistical/test_random_problems.py 20

prints, for each problem and method, the largest distance between the distribution functions of the
draws and of the exact law on a grid, over parameters, and the same for a law that is wrong: that of
2 λ, and of Bayes the root of its density. Draws may be 0.05 away, as elsewhere.
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
import pytest
from scipy.special import logsumexp

import pcuq
from pcuq.objective import Objective

FARTHEST = 0.05
REACH, CELLS = 4.0, {1: 800, 2: 64}
CURVES = {
    1: (
        lambda x, a: a + 0 * x,
        lambda x, a: a * x,
        lambda x, a: jnp.exp(-jnp.exp(a) * x),
        lambda x, a: jnp.sin((2 + a) * x),
    ),
    2: (
        lambda x, a, b: a + b * x,
        lambda x, a, b: a * jnp.exp(-jnp.exp(b) * x),
        lambda x, a, b: jnp.tanh(a * (x - 1) + b),
    ),
}
RUNS = {
    "ensemble": {"particles": 50},
    "mala": {"particles": 50, "sampler": "mala", "warmup": 1000, "draws": 1000, "thin": 4},
    "nuts": {"particles": 30, "sampler": "nuts", "warmup": 300, "draws": 400},
    "bayes": {"method": "bayes"},
    "bayes by ensemble": {"method": "bayes", "sampler": "ensemble"},
    # Four times as many as else: with fewer a right sampler is 0.05 away now and then.
    "mmd-bayes": {"method": "mmd-bayes", "warmup": 500, "draws": 4000, "thin": 1},
}


def random_problem(seed):
    """(problem, λ): a curve, data that it need not be able to follow, noise, kernel and λ."""
    rng = np.random.default_rng(seed)
    count = 1 + seed % 2
    curve = CURVES[count][rng.integers(len(CURVES[count]))]
    names = ("a", "b")[:count]
    x = np.sort(rng.uniform(0, 3, rng.integers(6, 20)))
    sd = rng.uniform(0.25, 0.5)
    wrong = rng.uniform(0, 0.6) * np.sin(3 * x + rng.uniform(0, 6))
    y = np.asarray(curve(x, *rng.normal(0, 0.7, count))) + wrong + rng.normal(0, sd, len(x))
    model = pcuq.FunctionModel(
        lambda x, p: [curve(x, *(p[name] for name in names))],
        {name: pcuq.Parameter("identity", dist.Normal(0, 1)) for name in names},
        ("y",),
    )
    kernel = pcuq.GaussianKernel(sd * rng.uniform(0.7, 2))
    problem = pcuq.Problem(model, pcuq.Data(y[:, None], x, sd), kernel)
    best = Objective(problem).data_terms_of_many(grid(count)[0]).max()
    return problem, float(best / np.exp(rng.uniform(np.log(3), np.log(30))))


def grid(count):
    """Middles of cells, and their volume."""
    width = 2 * REACH / CELLS[count]
    axis = -REACH + width * (np.arange(CELLS[count]) + 0.5)
    points = np.stack(np.meshgrid(*[axis] * count, indexing="ij"), -1).reshape(-1, count)
    return points, width**count


def exact(problem, lam, name):
    """The masses of the cells."""
    points, volume = grid(len(problem.parameters))
    if "bayes" not in name:
        return np.asarray(pcuq.solve_on_grid(problem, lam, points, np.full(len(points), volume)))
    log_prior = Objective(problem).log_priors_of_many(points)
    if name.startswith("bayes"):
        gain = jax.vmap(lambda theta: pcuq.log_likelihood(problem, theta))(jnp.asarray(points))
    else:
        objective = Objective(problem)
        features = jax.jit(objective.features)(points)
        own = jax.vmap(lambda one: objective.pair_block(one, one)[0, 0])(
            jax.tree.map(lambda leaf: leaf[:, None], features)
        )
        gain = (objective.data_terms_of_many(points) - np.asarray(own) / 2) / lam  # β = 1/(2λ)
    log_mass = log_prior + np.asarray(gain)
    return np.exp(log_mass - logsumexp(log_mass))


def distance(thetas, masses):
    """Between distribution functions, at the borders of cells; largest over parameters."""
    count = thetas.shape[-1]
    table = masses.reshape([CELLS[count]] * count)
    borders = np.linspace(-REACH, REACH, CELLS[count] + 1)[1:]
    found = []
    for k in range(count):
        marginal = table.sum(axis=tuple(j for j in range(count) if j != k))
        below = np.searchsorted(np.sort(thetas[:, k]), borders, side="right") / len(thetas)
        found.append(np.abs(below - np.cumsum(marginal)).max())
    return max(found)


def wrong(problem, lam, name):
    """The masses of a law that is not the one drawn from."""
    if not name.startswith("bayes"):
        return exact(problem, 2 * lam, name)
    masses = np.sqrt(exact(problem, lam, name))
    return masses / masses.sum()


def compared(seed, name):
    """Distances of the draws to the exact law, and to a wrong one."""
    problem, lam = random_problem(seed)
    given = {} if name.startswith("bayes") else {"regularisation": lam}
    fit = pcuq.fit(problem, seed=seed, **RUNS[name], **given)
    return [distance(fit.thetas, law(problem, lam, name)) for law in (exact, wrong)]


@pytest.mark.quick("0-ensemble", "0-bayes by ensemble", "0-mmd-bayes")
@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("seed", [0, 1])
def test_draws_follow_the_exact_law_of_random_problems(seed, name):
    right, wrong = compared(seed, name)
    assert right < FARTHEST < wrong


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    known = {name: [] for name in RUNS}
    for seed in range(int(sys.argv[1])):
        for name, found in known.items():
            found.append(compared(seed, name))
            print(f"problem {seed}, {name}: {found[-1][0]:.3f}", flush=True)
    for name, found in known.items():
        right, of_wrong = np.array(found).T
        print(
            f"{name}: median {np.median(right):.3f}, largest {right.max():.3f}, beyond {FARTHEST} "
            f"{np.sum(right > FARTHEST)} of {len(right)}, and of a wrong law "
            f"{np.sum(of_wrong > FARTHEST)}"
        )
