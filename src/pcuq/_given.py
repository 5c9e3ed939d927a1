"""Checks of what is given that several modules share: numbers, files, and whether it all fits."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from pcuq.errors import InputError

MOST_SEED = 2**32 - 1
UNITS = ("bytes", "kB", "MB", "GB", "TB", "PB", "EB")


def whole_number(name: str, value: Any, least: int, most: int | None = None) -> int:
    """An int, given as one or as a float without a fraction."""
    try:
        number = None if isinstance(value, (bool, str, bytes)) else int(value)
    except (TypeError, ValueError, OverflowError):
        number = None
    if number is None or number != value or not least <= number <= (most or number):
        limits = f"of at least {least}" if most is None else f"from {least} to {most}"
        raise InputError(f"`{name}` needs a whole number {limits}: got {value!r}.")
    return number


def check_seed(seed: Any) -> int:
    """A seed that every generator of random numbers accepts."""
    return whole_number("seed", seed, 0, MOST_SEED)


def finite_number(name: str, value: Any) -> float:
    """A float that is neither infinite nor NaN."""
    try:
        number = np.nan if isinstance(value, (str, bytes)) else float(value)
    except (TypeError, ValueError):
        number = np.nan
    if not np.isfinite(number):
        raise InputError(f"`{name}` needs a finite number: got {value!r}.")
    return number


def as_numbers(name: str, values: Any, wanted: str = "numbers") -> np.ndarray:
    """64-bit floats; text, dates, complex numbers and lists of unequal length are refused."""
    kind = "lists of unequal length"
    try:
        array = np.asarray(values)
        kind = f"values of type {array.dtype}"
        if array.dtype.kind in "biufO":
            return array.astype(float)
    except (TypeError, ValueError):
        pass
    raise InputError(f"`{name}` needs {wanted}: got {kind}.")


def check_file(path: str | os.PathLike, kind: str, wanted: str) -> Path:
    """A file that is there and may be looked at."""
    if not isinstance(path, (str, os.PathLike)):
        raise InputError(f"a path was wanted, and {path!r} came: {wanted}.")
    if not os.path.isfile(path):
        name = str(path) if len(str(path)) < 200 else f"{str(path)[:60]}…"
        folder = " (it is a folder)" if os.path.isdir(path) else ""
        raise InputError(f"there is no {kind} {name}{folder}: {wanted}.")
    return Path(path)


def read_text(path: Path) -> str:
    """Of a file that has to be text."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InputError(f"{path.name} cannot be read: it is not text in UTF-8.") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from None


def check_memory(needed: float, what: str, advice: str) -> None:
    """Refuse what would not fit into memory, before the system ends the process for it."""
    there = memory()
    if needed > there:
        raise InputError(
            f"{what} needs about {in_words(needed)} of memory, and there are {in_words(there)}: "
            f"{advice}."
        )


def memory() -> float:
    """Bytes that this process may have at most, inf where that is not known."""
    found = [np.inf]
    try:
        found.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
        found.append(int(Path("/sys/fs/cgroup/memory.max").read_text()))
    except (AttributeError, ValueError, OSError):  # another system, or no limit
        pass
    return float(min(found))


def in_words(size: float) -> str:
    """Bytes in words."""
    power = min(int(np.log10(max(size, 1)) // 3), len(UNITS) - 1)
    return f"{size / 1000**power:.3g} {UNITS[power]}"


def check_regularisation(value) -> float:
    """λ as a positive finite number."""
    try:
        number = np.nan if isinstance(value, (bool, str)) else float(value)
    except (TypeError, ValueError):
        number = np.nan
    if not 0 < number < np.inf:
        raise InputError(f"`regularisation` needs a number λ > 0: got {value!r}.")
    return number
