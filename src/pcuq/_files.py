"""Files that are whole or not there at all, and JSON without what it does not know."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

NEW = ".new"  # at the end of the name of what is not yet whole


def write_whole(path: Path, content: bytes) -> None:
    """Through a file beside it, which takes its place once all of it is on the disk."""
    beside = path.with_name(path.name + NEW)
    try:
        with beside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def write_json(path: Path, content: Any) -> None:
    """As `as_json` says it, and a line end."""
    write_whole(path, f"{as_json(content)}\n".encode())


def as_json(content: Any) -> str:
    """Numbers and texts, null for what is not a finite number."""
    return json.dumps(finite(content), indent=2, allow_nan=False, ensure_ascii=False)


def finite(value: Any) -> Any:
    """JSON has no NaN and no infinity: null."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:  # a number of numpy's
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
