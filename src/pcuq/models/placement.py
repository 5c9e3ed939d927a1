"""Where a mesh has its nodes: as dense as the steps of adaptive solves, times a factor.

The factor is the one at which the mesh's error is just below the tolerance.
"""

from __future__ import annotations

import numpy as np

from pcuq.models import mesh
from pcuq.models.segments import Segment

MOST_STEPS = 20_000
ROUNDS = 8
CLOSE = 1.15  # of two numbers of steps, between which a third is not worth trying


def search(segments, density, error_on, tolerance: float, stiff: bool, most: int = MOST_STEPS):
    """Scale the density until the error is just below the tolerance."""
    power = 1 / (4 if stiff else 5)  # of the method's order
    near_enough = 1 / (2 if stiff else 30)  # steps with linear systems are worth saving
    fewest = mesh.count(_place(segments, density, 0.0, stiff))
    factor, best, fine_enough, too_coarse = 1.0, None, np.inf, 0.0
    for _ in range(ROUNDS):
        grids = _place(segments, density, factor, stiff)
        steps = mesh.count(grids)
        if steps > most:
            break
        error = error_on(grids)
        if error <= tolerance:
            best, fine_enough = (grids, error), factor
            if error > near_enough * tolerance or steps == fewest:
                break
        else:
            too_coarse = factor
        if too_coarse and best is not None:
            if not stiff or fine_enough < CLOSE * too_coarse:
                break
            factor = np.sqrt(too_coarse * fine_enough)
            continue
        change = (error / (0.5 * tolerance)) ** power if 0 < error < np.inf else 2.0
        if error <= tolerance:
            change = 0.5 if error == 0 else max(0.4, change)
        else:
            change = min(3.0, max(1.15, change))
        factor *= change
    return best


def density_of(segment: Segment, times: np.ndarray, stiff: bool) -> tuple[np.ndarray, np.ndarray]:
    """Nodes t and ∫ from the start to t of the largest 1/h over representatives.

    In stiff models, whose fast parts come at times of their own, the root mean square does with
    far fewer steps: a method that is stable there needs no short steps for what is over.
    """
    if segment.end <= segment.start:
        return np.array([segment.start]), np.zeros(1)
    ends = [np.concatenate([[segment.start], row[np.isfinite(row)]]) for row in times]
    nodes = np.unique(np.concatenate([*ends, [segment.end]]))
    middles = 0.5 * (nodes[1:] + nodes[:-1])
    total = np.zeros(len(middles))
    for row in ends:
        index = np.clip(np.searchsorted(row, middles), 1, len(row) - 1)
        density = 1.0 / (row[index] - row[index - 1])
        total = total + density**2 / len(ends) if stiff else np.maximum(total, density)
    steps = (np.sqrt(total) if stiff else total) * np.diff(nodes)
    return nodes, np.concatenate([[0.0], np.cumsum(steps)])


def _place(segments, density, factor: float, stiff: bool) -> tuple[mesh.Grid, ...]:
    """Nodes at equal shares of the density between neighbouring outputs and cuts."""
    grids = []
    for segment, (nodes, total) in zip(segments, density, strict=True):
        stops = np.unique([segment.start, *segment.x, segment.end])
        shares = np.interp(stops, nodes, total)
        parts = [stops[:1]]
        for i in range(len(stops) - 1):
            number = max(1, int(np.ceil(factor * (shares[i + 1] - shares[i]) - 1e-9)))
            inner = np.linspace(shares[i], shares[i + 1], number + 1)[1:-1]
            inside = np.interp(inner, total, nodes)
            inside = inside[(inside > stops[i]) & (inside < stops[i + 1])]
            parts += [np.unique(inside), stops[i + 1 : i + 2]]
        placed = _rounded_up(np.concatenate(parts), nodes, total)
        grids.append(mesh.make_grid(segment, placed, stiff))
    return tuple(grids)


def _rounded_up(placed: np.ndarray, nodes: np.ndarray, total: np.ndarray) -> np.ndarray:
    """With a round number of steps, the hardest ones halved: meshes then share programs."""
    steps = len(placed) - 1
    unit = 2 ** max(0, (steps - 1).bit_length() - 4)
    extra = -steps % unit
    hardest = np.argsort(-np.diff(np.interp(placed, nodes, total)), kind="stable")[:extra]
    middles = 0.5 * (placed[hardest] + placed[hardest + 1])
    return np.sort(np.concatenate([placed, middles]))
