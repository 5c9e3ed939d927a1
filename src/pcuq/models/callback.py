"""A simulator as compiled code sees it: a callback, with its derivatives.

They are those of `jacobian` where it is given, else differences in natural values v,

    ∂w/∂v_k ≈ (w(v_k⁺) − w(v_k⁻)) / (v_k⁺ − v_k⁻),      v_k± = the values of θ_k ± step · sd_k,

which never leave a parameter's range; sd_k is the prior's, at most 1 where θ_k is not v_k. All
simulations of a batch of particles, differences included, reach the simulator in one call from the
compiled code, and are shared out to processes there. Numbers cross as bits: the thread that runs a
callback may have JAX's default of 32 bits.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from pcuq.errors import ComputationError, InputError
from pcuq.models import base
from pcuq.models.causes import FINE
from pcuq.models.processes import Failure
from pcuq.models.simulations import Named, as_table, shaped
from pcuq.parameters import Parameter

if TYPE_CHECKING:
    from pcuq.models.external import ExternalModel

# Parameter values, before it is said that none can be simulated: where nine in ten cannot be, that
# is wrong once in eight hundred times. What looks like a mistake in the code is said sooner.
TRIED, TRIED_IF_MISTAKEN = 64, 8
MISTAKES = ("TypeError", "NameError", "KeyError", "AttributeError", "ImportError", "Input")


class ExternalSolver:
    """values → (w, ok) through a callback; works under jit, vmap, jvp and vjp."""

    def __init__(self, model: ExternalModel, x: np.ndarray | None):
        self.model, self.x = model, x
        self.names = model.parameters.names
        self.shape = (1 if x is None else len(x), len(model.outputs))
        self._slopes = _slopes_of_changes(model) if model.has_jacobian else None
        sd = model.parameters.standard_deviations
        self._steps = {
            name: model.step * (s if _is_plain(parameter) else min(s, 1.0))
            for (name, parameter), s in zip(model.parameters.items(), sd, strict=True)
        }
        self._solve = base.guarded(lambda values: (self._traced()(values), jnp.bool_(True)))

    def __call__(self, values) -> tuple[Float[Array, "n d"], Bool[Array, ""]]:
        return self._solve({name: values[name] for name in self.names})

    def describe(self) -> dict[str, Any]:
        runner = self.model.runner
        return {
            "method": "external",
            "rows": self.shape[0],
            "workers": self.model.workers or 0,
            "derivatives": "jacobian" if self._slopes is not None else "differences",
            "simulations": runner.simulations,
            "failures": dict(runner.failures),
        }

    def why(self, values) -> list[str]:
        """Simulated again: a simulator may fail at one time and not at another."""
        found = self._run(0, values, self._read_outputs)
        return [one.cause if isinstance(one, Failure) else FINE for one in found]

    def try_out(self, representatives: Mapping[str, Any] | None) -> None:
        """Refuse a simulator that fails everywhere, or returns what cannot be outputs."""
        causes: Counter[str] = Counter()
        for values in self._to_try(representatives):
            (found,) = self._run(0, values, self._read_outputs)
            if not isinstance(found, Failure):
                return
            causes[found.cause] += 1
            mistaken = all(cause.startswith(MISTAKES) for cause in causes)
            if mistaken and causes.total() == TRIED_IF_MISTAKEN:
                break
        raise (InputError if mistaken else ComputationError)(
            f"the simulator failed at all of {causes.total()} parameter values that were tried: "
            f"{'; '.join(causes)}. It is called as simulate(x, p) and must return outputs of shape "
            f"{(1,) * self.model.batch + self.shape}, a column for each of "
            f"{', '.join(self.model.outputs)}."
        )

    def _to_try(self, representatives: Mapping[str, Any] | None) -> Iterator[dict[str, np.ndarray]]:
        """Some of the representatives, or the prior's centre; then draws of the prior."""
        parameters, given = self.model.parameters, representatives
        if given is None:
            given = parameters.constrain(jnp.zeros((1, len(self.names))))
        rows = {k: np.atleast_1d(np.asarray(given[k], dtype=float)) for k in self.names}
        count = len(rows[self.names[0]])
        some = np.unique(np.linspace(0, count - 1, TRIED).round().astype(int))
        for i in some:
            yield {name: value[i : i + 1] for name, value in rows.items()}
        for theta in parameters.draws(jax.random.key(0), TRIED - len(some)):
            values = parameters.constrain(jnp.asarray(theta[None]))
            yield {name: np.asarray(value) for name, value in values.items()}

    def outputs(self, values: Mapping[str, Any]) -> np.ndarray:
        """(B, n, d) for values {name: (B,)}, NaN where a simulation failed."""
        found = self._run(0, values, self._read_outputs)
        lost = np.full(self.shape, np.nan)
        return np.stack([lost if isinstance(one, Failure) else one for one in found])

    def slopes(self, values, upper, lower) -> tuple[np.ndarray, np.ndarray]:
        """Outputs (B, n, d) and their derivatives (B, n, d, p), 0 where there is none."""
        count, size = len(values[self.names[0]]), len(self.names)
        if self._slopes is not None:
            w, found = self.outputs(values), self._run(1, values, self._read_jacobian)
            lost = np.zeros((*self.shape, size))
            given = np.stack([lost if isinstance(one, Failure) else one for one in found])
            return w, given @ self._slopes
        # Row 0 is the centre, row 1 + 2k moves the k-th parameter up, the next one down.
        table = {name: np.tile(value, (2 * size + 1, 1)) for name, value in values.items()}
        for k, name in enumerate(self.names):
            table[name][1 + 2 * k], table[name][2 + 2 * k] = upper[name], lower[name]
        w = self.outputs({name: rows.ravel() for name, rows in table.items()})
        w = w.reshape(2 * size + 1, count, *self.shape)
        found = np.zeros((count, *self.shape, size))
        fine: np.ndarray = np.all(np.isfinite(w), axis=(2, 3))
        for k, name in enumerate(self.names):
            # Where one neighbour cannot be simulated, the centre stands for it.
            high = np.where(fine[1 + 2 * k], 1 + 2 * k, 0)
            low = np.where(fine[2 + 2 * k], 2 + 2 * k, 0)
            each = np.arange(count)
            rise = w[high, each] - w[low, each]
            width = table[name][high, each] - table[name][low, each]
            usable = (fine[0] & (width != 0))[:, None, None]
            safe = np.where(width == 0, 1.0, width)[:, None, None]
            found[..., k] = np.where(usable, np.where(usable, rise, 0.0) / safe, 0.0)
        return w[0], found

    def _run(self, which: int, values: Mapping[str, Any], read) -> list[Any]:
        count = len(values[self.names[0]])
        changed = self.model.changed({name: values[name] for name in self.names})
        p = {name: np.broadcast_to(np.asarray(v, float), (count,)) for name, v in changed.items()}
        return self.model.runner.run(which, self.x, Named(p, self.names), read)

    def _read_outputs(self, found: Any) -> np.ndarray:
        return as_table(found, self.model.outputs, self.shape)

    def _read_jacobian(self, found: Any) -> np.ndarray:
        if isinstance(found, Mapping):
            parts = [as_table(found[name], self.model.outputs, self.shape) for name in self.names]
            return np.stack(parts, axis=-1)
        return shaped(found, (*self.shape, len(self.names)))

    @cached_property
    def token(self) -> int:
        """What compiled code calls this solver, which from now on lives as long as the model."""
        token = self.model.runner.keep(self)
        _solvers[token] = self
        return token

    def _traced(self):
        """values → w as compiled code sees it: a callback, with a rule for its derivative."""
        n_by_d, size = self.shape, len(self.names)
        w_bits = jax.ShapeDtypeStruct((*n_by_d, 2), jnp.uint32)
        slope_bits = jax.ShapeDtypeStruct((*n_by_d, size, 2), jnp.uint32)

        token = np.array([self.token], dtype=np.uint32)

        @jax.custom_jvp
        def outputs(values):
            found = jax.pure_callback(
                _on_host, w_bits, token, _bits(values), vmap_method="broadcast_all"
            )
            return jax.lax.bitcast_convert_type(found, jnp.float64)

        @outputs.defjvp
        def _(primals, tangents):
            (values,), (directions,) = primals, tangents
            ends = [self._moved(values, sign) for sign in (1.0, -1.0)]
            found = jax.pure_callback(
                _on_host_with_slopes,
                (w_bits, slope_bits),
                token,
                *map(_bits, (values, *ends)),
                vmap_method="broadcast_all",
            )
            w, slopes = (jax.lax.bitcast_convert_type(part, jnp.float64) for part in found)
            along = jnp.stack([directions[name] for name in self.names])
            return w, slopes @ along

        return outputs

    def _moved(self, values, sign: float):
        return {
            name: parameter.constrain(parameter.theta_at(values[name]) + sign * self._steps[name])
            for name, parameter in self.model.parameters.items()
        }


# Compiled programs are told apart by their text, which does not show what a callback calls. So all
# of them call the same two functions, and a number says whose simulator is meant.
_solvers: weakref.WeakValueDictionary[int, ExternalSolver] = weakref.WeakValueDictionary()


def _on_host(token, values):
    (rows,), lead = _from_bits(values)
    return _to_bits(_meant(token).outputs(rows), lead)


def _on_host_with_slopes(token, values, upper, lower):
    given, lead = _from_bits(values, upper, lower)
    return tuple(_to_bits(part, lead) for part in _meant(token).slopes(*given))


def _meant(token) -> ExternalSolver:
    solver = _solvers.get(int(np.asarray(token).flat[0]))
    if solver is None:
        raise ComputationError("the ExternalModel that this was compiled for is no more: keep it.")
    return solver


def _is_plain(parameter: Parameter) -> bool:
    return parameter.transform == "identity" and parameter._bounds is None


def _slopes_of_changes(model: ExternalModel) -> np.ndarray | None:
    """∂(changed parameters)/∂(parameters): changes are linear. None where a constant moves."""
    names = model.parameters.names
    zero = model.changed(dict.fromkeys(names, 0.0))
    columns = []
    for name in names:
        there = model.changed({**dict.fromkeys(names, 0.0), name: 1.0})
        if any(there[c] != zero[c] for c in model.constants):
            return None
        columns.append(there.vector - zero.vector)
    return np.stack(columns, axis=-1)


# --- numbers as bits ------------------------------------------------------------------------------


def _bits(values: Mapping[str, Any]) -> dict[str, Array]:
    """Each number on its own: JAX may wait for ever to hand a large array to a callback."""
    return {
        name: jax.lax.bitcast_convert_type(jnp.asarray(value, jnp.float64), jnp.uint32)
        for name, value in values.items()
    }


def _from_bits(*given: Mapping[str, Any]):
    """[{name: (B,)}, ...] and the axes that B stands for."""
    first = next(iter(given[0].values()))
    lead = np.shape(first)[:-1]
    numbers = [
        {
            name: np.ascontiguousarray(np.asarray(value)).view(np.float64).reshape(-1)
            for name, value in part.items()
        }
        for part in given
    ]
    return numbers, lead


def _to_bits(values: np.ndarray, lead: tuple[int, ...]) -> np.ndarray:
    bits = np.ascontiguousarray(values, dtype=np.float64).view(np.uint32)
    return bits.reshape(*lead, *values.shape[1:], 2)
