"""Reading what stands on the command line."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pcuq.errors import InputError

if TYPE_CHECKING:
    import numpy as np

MOST_TIMES = 1_000_000


def parse_times(text: str) -> np.ndarray:
    """ "0:90:0.5" with both ends, or "0,1,5"."""
    import numpy as np

    wanted = InputError(f"--times needs start:stop:step or t1,t2,…: got {text!r}.")
    try:
        if ":" not in text:
            times = np.array([float(part) for part in text.split(",")])
        else:
            start, stop, step = (float(part) for part in text.split(":"))
            if not (step > 0 and stop >= start and (stop - start) / step < MOST_TIMES):
                raise wanted
            # An end that is a whole number of steps away belongs to it, whatever the rounding.
            times = start + step * np.arange(math.floor((stop - start) / step + 1e-9) + 1)
    except ValueError as error:
        raise wanted from error
    if not np.isfinite(times).all():
        raise wanted
    return times


def number_or_word(name: str, text: str, words: tuple[str, ...]) -> float | str:
    """A number, or one of the words."""
    if text in words:
        return text
    try:
        return float(text)
    except ValueError:
        raise InputError(f"--{name} needs a number or {', '.join(words)}: got {text!r}.") from None


def parse_noise(text: str) -> float | str | list[float | str]:
    """ "0.1", "sigma", or several for the outputs in order: "0.1,0.2", "sigma_a,sigma_b"."""

    def one(part: str) -> float | str:
        part = part.strip()
        if not part:
            raise InputError(f"--noise needs numbers or names, with commas between: got {text!r}.")
        try:
            return float(part)
        except ValueError:
            return part

    parts = [one(part) for part in text.split(",")]
    return parts[0] if len(parts) == 1 else parts
