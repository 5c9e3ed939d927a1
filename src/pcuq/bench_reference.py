"""The authors' own code, timed on the same data in the same run.

PATH is a checkout of their repository (zheyang-shen/prediction_centric_uq). Its `pcuq_utils.py` is
imported and run: its density, its MALA and its Langevin step, in 32 bits and with the solver that
their notebooks use, Tsit5 of diffrax with constant steps. Nothing of theirs is in this package.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import diffrax
import jax
import jax.numpy as jnp
import numpy as np

from pcuq.errors import InputError
from pcuq.problem import Problem
from pcuq.zoo import erk, lotka_volterra

# As in the notebooks: particles, steps of the solver, ℓ²/σ², and λ in their units.
LV_PARTICLES, LV_STEP, LV_WIDTH = 10, 0.05, 0.1
ERK_PARTICLES, ERK_STEP, ERK_WIDTH = 20, 0.02, 1.0
LAM, STEP_SIZE = 1e-3, 1e-6
FEW, MANY = 3, 11  # iterations of a short and a long run: their difference has compiled nothing

Slope = Callable[[Any, Any, Any], Any]


def time_reference(path: str | Path) -> dict[str, Any]:
    """Milliseconds of one iteration of theirs, and the error of their solver at the truth."""
    theirs = _module(Path(path))
    prey, cells = lotka_volterra.problem(seed=0), erk.problem(seed=0)
    setting = lotka_volterra.SETTINGS["main"]
    truth = np.array([setting.alpha, setting.beta])
    with jax.enable_x64(False):
        known = jnp.asarray([setting.gamma, setting.delta])
        density, error = _theirs(
            theirs, prey, _prey_slope(known), setting.initial, truth, LV_STEP, LV_WIDTH
        )
        found = {"lotka_volterra": {}, "erk": {}}
        found["lotka_volterra"][str(LV_PARTICLES)] = {
            "ms_per_mala_iteration": _ms(theirs.mala, density, truth, LV_PARTICLES),
            "ode_error": error,
        }
        initial, truth = list(erk.INITIAL.values()), np.array(list(erk.RATES.values()))
        slope = _mass_action(erk.model().derivative, len(initial))
        density, error = _theirs(theirs, cells, slope, initial, truth, ERK_STEP, ERK_WIDTH)
        found["erk"][str(ERK_PARTICLES)] = {
            "ms_per_mala_iteration": _ms(theirs.mala, density, truth, ERK_PARTICLES),
            "ms_per_langevin_iteration": _ms(theirs.langevin, density, truth, ERK_PARTICLES),
            "ode_error": error,
        }
    return found


def _module(folder: Path):
    path = folder / "pcuq_utils.py"
    if not path.is_file():
        raise InputError(
            f"`--reference` needs a checkout of the authors' code: there is no {path}."
        )
    spec = importlib.util.spec_from_file_location("pcuq_utils", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _theirs(module, problem: Problem, slope: Slope, initial, truth, step: float, width: float):
    """(their density of particles, error of their trajectories) for a problem's data."""
    assert problem.data.x is not None
    times, start = jnp.asarray(problem.data.x), jnp.asarray(initial, dtype=jnp.float32)
    sd = jnp.asarray(problem.scale.static[0])

    def solve(initial, times, theta):
        return diffrax.diffeqsolve(
            diffrax.ODETerm(slope),
            diffrax.Tsit5(),
            t0=times[0],
            t1=times[-1],
            dt0=step,
            y0=initial,
            args=jax.nn.sigmoid(theta),
            saveat=diffrax.SaveAt(ts=times),
        ).ys

    density = module.build_func_dict(
        jnp.asarray(problem.data.y), times, width * sd**2, start, sd, solve
    )["pcuq"]
    solved = jax.jit(solve)(start, times, jax.scipy.special.logit(jnp.asarray(truth)))
    exact = problem.model.simulate(
        np.asarray(problem.data.x), dict(zip(problem.parameters, truth, strict=True))
    )
    apart = [np.abs(solved[:, c] - exact[name]) for c, name in enumerate(problem.outputs)]
    return density, float(np.max(apart))


def _prey_slope(known) -> Slope:
    def slope(t, u, rates):
        meet = u[0] * u[1]
        return jnp.stack([rates[0] * u[0] - rates[1] * meet, known[1] * meet - known[0] * u[1]])

    return slope


def _mass_action(derivative, count: int) -> Slope:
    """du/dt = S · flux, as their notebook has it, with S read off our right-hand side."""
    names = list(erk.RATES)
    ones = [dict(zip(names, row, strict=True)) for row in np.eye(len(names))]
    table = np.stack([np.asarray(derivative(0.0, jnp.ones(count), p)) for p in ones], axis=1)
    consumed = [np.flatnonzero(column < 0) for column in table.T]
    matrix = jnp.asarray(table)

    def slope(t, u, rates):
        flux = [rate * jnp.prod(u[used]) for rate, used in zip(rates, consumed, strict=True)]
        return matrix @ jnp.stack(flux)

    return slope


def _ms(sampler, density, truth, particles: int) -> float:
    """Milliseconds of one iteration of a sampler of theirs, which loops in Python."""
    theta = jax.scipy.special.logit(jnp.asarray(truth))
    start = theta + 1e-3 * jax.random.normal(jax.random.key(0), (particles, len(truth)))

    def seconds(iterations: int) -> float:
        began = time.perf_counter()
        jax.block_until_ready(
            sampler(density, iterations, STEP_SIZE, start, LAM, jax.random.PRNGKey(1))
        )
        return time.perf_counter() - began

    seconds(1)
    return 1e3 * (seconds(MANY) - seconds(FEW)) / (MANY - FEW)
