"""A live display of a fit on a terminal, lines now and then elsewhere; it never changes a result.

Told after each chunk: how far it is, the share of accepted moves, MMD² of the particles where they
are, and, once enough draws are kept, their effective sample size so far.
"""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pcuq.cli.app import say

if TYPE_CHECKING:
    import numpy as np
    from rich.console import Console

    from pcuq.samplers.base import Listener, Progress

SECONDS_BETWEEN_LINES = 2.0
SECONDS_OF_SILENCE = 15.0
LEAST, MOST = 20, 200  # draws of a path for the ESS: few say nothing, many take time
PREPARING = "preparing"


@contextmanager
def listening() -> Iterator[Listener]:
    """A listener for samplers."""
    if sys.stderr.isatty():
        from rich.console import Console

        with display(Console(stderr=True)) as listen:
            yield listen
    else:
        lines = PlainLines()
        try:
            yield lines
        finally:
            lines.stop()


class Figures:
    """What is shown below the bar; it remembers the draws, for the ESS."""

    def __init__(self):
        self.seen: list[np.ndarray] = []
        self.ess, self.due = math.nan, 0.0

    def __call__(self, progress: Progress) -> str:
        info = progress.info
        moves = [info[name] for name in ("acceptance", "walked", "jumped") if name in info]
        parts = [f"accepted {max(moves):.0%}"] if moves else []
        if progress.kept is not None:
            self.seen.append(progress.kept)
            self._judge()
        if math.isfinite(self.ess):
            parts.append(f"ESS {self.ess:.0f}")
        if "mmd2" in info:
            parts.append(f"MMD² {info['mmd2']:.3g}")
        if (failed := info.get("failed_proposals", 0.0)) >= 0.005:
            parts.append(f"failed solves {failed:.0%}")
        return "  ".join(parts)

    def _judge(self) -> None:
        """The ESS, unless that would take more than a twentieth of the time."""
        import numpy as np

        from pcuq.diagnostics import ess_bulk

        began, draws = time.perf_counter(), sum(map(len, self.seen))
        if draws < LEAST or began < self.due:
            return
        paths = np.concatenate(self.seen)[:: -(-draws // MOST)]  # (draws, systems, particles, p)
        paths = np.moveaxis(paths, 0, 2).reshape(-1, len(paths), paths.shape[-1])
        self.ess = float(np.min(ess_bulk(paths)))
        ended = time.perf_counter()
        self.due = ended + 20 * (ended - began)


@contextmanager
def display(console: Console) -> Iterator[Listener]:
    """A bar on a terminal, with the figures below it; it is gone when the fit is done."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.progress import Progress as Display
    from rich.text import Text

    figures, below = Figures(), Text()

    class Left(TimeRemainingColumn):
        """Silent while it is not known: beside an empty word the time before it would be read."""

        def render(self, task):
            return Text("" if task.total is None else "left ") + super().render(task)

    class TwoLines(Display):
        """On one line, 80 columns would cut off how far it is and the time left."""

        def get_renderables(self):
            yield from super().get_renderables()
            yield below

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        Left(),
    )
    with TwoLines(*columns, console=console, transient=True) as shown:
        task = shown.add_task(PREPARING, total=None)

        def listen(progress: Progress) -> None:
            below.plain = f"  {figures(progress)}"
            shown.update(
                task,
                description=_phase(progress),
                completed=progress.iteration,
                total=progress.total,
            )

        def stage(line: str) -> None:
            shown.update(task, description=line, refresh=True)

        listen.wants_mmd2 = True  # pyright: ignore[reportFunctionMemberAccess]
        listen.stage = stage  # pyright: ignore[reportFunctionMemberAccess]
        yield listen


class PlainLines:
    """A line for every stage, lines now and then while it samples, and a sign of life else."""

    wants_mmd2 = True

    def __init__(self):
        self.began = time.monotonic()
        self.last = -math.inf
        self.first: tuple[float, int] | None = None
        self.figures = Figures()
        self.doing = PREPARING
        self.told, self.done = threading.Event(), False
        threading.Thread(target=self._still_there, daemon=True).start()

    def stage(self, line: str) -> None:
        self.told.set()
        self.doing, self.began = line, time.monotonic()
        say(line)

    def __call__(self, progress: Progress) -> None:
        self.told.set()
        now = time.monotonic()
        figures = self.figures(progress)
        self.doing = _phase(progress)
        self.first = self.first or (now, progress.iteration)
        if progress.iteration < progress.total and now - self.last < SECONDS_BETWEEN_LINES:
            return
        self.last = now
        place = f"{progress.iteration}/{progress.total}"
        say("  ".join([f"{_phase(progress)} {place}", figures, self._left(now, progress)]).rstrip())

    def stop(self) -> None:
        self.done = True
        self.told.set()

    def _left(self, now: float, progress: Progress) -> str:
        assert self.first is not None
        done = progress.iteration - self.first[1]
        if done <= 0 or progress.iteration >= progress.total:
            return ""
        seconds = (now - self.first[0]) / done * (progress.total - progress.iteration)
        return f"about {_duration(seconds)} left"

    def _still_there(self) -> None:
        while not self.done:
            if not self.told.wait(SECONDS_OF_SILENCE):
                say(f"still {self.doing}: {time.monotonic() - self.began:.0f} s")
            self.told.clear()


def _phase(progress: Progress) -> str:
    return "warm-up" if progress.warming_up else "draws"


def _duration(seconds: float) -> str:
    minutes = seconds / 60
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{minutes:.0f} min" if minutes < 90 else f"{minutes / 60:.1f} h"
