"""The kernel integrated over the noise by Monte Carlo: for joint noise and the unadjusted flow.

With draws Y_r and weights W_r, r = 1..R, of each particle's law at each atom,

    e(y; θ)   ≈ Σ_r W_r k(y, Y_r),        e0(θ, ϑ) ≈ Σ_rr' W_r W'_r' k(Y_r, Y'_r').

* Reparametrisation: Y_r = f_θ(U_r) is differentiable in θ, W_r = 1/R.
* Score function: Y_r is held fixed, W_r = p_θ(Y_r) / (R [p_θ(Y_r)]), [·] held fixed too: 1/R in
  value, ∇ log p_θ(Y_r) / R in gradient. It asks for a density and nothing of the draws.

Draws are independent between particles, so that e0 and its gradient are unbiased for θ ≠ ϑ, and
so is the gradient of the joint log density. κ0(θ, θ) would be biased upwards: its diagonal shares
draws, and the joint density leaves it out.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from pcuq._given import whole_number
from pcuq._x64 import x64
from pcuq.embedding import Embedding, Setting
from pcuq.errors import InputError
from pcuq.likelihood import scales_at_points
from pcuq.noise import JointNoise, LocationScale, Noise
from pcuq.objective import Features, Objective, Others
from pcuq.problem import Predictor, Problem

STRATEGIES = ("reparametrisation", "score")


class MonteCarlo(Embedding):
    """Draws (M, R, k) of the observed outputs and weights (M, R) as representation."""

    def __init__(
        self, setting: Setting, noises: tuple[Noise, ...], draws: int, strategy: str = "auto"
    ):
        super().__init__(setting)
        self.noises, self.draws = noises, whole_number("draws", draws, 2)
        self.strategy = _check_strategy(strategy, noises)
        self.data_size, self.pair_size = self.draws, self.draws**2

    def represent(self, w: Array, s: Array, key: Array | None = None) -> tuple[Array, Array]:
        """From predictions (M, d) of all outputs, in the data's units, and scales (M, d)."""
        assert key is not None
        keys = jax.random.split(key, self.draws)
        z, log_density = jax.vmap(lambda one: self._draw(one, w, s), out_axes=1)(keys)
        columns = self.setting.design.columns[:, None]
        z = jnp.take_along_axis(z, jnp.broadcast_to(columns, (*z.shape[:2], columns.shape[-1])), -1)
        if log_density is None:
            return z, jnp.full(z.shape[:2], 1.0 / self.draws)
        ratio = jnp.exp(log_density - jax.lax.stop_gradient(log_density))
        return z, ratio / self.draws

    def _draw(self, key, w, s):
        """One draw of every atom on the kernel's scale (M, d), and its log density (M,) or None."""
        score = self.strategy == "score"
        if isinstance(self.noises[0], JointNoise):
            noise = self.noises[0]
            y = noise.sample(key, w, s)
            y = jax.lax.stop_gradient(y) if score else y
            return noise.forward(y), noise.log_prob(y, w, s) if score else None
        mask = _observed(self.setting.design, len(self.noises))
        columns, log_density = [], 0.0
        for c, (noise, one) in enumerate(
            zip(self.noises, jax.random.split(key, len(self.noises)), strict=True)
        ):
            location = noise.forward(w[:, c])
            if isinstance(noise, LocationScale):
                z = location + s[:, c] * noise.standard_sample(one, location.shape)
            else:
                z = noise.forward(noise.sample(one, w[:, c], s[:, c]))
            if score:
                z = jax.lax.stop_gradient(z)
                # Outputs that no kernel sees would only add variance.
                log_density += jnp.where(mask[:, c], noise.log_density(z, location, s[:, c]), 0.0)
            columns.append(z)
        return jnp.stack(columns, axis=-1), log_density if score else None

    def constants(self, atoms):
        # A missing entry has the scaled difference 0, and the kernel is 1 there.
        return {"per_length": self.setting.design.mask[atoms] / self.setting.lengthscale[atoms]}

    def data(self, y, representation, constants):
        z, weights = representation
        r = (y[..., None, :] - z) * constants["per_length"][..., None, :]
        return jnp.sum(weights * self._kernel(r), axis=-1)

    def pair(self, left, right, constants):
        (z, weights), (other, other_weights) = left, right
        r = z[..., :, None, :] - other[..., None, :, :]
        k = self._kernel(r * constants["per_length"][..., None, None, :])
        return jnp.einsum("...r,...rq,...q->...", weights, k, other_weights)

    def _kernel(self, r):
        return jnp.prod(self.setting.kernel.profile(r), axis=-1)


class Report(NamedTuple):
    """How far the estimate may be off, in the units of the log density."""

    v: Float[Array, " N"]
    standard_error: Float[Array, " N"]  # of v/λ, by the spread over draws


class MonteCarloObjective(Objective):
    """The energy of particles by Monte Carlo: functions of a key, fresh draws for each.

    `draws`: R, of each atom. `strategy`: "reparametrisation" or "score"; "auto" takes the former
    where the draws are differentiable: additive noise, and joint noise.
    """

    embedding: MonteCarlo

    @x64
    def __init__(
        self,
        problem: Problem,
        draws: int = 32,
        strategy: str = "auto",
        predictor: Predictor | None = None,
        lengthscale: np.ndarray | None = None,
        mode: str | None = None,
    ):
        self.draws, self.strategy = draws, strategy
        super().__init__(problem, predictor, lengthscale, mode)

    def _make_embedding(self, force: str | None) -> MonteCarlo:
        design = self.problem.design
        setting = Setting(design, self.problem.kernel, self.lengthscale[design.columns], None)
        return MonteCarlo(setting, self.problem.data.noises, self.draws, self.strategy)

    # --- one particle -----------------------------------------------------------------------

    def _of_outputs(self, outputs, ok, theta) -> tuple[Any, Bool[Array, ""]]:
        """(w, s) of all outputs at the atoms, in the data's units, 1 where they are not used."""
        problem, design = self.problem, self.problem.design
        w = outputs[design.atom_points][:, problem.columns]
        static = jnp.asarray(problem.scale.static[design.atom_rows])
        scales = scales_at_points(problem, outputs, theta)
        s = static if scales is None else jnp.where(static > 0, static, scales[design.atom_points])
        noises = problem.data.noises
        # Joint noise draws all outputs of a row at once, so that all of them are used.
        used = _observed(design, len(noises)) | noises[0].joint
        values, known = zip(*(n.measurable(w[:, c]) for c, n in enumerate(noises)), strict=True)
        w = jnp.stack(values, axis=-1)
        fine = (s > 0) & jnp.isfinite(s) & jnp.stack(known, axis=-1)
        ok = ok & jnp.all(fine | ~used)
        return (jnp.where(ok & fine & used, w, 1.0), jnp.where(ok & fine & used, s, 1.0)), ok

    def represent(self, prediction: Any, *keys: Array) -> Any:
        """Draws and weights of a prediction, for one key."""
        return self.embedding.represent(*prediction, *keys)

    # --- many particles ---------------------------------------------------------------------

    def particle_keys(self, key: Array, count: int) -> Array:
        """A key for each particle: draws that are shared would bias the pair term."""
        return jax.random.split(key, count)

    def features(self, thetas: Float[Array, "N p"], key: Array | None = None) -> Features:
        """Features on fresh draws; without a key, always on the same ones."""
        key = jax.random.key(0) if key is None else key
        return super().features(thetas, self.particle_keys(key, len(thetas)))

    def features_of(self, outputs, ok, thetas, *keys) -> Features:
        if not keys:
            # Another number of particles, other draws: those of Q and of points where it is tried
            # must not be the same.
            key = jax.random.fold_in(jax.random.key(0), len(thetas))
            keys = (self.particle_keys(key, len(thetas)),)
        return super().features_of(outputs, ok, thetas, *keys)

    def joint_evaluation(
        self,
        thetas: Float[Array, "N p"],
        lam: Array | float,
        key: Array | None = None,
        others: Others | None = None,
    ):
        """Unbiased estimates of log π(Θ), its gradient and v, and ok."""
        key = jax.random.key(0) if key is None else key
        keys = self.particle_keys(key, len(thetas))
        return super().joint_evaluation(thetas, lam, keys, others=others)

    def report(self, thetas: Float[Array, "N p"], lam: Array | float, key: Array) -> Report:
        """The data terms and the standard error of v/λ: draws are independent, v is their mean."""
        features = self.features(thetas, key)

        def of_each_draw(z):
            return jax.vmap(lambda z: self.data_term((z[:, None], jnp.ones((len(z), 1)))), 1)(z)

        v = jax.vmap(of_each_draw)(features.representation[0])
        error = jnp.std(v, axis=1, ddof=1) / jnp.sqrt(self.embedding.draws)
        error = jnp.where(features.ok, error, 0.0)
        return Report(jnp.where(features.ok, jnp.mean(v, axis=1), 0.0), error / lam)


def _observed(design, d: int) -> np.ndarray:
    """(M, d) True where an atom's kernel sees the output."""
    seen = np.zeros((len(design.counts), d), dtype=bool)
    np.put_along_axis(seen, design.columns, design.mask, axis=1)
    return seen


def _check_strategy(strategy: str, noises: tuple[Noise, ...]) -> str:
    if strategy not in ("auto", *STRATEGIES):
        raise InputError(
            f"`strategy` needs 'auto' or one of {', '.join(STRATEGIES)}: got {strategy!r}."
        )
    differentiable = all(isinstance(n, (LocationScale, JointNoise)) for n in noises)
    if strategy == "reparametrisation" and not differentiable:
        kinds = sorted({type(noise).__name__ for noise in noises})
        raise InputError(
            "reparametrisation needs draws that are differentiable in the model's outputs: "
            f"{', '.join(kinds)} noise has none; use strategy='score'."
        )
    if strategy == "score" and any(isinstance(n, JointNoise) and n.log_pdf is None for n in noises):
        raise InputError("strategy='score' under JointNoise needs its `log_pdf`: give one.")
    return ("reparametrisation" if differentiable else "score") if strategy == "auto" else strategy
