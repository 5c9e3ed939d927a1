"""How compile, gradient and iteration times grow with the data n and the parameters p.

    python benchmarks/scaling.py

n: Lotka–Volterra measured at n times, N = 50. p: a chain u_1 → u_2 → … → u_p of p rates, each state
measured at 40 times, N = 50; up to `FORWARD_UP_TO` parameters by forward derivatives.
"""

from __future__ import annotations

import json

import jax
import jax.numpy as jnp
import numpy as np

import pcuq
from pcuq.bench import LV_LAM, commit, machine, measure
from pcuq.start import Start
from pcuq.zoo import lotka_volterra

PARTICLES, ITERATIONS = 50, 20
ROWS = (61, 244, 976)
RATES = (2, 8, 32)


def main() -> None:
    """Print the figures as JSON."""
    jax.config.update("jax_enable_x64", True)
    found = {"machine": machine(), "commit": commit(), "particles": PARTICLES}
    prey = Start(np.array([[-2.0, -4.0]]), np.zeros(1), np.diag([2.5e-5, 2.9e-4]))
    found["n"] = {str(n): timed(measured(n), prey) for n in ROWS}
    found["p"] = {str(p): timed(chain(p), around_zero(p)) for p in RATES}
    print(json.dumps(found, indent=2))


def timed(problem: pcuq.Problem, start: Start) -> dict[str, float]:
    """Times of a gradient and of an iteration, by the derivative that a fit would take."""
    return measure(problem, start, LV_LAM, PARTICLES, ITERATIONS)


def measured(n: int) -> pcuq.Problem:
    """Lotka–Volterra at n times."""
    x, model = np.linspace(0, 60, n), lotka_volterra.model()
    truth = model.simulate(x, lotka_volterra.true_parameters())
    y = np.stack([truth[name] for name in lotka_volterra.OUTPUTS], axis=-1)
    return pcuq.Problem(model, pcuq.Data(y, x, 1.0))


def chain(p: int) -> pcuq.Problem:
    """A chain of p first-order reactions."""
    names = [f"k{i}" for i in range(p)]

    def rhs(t, u, values):
        flow = jnp.stack([values[name] for name in names]) * u
        return jnp.append(-flow[:1], flow[:-1] - flow[1:])

    states = [f"u{i}" for i in range(p)]
    initial = dict.fromkeys(states, 0.0) | {"u0": 1.0}
    model = pcuq.ODEModel(rhs, initial, dict.fromkeys(names, pcuq.Parameter("log")))
    x = np.linspace(0, 10, 40)
    truth = model.simulate(x)
    y = np.stack([truth[name] for name in states], axis=-1)
    return pcuq.Problem(model, pcuq.Data(y, x, 0.05), pcuq.GaussianKernel(combine="sum"))


def around_zero(p: int) -> Start:
    """Where particles are put: around θ = 0, which made the data."""
    return Start(np.zeros((1, p)), np.zeros(1), 0.01 * np.eye(p))


if __name__ == "__main__":
    main()
