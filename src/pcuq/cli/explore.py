"""pcuq explore."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pcuq.cli.app import Json, command, say
from pcuq.cli.cache import use_compilation_cache
from pcuq.cli.files import print_json
from pcuq.cli.problems import ChangedOption, ProblemOption, load_runs


@command(
    "pcuq explore decay.nc --problem examples/decay.py",
    "pcuq explore decay.nc decay-bayes.nc --problem examples/decay.py --port 5006 --no-open",
)
def explore(
    runs: Annotated[list[Path], typer.Argument(help="Files that `pcuq fit` wrote.")],
    problem: ProblemOption = None,
    condition: Annotated[str, typer.Option(help="One of the problem's.")] = "",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 for any that is free.")] = 0,
    show: Annotated[bool, typer.Option("--open/--no-open", help="Open a browser.")] = True,
    even_if_changed: ChangedOption = False,
    as_json: Json = False,
) -> None:
    """Move sliders and watch the bands answer, on a page that only this machine can see."""
    say(f"reading {', '.join(map(str, runs))}")
    use_compilation_cache()
    from pcuq.explore import Engine, serve
    from pcuq.explore.page import import_panel

    import_panel()
    fits = load_runs(runs, problem, even_if_changed)
    order = {"pcuq": 0, "bayes": 1}
    fits.sort(key=lambda fit: order.get(fit.method, 2))
    say("compiling")
    engine = Engine(fits, condition)
    served = serve(engine, port, show)
    if as_json:
        print_json({"url": served.url})
    say(f"open {served.url} ; stop with Ctrl-C")
    try:
        served.thread.join()
    except KeyboardInterrupt:  # the way to stop it
        served.stop()
