"""Which predictions the data ask for, and which of them a kernel compares.

A *point* is one (condition, covariate) at which the model is evaluated. A *datum* is what the
kernel sees: a row of y under the product over outputs, one observed entry under the sum. An *atom*
is one predictive law: a point with a pattern of outputs and a noise; data that share it are
counted, not repeated. With n data, an atom m of multiplicity n_m and k_X between covariates,

    v(θ)     = Σ_{i, m}  (n_m k_X(i, m) / n²)      e(y_i; atom m)
    κ0(θ, ϑ) = Σ_{m, m'} (n_m n_m' k_X(m, m') / n²) e0(atom m of θ; atom m' of ϑ).

k_X is zero between different conditions and between different patterns of observed outputs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from pcuq._given import check_memory
from pcuq.data import Data
from pcuq.kernels import Kernel


class Points(NamedTuple):
    """Where the model is evaluated: per condition its covariates, points numbered in that order."""

    labels: tuple[str, ...]
    covariates: tuple[np.ndarray | None, ...]
    of_row: np.ndarray

    @property
    def size(self) -> int:
        return sum(1 if x is None else len(x) for x in self.covariates)


class Design(NamedTuple):
    """The data term and the pair term as lists of weighted (datum, atom) and (atom, atom)."""

    rows: np.ndarray  # (n,) row of the table that a datum comes from
    datum_columns: np.ndarray  # (n, k) output of each entry of a datum
    datum_mask: np.ndarray  # (n, k) True where observed
    atom_points: np.ndarray  # (M,)
    atom_rows: np.ndarray  # (M,) a row of the table with this noise
    columns: np.ndarray  # (M, k) output of each entry of an atom
    mask: np.ndarray  # (M, k) True where observed
    counts: np.ndarray  # (M,)
    data_index: np.ndarray  # (L,) datum, and
    data_atoms: np.ndarray  # (L,) atom it is compared with,
    data_weights: np.ndarray  # (L,) with this weight
    pair_left: np.ndarray  # (P,)
    pair_right: np.ndarray  # (P,)
    pair_weights: np.ndarray  # (P,)
    cell: np.ndarray  # (n,) data of different cells have k_X = 0,
    x: np.ndarray  # (n, q) others that of these covariates

    @property
    def diagonal(self) -> bool:
        """True where every atom is compared with itself alone: ℓ_X → 0."""
        return np.array_equal(self.pair_left, self.pair_right)

    def at_atoms(self, table: np.ndarray) -> np.ndarray:
        """Entries (M, k) of a table (n, d) that has one for each entry of the data."""
        return np.take_along_axis(table[self.atom_rows], self.columns, axis=1)


def make_points(data: Data) -> Points:
    """The distinct covariates of each condition, in order."""
    labels = tuple(dict.fromkeys(data.condition.tolist()))
    covariates, of_row, offset = [], np.empty(data.n, dtype=int), 0
    for label in labels:
        rows = np.flatnonzero(data.condition == label)
        if data.x is None:
            covariates.append(None)
            of_row[rows] = offset
            offset += 1
            continue
        unique, inverse = np.unique(data.x[rows], axis=0, return_inverse=True)
        covariates.append(unique)
        of_row[rows] = offset + inverse.reshape(-1)
        offset += len(unique)
    return Points(labels, tuple(covariates), of_row)


def make_design(data: Data, kernel: Kernel, points: Points, static_scale: np.ndarray) -> Design:
    """`static_scale` (n, d): what of the noise is known to differ between rows beforehand."""
    observed = data.observed
    if kernel.combine == "product":
        rows = np.arange(data.n)
        columns = np.tile(np.arange(data.d), (data.n, 1))
        mask = observed
    else:
        rows, entry_columns = np.nonzero(observed)
        columns = entry_columns[:, None]
        mask = np.ones_like(columns, dtype=bool)
    scale = np.where(mask, np.take_along_axis(static_scale[rows], columns, axis=1), 0.0)

    identity = np.column_stack([points.of_row[rows], columns * mask, mask, scale])
    _, first, atom_of_datum, counts = np.unique(
        identity, axis=0, return_index=True, return_inverse=True, return_counts=True
    )
    atom_of_datum = atom_of_datum.reshape(-1)

    # Data, and so atoms, are comparable within a condition and a pattern of outputs.
    conditions = np.unique(data.condition, return_inverse=True)[1][rows]
    patterns = np.column_stack([conditions, columns * mask, mask])
    group = np.unique(patterns, axis=0, return_inverse=True)[1].reshape(-1)
    x = np.zeros((data.n, 1)) if data.x is None else data.x.reshape(data.n, -1)
    x = x[rows]

    n = len(rows)
    if kernel.lengthscale_x > 0:
        sizes = np.bincount(group).astype(float)
        check_memory(
            8 * 8 * np.sum(sizes**2),
            f"comparing {n} data at all covariates with each other (lengthscale_x > 0)",
            "use lengthscale_x=0 or fewer data",
        )
    left, right, similarity = _neighbours(group, x, group[first], x[first], kernel.lengthscale_x)
    pair_left, pair_right, pair_similarity = _neighbours(
        group[first], x[first], group[first], x[first], kernel.lengthscale_x
    )
    cell = group
    if kernel.lengthscale_x == 0:
        cell = np.unique(np.column_stack([group, x]), axis=0, return_inverse=True)[1].reshape(-1)
    return Design(
        rows=rows,
        datum_columns=columns,
        datum_mask=mask,
        atom_points=points.of_row[rows][first],
        atom_rows=rows[first],
        columns=columns[first],
        mask=mask[first],
        counts=counts,
        data_index=left,
        data_atoms=right,
        data_weights=counts[right] * similarity / n**2,
        pair_left=pair_left,
        pair_right=pair_right,
        pair_weights=counts[pair_left] * counts[pair_right] * pair_similarity / n**2,
        cell=cell,
        x=x,
    )


def similarities_of(a: np.ndarray, b: np.ndarray, lengthscale: float) -> np.ndarray:
    """k_X of covariates (…, k), ℓ_X > 0; rest, at time inf, is near to itself alone."""
    apart = np.where(a == b, 0.0, a - np.where(a == b, 0.0, b))
    return np.exp(-(apart**2).sum(axis=-1) / (2 * lengthscale**2))


def _neighbours(group_a, x_a, group_b, x_b, lengthscale: float):
    """All (a, b) with k_X > 0, and k_X: within a group, at equal x where the lengthscale is 0."""
    lefts, rights, similarities = [], [], []
    if lengthscale == 0:
        keys = np.column_stack([np.concatenate([group_a, group_b]), np.concatenate([x_a, x_b])])
        cell = np.unique(keys, axis=0, return_inverse=True)[1].reshape(-1)
        group_a, group_b = cell[: len(group_a)], cell[len(group_a) :]
    order_a, order_b = np.argsort(group_a, kind="stable"), np.argsort(group_b, kind="stable")
    sorted_a, sorted_b = group_a[order_a], group_b[order_b]
    for value in np.unique(sorted_a):
        a = order_a[np.searchsorted(sorted_a, value) : np.searchsorted(sorted_a, value, "right")]
        b = order_b[np.searchsorted(sorted_b, value) : np.searchsorted(sorted_b, value, "right")]
        left, right = np.repeat(a, len(b)), np.tile(b, len(a))
        if lengthscale == 0:
            similarity = np.ones(len(left))
        else:
            similarity = similarities_of(x_a[left], x_b[right], lengthscale)
        lefts.append(left)
        rights.append(right)
        similarities.append(similarity)
    left, right, similarity = map(np.concatenate, (lefts, rights, similarities))
    order = np.lexsort((right, left))
    return left[order], right[order], similarity[order]
