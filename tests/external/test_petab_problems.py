"""Published problems: reference log-likelihoods at the nominal point, and their gradients."""

import jax
import numpy as np
import pytest

import pcuq

REFERENCE = {
    "Fiedler_BMCSystBiol2016": 58.58390161681,
    "Boehm_JProteomeRes2014": -138.22199693517703,
    "Bruno_JExpBot2016": 46.688176988431806,
    "Crauste_CellSystems2017": -190.96521897435176,
    "Fujita_SciSignal2010": 53.08377736998929,
    "Sneyd_PNAS2002": 319.79177818768756,
}
QUICK = ("Crauste_CellSystems2017",)


def load(external_data, name):
    return pcuq.from_petab(external_data / "petab" / name / f"{name}.yaml")


@pytest.mark.parametrize(
    "name", [n if n in QUICK else pytest.param(n, marks=pytest.mark.slow) for n in REFERENCE]
)
def test_likelihood_at_the_nominal_point_is_the_published_one(external_data, name):
    problem = load(external_data, name)
    found = float(pcuq.log_likelihood(problem, problem.nominal))
    assert found == pytest.approx(REFERENCE[name], rel=1e-4)


@pytest.mark.slow
def test_stiff_solves_near_the_nominal_point_all_succeed(external_data):
    problem = load(external_data, "Sneyd_PNAS2002")
    value = jax.jit(lambda theta: pcuq.log_likelihood(problem, theta))
    draws = np.random.default_rng(0).normal(size=(20, len(problem.parameters)))
    assert all(np.isfinite(value(theta)) for theta in problem.nominal + 0.1 * draws)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "name", ["Boehm_JProteomeRes2014", "Fujita_SciSignal2010", "Sneyd_PNAS2002"]
)
def test_gradient_agrees_with_central_differences(external_data, name):
    problem = load(external_data, name)
    value = jax.jit(lambda theta: pcuq.log_likelihood(problem, theta))
    gradient = jax.jit(jax.grad(value))
    draws = np.random.default_rng(0).normal(size=(20, len(problem.parameters)))
    h = 1e-4
    for theta in problem.nominal + 0.1 * draws:
        steps = h * np.eye(len(theta))
        wanted = [float(value(theta + s) - value(theta - s)) / (2 * h) for s in steps]
        error = np.abs(np.asarray(gradient(theta)) - wanted)
        assert np.max(error) < 1e-4 * np.max(np.abs(wanted))


def test_pulses_and_ramps_of_fujita_are_conditions_of_the_same_model(external_data):
    folder = external_data / "petab" / "Fujita_SciSignal2010" / "test_data"
    problem = pcuq.from_petab(folder / "input_pulse_Fujita_SciSignal2010.yaml")
    assert np.sum(problem.data.observed) == 144
    ends = {
        segment.start
        for label in problem.conditions
        for segment in pcuq.models.segments.cut(problem.model_for(label), np.array([3600.0]))
    }
    assert ends == {0.0, 60.0}
