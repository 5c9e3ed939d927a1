"""How often `pcuq check` rejects a right model, and how often a wrong one.

    python experiments/check_rates.py --model lotka_volterra --each 100 --out rates

Two hundred data sets of the zoo, half of them from the model itself and half not, all compared with
one null, which is simulated first. The folder keeps the null and a line of JSON for each data set:
the same command goes on where it was stopped. A data set that fails is recorded and not repeated.
"""

from __future__ import annotations

import argparse
import json
import time
from importlib import import_module
from pathlib import Path

from records import append, read

import pcuq

NULL_SEED = 100_000  # the null is simulated at a data set that is not among those checked
LEVEL = 0.05


def main() -> None:
    """Go on with the study, and say how it stands."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="lotka_volterra", choices=["lotka_volterra", "erk"])
    parser.add_argument("--each", type=int, default=100, help="data sets of either kind")
    parser.add_argument("--null-replicates", type=int, default=199)
    parser.add_argument("--regularisation", default="auto")
    parser.add_argument("--out", type=Path, required=True, help="a folder")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    zoo = import_module(f"pcuq.zoo.{options.model}")
    null = the_null(zoo, options)
    lines = options.out / "checks.jsonl"
    known = {(row["misspecified"], row["seed"]) for row in read(lines)}
    for seed in range(options.each):
        for misspecified in (False, True):  # in turn: a part of the study says something too
            if (misspecified, seed) not in known:
                row = one(zoo, seed, misspecified, null)
                append(lines, row)
                print(json.dumps(row), flush=True)
    print(json.dumps(summary(read(lines)), indent=2))


def the_null(zoo, options) -> pcuq.Null:
    """Read, or simulated and kept."""
    path = options.out / "null.npz"
    if not path.exists():
        given = options.regularisation
        found = pcuq.check(
            zoo.problem(NULL_SEED, misspecified=False),
            options.null_replicates,
            regularisation=given if given == "auto" else float(given),
            tell=lambda line: print(line, flush=True),
        )
        found.null.save(path)
        (options.out / "first.json").write_text(json.dumps(found.to_dict(), indent=2))
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
        said["misspecified" if misspecified else "well specified"] = {
            "data_sets": len(here),
            "failed": sum(r["misspecified"] == misspecified and "error" in r for r in rows),
            **{name: sum(r[name] <= LEVEL for r in here) / len(here) for name in names},
        }
    said["seconds"] = sum(row["seconds"] for row in rows)
    return said


if __name__ == "__main__":
    main()
