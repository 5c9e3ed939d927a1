"""The ODE part against C: trajectories and sensitivities of Lotka–Volterra on the same mesh.

    python benchmarks/ode_in_c.py

The C (`lotka_volterra.c`) is compiled here with -O3 for this processor. Both take the same steps of
the same method, on one thread; their results are compared before they are timed, in turns.
"""

from __future__ import annotations

import ctypes
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from pcuq._program import options
from pcuq.bench import best_seconds, commit, machine
from pcuq.models import mesh
from pcuq.models.lanes import Lanes
from pcuq.zoo import lotka_volterra

COUNTS = (10, 200, 1000)
TOLERANCE = 1e-6
ROUNDS = 7
SETTING = lotka_volterra.SETTINGS["main"]
FITTED = ("alpha", "beta")


def main() -> None:
    """Print the times of both, for each number of particles, as JSON."""
    jax.config.update("jax_enable_x64", True)
    problem = lotka_volterra.problem(0)
    rng = np.random.default_rng(0)
    thetas = np.array([-2.0, -4.0]) + 0.05 * rng.normal(size=(max(COUNTS), 2))
    solver = problem.predictor(thetas[:64], mode="forward", tolerance=TOLERANCE).solvers[0]
    assert isinstance(solver, mesh.MeshSolver)
    (grid,), (segment,) = solver.grids, solver.segments
    found: dict[str, Any] = {"machine": machine(), "commit": commit(), "steps": len(grid.steps)}
    with tempfile.TemporaryDirectory() as folder:
        library = compiled(folder)
        found["particles"] = {
            str(count): compared(
                library, problem.model, grid, segment, problem.parameters.constrain(thetas[:count])
            )
            for count in COUNTS
        }
    print(json.dumps(found, indent=2))


def compiled(folder: str) -> ctypes.CDLL:
    """The library, made by the C compiler of this machine."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        sys.exit("a C compiler is wanted: cc, gcc or clang.")
    library = Path(folder) / "lotka_volterra.so"
    source = Path(__file__).with_name("lotka_volterra.c")
    flags = ["-O3", "-march=native", "-ffast-math", "-shared", "-fPIC"]
    subprocess.run([compiler, *flags, str(source), "-o", str(library)], check=True)
    return ctypes.CDLL(str(library))


def compared(library, model, grid: mesh.Grid, segment, values) -> dict[str, float]:
    """Milliseconds of both, the best of several rounds, after their results have been compared."""
    values = {name: jnp.asarray(value) for name, value in values.items()}
    ours = jax.jit(sensitivities(model, grid, segment)).lower(values)
    program, in_c = ours.compile(compiler_options=options()), prepared(library, grid, values)
    states, slopes = map(np.asarray, program(values))
    together = np.moveaxis(np.concatenate([states, *slopes], axis=1), -1, 0)
    apart = np.abs(together - in_c()).max() / np.abs(together).max()
    assert apart < 1e-10, f"the two differ by {apart}"
    best = np.full(2, np.inf)
    for _ in range(ROUNDS):
        seconds = best_seconds(lambda: program(values), 1), best_seconds(in_c, 1)
        best = np.minimum(best, seconds)
    return {"ms_pcuq": 1e3 * best[0], "ms_c": 1e3 * best[1], "ratio": best[0] / best[1]}


def prepared(library: ctypes.CDLL, grid: mesh.Grid, values):
    """A call of the C that fills and returns (L, M, 6): states, and their slopes in both."""
    count, steps = len(values["alpha"]), len(grid.steps)
    out = np.empty((count, steps, 6))
    arrays = [grid.steps, np.concatenate(mesh.STAGES), np.array(mesh.WEIGHTS)]
    arrays += [np.array(values[name]) for name in FITTED] + [np.array(SETTING.initial), out]
    pointers = [array.ctypes.data_as(ctypes.c_void_p) for array in arrays]
    rates = [ctypes.c_double(SETTING.gamma), ctypes.c_double(SETTING.delta)]
    arguments = [ctypes.c_size_t(count), ctypes.c_size_t(steps)]
    arguments += [*pointers[:5], *rates, *pointers[5:]]

    def call():
        library.solve(*arguments)
        return out

    return call


def sensitivities(model, grid: mesh.Grid, segment):
    """values → states (M, 2, L) at all nodes and their derivatives in alpha and beta."""
    everywhere = grid._replace(rows=np.arange(1, len(grid.steps) + 1))
    segment = segment._replace(x=np.cumsum(grid.steps))

    def states(values):
        lanes = Lanes(model, len(values["alpha"]))
        return mesh.integrate(lanes, (segment,), (everywhere,), values).states

    def along(values, direction):
        tangents = {
            name: jnp.full_like(values[name], direction[i]) for i, name in enumerate(FITTED)
        }
        return jax.jvp(states, (values,), (tangents,))

    return lambda values: jax.vmap(along, (None, 0), out_axes=(None, 0))(values, jnp.eye(2))


if __name__ == "__main__":
    main()
