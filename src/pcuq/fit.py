"""The front door: from a problem to draws, diagnostics and a verdict."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

from pcuq._files import finite
from pcuq._given import check_regularisation
from pcuq._x64 import x64
from pcuq.baselines import bayes, mmd_bayes
from pcuq.calibrate import Calibration, calibrate
from pcuq.checkpoint import FitCheckpoint
from pcuq.errors import ComputationError, InputError
from pcuq.failures import count_failures
from pcuq.fixed_point import fixed_point
from pcuq.groups import make_groups
from pcuq.kernel_scale import default_lengthscale
from pcuq.monte_carlo import MonteCarloObjective
from pcuq.objective import Objective, derivative_mode, part_that_fits
from pcuq.problem import Predictor, Problem
from pcuq.progress import stages_of, with_mmd2
from pcuq.random_batch import RandomBatches
from pcuq.result import Fit, make_tree, versions
from pcuq.samplers.anchors import find_anchors
from pcuq.samplers.base import Listener, Run, Sampler, sample
from pcuq.samplers.ensemble import Ensemble, ParallelEnsemble
from pcuq.samplers.flow import Flow
from pcuq.samplers.mala import Mala, ParallelMala
from pcuq.samplers.mixture import Mixture
from pcuq.samplers.nuts import JointNuts, ParallelNuts
from pcuq.samplers.paths import begun_along_paths
from pcuq.samplers.shared import of_one
from pcuq.settings import AUTO, Settings, check_ways, make_settings, with_lam
from pcuq.sharded import ShardedObjective
from pcuq.start import MESH_TOLERANCE, Start, starting_fit, starting_particles
from pcuq.start import representatives as representatives_of
from pcuq.sweep import spread
from pcuq.trust import converged, convergence, settled, verdict
from pcuq.verify import SolverCheck, check_solver

REFINEMENTS = 2
NEAR = 44  # values about the fit that the mesh of a baseline is chosen by
COPIES = 400  # of a point mass: each is predicted with noise of its own


@x64
def fit(
    problem: Problem,
    method: str = "pcuq",
    regularisation: float | str = "auto",
    particles: int | str = "auto",
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
    pair_batch: int | None = None,
    devices: int | None = None,
) -> Fit:
    """Infer a distribution over parameters.

    `method`: "pcuq", "bayes" or "mmd-bayes". `regularisation`: λ of ½ MMD² + λ KL, or "auto" for
    the λ★ of `pcuq.calibrate`, which costs a few fits. `particles` N in each of `systems`
    independent systems (of the others, four chains by "nuts" and N by "ensemble" or "mala"): "auto"
    is 50, and 30 for each parameter where "ensemble" has to find its way among 12 or more.
    `sampler`: "ensemble" (the default of PCUQ), "mala", "flow" (that of joint noise) or "nuts" (the
    default of the others). `warmup`, `draws`, `thin`: iterations before any is kept, kept ones, and
    one kept out of how many; without `warmup` and `draws` they grow until the run has converged.
    `beta`: that of MMD-Bayes, "matched" for 1/(2λ), "paper" or inf for the limit. `solver`: "auto",
    "mesh", "explicit" or "implicit".
    `progress` is told after each chunk and never changes the result; one that has a function
    `stage` is told in words of what comes before and after. `checkpoint`: a folder in which every
    chunk is kept, from which `resume` goes on. For many particles: `pair_batch`, how many others,
    drawn anew at each step, repel a particle of the flow (see `pcuq.random_batch`); `devices`, over
    how many of this process "mala" and "flow" spread the particles (see `pcuq.sharded`).
    """
    began = time.perf_counter()
    check_ways(solver, mesh_tolerance, progress)
    settings = make_settings(
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
        pair_batch,
        devices,
    )
    seed = settings.seed
    keeper = _keeper(problem, settings, solver, mesh_tolerance, checkpoint, resume)
    first, found, ran = keeper.latest() if keeper is not None and resume else (0, None, False)
    clock, calibration, tell = {}, None, stages_of(progress)
    if settings.lam == AUTO:
        calibration = _calibration(problem, seed, keeper, tell)
        settings = with_lam(settings, calibration.regularisation)
        clock["calibration"] = calibration.seconds
    tick = time.perf_counter()
    tell("finding a starting fit")
    start = starting_fit(problem, seed)
    lengthscale = default_lengthscale(problem)
    along_paths = settings.method == "pcuq" and settings.retuned is not None
    # Paths are walked with forward derivatives, and many particles then take none.
    mode = "forward" if along_paths else derivative_mode(problem)
    starts = _starts(problem, start, settings)
    representatives = _representatives(problem, start, settings, starts)
    tolerance = mesh_tolerance
    if found is not None:
        starts, representatives, tolerance = _begun(first, found, starts, keeper)
    clock["start"] = time.perf_counter() - tick
    for attempt in range(first, REFINEMENTS + 1):
        tick = time.perf_counter()
        tell("choosing steps for the solver" if attempt == first else "refining the solver's steps")
        predictor = problem.predictor(
            representatives, mode=mode, method=solver, tolerance=tolerance
        )
        objective = _objective(problem, predictor, lengthscale, mode)
        if method == "mmd-bayes" and mmd_bayes.is_point_mass(objective, math.log(settings.beta)):
            return _limit(problem, objective, start, settings, calibration, clock, began)
        anchors = None
        if settings.method == "pcuq":
            lam = check_regularisation(settings.lam)
            anchors = find_anchors(objective, lam, start, seed)
            if along_paths and attempt == 0 and found is None:
                tell("walking to where the law may reach")
                starts = begun_along_paths(objective, lam, start.thetas, starts.shape[:2], seed)
        chosen = _sampler(settings, objective, anchors)
        clock["mesh"] = time.perf_counter() - tick
        going_on = ran and attempt == first
        kept = None
        if keeper is not None:
            begin = {
                "starts": starts,
                "representatives": representatives,
                "tolerance": np.asarray(tolerance),
            }
            kept = keeper.attempt(attempt, None if going_on else begin)
        tell("compiling the sampler")
        run = _run(chosen, starts, objective, settings, progress, kept, going_on)
        pooled, v_pooled = _pool(run.theta), _pool(run.v[..., None])[:, 0]
        v_data = v_pooled if method == "pcuq" else objective.data_terms_of_many(pooled)
        tell("checking the solver's error")
        tick = time.perf_counter()
        lam = settings.lam or _lam_of(settings, objective)
        check = check_solver(objective, lam, pooled, v_data, _pool(run.failed[..., None])[:, 0])
        clock["verification"] = time.perf_counter() - tick
        if check.good or attempt == REFINEMENTS or _is_adaptive(predictor):
            break
        # Go on from where it is, on a mesh that serves what was found and is finer.
        representatives = np.concatenate([representatives, check.worst])
        tolerance = tolerance / 10
        starts = run.theta[:, -1]
    return _package(
        problem,
        objective,
        settings,
        calibration,
        run,
        v_data,
        check,
        start,
        anchors,
        clock,
        began,
        attempt,
    )


def _keeper(problem, settings, solver, tolerance, folder, resume) -> FitCheckpoint | None:
    if folder is None:
        if resume:
            raise InputError("`resume` needs the folder of the run as `checkpoint`.")
        return None
    identity = (versions(), problem.fingerprint, settings, solver, tolerance)
    return FitCheckpoint(Path(folder), repr(identity), resume)


def _calibration(problem: Problem, seed: int, keeper: FitCheckpoint | None, tell) -> Calibration:
    """Found anew, or as it was when the run that goes on began."""
    kept = None if keeper is None else keeper.chosen()
    if keeper is not None and kept is not None:
        try:
            return Calibration.from_dict(json.loads(kept["calibration"].tobytes()))
        except (KeyError, TypeError, ValueError, RecursionError):
            raise keeper.damaged() from None
    found = calibrate(problem, seed=seed, tell=lambda line: tell(f"choosing λ: {line}"))
    if keeper is not None:
        said = json.dumps(found.to_dict()).encode()
        keeper.keep_chosen({"calibration": np.frombuffer(said, dtype=np.uint8)})
    return found


def _begun(attempt: int, found, like: np.ndarray, keeper) -> tuple[np.ndarray, np.ndarray, float]:
    """Where the attempt that goes on began: starts, values for its mesh, tolerance."""
    names = ("starts", "representatives", "tolerance")
    try:
        starts, representatives, tolerance = (np.asarray(found[name], float) for name in names)
    except (KeyError, TypeError, ValueError):
        raise keeper.damaged() from None
    if (
        attempt > REFINEMENTS
        or starts.shape != like.shape
        or representatives.ndim != 2
        or representatives.shape[1] != like.shape[2]
        or tolerance.shape != ()
    ):
        raise keeper.damaged()
    return starts, representatives, float(tolerance)


def _starts(problem: Problem, start: Start, settings: Settings) -> np.ndarray:
    """(S, N, p): systems begin apart."""
    count, root = settings.particles, np.random.SeedSequence(settings.seed)
    rngs = [np.random.default_rng(child) for child in root.spawn(settings.systems)]
    if settings.method == "pcuq":
        return np.stack([starting_particles(problem, start, rng, count) for rng in rngs])
    # Baselines have one mode that matters: begin around the best fit, over-dispersed.
    noise = rngs[0].normal(size=(1, count, len(start.best)))
    return start.scattered(noise, 2.0)


def _representatives(problem: Problem, start: Start, settings: Settings, starts) -> np.ndarray:
    """Values that the mesh is chosen by; draws are held against tight solves after the run."""
    if settings.method == "pcuq":
        return representatives_of(problem, start, _flat(starts))
    rng = np.random.default_rng(settings.seed)
    near = start.scattered(rng.normal(size=(NEAR, len(start.best))), 2.0)
    # A posterior stays about the fit: a mesh that must also serve the wildest of the prior is
    # finer than it needs, or cannot be had.
    if settings.method == "bayes":
        return representatives_of(problem, start, near, from_prior=0)
    return representatives_of(problem, start, near)


def _objective(problem: Problem, predictor, lengthscale, mode) -> Objective:
    kind = MonteCarloObjective if problem.data.noises[0].joint else Objective
    return kind(problem, predictor=predictor, lengthscale=lengthscale, mode=mode)


def _sampler(settings: Settings, objective: Objective, anchors: Mixture | None) -> Sampler:
    if settings.method == "pcuq":
        assert settings.lam is not None
        if settings.sampler == "ensemble":
            return Ensemble(objective, settings.lam, anchors)
        kind = {"flow": Flow, "mala": Mala, "nuts": JointNuts}[settings.sampler]
        return kind(_at_scale(settings, objective), settings.lam)
    if settings.method == "bayes":
        densities = bayes.log_posteriors(objective.problem, objective.predictor)
    else:
        densities = mmd_bayes.log_posteriors(objective, settings.beta)
    if settings.sampler == "ensemble":
        return ParallelEnsemble(densities, objective.problem.parameters)
    kind = ParallelNuts if settings.sampler == "nuts" else ParallelMala
    return kind(of_one(densities), objective.mode)


def _at_scale(settings: Settings, objective: Objective) -> Any:
    if settings.pair_batch is not None:
        return RandomBatches(objective, settings.pair_batch)
    if settings.devices is not None:
        return ShardedObjective(objective, jax.local_devices()[: settings.devices])
    return objective


def _run(
    chosen: Sampler, starts, objective: Objective, settings: Settings, progress, kept, resume
) -> Run:
    v = np.asarray(objective.data_terms_of_many(_flat(starts))).reshape(starts.shape[:2])
    if not (v > 0).any() and not objective.usable_of_many(_flat(starts)).any():
        raise ComputationError(
            "no starting particle can be solved, although the starting fit could be: if there is a "
            "simulator, see that it still answers; else narrow the priors."
        )
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
        enough=lambda theta: converged(settings, np.moveaxis(theta, 0, 1)),
        rounds=settings.rounds,
        settled=lambda theta: settled(settings, np.moveaxis(theta, 0, 1)),
        stages=settings.stages,
        retuned=settings.retuned,
        # A listener waits less long for many particles.
        **({} if settings.retuned is None else {"chunk": settings.retuned // 2}),
    )


def _lam_of(settings: Settings, objective: Objective) -> float:
    """A λ in which an error of the data term can be stated where the method has none."""
    if settings.method == "mmd-bayes":
        return 1.0 / (2.0 * settings.beta)
    return 1.0 / objective.problem.data.n**2


def _limit(problem, objective, start, settings, calibration, clock, began) -> Fit:
    """MMD-Bayes as β → ∞: the minimiser, honestly said."""
    theta, mmd2 = mmd_bayes.minimise_mmd(objective, start.thetas)
    v = np.asarray(objective.data_terms_of_many(theta[None]))
    draws = np.broadcast_to(theta, (1, COPIES, 1, len(theta))).copy()
    figures = {"mmd2": mmd2, "share_outside_fit": 0.0}
    attributes = _attributes(
        objective, settings, calibration, figures, mmd_bayes.POINT_MASS, True, clock, began
    )
    tree = make_tree(
        problem,
        draws,
        np.broadcast_to(v[0], (1, COPIES, 1)).copy(),
        np.zeros((1, COPIES, 1), bool),
        {},
        attributes,
        extra=make_groups(objective, draws[0, :, 0], settings.seed),
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
    anchors: Mixture | None,
    clock,
    began,
    attempt,
) -> Fit:
    theta = run.theta
    pooled = _pool(theta)
    known = start.best[None] if anchors is None else np.asarray(anchors.centres)
    best = float(np.max(objective.data_terms_of_many(known)))
    fits = part_that_fits(v_data, best)
    failures = count_failures(objective, theta, run.failed)
    happened = {name: float(np.mean(values)) for name, values in run.info.items()}
    figures: dict[str, Any] = {
        "share_outside_fit": float(1 - fits.mean()) if settings.method == "pcuq" else 0.0,
        "spread": spread(pooled[fits] if fits.any() else pooled),
        "failed_draws": int(run.failed.sum()),
        "failures": failures.by_cause,
        "failed_in_warmup": int(run.warmup_failures.sum()),
        "failed_proposals": happened.pop("failed_proposals"),
        "acceptance": happened,
        "solver_error": check.trajectory_error,
        "solver_density_error": check.density_error,
        "solver_disagreements": check.disagreements,
        "refinements": attempt,
        "best_log_posterior": float(start.log_posterior[0]),
    }
    if settings.method == "pcuq":
        tick = time.perf_counter()
        residual = fixed_point(
            objective, settings.lam, pooled, v_data, settings.particles, settings.seed, anchors
        )
        clock["fixed_point"] = time.perf_counter() - tick
        figures.update(
            fixed_point_mean=residual.mean_difference,
            fixed_point_mass=residual.mass_difference,
            fixed_point_residual=max(residual.mean_difference, residual.mass_difference),
            fixed_point_mean_error=residual.mean_error,
            fixed_point_mass_error=residual.mass_error,
            fixed_point_ess=residual.ess,
            kl=residual.kl,
            mmd2=residual.mmd2,
        )
    figures |= convergence(settings, theta)
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
        failures=failures,
        warmup_failures=run.warmup_failures,
        warmup_theta=run.warmup_theta,
        extra=make_groups(objective, pooled, settings.seed),
    )
    return Fit(tree, problem)


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
        "settings": json.dumps(finite(settings._asdict())),
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
