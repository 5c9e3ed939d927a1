"""Records of a study, one line of JSON each: what has been done is not done again."""

from __future__ import annotations

import json
from pathlib import Path


def read(path: Path) -> list[dict]:
    """Whole lines; a line that was cut off is done again."""
    rows = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return rows


def append(path: Path, row: dict) -> None:
    """One more, on disk at once."""
    with path.open("a") as file:
        file.write(json.dumps(row) + "\n")
