"""Parts of a study that several processes compute at once, ahead of the loop that reads them.

A task computes one part, leaves it in the store and returns what it had to say. The loop over the
parts stays as it is, and finds them there.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import jax

from pcuq.reproduce.rows import Tell

Task = Callable[..., list[str]]
CACHE = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")


def ahead(task: Task, each: Sequence[tuple[Any, ...]], workers: int, tell: Tell) -> None:
    """`task(*arguments)` for each arguments, in that many processes; nothing where that is one."""
    if workers < 2:
        return
    settings = {name: getattr(jax.config, name) for name in CACHE}
    context = multiprocessing.get_context("spawn")  # JAX has threads, which a fork would lose
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        running = [pool.submit(_run, settings, task, arguments) for arguments in each]
        try:
            for future in running:
                for line in future.result():
                    tell(line)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _run(settings: dict[str, Any], task: Task, arguments: tuple[Any, ...]) -> list[str]:
    for name, value in settings.items():
        jax.config.update(name, value)
    with jax.enable_x64(True):
        return task(*arguments)
