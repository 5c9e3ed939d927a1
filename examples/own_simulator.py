"""A simulator of one's own, here one that scipy integrates: anything that returns arrays will do.

    python examples/own_simulator.py

A ligand binds its receptor and both are lost at one rate, says the model; the data come from a
receptor that is also made anew. A short fit, and what a tenth of the binding rate would do.
"""

import numpy as np
from scipy.integrate import solve_ivp

import pcuq

times = np.array([0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0])
bound = np.array([0.33, 0.52, 0.69, 0.73, 0.72, 0.66, 0.60, 0.50, 0.44, 0.37])


def simulate(x, p):
    """Bound receptor at times x; an exception here would be this particle's failure alone."""

    def slope(t, u):
        ligand, receptor, complex_ = u
        binding = p["k_on"] * ligand * receptor
        return [-binding, -binding, binding - p["k_loss"] * complex_]

    start = [p["ligand"], 1.0, 0.0]
    solved = solve_ivp(slope, (0.0, x[-1]), start, "LSODA", x, rtol=1e-7, atol=1e-9)
    if not solved.success:
        raise RuntimeError(solved.message)
    return {"bound": solved.y[2]}


def make_problem(workers=None):
    """The problem; `workers` processes share the simulations."""
    model = pcuq.ExternalModel(
        simulate,
        parameters={"k_on": pcuq.Parameter("log"), "k_loss": pcuq.Parameter("log")},
        outputs=["bound"],
        constants={"ligand": 2.0},
        workers=workers,
    )
    return pcuq.Problem(model, pcuq.Data(bound, times, noise=0.03))


problem = make_problem()

if __name__ == "__main__":  # so that worker processes can import this file
    problem = make_problem(workers=2)
    fit = pcuq.fit(problem, regularisation=1e-3, particles=10, warmup=100, draws=100, thin=1)
    print(fit)
    print("failed simulations:", problem.model.failures or "none")
    inhibited = fit.predict(times, do=pcuq.Intervention(scale={"k_on": 0.1}))
    low, high = inhibited.quantile([0.05, 0.95])
    for t, a, b in zip(times, low[:, 0], high[:, 0], strict=True):
        print(f"t = {t:4.1f}: bound between {a:.2f} and {b:.2f} with a tenth of the binding rate")
    problem.model.close()
