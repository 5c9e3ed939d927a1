"""Run by test_sharded in processes of its own: how many devices there are is fixed at their start.

python sharded_run.py OUT [PROCESS PROCESSES PORT]
"""

import sys

import jax

if len(sys.argv) > 2:
    process, processes, port = map(int, sys.argv[2:])
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"127.0.0.1:{port}", processes, process)
jax.config.update("jax_enable_x64", True)

import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax.experimental.multihost_utils import process_allgather  # noqa: E402

from pcuq import Data, GaussianKernel, ODEModel, Parameter, Problem  # noqa: E402
from pcuq.objective import Objective  # noqa: E402
from pcuq.samplers.mala import Mala  # noqa: E402
from pcuq.sharded import ShardedObjective  # noqa: E402

LAM, COUNT, ITERATIONS, LOG_STEP = 1e-3, 16, 20, -5.0


def logistic(t, u, p):
    return {"u": p["r"] * u[0] * (1 - u[0] / p["k"])}


model = ODEModel(logistic, {"u": 0.1}, {"r": Parameter("log"), "k": Parameter("log")})
times = np.linspace(0.0, 6.0, 7)
y = 1 / (1 + 9 * np.exp(-times))
problem = Problem(model, Data(y[:, None], times, 0.1), GaussianKernel())
thetas = 0.3 * np.random.default_rng(0).normal(size=(COUNT, 2))
objective = Objective(problem, problem.predictor(thetas))
sharded = ShardedObjective(objective)


def evaluated(one, positions):
    program = jax.jit(one.joint_evaluation).lower(positions, LAM).compile()
    return [everywhere(one, leaf) for leaf in program(positions, LAM)[:2]]


def everywhere(one, array):
    """The whole of what the processes hold in parts."""
    return np.asarray(process_allgather(array, tiled=True) if one is sharded else array)


def walked(one, positions):
    """The positions after each of some steps of MALA: they change where a step was accepted."""
    sampler = Mala(one, LAM)
    tuning = sampler.tune(thetas[None, None], np.ones((1, 1, COUNT)), 1.0)
    state = jax.jit(sampler.init)(positions, tuning, jnp.asarray(LOG_STEP))
    step, path = jax.jit(sampler.step), []
    for i in range(ITERATIONS):
        state, _ = step(jax.random.key(i), state, tuning)
        path.append(everywhere(one, state.at.theta))
    return np.stack(path)


def memory(one, count):
    """Bytes between arguments and results, on one device."""
    positions = jnp.zeros((count, 2))
    if one is sharded:
        positions = sharded.place(np.zeros((count, 2)))
    program = jax.jit(one.joint_evaluation).lower(positions, LAM).compile()
    return program.memory_analysis().temp_size_in_bytes


found = dict(devices=sharded.count, memory=memory(objective, 32768))
for name, one in (("", objective), ("shared_", sharded)):
    positions = jnp.asarray(thetas) if one is objective else sharded.place(thetas)
    found[f"{name}value"], found[f"{name}gradient"] = evaluated(one, positions)
    found[f"{name}path"] = walked(one, positions)
found["shared_memory"] = memory(sharded, 32768)
if jax.process_index() == 0:
    np.savez(sys.argv[1], **found)
