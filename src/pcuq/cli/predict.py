"""pcuq predict."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pcuq.cli.app import Json, Seed, command, say
from pcuq.cli.cache import use_compilation_cache
from pcuq.cli.files import check_out, print_json, write
from pcuq.cli.options import parse_times
from pcuq.cli.problems import ChangedOption, ProblemOption, load_run


@command(
    "pcuq predict decay.nc --problem examples/decay.py --times 0:24:0.5 --out decay.csv",
    'pcuq predict decay.nc --problem examples/decay.py --times 0:24:0.5 --do "k*=0.5@6"',
    'pcuq predict petab.nc --times 0,1,5 --do "k6*=0.01" --do "ERK:=0@30" --json',
)
def predict(
    run: Annotated[Path, typer.Argument(help="File that `pcuq fit` wrote.")],
    problem: ProblemOption = None,
    times: Annotated[
        str | None, typer.Option(help="start:stop:step with both ends, or t1,t2,…")
    ] = None,
    do: Annotated[
        list[str] | None,
        typer.Option(
            help="Intervention, may be repeated: k=2 sets, k*=0.01 scales, k+=1 shifts, ERK:=0 "
            "holds a state, and @30 at the end begins it then."
        ),
    ] = None,
    condition: Annotated[str | None, typer.Option(help="One of the problem's.")] = None,
    seed: Seed = 0,
    out: Annotated[
        Path | None, typer.Option(help="Every draw as .nc, or means and quantiles as .csv.")
    ] = None,
    even_if_changed: ChangedOption = False,
    as_json: Json = False,
) -> None:
    """What a fit predicts, also under interventions; a table on stdout unless --out is given."""
    if out is not None:
        check_out(out, (".nc", ".csv"))
    x = None if times is None else parse_times(times)
    say(f"reading {run}")
    use_compilation_cache()
    fitted = load_run(run, problem, even_if_changed)
    if not fitted.trusted:
        say(f"warning: {fitted.status}")
    found = fitted.predict(x, condition=condition, do=do or None, seed=seed)
    if found.failed:
        say(f"warning: {found.failed} of {len(found.draws)} draws could not be solved: left out")
    frame = found.to_frame()
    if out is not None and out.suffix == ".nc":
        dataset = found.to_dataset()
        write(out, lambda path: dataset.to_netcdf(path, engine="h5netcdf"))
    elif out is not None:
        write(out, lambda path: frame.to_csv(path, index=False))
    if as_json:
        rows = frame.to_dict(orient="records")
        print_json({"failed": found.failed, "predictions": rows})
    elif out is None:
        typer.echo(frame.to_csv(index=False), nl=False)
    if out is not None:
        say(f"wrote {out}")
