"""Write benchmarks.md from what the benchmarks printed.

    python benchmarks/table.py FOLDER

FOLDER holds bench.json (`pcuq bench --json`), ode_in_c.json and large_n.json; it is written there.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

TITLES = {"lotka_volterra": "Lotka–Volterra", "erk": "ERK"}


def main(folder: Path) -> None:
    """Read the three files and write the page."""
    bench, ode, large = (
        json.loads((folder / f"{name}.json").read_text())
        for name in ("bench", "ode_in_c", "large_n")
    )
    parts = [_head(bench), _iterations(bench), _ode(ode), _large(large)]
    (folder / "benchmarks.md").write_text("\n".join(parts))


def _head(bench: dict[str, Any]) -> str:
    machine = bench["machine"]
    return f"""# Benchmarks

Made by `make bench` at commit `{bench["commit"][:12]}`, on {machine["cores"]} cores of
{machine["processor"]}, Python {machine["python"]}, JAX {machine["jax"]}, with a load of
{machine["load"]}. Times are the best of several repeats; compiling is apart.
"""


def _iterations(bench: dict[str, Any]) -> str:
    rows = [
        f"{TITLES[name]} | {count} | {row['ms_per_gradient']:.3g} | "
        f"{row['ms_per_mala_iteration']:.3g} | {row['compile_s']:.1f} | {row['steps']} | "
        f"{row['ode_error']:.1g} | {row['gradient_memory_kb'] / 1024:.2g}"
        for name in TITLES
        for count, row in bench.get(name, {}).items()
    ]
    text = """MALA on the joint system of N particles, one gradient in each iteration. The error is
that of the frozen mesh, in units of the outputs; memory is that of a gradient."""
    columns = "model | N | gradient, ms | iteration, ms | compiling, s | steps | error | MB"
    return _section("One iteration", text, columns, rows)


def _ode(ode: dict[str, Any]) -> str:
    rows = [
        f"{count} | {row['ms_pcuq']:.3g} | {row['ms_c']:.3g} | {row['ratio']:.2g}"
        for count, row in ode["particles"].items()
    ]
    text = f"""Lotka–Volterra, trajectories and sensitivities on {ode["steps"]} steps of the same
mesh, by the same method; the C is `benchmarks/lotka_volterra.c`."""
    return _section("The ODE part, against C", text, "N | pcuq, ms | C, ms | ratio", rows)


def _large(large: dict[str, Any]) -> str:
    rows = [
        f"{count} | {row['ms_per_step']:.3g} | {row['memory_mb']:.3g}"
        for count, row in large["particles"].items()
    ]
    text = f"""One step of the unadjusted flow with `pair_batch={large["batch"]}`, Lotka–Volterra.
The error of its drift in one step is {large["drift_error"]:.2f} of the pair term at N = 1000
({large["stated"]:.2f} by the formula, from 20 of the particles), and of the mean over 40 steps
{large["drift_bias"]:.2f}."""
    return _section("Many particles", text, "N | step, ms | memory, MB", rows)


def _section(title: str, text: str, columns: str, rows: list[str]) -> str:
    ruler = "|".join("---" for _ in columns.split("|"))
    table = "\n".join(f"| {row} |" for row in (columns, *rows))
    first, rest = table.split("\n", 1)
    return f"## {title}\n{text}\n\n{first}\n|{ruler}|\n{rest}\n"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
