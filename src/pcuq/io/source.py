"""What a run file says of its problem: texts that can be read again, never code that would be run.

A PEtab problem is carried as the texts of its files, and is read from them. Of a Python problem
only its name and hash are kept, with the table of measurements where one was given beside it: the
file itself has to be given again, and is compared.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import xarray as xr

from pcuq._given import read_text
from pcuq.errors import InputError
from pcuq.problem import Problem

GROUP = "problem_source"
PETAB, PYTHON = "petab", "python"


@dataclass(frozen=True)
class Source:
    """`main`: the file's name. `files`: texts by name. `options`: how a table is to be read."""

    kind: str
    main: str
    digest: str
    files: dict[str, str] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)


def python_source(path: Path, files: dict[str, str] | None = None, **options: Any) -> Source:
    """Of a Python file: its hash, not its text."""
    return Source(PYTHON, path.name, text_digest(path), files or {}, options)


def petab_source(path: Path) -> Source:
    """Of a PEtab YAML file: all texts that it names."""
    from pcuq.io.petab import named_files, read_config

    files = {path.name: read_text(path)}
    for _, name in named_files(read_config(path)):
        files[_inside(name)] = read_text(path.parent / name)
    return Source(PETAB, path.name, text_digest(path), files)


def text_digest(path: Path) -> str:
    """sha256 of a file, the same whatever the line ends."""
    return hashlib.sha256(path.read_bytes().replace(b"\r\n", b"\n")).hexdigest()


def attach(tree: xr.DataTree, source: Source) -> None:
    """Put it into a fit's tree."""
    described = {"main": source.main, "digest": source.digest, "options": source.options}
    tree[GROUP] = xr.DataTree(
        xr.Dataset(
            {"text": ("file", np.array(list(source.files.values()), dtype=object))}
            if source.files
            else {},
            coords={"file": np.array(list(source.files), dtype=object)} if source.files else {},
            attrs={"kind": source.kind, "described": json.dumps(described)},
        )
    )


def source_of(tree: xr.DataTree) -> Source | None:
    """What `attach` put in, None if nothing."""
    if GROUP not in tree.children:
        return None
    group = tree[GROUP]
    try:
        described = json.loads(group.attrs["described"])
        files = {}
        if "text" in group:
            pairs = zip(group["file"].to_numpy(), group["text"].to_numpy(), strict=True)
            files = {str(name): str(text) for name, text in pairs}
        kind, main, digest = group.attrs["kind"], described["main"], described["digest"]
        options = dict(described["options"])
    except (KeyError, TypeError, ValueError, RecursionError):
        raise InputError("the run file does not say which problem it belongs to.") from None
    return Source(str(kind), str(main), str(digest), files, options)


def rebuild(source: Source) -> Problem:
    """The PEtab problem from its texts, in a folder that is removed again."""
    if source.kind != PETAB:
        raise InputError(f"only a PEtab problem can be read from a run file, not {source.main}.")
    from pcuq.io.petab import from_petab, named_files, read_config

    with tempfile.TemporaryDirectory() as folder:
        held = {_inside(name): text for name, text in source.files.items()}
        for name, text in held.items():
            path = Path(folder) / name
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
            except (OSError, ValueError):
                raise InputError(
                    f"the run file holds a file {name!r:.80}, which cannot be written."
                ) from None
        main = _inside(source.main)
        named = () if main not in held else named_files(read_config(Path(folder) / main))
        for name in (main, *(name for _, name in named)):  # a run file may come from anywhere
            if _inside(name) not in held:
                raise InputError(f"the run file names {name!r}, which it does not hold.")
        return from_petab(Path(folder) / main)


def _inside(name: str) -> str:
    """A name that stays within a folder."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or not path.parts:
        raise InputError(f"{name!r} lies outside the problem's own folder: move the file into it.")
    return str(path)
