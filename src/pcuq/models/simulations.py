"""What a simulator is given and what it returned, row by row, with failures counted by cause."""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from pcuq.errors import InputError
from pcuq.models.processes import Failure, Here, Processes

_numbers = itertools.count()
NOT_FINITE = "output that is not finite"


class Named(dict):
    """Values by name; `vector` has those of the fitted parameters in order, (p,) or (B, p)."""

    def __init__(self, values: Mapping[str, Any], fitted: tuple[str, ...]):
        super().__init__(values)
        self.fitted = fitted

    @property
    def vector(self) -> np.ndarray:
        return np.stack([self[name] for name in self.fitted], axis=-1)

    def __reduce__(self):
        return Named, (dict(self), self.fitted)


class Runner:
    """Where a model's simulations run, and what became of them; shared with what `do` returns."""

    def __init__(
        self,
        functions: tuple[Callable | None, ...],
        batch: bool,
        workers: int | None,
        timeout: float | None,
    ):
        here = workers is None
        self.tasks = Here(functions) if here else Processes(functions, workers, timeout)
        self.batch, self.shares = batch, workers or 1
        self.failures: Counter[str] = Counter()
        self.simulations = 0
        self._lock = threading.Lock()
        self._solvers: list[Any] = []  # alive as long as the model is

    def close(self) -> None:
        self.tasks.close()

    def keep(self, solver: Any) -> int:
        """A number of its own for a solver, which lives as long as this."""
        self._solvers.append(solver)
        return next(_numbers)

    def run(self, which: int, x: Any, p: Named, read: Callable[[Any], np.ndarray]) -> list[Any]:
        """One result for each of B rows of p: what `read` makes of it, or a Failure."""
        count = len(p.vector)
        if self.batch:
            shares = [s for s in np.array_split(np.arange(count), self.shares) if len(s)]
            found = self._call(which, x, [_rows(p, s) for s in shares])
            results = [None] * count
            for share, answer in zip(shares, found, strict=True):
                parts = _split(answer, len(share))
                if isinstance(answer, Failure) and len(share) > 1:
                    # One at a time: only those fail that cannot be simulated.
                    alone = self._call(which, x, [_rows(p, [i]) for i in share])
                    parts = [part for one in alone for part in _split(one, 1)]
                for i, part in zip(share, parts, strict=True):
                    results[i] = part
        else:
            results = self._call(which, x, [_rows(p, i) for i in range(count)])
        kept = [r if isinstance(r, Failure) else _checked(read, r) for r in results]
        with self._lock:
            self.simulations += count
            self.failures.update(r.cause for r in kept if isinstance(r, Failure))
        return kept

    def _call(self, which: int, x: Any, tasks: list[Named]) -> list[Any]:
        return self.tasks.map(which, [(x, p) for p in tasks])


def _rows(p: Named, which: Any) -> Named:
    taken = {name: value[which] for name, value in p.items()}
    if isinstance(which, int):
        taken = {name: float(value) for name, value in taken.items()}
    return Named(taken, p.fitted)


def _split(answer: Any, count: int) -> list[Any]:
    """What a batch returned, row by row."""
    if isinstance(answer, Failure):
        return [answer] * count
    if isinstance(answer, Mapping):
        parts = {name: _split(value, count) for name, value in answer.items()}
        wrong = [part[0] for part in parts.values() if isinstance(part[0], Failure)]
        if wrong:
            return [wrong[0]] * count
        return [{name: part[i] for name, part in parts.items()} for i in range(count)]
    if np.ndim(answer) == 0 or len(answer) != count:
        cause = f"Input: {count} rows were wanted of a batch, and {np.shape(answer)} came"
        return [Failure(cause)] * count
    return list(answer)


def _checked(read: Callable[[Any], np.ndarray], result: Any) -> Any:
    try:
        values = read(result)
    except (KeyError, TypeError, ValueError) as error:
        return Failure(f"Input: {error}" if isinstance(error, InputError) else repr(error))
    return values if np.isfinite(values).all() else Failure(NOT_FINITE)


def as_table(found: Any, outputs: tuple[str, ...], shape: tuple[int, ...]) -> np.ndarray:
    """Outputs (n, d), given as such or by name."""
    if isinstance(found, Mapping):
        found = np.stack([shaped(found[name], shape[:1]) for name in outputs], axis=-1)
    return shaped(found, shape)


def shaped(found: Any, shape: tuple[int, ...]) -> np.ndarray:
    """An array of the shape that was wanted; one output may be given as (n,)."""
    values = np.asarray(found, dtype=float)
    if values.shape == shape[:1] and shape[1:] == (1,):
        values = values[:, None]
    if values.shape != shape:
        raise InputError(f"an array of shape {shape} was wanted, and {values.shape} came")
    return values
