"""The default sampler against the exact Q_n of Lotka–Volterra, on a grid.

Near the fit: θ1 in (−2.8, −1.2), θ2 in (−5.4, −2.8) for misspecified data, the best fit ± 5 of the
oracle's sds for well-specified data. Tolerances are those the method must meet: mass ± 0.05, mean
± 0.15 sd, sd ± 15 %.
"""

from __future__ import annotations

import json

import numpy as np
import pytest

import pcuq
from pcuq.start import starting_fit
from pcuq.zoo import lotka_volterra

CASES = [
    (seed, misspecified, lam)
    for seed in (0, 1)
    for misspecified in (False, True)
    for lam in (1e-4, 3e-5, 1e-5)
]
# One case in every run of the suite, smaller; all of them with the slow tests.
QUICK = (1, True, 3e-5)
SMALL_GRID = {"inside": 25, "outside": (36, 45)}
SMALL_FIT = {"warmup": 200, "draws": 200, "thin": 1}


def cells(low, high, number):
    """Middles of equal cells, and their width."""
    edges = np.linspace(low, high, number + 1)
    return (edges[1:] + edges[:-1]) / 2, (high - low) / number


def grid(box, inside=45, outside=(50, 60)):
    """Fine cells in the box, coarse ones elsewhere: (points, volumes, near)."""
    (a, width_a), (b, width_b) = (cells(*side, inside) for side in box)
    fine = np.stack(np.meshgrid(a, b, indexing="ij"), -1).reshape(-1, 2)
    (c, width_c), (d, width_d) = cells(-5, 4, outside[0]), cells(-8, 4, outside[1])
    # Coarse cells that the box cuts into are cut up, and their parts inside it left out.
    parts = 5
    offset = (np.arange(parts) + 0.5) / parts - 0.5
    coarse = np.stack(
        np.meshgrid(
            (c[:, None] + width_c * offset).ravel(),
            (d[:, None] + width_d * offset).ravel(),
            indexing="ij",
        ),
        -1,
    ).reshape(-1, 2)
    keep = ~within(coarse, box)
    owner = np.stack(
        [
            np.floor((coarse[:, 0] + 5) / width_c).astype(int),
            np.floor((coarse[:, 1] + 8) / width_d).astype(int),
        ],
        axis=1,
    )[keep]
    cell, share = np.unique(owner, axis=0, return_counts=True)
    middles = np.stack([c[cell[:, 0]], d[cell[:, 1]]], axis=1)
    inside_box = within(middles, box)
    volumes = width_c * width_d * share / parts**2
    middles, volumes = middles[~inside_box], volumes[~inside_box]
    points = np.concatenate([fine, middles])
    sides = np.repeat([[width_c, width_d]], len(points), axis=0)
    volumes = np.concatenate([np.full(len(fine), width_a * width_b), volumes])
    near = np.arange(len(points)) < len(fine)
    return points, volumes, near, sides


def refined(box, points, volumes, near, sides, weights, parts=3):
    """Cells outside the box that hold some of Q, or lie beside one that does, cut up.

    Q may have modes there that are narrower than a coarse cell.
    """
    apart = np.abs(points[:, None] - points[~near & (weights > 2e-5)][None]) / sides[:, None]
    cut = ~near & np.any(np.all(apart < 1.1, axis=-1), axis=1)
    offset = (np.arange(parts) + 0.5) / parts - 0.5
    offsets = np.stack(np.meshgrid(offset, offset, indexing="ij"), -1).reshape(-1, 2)
    new = (points[cut][:, None] + sides[cut][:, None] * offsets).reshape(-1, 2)
    outside = ~within(new, box)
    points = np.concatenate([points[~cut], new[outside]])
    share = np.repeat(volumes[cut] / parts**2, parts**2)[outside]
    volumes = np.concatenate([volumes[~cut], share])
    near = np.concatenate([near[~cut], np.zeros(outside.sum(), bool)])
    return points, volumes, near


def within(points, box):
    return np.all([(points[..., i] > s[0]) & (points[..., i] < s[1]) for i, s in enumerate(box)], 0)


def moments(points, weights):
    mean = np.average(points, axis=0, weights=weights)
    return mean, np.sqrt(np.average((points - mean) ** 2, axis=0, weights=weights))


def compare(seed, misspecified, lam, cut=None, size=None):
    """(mass, mean, sd) of the oracle and of the sampler near the fit."""
    cut, size = cut or {}, size or {}
    problem = lotka_volterra.problem(seed=seed, misspecified=misspecified)
    best = starting_fit(problem).best
    box = [(-2.8, -1.2), (-5.4, -2.8)]
    if not misspecified:
        box = [(best[0] - 0.4, best[0] + 0.4), (best[1] - 0.9, best[1] + 0.9)]
        points, volumes, near, _ = grid(box, **cut)
        weights = np.asarray(pcuq.solve_on_grid(problem, lam, points, volumes))
        _, sd = moments(points[near], weights[near])
        box = [(best[i] - 5 * sd[i], best[i] + 5 * sd[i]) for i in range(2)]
    points, volumes, near, sides = grid(box, **cut)
    weights = np.asarray(pcuq.solve_on_grid(problem, lam, points, volumes))
    if not cut:
        points, volumes, near = refined(box, points, volumes, near, sides, weights)
        weights = np.asarray(pcuq.solve_on_grid(problem, lam, points, volumes))
    exact = (weights[near].sum(), *moments(points[near], weights[near]))

    fit = pcuq.fit(problem, regularisation=lam, particles=50, seed=seed, **size)
    inside = within(fit.thetas, box)
    drawn = (inside.mean(), fit.thetas[inside].mean(0), fit.thetas[inside].std(0))
    return exact, drawn, fit


def test_draws_agree_with_the_exact_mixing_distribution():
    exact, drawn, fit = compare(*QUICK, SMALL_GRID, SMALL_FIT)
    check(exact, drawn, fit)
    # The same check finds draws that are off by a little more than it allows.
    mass, mean, sd = drawn
    for broken in ((mass - 0.11, mean, sd), (mass, mean + 0.31 * sd, sd), (mass, mean, 0.7 * sd)):
        with pytest.raises(AssertionError):
            check(exact, broken, fit)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_draws_agree_with_the_exact_mixing_distribution_in_all_cases(case):
    check(*compare(*case))


def check(exact, drawn, fit):
    assert abs(drawn[0] - exact[0]) < 0.05, fit
    assert np.all(np.abs(drawn[1] - exact[1]) < 0.15 * exact[2]), fit
    assert np.all(np.abs(drawn[2] / exact[2] - 1) < 0.15), fit


if __name__ == "__main__":
    import sys
    import time

    chosen = CASES if len(sys.argv) < 2 else [CASES[int(i)] for i in sys.argv[1:]]
    for case in chosen:
        began = time.perf_counter()
        exact, drawn, fit = compare(*case)
        print(
            json.dumps(
                {
                    "case": case,
                    "mass": [round(float(exact[0]), 4), round(float(drawn[0]), 4)],
                    "mean_difference_sd": np.round((drawn[1] - exact[1]) / exact[2], 3).tolist(),
                    "sd_ratio": np.round(drawn[2] / exact[2], 3).tolist(),
                    "seconds": json.loads(fit.tree.attrs["seconds"]),
                    "all": round(time.perf_counter() - began, 1),
                    "solver": json.loads(fit.tree.attrs["solver"])[0],
                    "status": fit.status,
                    "fixed_point": [
                        fit.diagnostics[k]
                        for k in ("fixed_point_mean", "fixed_point_mass", "fixed_point_ess")
                    ],
                }
            ),
            flush=True,
        )
