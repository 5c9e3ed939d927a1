"""Interventions: what may be written, and what it does to an ODE, against solutions by hand."""

import jax.numpy as jnp
import numpy as np
import pytest

from pcuq.errors import InputError
from pcuq.interventions import (
    Equilibration,
    Formula,
    Intervention,
    as_interventions,
    check_names,
    parse,
    split,
)
from pcuq.models import ODEModel
from pcuq.parameters import Parameter

X = np.array([0.0, 1.0, 2.0, 3.0, 5.0])
POSITIVE = {"k": Parameter("log")}


def decay(**options) -> ODEModel:
    """u' = -k u + source, u(0) = dose."""
    return ODEModel(
        lambda t, u, p: [-p["k"] * u[0] + p["source"]],
        {"u": "dose"},
        POSITIVE,
        constants={"source": 0.0, "dose": 2.0},
        **options,
    )


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("k6*=0.01", Intervention(scale={"k6": 0.01})),
        ("k6/=100", Intervention(scale={"k6": 0.01})),
        ("k6/=100@30", Intervention(scale={"k6": 0.01}, at=30.0)),
        ("ERK=0@30", Intervention(set={"ERK": 0.0}, at=30.0)),
        ("ERK+=2@30", Intervention(shift={"ERK": 2.0}, at=30.0)),
        ("ERK -= 2 @ 3e1", Intervention(shift={"ERK": -2.0}, at=30.0)),
        ("ERK:=0@30", Intervention(set={"ERK": 0.0}, at=30.0, hold=True)),
        ("a=-1e-3", Intervention(set={"a": -1e-3})),
        ("a+=-2@-1", Intervention(shift={"a": -2.0}, at=-1.0)),
    ],
)
def test_text_is_read_as_the_intervention_it_says(text, wanted):
    assert parse(text) == wanted
    assert hash(parse(text)) == hash(wanted)


@pytest.mark.parametrize(
    "text", ["k6", "=3", "k6=", "k6=two", "k6=1@", "k6=1@x", "k6/=0", "k6=nan"]
)
def test_text_that_says_nothing_is_refused(text):
    with pytest.raises(InputError):
        parse(text)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "something to change"),
        ({"set": {"k": np.inf}}, "finite"),
        ({"scale": {"k": "fast"}}, "finite"),
        ({"set": {3: 1.0}}, "non-empty string"),
        ({"set": ["k"]}, "mapping"),
        ({"set": {"k": 1.0}, "at": np.nan}, "finite"),
        ({"scale": {"k": 1.0}, "hold": True}, "hold"),
        ({"set": {"k": 1.0}, "shift": {"k": 1.0}, "hold": True}, "hold"),
        ({"set": {"k": 1.0}, "scale": {"k": 1.0}, "hold": True}, "hold"),
        ({"set": {"k": 1.0}, "hold": 1}, "True or False"),
        ({"set": {"": 1.0}}, "non-empty string"),
        ({"shift": {"k": Formula("1", print)}}, "finite"),
    ],
)
def test_what_cannot_be_done_is_refused(arguments, message):
    with pytest.raises(InputError, match=message):
        Intervention(**arguments)


def test_one_or_several_are_taken_and_nothing_else():
    one = Intervention(set={"k": 1.0})
    assert as_interventions(one) == (one,)
    assert as_interventions([one, one]) == (one, one)
    for wrong in ("k=1", {"k": 1.0}, 3):
        with pytest.raises(InputError, match=r"read by pcuq\.interventions\.parse"):
            as_interventions(wrong)
    with pytest.raises(InputError, match=r"pcuq\.Intervention objects: got str"):
        as_interventions(["k=1"])


def test_the_order_in_which_names_are_given_does_not_matter():
    one, other = Intervention(set={"a": 1.0, "b": 2.0}), Intervention(set={"b": 2.0, "a": 1.0})
    assert one == other and hash(one) == hash(other)


def test_rest_before_the_start_is_told_from_what_is_done():
    change, first, last = (Intervention(set={"k": value}) for value in (1.0, 2.0, 3.0))
    assert split(change) == (None, (change,))
    assert split([change, last]) == (None, (change, last))
    assert split(Equilibration()) == (Equilibration(()), ())
    assert split([Equilibration(first), change, Equilibration([last])]) == (
        Equilibration((last,)),
        (change,),
    )
    with pytest.raises(InputError, match=r"pcuq\.Intervention"):
        split("k=1")
    with pytest.raises(InputError, match="leave `at` out"):
        Equilibration([change, Intervention(set={"k": 1.0}, at=0.0)])


def test_values_are_taken_from_parameters_and_constants_and_from_nothing_else():
    change = Intervention(set={"u": "dose", "k": 2.0}, scale={"k": 3.0})
    assert change.apply("u", 5.0, {"dose": 0.5}) == 0.5
    assert change.sources == ("dose",) and change.names == ("u", "k")
    assert change.in_words() == "u = dose, k = 2, k × 3"
    check_names([change], ("k", "dose"), ("u",))
    with pytest.raises(InputError, match="to 'dose', which is no parameter or constant"):
        check_names([change], ("k",), ("u", "dose"))


def test_one_formula_makes_an_intervention_computed():
    formula = Formula("u", lambda t, u, p: u[0])
    assert Intervention(set={"u": formula, "k": 1.0}).computed
    assert not Intervention(set={"u": 1.0, "k": "dose"}).computed


def test_unknown_names_are_refused_with_the_known_ones():
    with pytest.raises(InputError, match="k, source, dose, u"):
        decay().do(Intervention(set={"kk": 1.0}))


def test_only_states_are_held():
    with pytest.raises(InputError, match="hold"):
        decay().do(Intervention(set={"k": 1.0}, hold=True))


def test_an_intervention_before_the_start_is_refused():
    with pytest.raises(InputError, match="t0"):
        decay().do(Intervention(set={"k": 1.0}, at=-1.0))


def test_a_dose_adds_its_own_decay():
    """u(t) = 2 e^{-kt} + 3 e^{-k(t-2)} 1[t ≥ 2]: the output at t = 2 has the dose already."""
    changed = decay().do(Intervention(shift={"u": 3.0}, at=2.0))
    wanted = 2 * np.exp(-0.5 * X) + np.where(X >= 2, 3 * np.exp(-0.5 * (X - 2)), 0)
    assert np.allclose(changed.simulate(X, {"k": 0.5})["u"], wanted, rtol=1e-8)


def test_a_reset_starts_anew_and_a_clamp_stays():
    reset = decay().do(Intervention(set={"u": 4.0}, at=1.5))
    held = decay().do(Intervention(set={"u": 4.0}, at=1.5, hold=True))
    before = 2 * np.exp(-0.5 * X)
    after = np.where(X >= 1.5, 4 * np.exp(-0.5 * (X - 1.5)), before)
    assert np.allclose(reset.simulate(X, {"k": 0.5})["u"], after, rtol=1e-8)
    assert np.allclose(
        held.simulate(X, {"k": 0.5})["u"], np.where(X >= 1.5, 4.0, before), rtol=1e-8
    )


def test_a_clamped_state_drives_the_others():
    """a held at 3 from the start: b' = a - b, b(0) = 0, so b = 3 (1 - e^{-t})."""
    model = ODEModel(
        lambda t, u, p: {"b": u[0] - u[1], "a": -p["k"] * u[0]}, {"a": 1.0, "b": 0.0}, POSITIVE
    )
    found = model.do(Intervention(set={"a": 3.0}, hold=True)).simulate(X)
    assert np.all(found["a"] == 3.0)
    assert np.allclose(found["b"], 3 * (1 - np.exp(-X)), atol=1e-8)


def test_a_scaled_parameter_acts_from_its_time_on():
    changed = decay().do(Intervention(scale={"k": 0.1}, at=2.0))
    wanted = 2 * np.exp(-0.5 * np.minimum(X, 2) - 0.05 * np.maximum(X - 2, 0))
    assert np.allclose(changed.simulate(X, {"k": 0.5})["u"], wanted, rtol=1e-8)


def test_parameters_change_before_the_initial_state_and_states_after():
    changed = decay().do([Intervention(set={"u": 7.0}), Intervention(set={"dose": 5.0})])
    assert changed.simulate(X)["u"][0] == 7.0
    assert decay().do(Intervention(set={"dose": 5.0})).simulate(X)["u"][0] == 5.0
    # At t0 itself, as at any time, a constant changes after the initial state was computed.
    assert decay().do(Intervention(set={"dose": 5.0}, at=0.0)).simulate(X)["u"][0] == 2.0
    assert decay().do(Intervention(shift={"u": 5.0}, at=0.0)).simulate(X)["u"][0] == 7.0


def test_order_matters_and_do_composes():
    double, add = Intervention(scale={"u": 2.0}, at=1.0), Intervention(shift={"u": 1.0}, at=1.0)
    at_one = 2 * np.exp(-0.5)
    first = decay().do([double, add]).simulate([1.0], {"k": 0.5})["u"][0]
    second = decay().do(add).do(double).simulate([1.0], {"k": 0.5})["u"][0]
    assert np.isclose(first, 2 * at_one + 1, rtol=1e-8)
    assert np.isclose(second, 2 * (at_one + 1), rtol=1e-8)


@pytest.mark.slow
def test_time_comes_before_the_order_of_the_list():
    late, start = Intervention(set={"source": 1.0}, at=2.0), Intervention(set={"source": 0.5})
    one, other = decay().do([late, start]), decay().do([start, late])
    assert np.array_equal(one.simulate(X)["u"], other.simulate(X)["u"])


def test_set_then_scale_then_shift_within_one():
    both = Intervention(set={"u": 3.0}, scale={"u": 2.0}, shift={"u": 1.0})
    assert both.apply("u", 100.0) == 7.0
    assert both.apply("v", 100.0) == 100.0


@pytest.mark.slow
def test_a_change_at_the_last_output_is_seen_there():
    changed = decay().do(Intervention(set={"u": 9.0}, at=5.0))
    assert changed.simulate(X)["u"][-1] == 9.0
    later = decay().do(Intervention(set={"u": 9.0}, at=5.5))
    assert np.array_equal(later.simulate(X)["u"], decay().simulate(X)["u"])


def test_observed_outputs_at_the_time_of_a_change_are_right_continuous():
    model = decay(outputs=["flux"], observe=lambda t, u, p: [p["k"] * u[0]])
    found = model.do(Intervention(scale={"k": 10.0}, at=2.0)).simulate([2.0], {"k": 0.5})
    assert np.isclose(found["flux"][0], 5.0 * 2 * np.exp(-1.0), rtol=1e-8)


def test_the_model_itself_is_not_changed():
    model = decay()
    model.do(Intervention(set={"u": 0.0}))
    assert model.interventions == ()
    assert model.simulate([0.0])["u"][0] == 2.0


@pytest.mark.slow
@pytest.mark.parametrize(
    "method", ["mesh", "explicit", pytest.param("implicit", marks=pytest.mark.slow)]
)
def test_every_method_applies_them_alike(method):
    model = decay().do(
        [Intervention(shift={"u": 3.0}, at=2.0), Intervention(set={"u": 1.0}, at=4.0, hold=True)]
    )
    solver = model.solver(X, {"k": np.array([0.5])}, method=method, tolerance=1e-7)
    wanted = 2 * np.exp(-0.5 * X) + np.where(X >= 2, 3 * np.exp(-0.5 * (X - 2)), 0)
    w, ok = solver({"k": jnp.array(0.5)})
    assert ok
    assert np.allclose(w[:, 0], np.where(X >= 4, 1.0, wanted), rtol=1e-6)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("k*=0.5@6", "k × 0.5 from 6 on"),
        ("k=2", "k = 2"),
        ("k-=1.5", "k − 1.5"),
        ("k+=1.5@-2", "k + 1.5 from -2 on"),
        ("ERK:=0@30", "ERK held at 0 from 30 on"),
    ],
)
def test_an_intervention_is_said_in_words(text, words):
    assert parse(text).in_words() == words


def test_a_formula_is_of_what_was_before_and_is_told_from_others_by_its_text():
    twice = Formula("2 u + p", lambda t, u, p: 2 * u[0] + p["k"] * t)
    change = Intervention(set={"u": twice, "k": 3.0}, at=1.0)
    assert change.apply("u", 7.0, {"k": 0.5}, [5.0]) == 10.5
    assert change.in_words() == "u = 2 u + p, k = 3 from 1 on"
    assert change == Intervention(set={"u": Formula("2 u + p", print), "k": 3.0}, at=1.0)
    assert change != Intervention(set={"u": Formula("u", twice.function), "k": 3.0}, at=1.0)
    assert repr(twice) == "Formula(text='2 u + p')"  # the same in every process


@pytest.mark.parametrize("given", ["k6*=0.01", {"k6": 0.01}, None, 3])
def test_what_is_no_list_of_interventions_is_not_taken_for_one(given):
    with pytest.raises(InputError, match=r"read by pcuq\.interventions\.parse"):
        split(given)
