"""One loop for every sampler: warm-up in stages, then draws, several systems side by side.

A *system* is a set of N particles that is sampled together. Systems are independent given the
tuning, which is made from all of them in warm-up and then fixed. A sampler says how to tune, begin
and step; it knows nothing of systems, warm-up or keeping draws:

    tune(thetas (K, p), v (K,), adapting)  -> Tuning    arrays whose shapes never change
    init(thetas (N, p), tuning, log_step)  -> State     with a field `log_step`
    step(key, state, tuning)               -> State, Info
    draw(state)                            -> Draw

The key of an iteration depends on the seed and the iteration's number alone, so that results do not
depend on how the run is cut into chunks.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

# Warm-up is cut into stages that grow, and the tuning is made anew after each.
STAGES = (0.04, 0.06, 0.08, 0.10, 0.14, 0.18, 0.40)


class Draw(NamedTuple):
    """What is kept of a system after a step."""

    theta: Any  # (N, p)
    v: Any  # (N,) the data term, or for Bayes the log-likelihood
    failed: Any  # (N,)


class Sampler(Protocol):
    """What the loop asks of a sampler."""

    name: str

    def tune(self, thetas: np.ndarray, v: np.ndarray, adapting: bool) -> Any: ...
    def init(self, thetas: Array, tuning: Any, log_step: Array) -> Any: ...
    def step(self, key: Array, state: Any, tuning: Any) -> tuple[Any, NamedTuple]: ...
    def draw(self, state: Any) -> Draw: ...


@dataclass(frozen=True)
class Run:
    """Draws of all systems, and what happened on the way."""

    theta: Float[np.ndarray, "S T N p"]
    v: Float[np.ndarray, "S T N"]
    failed: Bool[np.ndarray, "S T N"]
    info: dict[str, np.ndarray]  # each (S, iterations after warm-up)
    warmup_theta: Float[np.ndarray, "S W N p"]  # a thinned record of the warm-up
    timings: dict[str, float] = field(default_factory=dict)


class Progress(NamedTuple):
    """What a progress display is told after each chunk."""

    iteration: int
    total: int
    warming_up: bool
    info: dict[str, float]
    draw: Draw


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
    chunk: int = 100,
    listener: Listener | None = None,
) -> Run:
    """Warm up, then keep every `thin`-th of `draws · thin` iterations."""
    systems, _, p = starts.shape
    key = jax.random.key(seed)
    init = jax.jit(jax.vmap(sampler.init, in_axes=(0, None, 0)))
    advance = jax.jit(_advance(sampler, systems, max(chunk, thin)))
    total = warmup + draws * thin
    clock = {"compile_and_warmup": 0.0, "draws": 0.0}

    thetas, log_steps = jnp.asarray(starts), jnp.full(systems, log_step, dtype=float)
    tuning = sampler.tune(starts.reshape(-1, p), first_v.ravel(), warmup > 0)
    record = []
    iteration, began = 0, time.perf_counter()
    for length in _stage_lengths(warmup):
        state = init(thetas, tuning, log_steps)
        kept = []
        for part in _parts(length, chunk):
            state, draw, info = _first(part, *advance(key, iteration, part, state, tuning))
            iteration += part
            kept.append(draw)
            _tell(listener, iteration, total, True, info, draw)
        whole = Draw(*(np.concatenate([getattr(k, name) for k in kept]) for name in Draw._fields))
        # The first half of a stage is still on its way from where the last tuning left it.
        later = slice(length // 2, None)
        positions = whole.theta[later].reshape(-1, p)
        tuning = sampler.tune(positions, whole.v[later].ravel(), iteration < warmup)
        thetas, log_steps = sampler.draw(state).theta, state.log_step
        record.append(whole.theta[:: max(1, length // 50)])
    clock["compile_and_warmup"] = time.perf_counter() - began

    state = init(thetas, tuning, log_steps)
    kept, infos, began = [], [], time.perf_counter()
    for part in _parts(draws, max(1, chunk // thin)):
        state, draw, info = _first(
            part * thin, *advance(key, iteration, part * thin, state, tuning)
        )
        iteration += part * thin
        kept.append(jax.tree.map(lambda leaf: leaf[thin - 1 :: thin], draw))
        infos.append(info._asdict())
        _tell(listener, iteration, total, False, info, draw)
    clock["draws"] = time.perf_counter() - began

    theta, v, failed = (
        np.moveaxis(np.concatenate([getattr(k, name) for k in kept]), 0, 1) for name in Draw._fields
    )
    info = {name: np.moveaxis(np.concatenate([i[name] for i in infos]), 0, 1) for name in infos[0]}
    warm = np.moveaxis(np.concatenate(record), 0, 1) if record else theta[:, :0]
    return Run(
        theta=theta,
        v=v,
        failed=failed,
        info=info,
        warmup_theta=warm,
        timings=clock,
    )


def _advance(sampler: Sampler, systems: int, most: int):
    """Up to `most` iterations of all systems, in one loop that is compiled once."""
    step = jax.vmap(sampler.step, in_axes=(0, 0, None))

    def advance(key, first, count, state, tuning):
        def one(state, iteration):
            keys = jax.random.split(jax.random.fold_in(key, iteration), systems)
            state, info = step(keys, state, tuning)
            return state, (jax.vmap(sampler.draw)(state), info)

        def body(i, carry):
            state, kept = carry
            state, out = one(state, first + i)
            kept = jax.tree.map(lambda buffer, leaf: buffer.at[i].set(leaf), kept, out)
            return state, kept

        shapes = jax.eval_shape(lambda state: one(state, first)[1], state)
        buffers = jax.tree.map(lambda leaf: jnp.zeros((most, *leaf.shape), leaf.dtype), shapes)
        return jax.lax.fori_loop(0, count, body, (state, buffers))

    return advance


def _first(count: int, state, kept):
    """The part of the buffers that was filled."""
    draw, info = jax.tree.map(lambda leaf: np.asarray(leaf)[:count], kept)
    return state, draw, info


def _stage_lengths(warmup: int) -> list[int]:
    """Whole numbers that add up to `warmup`; one stage where it is too short to be cut."""
    ends = np.round(np.cumsum(STAGES) * warmup).astype(int)
    lengths = np.diff(ends, prepend=0)
    if warmup < 10 * len(STAGES):
        return [warmup] if warmup > 0 else []
    return [int(length) for length in lengths]


def _parts(length: int, chunk: int) -> list[int]:
    """Chunks of one size and the rest."""
    whole, rest = divmod(length, chunk)
    return [chunk] * whole + ([rest] if rest else [])


def _tell(listener, iteration, total, warming_up, info, draw):
    if listener is not None:
        means = {name: float(np.mean(np.asarray(value))) for name, value in info._asdict().items()}
        last = Draw(*(np.asarray(leaf)[-1] for leaf in draw))
        listener(Progress(iteration, total, warming_up, means, last))
