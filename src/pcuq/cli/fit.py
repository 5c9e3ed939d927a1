"""pcuq fit."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from pcuq.cli.app import Json, Seed, command, say
from pcuq.cli.cache import use_compilation_cache
from pcuq.cli.files import check_out, print_json, write
from pcuq.cli.options import number_or_word, parse_times
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
from pcuq.cli.progress import listening
from pcuq.errors import InputError


@command(
    "pcuq fit examples/decay.py --regularisation 1e-3 --out decay.nc",
    "pcuq fit examples/decay.py --method bayes --out decay-bayes.nc",
    "pcuq fit examples/infusion.py --data examples/infusion.csv --noise 0.15 --regularisation 1e-3",
    "pcuq fit problem.yaml --regularisation 1e-5 --json > figures.json",
    "pcuq fit problem.yaml --regularisation 1e-5 --resume",
)
def fit(
    context: typer.Context,
    problem: ProblemArgument,
    method: Annotated[str, typer.Option(help="pcuq, bayes or mmd-bayes.")] = "pcuq",
    regularisation: Annotated[
        str, typer.Option(help="λ of ½ MMD² + λ KL: larger stays closer to the prior; or auto.")
    ] = "auto",
    data: DataOption = None,
    x: CovariateOption = None,
    outputs: OutputsOption = None,
    condition: ConditionsOption = None,
    noise: NoiseOption = None,
    beta: Annotated[
        str, typer.Option(help="Of MMD-Bayes: a number, matched for 1/(2λ), or paper.")
    ] = "matched",
    particles: Annotated[
        int | None,
        typer.Option(help="N, in each system: 50, or more where parameters are many."),
    ] = None,
    systems: Annotated[int, typer.Option(help="Independent systems, to compare.")] = 2,
    sampler: Annotated[str | None, typer.Option(help="ensemble, mala, flow or nuts.")] = None,
    warmup: Annotated[int | None, typer.Option(help="Iterations before any is kept.")] = None,
    draws: Annotated[int | None, typer.Option(help="Iterations that are kept.")] = None,
    thin: Annotated[int | None, typer.Option(help="One is kept out of how many.")] = None,
    seed: Seed = 0,
    times: Annotated[
        str | None,
        typer.Option(help="start:stop:step of the curves that are kept; a little beyond the data."),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Go on with a fit that was cut off."),
    ] = False,
    restart: Annotated[
        bool, typer.Option("--restart", help="Begin anew, and discard what was cut off.")
    ] = False,
    out: Annotated[Path, typer.Option(help="netCDF file for the draws.")] = Path("run.nc"),
    as_json: Json = False,
) -> None:
    """Infer a distribution over parameters, and say whether to trust it."""
    check_out(out, (".nc",))
    grid = None if times is None else parse_times(times)
    lam = number_or_word("regularisation", regularisation, ("auto",))
    given_beta = number_or_word("beta", beta, ("matched", "paper"))
    kept = _checkpoint(out, resume, restart)
    table = read_table(data, x, outputs, condition, noise)
    say(f"reading {problem}")
    loaded = load_problem(problem, table)
    say(describe(loaded.problem))
    use_compilation_cache()
    from pcuq.fit import fit as run
    from pcuq.groups import with_predictions
    from pcuq.io.source import attach

    say("compiling: up to a minute the first time, less later")
    with _keeping(kept):
        with listening() as listener:
            found = run(
                loaded.problem,
                method=method,
                regularisation=lam,
                beta=given_beta,
                particles="auto" if particles is None else particles,
                systems=systems,
                sampler=sampler,
                warmup=warmup,
                draws=draws,
                thin=thin,
                seed=seed,
                progress=listener,
                checkpoint=kept,
                resume=resume,
            )
        say("predicting")
        found = with_predictions(found, grid)
        attach(found.tree, loaded.source)
        found.tree.attrs["command"] = _command(context)
        write(out, found.save)
    summary = found.summary()
    if as_json:
        print_json(
            {
                "method": found.method,
                "status": found.status,
                "trusted": found.trusted,
                "regularisation": found.tree.attrs["regularisation"],
                "calibration": json.loads(found.tree.attrs["calibration"]),
                "diagnostics": found.diagnostics,
                "seconds": json.loads(found.tree.attrs["seconds"]),
                "parameters": summary.to_dict(orient="index"),
                "out": str(out),
            }
        )
    else:
        counts: dict[str | int, Any] = {"ess": "{:.0f}".format}
        typer.echo(summary.to_string(float_format=lambda value: f"{value:.4g}", formatters=counts))
        if chosen := _choice(found.tree.attrs):
            typer.echo(chosen)
        typer.echo(found.status)
    say(f"wrote {out}; to see it: pcuq report {out}")


def _command(context: typer.Context) -> str:
    """What was typed, without where the result goes: for those who want it again."""
    words = ["pcuq", "fit", str(context.params["problem"])]
    for name, value in context.params.items():
        source = context.get_parameter_source(name)
        given = source is not None and source.name == "COMMANDLINE"
        if given and name not in ("problem", "out", "as_json", "resume", "restart"):
            words += [f"--{name}", str(value)]
    return shlex.join(words)


def _choice(attributes: Mapping[Any, Any]) -> str:
    """How λ came to be, and what that cost, where it was not given."""
    found, seconds = (json.loads(attributes[name]) for name in ("calibration", "seconds"))
    if found is None:
        return ""
    rest = seconds["total"] - seconds["calibration"]
    return (
        f"λ★ = {found['regularisation']:.3g}, bound by {found['bound_by']}: finding it took "
        f"{seconds['calibration']:.0f} s, the fit {rest:.0f} s."
    )


def _checkpoint(out: Path, resume: bool, restart: bool) -> Path:
    """The folder beside the run file in which a fit is kept until it is done."""
    from pcuq.checkpoint import holds_work

    folder = out.with_suffix(".checkpoint")
    if resume and restart:
        raise InputError("--resume goes on and --restart begins anew: give one of them.")
    if holds_work(folder) and not (resume or restart):
        raise InputError(
            f"a fit that was cut off is kept in {folder}: go on with the same options and "
            "--resume, or begin anew with --restart."
        )
    return folder


@contextmanager
def _keeping(folder: Path) -> Iterator[None]:
    """Keep what was done, and say how to go on, unless all came to its end."""
    from pcuq.checkpoint import discard, holds_work

    try:
        yield
    except BaseException as error:
        if holds_work(folder) or (isinstance(error, KeyboardInterrupt) and folder.exists()):
            say(f"what was done is kept in {folder}: go on with the same options and --resume")
        else:  # it failed before a chunk was done
            with suppress(InputError):
                discard(folder)
        raise
    discard(folder)
