r"""Draws of the prior, of the data and along curves, as ArviZ names them: kept small, in the tree.

    prior                  θ ~ Q0, natural values; `unconstrained_prior` has θ
    posterior_predictive   y at the rows of the data, noise included, and w without it
    predictions            the same along a grid of covariates, by condition

Each is a thinned sample with dims (chain, draw, ...), one chain, in 32 bits: for pictures and
checks. `fit.predict` gives the predictions themselves.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from pcuq._program import Program
from pcuq._x64 import x64
from pcuq.functionals import Prediction
from pcuq.objective import Objective
from pcuq.predict import predict, sample_rows
from pcuq.problem import Problem
from pcuq.result import Fit

PRIOR_DRAWS, DATA_DRAWS, CURVE_DRAWS = 1000, 200, 400
GRID = 81
MOST_CONDITIONS = 6
# How far beyond the last datum curves go, as a share of how long it is from the start to there.
BEYOND = 0.25


@x64
def make_groups(objective: Objective, thetas: np.ndarray, seed: int) -> dict[str, xr.Dataset]:
    """The groups that a fit has from the beginning."""
    problem = objective.problem
    key = jax.random.key(seed)
    table = problem.parameters.draws(jax.random.fold_in(key, 1), PRIOR_DRAWS)
    natural = problem.parameters.constrain(jnp.asarray(table))
    names = problem.parameters.names
    return {
        "prior": _columns({name: np.asarray(natural[name]) for name in names}),
        "unconstrained_prior": _columns({name: table[:, i] for i, name in enumerate(names)}),
        "posterior_predictive": _at_the_data(objective, thetas, jax.random.fold_in(key, 2)),
    }


def with_predictions(fit: Fit, x: Any = None) -> Fit:
    """The fit, with curves along `x` for the first six conditions of the data, in `predictions`.

    By default `x` runs from the start to the last datum and a quarter of that beyond. Unchanged
    where there is nothing to run along: data without covariates, or with several.
    """
    assert fit.problem is not None
    problem = fit.problem
    grid = default_grid(problem) if x is None else np.unique(np.asarray(x, dtype=float))
    if grid is None:
        return fit
    labels = list(dict.fromkeys(problem.data.condition.tolist()))[:MOST_CONDITIONS]
    return keep(
        fit,
        {
            label: predict(
                problem,
                fit.thetas,
                grid,
                condition=label,
                max_draws=CURVE_DRAWS,
                method=_method(fit),
            )
            for label in labels
        },
    )


def _method(fit: Fit) -> str:
    """How curves are solved: implicitly where no mesh was found for the fit, or as is found best.

    To look for a mesh for each condition in vain would take longer than the rest.
    """
    used = {part["method"] for part in json.loads(fit.tree.attrs.get("solver", "[]"))}
    return "implicit" if used == {"implicit"} else "auto"


def keep(fit: Fit, predictions: Mapping[str, Prediction]) -> Fit:
    """The fit, with these predictions by condition, thinned, in the group `predictions`."""
    found = list(predictions.values())
    assert all(one.observations is not None and one.x is not None for one in found)
    size = len(found[0].draws)
    rows = np.linspace(0, size - 1, min(size, CURVE_DRAWS)).round().astype(int)
    dims = ("chain", "draw", "condition", "x", "output")

    def stacked(arrays):
        return np.stack([array[rows] for array in arrays], axis=1)[None].astype(np.float32)

    dataset = xr.Dataset(
        {
            "w": (dims, stacked([one.trajectories for one in found])),
            "y": (dims, stacked([one.observations for one in found])),
            "theta": (("draw", "parameter"), found[0].thetas[rows]),
        },
        coords={
            "chain": [0],
            "draw": np.arange(len(rows)),
            "condition": np.array(list(predictions), dtype=object),
            "x": found[0].x,
            "output": list(found[0].outputs),
            "parameter": list(fit.parameters),
        },
    )
    if fit.problem is not None and hasattr(fit.problem.model, "t0"):
        dataset["x"].attrs["long_name"] = "time"
    tree = fit.tree.copy()
    tree["predictions"] = xr.DataTree(dataset)
    return Fit(tree, fit.problem)


def default_grid(problem: Problem) -> np.ndarray | None:
    """From the model's start to a little beyond the data; None where x is not one number."""
    x = problem.data.x
    if x is None or x.ndim != 1:
        return None
    finite = x[np.isfinite(x)]
    if not len(finite):
        return None
    start = float(getattr(problem.model, "t0", finite.min()))
    end = float(finite.max())
    end += BEYOND * ((end - start) or 1.0)
    return np.linspace(start, end, GRID)


def stored_curves(fit: Fit, condition: str = "") -> Prediction | None:
    """What `with_predictions` kept for a condition, None where there is nothing."""
    if "predictions" not in fit.tree.children:
        return None
    group = fit.tree["predictions"].dataset
    labels = [str(label) for label in group["condition"].to_numpy()]
    if condition not in labels:
        return None
    here = group.isel(condition=labels.index(condition), chain=0)
    return _prediction(fit, here, here["x"].to_numpy(), here["theta"].to_numpy())


def stored_at_the_data(fit: Fit, condition: str = "") -> tuple[Prediction, np.ndarray] | None:
    """(draws at the rows of a condition, which rows these are), None where there are none."""
    if "posterior_predictive" not in fit.tree.children:
        return None
    known = fit.tree["constant_data"].dataset
    rows = np.flatnonzero(known["condition"].to_numpy().astype(str) == condition)
    if not len(rows):
        return None
    here = fit.tree["posterior_predictive"].dataset.isel(chain=0, row=rows)
    x = known["x"].to_numpy()[rows] if "x" in known else None
    thetas = np.zeros((here.sizes["draw"], len(fit.parameters)))
    return _prediction(fit, here, x, thetas), rows


def _prediction(fit: Fit, group: xr.Dataset, x, thetas) -> Prediction:
    dims = ("draw", "row" if "row" in group.dims else "x", "output")
    w, y = (group[name].transpose(*dims).to_numpy().astype(float) for name in ("w", "y"))
    return Prediction(
        x=x,
        outputs=tuple(str(name) for name in group["output"].to_numpy()),
        trajectories=w,
        observations=y,
        weights=None,
        thetas=thetas,
        draws=np.arange(len(w)),
        given=len(fit.thetas),
        seed=None,
        solver={},
    )


def _at_the_data(objective: Objective, thetas: np.ndarray, key) -> xr.Dataset:
    problem = objective.problem
    rows = np.linspace(0, len(thetas) - 1, min(DATA_DRAWS, len(thetas))).round().astype(int)
    table = np.asarray(thetas)[rows]
    outputs, ok = objective.solve_many(table)
    w = outputs[:, problem.points.of_row]
    y = np.asarray(Program(lambda *given: sample_rows(problem, *given))(key, table, w))
    fine = np.asarray(ok)[:, None, None]
    dims = ("chain", "draw", "row", "output")
    return xr.Dataset(
        {
            name: (dims, np.where(fine, values, np.nan)[None].astype(np.float32))
            for name, values in (("y", y), ("w", w[:, :, problem.columns]))
        },
        coords={
            "chain": [0],
            "draw": np.arange(len(table)),
            "row": np.arange(problem.data.n),
            "output": list(problem.outputs),
        },
    )


def _columns(values: dict[str, np.ndarray]) -> xr.Dataset:
    return xr.Dataset({name: (("chain", "draw"), v[None]) for name, v in values.items()})
