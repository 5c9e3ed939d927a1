"""Stand-ins for what a worker does in a study, quick and with accidents on demand."""

import os
import signal
import time
from pathlib import Path

from pcuq.study.plan import Origin, Plan, settings_of

LINE = """
import numpy as np

import pcuq

x = np.linspace(0.0, 3.0, 8)
model = pcuq.FunctionModel(
    lambda x, p: [p["a"] + p["b"] * x],
    {"a": pcuq.Parameter("identity"), "b": pcuq.Parameter("identity")},
    ("y",),
)
problem = pcuq.Problem(model, pcuq.Data(0.3 + 0.5 * x, x, noise=0.2))
"""
BENT = """

def truth(x, rng):
    return (0.3 + 0.5 * x + 0.3 * rng.normal() * np.sin(3 * x))[:, None]
"""
FALSE = """

def truth(x, rng):
    if rng.random() < 2:
        raise ValueError("nature is out of order")
"""


def made_plan(replicates: int, kind: str = "coverage", **changes) -> Plan:
    """A plan of tasks that the stand-ins run."""
    known = {
        "kind": kind,
        "origin": Origin("zoo", "lotka-volterra", "", ""),
        "replicates": replicates,
        "seed": 5,
        "cases": ("well-specified",),
        "methods": ("bayes", "pcuq"),
        "settings": settings_of(kind),
        "regularisation": 1e-3,
        "options": {},
        "times": None,
        "versions": {},
    }
    return Plan(**{**known, **changes})


def prepare(said):
    return {"regularisation": said["regularisation"], "factors": [1.0]}


def record(said, number):
    plan = Plan.from_dict(said)
    heading = plan.heading(number)
    share = heading["seed"] / 2**32
    return {
        **heading,
        "n": 8,
        "trusted": True,
        "coverage": {"0.5": share / 2, "0.9": share},
        "crps": share,
        "width": share,
        "spread": 0.1,
        "share_outside_fit": 0.0,
        "regularisation": 1e-3,
        "exploded_paths": heading["data_seed"] % 3,
        "rhat_max": 1.0,
        "ess_min": 100.0,
        "fixed_point_residual": None,
        "run": {"seconds": 0.1, "pid": os.getpid()},
    }


def tell(folder: Path, number: int) -> None:
    """Note down that a task was begun, in one write."""
    with (Path(folder) / "begun").open("a") as file:
        file.write(f"{number}\n")


def begun(folder: Path) -> list[int]:
    return [int(line) for line in (Path(folder) / "begun").read_text().split()]


def quick(folder, said, prepared, number):
    tell(folder, number)
    return record(said, number)


def steady(folder, said, prepared, number):
    tell(folder, number)
    time.sleep(0.25)
    return record(said, number)


def deadly(folder, said, prepared, number):
    """Task 1 ends its own worker, every time."""
    tell(folder, number)
    if number == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return record(said, number)


def unlucky(folder, said, prepared, number):
    """Task 1 answers with an error the first time, and well the next."""
    failed = number == 1 and 1 not in (begun(folder) if (Path(folder) / "begun").exists() else [])
    tell(folder, number)
    if not failed:
        return record(said, number)
    error = {"kind": "ValueError", "message": "no luck"}
    return {**Plan.from_dict(said).heading(number), "error": error, "run": {"seconds": 0.1}}


def raising(said, prepared, number):
    raise ValueError("no such thing here")
