"""e and e0 of every strategy against integrals and sums that scipy computes.

One datum y without a covariate has v(θ) = e(y; θ) and κ0(θ, ϑ) = e0(θ, ϑ): the objective of such a
problem is the embedding itself.
"""

import itertools
import math

import brute_force
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats
from scipy.interpolate import CubicHermiteSpline
from scipy.signal import fftconvolve

from pcuq import embedding as embeddings
from pcuq import quadrature
from pcuq.data import Data
from pcuq.errors import InputError
from pcuq.kernels import (
    GaussianKernel,
    GaussianMixtureKernel,
    InverseMultiquadricKernel,
    MaternKernel,
    RationalQuadraticKernel,
)
from pcuq.models import FunctionModel
from pcuq.noise import (
    CustomNoise,
    Gaussian,
    JointNoise,
    Laplace,
    LogNormal,
    NegativeBinomial,
    Poisson,
    StudentT,
)
from pcuq.objective import Objective
from pcuq.parameters import Parameter
from pcuq.problem import Problem

LENGTH = 0.8
KERNELS = {
    "gaussian": GaussianKernel(LENGTH),
    "mixture": GaussianMixtureKernel(LENGTH),
    "inverse multiquadric": InverseMultiquadricKernel(LENGTH),
    "rational quadratic": RationalQuadraticKernel(LENGTH, alpha=0.7),
    "Matérn 3/2": MaternKernel(LENGTH),
    "Matérn 5/2": MaternKernel(LENGTH, nu=2.5),
}
MODEL = FunctionModel(
    lambda x, p: [p["mean"]], {"mean": Parameter("identity"), "scale": Parameter("log")}, ("y",)
)


def e_and_e0(y, noise, kernel, means, scales, force=None):
    """e(y) of each (mean, scale), and e0 of each pair."""
    objective = Objective(Problem(MODEL, Data([[y]], noise=noise), kernel), force=force)
    thetas = np.stack([means, np.log(np.broadcast_to(scales, np.shape(means)))], axis=-1)
    v, block = jax.jit(lambda thetas: terms(objective, thetas))(jnp.asarray(thetas))
    return np.asarray(v), np.asarray(block), objective


def terms(objective, thetas):
    features = objective.features(thetas)
    return objective.data_terms(features), objective.pair_block(features, features)


FAMILIES = {"gaussian": Gaussian, "laplace": Laplace, "student": StudentT}


def numpy_profile(kernel):
    """The kernels' formulas once more, in numpy and for numbers."""
    if isinstance(kernel, GaussianKernel):
        return lambda r: math.exp(-r * r / 2)
    if isinstance(kernel, GaussianMixtureKernel):
        return lambda r: sum(math.exp(-r * r / 2 / m**2) for m in (0.5, 1.0, 2.0, 4.0)) / 4
    if isinstance(kernel, InverseMultiquadricKernel):
        return lambda r: 1 / math.hypot(1.0, r)
    if isinstance(kernel, RationalQuadraticKernel):
        return lambda r: (1 + r * r / 1.4) ** -0.7
    if kernel.nu == 1.5:
        return lambda r: (1 + math.sqrt(3) * abs(r)) * math.exp(-math.sqrt(3) * abs(r))
    a = math.sqrt(5)
    return lambda r: (1 + a * abs(r) + 5 * r * r / 3) * math.exp(-a * abs(r))


def pdf(name):
    if name == "gaussian":
        return lambda z: math.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    if name == "laplace":
        return lambda z: math.exp(-abs(z)) / 2
    return lambda z: 0.375 * (1 + z * z / 4) ** -2.5  # t(4)


def e_by_quad(kernel, name, difference, s):
    k, p = numpy_profile(kernel), pdf(name)
    at = difference / s
    breaks = [at + side * step * LENGTH / s for side in (-1, 1) for step in (0, 1, 3, 8)]
    return brute_force.integral(lambda z: k((difference - s * z) / LENGTH) * p(z), 0.0, 1.0, breaks)


def e0_by_sum(kernel, name, difference, s, t):
    """Trapezoidal in arsinh z: 1,200 nodes for either noise."""
    u = np.linspace(-9.0, 9.0, 1201)
    z, dz = np.sinh(u), np.cosh(u) * (u[1] - u[0])
    if name == "laplace":  # a kink at 0: panels on either side
        x, weights = np.polynomial.legendre.leggauss(16)
        edges = np.array([0, 0.5, 1, 2, 3, 4, 6, 8, 11, 15, 20, 30, 40.0])
        half = np.diff(edges)[:, None] / 2
        z, dz = (edges[:-1, None] + half + half * x).ravel(), (half * weights).ravel()
        z, dz = np.concatenate([-z, z]), np.concatenate([dz, dz])
    density = np.vectorize(pdf(name))(z) * dz
    r = difference + t * z[:, None] - s * z[None, :]
    return density @ np.exp(-((r / LENGTH) ** 2) / 2) @ density


PAIRS = [
    *itertools.product(["laplace", "student"], [k for k in KERNELS if k != "mixture"]),
    ("gaussian", "inverse multiquadric"),
]


@pytest.mark.parametrize(("name", "kernel"), PAIRS)
def test_a_table_holds_the_integral_over_one_noise(name, kernel):
    kernel, ratio = KERNELS[kernel], 0.75
    values, slopes = embeddings.tabulate(kernel, FAMILIES[name](), ratio, 0.0)
    width = math.hypot(1.0, ratio) * LENGTH
    spots = np.array([0, 3, 40, 130, 190, 300])  # some of its own differences
    differences = width * np.sinh(spots * embeddings.TABLE_STEP)
    wanted = [e_by_quad(kernel, name, r, ratio * LENGTH) for r in differences]
    np.testing.assert_allclose(np.exp(values[spots]), wanted, rtol=1e-9)
    # The slope is the derivative per step, by central differences of the integral.
    step = 1e-3
    above, below = (
        math.log(e_by_quad(kernel, name, width * math.sinh(1.3 + side), ratio * LENGTH))
        for side in (step, -step)
    )
    slope = (above - below) / (2 * step) * embeddings.TABLE_STEP
    np.testing.assert_allclose(slopes[130], slope, rtol=3e-6)
    assert abs(slopes[0]) < 1e-15  # e is even


@pytest.mark.parametrize("name", ["laplace", "student"])
def test_tables_are_read_between_their_nodes_and_beyond(name):
    kernel, noise = KERNELS["gaussian"], FAMILIES[name](0.6)
    means = np.array([0.0, 0.013, 0.4, 1.1, 2.7, 6.0, 45.0])
    found, block, objective = e_and_e0(0.0, noise, kernel, means, 1.0)
    assert isinstance(objective.embedding, embeddings.Table)
    wanted = np.array([e_by_quad(kernel, name, mean, 0.6) for mean in means])
    np.testing.assert_allclose(found[:-1], wanted[:-1], rtol=3e-8)
    pairs = [e0_by_sum(kernel, name, mean, 0.6, 0.6) for mean in means[:5]]
    np.testing.assert_allclose(block[0, :5], pairs, rtol=1e-7)


def test_half_the_step_makes_no_better_table(monkeypatch):
    """The middle of each piece, against the table that has a node there."""
    given = KERNELS["gaussian"], StudentT(), 0.75, 0.0
    values, slopes = embeddings.tabulate(*given)
    monkeypatch.setattr(embeddings, "TABLE_STEP", embeddings.TABLE_STEP / 2)
    finer, _ = embeddings.tabulate(*given)
    middle = (values[1:] + values[:-1]) / 2 + (slopes[:-1] - slopes[1:]) / 8
    np.testing.assert_allclose(middle, finer[1::2][: len(middle)], rtol=0, atol=1e-8)


def test_a_table_is_read_as_cubic_pieces_and_a_straight_line_beyond(monkeypatch):
    """Numbers at random for what is tabulated: no piece goes on as another one does."""
    scales, last = (0.6, 1.3), 5
    values, slopes = np.random.default_rng(0).normal(size=(2, 5, last + 1))
    tables, asked = zip(values, slopes, strict=True), []

    def tabulated(kernel, noise, *ratios):
        asked.append(LENGTH * np.array(ratios))
        return next(tables)

    monkeypatch.setattr(embeddings, "tabulate", tabulated)
    data = Data([[0.0], [1.0]], noise=Laplace(np.array(scales)[:, None]))
    embedding = Objective(Problem(MODEL, data, KERNELS["gaussian"])).embedding
    # One noise each, the smaller first, and their pairs; 0 is no noise at all.
    wanted = [(0.6, 0.0), (1.3, 0.0), (0.6, 0.6), (1.3, 0.6), (1.3, 1.3)]
    np.testing.assert_allclose(asked, wanted, rtol=1e-9, atol=0)
    u = np.array([0.0, 0.3, 1.0, 2.7, 4.6, 5.0, 5.4, 9.0])
    for table, scale in enumerate(scales):
        r = math.hypot(LENGTH, scale) * np.sinh(u * embeddings.TABLE_STEP)
        place = list(embedding.data_constants()["table"][:, 0]).index(table)
        constants = jax.tree.map(lambda leaf, i=place: leaf[i], embedding.data_constants())
        pieces = CubicHermiteSpline(np.arange(last + 1), values[table], slopes[table])
        wanted = pieces(np.minimum(u, last)) + np.maximum(u - last, 0) * slopes[table, last]
        for side in (1, -1):
            found = embedding.log_data(side * r[:, None], (np.zeros((len(r), 1)),), constants)
            np.testing.assert_allclose(found[:, 0], wanted, rtol=1e-10, atol=1e-10)


def test_beyond_a_table_a_heavy_tail_stays_a_power():
    kernel = InverseMultiquadricKernel(LENGTH)
    found, _, _ = e_and_e0(0.0, Laplace(0.6), kernel, np.array([1e3, 1e5, 1e7]), 1.0)
    np.testing.assert_allclose(found, LENGTH / np.array([1e3, 1e5, 1e7]), rtol=1e-5)


def test_rows_with_different_noise_have_tables_of_their_own():
    kernel, scales = KERNELS["gaussian"], (0.6, 1.3)
    model = FunctionModel(lambda x, p: [p["mean"]], {"mean": Parameter("identity")}, ("y",))
    data = Data([[0.0], [1.0]], noise=Laplace(np.array(scales)[:, None]))
    objective = Objective(Problem(model, data, kernel))
    assert len(objective.embedding.values) == 2 + 3  # one noise each, and their pairs
    v, block = jax.jit(lambda thetas: terms(objective, thetas))(jnp.array([[0.0], [1.7]]))
    wanted = np.mean([e0_by_sum(kernel, "laplace", 1.7, s, t) for s in scales for t in scales])
    np.testing.assert_allclose(block[0, 1], wanted, rtol=1e-7)
    wanted = np.mean([e_by_quad(kernel, "laplace", y, s) for y in (0.0, 1.0) for s in scales])
    np.testing.assert_allclose(v[0], wanted, rtol=1e-7)


@pytest.mark.parametrize("name", ["laplace", "student"])
@pytest.mark.parametrize("ratio", [0.25, 1.0])
def test_a_scale_that_is_a_parameter_is_a_mixture_of_closed_forms(name, ratio):
    """`ratio` is ℓ/s; the error is relative to the largest value."""
    kernel, s = KERNELS["gaussian"], LENGTH / ratio
    means = s * np.array([0.0, 0.2, 0.7, 1.5, 3.0, 7.0])
    found, block, objective = e_and_e0(0.0, FAMILIES[name]("scale"), kernel, means, s)
    assert isinstance(objective.embedding, embeddings.ScaleMixture)
    wanted = np.array([e_by_quad(kernel, name, mean, s) for mean in means])
    pairs = np.array([e0_by_sum(kernel, name, mean, s, s) for mean in means])
    assert np.max(np.abs(found - wanted)) < 3e-6 * wanted.max()
    assert np.max(np.abs(block[0] - pairs)) < 3e-6 * pairs.max()


def test_a_known_scale_is_a_mixture_of_closed_forms_as_well():
    """As where there are too many scales for tables."""
    means = np.array([0.0, 0.2, 0.7, 1.5, 3.0])
    found, table = (
        e_and_e0(0.3, Laplace(0.6), KERNELS["gaussian"], means, 1.0, force)
        for force in ("mixture", "table")
    )
    assert isinstance(found[2].embedding, embeddings.ScaleMixture)
    np.testing.assert_allclose(found[0], table[0], atol=3e-6)
    np.testing.assert_allclose(found[1], table[1], atol=3e-6)


@pytest.mark.parametrize(("noise", "force"), [(Laplace, "mixture"), (Gaussian, "quadrature")])
def test_where_no_overlap_is_left_the_logarithm_is_finite(noise, force):
    """Every term is 0 a thousand kernel widths away, and 0 has no logarithm."""
    means = np.array([0.0, 1e3])
    v, block, objective = e_and_e0(0.0, noise("scale"), KERNELS["gaussian"], means, 0.01, force)
    assert v[0] > 0.9 and 0 <= v[1] < 1e-280
    assert block[0, 0] > 0.9 and 0 <= block[0, 1] < 1e-280
    thetas = np.stack([means, np.full(2, np.log(0.01))], axis=-1)
    assert np.all(np.isfinite(objective.compiled_value_and_gradient(jnp.asarray(thetas), 0.1)[1]))


TWO = FunctionModel(
    lambda x, p: [p["mean"], -p["mean"]],
    {"mean": Parameter("identity"), "scale": Parameter("log")},
    ("y", "z"),
)
THETAS = jnp.array([[0.1, -0.4], [0.9, 0.0], [2.0, 0.3]])


def beside_a_gap(noise, kernel):
    """v, κ0 and the embedding of one datum that has y and lacks z."""
    objective = Objective(Problem(TWO, Data([[0.3, np.nan]], noise=noise), kernel))
    return *jax.jit(lambda thetas: terms(objective, thetas))(THETAS), objective.embedding


@pytest.mark.parametrize("noise", [Gaussian("scale"), Gaussian(0.6), Laplace("scale")])
def test_under_a_mixture_of_kernels_everything_is_a_mixture(noise):
    shares, multiples = (0.25, 0.75), (0.5, 2.0)
    kernel = GaussianMixtureKernel(LENGTH, multiples=multiples, weights=shares)
    v, block, embedding = beside_a_gap(noise, kernel)
    parts = [beside_a_gap(noise, GaussianKernel(multiple * LENGTH)) for multiple in multiples]
    for found, place in ((v, 0), (block, 1)):
        wanted = sum(a * part[place] for a, part in zip(shares, parts, strict=True))
        np.testing.assert_allclose(found, wanted, rtol=1e-12)
    if isinstance(noise, Laplace):  # numbers that an entry takes: memory is shared out by them
        nodes = parts[0][2].data_size
        assert nodes > 1 and parts[0][2].pair_size == nodes**2
        assert embedding.data_size == 2 * nodes and embedding.pair_size == 2 * nodes**2


def test_a_gaussian_density_of_the_users_own_has_the_closed_form():
    def log_pdf(y, w, s):
        return -0.5 * ((y - w) / s) ** 2 - jnp.log(s) - 0.5 * math.log(2 * math.pi)

    own, closed = (
        beside_a_gap(noise, KERNELS["gaussian"])
        for noise in (CustomNoise("scale", log_pdf=log_pdf), Gaussian("scale"))
    )
    assert isinstance(own[2], embeddings.Quadrature)
    assert own[2].data_size ** 2 == own[2].pair_size > 1
    np.testing.assert_allclose(own[0], closed[0], rtol=1e-6)
    np.testing.assert_allclose(own[1], closed[1], rtol=1e-6)


@pytest.mark.parametrize(
    ("laplace", "kind"), [(Laplace("scale"), "ScaleMixture"), (Laplace(0.7), "Table")]
)
def test_outputs_with_different_noise_are_a_product(laplace, kind):
    """The third has a noise of its own, no law at these values, and no measurement."""
    model = FunctionModel(
        lambda x, p: [p["mean"], 0.5 * p["mean"], -1.0 - p["mean"] ** 2],
        {"mean": Parameter("identity"), "scale": Parameter("log")},
        ("y", "z", "count"),
    )
    noise, lengths = (Gaussian(0.6), laplace, Poisson()), [LENGTH, 1.1, 2.0]
    data = Data([[0.3, -0.2, np.nan]], noise=noise)
    objective = Objective(Problem(model, data, GaussianKernel(lengths)))
    assert [type(part).__name__ for part in objective.embedding.parts] == ["ClosedForm", kind]
    assert objective.embedding.data_size == objective.embedding.parts[1].data_size
    assert objective.embedding.pair_size == objective.embedding.parts[1].pair_size
    v, block = jax.jit(lambda thetas: terms(objective, thetas))(THETAS)
    means, scales = np.asarray(THETAS[:, 0]), np.exp(THETAS[:, 1])
    one, one_block, _ = e_and_e0(0.3, noise[0], KERNELS["gaussian"], means, scales)
    two, two_block, _ = e_and_e0(-0.2, noise[1], GaussianKernel(1.1), 0.5 * means, scales)
    np.testing.assert_allclose(v, one * two, rtol=1e-12)
    np.testing.assert_allclose(block, one_block * two_block, rtol=1e-12)


@pytest.mark.parametrize(
    ("noise", "z", "kind"),
    [
        ((Gaussian(0.6), LogNormal(0.3)), 0.4, "ClosedForm"),
        ((Laplace(0.6), Laplace(0.9)), 0.4, "Table"),
        ((Gaussian(0.6), Laplace(0.7)), 0.4, "ByOutput"),
        ((Gaussian(0.6), Laplace(0.7)), np.nan, "ClosedForm"),
    ],
)
def test_a_product_is_made_only_where_kinds_of_noise_differ(noise, z, kind, monkeypatch):
    """What has no measurement has no part in it."""
    monkeypatch.setattr(embeddings, "tabulate", lambda *given: (np.zeros(2), np.zeros(2)))
    data = Data([[0.3, z]], noise=noise)
    found = Objective(Problem(TWO, data, KERNELS["gaussian"])).embedding
    assert type(found).__name__ == kind


@pytest.mark.parametrize(("most", "kind"), [(3, "Table"), (2, "ScaleMixture")])
def test_noise_of_too_many_scales_is_not_tabulated(most, kind, monkeypatch):
    """Two scales have three pairs."""
    monkeypatch.setattr(embeddings, "MOST_TABLES", most)
    monkeypatch.setattr(embeddings, "tabulate", lambda *given: (np.zeros(2), np.zeros(2)))
    data = Data([[0.0], [1.0]], noise=Laplace(np.array([[0.6], [1.3]])))
    found = Objective(Problem(MODEL, data, KERNELS["gaussian"])).embedding
    assert type(found).__name__ == kind


@pytest.mark.parametrize("ratio", [0.5, 1.0])
def test_nodes_on_either_side_of_the_kink_integrate_laplace_noise(ratio):
    """`ratio` is ℓ/s, the error relative to the largest value; other kernels need this rule."""
    kernel, s = KERNELS["gaussian"], LENGTH / ratio
    nodes, weights = quadrature.nodes_and_weights(Laplace(), jnp.array(0.0), jnp.array(s))
    for difference in s * np.array([0.0, 0.4, 1.0, 2.0, 5.0]):
        found = np.sum(weights * np.exp(-(((difference - nodes) / LENGTH) ** 2) / 2))
        wanted = e_by_quad(kernel, "laplace", difference, s)
        assert abs(found - wanted) < 3e-6 * e_by_quad(kernel, "laplace", 0.0, s)


def logistic(y, w, s):
    return -(y - w) / s - 2 * jnp.logaddexp(0.0, -(y - w) / s) - jnp.log(s)


def test_a_density_of_the_users_own_is_integrated():
    noise = CustomNoise("scale", log_pdf=logistic)
    means, scales = np.array([0.0, 0.9, 3.0]), np.array([0.5, 0.8, 1.1])
    found, block, _ = e_and_e0(0.3, noise, KERNELS["gaussian"], means, scales)

    def integrand(z, w, s):
        return math.exp(-(((0.3 - w - s * z) / LENGTH) ** 2) / 2) * stats.logistic.pdf(z)

    wanted = [
        brute_force.integral(lambda z, w=w, s=s: integrand(z, w, s), 0.0, 1.0)
        for w, s in zip(means, scales, strict=True)
    ]
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    np.testing.assert_allclose(block, block.T, rtol=1e-12)


@pytest.mark.quick("table")
@pytest.mark.parametrize("force", ["table", "quadrature"])
def test_the_other_strategies_agree_with_the_closed_form(force):
    """Gaussian noise, value and gradient of the joint density."""
    y = np.array([[0.1, np.nan], [0.9, 1.0], [np.nan, 2.0], [1.5, 0.3]])
    model = FunctionModel(
        lambda x, p: [p["a"] * x, p["b"] + x],
        {"a": Parameter("identity"), "b": Parameter("identity")},
        ("u", "v"),
    )
    problem = Problem(
        model, Data(y, [0.0, 1, 1, 2], [0.5, 0.9]), GaussianMixtureKernel([0.6, 1.2], 0.7)
    )
    thetas = jnp.asarray(np.random.default_rng(0).normal(size=(4, 2)))
    closed, other = (Objective(problem, force=strategy) for strategy in ("closed", force))
    assert isinstance(closed.embedding, embeddings.ClosedForm)
    assert isinstance(other.embedding, embeddings.STRATEGIES[force])  # not the same one again
    (value, gradient), (other_value, other_gradient) = (
        jax.jit(objective.joint_value_and_gradient)(thetas, 0.02) for objective in (closed, other)
    )
    np.testing.assert_allclose(other_value, value, rtol=1e-7)
    np.testing.assert_allclose(other_gradient, gradient, atol=1e-6 * np.abs(gradient).max())


def count_pmf(noise, w, s):
    if isinstance(noise, Poisson):
        return stats.poisson(w)
    return stats.nbinom(s, s / (s + w))


COUNTS = [
    *((Poisson(), w, 1.0) for w in (0.02, 15.0, 17.0, 400.0)),
    *(
        (NegativeBinomial("scale"), w, s)
        for s in (0.3, 1.0, 10.0, 300.0)
        for w in (0.5, 9.0, 300.0)
    ),
]


@pytest.mark.parametrize(("noise", "w", "s"), COUNTS, ids=lambda v: getattr(v, "name", str(v))[:16])
def test_counts_are_summed_over_their_support(noise, w, s):
    """With ℓ = sd, and the overdispersed laws that have most of their mass at 0."""
    laws = [count_pmf(noise, w, s), count_pmf(noise, 1.3 * w, s)]
    support = np.arange(int(max(law.isf(1e-13) for law in laws)) + 5)
    masses = [law.pmf(support) for law in laws]
    length = max(laws[0].std(), 0.5)
    rules = [
        quadrature.nodes_and_weights(noise, jnp.array(mean), jnp.array(s)) for mean in (w, 1.3 * w)
    ]

    def kernel(a, b):
        return np.exp(-(((a - b) / length) ** 2) / 2)

    for y in (0, round(w), round(w + 3 * laws[0].std())):
        found = np.sum(np.asarray(rules[0][1]) * kernel(y, np.asarray(rules[0][0])))
        assert abs(found - masses[0] @ kernel(y, support)) < 1e-6
    (nodes, weights), (others, other_weights) = ((np.asarray(a) for a in rule) for rule in rules)
    found = weights @ kernel(nodes[:, None], others) @ other_weights
    offsets = np.arange(1 - len(support), len(support))
    smooth = fftconvolve(masses[1], kernel(offsets, 0))[len(support) - 1 :][: len(support)]
    wanted = masses[0] @ smooth
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


@pytest.mark.parametrize("length", [8, 9, 20, 256])
def test_gram_rules_sum_polynomials_exactly(length):
    nodes, weights = (table[length - 8] for table in quadrature.gram_rules())
    at = (length - 1) / 2 + length / 2 * nodes
    for degree in range(16):
        scale = float(length) ** degree
        wanted = np.sum((np.arange(length) / length) ** degree)
        np.testing.assert_allclose(
            np.sum(length * weights * at**degree / scale), wanted, rtol=1e-11
        )
    if length == 8:
        np.testing.assert_allclose(at, np.arange(8), atol=1e-12)


def counts_and_levels():
    """A positive output with counts, and a negative one, of which Poisson noise has no law."""
    model = FunctionModel(
        lambda x, p: [p["rate"], p["level"] - 3.0],
        {"rate": Parameter("log"), "level": Parameter("identity")},
        ("count", "level"),
    )
    data = Data([[4.0, -2.5]], noise=(Poisson(), Laplace(0.6)))
    objective = Objective(Problem(model, data, GaussianKernel([2.0, LENGTH])))
    return objective, np.array([[1.2, 0.1], [1.6, -0.8]])


def test_outputs_with_different_noise_do_not_disturb_each_other():
    """The factor of either output must not see the other."""
    objective, thetas = counts_and_levels()
    v, _ = jax.jit(lambda thetas: terms(objective, thetas))(jnp.asarray(thetas))
    support = np.arange(60)
    for found, (log_rate, level) in zip(v, thetas, strict=True):
        counts = stats.poisson(math.exp(log_rate)).pmf(support) @ np.exp(
            -((4.0 - support) ** 2) / 8
        )
        wanted = counts * e_by_quad(KERNELS["gaussian"], "laplace", -2.5 - (level - 3.0), 0.6)
        np.testing.assert_allclose(found, wanted, rtol=1e-7)


@pytest.mark.slow
def test_outputs_with_different_noise_do_not_disturb_each_others_gradients():
    objective, thetas = counts_and_levels()
    _, gradient = jax.jit(objective.joint_value_and_gradient)(jnp.asarray(thetas), 0.1)
    log_density = jax.jit(objective.joint_log_density)
    for i, k in itertools.product(range(2), range(2)):
        step = np.zeros((2, 2))
        step[i, k] = 1e-5
        above, below = (log_density(jnp.asarray(thetas + sign * step), 0.1) for sign in (1, -1))
        np.testing.assert_allclose(gradient[i, k], (above - below) / 2e-5, rtol=1e-6)


def test_one_density_of_counts_and_of_measurements_is_two_kinds_of_noise():
    def bell(y, w, s):
        return -0.5 * ((y - w) / s) ** 2 - jnp.log(s) - 0.5 * math.log(2 * math.pi)

    model = FunctionModel(
        lambda x, p: [p["a"], p["a"]], {"a": Parameter("identity")}, ("level", "count")
    )
    noise = (CustomNoise(1.0, log_pdf=bell), CustomNoise(1.0, log_pdf=bell, counts=True))
    problem = Problem(model, Data([[8.0, 9.0]], noise=noise), GaussianKernel(0.4))
    objective = Objective(problem)
    v, _ = jax.jit(lambda thetas: terms(objective, thetas))(jnp.array([[8.3]]))
    level = 0.4 / math.hypot(0.4, 1.0) * math.exp(-(0.3**2) / (2 * (0.4**2 + 1)))
    support = np.arange(30)
    count = stats.norm(8.3).pdf(support) @ np.exp(-((9.0 - support) ** 2) / (2 * 0.4**2))
    np.testing.assert_allclose(v, level * count, rtol=1e-6)


def test_a_failed_particle_under_counts_leaves_the_others_alone():
    """Poisson noise has no law at w ≤ 0, and 0 · NaN would spoil the sum."""
    model = FunctionModel(lambda x, p: [p["a"]], {"a": Parameter("identity")}, ("y",))
    problem = Problem(model, Data([[3.0], [4.0]], noise=Poisson()), GaussianKernel(1.5))
    objective = Objective(problem)
    thetas = jnp.array([[2.0], [-1.0], [3.0]])
    value, gradient = jax.jit(objective.joint_value_and_gradient)(thetas, 0.1)
    assert np.isfinite(value) and np.all(np.isfinite(gradient))
    assert gradient[1, 0] == 1.0  # −θ: the prior's


def test_a_density_that_does_not_integrate_to_one_is_refused():
    noise = CustomNoise(1.0, log_pdf=lambda y, w, s: -0.5 * ((y - w) / s) ** 2)
    with pytest.raises(InputError, match=r"does not integrate to 1: its mass is 2\.5"):
        Objective(Problem(MODEL, Data([[0.0]], noise=noise), KERNELS["gaussian"]))
    scaled = CustomNoise(1.0, log_pdf=lambda y, w, s: logistic(y, w, s) + jnp.log(s))
    with pytest.raises(InputError, match=r"its mass is 2 at w = 20, s = 2"):
        Objective(Problem(MODEL, Data([[0.0]], noise=scaled), KERNELS["gaussian"]))
    half = CustomNoise(1.0, log_pdf=lambda y, w, s: logistic(y, w, s) - math.log(2))
    with pytest.raises(InputError, match=r"its mass is 0\.5 at w = 5, s = 1"):
        Objective(Problem(MODEL, Data([[0.0]], noise=half), KERNELS["gaussian"]))


@pytest.mark.parametrize("mass", [0.985, 0.995, 1.005, 1.015])
def test_a_density_may_be_off_by_less_than_a_hundredth(mass):
    noise = CustomNoise(1.0, log_pdf=lambda y, w, s: logistic(y, w, s) + math.log(mass))
    problem = Problem(MODEL, Data([[0.0]], noise=noise), KERNELS["gaussian"])
    if abs(mass - 1) < 0.01:
        assert isinstance(Objective(problem).embedding, embeddings.Quadrature)
    else:
        with pytest.raises(InputError, match="does not integrate to 1"):
            Objective(problem)


def test_joint_noise_is_sent_to_monte_carlo():
    noise = JointNoise(1.0, draw=lambda key, w, s: w + s * jax.random.normal(key, w.shape))
    with pytest.raises(InputError, match=r"sampler='flow'"):
        Objective(Problem(MODEL, Data([[0.0]], noise=noise), KERNELS["gaussian"]))


def test_a_quadrature_tile_counts_its_nodes():
    """Memory: a tile has Q² numbers for each pair, so it holds fewer pairs."""
    closed, nodes = (
        Objective(Problem(MODEL, Data([[0.0]], noise=noise), KERNELS["inverse multiquadric"]))
        for noise in (Gaussian(1.0), StudentT("scale"))
    )
    assert closed.embedding.pair_size == 1 and nodes.embedding.pair_size == 77**2
    assert closed.pairs._tiling(100, 100) == (100, 1)
    assert nodes.pairs._tiling(100, 100) == (1, 1)


def test_log_normal_noise_is_gaussian_on_the_log_scale():
    model = FunctionModel(lambda x, p: [p["a"]], {"a": Parameter("log")}, ("y",))
    logged = FunctionModel(lambda x, p: [jnp.log(p["a"])], {"a": Parameter("log")}, ("y",))
    y, thetas = np.array([[0.5], [2.0], [3.0]]), jnp.array([[0.1], [0.7]])
    one = Objective(Problem(model, Data(y, noise=LogNormal(0.4)), GaussianKernel()))
    other = Objective(Problem(logged, Data(np.log(y), noise=0.4), GaussianKernel()))
    assert one.lengthscale == other.lengthscale == 0.4
    np.testing.assert_allclose(one.constant, other.constant, rtol=1e-14)
    np.testing.assert_allclose(
        one.data_terms(one.features(thetas)), other.data_terms(other.features(thetas)), rtol=1e-13
    )
