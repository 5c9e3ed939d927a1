"""PEtab into a Problem: a linear model whose answers are closed forms."""

import jax
import jax.numpy as jnp
import numpy as np
import petab_text as pt
import pytest
import sbml_text as sb
from scipy import stats
from typer.testing import CliRunner

import pcuq
from pcuq import cli
from pcuq.io import expressions as ex
from pcuq.io.petab import MOST_TOGETHER
from pcuq.io.petab_formulas import read_formula
from pcuq.io.petab_parameters import as_parameter, nominal_point
from pcuq.io.petab_tables import Unknown
from pcuq.likelihood import predictions
from pcuq.parameters import Parameters
from pcuq.predict import predict


def load(tmp_path, files=pt.V1, **changes):
    return pcuq.from_petab(pt.write(tmp_path, files, **changes))


def conversion(t, k1=0.8, k2=0.6, a0=1.0, b0=0.0):
    """A(t) of A ⇌ B."""
    rest = (a0 + b0) * k2 / (k1 + k2)
    return rest + (a0 - rest) * np.exp(-(k1 + k2) * t)


def likelihood(problem):
    return float(pcuq.log_likelihood(problem, problem.nominal))


def test_likelihood_and_nominal_point_are_those_of_the_tables(tmp_path):
    problem = load(tmp_path)
    values = problem.parameters.constrain(problem.nominal)
    assert float(values["k1"]) == pytest.approx(0.8)
    assert float(values["k2"]) == pytest.approx(0.6)
    assert problem.kernel.combine == "product" and problem.kernel.by_residuals
    wanted = stats.norm.logpdf([0.7, 0.1], conversion(np.array([0.0, 1.0])), 0.5).sum()
    assert likelihood(problem) == pytest.approx(wanted, abs=1e-7)
    gradient = jax.grad(lambda theta: pcuq.log_likelihood(problem, theta))(problem.nominal)
    h = 1e-4
    for i, step in enumerate(h * np.eye(2)):
        up, down = (pcuq.log_likelihood(problem, problem.nominal + s) for s in (step, -step))
        assert gradient[i] == pytest.approx(float(up - down) / (2 * h), rel=1e-5)


def test_observables_that_are_not_always_measured_together_combine_by_a_sum(tmp_path):
    observables = "observableId\tobservableFormula\tnoiseFormula\nobs_a\tA\t0.5\nobs_b\tB\t0.5\n"
    rows = "observableId\tsimulationConditionId\ttime\tmeasurement\n"
    rows += "obs_a\tc0\t0\t0.7\nobs_a\tc0\t1\t0.1\nobs_b\tc0\t1\t0.2\n"
    apart = load(tmp_path, observables=observables, measurements=rows)
    assert apart.kernel.combine == "sum" and apart.kernel.by_residuals
    together = load(tmp_path, observables=observables, measurements=rows + "obs_b\tc0\t0\t0.1\n")
    assert together.kernel.combine == "product"
    many = [f"o{i}" for i in range(MOST_TOGETHER + 1)]
    observables = "observableId\tobservableFormula\tnoiseFormula\n"
    rows = "observableId\tsimulationConditionId\ttime\tmeasurement\n"
    problem = load(
        tmp_path,
        observables=observables + "".join(f"{o}\tA\t0.5\n" for o in many),
        measurements=rows + "".join(f"{o}\tc0\t1\t0.7\n" for o in many),
    )
    assert problem.kernel.combine == "sum"


@pytest.mark.slow
def test_likelihood_works_inside_a_trace(tmp_path):
    problem = load(tmp_path)
    inside = jax.jit(lambda theta: pcuq.log_likelihood(problem, theta))(problem.nominal)
    assert float(inside) == pytest.approx(likelihood(problem))


@pytest.mark.slow
def test_conditions_set_parameters_species_and_compartments(tmp_path):
    problem = load(
        tmp_path,
        conditions="conditionId\tconditionName\tk1\tB\tC\nc0\tone\t0.3\tstart\t1\nc1\ttwo\t0.4\t2\t3\n",
        measurements="observableId\tsimulationConditionId\ttime\tmeasurement\n"
        "obs_a\tc0\t1\t0.7\nobs_a\tc1\t2\t0.1\nobs_a\tc1\t1\t0.2\n",
        parameters="parameterId\tparameterScale\tlowerBound\tupperBound\tnominalValue\testimate\n"
        "start\tlog\t0.01\t10\t4\t1\nk2\tlin\t0\t10\t0.6\t0\n",
    )
    predicted = [
        conversion(1, k1=0.3, b0=4),
        conversion(2, k1=0.4, b0=2),
        conversion(1, k1=0.4, b0=2),
    ]
    wanted = stats.norm.logpdf([0.7, 0.1, 0.2], predicted, 0.5).sum()
    assert likelihood(problem) == pytest.approx(wanted, abs=1e-7)
    # One compiled solver serves both conditions.
    assert len(problem.predictor().solvers) == 1


def test_overrides_and_noise_that_depends_on_the_state(tmp_path):
    problem = load(
        tmp_path,
        observables="observableId\tobservableFormula\tnoiseFormula\tobservableTransformation\t"
        "noiseDistribution\n"
        "obs_a\tobservableParameter1_obs_a*A + observableParameter2_obs_a\t"
        "0.1*B + noiseParameter1_obs_a\tlin\tlaplace\nobs_b\tB\tsd\tlog10\tnormal\n",
        measurements="observableId\tsimulationConditionId\ttime\tmeasurement\tobservableParameters"
        "\tnoiseParameters\nobs_a\tc0\t1\t0.7\tscale;2\t0.5\nobs_a\tc0\t1\t0.8\tscale;2\tsd\n"
        "obs_a\tc0\t2\t0.1\t3;0\t0.5\nobs_b\tc0\t2\t0.3\t\t\n",
        parameters="parameterId\tparameterScale\tlowerBound\tupperBound\tnominalValue\testimate\n"
        "scale\tlog10\t0.01\t10\t1.5\t1\nsd\tlog\t0.01\t10\t0.4\t1\n",
    )
    A = conversion(np.array([1.0, 2.0]))
    wanted = (
        stats.laplace.logpdf(0.7, 1.5 * A[0] + 2, 0.1 * (1 - A[0]) + 0.5)
        + stats.laplace.logpdf(0.8, 1.5 * A[0] + 2, 0.1 * (1 - A[0]) + 0.4)
        + stats.laplace.logpdf(0.1, 3 * A[1], 0.1 * (1 - A[1]) + 0.5)
        + stats.norm.logpdf(np.log10(0.3), np.log10(1 - A[1]), 0.4)
        - np.log(0.3 * np.log(10))
    )
    assert likelihood(problem) == pytest.approx(wanted, abs=1e-7)


@pytest.mark.slow
def test_rest_before_the_start_and_at_the_end(tmp_path):
    problem = load(
        tmp_path,
        conditions="conditionId\tk1\nbefore\t0.3\nc0\tk\n",
        measurements="observableId\tpreequilibrationConditionId\tsimulationConditionId\ttime\t"
        "measurement\nobs_a\tbefore\tc0\t1\t0.7\nobs_a\tbefore\tc0\tinf\t0.1\n"
        "obs_a\t\tc0\t1\t0.2\n",
        parameters="parameterId\tparameterScale\tlowerBound\tupperBound\tnominalValue\testimate\n"
        "k\tlog10\t0.01\t10\t0.8\t1\nk2\tlog\t0.01\t10\t0.6\t1\n",
    )
    assert set(problem.conditions) == {"c0 after before", "c0 after "}
    a0 = 0.6 / 0.9
    predicted = [conversion(1, a0=a0, b0=1 - a0), 0.6 / 1.4, conversion(1)]
    wanted = stats.norm.logpdf([0.7, 0.1, 0.2], predicted, 0.5).sum()
    assert likelihood(problem) == pytest.approx(wanted, abs=1e-6)
    value = jax.jit(lambda theta: pcuq.log_likelihood(problem, theta))
    gradient = jax.grad(value)(problem.nominal)
    step = 1e-4 * np.eye(2)
    slopes = [(value(problem.nominal + s) - value(problem.nominal - s)) / 2e-4 for s in step]
    np.testing.assert_allclose(gradient, slopes, rtol=1e-4)


@pytest.mark.slow
def test_replicates_share_a_covariate_and_scales_share_nothing(tmp_path):
    problem = load(
        tmp_path,
        measurements="observableId\tsimulationConditionId\ttime\tmeasurement\n"
        "obs_a\tc0\t1\t0.7\nobs_a\tc0\t1\t0.8\nobs_a\tc0\t2\t0.1\n",
    )
    assert problem.data.y.shape == (3, 1)
    assert problem.points.size == 2
    w, ok = problem.predictor(problem.nominal, method="adaptive")(problem.nominal)
    w, _, ok = predictions(problem, w, ok, problem.nominal)
    assert ok
    np.testing.assert_allclose(np.ravel(w), conversion(np.array([1.0, 2.0])), rtol=1e-6)


@pytest.mark.parametrize(
    ("scale", "prior", "numbers", "exact"),
    [
        ("lin", "", "", stats.uniform(0.01, 9.99).logpdf),
        ("log10", "", "", lambda v: np.log(1 / (v * np.log(10) * 3))),
        ("log10", "parameterScaleNormal", "0;1",
         lambda v: stats.norm.logpdf(np.log10(v)) - np.log(v * np.log(10))),
        ("log", "parameterScaleLaplace", "0;1",
         lambda v: stats.laplace.logpdf(np.log(v)) - np.log(v)),
        ("log10", "uniform", "0.1;5", stats.uniform(0.1, 4.9).logpdf),
        ("log", "parameterScaleUniform", "-1;1", lambda v: np.log(1 / (2 * v))),
        ("lin", "normal", "1;2", stats.norm(1, 2).logpdf),
        ("log10", "laplace", "1;2", stats.laplace(1, 2).logpdf),
        ("log10", "logNormal", "0.1;2", stats.lognorm(2, scale=np.exp(0.1)).logpdf),
        ("lin", "logLaplace", "0.1;2",
         lambda v: stats.laplace.logpdf(np.log(v), 0.1, 2) - np.log(v)),
    ],
)  # fmt: skip
def test_scales_and_priors_are_densities_of_the_value(tmp_path, scale, prior, numbers, exact):
    problem = load(
        tmp_path,
        parameters="parameterId\tparameterScale\tlowerBound\tupperBound\tnominalValue\testimate\t"
        f"objectivePriorType\tobjectivePriorParameters\nk1\t{scale}\t0.01\t10\t0.8\t1\t{prior}\t"
        f"{numbers}\n",
    )
    parameter = problem.parameters["k1"]
    theta = np.array([-0.5, 0.3])
    slope = jax.vmap(jax.grad(parameter.constrain))(theta)
    wanted = exact(np.asarray(parameter.constrain(theta))) + np.log(slope)
    found = np.asarray(jax.vmap(parameter.log_prior)(theta))
    np.testing.assert_allclose(found, wanted, rtol=1e-6)


def unknown(lower, upper, nominal=None, prior=None, numbers=(), scale="lin"):
    return Unknown(True, scale, lower, upper, nominal, prior, numbers)


def test_a_parameter_without_bounds_lives_where_its_prior_does():
    free = as_parameter("a", unknown(-np.inf, np.inf, prior="normal", numbers=(1.0, 2.0)))
    assert (free.transform, float(free.constrain(-3.0))) == ("identity", -3.0)
    positive = as_parameter("a", unknown(-np.inf, np.inf, prior="gamma", numbers=(2.0, 3.0)))
    assert positive.transform == "log"
    wanted = stats.gamma(2.0, scale=3.0).logpdf(np.exp(0.4)) + 0.4
    assert float(positive.log_prior(jnp.array(0.4))) == pytest.approx(wanted, rel=1e-6)
    one = as_parameter("a", unknown(0.5, 20.0, prior="logUniform", numbers=(1.0, 10.0)))
    assert float(one.constrain(-50.0)) == pytest.approx(1.0)
    assert float(one.constrain(50.0)) == pytest.approx(10.0)
    # A uniform prior without numbers is that of the bounds.
    same = [as_parameter("a", unknown(0.0, 4.0, prior=kind)) for kind in (None, "uniform")]
    assert float(same[0].log_prior(jnp.array(0.3))) == float(same[1].log_prior(jnp.array(0.3)))


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (unknown(0.0, np.inf, prior="normal", numbers=(1.0, 2.0), scale="log"), None),
        (unknown(1.0, np.inf, prior="normal", numbers=(1.0, 2.0)), "two finite bounds"),
        (unknown(-np.inf, 1.0, prior="normal", numbers=(1.0, 2.0)), "two finite bounds"),
        (unknown(0.0, np.inf), "no prior and needs finite bounds"),
        (unknown(5.0, 9.0, prior="logUniform", numbers=(1.0, 2.0)), "support outside the bounds"),
    ],
)
def test_bounds_on_one_side_alone_are_refused_where_they_cannot_be_kept(row, said):
    if said is None:
        assert float(as_parameter("a", row).constrain(0.0)) == 1.0
        return
    with pytest.raises(pcuq.InputError, match=f"'a' .*{said}"):
        as_parameter("a", row)


def test_nominal_values_are_one_point_or_none():
    rows = {"a": unknown(-np.inf, np.inf, 3.0, "normal", (1.0, 2.0))}
    rows["b"] = unknown(-np.inf, np.inf, 2.0, "logNormal", (0.0, 1.0))
    parameters = Parameters({name: as_parameter(name, row) for name, row in rows.items()})
    np.testing.assert_allclose(nominal_point(rows, parameters), [3.0, np.log(2.0)])
    assert nominal_point({**rows, "a": rows["a"]._replace(nominal=None)}, parameters) is None
    with pytest.raises(pcuq.InputError, match="nominal value of parameter 'b' must be positive"):
        nominal_point({**rows, "b": rows["b"]._replace(nominal=-1.0)}, parameters)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("piecewise(2*x, x > 1, 7)", [7.0, 4.0]),
        ("piecewise(1, x > 1 || x < -1, 5)", [5.0, 1.0]),
        ("min(x, 1) + max(x, 1) + sign(x) + abs(-x)", [3.0, 6.0]),
        ("log10(100) + log2(8) + ln(exp(x)) + sqrt(4)", [7.5, 9.0]),
        ("x - inf", [-np.inf, -np.inf]),
    ],
)
def test_formulas_of_petab_have_their_value(text, wanted):
    formula = read_formula(text, "a formula")
    found = [ex.evaluate(formula, lambda name, x=x: x, None, 0.0, {}) for x in (0.5, 2.0)]
    np.testing.assert_allclose(np.array(found, dtype=float), wanted)


@pytest.mark.parametrize(
    ("text", "said"),
    [("  ", "is empty"), ("log(-1)", "cannot be read|negative"), ("sqrt(-2) + 1", "not real|root")],
)
def test_formulas_of_petab_without_a_value_are_refused(text, said):
    with pytest.raises(pcuq.InputError, match=f"a formula .*({said})"):
        read_formula(text, "a formula")


def test_a_nominal_value_on_its_bound_is_moved_inside(tmp_path):
    problem = load(tmp_path, parameters=pt.V1["parameters.tsv"].replace("\t0.6\t", "\t0\t"))
    assert float(problem.parameters.constrain(problem.nominal)["k2"]) == pytest.approx(1e-8)


def test_a_nominal_zero_on_a_log_scale_is_the_lower_bound(tmp_path):
    problem = load(tmp_path, parameters=pt.V1["parameters.tsv"].replace("\t0.8\t", "\t0\t"))
    assert float(problem.parameters.constrain(problem.nominal)["k1"]) == pytest.approx(0.01)


@pytest.mark.slow
def test_experiments_of_version_two_have_periods(tmp_path):
    problem = load(tmp_path, pt.V2)
    a0 = 0.6 / 0.9
    first = conversion(1, a0=a0, b0=1 - a0)
    second = conversion(2, a0=a0, b0=1 - a0)
    third = conversion(1, a0=1.0, b0=1 - second)
    predicted = np.array([first, third, conversion(1, k1=0.3)])
    measured = np.array([0.7, 0.1, 0.4])
    wanted = np.sum(stats.norm.logpdf(np.log(measured), np.log(predicted), 0.5) - np.log(measured))
    assert likelihood(problem) == pytest.approx(wanted, abs=1e-6)


FORMULAS = pt.V2["conditions.tsv"].replace("A\t1", "A\tA + k2*time").replace("1\tk\n", "1\t2*k\n")


def test_conditions_of_version_two_may_be_formulas(tmp_path):
    problem = load(tmp_path, pt.V2, conditions=FORMULAS)
    _, high, add = problem.conditions["e1"]
    p = {"k": 0.8, "k2": 0.6, **problem.model.constants}
    place = problem.model.states.index("A")
    u = np.linspace(0.1, 0.4, len(problem.model.states))
    assert float(high.apply("k1", 0.0, p)) == pytest.approx(1.6)
    assert float(add.apply("A", u[place], p, u)) == pytest.approx(u[place] + 0.6 * 2.0)
    assert load(tmp_path, pt.V2, conditions=FORMULAS).fingerprint == problem.fingerprint
    with pytest.raises(pcuq.InputError, match="'A' by 'zz'"):
        load(tmp_path, pt.V2, conditions=FORMULAS.replace("k2*time", "zz"))


@pytest.mark.slow
def test_formulas_of_conditions_hold_what_was_before_them(tmp_path):
    problem = load(tmp_path, pt.V2, conditions=FORMULAS)
    a0 = 0.6 / 0.9
    first, second = (conversion(t, k1=1.6, a0=a0, b0=1 - a0) for t in (1, 2))
    third = conversion(1, k1=1.6, a0=second + 0.6 * 2, b0=1 - second)
    predicted = np.array([first, third, conversion(1, k1=0.3)])
    measured = np.array([0.7, 0.1, 0.4])
    wanted = np.sum(stats.norm.logpdf(np.log(measured), np.log(predicted), 0.5) - np.log(measured))
    assert likelihood(problem) == pytest.approx(wanted, abs=1e-6)


def test_priors_of_version_two_are_read(tmp_path):
    text = pt.V2["parameters.tsv"].replace(
        "estimate\n", "estimate\tpriorDistribution\tpriorParameters\n"
    )
    text = text.replace("0.8\ttrue", "0.8\ttrue\tlog-normal\t0.1;2").replace(
        "0.6\ttrue", "0.6\ttrue\t\t"
    )
    parameter = load(tmp_path, pt.V2, parameters=text).parameters["k"]
    theta = np.array([-0.5, 0.3])
    slope = jax.vmap(jax.grad(parameter.constrain))(theta)
    value = np.asarray(parameter.constrain(theta))
    wanted = stats.lognorm(2, scale=np.exp(0.1)).logpdf(value) + np.log(slope)
    np.testing.assert_allclose(jax.vmap(parameter.log_prior)(theta), wanted, rtol=1e-6)


def table(name, old, new):
    return {name: pt.V1[f"{name}.tsv"].replace(old, new)}


def prior(kind, numbers):
    """The parameter table with a prior of k1."""
    text = pt.V1["parameters.tsv"]
    text = text.replace("estimate\n", "estimate\tobjectivePriorType\tobjectivePriorParameters\n")
    text = text.replace("0.8\t1\n", f"0.8\t1\t{kind}\t{numbers}\n")
    return {"parameters": text.replace("0.6\t1\n", "0.6\t1\t\t\n")}


ROW = "obs_a\tc0\t0\t0.7\n"
# Ten thousand million characters, if somebody wrote them all out.
NESTED = "".join(f'<!ENTITY e{i + 1} "{f"&e{i};" * 10}">' for i in range(9))
BOMB = f'<!DOCTYPE sbml [<!ENTITY e0 "ha">{NESTED}]>'
BAD = {
    "truncated XML": ({"model": pt.MODEL[:-40]}, "not valid SBML"),
    "not SBML": ({"model": "<html/>"}, "cannot be read|not valid SBML|no SBML"),
    "missing table": ({"measurements": None}, "measurements.tsv"),
    "missing model": ({"model": None}, "model.xml"),
    "no YAML": ({"problem": "a: [b"}, "not valid YAML"),
    "no version": ({"problem": "problems: []"}, "no format_version"),
    "wrong version": ({"problem": "format_version: 7"}, "version 7"),
    "unknown observable": (table("measurements", ROW, "obs_x\tc0\t0\t1\n"), "observable 'obs_x'"),
    "unknown condition": (table("measurements", ROW, "obs_a\tc9\t0\t1\n"), "condition 'c9'"),
    "unknown id": (table("observables", "A\t0.5", "A*zz\t0.5"), "names 'zz'"),
    "unknown noise id": (table("observables", "A\t0.5", "A\tss"), "names 'ss'"),
    "unknown value": ({"conditions": "conditionId\tB\nc0\tzz\n"}, "'zz'"),
    "duplicate parameter": (table("parameters", "k2\t", "k1\t"), "'k1'"),
    "duplicate condition": ({"conditions": "conditionId\nc0\nc0\n"}, "'c0'"),
    "unknown function": (table("observables", "A\t0.5", "foo(A)\t0.5"), "foo"),
    "broken formula": (table("observables", "A\t0.5", "A+*2\t0.5"), "observableFormula"),
    "cyclic assignment": (
        {"model": pt.MODEL.replace("<listOfReactions>", f"<listOfRules>{sb.assignment('k1', 'k2')}"
                                   f"{sb.assignment('k2', 'k1')}</listOfRules><listOfReactions>")},
        "circular"),
    "wrong type of time": (table("measurements", ROW, "obs_a\tc0\tsoon\t1\n"), "soon"),
    "wrong type of measurement": (table("measurements", ROW, "obs_a\tc0\t0\thigh\n"), "high"),
    "missing measurement": (table("measurements", ROW, "obs_a\tc0\t0\t\n"), "measurement"),
    "empty measurement table": (
        {"measurements": "observableId\tsimulationConditionId\ttime\tmeasurement\n"}, "no rows"),
    "empty file": ({"measurements": ""}, "'measurements.tsv', .* is empty"),
    "empty model": ({"model": ""}, "'model.xml', .* is empty"),
    "missing column": (table("measurements", "\ttime", "\twhen"), "time"),
    "NaN nominal": (table("parameters", "0.8", "NaN"), "'k1' has no nominal"),
    "nominal out of bounds": (table("parameters", "\t0.8\t", "\t80\t"), "outside its bounds"),
    "bounds reversed": (table("parameters", "0.01\t10\t0.8", "10\t0.01\t0.8"), "needs lowerBound"),
    "wrong scale": (table("parameters", "log10", "log3"), "parameterScale"),
    "prior beyond numbers": (
        {"parameters": "parameterId\tparameterScale\tlowerBound\tupperBound\tnominalValue\testimate"
                       "\tobjectivePriorType\tobjectivePriorParameters\n"
                       "k1\tlog\t0.01\t10\t0.8\t1\tparameterScaleUniform\t-1000;1000\n"
                       "k2\tlin\t0\t10\t0.6\t0\t\t\n"}, "'k1' cannot have the numbers"),
    "wrong estimate": (table("parameters", "0.8\t1", "0.8\t7"), "estimate"),
    "wrong bound": (table("parameters", "0.01", "low"), "low"),
    "nothing estimated": (
        table("parameters", "\t1\n", "\t0\n"), "estimates no parameter"),
    "overrides missing": (
        table("observables", "A\t0.5", "A\tnoiseParameter1_obs_a"), "noiseParameters"),
    "negative noise": (table("observables", "A\t0.5", "A\t-1"), "must be positive"),
    "wrong noise law": (
        {"observables": "observableId\tobservableFormula\tnoiseFormula\tnoiseDistribution\n"
                        "obs_a\tA\t0.5\tcauchy\n"}, "noiseDistribution"),
    "no problems": ({"problem": "format_version: 1\nproblems: []\n"}, "one entry .* got 0"),
    "problems that are no list": (
        {"problem": "format_version: 1\nproblems: many\n"}, "one entry .* got 'many'"),
    "duplicate observable": (
        {"observables": pt.V1["observables.tsv"] + "obs_a\tB\t1\n"}, "'obs_a' twice"),
    "infinite measurement": (table("measurements", ROW, "obs_a\tc0\t0\tinf\n"), "no finite"),
    "time before the start": (table("measurements", ROW, "obs_a\tc0\t-5\t1\n"), "before"),
    "species among parameters": (
        {"parameters": pt.V1["parameters.tsv"] + "A\tlin\t0\t1\t0.5\t1\n"}, "'A'"),
    "no column of ids": (table("parameters", "parameterId", "name"), "parameterId"),
    "commas": (
        {"measurements": pt.V1["measurements.tsv"].replace("\t", ",")}, "no column observableId"),
    "prior without spread": (prior("normal", "0;-1"), "normal of parameter 'k1'"),
    "prior with one number": (prior("normal", "1"), "need two"),
    "unknown prior": (prior("beta", "1;1"), "objectivePriorType"),
    "condition of nothing": ({"conditions": "conditionId\tzz\nc0\t3\n"}, "sets 'zz'"),
    "code for a formula": (
        table("observables", "A\t0.5", "__import__('os').getcwd()\t0.5"), "observableFormula"),
    "log of a negative": (
        {"observables": "observableId\tobservableFormula\tnoiseFormula\tobservableTransformation\n"
                        "obs_a\tA\t0.5\tlog\n",
         **table("measurements", "0.7", "-0.7")}, "positive"),
    "column twice": (
        {"conditions": "conditionId\tk1\tk1\nc0\t1\t2\n"}, "the column 'k1' twice"),
    "row that is too long": (
        table("measurements", ROW, "obs_a\tc0\t0\t0.7\t1\n"), "line 2 .* 5 entries for 4"),
    "no column of scales": (table("parameters", "parameterScale", "scale"), "parameterScale"),
    "no column of estimates": (table("parameters", "estimate", "fit"), "no column estimate"),
    "division by zero": (table("observables", "A\t0.5", "A/0\t0.5"), "'obs_a' divides by zero"),
    "root of a negative": (
        table("observables", "A\t0.5", "sqrt(-1)*A\t0.5"), "'obs_a' divides .* negative"),
    "no list of problems": ({"problem": "format_version: 1\n"}, "one entry .* got None"),
    "table in the net": (
        {"problem": pt.V1["problem.yaml"].replace("[m", "[http://127.0.0.1:9/m")}, "not there"),
    "extension": (
        {"problem": pt.V1["problem.yaml"] + "extensions: {pk: {version: 1}}\n"}, "extension 'pk'"),
    "prior without numbers": (prior("normal", ""), "objectivePriorParameters .* normal needs two"),
    "prior outside the bounds": (prior("uniform", "20;30"), "'k1' has its support outside"),
    "zero on a log scale": (table("parameters", "log10\t0.01", "log10\t0"), "positive lowerBound"),
    "bound that is infinite": (table("parameters", "0\t10\t0.6", "0\tinf\t0.6"), "finite bounds"),
    "wrong transformation": (
        {"observables": "observableId\tobservableFormula\tnoiseFormula\tobservableTransformation\n"
                        "obs_a\tA\t0.5\tsqrt\n"}, "observableTransformation"),
    "no formula": (table("observables", "\tA\t", "\t\t"), "observableFormula .* is missing"),
    "no condition": (table("measurements", ROW, "obs_a\t\t0\t1\n"), "no simulationConditionId"),
    "formula that is not real": (table("observables", "A\t0.5", "log(-1)\t0.5"), "'obs_a'"),
    "fitted rule": (
        {"model": pt.MODEL.replace("<listOfReactions>", f"<listOfRules>{sb.assignment('k1', '1')}"
                                   "</listOfRules><listOfReactions>")},
        "'k1', which the model sets by a rule"),
    "condition of a rule": (
        {"model": pt.MODEL.replace("<listOfReactions>", f"<listOfRules>{sb.assignment('w', '1')}"
                                   "</listOfRules><listOfReactions>").replace(
            "</listOfParameters>", f"{sb.parameter('w', None, False)}</listOfParameters>"),
         "conditions": "conditionId\tw\nc0\t3\n"},
        "sets 'w', which the model determines by a rule"),
    "entities in entities": ({"model": pt.MODEL.replace("<sbml", BOMB + "<sbml").replace(
        "<model", '<model name="&e9;"')}, "not valid SBML"),
}  # fmt: skip


def test_what_only_conditions_say_is_not_made_up(tmp_path):
    """k2 has no value but in conditions: the only one is taken, or one must be named."""
    files = {
        "model": pt.MODEL.replace('id="k2" value="0.6"', 'id="k2"'),
        "parameters": pt.V1["parameters.tsv"].replace("k2\tlin\t0\t10\t0.6\t1\n", ""),
    }
    one = load(tmp_path, conditions="conditionId\tk2\nc0\t0.3\n", **files)
    found = predict(one, one.nominal[None], [1.0], noise=False)
    assert found.trajectories[0, 0, 0] == pytest.approx(conversion(1.0, k2=0.3), rel=1e-5)
    two = load(
        tmp_path,
        conditions="conditionId\tk2\nc0\t0.3\nc1\t0.6\n",
        measurements=pt.V1["measurements.tsv"] + "obs_a\tc1\t1\t0.4\n",
        **files,
    )
    with pytest.raises(pcuq.InputError, match=r"k2 has a value in conditions only.*'c0', 'c1'"):
        predict(two, two.nominal[None], [1.0])
    for known in ({"condition": "c1"}, {"do": pcuq.Intervention(set={"k2": 0.6})}):
        found = predict(two, two.nominal[None], [1.0], noise=False, **known)
        assert found.trajectories[0, 0, 0] == pytest.approx(conversion(1.0), rel=1e-5)


def test_a_species_that_only_conditions_begin_needs_every_one_of_them(tmp_path):
    files = {
        "model": pt.MODEL.replace(
            'id="B" compartment="C" initialConcentration="0"', 'id="B" compartment="C"'
        ),
        "measurements": pt.V1["measurements.tsv"] + "obs_a\tc1\t1\t0.4\n",
    }
    assert files["model"] != pt.MODEL
    problem = load(tmp_path, conditions="conditionId\tB\nc0\t0.3\nc1\t0.6\n", **files)
    assert [c.set["B"] for (c,) in problem.conditions.values()] == [0.3, 0.6]
    with pytest.raises(pcuq.InputError, match=r"'B' has no value .* 'c1.*' does not set it"):
        load(tmp_path, conditions="conditionId\tB\nc0\t0.3\nc1\tNaN\n", **files)


def test_measurements_of_version_two_may_be_of_no_experiment(tmp_path):
    text = pt.V2["measurements.tsv"].replace("obs_a\te2", "obs_a\t")
    problem = load(tmp_path, pt.V2, measurements=text)
    assert problem.conditions[""] == () or not problem.conditions[""]


def test_an_extension_that_may_be_ignored_is(tmp_path):
    text = pt.V2["problem.yaml"].replace(
        "2.0.0", "2.0.0\nextensions: {pk: {version: 1.0.0, required: false}}"
    )
    wanted = load(tmp_path, pt.V2).fingerprint
    assert load(tmp_path, pt.V2, problem=text).fingerprint == wanted


@pytest.mark.parametrize("kind", BAD)
def test_a_malformed_problem_is_refused_in_one_sentence(tmp_path, kind):
    changes, said = BAD[kind]
    with pytest.raises(pcuq.InputError, match=said) as caught:
        load(tmp_path, **changes)
    assert "\n" not in str(caught.value)
    assert "Traceback" not in str(caught.value)


@pytest.mark.parametrize("kind", BAD)
def test_a_malformed_problem_ends_the_command_with_code_two(tmp_path, kind):
    path = pt.write(tmp_path, pt.V1, **BAD[kind][0])
    result = CliRunner().invoke(cli.app, ["fit", str(path), "--out", str(tmp_path / "run.nc")])
    assert result.exit_code == 2, result.output
    assert result.stderr.strip()
    assert "Traceback" not in result.stderr
    assert result.stdout == ""
    assert not (tmp_path / "run.nc").exists()


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(pcuq.InputError, match="no PEtab file"):
        pcuq.from_petab(tmp_path / "nothing.yaml")


V2_ROWS = pt.V2["measurements.tsv"].partition("\n")[2]
BAD_2 = {
    "unknown experiment": (("measurements", "obs_a\te2", "obs_a\te9"), "'e9'"),
    "unknown condition": (("experiments", "e2\t0\tlow", "e2\t0\tnone"), "'none'"),
    "wrong type of time": (("experiments", "e1\t2\tadd", "e1\tlater\tadd"), "later"),
    "unknown noise": (("observables", "log-normal", "weird"), "weird"),
    "set twice": (("experiments", "e2\t0\tlow", "e2\t0\tlow\ne2\t0\thigh"), "'k1' twice"),
    "unknown function": (("observables", "\tA\t", "\tfoo(A)\t"), "foo"),
    "no value": (("parameters", "0.6\ttrue", "\tfalse"), "nominal"),
    "another language": (("problem", ": sbml", ": pysb"), "written in 'pysb': only sbml"),
    "two models": (("problem", "  model:", "  m: {}\n  model:"), "names 2 models"),
    "list of models": (
        ("problem", "  model: {location: model.xml, language: sbml}", "  - model.xml"),
        "model_files: .* not of type",
    ),
    "extension": (("problem", "2.0.0", "2.0.0\nextensions: {pk: {required: true}}"), "'pk'"),
    "several starts": (("experiments", "e2\t0\tlow", "e2\t1\tlow"), "start at different times"),
    "no rows": (
        ("measurements", V2_ROWS, ""), "no rows in its measurement table: at least one was wanted"),
}  # fmt: skip


@pytest.mark.parametrize("kind", BAD_2)
def test_a_malformed_problem_of_version_two_is_refused_in_one_sentence(tmp_path, kind):
    (name, old, new), said = BAD_2[kind]
    text = pt.V2[f"{name}.yaml" if name == "problem" else f"{name}.tsv"]
    assert old in text
    path = pt.write(tmp_path, pt.V2, **{name: text.replace(old, new)})
    with pytest.raises(pcuq.InputError, match=said) as caught:
        pcuq.from_petab(path)
    assert "\n" not in str(caught.value)
    assert "://" not in str(caught.value)


@pytest.mark.parametrize("name", ["measurements.tsv", "problem.yaml", "model.xml"])
def test_a_file_that_is_no_text_is_refused(tmp_path, name):
    path = pt.write(tmp_path, pt.V1)
    (tmp_path / name).write_bytes(b"\xff\xfe\x00\x9f \x80\n\x00")
    with pytest.raises(pcuq.InputError, match=r"cannot be read|not valid"):
        pcuq.from_petab(path)


def test_a_likelihood_does_with_fewer_digits_where_more_cannot_be_had(tmp_path, monkeypatch):
    wanted, predictor = likelihood(load(tmp_path)), pcuq.Problem.predictor

    def stopped_by_rounding_errors(problem, *args, tolerance, **options):
        found = predictor(problem, *args, tolerance=tolerance, **options)
        return lambda theta: (found(theta)[0], tolerance > 1e-9)

    monkeypatch.setattr(pcuq.Problem, "predictor", stopped_by_rounding_errors)
    assert likelihood(load(tmp_path)) == pytest.approx(wanted, rel=1e-6)


def test_noise_may_be_the_name_of_what_the_model_assigns(tmp_path):
    wanted = likelihood(load(tmp_path))
    rules = f"<listOfRules>{sb.assignment('half', '0.5')}</listOfRules>"
    model = pt.MODEL.replace("<listOfReactions>", rules + "<listOfReactions>").replace(
        "</listOfParameters>", sb.parameter("half", constant=False) + "</listOfParameters>"
    )
    observables = "observableId\tobservableFormula\tnoiseFormula\nobs_a\tA\thalf\n"
    named = load(tmp_path, model=model, observables=observables)
    np.testing.assert_allclose(likelihood(named), wanted, rtol=1e-6)
