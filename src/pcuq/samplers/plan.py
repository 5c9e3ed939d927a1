"""The plan of a run: a warm-up in stages that cools down, then draws, all cut into chunks.

The tuning is made anew after each stage. Samplers that anneal run a stage at its heat times the λ
that is wanted: thin arms of a law are found while they are wide. Positions at the heat HOT, or at
the first one below it at which particles stay with the fit, are kept to lead into them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

STAGES = (0.05, 0.06, 0.09, 0.20, 0.10, 0.10, 0.40)  # shares of the warm-up
HEATS = (10.0, 6.0, 4.0, 3.0, 2.0, 1.4, 1.0)
HOT = 3.0
CHUNK = 100  # iterations that are run at a stretch


class Part(NamedTuple):
    """Some iterations that are run at a stretch."""

    length: int
    warming: bool
    ends_stage: bool = False  # the tuning is made anew after it
    thin: int = 1
    heat: float = 1.0


def make_plan(warmup: int, draws: int, thin: int, chunk: int) -> list[Part]:
    """All iterations, cut into chunks; draws that are kept come in whole numbers."""
    lengths = stage_lengths(warmup)
    heats = HEATS if len(lengths) == len(HEATS) else (1.0,) * len(lengths)
    plan = [
        part for stage in zip(lengths, heats, strict=True) for part in make_stage(*stage, chunk)
    ]
    counts = _parts(draws, max(1, chunk // thin))
    return plan + [Part(count * thin, False, thin=thin) for count in counts]


def make_stage(length: int, heat: float, chunk: int) -> list[Part]:
    """A stage of the warm-up, in chunks."""
    lengths = _parts(length, chunk)
    return [Part(n, True, i == len(lengths) - 1, heat=heat) for i, n in enumerate(lengths)]


def stage_lengths(warmup: int) -> list[int]:
    """Whole numbers that add up to `warmup`; one stage where it is too short to be cut."""
    ends = np.round(np.cumsum(STAGES) * warmup).astype(int)
    lengths = np.diff(ends, prepend=0)
    if warmup < 10 * len(STAGES):
        return [warmup] if warmup > 0 else []
    return [int(length) for length in lengths]


def _parts(length: int, chunk: int) -> list[int]:
    """Chunks of one size and the rest."""
    whole, rest = divmod(length, chunk)
    return [chunk] * whole + ([rest] if rest else [])
