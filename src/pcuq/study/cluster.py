"""Many tasks on a Dask cluster: one of this machine, or one that runs elsewhere.

Results come as they are done. A worker that dies costs the task that it was at, which is run again
on another, and is given up when that has happened several times: then the task is the cause.
"""

from __future__ import annotations

import logging
import sys
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from contextlib import contextmanager
from typing import Any, NamedTuple

from pcuq.errors import ComputationError, InputError

ATTEMPTS = 3  # of a task, where its worker dies or is lost
SECONDS_TO_CONNECT = 20


class Died(NamedTuple):
    """Instead of a result: the workers that ran this task died, all of them."""

    attempts: int


def dask_distributed():
    """The package, or an error that says how to get it."""
    try:
        import distributed
    except ImportError as error:
        raise InputError(
            'a study runs on Dask, which is not installed: pip install "pcuq[study]".'
        ) from error
    return distributed


@contextmanager
def connected(workers: int, scheduler: str | None = None) -> Iterator[Any]:
    """A client of the scheduler at that address, or of a cluster of processes on this machine."""
    distributed = dask_distributed()
    if scheduler is not None:
        try:
            client = distributed.Client(scheduler, timeout=SECONDS_TO_CONNECT, set_as_default=False)
        except (OSError, ValueError, TypeError) as error:
            raise InputError(
                f"no Dask scheduler answers at {scheduler}: {error}; give its address, such as "
                "tcp://host:8786."
            ) from error
        with client:
            yield client
        return
    from dask import config

    # One task at a time is with a worker, so that its death is counted against no other.
    known = {
        "distributed.scheduler.worker-saturation": 1.0,
        "distributed.scheduler.allowed-failures": ATTEMPTS - 1,
        # No pages: they would answer any site that a browser on this machine has open.
        "distributed.scheduler.http.routes": [],
        "distributed.worker.http.routes": [],
    }
    with (
        config.set(known),
        distributed.LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            dashboard_address="127.0.0.1:0",
            scheduler_kwargs={"dashboard": False},
            # A share per core may be less than JAX needs, and a worker over it would be killed.
            memory_limit=0,
            silence_logs=logging.CRITICAL,
            env=_environment(),
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client


def call(client: Any, function: Callable[..., Any], *args: Any) -> Any:
    """One result, from any worker; what the function raises is raised."""
    future = client.submit(function, *args, key=f"pcuq-{uuid.uuid4().hex}", pure=False)
    try:
        return future.result()
    except dask_distributed().KilledWorker as error:
        raise ComputationError(
            "the study could not be prepared: every worker that tried died; is there enough memory?"
        ) from error


def results(
    client: Any, function: Callable[..., Any], args: Iterable[Any], numbers: Iterable[int]
) -> Iterator[tuple[int, Any]]:
    """(number, function(*args, number)) for all numbers, in the order in which they are done."""
    distributed = dask_distributed()
    token, shared = uuid.uuid4().hex[:12], tuple(args)

    def submit(number: int, attempt: int):
        name = f"pcuq-{token}-{number}-{attempt}"
        future = client.submit(function, *shared, number, key=name, pure=False, priority=-number)
        waiting[future.key] = number, attempt
        return future

    waiting: dict[Any, tuple[int, int]] = {}
    done = distributed.as_completed([submit(number, 1) for number in numbers], loop=client.loop)
    for future in done:
        number, attempt = waiting.pop(future.key)
        if future.status == "finished":
            try:
                result = future.result()
            except (CancelledError, OSError):
                result = None  # the worker died after it was done and before it could tell
            if result is not None:
                yield number, result
                future.release()
                continue
        elif future.status == "error":
            error = future.exception()
            if isinstance(error, distributed.KilledWorker):
                yield number, Died(ATTEMPTS)
                continue
            raise ComputationError(
                f"task {number} could not be run on a worker: {type(error).__name__}: {error}; "
                "what is done is kept, and the same command goes on."
            )
        if attempt == ATTEMPTS or client.status != "running":
            raise ComputationError(
                "the connection to the cluster was lost: what is done is kept, and the same "
                "command goes on."
            )
        done.add(submit(number, attempt + 1))


def _environment() -> dict[str, str]:
    """Workers find what was compiled before where this process finds it."""
    jax = sys.modules.get("jax")
    if jax is None:  # then nothing was said but in the environment, which they have too
        return {}
    folder = jax.config.jax_compilation_cache_dir
    if not folder:
        return {}
    least = jax.config.jax_persistent_cache_min_compile_time_secs
    return {
        "JAX_COMPILATION_CACHE_DIR": str(folder),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": str(least),
    }
