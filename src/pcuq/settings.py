"""What a fit was asked for: checked, and filled in where the user left it out."""

from __future__ import annotations

import math
import sys
from typing import NamedTuple

import jax

from pcuq._given import as_numbers, check_memory, check_regularisation, check_seed, whole_number
from pcuq.baselines import mmd_bayes
from pcuq.errors import InputError
from pcuq.models.choose import METHODS as METHODS_OF_SOLVING
from pcuq.models.external import ExternalModel
from pcuq.problem import Problem, check_problem
from pcuq.samplers.mixture import MANY
from pcuq.samplers.plan import CHUNK

AUTO = 0.0  # stands for a λ that is still to be found
METHODS = ("pcuq", "bayes", "mmd-bayes")
SAMPLERS = ("ensemble", "mala", "flow", "nuts")
# Iterations by sampler, where the user leaves them out: (warm-up, draws, thin).
LENGTHS = {
    "ensemble": (600, 300, 2),
    "mala": (3000, 500, 10),
    "flow": (3000, 500, 10),
    "nuts": (500, 1000, 1),
}
# A mixture in many dimensions has thousands of numbers: few particles that move slowly see too few
# points that differ, and then it says where they were, and not what the law is.
PARTICLES, FOR_EACH_PARAMETER, MOST_PARTICLES = 50, 30, 1000
MANY_LENGTHS, RETUNED = (960, 150, 2), 40  # of "ensemble" with so many particles
BAYES_CHAINS = 4
MOST_ROUNDS = 5
MOST_STAGES = 20


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
    stages: int = 0  # how often the warm-up may be made longer
    pair_batch: int | None = None  # others that repel a particle in one step of the flow
    retuned: int | None = None  # iterations after which a warm-up that has cooled down is tuned
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
    check_problem(problem)
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
    many = particles == "auto" and sampler == "ensemble" and len(problem.parameters) >= MANY
    many = many and not isinstance(problem.model, ExternalModel)  # of which a solve is dear
    if particles == "auto":
        each = FOR_EACH_PARAMETER * len(problem.parameters)
        particles = min(each, MOST_PARTICLES) if many else PARTICLES
    defaults = MANY_LENGTHS if many else LENGTHS[sampler]
    # Lengths that are left to us grow until the run has converged.
    rounds = MOST_ROUNDS if warmup is None and draws is None and sampler != "flow" else 0
    lengths = [
        given if given is not None else d
        for given, d in zip((warmup, draws, thin), defaults, strict=True)
    ]
    particles = whole_number("particles", particles, 2 if method == "pcuq" else 1)
    systems = whole_number("systems", systems, 1)
    names, least = ("warmup", "draws", "thin"), (0, 4, 1)
    lengths = [whole_number(*given) for given in zip(names, lengths, least, strict=True)]
    pair_batch, devices = _at_scale(method, sampler, joint, particles, pair_batch, devices)
    seed = check_seed(seed)
    number = math.nan
    if method == "mmd-bayes":
        number = _beta(problem, beta, lam)
    if method != "pcuq":
        particles, systems = (BAYES_CHAINS if sampler == "nuts" else particles), 1
    settings = Settings(
        method=method,
        lam=lam,
        beta=number,
        particles=particles,
        systems=systems,
        sampler=sampler,
        warmup=lengths[0],
        draws=lengths[1],
        thin=lengths[2],
        rounds=rounds,
        stages=MOST_STAGES if rounds and sampler == "ensemble" else 0,
        retuned=RETUNED if many else None,
        seed=seed,
        pair_batch=pair_batch,
        devices=devices,
    )
    check_memory(
        bytes_needed(problem, settings),
        f"a fit of {systems} systems of {particles} particles, with {lengths[0]} iterations of "
        f"warm-up and {lengths[1]} draws, one out of {lengths[2]},",
        "use fewer",
    )
    return settings


def bytes_needed(problem: Problem, settings: Settings) -> float:
    """Roughly, and rather too few: positions, κ0 between them, and what they predict."""
    p, together = len(problem.parameters), settings.systems * settings.particles
    position = 8.0 * p + 9  # θ, v and whether it failed
    at_a_stretch = max(CHUNK, settings.thin * 2**settings.rounds)
    kept = settings.warmup + settings.draws + at_a_stretch
    with_slopes = 1 if settings.sampler == "ensemble" else p + 1
    predicted = 8.0 * problem.points.size * problem.data.d * with_slopes
    ensemble = settings.method == "pcuq" and settings.sampler == "ensemble"
    pairs = 8.0 * 4 * settings.particles if ensemble else 0.0  # with all others and proposals
    return together * (kept * position + predicted + pairs)


def _at_scale(method, sampler, joint, particles, pair_batch, devices):
    """(pair_batch, devices): means for large systems, refused where they cannot be used."""
    flow = method == "pcuq" and sampler == "flow" and not joint
    if pair_batch is not None:
        pair_batch = whole_number("pair_batch", pair_batch, 2)
    if pair_batch is not None and (not flow or devices is not None):
        raise InputError(
            "`pair_batch` is for method='pcuq' with sampler='flow', on one device and without "
            f"JointNoise: got method={method!r}, sampler={sampler!r}."
        )
    if devices is None:
        return pair_batch, None
    if not flow and not (method == "pcuq" and sampler == "mala"):
        raise InputError(
            "`devices` is for method='pcuq' with sampler='mala' or 'flow', without JointNoise: got "
            f"method={method!r}, sampler={sampler!r}."
        )
    devices = whole_number("devices", devices, 1, jax.local_device_count())
    if particles % devices:
        raise InputError(
            f"`devices` needs a number that divides the {particles} particles: got {devices!r}."
        )
    return pair_batch, devices


def check_ways(solver, mesh_tolerance, progress) -> None:
    """Refuse how to solve and whom to tell, before anything is compiled."""
    if solver not in METHODS_OF_SOLVING:
        raise InputError(f"`solver` needs one of {', '.join(METHODS_OF_SOLVING)}: got {solver!r}.")
    tolerance = as_numbers("mesh_tolerance", mesh_tolerance)
    if tolerance.ndim or not 0 < tolerance < 1:
        raise InputError(
            f"`mesh_tolerance` needs a number between 0 and 1: got {mesh_tolerance!r}."
        )
    if progress is not None and not callable(progress):
        raise InputError(f"`progress` needs a function of what is told: got {progress!r}.")


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
