"""Many fits: how good are the bands over replicates, and what do they depend on.

A plan says what is to be fitted (`plan`, `origins`), a world makes data and truth (`worlds`), a
task is one fit with its scores (`work`), a cluster runs tasks (`cluster`), a folder keeps them
(`store`), and tables and a figure tell what came out (`summary`, `figure`).
"""

from pcuq.study.drive import run
from pcuq.study.origins import make_plan
from pcuq.study.plan import Plan

__all__ = ["Plan", "make_plan", "run"]
