"""What a check finds when the model is right: the same figures, of data that the model made.

    y* ~ p(· | θ̂),   θ̂ the best fit to the data;      T* = T(y*),   R times.

Each simulated set is fitted anew from θ̂, as the data were, with the same λ, kernel and solver. The
figures depend on the model, on the design and, weakly, on θ̂: they can be simulated once, kept in a
file and used for other data of the same model and design.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock

import numpy as np
from jaxtyping import Float

from pcuq import misfit, refits, runs
from pcuq._files import write_whole
from pcuq._given import check_file
from pcuq._program import Program
from pcuq._x64 import x64
from pcuq.errors import ComputationError, InputError
from pcuq.problem import Problem
from pcuq.refits import Figures, Refitter
from pcuq.start import MESH_TOLERANCE, Start
from pcuq.synthetic import with_synthetic_data

MOST_BYTES = 10**9  # of a file, unpacked
VERSION = 1  # of the figures: another one cannot be compared
DATA_SEED = 2**20  # apart from the seeds of runs
MOST_FAILED = 0.1
SAME = 1e-3  # of predictions, relative to the largest of the output

Tell = Callable[[str], None]


@dataclass(frozen=True, eq=False)
class Null:
    """Figures of R simulated data sets, and what they were made with."""

    figures: Figures  # each with R rows
    theta: Float[np.ndarray, " p"]
    outputs: Float[np.ndarray, "G d"]  # of the model at θ, to know it again
    representatives: Float[np.ndarray, "K p"]  # for which the mesh was chosen
    lengthscale: Float[np.ndarray, " d"]
    regularisation: float
    design: str  # a hash of what else must be the same
    seed: int
    failed: int = 0

    def __len__(self) -> int:
        return len(self.figures.statistic)

    def p_value(self, name: str, value: float) -> float:
        """(1 + #{T* ≥ T}) / (R + 1) for a figure that is one number."""
        return float(1 + np.sum(getattr(self.figures, name) >= value)) / (len(self) + 1)

    def save(self, path: str | Path) -> None:
        """An npz file of plain arrays, with the rest as JSON in it."""
        said = {
            "version": VERSION,
            "regularisation": self.regularisation,
            "design": self.design,
            "seed": self.seed,
            "failed": self.failed,
        }
        arrays = {f"figure-{name}": value for name, value in self.figures._asdict().items()}
        arrays |= {name: getattr(self, name) for name in ARRAYS}
        packed = io.BytesIO()
        np.savez_compressed(packed, said=np.array(json.dumps(said)), **arrays)
        write_whole(Path(path), packed.getvalue())


ARRAYS = ("theta", "outputs", "representatives", "lengthscale")
SAID = {"regularisation": float, "design": str, "seed": int, "failed": int}


def load_null(path: str | Path) -> Null:
    """What `Null.save` wrote; nothing in the file is executed."""
    refused = InputError(
        f"{path} is not a file of simulated checks: simulate them anew, without `null`."
    )
    check_file(path, "file", "leave `null` out to simulate it")
    try:
        with np.load(path, allow_pickle=False) as file:
            if sum(part.file_size for part in file.zip.infolist()) > MOST_BYTES:
                raise refused
            said = json.loads(str(file["said"]))
            figures = Figures(**{name: file[f"figure-{name}"] for name in Figures._fields})
            arrays = {name: file[name] for name in ARRAYS}
    except Exception as error:  # zipfile, zlib, numpy and json each have errors of their own
        raise refused from error
    if not isinstance(said, dict) or said.pop("version", None) != VERSION:
        raise refused
    rows = {array.shape[:1] for array in figures}
    if (
        {name: type(value) for name, value in said.items()} != SAID
        or any(array.dtype.kind != "f" for array in (*figures, *arrays.values()))
        or len(rows) != 1
        or () in rows
    ):
        raise refused
    return Null(figures=figures, **arrays, **said)


def design_of(problem: Problem) -> str:
    """A hash of all but the measured values: names, priors, covariates, gaps, noise, kernel."""
    bare = replace(problem.data, y=np.where(problem.data.observed, 1.0, np.nan))
    conditions = None if problem.conditions is None else dict(problem.conditions)
    copy = Problem(problem.model, bare, problem.kernel, conditions)
    windows = misfit.LAGS, misfit.MOST_WINDOWS, misfit.FEWEST
    settings = (VERSION, refits.PAIRED, refits.PREDICTED, runs.LENGTHS, windows)
    return hashlib.sha256(f"{copy.fingerprint} {settings}".encode()).hexdigest()


def refitter_for(null: Null, problem: Problem) -> Refitter:
    """What fitted the simulated data, for data of this problem: made once for each null.

    A null of another design is refused, and one of a model that predicts otherwise at its own θ.
    """
    wrong = "`null` was simulated for another {}: leave it out to simulate it anew."
    if null.design != design_of(problem):
        raise InputError(wrong.format("design, prior, noise or kernel"))
    predictor = problem.predictor(null.representatives, tolerance=MESH_TOLERANCE)
    outputs, ok = map(np.asarray, Program(predictor)(null.theta))
    largest = np.max(np.abs(null.outputs), axis=0) + 1e-300
    if not ok or np.max(np.abs(outputs - null.outputs) / largest) > SAME:
        raise InputError(wrong.format("model"))
    known = null.__dict__.get("_refitter")
    if known is None:
        known = Refitter(problem, predictor, null.lengthscale, null.regularisation)
        null.__dict__["_refitter"] = known
    return known


def simulate(
    problem: Problem,
    start: Start,
    refitter: Refitter,
    representatives: Float[np.ndarray, "K p"],
    lam: float,
    replicates: int,
    seed: int,
    tell: Tell,
) -> Null:
    """Data from the best fit, `replicates` times, each fitted by both methods and compared."""
    # Data must not come from the random numbers that a run begins with.
    seeds = [DATA_SEED * (seed + 1) + r for r in range(replicates)]
    copies = with_synthetic_data(problem, start.best, seeds)
    done, lock = [0], Lock()

    @x64
    def one(number: int) -> Figures | None:
        try:
            near = refitter.climb(start.best[None], copies[number].data.y)
            found = refitter(copies[number], near, seed + number + 1).figures
        except (ComputationError, np.linalg.LinAlgError):
            found = None
        with lock:
            done[0] += 1
            if done[0] % max(1, replicates // 10) == 0:
                tell(f"{done[0]} of {replicates} simulated data sets fitted")
        return found

    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        found = list(pool.map(one, range(replicates)))
    good = [figures for figures in found if figures is not None]
    failed = replicates - len(good)
    if failed > MOST_FAILED * replicates:
        raise ComputationError(
            f"{failed} of {replicates} simulated data sets could not be fitted: what the model "
            "predicts when it is right is not known; narrow the priors, or give a `nominal`."
        )
    null = Null(
        figures=Figures(*(np.stack(values) for values in zip(*good, strict=True))),
        theta=start.best,
        outputs=refitter.objective.solve_many(start.best[None])[0][0],
        representatives=representatives,
        lengthscale=refitter.objective.lengthscale,
        regularisation=lam,
        design=design_of(problem),
        seed=seed,
        failed=failed,
    )
    null.__dict__["_refitter"] = refitter
    return null
