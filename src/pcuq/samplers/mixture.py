"""A mixture of Student densities fitted to earlier positions, and three ways to move by it.

    m(θ) = Σ_r ω_r t_ν(θ; c_r, H_r),

the average of a few fits of Gaussians by expectation–maximisation, whose covariances are then
widened, with Student's tails put on them: a particle that has strayed to where m is too small would
otherwise stay there. The mixture is fixed while draws are kept, so that all moves are exact
whatever the particles do:

* a *jump* to a point of g = w q0 + (1 − w) m;
* a *local move*, which leaves m invariant and is reversible: pick a component r with its share
  ω_r t_ν(θ; c_r, H_r)/m(θ) of θ and the scale u of Student's t given both, then

      θ' = c_r + (1 − s²)^½ (θ − c_r) + s (H_r/u)^½ ξ.

  It follows the local shape of m, however narrow, at whatever length s. As a Metropolis proposal
  its ratio is m(θ)/m(θ');
* a *partial move*, which draws some parameters anew from m given the others, with the same ratio:
  pick r with the share of ω_r t_ν(θ_R; c_r, H_r) for the others R, and with the permuted factor
  H_r = L Lᵀ, R first, z = L⁻¹(θ − c_r) and q = |R|,

      θ' = c_r + L (z_R, ((ν + |z_R|²)/χ²_{ν+q})^½ ξ).

  Of many parameters some depend on each other in one way whatever the rest may be, such as two of
  which a sum is known: m knows this from all particles, wherever the rest of these is.
"""

from __future__ import annotations

import math
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.scipy.linalg import solve_triangular
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float, Int

from pcuq.straight import Straight

PARTS = 6  # fits, each to other positions: their average errs less in the tails than any of them
COMPONENTS = 20, 5  # of each part, and more for each parameter,
# but no more where these are many: each is then learnt from few points, and moves take time.
MOST_COMPONENTS, MANY = 40, 12
POINTS = 1000, 200  # earlier positions that each part is fitted to, likewise
MANY_POINTS = 850  # for each parameter, where there are many positions: more to learn, and to lose
MOST_WORK = 1.5e8  # products in a part's iteration: with more, a fit would take a quarter minute
ITERATIONS = 10  # of expectation–maximisation
# Of the covariances, part by part: m should reach beyond the positions seen.
INFLATION = np.array([1.1, 1.1, 1.2, 1.2, 2.0, 4.0])
# Of many parameters what is a little too wide in each is far too wide in all, and what is drawn
# from the prior fits never.
INFLATION_OF_MANY = np.array([1.0, 1.0, 1.1, 1.1, 1.2, 1.5])
DEGREES = 8  # ν: of freedom
PRIOR_SHARE, PRIOR_SHARE_OF_MANY = 0.15, 0.02  # w
ANCHOR_SHARE = 0.05  # of m that stays where it is, whatever the positions
HOT_SHARE = 1 / 3  # of m that is fitted to positions at a larger λ
LOSS = 0.5  # nats that the mean log density of other particles may be below the highest
OTHER_POINTS = 4000  # of other particles, by which a number of components is chosen
MOST_ANEW = 6  # parameters that a partial move draws together
NARROWEST = 1e-8  # variance of a component relative to that of all positions
# Of many parameters a covariance is factored once more, in another order. Nothing may be left of a
# variance that rounding could make, or moves would follow another mixture than their ratio.
LEFT_OF_MANY, NARROWEST_OF_MANY, TINY = 1e-5, 1e-6, 1e-14


class Mixture(NamedTuple):
    """Components with the Cholesky factors of H_r and the inverses of those."""

    centres: Float[Array, "R p"]
    factors: Float[Array, "R p p"]
    inverses: Float[Array, "R p p"]
    log_weights: Float[Array, " R"]


def student_mixture(
    centres: Float[np.ndarray, "R p"], covariances: Float[np.ndarray, "R p p"]
) -> Mixture:
    """Equal shares of Student densities with these centres and H_r."""
    factors = np.linalg.cholesky(covariances)
    shares = np.full(len(centres), -math.log(len(centres)))
    return Mixture(*map(jnp.asarray, (centres, factors, np.linalg.inv(factors), shares)))


def fit_mixture(
    positions: Float[np.ndarray, "K p"],
    scale: Float[np.ndarray, " p"],
    anchors: Mixture | None = None,
    components: int | None = None,
) -> Mixture:
    """The mixture of positions, with a share for the `anchors`.

    `scale`: sds of the prior, which bound the mixture's width from below by a hair. `components` of
    each part may be fewer than there is room for (see `number_of_components`).
    """
    room = _room(positions.shape[1])
    found = _padded(_fit_some(positions, scale, PARTS, components or room), PARTS * room)
    return found if anchors is None else _joined(found, anchors, ANCHOR_SHARE)


def number_of_components(thetas: Float[np.ndarray, "T C p"], scale: Float[np.ndarray, " p"]) -> int:
    """How many of them, fitted to one half of the C particles, describe the other half well.

    The most that lose little against the best number: moves are made among the particles that the
    mixture is fitted to, for which more components are better.

    Components that are described by more numbers than there are points say where these are, and not
    what the law is: particles leave them, and are then stuck where the mixture has nothing. Later
    positions of the same particles would not tell, as they are near the earlier ones.
    """
    p, room = thetas.shape[-1], _room(thetas.shape[-1])
    enough = room * p * (p + 3) / 4  # half a point for each number
    if thetas.shape[1] < 2 or _points(p, thetas.size // p, room) >= enough:
        return room
    halves = [half.reshape(-1, p) for half in np.array_split(thetas, 2, axis=1)]
    numbers = [max(1, room // 3**k) for k in (3, 2, 1, 0)]
    heights = [
        np.mean(
            [
                _height(_fit_some(one, scale, 1, number), other[:: len(other) // OTHER_POINTS + 1])
                for one, other in (halves, halves[::-1])
            ]
        )
        for number in numbers
    ]
    least = max(heights) - LOSS
    return max(n for n, height in zip(numbers, heights, strict=True) if height > least)


def _fit_some(positions: Float[np.ndarray, "K p"], scale, parts: int, components: int) -> Mixture:
    """To positions at random: evenly spaced ones can be, at any time, those of few particles."""
    points = _points(positions.shape[1], len(positions), components)
    some = np.random.default_rng(0).integers(0, len(positions), (parts, points))
    # Points that had to be repeated do not count as more.
    repeats = max(1.0, points / len(positions))
    return _fit_parts(np.asarray(positions)[some], scale, repeats, components)


def _points(p: int, positions: int, components: int) -> int:
    """How many of the positions each part is fitted to."""
    few, many = POINTS[0] + POINTS[1] * p, MANY_POINTS * p
    if positions <= 5 * many:
        return few
    return max(few, min(many, int(MOST_WORK / (components * p**2))))


def _room(p: int) -> int:
    return MOST_COMPONENTS if p >= MANY else COMPONENTS[0] + COMPONENTS[1] * p


def _padded(mixture: Mixture, count: int) -> Mixture:
    """With components of no weight: one program serves any number of them."""
    more = count - len(mixture.log_weights)
    if not more:
        return mixture
    return Mixture(
        *(jnp.concatenate([leaf, jnp.repeat(leaf[:1], more, axis=0)]) for leaf in mixture[:3]),
        log_weights=jnp.concatenate([mixture.log_weights, jnp.full(more, -jnp.inf)]),
    )


def with_hot(mixture: Mixture, hot: Mixture | None) -> Mixture:
    """A share for what was fitted to hot positions, or room for it."""
    room = PARTS * _room(mixture.centres.shape[1])
    if hot is None:
        return _padded(mixture, len(mixture.log_weights) + room)
    return _joined(mixture, hot, HOT_SHARE)


def straightened(mixture: Mixture, axes: Straight) -> Mixture:
    """A mixture of θ as one of η: the same centres, and as wide there."""
    slopes = axes.slopes(mixture.centres)
    return mixture._replace(
        centres=axes.straight(mixture.centres),
        factors=slopes[:, :, None] * mixture.factors,
        inverses=mixture.inverses / slopes[:, None, :],
    )


def _joined(mixture: Mixture, other: Mixture, share: float) -> Mixture:
    """The mixture with a share of the other one."""
    weights = mixture.log_weights + math.log1p(-share)
    fixed = other._replace(log_weights=other.log_weights + math.log(share))
    return jax.tree.map(
        lambda a, b: jnp.concatenate([a, b]), mixture._replace(log_weights=weights), fixed
    )


@partial(jax.jit, static_argnames="components")
def _fit_parts(points: Float[Array, "P K p"], scale, repeats, components: int) -> Mixture:
    parts = jax.lax.map(lambda some: _fit(some, scale, repeats, components), points)
    inflation = INFLATION_OF_MANY if points.shape[-1] >= MANY else INFLATION
    wider = jnp.sqrt(inflation[: len(points)])[:, None, None, None]
    parts = parts._replace(factors=wider * parts.factors, inverses=parts.inverses / wider)
    whole = Mixture(*(leaf.reshape(-1, *leaf.shape[2:]) for leaf in parts))
    return whole._replace(log_weights=whole.log_weights - math.log(len(points)))


def _fit(points: Float[Array, "K p"], scale, repeats, components: int) -> Mixture:
    count, p = points.shape
    middle = jnp.mean(points, axis=0)
    centred = points - middle
    covariance = centred.T @ centred / count
    left, narrowest = (LEFT_OF_MANY, NARROWEST_OF_MANY) if p >= MANY else (0.0, NARROWEST)
    covariance = covariance + jnp.diag(left * jnp.diagonal(covariance) + (1e-8 * scale) ** 2)
    whole = jnp.linalg.cholesky(covariance)
    z = solve_triangular(whole, centred.T, lower=True).T

    squares = (z[:, :, None] * z[:, None, :]).reshape(count, p * p)

    def maximise(shares):
        members = jnp.sum(shares, axis=0) + 1e-10
        means = shares.T @ z / members[:, None]
        moments = (shares.T @ squares).reshape(-1, p, p)
        scatter = moments - members[:, None, None] * means[:, :, None] * means[:, None, :]
        # A component of few points says nothing of its shape: it becomes as wide as the whole.
        missing = jnp.maximum(0.0, 2 * p * repeats - members)
        total = scatter + missing[:, None, None] * jnp.eye(p)
        covariances = total / (members + missing)[:, None, None] + narrowest * jnp.eye(p)
        return members / count, means, jnp.linalg.cholesky(covariances)

    def memberships(weights, means, factors):
        inverses = _inverse(factors)
        centres = jnp.einsum("rpq,rq->rp", inverses, means)
        apart = (z @ inverses.reshape(-1, p).T).reshape(count, -1, p) - centres
        volumes = jnp.sum(jnp.log(jnp.diagonal(factors, axis1=1, axis2=2)), axis=1)
        return jax.nn.softmax(jnp.log(weights) - volumes - jnp.sum(apart**2, axis=2) / 2, axis=1)

    nearest = jnp.argmin(_squared_distances(z, _scattered(z, components)), axis=1)
    shares = jax.nn.one_hot(nearest, components)
    shares = jax.lax.fori_loop(0, ITERATIONS, lambda _, s: memberships(*maximise(s)), shares)
    weights, means, factors = maximise(shares)
    factors = whole @ factors
    return Mixture(middle + means @ whole.T, factors, _inverse(factors), jnp.log(weights))


def _inverse(factors):
    identity = jnp.eye(factors.shape[-1])
    return jax.vmap(lambda factor: solve_triangular(factor, identity, lower=True))(factors)


def _scattered(z, number: int):
    """Points far apart: each drawn in proportion to its squared distance from those before."""
    keys = jax.random.split(jax.random.key(0), number)

    def add(i, carry):
        chosen, distance = carry
        point = z[jax.random.categorical(keys[i], jnp.log(distance + 1e-300))]
        distance = jnp.minimum(distance, jnp.sum((z - point) ** 2, axis=1))
        return chosen.at[i].set(point), distance

    first = jnp.zeros((number, z.shape[1])), jnp.full(len(z), 1e300)
    return jax.lax.fori_loop(0, number, add, first)[0]


def _squared_distances(a, b):
    return jnp.sum(a**2, axis=1)[:, None] - 2 * a @ b.T + jnp.sum(b**2, axis=1)


def log_components(mixture: Mixture, theta: Float[Array, " p"]) -> Float[Array, " R"]:
    """log ω_r t_ν(θ; c_r, H_r); the logsumexp of these is log m(θ)."""
    p = theta.shape[-1]
    # One product for all components: much quicker than one for each where θ are many.
    apart = mixture.inverses.reshape(-1, p) @ theta
    z = apart.reshape(-1, p) - jnp.einsum("rpq,rq->rp", mixture.inverses, mixture.centres)
    volumes = jnp.sum(jnp.log(jnp.diagonal(mixture.factors, axis1=1, axis2=2)), axis=1)
    constant = math.lgamma((DEGREES + p) / 2) - math.lgamma(DEGREES / 2)
    constant -= 0.5 * p * math.log(DEGREES * math.pi)
    tails = 0.5 * (DEGREES + p) * jnp.log1p(jnp.sum(z**2, axis=-1) / DEGREES)
    return mixture.log_weights + constant - volumes - tails


class Chances(NamedTuple):
    """The random numbers of some proposals, drawn together: each call takes time to compile."""

    accept: Float[Array, "*K"]  # uniform, as the next two
    pick: Float[Array, "*K"]
    choice: Float[Array, "*K"]
    direction: Float[Array, "*K p"]  # normal, as the next
    scale: Float[Array, "*K p+8"]


def chances(key: Array, shape: tuple[int, ...], p: int) -> Chances:
    """For as many proposals as `shape` holds."""
    uniform = jax.random.uniform(key, (*shape, 3 + 2 * p + DEGREES))
    smallest = jnp.finfo(uniform.dtype).eps / 2  # 0 would be −∞ as a normal number
    normal = math.sqrt(2) * jax.lax.erf_inv(2 * jnp.maximum(uniform[..., 3:], smallest) - 1)
    accept, pick, choice = jnp.moveaxis(uniform[..., :3], -1, 0)
    return Chances(accept, pick, choice, normal[..., :p], normal[..., p:])


def move(mixture: Mixture, chance: Chances, theta: Float[Array, " p"], log_parts, s):
    """θ' of the local move from θ, given `log_components` there."""
    r = pick(chance.pick, log_parts)
    apart = theta - mixture.centres[r]
    distance2 = jnp.sum((mixture.inverses[r] @ apart) ** 2)
    # χ² of ν + p degrees of freedom, over ν + |H^−½ (θ − c)|².
    u = jnp.sum(chance.scale**2) / (DEGREES + distance2)
    step = mixture.factors[r] @ chance.direction / jnp.sqrt(u)
    return mixture.centres[r] + jnp.sqrt(1 - s**2) * apart + s * step


class Partition(NamedTuple):
    """Parameters in an order of which the first `given` stay, and each H_r in that order."""

    order: Int[Array, " p"]
    given: Int[Array, ""]
    factors: Float[Array, "R p p"]
    inverses: Float[Array, "R p p"]


def partition(mixture: Mixture, number, component, parameter) -> Partition:
    """To draw a parameter anew with those that depend on it most in a component, `number` in all.

    These three are uniform numbers, of which the first chooses how many.
    """
    p = mixture.centres.shape[1]
    factor = mixture.factors[pick(component, mixture.log_weights)]
    chosen = (p * parameter).astype(int)
    linked = (factor @ factor[chosen]) ** 2 / jnp.sum(factor**2, axis=1)
    order = jnp.argsort(jnp.where(jnp.arange(p) == chosen, jnp.inf, linked))
    covariances = jnp.einsum("rpk,rqk->pqr", *(mixture.factors[:, order],) * 2)
    lower, inverse = _cholesky(covariances)
    given = p - 1 - (MOST_ANEW * number).astype(int)
    return Partition(order, given, jnp.moveaxis(lower, -1, 0), jnp.moveaxis(inverse, -1, 0))


def _cholesky(matrices: Float[Array, "p p R"]) -> tuple[Array, Array]:
    """Factors and their inverses; two threads that call LAPACK through JAX can wait for ever."""
    p = len(matrices)
    place = jnp.arange(p)[:, None]

    def eliminate(j, carry):
        rest, lower, inverse = carry
        pivot = jnp.sqrt(jnp.maximum(rest[j, j], TINY * matrices[j, j]))
        column = jnp.where(place >= j, rest[:, j], 0.0) / pivot
        column = column.at[j].set(pivot)
        row = inverse[j] / pivot
        below = jnp.where(place > j, column, 0.0)
        inverse = (inverse - below[:, None] * row).at[j].set(row)
        return rest - column[:, None] * column, lower.at[:, j].set(column), inverse

    identity = jnp.broadcast_to(jnp.eye(p)[:, :, None], matrices.shape)
    first = matrices, jnp.zeros_like(matrices), identity
    return jax.lax.fori_loop(0, p, eliminate, first)[1:]


def redraw(mixture: Mixture, part: Partition, chance: Chances, thetas: Float[Array, "K p"]):
    """θ' of partial moves from K θ, all by the same partition."""
    p = thetas.shape[1]
    stays = jnp.arange(p) < part.given
    ordered, centres = thetas[:, part.order], mixture.centres[:, part.order]
    apart = (ordered @ part.inverses.reshape(-1, p).T).reshape(len(thetas), -1, p)
    z = jnp.where(stays, apart - jnp.einsum("rpq,rq->rp", part.inverses, centres), 0.0)
    distance2 = jnp.sum(z**2, axis=2)
    logs = jnp.log(jnp.diagonal(part.factors, axis1=1, axis2=2))
    volumes = jnp.sum(jnp.where(stays, logs, 0.0), axis=1)
    # The constant of a density of q numbers is that of all components.
    degrees = DEGREES + part.given
    tails = 0.5 * degrees * jnp.log1p(distance2 / DEGREES)
    r = jax.vmap(pick)(chance.pick, mixture.log_weights - volumes - tails)
    one = jnp.arange(len(thetas)), r
    # χ² of ν + q degrees of freedom, of numbers of which there are ν + p.
    counted = jnp.arange(DEGREES + p) < degrees
    u = jnp.sum(jnp.where(counted, chance.scale**2, 0.0), axis=1) / (DEGREES + distance2[one])
    drawn = chance.direction / jnp.sqrt(u)[:, None]
    moved = centres[r] + jnp.einsum("kpq,kq->kp", part.factors[r], jnp.where(stays, z[one], drawn))
    return jnp.zeros_like(thetas).at[:, part.order].set(jnp.where(stays, ordered, moved))


def jump(mixture: Mixture, chance: Chances, from_prior: Float[Array, " p"]) -> Float[Array, " p"]:
    """A point of g, given one of q0."""
    r = pick(chance.pick, mixture.log_weights)
    u = jnp.sum(chance.scale[:DEGREES] ** 2) / DEGREES
    near = mixture.centres[r] + mixture.factors[r] @ chance.direction / jnp.sqrt(u)
    return jnp.where(chance.choice < _prior_share(len(near)), from_prior, near)


def pick(uniform, log_weights):
    """A place drawn in proportion to weights, with one uniform number."""
    below = jnp.cumsum(jnp.exp(log_weights - jnp.max(log_weights)))
    return jnp.minimum(jnp.sum(below <= uniform * below[-1]), len(below) - 1)


def sample(mixture: Mixture, from_prior: Float[Array, "K p"], key: Array) -> Float[Array, "K p"]:
    """Points of g, given as many of q0."""
    chance = chances(key, from_prior.shape[:1], from_prior.shape[1])
    return jax.vmap(jump, (None, 0, 0))(mixture, chance, from_prior)


def log_jump_density(log_prior: Array, log_mixture: Array, p: int) -> Array:
    """log g, given log q0 and log m, of p parameters."""
    w = _prior_share(p)
    return jnp.logaddexp(math.log(w) + log_prior, math.log1p(-w) + log_mixture)


def _prior_share(p: int) -> float:
    return PRIOR_SHARE_OF_MANY if p >= MANY else PRIOR_SHARE


def log_density(mixture: Mixture, thetas: Float[Array, "K p"]) -> Float[Array, " K"]:
    """log m at each point."""
    return jax.vmap(lambda theta: logsumexp(log_components(mixture, theta)))(thetas)


@jax.jit
def _height(mixture: Mixture, thetas: Float[Array, "K p"]) -> Float[Array, ""]:
    return jnp.mean(log_density(mixture, thetas))
