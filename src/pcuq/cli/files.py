"""Writing what was found: whole files or none, and JSON that every reader accepts."""

from __future__ import annotations

import errno
import json
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer

from pcuq._files import finite
from pcuq.errors import ComputationError, InputError


def check_out(path: Path, suffixes: tuple[str, ...], option: str = "--out") -> None:
    """Before anything is computed: what is found can be written."""
    if path.suffix not in suffixes:
        raise InputError(f"{option} needs a file ending in {' or '.join(suffixes)}: got {path}.")
    try:
        with tempfile.TemporaryFile(dir=path.parent):  # tried: permissions do not tell all
            fine = not os.path.isdir(path) and _has_room(path)
    except OSError:
        fine = False
    if not fine:
        raise InputError(
            f"{option} {path} cannot be written: make its folder first, or choose another path."
        )


def _has_room(path: Path) -> bool:
    """Whether a name may be as long as the longest that stands beside it until it is written."""
    try:
        os.lstat(f"{path}.checkpoint")
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def make_folder(path: Path) -> None:
    """The folder, with those above it."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--out {path} cannot be a folder: {error.strerror}.") from error


def write(path: Path, writer: Callable[[Path], Any]) -> None:
    """Through a scratch file beside it: what is there is complete."""
    handle, scratch = tempfile.mkstemp(suffix=path.suffix, dir=path.parent)
    os.close(handle)
    try:
        writer(Path(scratch))
        os.chmod(scratch, 0o666 & ~_umask())  # a scratch file is private, and this one is not
        os.replace(scratch, path)
    except (InputError, ComputationError) as error:  # of a writer that knows the scratch file alone
        raise type(error)(str(error).replace(scratch, str(path))) from error
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise ComputationError(f"{path} could not be written: {error.strerror}.") from error
        raise InputError(f"{path} cannot be written: {error.strerror or error}.") from error
    finally:
        Path(scratch).unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def print_json(figures: Any) -> None:
    """Figures on stdout, null for what is not a finite number."""
    typer.echo(json.dumps(finite(figures), indent=2, allow_nan=False))
