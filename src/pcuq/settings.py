"""What a fit was asked for: checked, and filled in where the user left it out."""

from __future__ import annotations

import math
import sys
from typing import NamedTuple

import jax

from pcuq.baselines import mmd_bayes
from pcuq.errors import InputError
from pcuq.objective import check_regularisation
from pcuq.problem import Problem

AUTO = 0.0  # stands for a λ that is still to be found
METHODS = ("pcuq", "bayes", "mmd-bayes")
SAMPLERS = ("ensemble", "mala", "flow", "nuts")
# Iterations by sampler, where the user leaves them out: (warm-up, draws, thin).
LENGTHS = {
    "ensemble": (400, 300, 2),
    "mala": (3000, 500, 10),
    "flow": (3000, 500, 10),
    "nuts": (500, 1000, 1),
}
BAYES_CHAINS = 4
MOST_ROUNDS = 5


class Settings(NamedTuple):
    """What was asked for, checked and filled in."""

    method: str
    lam: float | None
    beta: float
    particles: int
    systems: int
    sampler: str
    warmup: int
    draws: int
    thin: int
    seed: int
    rounds: int = 0  # how often the draws may be doubled
    pair_batch: int | None = None  # others that repel a particle in one step of the flow
    devices: int | None = None  # over which the particles of a system are spread


def make_settings(
    problem,
    method,
    regularisation,
    particles,
    systems,
    sampler,
    warmup,
    draws,
    thin,
    seed,
    beta,
    pair_batch=None,
    devices=None,
) -> Settings:
    """The arguments of `fit`, each refused with what was wanted where it cannot be."""
    if not isinstance(problem, Problem):
        raise InputError(f"`problem` needs a pcuq.Problem: got {type(problem).__name__}.")
    if method not in METHODS:
        raise InputError(f"`method` needs one of {', '.join(METHODS)}: got {method!r}.")
    lam = None
    if method == "pcuq" or (method == "mmd-bayes" and beta == "matched"):
        lam = AUTO if regularisation == "auto" else check_regularisation(regularisation)
    joint = method != "bayes" and problem.data.noises[0].joint
    sampler = sampler or ("nuts" if method != "pcuq" else "flow" if joint else "ensemble")
    if sampler not in SAMPLERS:
        raise InputError(f"`sampler` needs one of {', '.join(SAMPLERS)}: got {sampler!r}.")
    if joint and sampler != "flow":
        raise InputError(
            "JointNoise is integrated by Monte Carlo, which only method='pcuq' with sampler='flow' "
            f"can use: got method={method!r}, sampler={sampler!r}."
        )
    if method != "pcuq" and sampler == "flow":
        raise InputError(f"`sampler` for {method} needs 'nuts', 'mala' or 'ensemble': got 'flow'.")
    defaults = LENGTHS[sampler]
    # Lengths that are left to us grow until the run has converged.
    rounds = MOST_ROUNDS if warmup is None and draws is None and sampler != "flow" else 0
    lengths = [
        given if given is not None else d
        for given, d in zip((warmup, draws, thin), defaults, strict=True)
    ]
    for name, value, least in (
        ("particles", particles, 2 if method == "pcuq" else 1),
        ("systems", systems, 1),
        ("warmup", lengths[0], 0),
        ("draws", lengths[1], 4),
        ("thin", lengths[2], 1),
    ):
        if isinstance(value, bool) or int(value) != value or value < least:
            raise InputError(f"`{name}` needs a whole number of at least {least}: got {value!r}.")
    _check_scale(method, sampler, joint, particles, pair_batch, devices)
    if isinstance(seed, bool) or int(seed) != seed or not 0 <= seed < 2**32:
        raise InputError(f"`seed` needs a whole number from 0 to 2³² − 1: got {seed!r}.")
    number = math.nan
    if method == "mmd-bayes":
        number = _beta(problem, beta, lam)
    if method != "pcuq":
        particles, systems = (BAYES_CHAINS if sampler == "nuts" else particles), 1
    return Settings(
        method=method,
        lam=lam,
        beta=number,
        particles=int(particles),
        systems=int(systems),
        sampler=sampler,
        warmup=int(lengths[0]),
        draws=int(lengths[1]),
        thin=int(lengths[2]),
        rounds=rounds,
        seed=int(seed),
        pair_batch=pair_batch,
        devices=devices,
    )


def _check_scale(method, sampler, joint, particles, pair_batch, devices) -> None:
    """Refuse means for large systems where they cannot be used."""
    flow = method == "pcuq" and sampler == "flow" and not joint
    if pair_batch is not None and (not flow or devices is not None):
        raise InputError(
            "`pair_batch` is for method='pcuq' with sampler='flow', on one device and without "
            f"JointNoise: got method={method!r}, sampler={sampler!r}."
        )
    if devices is None:
        return
    if not flow and not (method == "pcuq" and sampler == "mala"):
        raise InputError(
            "`devices` is for method='pcuq' with sampler='mala' or 'flow', without JointNoise: got "
            f"method={method!r}, sampler={sampler!r}."
        )
    there = jax.local_device_count()
    whole = not isinstance(devices, bool) and int(devices) == devices and 1 <= devices <= there
    if not whole or particles % devices:
        raise InputError(
            f"`devices` needs a whole number that divides the {particles} particles, of the "
            f"{there} that there are: got {devices!r}."
        )


def with_lam(settings: Settings, lam: float) -> Settings:
    """With a λ that has been found, and the β that follows from it."""
    matched = settings.method == "mmd-bayes"  # the only other method that λ is for
    beta = mmd_bayes.beta_matched(lam) if matched else settings.beta
    return settings._replace(lam=lam, beta=beta)


def _beta(problem: Problem, beta, lam) -> float:
    if beta == "matched":
        return math.nan if lam == AUTO else mmd_bayes.beta_matched(lam)
    if beta == "paper":
        log_beta = mmd_bayes.log_beta_of_paper(problem)
        return math.exp(log_beta) if log_beta < math.log(sys.float_info.max) else math.inf
    try:
        number = float(beta)
    except (TypeError, ValueError):
        number = math.nan
    if not number > 0:
        raise InputError(f"`beta` needs a number > 0, 'matched' or 'paper': got {beta!r}.")
    return number
