"""The standard posterior for the lynx and hare pelts, against published reference draws.

Means and sds of 10,000 reference draws from posteriordb (hudson_lynx_hare-lotka_volterra), for the
model and priors of `pcuq.zoo.lynx_hare`. No data from outside are read.

    python tests/statistical/test_lynx_hare.py

prints how far the draws of each sampler are from them.
"""

import numpy as np
import pytest

import pcuq
from pcuq import diagnostics
from pcuq.baselines.bayes import log_posteriors
from pcuq.samplers.base import sample
from pcuq.samplers.nuts import ParallelNuts
from pcuq.samplers.shared import of_one
from pcuq.zoo import lynx_hare

REFERENCE = {
    "alpha": (0.546864, 0.063055),
    "beta": (0.027747, 0.004155),
    "gamma": (0.800095, 0.089370),
    "delta": (0.024086, 0.003528),
    "hare_0": (34.035222, 2.916899),
    "lynx_0": (5.935897, 0.530552),
    "sigma_1": (0.248057, 0.043263),
    "sigma_2": (0.251017, 0.043590),
}
REFERENCE_DRAWS = 10_000
CHAINS = 16
SAMPLERS = ("nuts", "mala", "ensemble")

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def run():
    problem = lynx_hare.problem()
    assert problem.parameters.names == tuple(REFERENCE)
    mean, sd = np.array(list(REFERENCE.values())).T
    rng = np.random.default_rng(1)

    def near(count):
        # Begins twice as wide as the posterior: where to begin is not what is tested here.
        return np.log(mean) + 2 * sd / mean * rng.normal(size=(count, len(mean)))

    predictor = problem.predictor(near(12), mode="forward")
    starts = near(CHAINS)[None]
    sampler = ParallelNuts(of_one(log_posteriors(problem, predictor)))
    return sample(sampler, starts, np.zeros((1, CHAINS)), seed=0, warmup=300, draws=400, thin=1)


def test_posterior_means_and_sds_are_those_of_the_reference_draws(run):
    natural = np.exp(np.moveaxis(run.theta[0], 0, 1))
    check(natural)
    # The same check finds draws that are shifted by 0.3 sd, or a quarter too wide.
    centre, spread = natural.mean(axis=(0, 1)), natural.std(axis=(0, 1))
    for broken in (natural + 0.3 * spread, centre + 1.25 * (natural - centre)):
        with pytest.raises(AssertionError):
            check(broken)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_fits_by_every_sampler_are_those_of_the_reference_draws(sampler):
    natural, fit = fitted(sampler)
    check(natural)
    assert fit.trusted, fit.status


def fitted(sampler):
    fit = pcuq.fit(lynx_hare.problem(), method="bayes", sampler=sampler)
    posterior = fit.tree["posterior"]
    return np.stack([posterior[name].values for name in REFERENCE], axis=-1), fit


def check(natural):
    mean, sd = np.array(list(REFERENCE.values())).T
    assert (diagnostics.ess_mean(natural) > 1000).all()
    # The reference has an error of its own.
    error = np.hypot(diagnostics.mcse_mean(natural), sd / np.sqrt(REFERENCE_DRAWS))
    difference = np.abs(natural.mean(axis=(0, 1)) - mean)
    assert (difference < np.maximum(4 * error, 0.05 * sd)).all(), difference / error
    np.testing.assert_allclose(natural.std(axis=(0, 1)), sd, rtol=0.1)


def test_chains_agree_and_none_diverges(run):
    assert (diagnostics.rhat(np.moveaxis(run.theta[0], 0, 1)) < 1.01).all()
    assert run.info["divergent"].mean() < 0.001
    assert not run.failed.any()
    assert run.info["acceptance"].mean() == pytest.approx(0.8, abs=0.05)


def main():
    print("sampler    mean, sds away   sd, ratio       R-hat   ESS")
    mean, sd = np.array(list(REFERENCE.values())).T
    for sampler in SAMPLERS:
        natural, fit = fitted(sampler)
        away = np.abs(natural.mean(axis=(0, 1)) - mean) / sd
        ratio = natural.std(axis=(0, 1)) / sd
        found = fit.diagnostics
        print(
            f"{sampler:10s} {away.max():14.3f}   {ratio.min():.3f}–{ratio.max():.3f}"
            f"   {found['rhat_max']:7.3f}   {found['ess_min']:.0f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
