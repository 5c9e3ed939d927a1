"""Simulations of many parameter values, here or in processes of their own.

Each task is one call of a user's function. A task that raises, or whose process dies or takes too
long, fails alone: its worker is replaced and the others go on. Nothing here calls JAX, because it
runs inside a callback of compiled code, where JAX must not be entered again.
"""

from __future__ import annotations

import multiprocessing
import pickle
import re
import sys
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from multiprocessing.connection import wait
from typing import Any

from pcuq.errors import ComputationError, InputError

START_SECONDS = 120.0  # to import the user's modules in a new process
DIED = "the worker process died"
TOO_LONG = "the simulation took longer than `timeout`"
LONGEST_CAUSE = 120


class Failure:
    """What comes back in place of a result: why, in words that equal failures share."""

    def __init__(self, cause: str):
        self.cause = cause


class Here:
    """Calls in this process, one at a time: a simulator need not be safe for threads."""

    def __init__(self, functions: Sequence[Callable | None]):
        self.functions, self._lock = tuple(functions), threading.Lock()

    def map(self, which: int, arguments: Sequence[tuple]) -> list[Any]:
        with self._lock:
            return [_attempt(self.functions[which], given) for given in arguments]

    def close(self) -> None:
        pass


class Processes:
    """Calls in `number` worker processes, started when first needed and closed at exit."""

    def __init__(self, functions: Sequence[Callable | None], number: int, timeout: float | None):
        self.number, self.timeout = number, timeout
        self._lock = threading.Lock()
        self._workers: list[_Worker] = []
        try:
            self._functions = pickle.dumps(tuple(functions))
        except Exception as error:
            raise InputError(
                "`workers` needs functions that can be sent to another process, defined at the top "
                f"of a module and not inside a function or as a lambda: {error}"
            ) from None
        self._finalizer = weakref.finalize(self, _close_all, self._workers)

    def map(self, which: int, arguments: Sequence[tuple]) -> list[Any]:
        """Results in order, a Failure where there is none."""
        with self._lock:
            self._fill()
            try:
                return self._map(which, arguments)
            except BaseException:  # a worker that still answers would answer the next call
                _close_all(self._workers)
                raise

    def close(self) -> None:
        with self._lock:
            _close_all(self._workers)

    def _fill(self) -> None:
        fresh = [_Worker(self._functions) for _ in range(self.number - len(self._workers))]
        self._workers += fresh
        for worker in fresh:
            if not worker.is_ready():
                _close_all(self._workers)
                raise InputError(
                    "a worker process could not be started: put what your script does under `if "
                    '__name__ == "__main__":`, so that a new process can import it, or leave '
                    "`workers` out."
                )

    def _map(self, which: int, arguments: Sequence[tuple]) -> list[Any]:
        results: list[Any] = [None] * len(arguments)
        waiting = list(range(len(arguments)))[::-1]
        idle, busy = list(self._workers), {}
        while waiting or busy:
            while waiting and idle:
                worker, task = idle.pop(), waiting.pop()
                if worker.send(which, arguments[task]):
                    busy[worker.connection] = (worker, task)
                else:  # it died between two tasks, and this one is not to blame
                    waiting.append(task)
                    idle.append(self._replace(worker))
            for connection in self._answered(busy):
                worker, task = busy.pop(connection)
                results[task] = worker.receive(self.timeout)
                idle.append(worker if worker.alive else self._replace(worker))
        return results

    def _answered(self, busy: dict) -> list[Any]:
        """Connections with an answer, or whose worker is dead or too late."""
        if self.timeout is None:
            return list(wait(list(busy)))
        left = min(worker.began for worker, _ in busy.values()) + self.timeout - time.monotonic()
        found = list(wait(list(busy), timeout=max(0.0, left)))
        late = time.monotonic() - self.timeout
        return found or [c for c, (worker, _) in busy.items() if worker.began <= late]

    def _replace(self, worker: _Worker) -> _Worker:
        worker.close()
        self._workers.remove(worker)
        fresh = _Worker(self._functions)
        self._workers.append(fresh)
        if not fresh.is_ready():
            raise ComputationError("a worker process died, and another could not be started.")
        return fresh


class _Worker:
    """One process and the connection to it."""

    def __init__(self, functions: bytes):
        # Never a plain fork: JAX has threads, whose locks a fork would copy as they stand.
        kind = "spawn" if sys.platform in ("win32", "darwin") else "forkserver"
        context: Any = multiprocessing.get_context(kind)
        self.connection, there = context.Pipe()
        self.process = context.Process(target=_serve, args=(there, functions), daemon=True)
        try:
            self.process.start()
        except RuntimeError as error:  # while this very script is imported by a new process
            raise InputError(
                "worker processes cannot be started while a script is imported: put what your "
                f'script does under `if __name__ == "__main__":` ({type(error).__name__}).'
            ) from None
        there.close()
        self.alive, self.began = True, 0.0

    def is_ready(self) -> bool:
        try:
            return self.connection.poll(START_SECONDS) and self.connection.recv() == "ready"
        except (EOFError, OSError):
            return False

    def send(self, which: int, given: tuple) -> bool:
        self.began = time.monotonic()
        try:
            self.connection.send((which, given))
        except OSError:
            return False
        return True

    def receive(self, timeout: float | None) -> Any:
        if timeout is not None and not self.connection.poll():
            self.alive = False
            return Failure(TOO_LONG)
        try:
            return self.connection.recv()
        except (EOFError, OSError):
            self.alive = False
            return Failure(DIED)

    def close(self) -> None:
        self.connection.close()  # ends the loop of one that is idle
        if self.process.is_alive():
            self.process.terminate()
        self.process.join(5.0)


def _close_all(workers: list[_Worker]) -> None:
    while workers:
        workers.pop().close()


def _serve(connection: Any, pickled: bytes) -> None:
    """The life of a worker: call what comes in, send back what comes out."""
    functions = pickle.loads(pickled)
    connection.send("ready")
    while True:
        try:
            which, given = connection.recv()
        except (EOFError, OSError, KeyboardInterrupt):
            return
        result = _attempt(functions[which], given)
        try:
            connection.send(result)
        except (OSError, KeyboardInterrupt):
            return
        except Exception as error:  # what cannot be pickled
            connection.send(Failure(_cause(error)))


def _attempt(function: Callable | None, given: tuple) -> Any:
    assert function is not None
    try:
        return function(*given)
    except Exception as error:
        return Failure(_cause(error))


def _cause(error: Exception) -> str:
    """Class and message, without the numbers that differ from failure to failure."""
    text = " ".join(str(error).split())[:LONGEST_CAUSE]
    text = re.sub(r"[-+]?\d[\d.]*(?:[eE][-+]?\d+)?", "#", text)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
