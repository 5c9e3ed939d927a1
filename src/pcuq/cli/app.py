"""What all commands share: the application, exit codes, and how failures are told.

Nothing here imports JAX: help and messages about bad options come at once.
"""

from __future__ import annotations

import functools
import textwrap
import time
from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from pcuq.errors import ComputationError, InputError

BAD_INPUT, FAILED, INTERRUPTED = 2, 3, 130

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    help="""Honest predictions from models that are wrong.

A typical path, from a model and data to a page for a meeting:

\b
  pcuq fit examples/decay.py --regularisation 1e-3 --out decay.nc
  pcuq predict decay.nc --problem examples/decay.py --times 0:24:1 \\
      --do "k*=0.5@6"
  pcuq report decay.nc --out decay.html

Every command explains itself: pcuq fit --help.

Exit codes: 0 done, 2 bad input, 3 the computation failed, 130 interrupted.""",
)

Seed = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Of all random numbers.")]
Json = Annotated[bool, typer.Option("--json", help="Print figures as JSON on stdout.")]


def command(*examples: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A command with examples in its help, whose expected failures are a message and a code."""

    def add(function: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(function)
        def guarded(*args, **kwargs):
            try:
                function(*args, **kwargs)
            except InputError as error:
                _stop(f"error: {error}", BAD_INPUT)
            except ComputationError as error:
                _stop(f"failed: {error}", FAILED)
            except KeyboardInterrupt:
                _stop("interrupted", INTERRUPTED)

        app.command(help=_help(function.__doc__ or "", examples))(guarded)
        return guarded

    return add


def say(line: str) -> None:
    """A line for the person at the keyboard, on stderr."""
    typer.echo(line, err=True)


def timed() -> Callable[[str], None]:
    """A teller of stages, each with the seconds since the beginning."""
    began = time.monotonic()
    return lambda line: say(f"{time.monotonic() - began:6.1f} s  {line}")


def _stop(message: str, code: int):
    say(message)
    raise typer.Exit(code)


def _help(text: str, examples: Sequence[str]) -> str:
    # \b keeps lines as they are; square brackets would be taken for markup.
    lines = "\n".join(f"  {_folded(example)}" for example in examples)
    whole = f"{text}\n\nFor example:\n\n\b\n{lines}" if examples else text
    return whole.replace("[", "\\[")


def _folded(example: str) -> str:
    """On lines that a terminal of 80 columns holds, and that a shell takes for one."""
    lines = textwrap.wrap(example, 72, break_long_words=False, break_on_hyphens=False)
    return " \\\n      ".join(lines)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(version("pcuq"))
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")
    ] = False,
) -> None:
    pass
