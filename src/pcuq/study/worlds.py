"""Where replicates come from: Lotka–Volterra of the zoo, or the problem of a user's file.

A world has cases, and makes of a case and a seed a problem to fit and the noise-free truth to score
predictions by. It is read once in each process and then kept with its model.

| world | well-specified | misspecified |
|---|---|---|
| lotka-volterra | the equations | the equations with intrinsic noise |
| a file | the model at its fit to the data | what the file calls `truth` |
"""

from __future__ import annotations

import tempfile
from collections import OrderedDict
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple, Protocol

import numpy as np

from pcuq._x64 import x64
from pcuq.data import Data
from pcuq.errors import InputError
from pcuq.io.python_file import names_in
from pcuq.io.source import PETAB, PYTHON, Source, rebuild, text_digest
from pcuq.kernels import GaussianKernel, Kernel
from pcuq.predict import predict
from pcuq.problem import Problem
from pcuq.start import starting_fit
from pcuq.study.plan import Origin
from pcuq.synthetic import with_data_around, with_synthetic_data
from pcuq.zoo import lotka_volterra

CASES = WELL, WRONG = "well-specified", "misspecified"
ZOO = {"lotka-volterra": 3e-5}  # with the λ that is taken where none is given
LAST_DATUM = 60.0
EVERY = 5  # of the truth's times are scored
KEPT = 4


class Target(NamedTuple):
    """Noise-free truth (m, d) at covariates of one condition."""

    condition: str | None
    x: Any
    truth: np.ndarray


class Replicate(NamedTuple):
    """Data to fit and what to score by; how many stochastic paths exploded and were redrawn."""

    problem: Problem
    targets: list[Target]
    exploded_paths: int = 0


class World(Protocol):
    """See the functions of `FileWorld`."""

    problem: Problem
    cases: tuple[str, ...]

    def anchors(self, seed: int) -> dict[str, list[float]]: ...

    def rows(self, size: float) -> np.ndarray: ...

    def replicate(
        self, case: str, seed: int, anchors: dict[str, list[float]], kernel: Kernel, size: float
    ) -> Replicate: ...


class LotkaVolterra:
    """Both truths of `pcuq.zoo.lotka_volterra`, scored where no data are: 60 < x ≤ 90."""

    cases: tuple[str, ...] = CASES

    def __init__(self, times: tuple[float, ...] | None = None):
        if times is not None:
            raise InputError("lotka-volterra is scored on 60 < x ≤ 90: leave --times out.")
        self.model = lotka_volterra.model()
        self.problem = self._problem(lotka_volterra.simulate(0), GaussianKernel(), 1.0)

    def anchors(self, seed: int) -> dict[str, list[float]]:
        """The parameters that make the data."""
        theta = self.model.parameters.unconstrain(lotka_volterra.true_parameters())
        return {WELL: np.asarray(theta, dtype=float).tolist()}

    def replicate(self, case, seed, anchors, kernel, size) -> Replicate:
        made = lotka_volterra.simulate(seed, misspecified=case == WRONG)
        x, truth = made.truth_times[::EVERY], made.truth[::EVERY]
        later = x > LAST_DATUM
        target = Target(None, x[later], truth[later])
        return Replicate(self._problem(made, kernel, size), [target], made.exploded_paths)

    def rows(self, size: float) -> np.ndarray:
        """Which of the truth's times are measured."""
        last = int(np.searchsorted(lotka_volterra.TRUTH_TIMES, LAST_DATUM))
        count = max(2, round(size * (len(lotka_volterra.TIMES) - 1)) + 1)
        if count > last + 1:
            raise InputError(f"lotka-volterra has at most 10 times the data: got size {size:g}.")
        return np.linspace(0, last, count).round().astype(int)

    def _problem(self, made, kernel: Kernel, size: float) -> Problem:
        times, y = made.times, made.y
        if size != 1:
            # Other times on [0, 60]; their noise has a stream of its own.
            rows = self.rows(size)
            noise = np.random.default_rng(np.random.SeedSequence(made.seed, spawn_key=(2,)))
            times, y = made.truth_times[rows], made.truth[rows]
            y = y + made.noise_sd * noise.normal(size=y.shape)
        return Problem(self.model, Data(y=y, x=times, noise=made.noise_sd), kernel)


class FileWorld:
    """A user's problem: its design, its noise, and the model or `truth` in place of nature.

    `truth` is a model with the problem's outputs, at `truth_parameters` or else at its own fit to
    the data, or a function truth(x, rng) of the sorted covariates that gives the outputs (m, d).
    """

    def __init__(self, problem: Problem, names: dict[str, Any], times: tuple[float, ...] | None):
        self.problem = problem
        self.truth: Any = names.get("truth")
        self.truth_parameters = names.get("truth_parameters")
        self.times = None if times is None else np.asarray(times, dtype=float)
        self.cases: tuple[str, ...] = (WELL,) if self.truth is None else CASES
        if self.times is not None and (problem.data.x is None or problem.data.x.ndim > 1):
            raise InputError("--times needs data with one covariate: leave it out.")
        if callable(self.truth) and not hasattr(self.truth, "solver"):
            if problem.conditions is not None or problem.data.x is None:
                raise InputError(
                    "`truth` as a function of x needs data with covariates and without conditions: "
                    "give a model."
                )
            if problem.scale.depends_on_theta:
                raise InputError("`truth` as a function needs noise with a known scale.")
        elif self.truth is not None:
            missing = set(problem.outputs) - set(getattr(self.truth, "outputs", ()))
            if missing:
                raise InputError(f"`truth` needs the outputs of the data: {sorted(missing)} lack.")

    def anchors(self, seed: int) -> dict[str, list[float]]:
        """θ that data are simulated from, by case; none for a function."""
        found = {WELL: starting_fit(self.problem, seed).best.tolist()}
        if hasattr(self.truth, "solver"):
            model, given = self.truth, self.truth_parameters
            if given is not None:
                found[WRONG] = np.asarray(model.parameters.unconstrain(given), float).tolist()
            else:
                found[WRONG] = starting_fit(
                    self._nature(WRONG, self.problem.data), seed
                ).best.tolist()
        return found

    def replicate(self, case, seed, anchors, kernel, size) -> Replicate:
        data = self.problem.data.take(self.rows(size))
        if case in anchors:
            return self._of_model(case, seed, np.asarray(anchors[case]), kernel, data)
        return self._of_function(seed, kernel, data)

    def _nature(self, case: str, data: Data) -> Problem:
        problem = self.problem
        data = replace(data, outputs=problem.outputs)
        model, nominal = (problem.model, problem.nominal) if case == WELL else (self.truth, None)
        return Problem(model, data, problem.kernel, _conditions(problem), nominal)

    def _of_model(self, case, seed, theta, kernel, data: Data) -> Replicate:
        nature = self._nature(case, data)
        made = with_synthetic_data(nature, theta, [seed])[0]
        targets = []
        for label in np.unique(self.problem.data.condition):
            x = self._scored(label)
            solved = predict(nature, theta[None], x, condition=str(label), noise=False)
            targets.append(Target(str(label), x, solved.trajectories[0][:, nature.columns]))
        return Replicate(self._with(data, made.data.y, kernel), targets)

    def _of_function(self, seed, kernel, data: Data) -> Replicate:
        scored = self._scored("")
        grid, where = np.unique(np.concatenate([data.x, scored]), axis=0, return_inverse=True)
        rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(3,)))
        values = np.asarray(self.truth(grid, rng), dtype=float)
        if values.shape != (len(grid), data.d) or not np.isfinite(values).all():
            raise InputError(
                f"`truth` needs to give finite numbers of shape {(len(grid), data.d)}: got shape "
                f"{values.shape}."
            )
        values = values[where.reshape(-1)]
        made = with_data_around(self._with(data, data.y, kernel), values[: data.n], seed)
        return Replicate(made, [Target(None, scored, values[data.n :])])

    def _with(self, data: Data, y: np.ndarray, kernel: Kernel) -> Problem:
        problem = self.problem
        data = replace(data, y=y)
        return Problem(problem.model, data, kernel, _conditions(problem), problem.nominal)

    def _scored(self, label: str) -> Any:
        if self.times is not None:
            return self.times
        data = self.problem.data
        return None if data.x is None else np.unique(data.x[data.condition == label], axis=0)

    def rows(self, size: float) -> np.ndarray:
        """Some of the rows, evenly, or each of them several times."""
        n = self.problem.data.n
        if size >= 1:
            if size != round(size):
                raise InputError(f"a size above 1 needs to be a whole number of times: got {size}.")
            return np.repeat(np.arange(n), round(size))
        return np.unique(np.linspace(0, n - 1, max(2, round(size * n))).round().astype(int))


def _conditions(problem: Problem) -> dict[str, Any] | None:
    return None if problem.conditions is None else dict(problem.conditions)


# --- reading ------------------------------------------------------------------------------------

_worlds: OrderedDict[Any, World] = OrderedDict()
_lock = Lock()


def world_of(origin: Origin, times: tuple[float, ...] | None = None) -> World:
    """The world of a plan, read once in this process."""
    key = origin.digest, origin.fingerprint, times
    with _lock:
        if key not in _worlds:
            _worlds[key] = read_world(origin, times)
            if len(_worlds) > KEPT:
                _worlds.popitem(last=False)
        return _worlds[key]


@x64
def read_world(origin: Origin, times: tuple[float, ...] | None = None) -> World:
    """From the zoo or from texts; a problem that is not the one that was planned is refused."""
    if origin.kind == "zoo":
        world: World = LotkaVolterra(times)
    elif origin.kind == PETAB:
        source = Source(PETAB, origin.name, origin.digest, dict(origin.files))
        world = FileWorld(rebuild(source), {}, times)
    else:
        assert origin.kind == PYTHON
        world = _python(origin, times)
    if origin.fingerprint and world.problem.fingerprint != origin.fingerprint:
        raise InputError(
            f"{origin.name} makes another problem here than where the study was begun: data that "
            "it reads, or versions of packages, differ."
        )
    return world


def _python(origin: Origin, times) -> FileWorld:
    path = Path(origin.path)
    if path.is_file() and text_digest(path) == origin.digest:
        names = names_in(path)
    else:  # another machine, or edited since: the text is what counts
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / origin.name
            path.write_text(origin.files[origin.name], encoding="utf-8")
            names = names_in(path)
    problem = names.get("problem")
    if not isinstance(problem, Problem):
        came = "no such name" if problem is None else type(problem).__name__
        raise InputError(f"{origin.name} needs to define `problem`, a pcuq.Problem: got {came}.")
    return FileWorld(problem, names, times)
