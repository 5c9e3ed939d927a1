"""Quality per second: the samplers of PCUQ against the exact Q_n, and Bayes beside NumPyro.

    python benchmarks/samplers.py

Lotka–Volterra as in the paper, misspecified, λ = 3e-5, N = 50, two systems. `distance` is the
largest difference between marginal distribution functions of the pooled draws and of the exact Q_n
on a grid. Seconds are those of warm-up and draws in a second run, in which nothing is compiled.
NumPyro's NUTS has the model as its users write it: adaptive Tsit5 of diffrax, reverse derivatives.
"""

from __future__ import annotations

import json
import time

import diffrax
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from numpyro.diagnostics import effective_sample_size
from numpyro.infer import MCMC, NUTS

import pcuq
from pcuq.bench import commit, machine
from pcuq.zoo import lotka_volterra

LAM, PARTICLES, SEED = 3e-5, 50, 0
# Runs of each sampler, about as long as each other: what one iteration costs differs much.
LENGTHS = {
    "ensemble": {"warmup": 300, "draws": 300, "thin": 2},
    "mala": {"warmup": 4000, "draws": 400, "thin": 10},
    "flow": {"warmup": 4000, "draws": 400, "thin": 10},
    "nuts": {"warmup": 40, "draws": 40, "thin": 1},
}
SHORTER = (5, 10, 20, 40, 80, 160, 320)  # iterations of warm-up, and as many draws
CLOSE = 0.05
BAYES = {"warmup": 500, "draws": 500}


def main() -> None:
    """Print all figures as JSON."""
    jax.config.update("jax_enable_x64", True)
    problem = lotka_volterra.problem(SEED, misspecified=True)
    exact = exact_marginals(problem)
    found = {"machine": machine(), "commit": commit(), "regularisation": LAM}
    found["samplers"] = {
        name: timed(problem, exact, sampler=name, **lengths) for name, lengths in LENGTHS.items()
    }
    found["time_to_exact"] = time_to_exact(problem, exact)
    bayes = twice(problem, method="bayes", **BAYES)
    found["bayes"] = {"pcuq": figures(bayes), "numpyro": by_numpyro(problem)}
    print(json.dumps(found, indent=2))


def twice(problem, **options):
    """The second of two fits: what there is to compile, the first has compiled."""
    pcuq.fit(problem, seed=SEED + 1, **options)
    return pcuq.fit(problem, seed=SEED, **options)


def timed(problem, exact, **options) -> dict:
    """A sampler's effective draws per second, and how far they are from the exact Q_n."""
    fit = twice(problem, regularisation=LAM, particles=PARTICLES, **options)
    return figures(fit) | {"distance": distance(fit.thetas, exact)}


def figures(fit) -> dict:
    """Seconds, effective sample size and R-hat of a fit."""
    clock = json.loads(fit.tree.attrs["seconds"])
    seconds = clock["compile_and_warmup"] + clock["draws"]
    ess = fit.diagnostics["ess_min"]
    return {
        "seconds": seconds,
        "ess": ess,
        "ess_per_s": ess / seconds,
        "rhat": fit.diagnostics["rhat_max"],
    }


def time_to_exact(problem, exact) -> dict:
    """Seconds of the shortest run of the default sampler whose draws are close to the exact Q_n."""
    runs = []
    for length in SHORTER:
        found = timed(problem, exact, warmup=length, draws=length, thin=1)
        runs.append({"iterations": 2 * length, **found})
        if found["distance"] < CLOSE:
            return {"close": CLOSE, "seconds": found["seconds"], "runs": runs}
    return {"close": CLOSE, "seconds": None, "runs": runs}


def exact_marginals(problem) -> list[tuple[np.ndarray, np.ndarray]]:
    """(values, distribution function) of each parameter under the exact Q_n."""
    fine = np.meshgrid(*_middles((-2.8, -1.2, 40), (-5.4, -2.8, 40)), indexing="ij")
    coarse = np.meshgrid(*_middles((-5.2, 4.4, 96), (-8.0, 4.4, 124)), indexing="ij")
    inner, outer = (np.stack(axes, -1).reshape(-1, 2) for axes in (fine, coarse))
    within = np.all((outer > [-2.8, -5.4]) & (outer < [-1.2, -2.8]), axis=1)
    points = np.concatenate([inner, outer[~within]])
    volumes = np.repeat([0.04 * 0.065, 0.01], [len(inner), np.sum(~within)])
    weights = np.asarray(pcuq.solve_on_grid(problem, LAM, points, volumes))
    marginals = []
    for column in points.T:
        values, which = np.unique(column.round(9), return_inverse=True)
        marginals.append((values, np.cumsum(np.bincount(which, weights))))
    return marginals


def _middles(*sides):
    for low, high, count in sides:
        edges = np.linspace(low, high, count + 1)
        yield (edges[1:] + edges[:-1]) / 2


def distance(thetas: np.ndarray, exact) -> float:
    """max over parameters and values of |F_draws − F_exact|."""
    apart = []
    for column, (values, shares) in zip(thetas.T, exact, strict=True):
        edges = np.append((values[1:] + values[:-1]) / 2, np.inf)
        drawn = np.searchsorted(np.sort(column), edges, side="right") / len(column)
        apart.append(np.max(np.abs(drawn - shares)))
    return float(np.max(apart))


def by_numpyro(problem) -> dict:
    """NUTS of NumPyro on the same posterior, four chains, compiled apart."""
    setting, x, y = lotka_volterra.SETTINGS["main"], problem.data.x, problem.data.y

    def slope(t, u, rates):
        alpha, beta = rates
        meet = u[0] * u[1]
        return jnp.stack([alpha * u[0] - beta * meet, setting.delta * meet - setting.gamma * u[1]])

    def model():
        theta = numpyro.sample("theta", dist.Normal(jnp.zeros(2), 1.0).to_event(1))
        solution = diffrax.diffeqsolve(
            diffrax.ODETerm(slope),
            diffrax.Tsit5(),
            t0=0.0,
            t1=float(x[-1]),
            dt0=None,
            y0=jnp.asarray(setting.initial),
            args=jax.nn.sigmoid(theta),
            saveat=diffrax.SaveAt(ts=jnp.asarray(x)),
            stepsize_controller=diffrax.PIDController(rtol=1e-6, atol=1e-6),
            max_steps=4096,
            throw=False,
        )
        numpyro.sample("y", dist.Normal(solution.ys, lotka_volterra.NOISE_SD), obs=jnp.asarray(y))

    mcmc = MCMC(
        NUTS(model, init_strategy=numpyro.infer.init_to_value(values={"theta": BEST})),
        num_warmup=BAYES["warmup"],
        num_samples=BAYES["draws"],
        num_chains=4,
        chain_method="vectorized",
        progress_bar=False,
    )
    mcmc.warmup(jax.random.key(1))
    mcmc.run(jax.random.key(1))  # compiled now
    began = time.perf_counter()
    mcmc.warmup(jax.random.key(0))
    mcmc.run(jax.random.key(0))
    draws = np.asarray(mcmc.get_samples(group_by_chain=True)["theta"])
    seconds = time.perf_counter() - began
    ess = float(np.min(effective_sample_size(draws)))
    return {"seconds": seconds, "ess": ess, "ess_per_s": ess / seconds}


BEST = np.array([-2.0, -4.0])  # a start that does not cost NumPyro its warm-up

if __name__ == "__main__":
    main()
