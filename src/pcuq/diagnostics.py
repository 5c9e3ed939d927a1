r"""Has the sampler converged: R-hat, effective sample size, Monte Carlo standard error.

With m chains of n draws, W the mean within-chain variance and B/n the variance of chain means,

    R-hat = sqrt( ((n - 1)/n W + B/n) / W ),        ESS = m n / tau,
    tau = -1 + 2 sum_{k < K} P_k,   P_k = rho_{2k} + rho_{2k+1},

the sum cut at Geyer's first P_k <= 0 and made non-increasing, rho_t combined over chains. Chains
are split in halves first. Rank normalisation and the tail measures follow Vehtari, Gelman, Simpson,
Carpenter and Bürkner (2021), and agree with ArviZ.

Every function takes an array (chain, draw, ...) and returns an array over the remaining axes.
Fewer than four draws, or a value that is not finite, gives NaN: not known, so not converged.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.fft import next_fast_len
from scipy.special import ndtri
from scipy.stats import rankdata

from pcuq.errors import InputError

Array = NDArray[np.float64]

MIN_DRAWS = 4  # below this a half-chain has no variance


def rhat(values: ArrayLike) -> Array:
    """Rank-normalised split R-hat: the larger of that of the values and that of |value - median|.

    The first sees chains that differ in location, the second chains that differ in scale. One chain
    is enough, since it is compared with itself in halves. All draws equal: 1, there is nothing to
    disagree on. Chains stuck at different values: inf.
    """
    draws, shape, known = _checked(values)
    halves = _split(draws)
    folded = np.abs(halves - np.median(halves, axis=(0, 1)))
    # fmax: a constant fold (two-valued draws) has no R-hat, and the bulk one then speaks alone
    answer = np.fmax(_rhat(_rank_normalised(halves)), _rhat(_rank_normalised(folded)))
    return _finish(_one_if_constant(answer, draws), known, shape)


def split_rhat(values: ArrayLike) -> Array:
    """Split R-hat on the values as they are. Constants are treated as in `rhat`."""
    draws, shape, known = _checked(values)
    return _finish(_one_if_constant(_rhat(_split(draws)), draws), known, shape)


def ess_bulk(values: ArrayLike) -> Array:
    """Effective sample size of the rank-normalised split chains: for means and medians."""
    draws, shape, known = _checked(values)
    return _finish(_ess(_rank_normalised(_split(draws))), known, shape)


def ess_tail(values: ArrayLike, probabilities: Sequence[float] = (0.05, 0.95)) -> Array:
    """Smallest effective sample size of the indicators 1[value <= q], q the given quantiles."""
    draws, shape, known = _checked(values)
    quantiles = np.quantile(draws, probabilities, axis=(0, 1))
    per_quantile = [_ess(_split((draws <= q).astype(np.float64))) for q in quantiles]
    return _finish(np.min(per_quantile, axis=0), known, shape)


def ess_mean(values: ArrayLike) -> Array:
    """Effective sample size of the split chains themselves: the one that `mcse_mean` uses."""
    draws, shape, known = _checked(values)
    return _finish(_ess(_split(draws)), known, shape)


def mcse_mean(values: ArrayLike) -> Array:
    """Monte Carlo standard error of the mean, sd / sqrt(ESS)."""
    draws, shape, known = _checked(values)
    sd = np.std(draws, axis=(0, 1), ddof=1)
    return _finish(sd / np.sqrt(_ess(_split(draws))), known, shape)


def autocovariance(values: ArrayLike) -> Array:
    """(1/n) sum_s (x_s - mean)(x_{s+t} - mean) at every lag t, by FFT with zero padding."""
    x = np.asarray(values, dtype=np.float64)
    n = x.shape[1]
    padded = next_fast_len(2 * n, real=True)
    spectrum = np.fft.rfft(x - x.mean(axis=1, keepdims=True), n=padded, axis=1)
    power = spectrum * np.conjugate(spectrum)
    return np.fft.irfft(power, n=padded, axis=1)[:, :n] / n


# -- helpers: arrays are (chain, draw, quantity) ---------------------------------------------------


def _checked(values: ArrayLike) -> tuple[Array, tuple[int, ...], NDArray[np.bool_]]:
    """Draws as (chain, draw, quantity), the shape to return, and which quantities are known."""
    x = np.asarray(values, dtype=np.float64)
    if x.ndim < 2:
        raise InputError(
            f"diagnostics need an array (chain, draw, ...): got shape {x.shape}; "
            "for one chain pass x[None]."
        )
    shape = x.shape[2:]
    x = x.reshape(*x.shape[:2], -1)
    if x.shape[0] < 1 or x.shape[1] < MIN_DRAWS:
        return np.zeros((1, MIN_DRAWS, x.shape[2])), shape, np.zeros(x.shape[2], dtype=bool)
    known = np.asarray(np.isfinite(x).all(axis=(0, 1)))
    return np.where(known, x, 0.0), shape, known


def _finish(answer: Array, known: NDArray[np.bool_], shape: tuple[int, ...]) -> Array:
    return np.where(known, answer, np.nan).reshape(shape)[()]


def _one_if_constant(answer: Array, draws: Array) -> Array:
    return np.where(np.ptp(draws, axis=(0, 1)) == 0.0, 1.0, answer)


def _split(draws: Array) -> Array:
    """Halves of each chain as chains; the middle draw of an odd number is left out."""
    half = draws.shape[1] // 2
    return np.concatenate([draws[:, :half], draws[:, -half:]])


def _rank_normalised(draws: Array) -> Array:
    """Normal scores of the pooled ranks, with Blom's offset of 3/8."""
    flat = draws.reshape(-1, draws.shape[2])
    ranks = rankdata(flat, method="average", axis=0)
    return ndtri((ranks - 0.375) / (flat.shape[0] + 0.25)).reshape(draws.shape)


def _rhat(chains: Array) -> Array:
    n = chains.shape[1]
    within = np.var(chains, axis=1, ddof=1)
    # a stuck chain has variance 0 exactly, not what rounding of its mean leaves
    within = np.where(np.ptp(chains, axis=1) == 0.0, 0.0, within).mean(axis=0)
    between = n * np.var(chains.mean(axis=1), axis=0, ddof=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.sqrt((between / within + n - 1) / n)


def _ess(chains: Array) -> Array:
    m, n, _ = chains.shape
    size = m * n
    covariance = autocovariance(chains).mean(axis=0)
    within = covariance[0] * n / (n - 1)
    pooled = covariance[0] + (np.var(chains.mean(axis=1), axis=0, ddof=1) if m > 1 else 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        rho = 1.0 - (within - covariance) / pooled
    rho[0] = 1.0

    # Geyer: `last` is the first pair whose sum is not positive, at most the last usable pair
    usable = max(0, (n - 3) // 2)
    even, odd = rho[0 : 2 * usable + 1 : 2], rho[1 : 2 * usable + 2 : 2]
    pairs = even + odd
    stops = pairs <= 0.0
    stops[usable] = True
    last = np.argmax(stops, axis=0)

    before = np.arange(usable + 1)[:, None] < last
    monotone = np.minimum.accumulate(pairs, axis=0)
    even_last, pair_last = (np.take_along_axis(a, last[None], axis=0)[0] for a in (even, pairs))
    # the even term of the pair that stopped the sum lowers the bias of antithetic chains
    remainder = np.where((even_last > 0.0) | (pair_last >= 0.0), even_last, 0.0)
    tau = -1.0 + 2.0 * np.sum(np.where(before, monotone, 0.0), axis=0) + remainder
    tau = np.maximum(tau, 1.0 / np.log10(size))
    return np.where(np.ptp(chains, axis=(0, 1)) == 0.0, float(size), size / tau)
