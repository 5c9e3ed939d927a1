"""A drug leaves the body at one rate, says the model; the data say that there are two.

pcuq fit examples/decay.py --regularisation 1e-3 --out decay.nc
pcuq predict decay.nc --problem examples/decay.py --times 0:24:0.5 --do "k*=0.5@6"
"""

import numpy as np

import pcuq

times = np.array([0.5, 1, 1.5, 2, 3, 4, 5, 6, 8, 10, 12, 16])
drug = np.array([8.1, 6.8, 5.6, 5.0, 3.6, 3.1, 2.5, 2.3, 1.8, 1.7, 1.4, 1.2])

model = pcuq.ODEModel(
    rhs=lambda t, u, p: [-p["k"] * u[0]],
    initial=lambda p: [p["dose"] / p["volume"]],
    parameters={"k": pcuq.Parameter("log"), "volume": pcuq.Parameter("log")},
    constants={"dose": 10.0},
    outputs=["drug"],
)
problem = pcuq.Problem(model, pcuq.Data(drug, times, noise=0.2))
