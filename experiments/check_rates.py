"""How often `pcuq check` rejects a right model, and how often a wrong one.

    python experiments/check_rates.py --model lotka_volterra --each 100 --out rates

Two hundred data sets of the zoo, half of them from the model itself and half not, all compared with
one null, which is simulated first, or with one for either half where they differ in their noise, as
those of ERK do. The folder keeps the nulls and a line of JSON for each data set: the same command
goes on where it was stopped. A data set that fails is recorded and not repeated.
"""

from __future__ import annotations

import argparse
import json
import time
from importlib import import_module
from pathlib import Path

from records import append, read

import pcuq
from pcuq.null import design_of

NULL_SEED = 100_000  # nulls are simulated at data sets that are not among those checked
LEVEL = 0.05
KINDS = {False: "well-specified", True: "misspecified"}


def main() -> None:
    """Go on with the study, and say how it stands."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="lotka_volterra", choices=["lotka_volterra", "erk"])
    parser.add_argument("--each", type=int, default=100, help="data sets of either kind")
    parser.add_argument("--null-replicates", type=int, default=199)
    parser.add_argument("--regularisation", default="auto")
    parser.add_argument("--only", choices=KINDS.values(), help="data sets of one kind")
    parser.add_argument("--out", type=Path, required=True, help="a folder")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    zoo = import_module(f"pcuq.zoo.{options.model}")
    kinds = [kind for kind in (False, True) if options.only in (None, KINDS[kind])]
    nulls = {kind: the_null(zoo, options, kind) for kind in kinds}
    lines = options.out / "checks.jsonl"
    known = {(row["misspecified"], row["seed"]) for row in read(lines)}
    for seed in range(options.each):
        for misspecified in kinds:  # in turn: a part of the study says something too
            if (misspecified, seed) not in known:
                row = one(zoo, seed, misspecified, nulls[misspecified])
                append(lines, row)
                print(json.dumps(row), flush=True)
    print(json.dumps(summary(read(lines)), indent=2))


def the_null(zoo, options, misspecified: bool) -> pcuq.Null:
    """Read, or simulated and kept: from the model that is fitted to a data set of this kind."""
    problem = zoo.problem(NULL_SEED, misspecified=misspecified)
    path = options.out / "null.npz"
    if misspecified and design_of(problem) != design_of(zoo.problem(NULL_SEED, misspecified=False)):
        path = options.out / "null-misspecified.npz"
    if not path.exists():
        given = options.regularisation
        found = pcuq.check(
            problem,
            options.null_replicates,
            regularisation=given if given == "auto" else float(given),
            tell=lambda line: print(line, flush=True),
        )
        found.null.save(path)
        path.with_suffix(".json").write_text(json.dumps(found.to_dict(), indent=2))
    return pcuq.load_null(path)


def one(zoo, seed: int, misspecified: bool, null: pcuq.Null) -> dict:
    """The row of one data set."""
    began = time.perf_counter()
    row: dict = {"seed": seed, "misspecified": misspecified}
    try:
        found = pcuq.check(zoo.problem(seed, misspecified=misspecified), null=null)
        row |= {
            "p_value": found.p_value,
            "statistic": found.statistic,
            "wider": found.wider["overall"][0],
            "autocorrelation_p_value": found.autocorrelation_p_value,
            "pit_p_value": found.pit_p_value,
            "window_p_value": float(found.window_p_values.min()),
        }
    except pcuq.ComputationError as error:
        row["error"] = str(error)
    return {**row, "seconds": time.perf_counter() - began}


def summary(rows: list[dict]) -> dict:
    """Rejection rates at five per cent, of this check and of the usual ones."""
    said = {}
    for misspecified in (False, True):
        here = [r for r in rows if r["misspecified"] == misspecified and "p_value" in r]
        names = [name for name in (here[0] if here else {}) if name.endswith("p_value")]
        said[KINDS[misspecified]] = {
            "data_sets": len(here),
            "failed": sum(r["misspecified"] == misspecified and "error" in r for r in rows),
            **{name: sum(r[name] <= LEVEL for r in here) / len(here) for name in names},
        }
    said["seconds"] = sum(row["seconds"] for row in rows)
    return said


if __name__ == "__main__":
    main()
