"""Write benchmarks.md from what the benchmarks printed.

    python benchmarks/table.py FOLDER

FOLDER holds bench.json (`pcuq bench --json`) and what the scripts of this folder printed, by their
names; the page is written there.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

TITLES = {"lotka_volterra": "Lotka–Volterra", "erk": "ERK"}


def main(folder: Path) -> None:
    """Read the files and write the page."""
    names = ("bench", "scaling", "samplers", "ode_in_c", "large_n")
    bench, scaling, samplers, ode, large = (
        json.loads((folder / f"{name}.json").read_text()) for name in names
    )
    parts = [
        _head(bench),
        _iterations(bench),
        _reference(bench),
        _scaling(scaling),
        _samplers(samplers),
        _bayes(samplers),
        _ode(ode),
        _large(large),
    ]
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


def _reference(bench: dict[str, Any]) -> str:
    rows = [
        f"{TITLES[name]} | {count} | {row['ms_per_mala_iteration']:.3g} | "
        f"{row.get('times_as_long', float('nan')):.3g} | {row['ode_error']:.1g}"
        for name, sizes in bench.get("reference", {}).items()
        for count, row in sizes.items()
    ]
    text = """The authors' MALA on the same data in the same run (`pcuq bench --reference PATH`),
and how many times as long as the iteration above it takes."""
    columns = "model | N | their iteration, ms | times ours | their error"
    return _section("The authors' code", text, columns, rows) if rows else ""


def _scaling(scaling: dict[str, Any]) -> str:
    rows = [
        f"{kind} = {count} | {row['ms_per_gradient']:.3g} | {row['ms_per_mala_iteration']:.3g} | "
        f"{row['compile_s']:.1f} | {row['gradient_memory_kb'] / 1024:.2g}"
        for kind in ("n", "p")
        for count, row in scaling[kind].items()
    ]
    text = f"""N = {scaling["particles"]}. n: Lotka–Volterra measured at n times. p: a chain of p
reactions with as many states, each measured at 40 times."""
    columns = "size | gradient, ms | iteration, ms | compiling, s | MB"
    return _section("More data, more parameters", text, columns, rows)


def _samplers(found: dict[str, Any]) -> str:
    rows = [
        f"{name} | {row['seconds']:.3g} | {row['ess']:.0f} | {row['ess_per_s']:.3g} | "
        f"{row['rhat']:.2f} | {row['distance']:.3f}"
        for name, row in found["samplers"].items()
    ]
    close = found["time_to_exact"]
    if close["seconds"] is None:
        best = min(close["runs"], key=lambda run: run["distance"])
        reached = (
            f"did not come within {close['close']}: at best {best['distance']:.3f}, "
            f"after {best['seconds']:.2g} s."
        )
    else:
        reached = f"took {close['seconds']:.2g} s to come within {close['close']}."
    text = f"""Lotka–Volterra, misspecified, λ = {found["regularisation"]:g}, N = 50, two systems,
nothing left to compile. The distance is that of the pooled draws from the exact Q_n: the largest
difference between marginal distribution functions. The default sampler, `ensemble`,
{reached}"""
    columns = "sampler | seconds | effective draws | per second | R-hat | distance"
    return _section("Quality per second", text, columns, rows)


def _bayes(found: dict[str, Any]) -> str:
    rows = [
        f"{name} | {row['seconds']:.3g} | {row['ess']:.0f} | {row['ess_per_s']:.3g}"
        for name, row in found["bayes"].items()
    ]
    text = """The posterior of the same problem by NUTS: ours on the frozen mesh, and NumPyro's with
the model as its users write it, adaptive Tsit5 of diffrax. Four chains each."""
    columns = "by | seconds | effective draws | per second"
    return _section("Bayes, against NumPyro", text, columns, rows)


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
