"""Whether to trust the draws of a fit: R-hat, effective size, and a verdict in words."""

from __future__ import annotations

import numpy as np

from pcuq import diagnostics
from pcuq.settings import Settings

# R-hat of an ensemble's mean or sd asks for errors that are small beside how much that varies from
# draw to draw, which is little where particles are many, and which a thin arm of Q can rule. Halves
# of systems of which each parameter has the same distribution, to what is asked of the exact Q_n
# below, are as good.
GOOD_RHAT, GOOD_APART = 1.05, 0.05
SETTLED_RHAT, SETTLED_APART = 1.2, 0.15  # systems farther apart are still on their way,
BY_CHANCE = 4  # unless it is by no more sds than draws so few differ by chance
MOVED_RHAT = 1.5  # over the paths of particles: with more, they have not been about
GOOD_ESS = 100
# What draws may differ from the exact Q_n by, in sds of the mean and in mass: what the sampler is
# held to on Lotka–Volterra. Twice the error of the comparison comes on top.
GOOD_MEAN, GOOD_MASS = 0.15, 0.05
GOOD_FIXED_POINT_ESS = 200  # with less, its own error is as large as what it may find


def convergence(settings: Settings, theta: np.ndarray) -> dict[str, float]:
    """R-hat and effective sample size of draws (S, T, N, p)."""
    paths = np.moveaxis(theta, 2, 1).reshape(-1, theta.shape[1], theta.shape[3])
    of_paths = float(np.max(diagnostics.rhat(paths)))
    found = {
        "rhat_paths_max": of_paths,
        "ess_min": float(np.min(diagnostics.ess_bulk(paths))),
        "rhat_max": of_paths,
    }
    if settings.systems > 1:
        found |= {"rhat_max": _over_systems(theta), "systems_apart": _systems_apart(theta)}
    return found


def _over_systems(theta: np.ndarray) -> float:
    """The largest R-hat of an ensemble's mean or sd, where particle systems play the chains.

    The particles of one system move together, so their paths are no independent chains; whole
    systems are.
    """
    over = [diagnostics.rhat(theta.mean(axis=2))]
    if theta.shape[2] > 1:
        over.append(diagnostics.rhat(theta.std(axis=2)))
    return float(np.max(over))


def _systems_apart(theta: np.ndarray) -> float:
    """The largest difference between distribution functions of a parameter in halves of systems."""
    systems, draws, _, p = theta.shape
    halves = np.sort(theta[:, draws % 2 :].reshape(2 * systems, -1, p), axis=1)
    apart = []
    for each in np.moveaxis(halves, 2, 0):
        places = np.quantile(each, np.linspace(0.01, 0.99, 99))
        below = [np.searchsorted(half, places, side="right") / len(half) for half in each]
        apart.append(np.ptp(below, axis=0).max())
    return float(np.max(apart))


def settled(settings: Settings, theta: np.ndarray) -> bool:
    """Whether systems (S, T, N, p) have come to where they stay, as far as can be told."""
    if settings.systems < 2 or _over_systems(theta) < SETTLED_RHAT:
        return True
    found = convergence(settings, theta)
    far = SETTLED_APART
    if found["rhat_paths_max"] < MOVED_RHAT:  # their effective number says something, then
        far = max(far, BY_CHANCE * 0.5 / np.sqrt(found["ess_min"] / (2 * settings.systems)))
    return bool(found["systems_apart"] < far)


def converged(settings: Settings, theta: np.ndarray) -> bool:
    """Whether draws (S, T, N, p) are enough."""
    found = convergence(settings, theta)
    return _agree(found) and found["ess_min"] >= GOOD_ESS


def _agree(figures) -> bool:
    return figures["rhat_max"] < GOOD_RHAT or figures.get("systems_apart", np.inf) < GOOD_APART


def _apart(figures, name: str, good: float) -> bool:
    found = figures.get(f"fixed_point_{name}", 0.0)
    return found > good + 2 * figures.get(f"fixed_point_{name}_error", 0.0)


def verdict(settings, figures, check, share_failed) -> tuple[bool, str]:
    """Whether to trust the draws, in words."""
    doubts = []
    rhat = figures["rhat_max"]
    if settings.method == "pcuq" and settings.systems < 2:
        doubts.append("there is only one system to compare, so R-hat says little: use systems=2")
    if not _agree(figures):
        what = "over systems" if settings.systems > 1 else "over chains"
        doubts.append(f"R-hat {what} is {rhat:.2f}, above {GOOD_RHAT}: sample longer")
    if not figures["ess_min"] >= GOOD_ESS:
        doubts.append(f"the effective sample size is only {figures['ess_min']:.0f}: sample longer")
    known = figures.get("fixed_point_ess", 0) >= GOOD_FIXED_POINT_ESS
    apart = _apart(figures, "mean", GOOD_MEAN) or _apart(figures, "mass", GOOD_MASS)
    # Few points of the importance sample may hold all its weight because no draw is where they are.
    missed = figures.get("fixed_point_mass", 0.0) > 0.5
    if missed or (known and apart):
        doubts.append(
            "the draws differ from the solution of the fixed-point equation (by "
            f"{figures['fixed_point_mean']:.2f} sd and {figures['fixed_point_mass']:.2f} in "
            "mass): sample longer, or use more particles"
        )
    if not check.good:
        doubts.append(
            f"the ODE solver's error is {check.trajectory_error:.2g} kernel widths and "
            f"{check.density_error:.2g} in the log density: use solver='implicit' or 'explicit', "
            "or a smaller mesh_tolerance"
        )
    if check.lost:
        doubts.append(
            f"{check.lost} of a sample of draws cannot be solved any more, and could be when they "
            "were drawn: see that the simulator always answers alike"
        )
    if share_failed > 0.5:
        doubts.append(f"{share_failed:.0%} of the draws cannot be solved: narrow the prior")
    if settings.sampler == "flow":
        way_out = "use 'ensemble' unless the noise is joint"
        doubts.append(f"the unadjusted flow has a bias that is not measured: {way_out}")
    remark = ""
    if "fixed_point_ess" in figures and not known:
        remark += (
            " Whether the draws solve the fixed-point equation could not be told: its importance "
            f"sample has an effective size of only {figures['fixed_point_ess']:.0f}."
        )
    if share_failed > 0:
        why = next(iter(figures.get("failures", ())), "why is not known")
        remark += f" At {share_failed:.1%} of the draws the model fails (mostly: {why})."
    if (outside := figures["share_outside_fit"]) > 0.005:
        remark += (
            f" {outside:.0%} of Q lies outside the part that fits, near the prior: it explains "
            "little of the data, and shrinks with λ."
        )
    if doubts:
        return False, "Do not trust this fit yet: " + "; ".join(doubts) + "." + remark
    size = f"effective sample size {figures['ess_min']:.0f}"
    told = f"Converged: R-hat {rhat:.3f}, {size}."
    if not rhat < GOOD_RHAT:
        told = (
            f"Converged: halves of systems agree within {figures['systems_apart']:.3f} in mass, "
            f"{size}. (R-hat over systems is {rhat:.2f}: it is of means and sds of all particles, "
            "which vary little from draw to draw.)"
        )
    return True, told + remark
