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
SOON = 200  # iterations of a warm-up of which the last stage may go on
CHUNK = 100  # iterations that are run at a stretch


class Part(NamedTuple):
    """Some iterations that are run at a stretch."""

    length: int
    warming: bool
    ends_stage: bool = False  # the tuning is made anew after it
    thin: int = 1
    heat: float = 1.0


def make_plan(
    warmup: int, draws: int, thin: int, chunk: int, retuned: int | None = None
) -> list[Part]:
    """All iterations, cut into chunks; draws that are kept come in whole numbers.

    With `retuned` nothing is heated, and the warm-up soon goes on in stages of so many iterations.
    """
    lengths = stage_lengths(warmup if retuned is None else min(warmup, SOON))
    cools = retuned is None and len(lengths) == len(HEATS)
    heats = HEATS if cools else (1.0,) * len(lengths)
    plan = [
        part
        for length, heat in zip(lengths[:-1], heats[:-1], strict=True)
        for part in make_stage(length, heat, chunk)
    ]
    plan += make_stages(warmup - sum(lengths[:-1]), chunk, retuned)
    counts = _parts(draws, max(1, chunk // thin))
    return plan + [Part(count * thin, False, thin=thin) for count in counts]


def make_stages(length: int, chunk: int, retuned: int | None = None) -> list[Part]:
    """Iterations of the warm-up at λ itself, in one stage or in some of `retuned` each."""
    return [
        part
        for each in _parts(length, retuned or max(length, 1))
        for part in make_stage(each, 1.0, chunk)
    ]


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
