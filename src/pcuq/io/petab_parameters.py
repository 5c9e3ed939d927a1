"""PEtab's parameter table as named parameters with priors, and the nominal point.

A parameter on the scale lin, log or log10 is s = value, ln value or log10 value, with its bounds
there, and θ is the logit of s within them. Without a prior it is uniform in s. A prior's own
support narrows the bounds.
"""

from __future__ import annotations

import math

import numpy as np
import numpyro.distributions as dist

from pcuq.errors import InputError
from pcuq.io.petab_tables import TRANSFORMS, Unknown
from pcuq.parameters import Parameter, Parameters

# A nominal value on a bound is moved inside by this share of the width.
INSIDE = 1e-9


def as_parameter(name: str, row: Unknown) -> Parameter:
    """One estimated parameter."""
    lower, upper = row.lower, row.upper
    try:
        prior, prior_on, support = _prior(name, row)
    except InputError:
        raise
    except (TypeError, ValueError, ArithmeticError) as error:
        said = " ".join(str(error).split())
        raise InputError(
            f"the prior {row.prior} of parameter {name!r} cannot have the numbers "
            f"{', '.join(f'{n:g}' for n in row.prior_numbers) or 'none'}: {said}"
        ) from None
    if support is not None:
        lower, upper = max(lower, support[0]), min(upper, support[1])
        if not lower < upper:
            raise InputError(
                f"the prior of parameter {name!r} has its support outside the bounds "
                f"[{row.lower:g}, {row.upper:g}]: change one of them."
            )
    transform = TRANSFORMS[row.scale]
    bounds = {}
    free_below = lower == -math.inf or (transform != "identity" and lower == 0)
    if not free_below and math.isfinite(upper):
        bounds = {"lower": lower, "upper": upper}
    elif transform == "identity" and lower == 0 and math.isinf(upper):
        transform, prior_on = "log", "natural"  # positive; the prior is on the value either way
    elif not free_below or math.isfinite(upper):
        raise InputError(
            f"parameter {name!r} has the bounds [{row.lower:g}, {row.upper:g}]: give two finite "
            "bounds, positive ones on a log scale, or none."
        )
    try:
        return Parameter(transform, prior=prior, prior_on=prior_on, **bounds)
    except InputError as error:
        raise InputError(f"parameter {name!r}: {error}") from None


def nominal_point(rows: dict[str, Unknown], parameters: Parameters) -> np.ndarray | None:
    """θ of the nominal values, None where the table has none."""
    values = {name: rows[name].nominal for name in parameters}
    if any(value is None for value in values.values()):
        return None
    theta = [_inside(name, parameters[name], value or 0.0) for name, value in values.items()]
    return np.array(theta, dtype=float)


def _inside(name: str, parameter: Parameter, value: float) -> float:
    bounds = parameter._bounds
    if parameter.transform != "identity":
        if value <= 0 and bounds is None:
            raise InputError(f"the nominal value of parameter {name!r} must be positive.")
        logarithm = math.log if parameter.transform == "log" else math.log10
        value = logarithm(value) if value > 0 else -math.inf
    if bounds is None:
        return value
    low, high = bounds
    value = min(max(value, low + INSIDE * (high - low)), high - INSIDE * (high - low))
    return math.log(value - low) - math.log(high - value)


def _prior(name: str, row: Unknown):
    """(distribution, the scale it is on, its support as natural values or None for no limit)."""
    numbers = row.prior_numbers
    unscale = {"lin": lambda s: s, "log": math.exp, "log10": lambda s: 10.0**s}[row.scale]
    kind = row.prior
    if kind in ("uniform", "parameterScaleUniform") and not numbers:
        kind = None
    if kind is None:
        if not (math.isfinite(row.lower) and math.isfinite(row.upper)):
            raise InputError(f"parameter {name!r} has no prior and needs finite bounds.")
        if row.scale != "lin" and row.lower == 0:
            raise InputError(
                f"parameter {name!r} is on the {row.scale} scale and needs a positive lowerBound: "
                "got 0."
            )
        low, high = _scaled(row.scale, row.lower), _scaled(row.scale, row.upper)
        return dist.Uniform(low, high), "scale", None
    if kind == "parameterScaleUniform":
        low, high = numbers
        return dist.Uniform(low, high), "scale", (unscale(low), unscale(high))
    if kind == "uniform":
        return dist.Uniform(*numbers), "natural", numbers
    if kind == "logUniform":
        return dist.LogUniform(*numbers), "natural", numbers
    if kind in ("parameterScaleNormal", "parameterScaleLaplace"):
        law = dist.Normal if kind.endswith("Normal") else dist.Laplace
        return law(*numbers), "scale", None
    plain = {
        "normal": dist.Normal,
        "laplace": dist.Laplace,
        "cauchy": dist.Cauchy,
    }
    if kind in plain:
        return plain[kind](*numbers), "natural", None
    positive = {
        "logNormal": dist.LogNormal,
        "logLaplace": lambda m, s: dist.TransformedDistribution(
            dist.Laplace(m, s), dist.transforms.ExpTransform()
        ),
        "gamma": lambda shape, scale: dist.Gamma(shape, 1 / scale),
        "exponential": lambda scale: dist.Exponential(1 / scale),
        "chisquare": dist.Chi2,
        "rayleigh": lambda scale: dist.Weibull(math.sqrt(2) * scale, 2.0),
    }
    return positive[kind](*numbers), "natural", (0.0, math.inf)


def _scaled(scale: str, value: float) -> float:
    return {"lin": lambda v: v, "log": math.log, "log10": math.log10}[scale](value)
