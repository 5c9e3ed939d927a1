r"""Is the posterior of `method="bayes"` the posterior? Simulation-based calibration.

    python experiments/sbc.py --runs 200 --out sbc

θ* ~ Q0 and y ~ p(· | θ*), many times. Among L draws of the posterior given y the rank of θ* is even
on 0..L for every parameter, and so is that of its log-likelihood (Talts et al., arXiv 1804.06788).
Ranks are counted in ten bins and compared with even ones by χ², at the level 0.01 shared out among
all that is compared. `--broken` fits with a prior half as wide as the one that θ* comes from: that
must be found out. The folder keeps a line for each run, and the same command goes on with it.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from records import append, read
from scipy import stats

import pcuq

TIMES = np.linspace(0.25, 6.0, 12)
BINS, RANKED = 10, 99  # 0..99 are a hundred ranks, ten to a bin
LEVEL = 0.01
CHAINS, WARMUP, DRAWS = 4, 300, 500


def problem(y: np.ndarray, width: float = 1.0) -> pcuq.Problem:
    """Decay from an unknown level at an unknown rate, under noise of unknown size."""
    parameters = {
        "level": pcuq.Parameter("log", dist.Normal(1.0, 0.5 * width)),
        "rate": pcuq.Parameter("log", dist.Normal(-0.7, 0.5 * width)),
        "sd": pcuq.Parameter("log", dist.Normal(-1.5, 0.4 * width)),
    }
    model = pcuq.FunctionModel(
        lambda t, p: [p["level"] * jnp.exp(-p["rate"] * t)], parameters, ("y",)
    )
    return pcuq.Problem(model, pcuq.Data(y[:, None], TIMES, noise="sd"))


def curves(theta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(what the model predicts, sd of the noise) at θ (…, 3)."""
    level, rate, sd = np.exp(np.moveaxis(theta, -1, 0))[..., None]
    return level * np.exp(-rate * TIMES), sd


def one(run: int, width: float) -> dict:
    """The ranks of one θ* among the draws that its data lead to."""
    blank = problem(np.zeros(len(TIMES)))
    theta = blank.parameters.draws(jax.random.key(run), 1)[0]
    curve, sd = curves(theta)
    y = curve + sd * np.random.default_rng(run).normal(size=len(TIMES))
    posed = problem(y, width)
    fit = pcuq.fit(posed, method="bayes", warmup=WARMUP, draws=DRAWS, seed=run)
    draws = fit.thetas[np.linspace(0, len(fit.thetas) - 1, RANKED).round().astype(int)]
    named = dict(zip(posed.parameters, np.sum(draws < theta, axis=0).tolist(), strict=True))
    height, *heights = stats.norm.logpdf(y, *curves(np.stack([theta, *draws]))).sum(axis=1)
    named["log-likelihood"] = int(np.sum(np.array(heights) < height))
    return {"run": run, "ranks": named, "rhat": fit.diagnostics["rhat_max"]}


def summary(rows: list[dict]) -> dict:
    """Counts in bins and p-values, of all that is ranked."""
    said: dict = {"runs": len(rows), "rhat_max": max(row["rhat"] for row in rows)}
    names = list(rows[0]["ranks"])
    for name in names:
        ranks = [row["ranks"][name] for row in rows]
        counts = np.bincount(np.array(ranks) * BINS // (RANKED + 1), minlength=BINS)
        said[name] = {"counts": counts.tolist(), "p_value": float(stats.chisquare(counts).pvalue)}
    said["calibrated"] = all(said[name]["p_value"] > LEVEL / len(names) for name in names)
    return said


def main() -> None:
    """Go on with the runs, and say how they stand."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--broken", action="store_true", help="fit with too narrow a prior")
    parser.add_argument("--out", type=Path, required=True, help="a folder")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    lines = options.out / ("broken.jsonl" if options.broken else "runs.jsonl")
    known = {row["run"] for row in read(lines)}
    for run in range(options.runs):
        if run not in known:
            append(lines, one(run, width=0.5 if options.broken else 1.0))
    print(json.dumps(summary(read(lines)), indent=2))


if __name__ == "__main__":
    main()
