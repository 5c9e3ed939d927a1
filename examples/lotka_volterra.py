"""Prey and predator whose numbers also change by chance, which the model knows nothing of.

    pcuq fit examples/lotka_volterra.py --regularisation 3e-5 --out lv.nc
    pcuq predict lv.nc --problem examples/lotka_volterra.py --times 0:90:0.5 --do "beta*=0.5@60"

Data come from du = f(u) dx + ε dW, integrated in steps of 0.01, with noise of sd 1 on top.
"""

import numpy as np

import pcuq

FITTED = {"alpha": 0.12, "beta": 0.018}  # what made the data; the fit does not see it
KNOWN = {"gamma": 0.4, "delta": 0.02}
START, INTRINSIC, STEP = (10.0, 10.0), (0.0, 0.4), 0.01


def rhs(x, u, p):
    """Growth of the prey, growth of the predator."""
    prey, predator = u[0], u[1]
    return [
        p["alpha"] * prey - p["beta"] * prey * predator,
        p["delta"] * prey * predator - p["gamma"] * predator,
    ]


def measure(seed):
    """(times, y): a stochastic path at x = 0, 1, …, 60 by Euler and Maruyama, with noise."""
    rng = np.random.default_rng(seed)
    u, path = np.array(START), [START]
    for step in range(1, round(60 / STEP) + 1):
        chance = np.sqrt(STEP) * rng.normal(size=2) * INTRINSIC
        # Numbers of animals are not negative.
        u = np.maximum(u + STEP * np.array(rhs(0.0, u, FITTED | KNOWN)) + chance, 0.0)
        if step % round(1 / STEP) == 0:
            path.append(u)
    y = np.array(path)
    return np.arange(61.0), y + rng.normal(size=y.shape)


times, y = measure(seed=0)
model = pcuq.ODEModel(
    rhs,
    initial={"prey": START[0], "predator": START[1]},
    parameters={"alpha": pcuq.Parameter("logit"), "beta": pcuq.Parameter("logit")},
    constants=KNOWN,
)
problem = pcuq.Problem(model, pcuq.Data(y, times, noise=1.0))
