"""The exact mixing distribution on given points: the oracle that samplers are held to.

On points θ_1..θ_G with prior masses m_i = q0(θ_i) × volume_i, Q_n has the weights q that minimise,
over q ≥ 0 with Σ q = 1,

    F(q) = ½ q'Kq − v'q + λ Σ_i q_i log(q_i / m_i),        K_ij = κ0(θ_i, θ_j),

which is (eq:prediction-centric-uq) up to a constant, and whose fixed point is (eq: implicit Qn),

    q_i ∝ m_i exp((v_i − (Kq)_i) / λ).

**Dual.** K is positive semi-definite, so ½ q'Kq = max_α α'Kq − ½ α'Kα. Exchanging min and max
leaves a minimisation over q that has a closed form, and

    min F = max D,        D(α) = −½ α'Kα − λ log Σ_i m_i exp((v_i − (Kα)_i) / λ).

D is concave and has no constraints. Write q(α) for the weights ∝ m exp((v − Kα) / λ), which are
positive by construction. Then ∇D = K (q(α) − α): the optimum is α = q(α), the fixed point. For
every α the duality gap is explicit, and F is strongly convex, which bounds the distance of q(α)
from the answer q* without knowing it:

    F(q) − D(α) = ½ (q − α)'K(q − α) ≥ λ KL(q, q*).

**Newton.** With s = √q and P = I − ss', the covariance under q is diag(s) P diag(s), and a Newton
step of D leads from α to

    α_new = q − s∘x,     (I + PBP) x = P (s∘ρ),     B = diag(s) K diag(s) / λ,
    ρ = log(q / m) + (Kq − v) / λ = K (q − α) / λ + constant.

Nothing is divided by a small weight, and ρ is the residual of the fixed point on every point,
however small its weight. The first form of ρ, at a smaller λ, predicts the next solution from the
last, so λ comes down from infinity, where q is the prior. The trace of B is at most max K / λ, so
few of its eigenvalues exceed one, and conjugate gradients, preconditioned by a partial pivoted
Cholesky factor of B, solve the system. An inexact solution costs a further step and never changes
the answer: that is judged on all of K.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import root_scalar
from scipy.special import logsumexp

from pcuq._given import as_numbers, check_memory, check_regularisation
from pcuq._x64 import x64
from pcuq.errors import ComputationError, InputError
from pcuq.objective import objective_of
from pcuq.problem import check_problem

Array = NDArray[np.float64]
Blocks = Callable[[NDArray[np.intp], NDArray[np.intp]], ArrayLike]

TILE = 1024
"""Rows and columns of the blocks in which K is asked for."""
COOLING = 0.2
"""Factor between one lam and the next on the way down to the one asked for."""
CLOSE_ENOUGH = 1e-2
"""Bound on KL(q, q*) below which the next smaller lam is taken up."""
MAX_STEPS = 100
"""Newton steps at one lam; five are usual."""
PREDICTION = 0.03
"""Error allowed in the step from one lam to the next: its effect on KL is half its square."""
MAX_RANK = 64
"""Columns of the preconditioner; conjugate gradients do what it leaves."""
NEGLIGIBLE = 1e-4
"""Mass left out of a Newton step, times (lam / max K)²."""
MAX_ITERATIONS = 1000
"""Conjugate gradient iterations for one Newton step; fewer than twenty are usual."""


@x64
def solve_on_grid(
    problem: Any, regularisation: float, points: ArrayLike, volumes: ArrayLike
) -> Array:
    """Weights (G,) of Q_n on `points` (G, p), unconstrained; prior mass = density x volume.

    `volumes` is (G,), or one number for all points. The pair matrix is held in memory:
    16 G² bytes with a copy on the way, 6.4 GB for 20,000 points.
    """
    check_problem(problem)
    lam = check_regularisation(regularisation)
    theta = as_numbers("points", points)
    p = len(problem.parameters)
    if theta.ndim != 2 or theta.shape[0] == 0 or theta.shape[1] != p:
        raise InputError(
            f"`points` needs shape (G, {p}), at least one row and one column per parameter:"
            f" got {theta.shape}; give unconstrained values, one point in a row."
        )
    if not np.isfinite(theta).all():
        bad = int(np.flatnonzero(~np.isfinite(theta).all(axis=1))[0])
        raise InputError(f"`points` needs finite values: row {bad} is {theta[bad]}; leave it out.")
    volume = as_numbers("volumes", volumes)
    if volume.ndim > 1 or volume.shape not in ((), (theta.shape[0],)):
        raise InputError(
            f"`volumes` needs one number, or one for each of the {theta.shape[0]} points:"
            f" got shape {volume.shape}."
        )
    if not (np.isfinite(volume).all() and (volume > 0).all()):
        raise InputError(
            f"`volumes` needs positive, finite numbers: the smallest is {volume.min()}, the largest"
            f" {volume.max()}; leave points without volume out."
        )

    check_memory(2 * 8.0 * len(theta) ** 2, f"a grid of {len(theta)} points", "use fewer points")
    objective = objective_of(problem)
    features = jax.jit(objective.features)(theta)
    pair_block = jax.jit(objective.pair_block)

    def kappa0(rows: NDArray[np.intp], columns: NDArray[np.intp]) -> ArrayLike:
        a, b = (jax.tree.map(lambda leaf, i=i: leaf[i], features) for i in (rows, columns))
        return pair_block(a, b)

    v = np.asarray(objective.data_terms(features))
    log_mass = np.asarray(objective.log_priors(jnp.asarray(theta))) + np.log(volume)
    return minimise(kappa0, v, log_mass, lam)


def minimise(
    kappa0: ArrayLike | Blocks,
    v: ArrayLike,
    log_mass: ArrayLike,
    lam: float,
    tolerance: float = 1e-12,
) -> Array:
    """The weights (G,) that minimise F(q) = 1/2 q'Kq - v'q + lam sum q log(q / m).

    `kappa0` is K (G, G), or a function of two index arrays that gives the block K[a][:, b];
    `log_mass` is log m, -inf where the prior has no mass, any constant added to it drops out.
    They solve q ∝ m exp((v - Kq) / lam) up to a relative error `tolerance` in every weight, or
    up to the rounding of K and v divided by lam where that is larger.
    """
    K, v, log_m = _checked(kappa0, v, log_mass, lam, tolerance)
    scale = max(float(np.diagonal(K).max()), float(np.ptp(v)), np.finfo(float).tiny)
    rounding = 32 * np.finfo(float).eps * scale / lam

    log_q = _normalised(log_m)
    for stage in _path(scale, lam):
        q = np.exp(log_q)
        log_ratio = np.subtract(log_q, log_m, out=np.zeros_like(q), where=q > 0)
        rho = log_ratio + (K @ q - v) / stage
        alpha = q - _newton(K, q, rho, stage, lambda _: PREDICTION)
        log_q = _normalised(log_m + (v - K @ alpha) / stage)
        best = np.inf
        for _ in range(MAX_STEPS):
            q = np.exp(log_q)
            # K times the difference, not the difference of products: it must vanish with q - alpha
            rho = K @ (q - alpha) / stage
            residual = float(np.abs(rho - q @ rho)[log_m > -np.inf].max())
            gap = float((q - alpha) @ rho) / 2  # (F - D) / lam, a bound on KL(q, q*)
            if residual <= tolerance or (stage > lam and gap <= CLOSE_ENOUGH):
                break
            if best / 2 < residual <= rounding:  # as good as this arithmetic can tell
                break
            best = min(best, residual)
            step = q - alpha - _newton(K, q, rho, stage, _accuracy(gap))
            tilt = K @ step / stage
            t = _line_search(log_q, tilt, step, q - alpha)
            alpha = alpha + t * step
            # updated, not recomputed: v / lam is so large that its last digits would show in q
            log_q = _normalised(log_q - t * tilt)
        else:
            raise ComputationError(
                f"the minimiser on {len(q)} points was not reached in {MAX_STEPS} Newton steps at"
                f" regularisation {stage:g} (residual {residual:.1e}): take a larger one."
            )
    return q


def fixed_point_residual(
    kappa0: ArrayLike | Blocks, v: ArrayLike, log_mass: ArrayLike, lam: float, weights: ArrayLike
) -> float:
    """max_i |log q_i - log m_i + (Kq - v)_i / lam + c|: the relative error of q's fixed point.

    c makes the mean under q zero. Weights that are zero or nearly underflow are left out, but
    they must be small by the formula as well: infinity if one of them should not be.
    """
    K, v, log_m = _checked(kappa0, v, log_mass, lam, 1.0)
    q = np.asarray(weights, dtype=np.float64)
    if q.shape != v.shape or not (np.isfinite(q).all() and (q >= 0).all() and q.sum() > 0):
        raise InputError(
            f"`weights` needs {len(v)} non-negative numbers, not all zero: got shape {q.shape}."
        )
    formula = log_m + (v - K @ q) / lam
    large = q > 1e-290
    gap = np.log(q[large]) - formula[large]
    centre = (q[large] @ gap) / q[large].sum()
    if (formula[~large] + centre > np.log(1e-280)).any():
        return float("inf")
    return float(np.abs(gap - centre).max())


def _path(scale: float, lam: float) -> list[float]:
    """Values of lam from about the size of K down to the one asked for, which ends the list."""
    extra = max(0, int(np.ceil(np.log(lam / scale) / np.log(COOLING))))
    return [lam / COOLING**k for k in range(extra, 0, -1)] + [lam]


def _normalised(log_q: Array) -> Array:
    """The logarithms of weights that add to one."""
    return log_q - logsumexp(log_q)


def _line_search(log_q: Array, tilt: Array, step: Array, residual: Array) -> float:
    """t in (0, 1]: the whole step, or the point along it where D stops rising.

    The slope of D is used and not its value, whose last digits are lost long before convergence.
    """

    def slope(t: float) -> float:
        change = np.exp(_normalised(log_q - t * tilt)) - np.exp(log_q)
        return float(tilt @ (residual + change - t * step))

    start, end = slope(0.0), slope(1.0)
    if start <= 0 or end >= -0.1 * start:
        return 1.0
    return root_scalar(slope, bracket=(0.0, 1.0), method="brentq", xtol=1e-12, rtol=1e-2).root


def _accuracy(gap: float) -> Callable[[float], float]:
    """How small the linear residual r must be for a Newton step, given b'x so far.

    The error that r leaves in the step, in the norm of D's Hessian, is at most sqrt(lam) |r|; the
    length of the step in that norm is sqrt(lam (2 gap - b'x)). Their ratio falls with the gap,
    which keeps convergence faster than linear.
    """
    forcing = float(np.clip(np.sqrt(max(gap, 0.0)), 1e-4, 1e-1))
    return lambda gain: forcing * np.sqrt(max(2 * gap - gain, 0.0))


def _newton(
    K: Array, q: Array, rho: Array, lam: float, accuracy: Callable[[float], float]
) -> Array:
    """s*x with (I + P B P) x = b = P (s*rho), by conjugate gradients from x = 0.

    Points whose mass together is negligible are left out: that perturbs B by less than the mass
    times max K / lam, which is made small beside the smallest eigenvalue of its inverse.
    """
    order = np.argsort(q)
    negligible = NEGLIGIBLE * min(1.0, lam / max(float(np.diagonal(K).max()), lam)) ** 2
    active = np.sort(order[np.searchsorted(np.cumsum(q[order]), negligible) :])
    s = np.sqrt(q[active] / q[active].sum())
    times_B = _product(K, s / np.sqrt(lam), active)
    precondition = _preconditioner(K, s / np.sqrt(lam), active)

    def project(y: Array) -> Array:
        return y - s * (s @ y)

    x = np.zeros_like(s)
    r = project(s * rho[active])
    rounding = 1e-14 * np.linalg.norm(r)
    direction, size, gain = np.zeros_like(s), 1.0, 0.0  # gain: b'x, which only grows
    for _ in range(MAX_ITERATIONS):
        if np.linalg.norm(r) <= max(accuracy(gain), rounding):
            break
        z = project(precondition(r))
        size, previous = float(r @ z), size
        direction = z + (size / previous) * direction
        image = direction + project(times_B(direction))
        curvature = float(direction @ image)
        if curvature <= 0:  # F is not convex here, which only K can have caused
            raise InputError(
                "`kappa0` needs to be positive semi-definite, as an inner product is: weights were"
                " met along which it is not; check how it is computed."
            )
        x = x + (size / curvature) * direction
        r = project(r - (size / curvature) * image)
        gain += size * size / curvature
    out = np.zeros_like(q)
    out[active] = s * x
    return out


def _product(K: Array, scale: Array, active: NDArray[np.intp]) -> Callable[[Array], Array]:
    """y -> By on the active points; a copy of their part of K if that is small."""
    if len(active) <= len(K) // 3:
        part = K[np.ix_(active, active)]
        return lambda y: scale * (part @ (scale * y))

    def times_B(y: Array) -> Array:
        full = np.zeros(len(K))
        full[active] = scale * y
        return scale * (K @ full)[active]

    return times_B


def _preconditioner(K: Array, scale: Array, active: NDArray[np.intp]) -> Callable[[Array], Array]:
    """y -> (I + LL')^{-1} y, where LL' is a pivoted Cholesky factor of B's large part."""
    rest = scale**2 * np.diagonal(K)[active]
    L = np.empty((len(active), min(MAX_RANK, len(active))), order="F")
    rank = 0
    while rank < L.shape[1] and rest.sum() > 1.0:
        pivot = int(rest.argmax())
        column = scale[pivot] * scale * K[active[pivot], active]
        column -= L[:, :rank] @ L[pivot, :rank]
        L[:, rank] = column / np.sqrt(rest[pivot])
        rest = np.maximum(rest - L[:, rank] ** 2, 0.0)
        rank += 1
    L = L[:, :rank]
    factor = cho_factor(np.eye(rank) + L.T @ L)
    return lambda y: y - L @ cho_solve(factor, L.T @ y)


def _checked(
    kappa0: ArrayLike | Blocks, v: ArrayLike, log_mass: ArrayLike, lam: float, tolerance: float
) -> tuple[Array, Array, Array]:
    """K as a dense array, v and log m, or the sentence that says what is wrong with them."""
    v = np.asarray(v, dtype=np.float64)
    log_m = np.asarray(log_mass, dtype=np.float64)
    if v.ndim != 1 or len(v) == 0 or log_m.shape != v.shape:
        raise InputError(
            "`v` and `log_mass` need one number per point, at least one point:"
            f" got shapes {v.shape} and {log_m.shape}."
        )
    if not np.isfinite(v).all():
        raise InputError(f"`v` needs finite values: {(~np.isfinite(v)).sum()} are not.")
    if np.isnan(log_m).any() or (log_m == np.inf).any() or not (log_m > -np.inf).any():
        raise InputError(
            "`log_mass` needs numbers or -inf, and at least one number: the prior must have"
            " mass on some point."
        )
    for name, value in (("regularisation", lam), ("tolerance", tolerance)):
        if not (np.ndim(value) == 0 and np.isfinite(value) and value > 0):
            raise InputError(f"`{name}` needs a positive, finite number: got {value!r}.")
    K = _dense(kappa0, len(v)) if callable(kappa0) else np.asarray(kappa0, dtype=np.float64)
    if K.shape != (len(v), len(v)):
        raise InputError(f"`kappa0` needs shape {(len(v), len(v))}, to match `v`: got {K.shape}.")
    # one product each way sees every entry, without a second array of the size of K
    probe = 1.0 + np.sin(np.arange(len(v))) ** 2
    forth, back = K @ probe, probe @ K
    if not np.isfinite(forth).all():
        raise InputError("`kappa0` needs finite values: a point whose solve fails has zeros.")
    if np.abs(forth - back).max() > 1e-9 * np.abs(K.diagonal()).max() * len(v):
        raise InputError("`kappa0` needs to be symmetric: kappa0(a, b) = kappa0(b, a).")
    return K, v, log_m


def _dense(kappa0: Blocks, size: int) -> Array:
    """K from its blocks on and above the diagonal; the rest by symmetry."""
    K = np.empty((size, size))
    starts = range(0, size, TILE)
    for i in starts:
        rows = np.arange(i, min(i + TILE, size))
        for j in starts[i // TILE :]:
            columns = np.arange(j, min(j + TILE, size))
            block = np.asarray(kappa0(rows, columns), dtype=np.float64)
            K[i : i + TILE, j : j + TILE] = block
            K[j : j + TILE, i : i + TILE] = block.T
    return K
