"""pcuq reproduce."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from pcuq.cli.app import Json, Seed, command, say, timed
from pcuq.cli.cache import use_compilation_cache
from pcuq.cli.files import make_folder, print_json


@command(
    "pcuq reproduce lotka-volterra --out lotka-volterra",
    "pcuq reproduce all --out paper --seed 1",
    "pcuq reproduce replicates --out replicates --workers 2",
)
def reproduce(
    name: Annotated[
        str,
        typer.Argument(
            help="lotka-volterra, lotka-volterra-alt, erk or all; and apart, resumable: "
            "replicates, robustness, prior, spread, departures, erk-kernels."
        ),
    ],
    out: Annotated[Path, typer.Option(help="Folder for what is made.")] = Path("reproduced"),
    workers: Annotated[
        int, typer.Option(min=1, help="Of replicates: processes that compute data sets at once.")
    ] = 1,
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Make the paper's figures from its settings, with numbers beside them.

    Figures as PNG and PDF, summary.json, a README and the netCDF file of every fit. The studies
    that are apart take long: stop them at will, and start them again to go on.
    """
    use_compilation_cache()
    from pcuq.reproduce import Size, check_name
    from pcuq.reproduce import reproduce as run

    check_name(name)
    make_folder(out)
    summary = run(name, out, seed, Size(workers=workers), tell=timed())
    if as_json:
        print_json(summary)
    first = "the README.md of each folder" if name == "all" else "README.md"
    say(f"wrote {out}; begin with {first}")
