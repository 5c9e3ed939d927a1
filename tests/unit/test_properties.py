"""What must hold for any particles and any data: κ is an inner product, and what has no say."""

import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from made_fits import growth_problem, made_fit

import pcuq
from pcuq import Data, FunctionModel, GaussianKernel, Intervention, Parameter, Problem
from pcuq.kernel_scale import on_kernel_scale
from pcuq.kernels import InverseMultiquadricKernel
from pcuq.objective import Objective

LAM, COUNT, ROWS = 0.02, 5, 6
X = np.array([0.0, 0.0, 0.5, 1.0, 1.0, 2.0])  # some measured twice
NOISE = np.array([0.3, 0.6])
ORDER = np.random.default_rng(3).permutation(ROWS)
THETAS = hnp.arrays(float, (COUNT, 2), elements=st.floats(-3, 3))
WEIGHTS = hnp.arrays(float, COUNT, elements=st.floats(0.01, 1))
TABLES = hnp.arrays(float, (ROWS, 2), elements=st.floats(-4, 4))
KERNELS = {
    "product": GaussianKernel([0.4, 0.8]),
    "sum": GaussianKernel([0.4, 0.8], combine="sum"),
    "over x": GaussianKernel([0.4, 0.8], lengthscale_x=0.7),
    "heavy tails": InverseMultiquadricKernel([0.4, 0.8]),
}


with jax.enable_x64(True):
    LINE = growth_problem()
    OF_LINE = Objective(LINE)


def problem_of(kernel, y, x=X, units=1.0):
    model = FunctionModel(
        lambda x, p: [units * (p["a"] + p["b"] * x), units * p["a"] * p["b"]],
        {"a": Parameter(), "b": Parameter()},
        ("u", "v"),
    )
    return Problem(model, Data(units * y, x, units * NOISE), kernel)


class Energies:
    """Figures of a problem with any data in place, compiled once."""

    def __init__(self, kernel, x=X, units=1.0):
        self.units = units
        self.problem = problem_of(kernel, np.zeros((ROWS, 2)), x, units)
        self.objective = Objective(self.problem)
        self._compiled = jax.jit(self._all)

    def __call__(self, thetas, y):
        rows = Problem(
            self.problem.model, Data(self.units * y, self.problem.data.x, self.units * NOISE)
        )
        placed = Problem(self.problem.model, rows.data, self.problem.kernel)
        objective = self.objective.given(on_kernel_scale(placed))
        return self._compiled(jnp.asarray(thetas), objective.y), objective.constant

    def _all(self, thetas, y):
        objective = self.objective.given(y)
        features = objective.features(thetas)
        value, gradient = objective.joint_value_and_gradient(thetas, LAM)
        return (
            objective.data_terms(features),
            objective.pair_block(features, features),
            value,
            gradient,
        )


@pytest.fixture(scope="module", params=list(KERNELS))
def energies(request):
    return Energies(KERNELS[request.param])


def gram(found):
    (v, pairs, *_), constant = found
    return np.asarray(constant - v[:, None] - v[None, :] + pairs)


@pytest.mark.quick("product", "heavy tails")
@given(thetas=THETAS, y=TABLES)
def test_kappa_is_an_inner_product(energies, thetas, y):
    """Symmetric and positive semi-definite, so that every MMD² of a mixture is at least 0."""
    matrix = gram(energies(thetas, y))
    np.testing.assert_allclose(matrix, matrix.T, rtol=1e-12, atol=1e-14)
    assert np.linalg.eigvalsh(matrix).min() > -1e-12


@pytest.mark.quick("product", "heavy tails")
@given(thetas=THETAS, y=TABLES, weights=WEIGHTS, others=WEIGHTS)
def test_mmd_is_at_least_zero_and_zero_between_equal_mixtures(energies, thetas, y, weights, others):
    """Of a mixture to the data and to another; a particle twice is one of twice the mass."""
    thetas = thetas.copy()
    thetas[1] = thetas[0]
    matrix = gram(energies(thetas, y))
    weights, others = weights / weights.sum(), others / others.sum()
    assert weights @ matrix @ weights > -1e-12
    assert (weights - others) @ matrix @ (weights - others) > -1e-12
    moved = weights.copy()
    moved[:2] = weights[0] + weights[1], 0.0
    assert abs((weights - moved) @ matrix @ (weights - moved)) < 1e-12


@pytest.mark.quick("sum")
@pytest.mark.parametrize("name", KERNELS)
def test_mmd_of_a_model_that_runs_through_the_data_is_zero(name):
    """Without noise to speak of, P_θ is the data; a model beside them is not."""
    model = problem_of(KERNELS[name], np.zeros((ROWS, 2))).model
    zeros = Problem(model, Data(np.zeros((ROWS, 2)), X, 1e-9), KERNELS[name])
    objective = Objective(zeros)

    @jax.jit
    def without_constant(theta, y):
        features, here = objective.features(theta[None]), objective.given(y)
        return here.pair_block(features, features)[0, 0] - 2 * here.data_terms(features)[0]

    def mmd2(theta, y):
        return objective.given(y).constant + without_constant(jnp.asarray(theta), y)

    @given(st.floats(-2, 2), st.floats(-2, 2))
    def through(a, b):
        p, q = 1 / (1 + np.exp(-np.array([a, b])))
        y = np.stack([p + q * X, np.full(ROWS, p * q)], axis=1)
        placed = on_kernel_scale(Problem(model, Data(y, X, 1e-9), KERNELS[name]))
        assert abs(float(mmd2([a, b], placed))) < 1e-12
        assert float(mmd2([a + 1.0, b], placed)) > 1e-4

    through()


@pytest.mark.quick("product", "heavy tails")
@given(thetas=THETAS, y=TABLES, seed=st.integers(0, 99))
def test_the_order_of_particles_does_not_matter(energies, thetas, y, seed):
    order = np.random.default_rng(seed).permutation(COUNT)
    (_, _, value, gradient), _ = energies(thetas, y)
    (_, _, other, other_gradient), _ = energies(thetas[order], y)
    np.testing.assert_allclose(other, value, rtol=1e-11)
    np.testing.assert_allclose(other_gradient, gradient[order], rtol=1e-8, atol=1e-9)


@pytest.mark.quick("product", "heavy tails")
@given(thetas=THETAS, y=TABLES)
def test_the_gradient_is_that_of_the_value(energies, thetas, y):
    direction = np.random.default_rng(0).normal(size=thetas.shape)
    (_, _, _, gradient), _ = energies(thetas, y)
    step = 1e-5
    above, below = (energies(thetas + sign * step * direction, y)[0][2] for sign in (1, -1))
    slope = (float(above) - float(below)) / (2 * step)
    wanted = float(np.sum(np.asarray(gradient) * direction))
    assert abs(slope - wanted) < 1e-4 * max(1.0, np.abs(gradient).max())


@pytest.fixture(scope="module", params=list(KERNELS))
def rearranged(request):
    """The same problem as it is, with its rows in another order, and in other units."""
    kernel, units = KERNELS[request.param], 1e3
    wider = type(kernel)(
        [units * length for length in kernel.lengthscale_y],
        lengthscale_x=kernel.lengthscale_x,
        combine=kernel.combine,
    )
    return Energies(kernel), Energies(kernel, X[ORDER]), Energies(wider, units=units)


@pytest.mark.quick("over x")
@given(thetas=THETAS, y=TABLES)
def test_neither_the_order_of_rows_nor_units_matter(rearranged, thetas, y):
    plain, mixed, scaled = rearranged
    wanted = gram(plain(thetas, y))
    np.testing.assert_allclose(gram(mixed(thetas, y[ORDER])), wanted, rtol=1e-10, atol=1e-13)
    np.testing.assert_allclose(gram(scaled(thetas, y)), wanted, rtol=1e-9, atol=1e-13)


@settings(max_examples=5)  # each compiles four models
@given(st.floats(0.1, 3.0), st.floats(0.1, 3.0), st.floats(-1.0, 1.0))
def test_interventions_compose(first, second, shift):
    """Scaling twice is scaling by the product, and `do` of both is one after the other."""
    model = problem_of(GaussianKernel(), np.zeros((ROWS, 2))).model
    at = {"a": 0.7, "b": -1.2}
    twice = model.do(Intervention(scale={"a": first})).do(Intervention(scale={"a": second}))
    once = model.do(Intervention(scale={"a": first * second}))
    both = [Intervention(scale={"a": first}), Intervention(shift={"b": shift})]
    together, apart = model.do(both), model.do(both[0]).do(both[1])
    for one, other in ((twice, once), (together, apart)):
        for name, series in one.simulate([0.0, 1.0], at).items():
            np.testing.assert_allclose(series, other.simulate([0.0, 1.0], at)[name], rtol=1e-12)


@settings(max_examples=5)  # each writes a file
@given(
    centre=st.tuples(st.floats(-3, 3), st.floats(-3, 3)),
    spread=st.floats(0, 2),
    draws=st.integers(4, 12),
    method=st.sampled_from(["pcuq", "bayes"]),
    trusted=st.booleans(),
    figure=st.floats(allow_nan=False, allow_infinity=False),
)
def test_a_fit_that_is_saved_and_read_is_the_same(centre, spread, draws, method, trusted, figure):
    given = {"objective": OF_LINE, "curves": False, "figure": figure}
    fit = made_fit(LINE, method, spread, centre, draws, trusted, **given)
    with tempfile.TemporaryDirectory() as folder:
        again = pcuq.load(fit.save(Path(folder) / "fit.nc"), LINE)
    assert again.tree.groups == fit.tree.groups
    for group in fit.tree.groups:
        one, other = fit.tree[group].to_dataset(), again.tree[group].to_dataset()
        assert set(one.variables) == set(other.variables)
        for name in one.variables:
            np.testing.assert_array_equal(other[name].to_numpy(), one[name].to_numpy())
    assert again.diagnostics == fit.diagnostics and again.diagnostics["figure"] == figure
    assert (again.status, again.trusted, again.method) == (fit.status, fit.trusted, fit.method)
