"""What a listener hears of a fit beyond what the sampler knows."""

from __future__ import annotations

import time
from collections.abc import Callable

import jax.numpy as jnp

from pcuq._x64 import x64
from pcuq.monte_carlo import MonteCarloObjective
from pcuq.objective import Objective
from pcuq.samplers.base import Listener, Progress

SECONDS_APART = 1.0  # it costs a solve for every particle


def stages_of(listener: Listener | None) -> Callable[[str], None]:
    """How to tell the listener, in words, what is being done; a listener need not have `stage`."""
    return getattr(listener, "stage", lambda line: None)


def with_mmd2(listener: Listener | None, objective: Objective) -> Listener | None:
    """The listener; one that has `wants_mmd2` is told MMD²(P_n, P_Q) of the particles too.

    Q is that of the particles where they are, every system with equal weights, and each particle
    counts with itself: it ends a little above the MMD² of the pooled draws.
    """
    if not getattr(listener, "wants_mmd2", False) or isinstance(objective, MonteCarloObjective):
        return listener
    assert listener is not None
    known: dict[str, float] = {}

    @x64
    def tell(progress: Progress) -> None:
        if time.monotonic() - known.get("when", -SECONDS_APART) >= SECONDS_APART:
            thetas = jnp.asarray(progress.draw.theta).reshape(-1, progress.draw.theta.shape[-1])
            weights = jnp.full(len(thetas), 1.0 / len(thetas))
            known["mmd2"] = float(objective.mmd2(thetas, weights))
            known["when"] = time.monotonic()
        listener(progress._replace(info={**progress.info, "mmd2": known["mmd2"]}))

    return tell
