"""Records of a study, one line of JSON each: what has been done is not done again."""

from __future__ import annotations

import json
from pathlib import Path


def read(path: Path) -> list[dict]:
    """Whole lines; a line that was cut off is done again."""
    rows = []
    for line in _text(path).splitlines():
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return rows


def append(path: Path, row: dict) -> None:
    """One more, on disk at once, on a line of its own also where the last was cut off."""
    before = _text(path)
    with path.open("a", encoding="utf-8") as file:
        file.write("" if before.endswith("\n") or not before else "\n")
        file.write(json.dumps(row) + "\n")


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""
