"""SBML that was made to do harm is refused by name: it neither hangs nor crashes the process."""

import jax.numpy as jnp
import numpy as np
import pytest
import sbml_text as sb

import pcuq
from pcuq.errors import InputError
from pcuq.io import expressions as ex
from pcuq.io.sbml_document import read
from pcuq.io.sbml_system import System
from pcuq.io.sbml_times import Clock

MATH = "<math xmlns='http://www.w3.org/1998/Math/MathML'>{}</math>"


def from_text(folder, text, name="model.xml"):
    (folder / name).write_text(text)
    return pcuq.from_sbml(folder / name)


@pytest.mark.parametrize("depth", [500, 100_000])
def test_formulas_that_are_too_deep_are_refused(depth, tmp_path):
    """The first was a RecursionError, the second a crash of the process."""
    deep = "<apply><minus/>" * depth + "<ci>k</ci>" + "</apply>" * depth
    rule = f'<rateRule variable="a">{MATH.format(deep)}</rateRule>'
    text = sb.model(parameters=sb.parameter("k", 1) + sb.parameter("a", 1, False), rules=rule)
    with pytest.raises(InputError, match=r"nested too deeply: line 1 .* inside 300 others"):
        from_text(tmp_path, text)


def test_rules_that_stand_on_each_other_in_too_long_a_row_are_refused(tmp_path):
    count = 2000
    names = [f"a{i}" for i in range(count)]
    rules = "".join(sb.assignment(name, f"a{i} + 1") for i, name in enumerate(names[1:]))
    parameters = sb.parameter("a0", 1) + "".join(sb.parameter(n, None, False) for n in names[1:])
    text = sb.model(
        parameters=parameters + sb.parameter("z", 0, False),
        rules=rules + sb.rate("z", names[-1]),
    )
    with pytest.raises(InputError, match="in too long a row"):
        from_text(tmp_path, text)


def doubling(count, operator, body):
    """Functions of which each calls the one before it twice."""
    calls = [f"d{i}(x) {operator} d{i}(x)" for i in range(count - 1)]
    formulas = [f"x {operator} x", *calls]
    functions = "".join(sb.function(f"d{i}", f"lambda(x, {f})") for i, f in enumerate(formulas))
    return sb.model(
        parameters=sb.parameter("k", 1) + sb.parameter("a", 1, False),
        functions=functions,
        rules=sb.rate("a", body),
    )


@pytest.mark.parametrize("operator", ["+", "*", "&&"])
def test_functions_that_double_do_not_make_a_formula_of_that_size(operator, tmp_path):
    (tmp_path / "model.xml").write_text(doubling(16, operator, "d15(k)"))
    rate = read(tmp_path / "model.xml").rates["a"]
    assert sum(len(part.args) for part in ex.walk(rate)) < 100


def test_the_times_of_switches_are_found_with_work_that_does_not_double(tmp_path, monkeypatch):
    (tmp_path / "model.xml").write_text(doubling(16, "-", "piecewise(1, d15(time) > k, 0)"))
    system, calls = System(read(tmp_path / "model.xml")), []
    clock = Clock(system, ())
    looked_at = clock._names_and_time
    monkeypatch.setattr(clock, "_names_and_time", lambda f: calls.append(f) or looked_at(f))
    assert clock.breaks()
    assert len(calls) < 200


@pytest.mark.parametrize(
    ("formula", "value"),
    [
        ("log(0, 2)", 0.0), ("log(-1, 2)", np.nan), ("log(1, 2)", np.inf), ("2^INF", np.inf),
        ("2^NaN", np.nan), ("root(0, 2)", np.inf), ("2^(-INF)", 0.0),
    ],
)  # fmt: skip
def test_a_constant_without_a_finite_value_is_a_number_like_others(formula, value, tmp_path):
    """Each was an error of Python's, in words about jax.numpy."""
    text = sb.model(parameters=sb.parameter("a", 1, False), rules=sb.rate("a", formula))
    model = from_text(tmp_path, text)
    assert np.array_equal(model.rhs(0.0, jnp.ones(1), {})[0], value, equal_nan=True)


@pytest.mark.parametrize("encoding", ["UTN-8", "shift_jis", "utf-7"])
def test_an_encoding_that_xml_does_not_have_is_refused(encoding, tmp_path):
    text = sb.model(parameters=sb.parameter("k", 1))
    with pytest.raises(InputError, match="not valid SBML"):
        from_text(tmp_path, text.replace("?>", f' encoding="{encoding}"?>', 1))


def test_a_model_that_is_packed_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"model\.xml\.gz is compressed"):
        from_text(tmp_path, "", "model.xml.gz")
