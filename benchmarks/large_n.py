"""Steps of the unadjusted flow with random batches: cost, memory and the error of the drift.

    python benchmarks/large_n.py [N ...]

Lotka–Volterra as in the paper. `drift_error` is the root mean square over particles and parameters
of (drift − exact drift) in one step, relative to that of the exact drift's pair term, measured at
N = 1000; `stated` is what the formula in `pcuq.random_batch` gives for it.
"""

from __future__ import annotations

import json
import resource
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np

from pcuq._program import options
from pcuq.bench import best_seconds, commit, machine
from pcuq.objective import Objective
from pcuq.random_batch import RandomBatches
from pcuq.samplers.flow import Flow
from pcuq.zoo import lotka_volterra

LAM, BATCH, LOG_STEP = 3e-5, 64, -8.0
CHECKED, KEYS = 1000, 40


def main(counts: list[int]) -> None:
    """Print the figures as JSON."""
    jax.config.update("jax_enable_x64", True)
    problem = lotka_volterra.problem(0)
    rng = np.random.default_rng(0)
    thetas = np.array([-2.0, -4.0]) + np.array([0.1, 0.2]) * rng.normal(size=(max(counts), 2))
    objective = Objective(problem, problem.predictor(thetas[:64], mode="forward"))
    batches = RandomBatches(objective, BATCH)
    found = {"machine": machine(), "commit": commit(), "batch": BATCH, "particles": {}}
    for count in counts:
        found["particles"][str(count)] = step_cost(batches, thetas[:count])
    found["ratio"] = (
        found["particles"][str(counts[-1])]["ms_per_step"]
        / found["particles"][str(counts[0])]["ms_per_step"]
    )
    found |= drift_error(objective, batches, thetas[:CHECKED])
    found["peak_memory_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps(found, indent=2))


def step_cost(batches: RandomBatches, thetas: np.ndarray) -> dict[str, float]:
    """Time and memory of one step."""
    sampler = Flow(batches, LAM)
    tuning = sampler.tune(thetas[None, None], np.ones((1, 1, len(thetas))), 1.0)
    state = jax.jit(sampler.init)(jnp.asarray(thetas), tuning, jnp.asarray(LOG_STEP))
    key = jax.random.key(0)
    began = time.perf_counter()
    step = jax.jit(sampler.step).lower(key, state, tuning).compile(compiler_options=options())
    compiling = time.perf_counter() - began
    plan = step.memory_analysis()
    return {
        "ms_per_step": 1e3 * best_seconds(lambda: step(key, state, tuning)),
        "compile_s": compiling,
        "memory_mb": (plan.temp_size_in_bytes + plan.argument_size_in_bytes) / 2**20,
    }


def drift_error(objective: Objective, batches: RandomBatches, thetas) -> dict[str, float]:
    """The error of the drift in one step and on average, relative to its pair term."""
    thetas = jnp.asarray(thetas)
    exact = np.asarray(jax.jit(objective.joint_evaluation)(thetas, LAM)[1])
    alone = jax.jit(lambda t: objective.joint_evaluation(t, LAM, others=_none)[1])
    pairs = exact - np.asarray(alone(thetas))
    one = jax.jit(lambda key: batches.joint_evaluation(thetas, LAM, key)[1])
    estimates = np.stack([one(key) for key in jax.random.split(jax.random.key(1), KEYS)])
    size = np.sqrt(np.mean(pairs**2))
    return {
        "drift_error": float(np.sqrt(np.mean((estimates - exact) ** 2)) / size),
        "drift_bias": float(np.sqrt(np.mean((estimates.mean(axis=0) - exact) ** 2)) / size),
        "stated": float(np.sqrt(np.mean(_stated(objective, thetas) ** 2)) / size),
    }


def _none(features):
    return jnp.zeros(len(features.ok)), jax.tree.map(jnp.zeros_like, features.representation)


def _stated(objective: Objective, thetas, some: int = 20) -> np.ndarray:
    """sd over j of the drift from j alone, times the factor of a mean over BATCH − 1 of them."""

    def from_one(i, j):
        pair = jnp.stack([thetas[i], thetas[j]])
        together = objective.joint_evaluation(pair, LAM)[1][0]
        return together - objective.joint_evaluation(pair, LAM, others=_none)[1][0]

    count = len(thetas)
    table = jax.jit(jax.vmap(lambda i, j: from_one(i, j), (None, 0)))
    each = [
        np.std(np.asarray(table(i, jnp.delete(jnp.arange(count), i))), axis=0) for i in range(some)
    ]
    return np.stack(each) * np.sqrt((count - BATCH) / (count - 2) / (BATCH - 1))


if __name__ == "__main__":
    main([int(number) for number in sys.argv[1:]] or [1000, 10000])
