"""What all case studies do: fit three ways over a range of λ, predict what was held out, score it.

Prints one table and writes it as summary.json, with a figure for each held-out set.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from dataclasses import replace
from pathlib import Path

import matplotlib

matplotlib.use("agg")

import pcuq
from pcuq.cli.progress import listening

# λ = c/n² with n data: it weighs one datum against the prior alike for any n.
STRENGTHS = (0.03, 0.1, 0.3)


def arguments(description: str) -> argparse.Namespace:
    """The options that all case studies have."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--out", type=Path, default=Path("results"), help="folder for the results")
    parser.add_argument("--strengths", type=float, nargs="+", default=STRENGTHS, metavar="C",
                        help="λ = C/n²")  # fmt: skip
    parser.add_argument("--methods", nargs="+", default=("bayes", "mmd-bayes", "pcuq"))
    parser.add_argument("--combine", choices=("product", "sum"), help="how outputs combine")
    parser.add_argument("--width", type=float, default=1.0, help="ℓ_Y, in units of its default")
    parser.add_argument("--particles", type=int, help="N, chosen by pcuq.fit if left out")
    parser.add_argument("--baselines", choices=("nuts", "ensemble"), default="nuts",
                        help="sampler of Bayes and MMD-Bayes")  # fmt: skip
    parser.add_argument("--warmup", type=int, help="iterations, as pcuq.fit takes them")
    parser.add_argument("--draws", type=int)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def external_data() -> Path:
    """The folder of published problems, named by PCUQ_EXTERNAL_DATA."""
    folder = Path(os.environ.get("PCUQ_EXTERNAL_DATA", ""))
    if not os.environ.get("PCUQ_EXTERNAL_DATA") or not (folder / "petab").is_dir():
        sys.exit("set PCUQ_EXTERNAL_DATA to a folder with `petab/` in it: see case-studies.md")
    return folder


def with_kernel(problem: pcuq.Problem, options: argparse.Namespace) -> pcuq.Problem:
    """The problem as it is fitted: with what the options change of its kernel."""
    from pcuq.kernel_scale import default_lengthscale

    changes: dict = {}
    if options.combine is not None:
        changes["combine"] = options.combine
    if options.width != 1.0:
        changes["lengthscale_y"] = options.width * default_lengthscale(problem)
    return replace(problem, kernel=replace(problem.kernel, **changes))


def study(name: str, problem: pcuq.Problem, heldout: dict[str, pcuq.Problem], options) -> dict:
    """Fit, score, print and write; returns what summary.json holds."""
    problem = with_kernel(problem, options)
    entries = problem.kernel.combine == "sum"
    n = int(problem.data.observed.sum()) if entries else problem.data.n
    out = options.out / name
    out.mkdir(parents=True, exist_ok=True)
    print(f"{name}: {n} data to fit, {len(problem.parameters)} unknowns, {problem.kernel}")
    summary: dict = {"case": name, "data": n, "kernel": str(problem.kernel), "runs": []}
    runs = [("bayes", None)] if "bayes" in options.methods else []
    runs += [(m, c / n**2) for c in options.strengths for m in options.methods if m != "bayes"]
    fits = {}
    for method, lam in runs:
        label = method if lam is None else f"{method} {lam:.1e}"
        began = time.perf_counter()
        with listening() as listener:
            fit = pcuq.fit(
                problem,
                method=method,
                regularisation="auto" if lam is None else lam,
                sampler=None if method == "pcuq" else options.baselines,
                particles="auto" if options.particles is None else options.particles,
                warmup=options.warmup,
                draws=options.draws,
                seed=options.seed,
                progress=listener,
            )
        fit.save(out / f"{label.replace(' ', '_')}.nc")
        fits[label] = fit
        found = fit.diagnostics
        run = {
            "method": method,
            "regularisation": lam,
            "rhat_max": found.get("rhat_max"),
            "ess_min": found.get("ess_min"),
            "fixed_point_residual": found.get("fixed_point_residual"),
            "share_outside_fit": found.get("share_outside_fit"),
            "seconds": round(time.perf_counter() - began, 1),
            "trusted": fit.trusted,
            "status": fit.status,
            "heldout": {},
        }
        for which, second in heldout.items():
            scores = pcuq.score(fit, second, seed=options.seed)
            over_all = scores.to_dict()[fit.method]["scores"]
            run["heldout"][which] = over_all
            one = over_all["all"]
            print(
                f"  {label:18s} {which:12s} CRPS {one['crps']:.4g}  energy "
                f"{one['energy_score']:.4g}  50 %: {one['coverage']['0.5']:.2f}  90 %: "
                f"{one['coverage']['0.9']:.2f}  z² {one['mean_squared_z']:.3g}  "
                f"outside fit {run['share_outside_fit']:.2f}  {run['seconds']:.0f} s",
                flush=True,
            )
        print(f"    {fit.status}", flush=True)
        summary["runs"].append(run)
        (out / "summary.json").write_text(json.dumps(summary, indent=2) + "\n")
    for which, second in heldout.items():
        figure = pcuq.score(fits, second, seed=options.seed).plot()
        figure.savefig(out / f"{which}.png", dpi=120)
    return summary
