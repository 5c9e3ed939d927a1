"""What a long run leaves on disk, so that it can go on where it was cut off.

A folder holds one file per chunk of iterations, `part-00012.npz`, and `state.npz` with everything
that the next chunk depends on. Both are arrays only, and end with a hash of what is before it: a
file of which a single bit has changed is refused. Each file is written beside its place and then
renamed, the state last: whenever the run is killed, the state on disk is that of a whole number of
chunks, all of which are there. A run that goes on gives the same numbers, bit by bit.
"""

from __future__ import annotations

import hashlib
import io
import re
import shutil
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from pcuq._files import write_whole
from pcuq.errors import ComputationError, InputError

FORMAT = 2
ANEW = "begin anew (--restart at the command line)."
BEGUN, CHOSEN, START, STATE = "begun.npz", "chosen.npz", "start.npz", "state.npz"
LEAF = "leaf-"
FILES = re.compile(r"(part-\d{5}|begun|chosen|start|state)\.npz(\.new)?")
ATTEMPT = re.compile(r"attempt-(\d+)")
DIGEST = hashlib.sha256().digest_size


class Checkpoint:
    """The folder of one run; `identity` tells runs apart that must not be mixed."""

    def __init__(self, folder: Path, identity: str):
        self.folder, self.identity = Path(folder), _digest(identity)

    def save(self, done: int, part: dict[str, np.ndarray], state: Sequence[np.ndarray]) -> None:
        """After `done` chunks: what the last one gave, and the state that the next one needs."""
        leaves = {f"{LEAF}{i:03d}": leaf for i, leaf in enumerate(state)}
        mark = np.array([FORMAT, done])
        _keep(
            self.folder,
            {
                _part(done - 1): part,
                STATE: {"mark": mark, "identity": self.identity, **leaves},
            },
        )

    def load(self) -> tuple[list[dict[str, np.ndarray]], list[np.ndarray]]:
        """(what each chunk gave, the state that the next one needs)."""
        state = _read(self.folder / STATE)
        done = _belongs(state, self.folder, self.identity)
        parts = [_read(self.folder / _part(i)) for i in range(done)]
        return parts, [state[name] for name in sorted(state) if name.startswith(LEAF)]


class FitCheckpoint:
    """The folder of a fit: `attempt-0` and so on, a checkpoint for each mesh that was tried.

    `begun.npz` says whose fit it is, from the first moment on; `chosen.npz` keeps what was found
    before sampling. An attempt begins with `start.npz`: where the one before ended. Whenever a fit
    was cut off it can go on, if only from its beginning.
    """

    def __init__(self, folder: Path, identity: str, resume: bool):
        self.folder, self.identity = Path(folder), identity
        if resume:
            self._check()
        else:
            discard(self.folder)
            self._begin()

    def _check(self) -> None:
        if not (self.folder / BEGUN).is_file():
            raise InputError(
                f"there is no checkpoint to resume in {self.folder}: start without resume."
            )
        _belongs(_read(self.folder / BEGUN), self.folder, _digest(self.identity))

    def chosen(self) -> dict[str, np.ndarray] | None:
        """What was found before sampling, if that had come to its end."""
        path = self.folder / CHOSEN
        return _read(path) if path.is_file() else None

    def damaged(self) -> InputError:
        """What to say where its hashes are right, and its numbers cannot be this fit's."""
        return InputError(f"the checkpoint in {self.folder} is damaged or no checkpoint: {ANEW}")

    def keep_chosen(self, found: dict[str, np.ndarray]) -> None:
        """Keep what was found before sampling."""
        _keep(self.folder, {CHOSEN: found})

    def latest(self) -> tuple[int, dict[str, np.ndarray] | None, bool]:
        """(number of the last attempt, its start if it has begun, whether any of it was run)."""
        started = {
            int(match[1]): path.parent
            for path in self.folder.glob(f"attempt-*/{START}")
            if (match := ATTEMPT.fullmatch(path.parent.name))
        }
        if not started:
            return 0, None, False
        number, last = max(started.items())
        return number, _read(last / START), (last / STATE).is_file()

    def attempt(self, number: int, start: dict[str, np.ndarray] | None) -> Checkpoint:
        """The checkpoint of one attempt, which begins at `start` or, if None, goes on."""
        checkpoint = Checkpoint(self.folder / f"attempt-{number}", self.identity)
        if start is not None:
            _keep(checkpoint.folder, {START: start})
        return checkpoint

    def _begin(self) -> None:
        mark = {"mark": np.array([FORMAT, 0]), "identity": _digest(self.identity)}
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            _write(self.folder / BEGUN, mark)
        except OSError as error:
            raise InputError(
                f"no checkpoint can be kept in {self.folder}: {error.strerror}."
            ) from None


def holds_work(folder: Path) -> bool:
    """Whether a fit that was cut off left more in this folder than its beginning."""
    folder = Path(folder)
    return (folder / CHOSEN).is_file() or any(folder.glob(f"attempt-*/{STATE}"))


def discard(folder: Path) -> None:
    """Remove the checkpoint of a fit, and nothing that is none."""
    folder = Path(folder)
    if not folder.exists():
        return
    inside = folder.rglob("*") if folder.is_dir() else [folder]
    strangers = sorted(path for path in inside if not _is_ours(path, folder))
    if strangers:
        raise InputError(
            f"{folder} holds what is no checkpoint ({strangers[0].name}): choose another folder."
        )
    try:
        shutil.rmtree(folder)
    except OSError as error:
        raise InputError(f"the checkpoint in {folder} cannot be removed: {error}.") from None


def _is_ours(path: Path, folder: Path) -> bool:
    if path.is_symlink():
        return False
    if path.is_dir():
        return path.parent == folder and ATTEMPT.fullmatch(path.name) is not None
    return path != folder and FILES.fullmatch(path.name) is not None


def _belongs(found: dict[str, np.ndarray], folder: Path, identity: np.ndarray) -> int:
    """How many chunks were done; an error if these are not the files of this run."""
    mark = found.get("mark", np.zeros(2, int))
    if mark.shape != (2,) or mark.dtype.kind != "i" or mark[0] != FORMAT:
        raise InputError(f"what is in {folder} is no checkpoint of this version of pcuq: {ANEW}")
    if not np.array_equal(found.get("identity", np.zeros(0)), identity):
        raise InputError(
            f"the checkpoint in {folder} belongs to another problem or other settings: resume with "
            f"those it was made with, or {ANEW}"
        )
    return int(mark[1])


def _part(number: int) -> str:
    return f"part-{number:05d}.npz"


def _digest(identity: str) -> np.ndarray:
    return np.frombuffer(hashlib.sha256(identity.encode()).digest(), dtype=np.uint8)


def _keep(folder: Path, files: dict[str, dict[str, np.ndarray]]) -> None:
    """Write files in this order: the last makes the others count."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, arrays in files.items():
            _write(folder / name, arrays)
    except OSError as error:
        raise ComputationError(
            f"the checkpoint could not be written to {folder} ({error.strerror}): the one before "
            "is still there; make room and go on with resume."
        ) from None


def _write(path: Path, arrays: dict[str, np.ndarray]) -> None:
    packed = io.BytesIO()
    np.savez(packed, **arrays)  # pyright: ignore[reportArgumentType]: names are strings
    write_whole(path, packed.getvalue() + hashlib.sha256(packed.getbuffer()).digest())


def _read(path: Path) -> dict[str, np.ndarray]:
    damaged = InputError(f"{path} is damaged or no checkpoint: {ANEW}")
    try:
        whole = path.read_bytes()
    except FileNotFoundError:
        raise InputError(f"there is no checkpoint to resume: {path} does not exist.") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from None
    packed, digest = whole[:-DIGEST], whole[-DIGEST:]
    if hashlib.sha256(packed).digest() != digest:
        raise damaged
    try:
        with np.load(io.BytesIO(packed), allow_pickle=False) as arrays:
            # We compress nothing: what would be larger in memory than in the file is not ours.
            if any(part.compress_type != zipfile.ZIP_STORED for part in arrays.zip.infolist()):
                raise damaged
            return {name: arrays[name] for name in arrays.files}
    except Exception:  # made to look whole: zipfile, zlib and numpy each have errors of their own
        raise damaged from None
