"""Results that survive an interruption: one small JSON file for each, whole or not there.

A study asks for its parts by name. What is on disk is read, what is not is computed and written
beside what it was computed with; a part computed with other settings is not taken for this one.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pcuq._files import write_json
from pcuq.errors import InputError


class Store:
    """A folder of parts, all computed with the same `settings`."""

    def __init__(self, folder: Path, settings: dict[str, Any]):
        self.folder = folder
        self.settings = json.loads(json.dumps(settings))  # as it will be read back
        self.taken = self.made = 0
        self.elapsed = 0.0  # of all parts, whenever they were computed
        folder.mkdir(parents=True, exist_ok=True)

    def get(self, name: str, compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The part of that name."""
        path = self.folder / f"{name}.json"
        if path.is_file():
            found = _read(path)
            if found["settings"] != self.settings:
                raise InputError(
                    f"{path} was computed with other settings ({_differing(found, self.settings)} "
                    "differ): give another folder, or remove that one."
                )
            self.taken += 1
            self.elapsed += found["elapsed"]
            return found["result"]
        began = time.perf_counter()
        result = compute()
        elapsed = round(time.perf_counter() - began, 1)
        write_json(path, {"settings": self.settings, "elapsed": elapsed, "result": result})
        self.made += 1
        self.elapsed += elapsed
        return _read(path)["result"]  # as it will be read the next time

    def __repr__(self) -> str:
        counts = f"{self.made} parts computed, {self.taken} found on disk"
        return f"{counts}, {self.elapsed:.0f} s for all of them"


def _read(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text(encoding="utf-8"))


def _differing(found: dict[str, Any], wanted: dict[str, Any]) -> str:
    before = found["settings"]
    names = sorted(k for k in {*before, *wanted} if before.get(k) != wanted.get(k))
    return ", ".join(names)
