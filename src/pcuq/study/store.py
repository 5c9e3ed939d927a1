"""The folder of a study: what was planned, and one small file for each task that is done.

    study.json        what the numbers depend on; a study with other settings is refused
    prepared.json     what was found before the first task: θ, λ, ℓ_Y
    tasks/00012.json  one per task, written beside its place and renamed: there and whole, or absent

A task whose file is there is not run again. The folder is locked while a study runs in it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pcuq._files import NEW, write_json
from pcuq.errors import ComputationError, InputError
from pcuq.study.plan import Plan

PLAN, PREPARED, TASKS, LOCK = "study.json", "prepared.json", "tasks", "lock"


class Store:
    """The results of one plan; made where there is none, and refused where it is another's."""

    def __init__(self, folder: Path, plan: Plan):
        self.folder, self.plan = Path(folder), plan
        try:
            (self.folder).mkdir(parents=True, exist_ok=True)
            inside = sorted(path.name for path in self.folder.iterdir())
            if PLAN in inside:
                self._compare(_read(self.folder / PLAN))
            elif set(inside) - {LOCK, PLAN + NEW}:
                raise InputError(
                    f"{self.folder} holds no study but other things ({inside[0]}): choose another "
                    "folder."
                )
            else:
                write_json(self.folder / PLAN, plan.described())
            (self.folder / TASKS).mkdir(exist_ok=True)
        except OSError as error:
            raise InputError(f"{self.folder} cannot be written: {error.strerror}.") from error

    def _compare(self, begun: Mapping[str, Any] | None) -> None:
        wanted = json.loads(json.dumps(self.plan.described()))
        if begun == wanted:
            return
        if begun is None or "study" not in begun:
            raise InputError(f"{self.folder / PLAN} cannot be read: choose another folder.")
        differ = [name for name in wanted if begun.get(name) != wanted[name]]
        raise InputError(
            f"the study in {self.folder} was begun with another {' and another '.join(differ)}: "
            "go on with what it was begun with, or choose another folder."
        )

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Only one process writes into the folder; the lock ends with the process."""
        with (self.folder / LOCK).open("w") as file:
            try:
                import fcntl

                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except ImportError:  # not a system that has it
                pass
            except OSError:
                raise InputError(
                    f"another process is running the study in {self.folder}: wait for it, or stop "
                    "it first."
                ) from None
            yield

    @property
    def prepared(self) -> dict[str, Any] | None:
        return _read(self.folder / PREPARED)

    def prepare(self, found: Mapping[str, Any]) -> None:
        self._write(self.folder / PREPARED, found)

    def records(self) -> dict[int, dict[str, Any]]:
        """The tasks that are done, by number; a file that is damaged is as good as none."""
        found, identity = {}, self.plan.identity
        for task in self.plan.tasks():
            record = _read(self._path(task.number))
            if record is not None and record.get("study") == identity:
                found[task.number] = record
        return found

    def add(self, record: Mapping[str, Any]) -> None:
        self._write(self._path(record["task"]), record)

    def discard(self, number: int) -> None:
        self._path(number).unlink(missing_ok=True)

    def _path(self, number: int) -> Path:
        return self.folder / TASKS / f"{number:05d}.json"

    def _write(self, path: Path, content: Mapping[str, Any]) -> None:
        try:
            write_json(path, content)
        except OSError as error:
            raise ComputationError(
                f"{path} could not be written ({error.strerror}): make room, and go on with the "
                "same command."
            ) from error


def _read(path: Path) -> dict[str, Any] | None:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None
