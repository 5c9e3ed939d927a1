"""The loop of all samplers, with one that counts: what it keeps, tunes, tells and goes on with."""

import os
import time
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pcuq.errors import ComputationError, InputError
from pcuq.samplers import base
from pcuq.samplers.base import Crew, Draw, sample
from pcuq.samplers.plan import make_plan, stage_lengths

SYSTEMS, PARTICLES = 2, 3
APART = 1000.0  # system s counts from s · APART


class Tuning(NamedTuple):
    at: jax.Array  # the iteration at which it was made
    adapting: jax.Array
    heat: jax.Array = jnp.asarray(1.0)


class State(NamedTuple):
    theta: jax.Array
    chance: jax.Array
    log_step: jax.Array


class Info(NamedTuple):
    number: jax.Array
    tuned_at: jax.Array
    failed_proposals: jax.Array


class Counting:
    """θ is the number of the iteration, v a random number of its key, log ε grows by 1/8.

    `fails`: the iterations in which the last particle cannot be solved. `lost`: from here on no
    proposal can be.
    """

    name = "counting"

    def __init__(self, fails=(), lost=np.inf):
        self.tuned, self.lost = [], lost
        self.fails = jnp.asarray(fails, dtype=float).reshape(-1)

    def tune(self, thetas, v, warmed):
        assert v.shape == thetas.shape[:3]
        self.tuned.append(([int(number) for number in thetas[:, 0, 0, 0]], round(warmed, 9)))
        return Tuning(jnp.asarray(thetas[-1, 0, 0, 0]), jnp.asarray(1.0))

    def init(self, thetas, tuning, log_step):
        return State(thetas, jnp.zeros(thetas.shape[:1]), log_step)

    def step(self, key, state, tuning):
        chance = jax.random.uniform(key, state.chance.shape)
        log_step = state.log_step + 0.125 * tuning.adapting
        state = State(state.theta + 1, chance, log_step)
        lost = jnp.where(state.theta[0, 0] % APART >= self.lost, 1.0, 0.0)
        return state, Info(state.theta[0, 0], tuning.at, lost)

    def draw(self, state):
        last = jnp.arange(len(state.theta)) == len(state.theta) - 1
        fails = jnp.any(state.theta[0, 0] % APART == self.fails)
        return Draw(state.theta, state.chance, last & fails)


def count(sampler=None, first_v=0.0, **settings):
    """A run of all systems, and the sampler."""
    sampler = sampler or Counting()
    starts = np.zeros((SYSTEMS, PARTICLES, 1)) + APART * np.arange(SYSTEMS)[:, None, None]
    settings = dict(seed=4, warmup=20, draws=4, thin=2, chunk=8) | settings
    return sample(sampler, starts, np.full(starts.shape[:2], first_v), **settings), sampler


def numbers(theta, system=0):
    """The iterations of θ (S, T, N, 1)."""
    assert (theta == theta[:, :, :1]).all()
    return [int(number - APART * system) for number in theta[system, :, 0, 0]]


def test_every_iteration_is_run_once_and_every_thin_th_is_kept():
    run, _ = count(draws=5, thin=3, chunk=4)
    for system in range(SYSTEMS):
        assert numbers(run.theta, system) == [23, 26, 29, 32, 35]
        assert numbers(run.warmup_theta, system) == list(range(1, 21))
        assert list(run.info["number"][system] - APART * system) == list(range(21, 36))
    assert run.theta.shape == (SYSTEMS, 5, PARTICLES, 1)
    assert run.v.shape == run.failed.shape == (SYSTEMS, 5, PARTICLES)
    assert (run.thin, run.iterations) == (3, 35)
    assert len(np.unique(run.v)) == run.v.size  # every key is another
    # So also where one draw takes more iterations than are run at a stretch.
    assert numbers(count(warmup=0, draws=2, thin=9, chunk=4)[0].theta) == [9, 18]


def test_the_tuning_is_made_after_each_stage_from_all_but_the_first_third():
    run, sampler = count(warmup=800, chunk=100)
    ends = [40, 88, 160, 320, 400, 480, 800]
    assert sampler.tuned == [
        ([0], 0.0),
        *((list(range(end // 3 + 1, end + 1)), end / 800) for end in ends),
    ]
    assert (run.info["tuned_at"] == 800).all()
    assert numbers(run.warmup_theta) == list(range(1, 801, 2))  # about 400 are kept
    assert numbers(count(warmup=799, chunk=100)[0].warmup_theta) == list(range(1, 800))


@pytest.mark.parametrize(
    ("warmup", "lengths"),
    [
        (0, []),
        (1, [1]),
        (69, [69]),
        (100, [5, 6, 9, 20, 10, 10, 40]),
        (70, [4, 4, 6, 14, 7, 7, 28]),
    ],
)
def test_stages_add_up_to_the_warm_up(warmup, lengths):
    assert stage_lengths(warmup) == lengths and sum(lengths) == warmup


class Annealed(Counting):
    """Keeps the heats it was given, and the iterations of the hot positions."""

    anneals = True

    def __init__(self):
        super().__init__()
        self.heats = []

    def heated(self, tuning, heat, hot):
        self.heats.append((heat, None if hot is None else [int(n) for n in hot[:, 0, 0, 0]]))
        return tuning


@pytest.mark.parametrize("chunk", [100, 7])
def test_a_warm_up_in_stages_cools_down_and_keeps_its_hot_positions(chunk):
    _, sampler = count(Annealed(), warmup=100, chunk=chunk, stages=1, settled=lambda theta: False)
    hot = list(range(21, 41))
    assert sampler.heats == [
        *((heat, None) for heat in (10.0, 6.0, 4.0, 3.0)),
        *((heat, hot) for heat in (2.0, 1.4, 1.0)),
        *[(1.0, hot)] * 2,  # the warm-up went on; draws
    ]


# The stages of a warm-up of 100 iterations.
HEATS, LENGTHS = (10.0, 6.0, 4.0, 3.0, 2.0, 1.4, 1.0), (5, 6, 9, 20, 10, 10, 40)


class Leaving(Annealed):
    """Particles leave the fit where it is hotter than `above` times λ.

    At once, or with `late` in the last iteration of each stage, if it begins at 0.
    """

    def __init__(self, above=2.0, late=False):
        super().__init__()
        self.above, self.late = above, late

    def heated(self, tuning, heat, hot):
        return super().heated(tuning, heat, hot)._replace(heat=jnp.asarray(heat))

    def step(self, key, state, tuning):
        state, info = super().step(key, state, tuning)
        left = tuning.heat > self.above
        if self.late:
            length = jnp.array(LENGTHS)[jnp.argmax(tuning.heat == jnp.array(HEATS))]
            left = left & (state.theta[0, 0] % APART >= length)
        v = jnp.where(left, 0.1, 1.0)
        return state._replace(chance=jnp.full(state.chance.shape, v)), info


@pytest.mark.parametrize(
    ("late", "first_v"), [(False, [0.1, 1.0, 0.1]), (True, 0.1)], ids=["at once", "late"]
)
def test_particles_that_leave_the_fit_while_hot_are_sent_back(late, first_v):
    """The fit is the best one that was seen: by a start, or since."""
    run, sampler = count(Leaving(late=late), first_v=first_v, warmup=100, chunk=2)
    # 5, 6, 9 and 20 iterations, each anew; those at twice λ are the hot ones.
    hot = list(range(1, 11))
    assert sampler.heats == [
        *((heat, None) for heat in (10.0, 6.0, 4.0, 3.0, 2.0)),
        *[(heat, hot) for heat in (1.4, 1.0, 1.0)],
    ]
    assert [pool for pool, _ in sampler.tuned[:5]] == [[0]] * 5
    # What is learnt from are the stages since, but the first third: 10, 20 and 60 iterations.
    assert [pool for pool, _ in sampler.tuned[5:]] == [
        list(range(4, 11)),
        list(range(7, 21)),
        list(range(21, 61)),
    ]
    assert numbers(run.theta)[0] == 62


def test_particles_that_leave_the_fit_at_lambda_itself_are_not_sent_back():
    """They have left, then: 40 iterations, and the draws after them."""
    run, sampler = count(Leaving(above=0.5), first_v=1.0, warmup=100)
    assert sampler.heats == [(heat, None) for heat in (*HEATS, 1.0)]
    assert numbers(run.theta)[0] == 42


def test_particles_have_left_the_fit_where_less_than_half_are_with_it():
    assert base._left(np.array([[1.0, 0.1, 0.1], [0.3, 0.1, 0.1]]), 1.0)
    assert not base._left(np.array([[1.0, 0.1, 0.1], [0.3, 0.1, 0.9]]), 1.0)
    assert not base._left(np.array([[1.0, 0.1, 0.1], [0.3, 0.8, 0.9]]), 1.0)


@pytest.mark.parametrize("warmup", [0, 69])
def test_a_warm_up_too_short_for_stages_is_not_heated(warmup):
    _, sampler = count(Annealed(), warmup=warmup)
    assert sampler.heats == [(1.0, None)] * (2 if warmup else 1)


def test_without_a_warm_up_the_first_tuning_is_the_last():
    run, sampler = count(warmup=0)
    assert sampler.tuned == [([0], 1.0)]
    assert numbers(run.theta) == [2, 4, 6, 8] and run.iterations == 8
    assert run.warmup_theta.shape == (SYSTEMS, 0, PARTICLES, 1)
    assert run.warmup_failures.shape == (SYSTEMS, PARTICLES) and not run.warmup_failures.any()


def test_rounds_grow_and_the_last_two_are_kept():
    asked = []

    def never(theta):
        asked.append(numbers(np.moveaxis(theta, 0, 1)))
        return False

    run, sampler = count(warmup=0, thin=1, chunk=2, rounds=3, enough=never)
    first, second = [1, 2, 3, 4], [6, 8, 10, 12]
    third, fourth = [16, 20, 24, 28], [36, 44, 52, 60]
    assert numbers(run.theta) == third[1::2] + fourth
    assert (run.thin, run.iterations) == (8, 60)
    assert list(run.info["number"][0]) == list(range(29, 61))
    # It is asked, and tuned, after each round and half-way through each but the first.
    pools = [
        first,
        first[1::2] + second[:2],
        first[1::2] + second,
        second[1::2] + third[:2],
        second[1::2] + third,
        third[1::2] + fourth[:2],
    ]
    assert sampler.tuned == [([0], 1.0), *((pool, 1.0) for pool in pools)]
    assert asked == pools


def test_draws_that_are_enough_are_the_last():
    run, sampler = count(warmup=0, thin=1, rounds=2, enough=lambda theta: True)
    assert numbers(run.theta) == [1, 2, 3, 4] and len(sampler.tuned) == 1


def test_a_warm_up_that_goes_on_is_tuned_by_its_own_length():
    windows = []

    def never(theta):
        windows.append(numbers(np.moveaxis(theta, 0, 1)))
        return False

    run, sampler = count(warmup=41, stages=2, settled=never)
    assert windows == [list(range(22, 42)), list(range(32, 62))]
    assert numbers(run.theta) == [83, 85, 87, 89]
    assert [warmed for _, warmed in sampler.tuned] == [
        0.0,
        *(round(ratio, 9) for ratio in (41 / 61, 61 / 81)),
        1.0,
    ]
    assert base._window(10_000) == 600


def test_nothing_is_added_to_a_run_that_is_not_asked_for():
    never = lambda theta: False  # noqa: E731
    for settings in ({"rounds": 1, "stages": 1}, dict(enough=never, settled=never)):
        assert count(**settings)[0].iterations == 20 + 8


def test_a_round_of_one_chunk_ends_the_run():
    run, _ = count(warmup=0, chunk=100, rounds=1, enough=lambda theta: False)
    assert run.iterations == 8 + 16 and numbers(run.theta) == [4, 8, 12, 16, 20, 24]


def test_a_listener_is_told_of_each_chunk():
    told = []
    count(listener=told.append)
    assert [(t.iteration, t.total, t.warming_up) for t in told] == [
        (8, 28, True),
        (16, 28, True),
        (20, 28, True),
        (28, 28, False),
    ]
    assert [t.kept is None for t in told] == [True, True, True, False]
    assert numbers(np.moveaxis(told[-1].kept, 0, 1)) == [22, 24, 26, 28]
    assert told[-1].info["number"] == 24.5 + APART / 2  # the mean over systems and iterations
    assert told[0].draw.theta.shape == (SYSTEMS, PARTICLES, 1)
    assert (told[0].draw.theta[0] == 8).all()


def test_the_total_that_a_listener_is_told_follows_the_plan():
    told = []
    unsettled, answers = iter([False, True]), iter([False, True])
    count(
        listener=told.append,
        stages=2,
        settled=lambda theta: next(unsettled),
        rounds=1,
        enough=lambda theta: next(answers),
        thin=1,
        chunk=4,
    )
    # Half of 20 more, a round of 8, which ends half-way.
    assert [t.total for t in told] == [24] * 4 + [34] * 4 + [34 + 8, 34 + 4]
    assert told[-1].iteration == told[-1].total == 20 + 10 + 4 + 4


def test_steps_go_on_from_stage_to_stage():
    crew = Crew(Counting(), SYSTEMS, 0, 10)
    starts = np.zeros((1, SYSTEMS, PARTICLES, 1))
    tuning = Tuning(jnp.asarray(0.0), jnp.asarray(0.0))
    draw = crew.in_stages(starts, (2, 3, 4), np.array([-2.0, -1.0]), lambda pool: tuning)
    assert numbers(np.moveaxis(draw.theta, 0, 1)) == [6, 7, 8, 9]
    # They adapt in all but the last.
    assert list(crew.log_steps()) == [-2.0 + 5 / 8, -1.0 + 5 / 8]


@pytest.mark.parametrize(
    ("systems", "cores", "groups"), [(4, 2, 2), (3, 2, 1), (6, 4, 3), (2, 8, 2), (4, None, 1)]
)
def test_systems_are_shared_out_evenly(systems, cores, groups, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    crew = Crew(Counting(), systems, 0, 1)
    assert [len(group) for group in crew.groups] == [systems // groups] * groups
    assert np.array_equal(np.concatenate(crew.groups), np.arange(systems))
    alone = Counting()
    alone.own_devices = True
    assert len(Crew(alone, systems, 0, 1).groups) == 1


def test_draws_do_not_depend_on_threads_chunks_or_an_earlier_run(monkeypatch):
    runs = []
    for cores, chunk in ((1, 8), (2, 8), (1, 3)):
        monkeypatch.setattr(os, "cpu_count", lambda cores=cores: cores)
        runs.append(count(chunk=chunk)[0])
    for run in runs[1:]:
        assert np.array_equal(runs[0].v, run.v) and np.array_equal(runs[0].theta, run.theta)
    sampler, starts = Counting(), np.zeros((SYSTEMS, PARTICLES, 1))
    tuning = sampler.tune(starts[None], np.zeros((1, SYSTEMS, PARTICLES)), 1.0)

    def drawn(crew):
        crew.begin(starts, tuning, np.zeros(SYSTEMS))
        return crew.advance(5)[0].v

    crew = Crew(sampler, SYSTEMS, 1, 10)
    first, more = drawn(crew), crew.advance(5)[0].v
    other = crew.another(7)
    assert (other.iteration, crew.iteration) == (0, 10)
    assert np.array_equal(drawn(other), drawn(Crew(sampler, SYSTEMS, 7, 10)))
    assert np.array_equal(drawn(crew.another(1)), first)
    assert not np.isin(more, first).any() and not np.isin(drawn(other), first).any()


# --- what fails ---------------------------------------------------------------------------------


def test_positions_that_fail_are_counted_by_particle():
    run, _ = count(Counting(fails=[1, 2, 20, 24, 25]))
    assert run.warmup_failures.tolist() == [[0, 0, 3]] * SYSTEMS
    assert run.failed.sum(axis=1).tolist() == [[0, 0, 1]] * SYSTEMS  # 24 is kept, and 25 is not


def test_a_run_ends_where_no_proposal_can_be_solved_any_more():
    """The last 50 of the first chunk of 100, and two more chunks, of 6 proposals each."""
    for lost, proposals in ((51, 1500), (1, 1200)):
        with pytest.raises(ComputationError, match=f"none of the last {proposals} proposals"):
            count(Counting(lost=lost), warmup=0, draws=500, thin=1, chunk=100)


def test_proposals_that_fail_in_a_row_are_counted_over_chunks():
    every, one_fine = np.ones((4, 2)), np.ones((4, 2))
    one_fine[1, 1] = 0.9
    assert base._lost(0, one_fine, 3) == 2 * 2 * 3
    assert base._lost(7, one_fine, 3) == 2 * 2 * 3
    assert base._lost(7, every, 3) == 7 + 4 * 2 * 3
    assert base._lost(7, every - 1e-12, 3) == 7 + 4 * 2 * 3  # a mean, rounded
    assert base._lost(999 - 24, every, 3) == 999
    with pytest.raises(ComputationError, match="none of the last 1000 proposals"):
        base._lost(1000 - 24, every, 3)


# --- going on -----------------------------------------------------------------------------------


class Kept:
    """A checkpoint in memory."""

    def __init__(self):
        self.records, self.leaves, self.loaded = [], [], 0

    def load(self):
        self.loaded += 1
        return list(self.records), self.leaves

    def save(self, number, record, leaves):
        assert number == len(self.records) + 1
        self.records.append(record)
        self.leaves = leaves


class CutError(Exception):
    """The run is cut off here."""


@pytest.mark.parametrize("retuned", [None, 4])
@pytest.mark.parametrize("cut", [4, 8, 20, 26, 38, 50])
def test_a_run_that_was_cut_off_goes_on_to_the_same(cut, retuned):
    """After one chunk, in the warm-up, at its end, in what was added to it, and in later rounds."""
    settings = dict(
        warmup=20, thin=1, chunk=4, rounds=2, enough=lambda theta: False, stages=1,
        settled=lambda theta: False, retuned=retuned,
    )  # fmt: skip
    told = []
    whole, _ = count(listener=lambda t: told.append(t.iteration), **settings)
    assert told[-1] == whole.iterations == 20 + 10 + 4 + 8 + 16
    kept = Kept()

    def listener(progress):
        if progress.iteration >= cut:
            raise CutError

    with pytest.raises(CutError):
        count(checkpoint=kept, listener=listener, **settings)
    assert kept.loaded == 0
    later = []
    found, _ = count(
        checkpoint=kept, resume=True, listener=lambda t: later.append(t.iteration), **settings
    )
    at = next(iteration for iteration in told if iteration >= cut)
    assert later == [iteration for iteration in told if iteration > at]
    for name in ("theta", "v", "failed", "warmup_theta", "warmup_failures"):
        assert np.array_equal(getattr(found, name), getattr(whole, name)), name
    assert set(found.info) == set(Info._fields)
    for name in Info._fields:
        assert np.array_equal(found.info[name], whole.info[name]), name
    assert (found.thin, found.iterations) == (whole.thin, whole.iterations)


def test_a_checkpoint_of_something_else_is_refused():
    crew = Crew(Counting(), SYSTEMS, 0, 1)
    starts = np.zeros((SYSTEMS, PARTICLES, 1))
    crew.begin(starts, Tuning(jnp.asarray(0.0), jnp.asarray(1.0)), np.zeros(SYSTEMS))
    leaves = crew.leaves()
    crew.restore(leaves)
    wrong = (leaves[:-1], [*leaves[:-1], leaves[-1].astype(int)], [leaves[0][None], *leaves[1:]])
    for other in wrong:
        with pytest.raises(InputError, match="another sampler or another number of threads"):
            crew.restore(other)


def test_time_is_told_of_warm_up_and_draws():
    began = time.perf_counter()
    run, _ = count()
    spent = time.perf_counter() - began
    assert min(run.timings["draws"], run.timings["compile_and_warmup"]) > 0
    assert sum(run.timings.values()) < spent
    assert count(warmup=0)[0].timings["compile_and_warmup"] == 0.0


def test_a_warm_up_that_is_retuned_is_not_heated_and_soon_goes_on_in_equal_stages():
    plan = make_plan(480, 10, 1, 25, retuned=40)
    ends = np.flatnonzero([part.ends_stage for part in plan])
    stages = [part for part in np.split(np.array(plan), ends + 1) if part[0, 1]]
    assert [sum(stage[:, 0]) for stage in stages] == [*stage_lengths(200)[:-1], *[40] * 9]
    assert all(part.heat == 1.0 for part in plan)
    assert plan[-1].length == 10 and not plan[-1].warming
    assert not any(part.warming for part in make_plan(0, 10, 1, 25, retuned=40))


RETUNED = dict(warmup=280, chunk=25, retuned=40, stages=1, settled=lambda theta: False)


def test_each_of_many_systems_is_tuned_by_the_later_half_of_the_others():
    run, sampler = count(**RETUNED)
    lengths = [*stage_lengths(200)[:-1], *[40] * 4, *[40] * 3, 20]  # and half as much again
    ends = np.cumsum(lengths)
    wanted = [[0], *(list(range(end // 2 + 1, end + 1)) for end in ends)]
    # The first system is tuned first, by the second, which counts from 1000.
    assert [[number - int(APART) for number in seen] for seen, _ in sampler.tuned[::2]] == wanted
    assert [seen for seen, _ in sampler.tuned[1::2]] == wanted
    assert (run.info["tuned_at"][0] == APART + 420).all()
    assert (run.info["tuned_at"][1] == 420).all()


def test_a_single_system_of_many_particles_is_tuned_by_itself_and_not_heated():
    sampler = Annealed()
    starts = np.zeros((1, PARTICLES, 1))
    settings = RETUNED | dict(seed=4, draws=4, thin=2)
    run = sample(sampler, starts, np.zeros((1, PARTICLES)), **settings)
    assert [seen[-1] for seen, _ in sampler.tuned][-1] == 420
    assert (run.info["tuned_at"] == 420).all()


@pytest.mark.parametrize("systems", [2, 4])
def test_systems_with_tunings_of_their_own_are_stepped_each_by_its_own(systems):
    """One in a thread, and two."""
    crew = Crew(Counting(), systems, 0, 5, crosswise=True)
    starts = np.zeros((systems, PARTICLES, 1)) + APART * np.arange(systems)[:, None, None]
    tuning = crew.tuned(Draw(starts[None], np.zeros((1, systems, PARTICLES)), None), 0.5, 1.0, None)
    crew.begin(starts, tuning, np.zeros(systems))
    _, info = crew.advance(3)
    others = [APART if system == 0 else 0.0 for system in range(systems)]  # the first of them
    np.testing.assert_array_equal(info.tuned_at, np.tile(others, (3, 1)))
    assert info.number[-1].tolist() == [3 + APART * system for system in range(systems)]
