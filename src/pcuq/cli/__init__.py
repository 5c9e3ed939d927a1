"""The command line. Each command is a function in a file of its own name, listed here.

Exit codes: 0 done, 2 bad input, 3 the computation failed, 130 interrupted. What was asked for goes
to stdout or a file; progress and errors go to stderr.
"""

import sys
from importlib import import_module

from pcuq.cli.app import INTERRUPTED, app

# In the order of the help. `name` is the function of that name in pcuq/cli/name.py.
COMMANDS = (
    "demo",
    "fit",
    "predict",
    "check",
    "report",
    "score",
    "explore",
    "calibrate",
    "reproduce",
    "study",
    "bench",
)
for _name in COMMANDS:
    import_module(f"pcuq.cli.{_name}")

__all__ = ["COMMANDS", "app", "main"]


def main() -> None:
    """The entry point."""
    try:
        app()
    except KeyboardInterrupt:  # while arguments are read
        sys.exit(INTERRUPTED)
