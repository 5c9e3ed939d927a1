"""pcuq check."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from pcuq.cli.app import Json, Seed, command, say, timed
from pcuq.cli.cache import use_compilation_cache
from pcuq.cli.files import check_out, print_json, write
from pcuq.cli.options import number_or_word
from pcuq.cli.problems import (
    ConditionsOption,
    CovariateOption,
    DataOption,
    NoiseOption,
    OutputsOption,
    ProblemArgument,
    describe,
    load_problem,
    read_table,
)


@command(
    "pcuq check examples/lotka_volterra.py",
    "pcuq check examples/decay.py --regularisation 1e-3 --out decay.png --json",
    "pcuq check examples/decay.py --null decay-null.npz",
)
def check(
    problem: ProblemArgument,
    replicates: Annotated[
        int, typer.Option(min=19, help="Data sets simulated from the fitted model.")
    ] = 99,
    regularisation: Annotated[
        str, typer.Option(help="λ of ½ MMD² + λ KL, or auto to calibrate it.")
    ] = "auto",
    null: Annotated[
        Path | None,
        typer.Option(help="File of simulated checks (.npz): read if it is there, else written."),
    ] = None,
    data: DataOption = None,
    x: CovariateOption = None,
    outputs: OutputsOption = None,
    condition: ConditionsOption = None,
    noise: NoiseOption = None,
    seed: Seed = 0,
    out: Annotated[
        Path | None, typer.Option(help="A figure of where the model fails: .png, .pdf or .svg.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Is the model wrong, and does it matter? A sentence, and a figure that shows where."""
    if out is not None:
        check_out(out, (".png", ".pdf", ".svg"))
    known = null is not None and os.path.exists(null)  # whatever its length
    if null is not None and not known:
        check_out(null, (".npz",), "--null")
    lam = number_or_word("regularisation", regularisation, ("auto",))
    table = read_table(data, x, outputs, condition, noise)
    say(f"reading {problem}")
    loaded = load_problem(problem, table)
    say(describe(loaded.problem))
    use_compilation_cache()
    from pcuq.check import check as run

    found = run(loaded.problem, replicates, seed, lam, null if known else None, timed())
    if null is not None and not known:
        write(null, found.null.save)
        say(f"wrote {null}: give it again with --null for other data of this design")
    if out is not None:
        import matplotlib

        matplotlib.use("agg")
        from pcuq.plots import plot_check

        figure = plot_check(found)
        write(out, lambda path: figure.savefig(path, dpi=150))
        say(f"wrote {out}")
    if as_json:
        print_json(found.to_dict())
    else:
        typer.echo(found.verdict)
