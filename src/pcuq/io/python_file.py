"""A Python file that the user gives, run for the names that it defines."""

from __future__ import annotations

import runpy
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from pcuq.errors import ComputationError, InputError


def names_in(path: Path) -> dict[str, Any]:
    """Execute the file; an error in it says which file it was."""
    # As when Python runs a file, it may import what lies beside it.
    beside = str(path.resolve().parent)
    sys.path.insert(0, beside)
    try:
        return runpy.run_path(str(path), run_name="pcuq_problem")
    except (InputError, ComputationError) as error:
        raise type(error)(f"{path}: {error}") from error
    except (Exception, SystemExit) as error:
        raise InputError(f"{path} stopped with {type(error).__name__}: {error}") from error
    finally:
        with suppress(ValueError):  # the file may have changed the path itself
            sys.path.remove(beside)
