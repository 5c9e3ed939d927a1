"""SBML into an ODE model: answers are closed forms."""

import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import sbml_text as sb

import pcuq
from pcuq.models import segments

TIMES = np.linspace(0.0, 3.0, 7)


def load(tmp_path, text, **options):
    path = tmp_path / "model.xml"
    path.write_text(text)
    return pcuq.from_sbml(path, **options)


def decay(**changes):
    """S1 → S2 with rate k S1, times the compartment's size."""
    parts = dict(
        species=sb.species("S1", concentration=2) + sb.species("S2", concentration=0),
        parameters=sb.parameter("k", 0.7),
        reactions=sb.reaction("r", "C*k*S1", {"S1": 1}, {"S2": 1}),
    )
    return sb.model(**{**parts, **changes})


def test_import_of_pcuq_leaves_libsbml_and_petab_alone():
    code = "import sys, pcuq; print([m for m in ('libsbml', 'petab') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_simulation_gives_species_parameters_compartments_and_rates(tmp_path):
    found = load(tmp_path, decay()).simulate(TIMES)
    np.testing.assert_allclose(found["S1"], 2 * np.exp(-0.7 * TIMES), rtol=1e-8)
    np.testing.assert_allclose(found["S2"], 2 - 2 * np.exp(-0.7 * TIMES), atol=1e-8)
    np.testing.assert_allclose(found["r"], 1.4 * np.exp(-0.7 * TIMES), rtol=1e-8)
    np.testing.assert_allclose(found["k"], 0.7)
    np.testing.assert_allclose(found["C"], 1.0)


def test_amounts_and_concentrations_differ_by_the_compartment(tmp_path):
    model = load(
        tmp_path,
        decay(
            compartments='<compartment id="C" size="4" constant="true" spatialDimensions="3"/>',
            species=sb.species("S1", amount=2) + sb.species("S2", concentration=1, only=True),
        ),
    )
    found = model.simulate(TIMES)
    np.testing.assert_allclose(found["S1"], 0.5 * np.exp(-0.7 * TIMES), rtol=1e-8)
    np.testing.assert_allclose(found["S2"], 4 + 2 - 2 * np.exp(-0.7 * TIMES), rtol=1e-8)
    np.testing.assert_allclose(
        model.do(pcuq.Intervention(set={"S1": 1.0})).simulate(TIMES)["S1"],
        np.exp(-0.7 * TIMES),
        rtol=1e-8,
    )


@pytest.mark.parametrize("kind", ["rate", "assignment"])
def test_concentration_follows_a_compartment_that_grows(tmp_path, kind):
    rule = sb.rate("C", "0.5") if kind == "rate" else sb.assignment("C", "1 + 0.5*time")
    varying = sb.COMPARTMENT.replace('"true"', '"false"')
    model = load(
        tmp_path,
        decay(
            compartments=varying,
            rules=rule,
            species=sb.species("S1", amount=2) + sb.species("S2", amount=0)
            + sb.species("B", concentration=3, boundary=True),
        ),
    )  # fmt: skip
    found = model.simulate(TIMES)
    size = 1 + 0.5 * TIMES
    np.testing.assert_allclose(found["C"], size, rtol=1e-9)
    np.testing.assert_allclose(found["S1"], 2 * np.exp(-0.7 * TIMES) / size, rtol=1e-8)
    np.testing.assert_allclose(found["B"], 3 / size, rtol=1e-8)


def test_rules_functions_local_parameters_and_initial_assignments(tmp_path):
    local = '<listOfLocalParameters><localParameter id="k" value="0.3"/></listOfLocalParameters>'
    model = load(
        tmp_path,
        decay(
            functions=sb.function("twice", "lambda(x, 2*x)")
            + sb.function("mass", "lambda(a, b, twice(a)*b)"),
            parameters=sb.parameter("k", 0.7) + sb.parameter("z", 1, False)
            + sb.parameter("total", None, False) + sb.parameter("s0", None, False),
            initial=sb.start("S1", "s0 + 1") + sb.start("s0", "k*10"),
            rules=sb.rate("z", "-z") + sb.assignment("total", "S1 + S2 + r"),
            reactions=sb.reaction("r", "mass(k, S1)", {"S1": 1}, {"S2": 2}, local=local),
        ),
    )  # fmt: skip
    found = model.simulate(TIMES)
    S1 = 8 * np.exp(-0.6 * TIMES)
    np.testing.assert_allclose(found["S1"], S1, rtol=1e-8)
    np.testing.assert_allclose(found["S2"], 2 * (8 - S1), atol=1e-7)
    np.testing.assert_allclose(found["z"], np.exp(-TIMES), rtol=1e-8)
    np.testing.assert_allclose(found["total"], S1 + 2 * (8 - S1) + 0.6 * S1, rtol=1e-8)
    np.testing.assert_allclose(found["s0"], 7.0)
    assert model.constants["r.k"] == 0.3
    changed = model.do(pcuq.Intervention(set={"r.k": 0.0, "k": 1.0})).simulate(TIMES)
    np.testing.assert_allclose(changed["S1"], 11.0, rtol=1e-9)


def test_stoichiometries_may_be_assigned_and_species_converted(tmp_path):
    reference = '<speciesReference id="n" species="S2" constant="false"/>'
    model = load(
        tmp_path,
        decay(
            species=sb.species("S1", amount=2)
            + sb.species("S2", amount=0, more='conversionFactor="f"'),
            parameters=sb.parameter("k", 0.7) + sb.parameter("f", 10),
            rules=sb.assignment("n", "1 + 0.5"),
            reactions=sb.reaction("r", "k*S1", {"S1": 1}, {"S2": reference}),
        ),
    )
    found = model.simulate(TIMES)
    np.testing.assert_allclose(found["S2"], 15 * (2 - 2 * np.exp(-0.7 * TIMES)), atol=1e-7)
    np.testing.assert_allclose(found["n"], 1.5)


def test_level_two_stoichiometry_formulas(tmp_path):
    written = sb.math("2*k")
    reference = (
        f'<speciesReference species="S2"><stoichiometryMath>{written}</stoichiometryMath>'
        "</speciesReference>"
    )
    text = decay(
        level=(2, 4),
        compartments='<compartment id="C" size="1"/>',
        reactions=sb.reaction(
            "r", "k*S1", {"S1": '<speciesReference species="S1"/>'}, {"S2": reference}
        ),
    )
    found = load(tmp_path, text).simulate(TIMES)
    np.testing.assert_allclose(found["S2"], 1.4 * (2 - 2 * np.exp(-0.7 * TIMES)), atol=1e-7)


def infusion(rule):
    """x' = 1 while the condition holds."""
    parameters = sb.parameter("x", 0, False) + sb.parameter("on", 1) + sb.parameter("off", 1.25)
    return sb.model(parameters=parameters, rules=sb.rate("x", rule), compartments="")


def test_switches_in_time_are_restarts_of_the_solver(tmp_path):
    model = load(tmp_path, infusion("piecewise(1, (2*time >= on) && (time <= off/1), 0)"))
    found = model.simulate(TIMES)["x"]
    np.testing.assert_allclose(found, np.clip(TIMES - 0.5, 0, 0.75), atol=1e-12)
    cuts = [segment.start for segment in segments.cut(model, TIMES)]
    assert cuts == [0.0, 0.5, 1.25]
    later = model.do(pcuq.Intervention(set={"off": 2.0}))
    assert [segment.start for segment in segments.cut(later, TIMES)] == [0.0, 0.5, 2.0]


def test_a_pulse_shorter_than_any_step_is_not_stepped_over(tmp_path):
    text = infusion("piecewise(1e6, time > 1000 && time < 1000 + 1e-6, 0)")
    found = load(tmp_path, text).simulate([0.0, 5000.0])["x"]
    np.testing.assert_allclose(found, [0.0, 1.0], rtol=1e-6)


@pytest.mark.parametrize(
    ("formula", "wanted"),
    [
        ("floor(time/on)", [1, 2]),
        ("ceil(time - 0.25)", [0.25, 1.25, 2.25]),
        ("rem(time, off)", [1.25, 2.5]),
        ("quotient(time, off)", [1.25, 2.5]),
        ("piecewise(1, cos(3*time) > 0, 0)", [np.pi / 6, np.pi / 2]),
        ("piecewise(1, time*time > 2, 0)", [np.sqrt(2)]),
        ("piecewise(1, off/time > 1, 0)", [1.25]),
        ("piecewise(1, ramp/2 > off, 0)", [1.75]),
        ("piecewise(1, sin(time) > 2, 0)", []),
    ],
)
def test_the_solver_restarts_where_a_formula_steps_in_time(tmp_path, formula, wanted):
    text = infusion(formula)
    text = text.replace(
        "</listOfParameters>", f"{sb.parameter('ramp', None, False)}</listOfParameters>"
    )
    text = text.replace("<listOfRules>", f"<listOfRules>{sb.assignment('ramp', '2*(time - 0.5)')}")
    cuts = [segment.start for segment in segments.cut(load(tmp_path, text), TIMES[:-1])]
    np.testing.assert_allclose(cuts, [0.0, *wanted], atol=1e-12)


def test_a_step_whose_time_is_fitted_is_left_to_step_control(tmp_path):
    text = infusion("piecewise(1, cos(on*time) > 0, 0)")
    assert len(segments.cut(load(tmp_path, text), np.array([4.0]))) == 2
    fitted = load(tmp_path, text, parameters={"on": pcuq.Parameter("log")})
    assert len(segments.cut(fitted, np.array([4.0]))) == 1


@pytest.mark.slow
def test_periodic_switches_are_found(tmp_path):
    model = load(tmp_path, infusion("floor(time/on)"))
    found = model.simulate(np.arange(6.0))["x"]
    np.testing.assert_allclose(found, [0, 0, 1, 3, 6, 10], atol=1e-9)


@pytest.mark.parametrize("method", ["explicit", "implicit"])
@pytest.mark.slow
def test_switching_time_can_be_fitted(tmp_path, method):
    text = infusion("piecewise(on, time < off, 0) - x")
    fitted = {"off": pcuq.Parameter("log"), "on": pcuq.Parameter("log")}
    model = load(tmp_path, text, parameters=fitted)
    times = np.array([0.0, 0.5, 1.3, 2.0, 3.0])
    solver = model.solver(times, method=method, tolerance=1e-9)

    def exact(p):
        rising = p["on"] * (1 - jnp.exp(-jnp.minimum(times, p["off"])))
        return rising * jnp.exp(-jnp.maximum(times - p["off"], 0.0))

    p = {"on": jnp.array(2.0), "off": jnp.array(1.1)}
    w, ok = jax.jit(solver)(p)
    assert ok
    np.testing.assert_allclose(w[:, 0] if w.ndim > 1 else w, exact(p), atol=1e-8)
    slope = jax.jacfwd(lambda p: solver(p)[0][:, 0])(p)
    for name, wanted in jax.jacfwd(exact)(p).items():
        np.testing.assert_allclose(slope[name], wanted, atol=1e-6)


@pytest.mark.slow
def test_dosing_events_at_fixed_times(tmp_path):
    events = sb.event("dose", "time >= 1", {"S1": "S1 + 3"}) + sb.event(
        "late", "time > 2 && time < 2.5", {"k": "0"}
    )
    text = decay(events=events, parameters=sb.parameter("k", 0.7, False))
    found = load(tmp_path, text).simulate(TIMES)["S1"]
    first = 2 * np.exp(-0.7 * TIMES)
    second = (2 * np.exp(-0.7) + 3) * np.exp(-0.7 * (np.minimum(TIMES, 2) - 1))
    np.testing.assert_allclose(found, np.where(TIMES < 1, first, second), rtol=1e-8)


@pytest.mark.parametrize("persistent, added", [("true", 3.0), ("false", 0.0)])
def test_a_delay_is_that_at_the_trigger_which_must_last_unless_it_persists(
    tmp_path, persistent, added
):
    dose = sb.event("dose", "time > 1 && time < 1.2", {"S1": "3"}, "time / 2", 3, persistent)
    text = sb.model(species=sb.species("S1", 0), events=dose)  # due at 1.5, over at 1.2
    found = load(tmp_path, text).simulate(np.array([1.0, 1.4, 1.6]))["S1"]
    np.testing.assert_allclose(found, [0, 0, added])


def test_an_event_that_was_not_true_before_the_start_comes_at_the_start(tmp_path):
    dose = sb.event("dose", "time < 1", {"S1": "S1 + 3"})
    text = sb.model(species=sb.species("S1", 1), events=dose)
    (before,) = segments.cut(load(tmp_path, text), np.array([0.5]))
    assert not before.jumps
    text = text.replace('initialValue="true"', 'initialValue="false"')
    (at_start,) = segments.cut(load(tmp_path, text), np.array([0.5]))
    assert at_start.start == 0.0 and len(at_start.jumps) == 1


def test_an_event_sets_a_concentration_in_a_compartment_that_follows_a_rule(tmp_path):
    text = sb.model(
        species=sb.species("S1", amount=2),
        compartments=sb.COMPARTMENT.replace('constant="true"', 'constant="false"'),
        rules=sb.assignment("C", "1 + time"),
        events=sb.event("dose", "time >= 1", {"S1": "5"}),
    )
    model, u = load(tmp_path, text), jnp.array([2.0])
    # It is held as an amount: 5 in a compartment of size 2.
    np.testing.assert_allclose(model.jumps[0].change(1.0, u, u, model.constants), [10.0])


def test_events_after_the_last_time_come_before_rest(tmp_path):
    dose = sb.event("dose", "time >= 5", {"S1": "S1 + 3"})
    text = sb.model(species=sb.species("S1", 1), events=dose)
    found = load(tmp_path, text).simulate(np.array([1.0, np.inf]))["S1"]
    np.testing.assert_allclose(found, [1, 4])


@pytest.mark.parametrize(
    ("at", "moved", "doses"), [(2.0, 4.0, [1.0, 4.0]), (0.5, 2.0, [2.0]), (0.5, 0.2, [])]
)
def test_an_event_whose_time_is_changed_later_is_due_by_the_time_that_holds_then(
    tmp_path, at, moved, doses
):
    """Before the change by the old time, after it by the new one: by both, or by neither."""
    text = sb.model(
        species=sb.species("S1", 0),
        parameters=sb.parameter("T", 1.0),
        events=sb.event("dose", "time >= T", {"S1": "S1 + 3"}),
    )
    model = load(tmp_path, text).do(pcuq.Intervention(set={"T": moved}, at=at))
    times = np.array([0.1, 1.5, 3.0, 5.0])
    wanted = [3.0 * sum(dose <= time for dose in doses) for time in times]
    np.testing.assert_allclose(model.simulate(times)["S1"], wanted)


def test_an_event_that_widens_a_compartment_keeps_amounts(tmp_path):
    place = sb.COMPARTMENT.replace('constant="true"', 'constant="false"')
    text = decay(compartments=place, events=sb.event("wider", "time >= 1", {"C": "4*C"}))
    found = load(tmp_path, text).simulate(TIMES)
    size = np.where(TIMES < 1, 1.0, 4.0)
    np.testing.assert_allclose(found["C"], size)
    np.testing.assert_allclose(found["S1"], 2 * np.exp(-0.7 * TIMES) / size, rtol=1e-8)


def test_a_package_that_is_only_declared_does_no_harm(tmp_path):
    found = load(tmp_path, decay(packages=COMP)).simulate(TIMES)["S1"]
    np.testing.assert_allclose(found, 2 * np.exp(-0.7 * TIMES), rtol=1e-8)


def test_a_function_without_a_body_does_no_harm_until_it_is_called(tmp_path):
    found = load(tmp_path, decay(functions=EMPTY)).simulate(TIMES)["S1"]
    np.testing.assert_allclose(found, 2 * np.exp(-0.7 * TIMES), rtol=1e-8)


def test_fitted_parameters_reach_initial_assignments(tmp_path):
    text = decay(parameters=sb.parameter("k", 0.7) + sb.parameter("s0", 1),
                 initial=sb.start("S1", "3*s0"))  # fmt: skip
    model = load(tmp_path, text, parameters={"s0": pcuq.Parameter("log")})
    solver = model.solver(TIMES)
    slope = jax.jacfwd(lambda s0: solver({"s0": s0})[0][:, 0])(jnp.array(2.0))
    np.testing.assert_allclose(slope, 3 * np.exp(-0.7 * TIMES), rtol=1e-6)


def test_what_is_set_from_the_start_reaches_initial_assignments(tmp_path):
    text = decay(initial=sb.start("S2", "2*S1"))
    model = load(tmp_path, text).do(pcuq.Intervention(set={"S1": 5.0}))
    assert model.simulate([0.0])["S2"][0] == pytest.approx(10.0)


@pytest.mark.slow
def test_simulation_of_a_hundred_reactions_compiles_in_seconds(tmp_path):
    number = 100
    text = sb.model(
        species="".join(sb.species(f"S{i}", concentration=i % 3) for i in range(number)),
        parameters="".join(sb.parameter(f"k{i}", 0.1 + 0.01 * i) for i in range(number)),
        reactions="".join(
            sb.reaction(f"r{i}", f"C*k{i}*S{i}/(1 + S{i} + S{(i + 7) % number}^2)",
                        {f"S{i}": 1}, {f"S{(i + 1) % number}": 1})
            for i in range(number)
        ),
    )  # fmt: skip
    model = load(tmp_path, text)
    started = time.perf_counter()
    found = model.simulate(TIMES)
    assert time.perf_counter() - started < 30
    total = sum(found[f"S{i}"] for i in range(number))
    np.testing.assert_allclose(total, total[0], rtol=1e-8)


@pytest.mark.parametrize(
    ("formula", "wanted"),
    [
        ("factorial(4) + ceil(1.2) + floor(-1.2)", 24.0),
        ("rem(7, -3) + quotient(-7, 2)", -2.0),
        ("min(3, 1, 2) + max(4, 6) + abs(-2)", 9.0),
        ("root(3, 8) + sqrt(9) + log10(1000) + log(2, 8) + ln(exp(2))", 13.0),
        ("arcsin(sin(0.3)) + arccos(cos(0.4)) + arctan(tan(0.5))", 1.2),
        ("arcsinh(sinh(0.3)) + arccosh(cosh(0.4)) + arctanh(tanh(0.5))", 1.2),
        ("sec(0.3)*cos(0.3) + csc(0.3)*sin(0.3) + cot(0.3)*tan(0.3)", 3.0),
        ("arcsec(sec(0.3)) + arccsc(csc(0.4)) + arccot(cot(0.5)) + coth(arccoth(2))", 3.2),
        ("piecewise(1, 2 < 1, 5, 1 <= 2 && !(3 == 4), 7)", 5.0),
        ("piecewise(1, false, 2)", 2.0),
        ("piecewise(1, lt(1, 2, 3), 2) + piecewise(1, lt(1, 3, 2), 2)", 3.0),
        ("piecewise(1, xor(true, true, true), 0) + piecewise(1, 3, 0) + (2 > 1)", 3.0),
        ("avogadro/6.02214179e23 + pi/3.141592653589793 + exponentiale*0", 2.0),
        ("(-2)^3 + 4^0.5 + 2^-1", -5.5),
    ],
)
def test_formulas_have_their_value(tmp_path, formula, wanted):
    text = sb.model(parameters=sb.parameter("y", None, False), rules=sb.assignment("y", formula))
    assert load(tmp_path, text).simulate([0.0])["y"][0] == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize(
    ("written", "wanted"),
    [
        ("<apply><log/><cn>1000</cn></apply>", 3.0),
        ("<apply><root/><cn>9</cn></apply>", 3.0),
        ("<apply><log/><logbase><cn>2</cn></logbase><cn>8</cn></apply>", 3.0),
        ("<apply><root/><degree><cn>3</cn></degree><cn>8</cn></apply>", 2.0),
        ('<cn type="rational">3<sep/>4</cn>', 0.75),
        ('<cn type="e-notation">3<sep/>2</cn>', 300.0),
    ],
)
def test_mathml_that_leaves_out_its_defaults_has_its_value(tmp_path, written, wanted):
    text = sb.model(parameters=sb.parameter("y", None, False), rules=sb.assignment("y", "1"))
    text = text.replace(sb.math("1"), f"{MATH}{written}</math>")
    assert written in text
    assert load(tmp_path, text).simulate([0.0])["y"][0] == pytest.approx(wanted, abs=1e-12)


def test_a_conversion_factor_of_the_model_is_that_of_every_species(tmp_path):
    text = decay(
        parameters=sb.parameter("k", 0.7) + sb.parameter("f", 2), attributes='conversionFactor="f"'
    )
    model = load(tmp_path, text)
    slope = model.derivative(0.0, jnp.array([2.0, 0.0]), model.constants)
    np.testing.assert_allclose(slope, [-2.8, 2.8])


def test_a_reaction_without_a_law_may_change_nothing(tmp_path):
    bare = f'<reaction id="idle" reversible="false">{sb.side("Reactants", {"B": 1})}</reaction>'
    whole = sb.reaction("r", "C*k*S1", {"S1": 1}, {"S2": 1})
    three = [sb.species("S1", concentration=2), sb.species("S2", concentration=0)]
    held = sb.species("B", concentration=1, boundary=True)
    model = load(tmp_path, decay(species="".join([*three, held]), reactions=whole + bare))
    slope = model.derivative(0.0, jnp.array([2.0, 0.0]), model.constants)
    np.testing.assert_allclose(slope, [-1.4, 1.4])
    free = sb.species("B", concentration=1)
    with pytest.raises(pcuq.InputError, match="'idle' has no kinetic law"):
        load(tmp_path, decay(species="".join([*three, free]), reactions=whole + bare))


def test_rules_and_assignments_without_a_formula_change_nothing(tmp_path):
    empty = '<eventAssignment variable="S1"/>'
    dose = sb.event("dose", "time > 1", {})
    text = decay(
        parameters=sb.parameter("k", 0.7, False),
        rules='<rateRule variable="k"/>',
        initial='<initialAssignment symbol="S1"/>',
        events=dose.replace("<listOfEventAssignments>", f"<listOfEventAssignments>{empty}"),
    )
    model = load(tmp_path, text)
    u, p = jnp.array([2.0, 0.0]), {**model.constants, "k": 0.7}
    np.testing.assert_allclose(model.initial_state(p), u)
    np.testing.assert_allclose(model.derivative(0.0, u, p), [-1.4, 1.4])
    np.testing.assert_allclose(model.jumps[0].change(1.0, u, u, p), u)


def test_a_stoichiometry_without_a_formula_is_named(tmp_path):
    empty = '<speciesReference species="S1"><stoichiometryMath/></speciesReference>'
    text = decay(
        level=(2, 4),
        compartments='<compartment id="C" size="1"/>',
        reactions=sb.reaction("r", "k*S1", {"S1": empty}),
    )
    with pytest.raises(pcuq.InputError, match="stoichiometry of 'S1' in reaction 'r' has no form"):
        load(tmp_path, text)


def test_a_file_that_cannot_be_read_is_named(tmp_path, monkeypatch):
    def broken(*args):
        raise OSError(5, "Input/output error")

    (tmp_path / "model.xml").write_text(decay())
    monkeypatch.setattr("pathlib.Path.open", broken)
    with pytest.raises(pcuq.InputError, match=r"model\.xml cannot be read: Input/output error"):
        pcuq.from_sbml(tmp_path / "model.xml")


def test_a_start_may_follow_from_a_concentration_in_a_compartment_with_a_rule(tmp_path):
    text = sb.model(
        species=sb.species("S1", amount=2) + sb.species("S2", amount=2),
        compartments=sb.COMPARTMENT.replace('constant="true"', 'constant="false"'),
        rules=sb.assignment("C", "4 + time"),
        initial=sb.start("S2", "3*S1"),
    )
    model = load(tmp_path, text)
    # Both are held as amounts.
    found = dict(zip(model.states, model.initial_state(model.constants), strict=True))
    assert (float(found["S1"]), float(found["S2"])) == pytest.approx((2.0, 6.0))


def test_the_rate_of_what_follows_a_rule_is_refused(tmp_path):
    text = decay(parameters=GROWING, rules=RAMP, reactions=sb.reaction("r", "rateOf(v)", {"S1": 1}))
    with pytest.raises(pcuq.InputError, match="rate of change of 'v' is asked for"):
        load(tmp_path, text).simulate([0.0])


def test_an_event_at_a_time_that_is_set_to_a_fitted_parameter_is_refused(tmp_path):
    text = decay(
        parameters=sb.parameter("k", 0.7) + sb.parameter("T", 1.0),
        events=sb.event("dose", "time > T", {"S1": "3"}),
    )
    model = load(tmp_path, text, parameters={"k": pcuq.Parameter("log")})
    assert [part.start for part in segments.cut(model, TIMES)] == [0.0, 1.0]
    with pytest.raises(pcuq.InputError, match="time of an event depends on a fitted parameter"):
        segments.cut(model.do(pcuq.Intervention(set={"T": "k"})), TIMES)


def test_without_libsbml_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "libsbml", None)
    with pytest.raises(pcuq.InputError, match=r'pip install "pcuq\[petab\]"'):
        load(tmp_path, decay())


def test_rates_of_change_can_be_used(tmp_path):
    text = decay(
        parameters=sb.parameter("k", 0.7) + sb.parameter("v", None, False),
        rules=sb.assignment("v", "rateOf(S1)"),
    )
    found = load(tmp_path, text).simulate(TIMES)
    np.testing.assert_allclose(found["v"], -0.7 * found["S1"], rtol=1e-9)


FAST = sb.reaction("quick", "k*S1", {"S1": 1}, more='fast="true"')
COMP = 'xmlns:comp="http://www.sbml.org/sbml/level3/version1/comp/version1" comp:required="true"'
EMPTY = '<functionDefinition id="f"/>'
FOREIGN = 'xmlns:foo="http://www.sbml.org/sbml/level3/version1/foo/version1" foo:required="true"'
RATE_OF = (
    '<csymbol encoding="text" definitionURL="http://www.sbml.org/sbml/symbols/rateOf"> rateOf '
    "</csymbol>"
)


def written(formula):
    """A model whose k has this MathML for its rate."""
    rule = sb.rate("k", "1").replace(sb.math("1"), f"{MATH}{formula}</math>")
    return decay(parameters=sb.parameter("k", 0.7, False), rules=rule)


MATH = '<math xmlns="http://www.w3.org/1998/Math/MathML">'
LEVEL_1 = (
    '<?xml version="1.0"?><sbml xmlns="http://www.sbml.org/sbml/level1" level="1" version="2">'
    '<model name="m"><listOfCompartments><compartment name="C"/></listOfCompartments></model>'
    "</sbml>"
)
BARE = '<speciesReference species="S1" constant="true"/>'
DOSE = sb.event("dose", "time > 1", {"S1": "S1 + 1"}, delay="2")
PRIORITY = f"<priority>{sb.math('1')}</priority><listOfEventAssignments>"
GROWING = sb.parameter("k", 0.7) + sb.parameter("v", None, False)
RAMP = sb.assignment("v", "2*time")
PORT = '<comp:listOfPorts><comp:port comp:idRef="S1" comp:id="way_in"/></comp:listOfPorts></model>'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (decay(rules=f"<algebraicRule>{sb.math('S1+S2-2')}</algebraicRule>"), "algebraic rule"),
        (decay(reactions=FAST, level=(3, 1)), "'quick' is fast"),
        (decay(reactions=sb.reaction("late", "delay(S1, 1)", {"S1": 1})), "'late' uses delay"),
        (decay(events=sb.event("full", "S2 > 1", {"S1": "0"})), "event 'full' is triggered"),
        (decay(packages=COMP).replace("</model>", PORT), r"package 'comp' \(port 'way_in'\)"),
        (decay()[:-30], "not valid SBML"),
        ("", "not valid SBML"),
        ("<html/>", "not valid SBML"),
        (decay(reactions=sb.reaction("r", "k*X", {"S1": 1})), "names 'X'"),
        (decay(events=sb.event("e", "time > 1", {"S1": "0"}, delay="X")), "'e' names 'X'"),
        (
            decay(functions=sb.function("f", "lambda(x, x)") + sb.function("h", "lambda(x, g(x))")),
            "the function 'g', which the model does not define: it defines f, h",
        ),
        (decay(reactions=sb.reaction("r", "g(k)", {"S1": 1})), "the function 'g'"),
        (decay(reactions=sb.reaction("r", "k", {"X": 1})), "reactant 'X'"),
        (decay(parameters=sb.parameter("k", 1) + sb.parameter("k", 2)), "'k' twice"),
        (decay(parameters=sb.parameter("k")), "'k' has no value"),
        (
            decay(parameters=sb.parameter("k", 1) + sb.parameter("a") + sb.parameter("b"),
                  rules=sb.assignment("a", "b + 1") + sb.assignment("b", "a + 1")),
            "circular",
        ),
        (decay(initial=sb.start("S1", "S2") + sb.start("S2", "S1")), "circular"),
        (decay(functions=sb.function("f", "lambda(x, f(x))")), "'f' calls itself"),
        (decay(functions=EMPTY, rules=sb.rate("k", "f()")), "'f', which has no body"),
        (decay(initial=sb.start("S1", "1/0")), "initial value of 'S1' is inf"),
        (decay(species=sb.species("S1") + sb.species("S2", amount=0)), "'S1' has no value"),
        (decay(species=sb.species("S1", amount=1, compartment="D")), "compartment 'D'"),
        (LEVEL_1, "SBML level 1"),
        (decay(packages=FOREIGN), "'foo' is a required package"),
        (decay(attributes='conversionFactor="zz"'), "factor 'zz'"),
        (decay(reactions=sb.reaction("r", "k", {"S1": BARE})), "no stoichiometry for 'S1'"),
        (decay(events=DOSE), "values from before its delay"),
        (decay(events=DOSE.replace("<listOfEventAssignments>", PRIORITY)), "has a priority"),
        (
            decay(parameters=GROWING, rules=RAMP,
                  events=sb.event("e", "time > 1", {"v": "1"})),
            "changes 'v', which has a rule",
        ),
        (
            decay(functions=sb.function("f", "lambda(x, x)"),
                  reactions=sb.reaction("r", "f(k, k)", {"S1": 1})),
            "'f' with 2 arguments: it takes 1",
        ),
        (decay(rules=sb.rate("k", "rateOf(S1)") + sb.rate("k", "1")), "more than one rule"),
        (decay(parameters=f'{GROWING}<parameter constant="true"/>'), "required attributes 'id'"),
        (decay(events='<event id="e" useValuesFromTriggerTime="true"/>'), "'e' has no trigger"),
        (decay().partition("<model")[0] + "</sbml>", "holds no SBML model"),
        (written(f"<apply>{RATE_OF}<cn>2</cn></apply>"), "'k' uses rateOf on what is not one name"),
        (written("<apply><abs/><cn>1</cn><cn>2</cn></apply>"), "'abs' with 2 arguments: .* 1"),
        (written("<apply><lt/><cn>1</cn></apply>"), "'lt' with 1 arguments: .* 2 or more"),
        (written("<apply><minus/><cn>1</cn><cn>1</cn><cn>1</cn></apply>"), "takes 1 to 2"),
        (written("<lambda><cn>1</cn></lambda>"), "'lambda', which is not supported"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_named_in_one_sentence(tmp_path, text, said):
    with pytest.raises(pcuq.InputError, match=said) as caught:
        load(tmp_path, text)
    assert "\n" not in str(caught.value)


def test_a_missing_file_and_a_wrong_parameter_are_named(tmp_path):
    with pytest.raises(pcuq.InputError, match="no SBML file"):
        pcuq.from_sbml(tmp_path / "nothing.xml")
    with pytest.raises(pcuq.InputError, match="'S1', which is set by"):
        load(tmp_path, decay(), parameters={"S1": pcuq.Parameter("log")})
    with pytest.raises(pcuq.InputError, match="at least one parameter"):
        pcuq.Problem(load(tmp_path, decay()), pcuq.Data([[1.0, 1.0]], [1.0]))


@pytest.mark.parametrize(
    ("trigger", "delay"), [("time >= T", None), ("time >= 1 && T > 0", None), ("time >= 1", "T")]
)
def test_an_event_at_a_fitted_time_is_named(tmp_path, trigger, delay):
    text = decay(
        parameters=sb.parameter("k", 0.7) + sb.parameter("T", 2.0),
        events=sb.event("dose", trigger, {"S1": "1"}, delay=delay),
    )
    assert load(tmp_path, text, parameters={"k": pcuq.Parameter("log")}).jumps
    with pytest.raises(pcuq.InputError, match=r"event 'dose' .* 'T', which is to be fitted"):
        load(tmp_path, text, parameters={"T": pcuq.Parameter("log")})
