"""A drug is infused for two hours and then washes out of one compartment, says the model.

The measurements are in a table of their own, and name their columns like the model's outputs:

    pcuq fit examples/infusion.py --data examples/infusion.csv --noise 0.15 \
        --regularisation 1e-3 --out infusion.nc
    pcuq predict infusion.nc --problem examples/infusion.py --times 0:24:0.5 --do "clearance*=0.5@6"
    pcuq report infusion.nc --problem examples/infusion.py --do "clearance*=0.5@6"

In the body that made the data the drug also hides in tissue, from where it comes back slowly.
"""

import jax.numpy as jnp
import numpyro.distributions as dist

import pcuq

model = pcuq.ODEModel(
    rhs=lambda t, u, p: [
        jnp.where(t < p["duration"], p["dose"] / p["duration"], 0.0) / p["volume"]
        - p["clearance"] / p["volume"] * u[0]
    ],
    initial=[0.0],
    parameters={
        "clearance": pcuq.Parameter("log", dist.Normal(0.0, 1.0)),
        "volume": pcuq.Parameter("log", dist.Normal(1.0, 1.0)),
    },
    constants={"dose": 20.0, "duration": 2.0},
    breaks=[2.0],
    outputs=["plasma"],
)
