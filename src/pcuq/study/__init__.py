"""Many fits: how good are the bands over replicates, and what do they depend on.

A plan says what is to be fitted (`plan`, `origins`), a world makes data and truth (`worlds`), a
task is one fit with its scores (`work`), a cluster runs tasks (`cluster`, `drive`), a folder keeps
them (`store`), and tables and a figure tell what came out (`summary`, `figure`).
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pcuq.study.drive import run
    from pcuq.study.origins import make_plan
    from pcuq.study.plan import Plan

__all__ = ["Plan", "make_plan", "run"]

# Imported when they are used: a plan and a folder can be read without JAX.
_HOME = {"Plan": "plan", "make_plan": "origins", "run": "drive"}


def __getattr__(name: str):
    if name in _HOME:
        return getattr(importlib.import_module(f"pcuq.study.{_HOME[name]}"), name)
    raise AttributeError(f"module 'pcuq.study' has no attribute {name!r}")
