"""One loop for every sampler: warm-up in stages, then draws, several systems side by side.

A *system* is a set of N particles that is sampled together. Systems are independent given the
tuning, which is made from all of them in warm-up and then fixed. A sampler says how to tune, begin
and step; it knows nothing of systems or keeping draws, and of the warm-up only which share of it,
`warmed`, is over:

    tune(thetas (T, S, N, p), v, warmed)   -> Tuning    from T earlier positions, oldest first
    init(thetas (N, p), tuning, log_step)  -> State     with a field `log_step`
    step(key, state, tuning)               -> State, Info   with a field `failed_proposals`
    draw(state)                            -> Draw

A sampler that `anneals` is also asked for `heated(tuning, heat, hot)`: the warm-up then begins at
`heat` times the λ that is wanted, and its tuning may use positions of its `hot` stage for good.
There may be a λ above which nearly all of Q is the prior, and nothing leads back from there but
chance. So where most particles have left the part that fits by the end of a stage, they are sent
back to where they began, and the stage is none to learn from.

Many particles are tuned `crosswise`, each system by the positions of all others. Moves that are
learnt from the particles that they then move say where these are, and not what the law is: while
they are learnt anew they are accepted often, and once they are fixed particles leave for good what
was not learnt.

The key of an iteration depends on the seed, the iteration's number and the system's alone, so that
results do not depend on how the run is cut into chunks, nor, but for rounding, on how systems are
shared out to threads.
"""

from __future__ import annotations

import copy
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import eval_jaxpr
from jaxtyping import Array, Bool, Float, Int

from pcuq._program import Program
from pcuq._x64 import x64
from pcuq.checkpoint import ANEW, Checkpoint
from pcuq.errors import ComputationError, InputError
from pcuq.objective import part_that_fits
from pcuq.samplers.plan import CHUNK, HOT, make_plan, make_stages

LONGEST_WINDOW = 600  # iterations by which it is told whether a warm-up is over
# Proposals in a row of which none can be solved: then the model, or its simulator, is lost.
LOST = 1000
INFO = "info-"  # before the names of what happened, which may be those of what was drawn


class Draw(NamedTuple):
    """What is kept of a system after a step."""

    theta: Any  # (N, p)
    v: Any  # (N,) the data term, or for Bayes the log-likelihood
    failed: Any  # (N,)


class Sampler(Protocol):
    """What the loop asks of a sampler."""

    name: str

    def tune(self, thetas: np.ndarray, v: np.ndarray, warmed: float) -> Any: ...
    def init(self, thetas: Array, tuning: Any, log_step: Array) -> Any: ...
    def step(self, key: Array, state: Any, tuning: Any) -> tuple[Any, NamedTuple]: ...
    def draw(self, state: Any) -> Draw: ...


@dataclass(frozen=True)
class Run:
    """Draws of all systems, and what happened on the way."""

    theta: Float[np.ndarray, "S T N p"]
    v: Float[np.ndarray, "S T N"]
    failed: Bool[np.ndarray, "S T N"]
    info: dict[str, np.ndarray]  # each (S, iterations of the last round)
    warmup_theta: Float[np.ndarray, "S W N p"]  # a thinned record of the warm-up
    warmup_failures: Int[np.ndarray, "S N"]  # positions in warm-up that could not be solved
    thin: int  # one iteration was kept out of how many
    iterations: int  # in all
    timings: dict[str, float] = field(default_factory=dict)


class Progress(NamedTuple):
    """What a progress display is told after each chunk."""

    iteration: int
    total: int
    warming_up: bool
    info: dict[str, float]
    draw: Draw  # where the particles are
    kept: np.ndarray | None = None  # θ (T, S, N, p) of the chunk, where it is not of the warm-up


Listener = Callable[[Progress], None]


def sample(
    sampler: Sampler,
    starts: Float[np.ndarray, "S N p"],
    first_v: Float[np.ndarray, "S N"],
    seed: int,
    warmup: int,
    draws: int,
    thin: int,
    log_step: float = -2.0,
    chunk: int = CHUNK,
    listener: Listener | None = None,
    checkpoint: Checkpoint | None = None,
    resume: bool = False,
    enough: Callable[[np.ndarray], bool] = lambda theta: True,
    rounds: int = 0,
    settled: Callable[[np.ndarray], bool] = lambda theta: True,
    stages: int = 0,
    retuned: int | None = None,
) -> Run:
    """Warm up, then keep every `thin`-th of `draws · thin` iterations.

    Where the later half of the warm-up is not `settled`, it goes on, up to `stages` times by half
    of what it was to be: moves are tuned by where particles have been, and a part of the law that
    is found late is a part that is seldom visited until then.

    With `retuned`, many particles begin where the law may reach: nothing is heated, the warm-up
    soon is tuned after each so many iterations, and crosswise if there are several systems.

    Draws (T, S, N, p) that are not `enough` are followed by a round that is tuned by them, twice as
    long and twice as thinned, up to `rounds` times; the last two rounds are kept. Half-way such a
    round ends where the draws are enough by then, and else is tuned anew. With a `checkpoint` every
    chunk is kept on disk; with `resume` the run goes on from there.
    """
    systems = len(starts)
    crosswise = retuned is not None and systems > 1
    crew = Crew(sampler, systems, seed, max(chunk, thin * 2**rounds), crosswise)
    plan = make_plan(warmup, draws, thin, chunk, retuned)
    total, further = sum(part.length for part in plan), warmup // 2
    clock = {"compile_and_warmup": 0.0, "draws": 0.0}

    began = time.perf_counter()
    start, hot = Draw(starts[None], first_v[None], None), None
    tuning = crew.tuned(start, 0.0 if warmup else 1.0, plan[0].heat, hot)
    crew.begin(starts, tuning, np.full(systems, float(log_step)))
    records, state = [], []
    if checkpoint is not None and resume:
        records, state = checkpoint.load()
    seen: list[Draw] = []
    # Where the present stage of the warm-up began, and where the run did, or was sent back to.
    stage_began, since, best = 0, 0, float(np.max(first_v))
    earlier: list[Draw] = []  # the round before
    kept: list[Draw] = []
    infos: list[dict[str, np.ndarray]] = []
    number, half_way, lost = 0, -1, 0
    while plan:
        part, number = plan.pop(0), number + 1
        replayed = number <= len(records)
        if replayed:
            draw, info = _from_record(records[number - 1])
            crew.iteration += part.length
        else:
            draw, happened = crew.advance(part.length)
            draw = Draw(*(leaf[part.thin - 1 :: part.thin] for leaf in draw))
            info = {name: np.asarray(value) for name, value in happened._asdict().items()}
        lost = _lost(lost, info["failed_proposals"], draw.failed.shape[-1])
        (seen if part.warming else kept).append(draw)
        if not part.warming:
            infos.append(info)
        if part.ends_stage and part.heat > 1 and _anneals(sampler):
            stage = _joined(seen[stage_began:])
            best = max(best, float(np.max(stage.v)))
            if _left(stage.v[-1], best):
                since = len(seen)
            elif hot is None and part.heat <= HOT:
                hot = stage.theta
        warmed_up = part.warming and not (plan and plan[0].warming)
        if warmed_up and stages > 0 and not settled(_joined(seen).theta[-_window(warmup) :]):
            stages, warmup, total = stages - 1, warmup + further, total + further
            plan = make_stages(further, chunk, retuned) + plan
        half = len(plan) == half_way
        if half and enough(_joined(earlier + kept).theta):
            total -= sum(part.length for part in plan)
            plan, half = [], False
        again = not plan and rounds > 0 and not enough(_joined(earlier + kept).theta)
        if again:
            rounds, thin = rounds - 1, 2 * thin
            plan = make_plan(0, draws, thin, chunk)
            half_way = len(plan) // 2
            total += sum(part.length for part in plan)
        if (part.ends_stage or half or again) and not replayed:
            sent_back = part.warming and since == len(seen)
            if sent_back:
                pool = start
            elif part.warming:
                pool = _later(seen[since:], 1 / 3 if retuned is None else 1 / 2)
            else:
                pool = _joined(earlier + kept)
            warmed = 1.0 if not part.warming else crew.iteration / warmup
            heat = plan[0].heat if plan else 1.0
            tuning = crew.tuned(pool, warmed, heat, hot)
            crew.begin(starts if sent_back else draw.theta[-1], tuning, crew.log_steps())
        if part.ends_stage:
            stage_began = len(seen)
        if again:
            earlier, kept, infos = [Draw(*(leaf[1::2] for leaf in _joined(kept)))], [], []
        if replayed and number == len(records):
            crew.restore(state)
        if checkpoint is not None and not replayed:
            checkpoint.save(number, _as_record(draw, info), crew.leaves())
        if listener is not None and not replayed:  # after it is safe: the listener may end the run
            listener(_progress(crew.iteration, total, part.warming, info, draw))
        clock["compile_and_warmup" if part.warming else "draws"] += time.perf_counter() - began
        began = time.perf_counter()

    theta, v, failed = (np.moveaxis(leaf, 0, 1) for leaf in _joined(earlier + kept))
    info = {name: np.moveaxis(np.concatenate([i[name] for i in infos]), 0, 1) for name in infos[0]}
    warm = np.concatenate([k.theta for k in seen])[:: max(1, warmup // 400)] if seen else None
    warm = theta[:, :0] if warm is None else np.moveaxis(warm, 0, 1)
    warm_failed = np.zeros((0, *starts.shape[:2]), bool)
    warm_failed = np.concatenate([warm_failed, *(k.failed for k in seen)])
    return Run(
        theta=theta,
        v=v,
        failed=failed,
        info=info,
        warmup_theta=warm,
        warmup_failures=warm_failed.sum(axis=0),
        thin=thin,
        iterations=crew.iteration,
        timings=clock,
    )


def _anneals(sampler: Sampler) -> bool:
    return getattr(sampler, "anneals", False)


def _lost(before: int, failed: Float[np.ndarray, "T S"], particles: int) -> int:
    """How many proposals in a row have failed by now; refused where they are too many."""
    fine = np.flatnonzero((failed < 1 - 1e-9).any(axis=1))
    each = failed.shape[1] * particles
    since = (len(failed) - 1 - fine[-1]) * each if len(fine) else before + len(failed) * each
    if since >= LOST:
        raise ComputationError(
            f"none of the last {since} proposals could be solved: if the simulator or a file it "
            "needs is gone, bring it back and go on with resume; else narrow the priors to values "
            "at which the model can be solved."
        )
    return since


def _window(warmup: int) -> int:
    """The later half of a warm-up, or less where that is long."""
    return min(LONGEST_WINDOW, warmup // 2)


def _as_record(draw: Draw, info: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return draw._asdict() | {INFO + name: value for name, value in info.items()}


def _from_record(record: dict[str, np.ndarray]) -> tuple[Draw, dict[str, np.ndarray]]:
    info = {k[len(INFO) :]: v for k, v in record.items() if k.startswith(INFO)}
    return Draw(*(record[name] for name in Draw._fields)), info


def _joined(draws: list[Draw]) -> Draw:
    return Draw(*(np.concatenate(leaves) for leaves in zip(*draws, strict=True)))


def _later(seen: list[Draw], left_out: float) -> Draw:
    """What was seen but for a share of it at first: on the way, then."""
    first, seen = int(left_out * sum(len(draw.v) for draw in seen)), list(seen)
    while seen and len(seen[0].v) <= first:  # there may be much to join
        first -= len(seen.pop(0).v)
    return Draw(*(leaf[first:] for leaf in _joined(seen)))


def _left(v: Float[np.ndarray, "S N"], best: float) -> bool:
    """Whether most particles have left the part that fits."""
    return float(np.mean(part_that_fits(v, best))) < 0.5


class Crew:
    """All systems, shared out evenly among threads: compiled loops use one core each."""

    def __init__(
        self, sampler: Sampler, systems: int, seed: int, most: int, crosswise: bool = False
    ):
        self.sampler, self.crosswise = sampler, crosswise
        cores = os.cpu_count() or 1
        if getattr(sampler, "own_devices", False):
            cores = 1  # its loops wait for each other between devices, and must not be mixed up
        workers = max(n for n in range(1, min(systems, cores) + 1) if systems % n == 0)
        self.groups = np.split(np.arange(systems), workers)
        self.keys, self.iteration = _keys(seed, systems), 0
        own = 0 if crosswise else None
        self._init = Program(jax.vmap(sampler.init, in_axes=(0, own, 0)))
        self._advance = Program(_advance(sampler, most, own))
        self.states: list[Any] = [None] * workers

    def another(self, seed: int) -> Crew:
        """A crew for another run, which shares the compiled programs of this one."""
        other = copy.copy(self)
        other.keys, other.iteration = _keys(seed, len(self.keys)), 0
        other.states = [None] * len(self.groups)
        return other

    def tuned(self, pool: Draw, warmed: float, heat: float, hot: np.ndarray | None) -> Any:
        """The tuning by these positions (T, S, N, p), for all systems or one for each."""
        if not self.crosswise:
            tuning = self.sampler.tune(pool.theta, pool.v, warmed)
            if not _anneals(self.sampler):
                return tuning
            return self.sampler.heated(tuning, heat, hot)  # pyright: ignore[reportAttributeAccessIssue]
        each = [
            self.sampler.tune(
                np.delete(pool.theta, system, axis=1), np.delete(pool.v, system, axis=1), warmed
            )
            for system in range(pool.theta.shape[1])
        ]
        return jax.tree.map(lambda *leaves: jnp.stack(leaves), *each)

    def begin(self, thetas, tuning, log_steps) -> None:
        """The states at these positions (S, N, p), with this tuning from now on."""
        self.tuning = tuning
        self.states = self._each(
            lambda group, _: self._init(
                jnp.asarray(thetas[group]), self._tuning_of(group), jnp.asarray(log_steps[group])
            )
        )

    def _tuning_of(self, group: np.ndarray) -> Any:
        if not self.crosswise:
            return self.tuning
        return jax.tree.map(lambda leaf: leaf[group], self.tuning)

    def leaves(self) -> list[np.ndarray]:
        """Everything that the next iterations depend on, but for the sampler and the seed."""
        return [np.asarray(leaf) for leaf in jax.tree.leaves((self.tuning, self.states))]

    def restore(self, leaves: list[np.ndarray]) -> None:
        """Put back what `leaves` gave at this iteration; `begin` has been called before."""
        here, structure = jax.tree.flatten((self.tuning, self.states))
        if [(np.ndim(x), x.dtype) for x in here] != [(x.ndim, x.dtype) for x in leaves]:
            raise InputError(
                f"the checkpoint is of another sampler or another number of threads: {ANEW}"
            )
        restored = [jnp.asarray(leaf) for leaf in leaves]
        self.tuning, self.states = jax.tree.unflatten(structure, restored)

    def log_steps(self) -> np.ndarray:
        return np.concatenate([state.log_step for state in self.states])

    def advance(self, count: int) -> tuple[Draw, Any]:
        """`count` iterations of every system: what was drawn and what happened, (count, S, …)."""

        def run(group, state):
            state, kept = self._advance(
                self.keys[group],
                jnp.asarray(self.iteration),
                jnp.asarray(count),
                state,
                self._tuning_of(group),
            )
            return state, jax.tree.map(lambda leaf: np.asarray(leaf)[:count], kept)

        self.states, kept = map(list, zip(*self._each(run), strict=True))
        self.iteration += count
        return jax.tree.map(lambda *leaves: np.concatenate(leaves, axis=1), *kept)

    def in_stages(self, pool: Float[np.ndarray, "T S N p"], counts, log_steps, tune) -> Draw:
        """Draws of the last of several stages, each tuned by the positions of the one before.

        Steps adapt in all but the last.
        """
        for number, count in enumerate(counts):
            adapting = jnp.asarray(float(number < len(counts) - 1))
            self.begin(pool[-1], tune(pool)._replace(adapting=adapting), log_steps)
            draw, _ = self.advance(count)
            pool, log_steps = draw.theta, self.log_steps()
        return draw

    def _each(self, work) -> list[Any]:
        if len(self.groups) == 1:
            return [work(self.groups[0], self.states[0])]
        with ThreadPoolExecutor(len(self.groups)) as pool:
            return list(pool.map(x64(work), self.groups, self.states))


def _keys(seed: int, systems: int) -> np.ndarray:
    """The key of each system, as numbers."""
    key = jax.random.key(seed)
    folded = [jax.random.fold_in(key, system) for system in range(systems)]
    return np.stack([np.asarray(jax.random.key_data(one)) for one in folded])


def _advance(sampler: Sampler, most: int, own: int | None):
    """Up to `most` iterations of some systems, in one loop that is compiled once."""
    step = _of_each(sampler.step, own)

    def advance(keys, first, count, state, tuning):
        def one(state, iteration):
            now = jax.vmap(
                lambda data: jax.random.fold_in(jax.random.wrap_key_data(data), iteration)
            )
            state, info = step(now(keys), state, tuning)
            return state, (jax.vmap(sampler.draw)(state), info)

        # Traced once, for the shapes and for the loop.
        traced, shapes = jax.make_jaxpr(one, return_shape=True)(state, first)
        structure = jax.tree.structure(shapes)

        def body(i, carry):
            state, kept = carry
            leaves = jax.tree.leaves((state, first + i))
            state, out = jax.tree.unflatten(
                structure, eval_jaxpr(traced.jaxpr, traced.consts, *leaves)
            )
            kept = jax.tree.map(lambda buffer, leaf: buffer.at[i].set(leaf), kept, out)
            return state, kept

        buffers = jax.tree.map(lambda leaf: jnp.zeros((most, *leaf.shape), leaf.dtype), shapes[1])
        return jax.lax.fori_loop(0, count, body, (state, buffers))

    return advance


def _of_each(step: Callable[..., Any], own: int | None) -> Callable[..., Any]:
    """A step of some systems, by the tuning of all, or with `own` 0 each by its own.

    A single one is stepped as it is: a loop under `vmap` would copy all it carries at every turn.
    """

    def of_each(keys, states, tuning):
        if len(keys) > 1:
            return jax.vmap(step, in_axes=(0, 0, own))(keys, states, tuning)
        key, state = jax.tree.map(lambda leaf: leaf[0], (keys, states))
        found = step(key, state, tuning if own is None else jax.tree.map(lambda x: x[0], tuning))
        return jax.tree.map(lambda leaf: leaf[None], found)

    return of_each


def _progress(iteration: int, total: int, warming_up: bool, info, draw: Draw) -> Progress:
    means = {name: float(np.mean(value)) for name, value in info.items()}
    last = Draw(*(leaf[-1] for leaf in draw))
    return Progress(iteration, total, warming_up, means, last, None if warming_up else draw.theta)
