"""Draws at which the model failed: how many, of which particles, and why.

A failed draw explains nothing (v = 0) and sits where the prior is. It is told why by solving once
more, each distinct θ once.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from pcuq.models.base import UNKNOWN
from pcuq.objective import Objective

OUT_OF_RANGE = "an output or a noise scale is out of the range of its noise"
NOT_AGAIN = "it could be solved when it was tried again"


class Failures(NamedTuple):
    """Counts by particle and cause; causes are words, the most frequent first."""

    causes: tuple[str, ...]
    counts: Int[np.ndarray, "S N C"]

    @property
    def by_cause(self) -> dict[str, int]:
        return dict(zip(self.causes, self.counts.sum(axis=(0, 1)).tolist(), strict=True))


def count_failures(
    objective: Objective, thetas: Float[np.ndarray, "S T N p"], failed: Bool[np.ndarray, "S T N"]
) -> Failures:
    """Of draws of which `failed` says which could not be solved."""
    systems, _, particles = failed.shape
    if not failed.any():
        return Failures((), np.zeros((systems, particles, 0), int))
    distinct, which = np.unique(thetas[failed], axis=0, return_inverse=True)
    names, of_distinct = np.unique(_causes(objective, distinct), return_inverse=True)
    cause = of_distinct[which.reshape(-1)]
    order = np.argsort(-np.bincount(cause), kind="stable")
    counts = np.zeros((systems, particles, len(names)), int)
    system, _, particle = np.nonzero(failed)
    np.add.at(counts, (system, particle, cause), 1)
    return Failures(tuple(str(name) for name in names[order]), counts[..., order])


def _causes(objective: Objective, thetas: Float[np.ndarray, "K p"]) -> np.ndarray:
    causes = np.array(objective.predictor.why(thetas), dtype=object)
    solved = causes == ""
    if solved.any():
        _, fine = objective.solve_many(thetas[solved])
        usable = objective.usable_of_many(thetas[solved])
        causes[solved] = np.select([usable, fine], [NOT_AGAIN, OUT_OF_RANGE], UNKNOWN)
    return causes.astype(str)
