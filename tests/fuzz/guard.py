"""What must not happen while a file from someone else is read, whatever is in it.

Nothing is written, made or removed outside the folder that is given; no text is evaluated, no
program started, no network asked; it takes at most so much CPU time and so much more memory; and
what is raised is an error of pcuq's own, in one line. Python tells an audit hook of what is opened,
compiled or started.
"""

import os
import resource
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pcuq.errors import ComputationError, InputError

SECONDS = 10.0  # of CPU time, system calls included
MEMORY = 1_000_000_000  # bytes more than the process had before at its largest
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGING = {
    "os.chmod", "os.chown", "os.link", "os.mkdir", "os.remove", "os.rename", "os.rmdir",
    "os.symlink", "os.truncate", "os.utime", "shutil.copyfile", "shutil.move", "shutil.rmtree",
}  # fmt: skip
IN_FOLDER = {"os.mkdir": 2, "os.remove": 1, "os.rmdir": 1}  # which argument is an open folder
NEVER = {
    "os.exec", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.startfile", "os.system",
    "pickle.find_class", "socket.bind", "socket.connect", "socket.getaddrinfo",
    "subprocess.Popen", "urllib.Request",
}  # fmt: skip
# Placed in every kind of input: code that holds it came from there.
CANARY = "pcuq_canary"


class Broken(BaseException):
    """Something happened that must not; no `except Exception` on the way hides it."""


class _Watch:
    folder: str | None = None  # None: nothing is watched
    found: str | None = None
    hooked = False


def _within(path: object, folder: object = -1) -> bool:
    if isinstance(path, int) or path is None:  # a file that is open already
        return True
    text = os.fsdecode(path)  # pyright: ignore[reportArgumentType]
    if isinstance(folder, int) and folder >= 0:
        text = os.path.join(os.readlink(f"/proc/self/fd/{folder}"), text)
    text = os.path.realpath(text)
    allowed = [_Watch.folder or "/", os.environ.get("JAX_COMPILATION_CACHE_DIR", os.devnull)]
    return text == os.devnull or any(Path(text).is_relative_to(one) for one in allowed)


def _hook(event: str, args: tuple) -> None:
    if _Watch.folder is None:
        return
    found = None
    if event == "open":
        path, _, flags = args
        if flags & WRITING and not _within(path):
            found = f"opened {path!r} for writing"
    elif event in CHANGING:
        paths = [arg for arg in args[:2] if isinstance(arg, (str, bytes, os.PathLike))]
        if event == "os.symlink":
            paths = paths[1:]
        where = args[IN_FOLDER[event]] if event in IN_FOLDER else -1
        if not all(_within(path, where) for path in paths):
            found = f"{event}{args!r}"
    elif event == "compile":
        source = args[0]
        text = source.decode(errors="replace") if isinstance(source, bytes) else source
        if isinstance(text, str) and CANARY in text:
            found = f"compiled {text[:80]!r}"
    elif event in NEVER:
        found = f"{event}{args!r:.200}"
    if found is not None:
        _Watch.found = found
        raise Broken(found)


def _too_long(*_: object) -> None:
    raise Broken(f"took more than {SECONDS:g} s")


@contextmanager
def guarded(folder: Path) -> Iterator[list[str]]:
    """Raises Broken where what is done inside does more than read, or fails unlike pcuq.

    Gives a list, in which the sentence is found by which an input was refused.
    """
    said: list[str] = []
    if not _Watch.hooked:
        sys.addaudithook(_hook)
        _Watch.hooked = True
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    kept = signal.signal(signal.SIGPROF, _too_long)
    _Watch.folder, _Watch.found = str(Path(folder).resolve()), None
    # Again and again: what is raised in a callback of C code comes to nothing.
    signal.setitimer(signal.ITIMER_PROF, SECONDS, 1.0)
    try:
        yield said
    except (InputError, ComputationError) as error:
        said.append(str(error))
        if not str(error).strip() or "\n" in str(error):
            raise Broken(f"not one line: {str(error)!r:.300}") from error
    except Exception as error:
        raise Broken(f"{type(error).__name__}: {error}") from error
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, kept)
        _Watch.folder = None
    if _Watch.found is not None:
        raise Broken(_Watch.found)
    grown = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    if grown > MEMORY:
        raise Broken(f"took {grown / 1e9:.1f} GB")
