"""How long things take, compiling and running apart, with the accuracy that was bought.

    lotka_volterra, N = 10 … 1000   the paper's problem: n = 61, two outputs, two parameters
    erk, N = 20                     n = 80, eleven outputs, eleven parameters

Times are the best of several repeats, in milliseconds. The particles lie around the best fit, with
three times the covariance that the curvature there says. `ode_error` is the largest difference, in
the units of the outputs, between the frozen mesh and a tight adaptive solve of those particles:
a time says little without it. `gradient_memory_kb` is what the program of one gradient needs.
"""

from __future__ import annotations

import math
import os
import platform
import resource
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pcuq._program import options
from pcuq._x64 import x64
from pcuq.bench_reference import time_reference
from pcuq.objective import Objective, derivative_mode
from pcuq.problem import Problem
from pcuq.samplers.mala import Mala
from pcuq.start import Start, starting_fit
from pcuq.zoo import erk, lotka_volterra

Tell = Callable[[str], None]

LV_LAM, ERK_LAM = 3e-5, 1.6e-7
# N: iterations of MALA in one compiled loop.
LV_SIZES = {10: 400, 50: 200, 200: 100, 1000: 20}
ERK_SIZES = {20: 50}
MESH_TOLERANCE, TIGHT = 1e-6, 1e-10
REPRESENTATIVES = 64  # particles from which the mesh is chosen, and on which it is checked
REPEATS = 5
LEAST_SECONDS = 0.2  # of one timing: shorter calls are repeated within it
LOG_STEP = -6.0


@x64
def bench(
    quick: bool = False, reference: str | Path | None = None, tell: Tell = lambda line: None
) -> dict[str, Any]:
    """All figures, ready for JSON; `quick` leaves out all but Lotka–Volterra with N = 10.

    `reference`: a checkout of the authors' code, which is timed beside (see `bench_reference`).
    """
    # A compilation that is read from a cache says nothing of compiling.
    cached = jax.config.jax_enable_compilation_cache  # type: ignore[attr-defined]
    jax.config.update("jax_enable_compilation_cache", False)
    try:
        found: dict[str, Any] = {"machine": machine(), "commit": commit()}
        sizes = {10: LV_SIZES[10]} if quick else LV_SIZES
        found["lotka_volterra"] = _sizes(
            "lotka_volterra", lotka_volterra.problem(seed=0), LV_LAM, sizes, tell
        )
        if not quick:
            found["erk"] = _sizes("erk", erk.problem(seed=0), ERK_LAM, ERK_SIZES, tell)
        if reference is not None:
            tell("the authors' code")
            found["reference"] = _beside(found, time_reference(reference))
    finally:
        jax.config.update("jax_enable_compilation_cache", cached)
    found["memory_mb"] = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    return found


def _beside(ours: dict[str, Any], theirs: dict[str, Any]) -> dict[str, Any]:
    """Theirs, with how many times as long an iteration takes where both were timed."""
    for model, rows in theirs.items():
        for count, row in rows.items():
            here = ours.get(model, {}).get(count)
            if here is not None:
                row["times_as_long"] = row["ms_per_mala_iteration"] / here["ms_per_mala_iteration"]
    return theirs


def _sizes(
    name: str, problem: Problem, lam: float, sizes: dict[int, int], tell: Tell
) -> dict[str, Any]:
    tell(f"{name}: starting fit")
    start = starting_fit(problem)
    found = {}
    for count, iterations in sizes.items():
        tell(f"{name}: N = {count}")
        found[str(count)] = measure(problem, start, lam, count, iterations)
    return found


@x64
def measure(
    problem: Problem,
    start: Start,
    lam: float,
    particles: int,
    iterations: int,
    repeats: int = REPEATS,
) -> dict[str, float]:
    """One gradient and one MALA iteration of N particles, and what they cost to compile."""
    noise = np.random.default_rng(0).normal(size=(particles, len(start.best)))
    thetas = start.scattered(noise, math.sqrt(3))
    some = thetas[:REPRESENTATIVES]
    mode = derivative_mode(problem)
    predictor = problem.predictor(some, mode=mode, tolerance=MESH_TOLERANCE)
    objective = Objective(problem, predictor, mode=mode)
    positions = jnp.asarray(thetas)

    began = time.perf_counter()
    gradient = (
        jax.jit(lambda thetas: objective.joint_value_and_gradient(thetas, jnp.asarray(lam)))
        .lower(positions)
        .compile(compiler_options=options())
    )
    compile_gradient = time.perf_counter() - began

    sampler = Mala(objective, lam)
    v = np.asarray(jax.jit(lambda t: objective.data_terms(objective.features(t)))(positions))
    tuning = sampler.tune(thetas, v, warmed=1.0)
    state = jax.jit(sampler.init)(positions, tuning, jnp.asarray(LOG_STEP))

    def loop(key, state):
        def body(i, state):
            return sampler.step(jax.random.fold_in(key, i), state, tuning)[0]

        return jax.lax.fori_loop(0, iterations, body, state)

    key = jax.random.key(0)
    began = time.perf_counter()
    mala = jax.jit(loop).lower(key, state).compile(compiler_options=options())
    compile_mala = time.perf_counter() - began
    return {
        "ms_per_gradient": 1e3 * best_seconds(lambda: gradient(positions), repeats),
        "ms_per_mala_iteration": 1e3 * best_seconds(lambda: mala(key, state), repeats) / iterations,
        "compile_s": compile_mala,
        "compile_gradient_s": compile_gradient,
        "steps": int(sum(part["steps"] for part in predictor.describe())),
        "ode_error": _ode_error(problem, predictor, jnp.asarray(some)),
        "gradient_memory_kb": _memory(gradient) / 1024,
    }


def _memory(program) -> int:
    """Bytes that a program needs: arguments, results and all between, as its compiler planned."""
    plan = program.memory_analysis()
    parts = ("argument_size_in_bytes", "output_size_in_bytes", "temp_size_in_bytes")
    return sum(getattr(plan, part) for part in parts)


def _ode_error(problem: Problem, predictor, thetas) -> float:
    tight = problem.predictor(mode="forward", tolerance=TIGHT)
    w, ok = jax.jit(jax.vmap(predictor))(thetas)
    exact, fine = jax.jit(jax.vmap(tight))(thetas)
    both = ok & fine
    return float(jnp.max(jnp.where(both[:, None, None], jnp.abs(w - exact), 0.0)))


def best_seconds(call: Callable[[], Any], repeats: int = REPEATS) -> float:
    """Seconds of one call, the best of several timings: others on the machine only add to it."""
    jax.block_until_ready(call())
    began = time.perf_counter()
    jax.block_until_ready(call())
    times = max(1, int(LEAST_SECONDS / (time.perf_counter() - began)))
    found = []
    for _ in range(repeats):
        began = time.perf_counter()
        for _ in range(times):
            result = call()
        jax.block_until_ready(result)
        found.append((time.perf_counter() - began) / times)
    return min(found)


def machine() -> dict[str, Any]:
    """What it ran on, how busy that was, and how long a known piece of work takes there."""
    import importlib.metadata

    a = np.random.default_rng(0).normal(size=(500, 500))
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
        "system": platform.platform(),
        "python": platform.python_version(),
        "jax": importlib.metadata.version("jax"),
        "device": jax.devices()[0].platform,
        "reference_ms": 1e3 * best_seconds(lambda: a @ a),  # a product of 500 × 500 matrices
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def commit() -> str | None:
    """The commit of this source, marked where it was changed since; None outside a checkout."""
    try:
        found = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            timeout=10,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return found.stdout.strip() or None
