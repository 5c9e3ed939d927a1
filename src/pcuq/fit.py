"""The front door: from a problem to draws, diagnostics and a verdict."""

from __future__ import annotations

import json
import math
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from pcuq import diagnostics
from pcuq._x64 import x64
from pcuq.baselines import bayes, mmd_bayes
from pcuq.calibrate import Calibration, calibrate, spread
from pcuq.checkpoint import FitCheckpoint
from pcuq.errors import ComputationError, InputError
from pcuq.fixed_point import fixed_point
from pcuq.groups import make_groups
from pcuq.monte_carlo import MonteCarloObjective
from pcuq.objective import (
    Objective,
    check_regularisation,
    default_lengthscale,
    derivative_mode,
    part_that_fits,
)
from pcuq.problem import Predictor, Problem
from pcuq.progress import with_mmd2
from pcuq.result import Fit, make_tree, versions
from pcuq.samplers.base import Listener, Run, Sampler, sample
from pcuq.samplers.ensemble import Ensemble, ParallelEnsemble
from pcuq.samplers.flow import Flow
from pcuq.samplers.mala import Mala, ParallelMala
from pcuq.samplers.nuts import JointNuts, ParallelNuts
from pcuq.start import MESH_TOLERANCE, Start, starting_fit, starting_particles
from pcuq.start import representatives as representatives_of
from pcuq.verify import SolverCheck, check_solver

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
MOST_ROUNDS = 4
GOOD_RHAT = 1.05
GOOD_ESS = 100
GOOD_FIXED_POINT_ESS = 200  # with less, its own error is as large as what it may find
REFINEMENTS = 2


@x64
def fit(
    problem: Problem,
    method: str = "pcuq",
    regularisation: float | str = "auto",
    particles: int = 50,
    systems: int = 2,
    sampler: str | None = None,
    warmup: int | None = None,
    draws: int | None = None,
    thin: int | None = None,
    seed: int = 0,
    beta: float | str = "matched",
    progress: Listener | None = None,
    solver: str = "auto",
    mesh_tolerance: float = MESH_TOLERANCE,
    checkpoint: str | Path | None = None,
    resume: bool = False,
) -> Fit:
    """Infer a distribution over parameters.

    `method`: "pcuq", "bayes" or "mmd-bayes". `regularisation`: λ of ½ MMD² + λ KL, or "auto" for
    the λ★ of `pcuq.calibrate`, which costs about as much as the fit itself. `particles` N
    in each of `systems` independent systems (for Bayes: chains). `sampler`: "ensemble" (the
    default of PCUQ), "mala", "flow" or "nuts" (the default of the others). `warmup`, `draws`,
    `thin`: iterations before any is kept, kept ones, and one kept out of how many. `beta`: that of
    MMD-Bayes, "matched" for 1/(2λ), "paper" or inf for the limit. `solver`: "auto", "mesh",
    "explicit" or "implicit". `progress` is told after each chunk and never changes the result.
    `checkpoint`: a folder in which every chunk is kept, from which `resume` goes on.
    """
    began = time.perf_counter()
    settings = _settings(
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
    )
    keeper = _keeper(problem, settings, solver, mesh_tolerance, checkpoint, resume)
    first, found, ran = keeper.latest() if keeper is not None and resume else (0, None, False)
    clock, calibration = {}, None
    if settings.lam == AUTO:
        calibration = _calibration(problem, seed, found)
        settings = _with_lam(settings, calibration.regularisation)
        clock["calibration"] = calibration.seconds
    tick = time.perf_counter()
    start = starting_fit(problem, seed)
    lengthscale = default_lengthscale(problem)
    mode = derivative_mode(problem)
    starts = _starts(problem, start, settings)
    representatives = representatives_of(problem, start, _flat(starts))
    tolerance = mesh_tolerance
    if found is not None:
        starts, representatives = found["starts"], found["representatives"]
        tolerance = float(found["tolerance"])
    clock["start"] = time.perf_counter() - tick
    for attempt in range(first, REFINEMENTS + 1):
        tick = time.perf_counter()
        predictor = problem.predictor(
            representatives, mode=mode, method=solver, tolerance=tolerance
        )
        objective = _objective(problem, predictor, lengthscale, mode)
        if method == "mmd-bayes" and mmd_bayes.is_point_mass(objective, math.log(settings.beta)):
            return _limit(problem, objective, start, settings, calibration, clock, began)
        chosen = _sampler(settings, objective)
        clock["mesh"] = time.perf_counter() - tick
        going_on = ran and attempt == first
        kept = None
        if keeper is not None:
            begin = {
                "starts": starts,
                "representatives": representatives,
                "tolerance": np.asarray(tolerance),
                "calibration": _as_bytes(calibration),
            }
            kept = keeper.attempt(attempt, None if going_on else begin)
        run = _run(chosen, starts, objective, settings, progress, kept, going_on)
        pooled, v_pooled = _pool(run.theta), _pool(run.v[..., None])[:, 0]
        v_data = v_pooled if method == "pcuq" else objective.data_terms_of_many(pooled)
        tick = time.perf_counter()
        check = check_solver(objective, settings.lam or _bayes_lam(objective), pooled, v_data)
        clock["verification"] = time.perf_counter() - tick
        if check.good or attempt == REFINEMENTS or _is_adaptive(predictor):
            break
        # Go on from where it is, on a mesh that serves what was found and is finer.
        representatives = np.concatenate([representatives, check.worst])
        tolerance = tolerance / 10
        starts = run.theta[:, -1]
    return _package(
        problem, objective, settings, calibration, run, v_data, check, start, clock, began, attempt
    )


def _keeper(problem, settings, solver, tolerance, folder, resume) -> FitCheckpoint | None:
    if folder is None:
        if resume:
            raise InputError("`resume` needs the folder of the run as `checkpoint`.")
        return None
    identity = (versions(), problem.fingerprint, settings, solver, tolerance)
    return FitCheckpoint(Path(folder), repr(identity), resume)


def _calibration(problem: Problem, seed: int, found) -> Calibration:
    """Found anew, or as it was when the run that goes on began."""
    if found is None:
        return calibrate(problem, seed=seed)
    return Calibration.from_dict(json.loads(found["calibration"].tobytes()))


def _as_bytes(calibration: Calibration | None) -> np.ndarray:
    said = json.dumps(None if calibration is None else calibration.to_dict())
    return np.frombuffer(said.encode(), dtype=np.uint8)


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


def _settings(
    problem, method, regularisation, particles, systems, sampler, warmup, draws, thin, seed, beta
) -> Settings:
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
    )


def _with_lam(settings: Settings, lam: float) -> Settings:
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


def _starts(problem: Problem, start: Start, settings: Settings) -> np.ndarray:
    """(S, N, p): systems begin apart."""
    keys = jax.random.split(jax.random.key(settings.seed + 1), settings.systems)
    if settings.method == "pcuq":
        return np.stack(
            [starting_particles(problem, start, key, settings.particles) for key in keys]
        )
    # Baselines have one mode that matters: begin around the best fit, over-dispersed.
    noise = np.asarray(jax.random.normal(keys[0], (1, settings.particles, len(start.best))))
    return start.best + 2.0 * noise @ np.linalg.cholesky(start.covariance).T


def _objective(problem: Problem, predictor, lengthscale, mode) -> Objective:
    kind = MonteCarloObjective if problem.data.noises[0].joint else Objective
    return kind(problem, predictor=predictor, lengthscale=lengthscale, mode=mode)


def _sampler(settings: Settings, objective: Objective) -> Sampler:
    if settings.method == "pcuq":
        assert settings.lam is not None
        if settings.sampler == "flow":
            return Flow(objective, settings.lam)
        kind = {"ensemble": Ensemble, "mala": Mala, "nuts": JointNuts}[settings.sampler]
        return kind(objective, settings.lam)
    if settings.method == "bayes":
        density = bayes.log_posterior(objective.problem, objective.predictor)
    else:
        density = mmd_bayes.log_posterior(objective, settings.beta)
    if settings.sampler == "ensemble":
        return ParallelEnsemble(density, objective.problem.parameters)
    return (ParallelNuts if settings.sampler == "nuts" else ParallelMala)(density, objective.mode)


def _run(
    chosen: Sampler, starts, objective: Objective, settings: Settings, progress, kept, resume
) -> Run:
    v = np.asarray(objective.data_terms_of_many(_flat(starts))).reshape(starts.shape[:2])
    if settings.method == "pcuq" and not (v > 0).any():
        raise ComputationError(
            "no starting particle explains any of the data (v = 0 for all of them): widen the "
            "kernel with lengthscale_y, check the noise scale, or give the problem a `nominal`."
        )
    return sample(
        chosen,
        starts,
        v,
        settings.seed,
        settings.warmup,
        settings.draws,
        settings.thin,
        listener=with_mmd2(progress, objective),
        checkpoint=kept,
        resume=resume,
        enough=lambda theta: _converged(settings, np.moveaxis(theta, 0, 1)),
        rounds=settings.rounds,
    )


def _bayes_lam(objective: Objective) -> float:
    """A λ in which an error of the data term can be stated where the method has none."""
    return 1.0 / objective.problem.data.n**2


def _limit(problem, objective, start, settings, calibration, clock, began) -> Fit:
    """MMD-Bayes as β → ∞: the minimiser, honestly said."""
    theta, mmd2 = mmd_bayes.minimise_mmd(objective, start.thetas)
    v = np.asarray(objective.data_terms_of_many(theta[None]))
    draws = np.broadcast_to(theta, (1, 4, 1, len(theta))).copy()
    figures = {"mmd2": mmd2, "share_outside_fit": 0.0}
    attributes = _attributes(
        objective, settings, calibration, figures, mmd_bayes.POINT_MASS, True, clock, began
    )
    tree = make_tree(
        problem,
        draws,
        np.broadcast_to(v[0], (1, 4, 1)).copy(),
        np.zeros((1, 4, 1), bool),
        {},
        attributes,
        extra=make_groups(objective, theta[None], settings.seed),
    )
    return Fit(tree, problem)


def _package(
    problem,
    objective,
    settings,
    calibration,
    run,
    v_data,
    check: SolverCheck,
    start,
    clock,
    began,
    attempt,
) -> Fit:
    theta = run.theta
    pooled = _pool(theta)
    fits = part_that_fits(v_data) if v_data.max() > 0 else np.ones(len(v_data), bool)
    figures: dict[str, Any] = {
        "share_outside_fit": float(1 - fits.mean()) if settings.method == "pcuq" else 0.0,
        "spread": spread(pooled[fits]),
        "failed_draws": int(run.failed.sum()),
        "acceptance": {k: float(np.mean(x)) for k, x in run.info.items()},
        "solver_error": check.trajectory_error,
        "solver_density_error": check.density_error,
        "solver_disagreements": check.disagreements,
        "refinements": attempt,
        "best_log_posterior": float(start.log_posterior[0]),
    }
    if settings.method == "pcuq":
        tick = time.perf_counter()
        residual = fixed_point(
            objective, settings.lam, pooled, v_data, settings.particles, settings.seed
        )
        clock["fixed_point"] = time.perf_counter() - tick
        figures.update(
            fixed_point_mean=residual.mean_difference,
            fixed_point_mass=residual.mass_difference,
            fixed_point_residual=max(residual.mean_difference, residual.mass_difference),
            fixed_point_ess=residual.ess,
            kl=residual.kl,
            mmd2=residual.mmd2,
        )
    figures |= _convergence(settings, theta)
    figures |= {"iterations": run.iterations, "thin": run.thin}
    clock.update(run.timings)
    trusted, status = verdict(settings, figures, check, run.failed.mean())
    attributes = _attributes(
        objective, settings, calibration, figures, status, trusted, clock, began
    )
    tree = make_tree(
        problem,
        theta,
        run.v,
        run.failed,
        run.info,
        attributes,
        warmup_theta=run.warmup_theta,
        extra=make_groups(objective, pooled, settings.seed),
    )
    return Fit(tree, problem)


def _convergence(settings: Settings, theta: np.ndarray) -> dict[str, float]:
    """R-hat and effective sample size of draws (S, T, N, p)."""
    paths = np.moveaxis(theta, 2, 1).reshape(-1, theta.shape[1], theta.shape[3])
    of_paths = float(np.max(diagnostics.rhat(paths)))
    found = {
        "rhat_paths_max": of_paths,
        "ess_min": float(np.min(diagnostics.ess_bulk(paths))),
        "rhat_max": of_paths,
    }
    if settings.systems > 1:
        over = [diagnostics.rhat_over_systems(theta.mean(axis=2))]
        if settings.particles > 1:
            over.append(diagnostics.rhat_over_systems(theta.std(axis=2)))
        found["rhat_max"] = float(np.max(over))
    return found


def _converged(settings: Settings, theta: np.ndarray) -> bool:
    found = _convergence(settings, theta)
    return found["rhat_max"] < GOOD_RHAT and found["ess_min"] >= GOOD_ESS


def verdict(settings, figures, check, share_failed) -> tuple[bool, str]:
    """Whether to trust the draws, in words."""
    doubts = []
    rhat = figures["rhat_max"]
    if settings.method == "pcuq" and settings.systems < 2:
        doubts.append("there is only one system to compare, so R-hat says little: use systems=2")
    if not rhat < GOOD_RHAT:
        what = "over systems" if settings.systems > 1 else "over chains"
        doubts.append(f"R-hat {what} is {rhat:.2f}, above {GOOD_RHAT}: sample longer")
    if not figures["ess_min"] >= GOOD_ESS:
        doubts.append(f"the effective sample size is only {figures['ess_min']:.0f}: sample longer")
    known = figures.get("fixed_point_ess", 0) >= GOOD_FIXED_POINT_ESS
    if known and (figures["fixed_point_mass"] > 0.1 or figures["fixed_point_mean"] > 0.3):
        doubts.append(
            "the draws do not satisfy the fixed-point equation (differences "
            f"{figures['fixed_point_mean']:.2f} sd and {figures['fixed_point_mass']:.2f} in "
            "mass): sample longer, or use more particles"
        )
    if not check.good:
        doubts.append(
            f"the ODE solver's error is {check.trajectory_error:.2g} kernel widths and "
            f"{check.density_error:.2g} in the log density: use solver='implicit' or 'explicit', "
            "or a smaller mesh_tolerance"
        )
    if share_failed > 0.5:
        doubts.append(f"{share_failed:.0%} of the draws cannot be solved: narrow the prior")
    if settings.sampler == "flow":
        doubts.append("the unadjusted flow has a bias that is not measured: use 'ensemble'")
    outside = figures["share_outside_fit"]
    unchecked = (
        " Whether the draws satisfy the fixed-point equation could not be told: its importance "
        f"sample has an effective size of only {figures['fixed_point_ess']:.0f}."
        if "fixed_point_ess" in figures and not known
        else ""
    )
    remark = unchecked + (
        f" {outside:.0%} of Q lies outside the part that fits, near the prior: it explains little "
        "of the data, and shrinks with λ."
        if outside > 0.005
        else ""
    )
    if doubts:
        return False, "Do not trust this fit yet: " + "; ".join(doubts) + "." + remark
    return True, f"Converged: R-hat {rhat:.3f}, effective sample size {figures['ess_min']:.0f}." + (
        remark
    )


def _attributes(
    objective, settings, calibration, figures, status, trusted, clock, began
) -> dict[str, Any]:
    clock = {**clock, "total": time.perf_counter() - began}
    return {
        "method": settings.method,
        "sampler": settings.sampler,
        "regularisation": math.nan if settings.lam is None else settings.lam,
        "beta": settings.beta,
        "seed": settings.seed,
        "settings": json.dumps(settings._asdict()),
        "calibration": json.dumps(None if calibration is None else calibration.to_dict()),
        "lengthscale_y": [float(x) for x in objective.lengthscale],
        "solver": json.dumps(objective.predictor.describe()),
        "status": status,
        "trusted": int(trusted),
        "diagnostics": json.dumps(figures),
        "seconds": json.dumps({k: round(x, 3) for k, x in clock.items()}),
        "versions": json.dumps(versions()),
    }


def _is_adaptive(predictor: Predictor) -> bool:
    return all(part["method"] != "mesh" for part in predictor.describe())


def _pool(theta: np.ndarray) -> np.ndarray:
    """(S, T, N, p) → (S·T·N, p), oldest first."""
    return np.moveaxis(theta, 1, 0).reshape(-1, theta.shape[-1])


def _flat(starts: np.ndarray) -> np.ndarray:
    return starts.reshape(-1, starts.shape[-1])
