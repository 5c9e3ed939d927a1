"""Named parameters, their bijectors and the prior Q0.

θ in R^p is unconstrained. A parameter's natural value is

    value = T(s),   s = θ              where there are no bounds,
                    s = a + (b − a) sigmoid(θ)   where there are: a < s < b,

with T the identity, exp or 10^(·), and a, b the bounds on the scale of s. Q0 has a density on θ: a
prior stated for the natural value or for s is carried over with its Jacobian.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jaxtyping import Array, Bool, Float

from pcuq.errors import InputError

TRANSFORMS = ("logit", "log", "log10", "identity", "interval")
BLOCK = 256  # prior draws that are made at a time
PRIOR_SCALES = ("unconstrained", "natural", "scale")
# Bijector images at these points must have positive prior density: the prior has to cover them.
PROBES = np.array([-6.0, -2.0, -0.5, 0.0, 0.5, 2.0, 6.0])
# Tries at a prior draw inside the range; at least a tenth of the prior must lie there.
CANDIDATES = 256
FEW_CANDIDATES = 8  # where all of a thousand draws lay inside
LEAST_INSIDE = 0.1
# Coordinates of the draws in the file of a fit.
TAKEN = ("chain", "draw", "system", "particle")


@dataclass(frozen=True)
class Parameter:
    """One unknown: how it is made unconstrained, and what is believed of it beforehand.

    `transform`: "logit" (0, 1), or (lower, upper) where given; "interval" the same with both
    bounds required; "log" and "log10" for positive values, within (lower, upper) where both are
    given; "identity" for any real value, within bounds where given.
    `prior`: a scalar numpyro distribution, Normal(0, 1) by default, of θ
    (`prior_on="unconstrained"`), of the value (`"natural"`) or of its logarithm for the log
    transforms (`"scale"`).
    """

    transform: str = "logit"
    prior: dist.Distribution | None = None
    prior_on: str = "unconstrained"
    lower: float | None = None
    upper: float | None = None
    _bounds: tuple[float, float] | None = field(init=False, repr=False, compare=False)
    _inside: float = field(init=False, repr=False, compare=False)  # share of the prior in range

    def __post_init__(self):
        if self.transform not in TRANSFORMS:
            raise InputError(
                f"`transform` needs one of {', '.join(TRANSFORMS)}: got {self.transform!r}."
            )
        if self.prior_on not in PRIOR_SCALES:
            raise InputError(
                f"`prior_on` needs one of {', '.join(PRIOR_SCALES)}: got {self.prior_on!r}."
            )
        object.__setattr__(self, "_bounds", self._scaled_bounds())
        if self.prior is None:
            if self.prior_on != "unconstrained":
                raise InputError(
                    f"prior_on={self.prior_on!r} needs a `prior`: give one, or leave both out for "
                    "Normal(0, 1) on the unconstrained scale."
                )
            object.__setattr__(self, "prior", dist.Normal(0.0, 1.0))
        self._check_prior()

    @property
    def _kind(self) -> tuple[Any, ...]:
        """Equal for parameters with the same transform and the same prior."""
        numbers, structure = jax.tree.flatten(self._prior)
        numbers = tuple((np.shape(number), np.asarray(number).tobytes()) for number in numbers)
        return self.transform, self._bounds, self.prior_on, structure, numbers

    @property
    def _prior(self) -> dist.Distribution:
        assert self.prior is not None
        return self.prior

    def theta_of(self, name: str) -> str:
        """What θ is of the named value, in words: "log k", or "θ of k" where k has bounds."""
        if self._bounds is None:
            return name if self.transform == "identity" else f"{self.transform} {name}"
        plain = self.transform == "logit" and self._bounds == (0.0, 1.0)
        return f"logit {name}" if plain else f"θ of {name}"

    def constrain(self, theta):
        """θ → natural value."""
        return self._from_scale(self._scaled(theta))

    def unconstrain(self, value):
        """Natural value → θ; values outside the parameter's range are refused."""
        value = np.asarray(value, dtype=float)
        inside = value > 0 if self.transform in ("log", "log10") else np.isfinite(value)
        if not np.all(inside & np.isfinite(value)):
            raise InputError(
                f"a value of a {self.transform!r} parameter must be finite and in its range: "
                f"got {value}."
            )
        scaled = {"log": np.log, "log10": np.log10}.get(self.transform, lambda v: v)(value)
        if self._bounds is None:
            return scaled
        low, high = self._bounds
        if not np.all((scaled > low) & (scaled < high)):
            raise InputError(
                f"value {value} lies outside ({self._from_scale(low):g}, "
                f"{self._from_scale(high):g}): move it inside, or widen `lower` and `upper`."
            )
        return np.log(scaled - low) - np.log(high - scaled)

    def log_prior(self, theta):
        """log q0(θ), Jacobian included."""
        if self.prior_on == "unconstrained":
            return self._prior.log_prob(theta)
        scaled = self._scaled(theta)
        if self.prior_on == "scale":
            return self._prior.log_prob(scaled) + self._log_scale_slope(theta)
        log_value_slope = {
            "log": lambda s: s,
            "log10": lambda s: s * math.log(10) + math.log(math.log(10)),
        }.get(self.transform, jnp.zeros_like)(scaled)
        value = self._from_scale(scaled)
        return self._prior.log_prob(value) + log_value_slope + self._log_scale_slope(theta)

    def sample(self, key: Array, shape: tuple[int, ...] = ()) -> Array:
        """Draws of θ from the prior, truncated to the parameter's range where it reaches beyond."""
        if self.prior_on == "unconstrained":
            return jnp.asarray(self._prior.sample(key, shape))
        number = FEW_CANDIDATES if self._inside == 1 else CANDIDATES
        candidates = self._to_theta(self._prior.sample(key, (*shape, number)))
        first_inside = jnp.argmax(jnp.isfinite(candidates), axis=-1, keepdims=True)
        draw = jnp.take_along_axis(candidates, first_inside, axis=-1)[..., 0]
        return jnp.where(jnp.isfinite(draw), draw, 0.0)

    def _to_theta(self, draw):
        """A draw on the prior's scale → θ, NaN or infinite where it lies outside the range."""
        if self.prior_on == "unconstrained":
            return draw
        return self.theta_at(draw) if self.prior_on == "natural" else self._unbounded(draw)

    def theta_at(self, value):
        """Natural value → θ, traced and not refused: ±∞ on a bound, not finite outside."""
        if self.transform in ("log", "log10"):
            value = jnp.log(value) / (math.log(10) if self.transform == "log10" else 1.0)
        return self._unbounded(value)

    def _unbounded(self, scaled):
        if self._bounds is None:
            return scaled
        low, high = self._bounds
        return jnp.log(scaled - low) - jnp.log(high - scaled)

    def _stated(self, theta):
        """θ → the value that the prior speaks of."""
        if self.prior_on == "unconstrained":
            return theta
        return self._scaled(theta) if self.prior_on == "scale" else self.constrain(theta)

    def _scaled(self, theta):
        if self._bounds is None:
            return theta
        low, high = self._bounds
        return low + (high - low) * jax.nn.sigmoid(theta)

    def _from_scale(self, scaled):
        if self.transform == "log":
            return jnp.exp(scaled)
        if self.transform == "log10":
            return jnp.exp(scaled * math.log(10))
        return scaled

    def _log_scale_slope(self, theta):
        """log ds/dθ: that of the sigmoid where there are bounds."""
        if self._bounds is None:
            return jnp.zeros_like(theta)
        low, high = self._bounds
        return math.log(high - low) + jax.nn.log_sigmoid(theta) + jax.nn.log_sigmoid(-theta)

    def _scaled_bounds(self) -> tuple[float, float] | None:
        lower, upper = self.lower, self.upper
        if self.transform == "logit" and lower is None and upper is None:
            lower, upper = 0.0, 1.0
        if lower is None and upper is None:
            if self.transform == "interval":
                raise InputError("an 'interval' parameter needs both `lower` and `upper`.")
            return None
        if lower is None or upper is None:
            if self.transform in ("log", "log10") and lower == 0:
                return None
            raise InputError(
                "`lower` and `upper` go together: got only "
                f"{'upper' if lower is None else 'lower'}; give both, or use 'log' for a value "
                "that is only positive."
            )
        try:
            ordered = math.isfinite(lower) and math.isfinite(upper) and lower < upper
        except TypeError:
            ordered = False
        if not ordered:
            raise InputError(
                f"`lower` and `upper` must be finite with lower < upper: got {lower!r}, {upper!r}."
            )
        if self.transform in ("log", "log10"):
            if lower <= 0:
                raise InputError(f"a {self.transform!r} parameter needs `lower` > 0: got {lower}.")
            logarithm = math.log if self.transform == "log" else math.log10
            return logarithm(lower), logarithm(upper)
        return float(lower), float(upper)

    def _check_prior(self):
        prior = self.prior
        if not isinstance(prior, dist.Distribution):
            raise InputError(
                f"`prior` must be a numpyro distribution: got {type(prior).__name__}; for example "
                "numpyro.distributions.Normal(0, 1)."
            )
        if prior.batch_shape or prior.event_shape or getattr(prior.support, "is_discrete", False):
            raise InputError(
                "`prior` must be a continuous distribution of one number: got "
                f"{type(prior).__name__} with batch shape {prior.batch_shape} and event shape "
                f"{prior.event_shape}; give each parameter its own."
            )
        with jax.enable_x64(True):
            log_density = np.asarray(jax.vmap(self.log_prior)(jnp.asarray(PROBES)))
            # Without numpyro's validation some have a density beyond their support, where they are
            # never drawn.
            support: Any = prior.support
            covered = np.isfinite(log_density) & np.asarray(support(self._stated(PROBES)))
            try:
                draws = prior.sample(jax.random.key(0), (1000,))
            except NotImplementedError:
                raise InputError(
                    f"`prior` must be one that can be drawn from: {type(prior).__name__} cannot; "
                    "an improper prior is none."
                ) from None
            inside = float(jnp.mean(jnp.isfinite(self._to_theta(draws))))
        object.__setattr__(self, "_inside", inside)
        if not np.all(covered):
            probe = PROBES[~covered][0]
            raise InputError(
                f"the prior {type(prior).__name__} gives no density to the {self.prior_on} value "
                f"that the {self.transform!r} transform makes of θ = {probe:g} "
                f"({float(self.constrain(probe)):g}): set `lower` and `upper` to the prior's "
                "support, or choose a transform whose range the prior covers."
            )
        if self.prior_on != "unconstrained" and inside < LEAST_INSIDE:
            raise InputError(
                f"only {inside:.0%} of the prior {type(prior).__name__} lies in the range of the "
                f"{self.transform!r} transform: choose a prior for values in that range."
            )


class Parameters(Mapping[str, Parameter]):
    """The named parameters of a model, in order: θ[i] belongs to the i-th name."""

    def __init__(self, parameters: Mapping[str, Parameter], may_be_none: bool = False):
        """`may_be_none`: for a model that is simulated and not fitted."""
        if isinstance(parameters, Parameters):
            parameters = parameters._items
        if not isinstance(parameters, Mapping) or not (parameters or may_be_none):
            raise InputError(
                "`parameters` needs a mapping from name to pcuq.Parameter with at least one "
                f"entry: got {parameters!r}."
            )
        for name, parameter in parameters.items():
            if not isinstance(name, str) or not name:
                raise InputError(f"a parameter's name must be a non-empty string: got {name!r}.")
            if name in TAKEN or "/" in name or not name.isprintable():
                raise InputError(
                    f"no parameter can be named {name!r} in the file of a fit, where "
                    f"{', '.join(TAKEN)} mean something else and / is a group: choose another name."
                )
            if not isinstance(parameter, Parameter):
                raise InputError(
                    f"parameter {name!r} must be a pcuq.Parameter: got {type(parameter).__name__}."
                )
        self._items = dict(parameters)

    def __getitem__(self, name: str) -> Parameter:
        return self._items[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __repr__(self) -> str:
        return f"Parameters({', '.join(self._items)})"

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._items)

    def constrain(self, theta: Float[Array, " p"]) -> dict[str, Array]:
        """θ → natural values by name. Works on one θ; a batch (..., p) gives arrays (...)."""
        return {
            name: parameter.constrain(theta[..., i])
            for i, (name, parameter) in enumerate(self._items.items())
        }

    def unconstrain(self, values: Mapping[str, float]) -> np.ndarray:
        """Natural values by name → θ."""
        missing, unknown = set(self) - set(values), set(values) - set(self)
        if missing or unknown:
            raise InputError(
                f"`values` needs exactly the parameters {', '.join(self)}: "
                f"missing {sorted(missing)}, unknown {sorted(unknown)}."
            )
        return np.stack(
            [parameter.unconstrain(values[name]) for name, parameter in self.items()], axis=-1
        )

    def log_prior(self, theta: Float[Array, " p"]) -> Float[Array, ""]:
        """log q0(θ) = Σ_k log q0_k(θ_k)."""
        each = [parameter.log_prior(theta[i]) for i, parameter in enumerate(self._items.values())]
        return jnp.sum(jnp.stack(each))

    def sample(self, key: Array, shape: tuple[int, ...] = ()) -> Float[Array, "*shape p"]:
        """Draws of θ from Q0."""
        kinds = len(self._alike)
        keys = jax.random.split(key, kinds) if kinds > 1 else [key]
        draws: list[Any] = [None] * len(self)
        for one, (parameter, places) in zip(keys, self._alike, strict=True):
            together = parameter.sample(one, (*shape, len(places)))
            for i, place in enumerate(places):
                draws[place] = together[..., i]
        return jnp.stack(draws, axis=-1)

    @cached_property
    def _alike(self) -> list[tuple[Parameter, list[int]]]:
        """Parameters of one kind with their places: what is drawn at once compiles faster."""
        kinds: dict[Any, tuple[Parameter, list[int]]] = {}
        for place, parameter in enumerate(self._items.values()):
            kinds.setdefault(parameter._kind, (parameter, []))[1].append(place)
        return list(kinds.values())

    def draws(self, key: Array, count: int) -> Float[np.ndarray, "K p"]:
        """Some draws of θ from Q0, by a program that is compiled once for any number of them."""
        blocks = range(max(1, -(-count // BLOCK)))
        return np.concatenate([np.asarray(self._block(key, i)) for i in blocks])[:count]

    @cached_property
    def _block(self):
        return jax.jit(lambda key, i: self.sample(jax.random.fold_in(key, i), (BLOCK,)))

    @cached_property
    def bounded(self) -> Bool[np.ndarray, " p"]:
        """Which have bounds, and a prior that speaks of values between these rather than of θ."""
        each = self._items.values()
        return np.array([p._bounds is not None and p.prior_on != "unconstrained" for p in each])

    @cached_property
    def standard_deviations(self) -> Float[np.ndarray, " p"]:
        """Of θ under Q0, roughly: half the distance between the 16 % and the 84 % quantile."""
        with jax.enable_x64(True):  # in 32 bits the draws are others
            draws = self.draws(jax.random.key(0), 1024)
        low, high = np.quantile(draws, [0.16, 0.84], axis=0)
        return (high - low) / 2
