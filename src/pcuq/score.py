r"""How well do fits predict data that they have not seen?

Of draws θ_s ~ Q a held-out problem predicts y_s ~ p(· | w_{θ_s}) at each of its measurements, with
that measurement's own noise: noisy predictions against noisy observations. Per observable, and over
all of them,

    crps            mean over measurements of E|Y − y| − ½ E|Y − Y'|
    energy_score    the same with (mean square)^½ over the points of a curve in place of |·|, one
                    curve per condition, and the mean over conditions
    coverage        share of measurements inside the central band of a level
    mean_squared_z  mean of ((y − mean Y) / sd Y)²: 1 where the spread is right
    pit             counts of P(Y ≤ y) in equal bins: flat where predictions are calibrated
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pcuq import scores
from pcuq._files import as_json, write_json
from pcuq._given import check_seed, whole_number
from pcuq._x64 import x64
from pcuq.errors import ComputationError, InputError
from pcuq.heldout import matched, predict_rows
from pcuq.problem import Problem
from pcuq.result import Fit

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

Array = NDArray[np.float64]
DRAWS = 1000
LEVELS = (0.5, 0.9)
BINS = 10
ALL = "all"
GROUPS = ("observable", "condition")


@x64
def score(
    fits: Fit | Mapping[str, Fit],
    heldout: Problem,
    fixed: Mapping[str, float] | None = None,
    draws: int = DRAWS,
    levels: Sequence[float] = LEVELS,
    bins: int = BINS,
    seed: int = 0,
) -> Scores:
    """Predict the data of a second problem from fits of the first, and score the predictions.

    `fits`: one fit, or several by name. `heldout`: its own model, conditions, observables and data,
    whose parameters are matched to the fitted ones by name. One that no fit has is taken from
    `fixed`, from the constants of the fitted problem, or, where it acts on the noise alone, from
    the held-out problem's nominal point. `draws`: noisy predictions of each measurement.
    """
    if not isinstance(heldout, Problem):
        raise InputError(f"`heldout` needs a pcuq.Problem: got {type(heldout).__name__}.")
    several = {fits.method: fits} if isinstance(fits, Fit) else dict(fits)
    if not several or not all(isinstance(fit, Fit) for fit in several.values()):
        raise InputError("`fits` needs a pcuq.Fit, or a mapping from name to pcuq.Fit.")
    draws, seed = whole_number("draws", draws, 2), check_seed(seed)
    found = {}
    for name, fit in several.items():
        thetas, notes = matched(fit, heldout, fixed, draws)
        predicted, failed = predict_rows(heldout, thetas, seed)
        if not len(predicted):
            raise ComputationError(
                f"the held-out model could not be solved for any draw of {name!r}: check its "
                "conditions, and that its parameters have the meaning that they have in the fit."
            )
        found[name] = MethodScores(heldout, predicted, failed, fit.trusted, fit.status, notes)
    return Scores(found, tuple(map(float, levels)), int(bins), seed)


@dataclass(frozen=True, eq=False)
class MethodScores:
    """Noisy predictions (S, n, d) of one method for the held-out table, draw by draw."""

    problem: Problem
    predictions: Array
    failed: int  # draws that could not be solved, and take no part
    trusted: bool
    status: str
    notes: tuple[str, ...] = ()

    def groups(self, by: str) -> Iterator[tuple[str, NDArray[np.bool_]]]:
        """(name, (n, d) True for its measurements), all of them last."""
        observed, data = self.problem.data.observed, self.problem.data
        if by == "observable":
            for column, name in enumerate(self.problem.outputs):
                if observed[:, column].any():
                    yield name, observed & (np.arange(data.d) == column)
        else:
            for label in dict.fromkeys(data.condition.tolist()):
                yield label, observed & (data.condition == label)[:, None]
        yield ALL, observed

    def summary(self, which: NDArray[np.bool_], levels, bins: int, seed: int) -> dict[str, Any]:
        """All scores of some measurements."""
        x, y = self.predictions[:, which], self.problem.data.y[which]
        pit = scores.pit(x, y, rng=seed)
        return {
            "points": int(which.sum()),
            "crps": float(np.mean(scores.crps(x, y))),
            "energy_score": self._energy(which),
            "coverage": {f"{q:g}": c for q, c in scores.coverage(x, y, levels).items()},
            "mean_squared_z": scores.mean_squared_z(x, y),
            "pit": np.histogram(pit, bins=bins, range=(0.0, 1.0))[0].tolist(),
        }

    def _energy(self, which: NDArray[np.bool_]) -> float:
        """The mean over conditions of the energy score of a whole curve."""
        found = []
        for label in dict.fromkeys(self.problem.data.condition.tolist()):
            here = which & (self.problem.data.condition == label)[:, None]
            if here.any():
                curve, y = self.predictions[:, here], self.problem.data.y[here]
                found.append(float(scores.energy_score(curve, y)) / np.sqrt(len(y)))
        return float(np.mean(found))


@dataclass(frozen=True, eq=False)
class Scores:
    """What `score` returns: a table, JSON and a figure of the same numbers."""

    methods: dict[str, MethodScores]
    levels: tuple[float, ...] = LEVELS
    bins: int = BINS
    seed: int = 0
    _known: dict[str, Any] = field(default_factory=dict, repr=False)

    def to_dict(self, by: str = "observable") -> dict[str, Any]:
        """{method: {"trusted", "status", "draws", "failed", "notes", "scores": {group: …}}}."""
        if by not in GROUPS:
            raise InputError(f"`by` needs one of {', '.join(GROUPS)}: got {by!r}.")
        if by not in self._known:
            self._known[by] = {
                name: {
                    "trusted": method.trusted,
                    "status": method.status,
                    "draws": len(method.predictions),
                    "failed": method.failed,
                    "notes": list(method.notes),
                    "scores": {
                        group: method.summary(which, self.levels, self.bins, self.seed)
                        for group, which in method.groups(by)
                    },
                }
                for name, method in self.methods.items()
            }
        return self._known[by]

    def to_json(self, path: str | Path | None = None, by: str = "observable") -> str:
        """The same as text, written to `path` where one is given; null where it is no number."""
        if path is not None:
            write_json(Path(path), self.to_dict(by))
        return as_json(self.to_dict(by))

    def table(self, by: str = "observable") -> pd.DataFrame:
        """A row for each method and observable (or condition), and one for all of them."""
        import pandas as pd

        rows = {}
        for name, method in self.to_dict(by).items():
            for group, found in method["scores"].items():
                row = {k: v for k, v in found.items() if k not in ("coverage", "pit")}
                row |= {f"coverage_{100 * float(q):g}": c for q, c in found["coverage"].items()}
                rows[name, group] = row
        table = pd.DataFrame.from_dict(rows, orient="index")
        table.index = pd.MultiIndex.from_tuples(list(rows), names=["method", by])
        return table.astype({"points": int})

    def entries(self) -> pd.DataFrame:
        """A row for each measurement and method: what was predicted, and what was seen."""
        import pandas as pd

        parts = []
        for name, method in self.methods.items():
            data = method.problem.data
            rows, columns = np.nonzero(data.observed)
            x, y = method.predictions[:, rows, columns], data.y[rows, columns]
            frame: dict[str, Any] = {"method": name, "condition": data.condition[rows]}
            if data.x is not None and data.x.ndim == 1:
                frame["x"] = data.x[rows]
            frame |= {"observable": np.array(method.problem.outputs)[columns], "y": y}
            for q in (0.05, 0.25, 0.5, 0.75, 0.95):
                frame[f"q{round(100 * q):02d}"] = np.quantile(x, q, axis=0)
            frame |= {"crps": scores.crps(x, y), "pit": scores.pit(x, y, rng=self.seed)}
            parts.append(pd.DataFrame(frame))
        return pd.concat(parts, ignore_index=True)

    def plot(self) -> Figure:
        """PIT histograms above, coverage and CRPS of each observable below."""
        from pcuq.score_plot import plot_scores

        return plot_scores(self.to_dict(), self.levels)

    def __repr__(self) -> str:
        return f"Scores of {', '.join(self.methods)}\n{self.table().to_string()}"
