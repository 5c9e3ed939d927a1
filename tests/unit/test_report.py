"""The report: what it says, that it needs nothing else, and that names stay text."""

import json
import re
import time
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr
from made_fits import growth_problem, made_fit
from typer.testing import CliRunner

import pcuq
from pcuq import cli
from pcuq.errors import InputError
from pcuq.objective import Objective
from pcuq.problem import Problem
from pcuq.report import Case, HeldOut, figures, report
from pcuq.report.evidence import Evidence, gather, labels_of
from pcuq.report.verdict import judge

NASTY = ("<b>prey</b> & $x_1$", "start")


@pytest.fixture(scope="module")
def problem():
    return growth_problem(outputs=("prey", NASTY[0]), shift=0.8)


@pytest.fixture(scope="module")
def fits(problem):
    return [made_fit(problem, "bayes", 0.01), made_fit(problem, "pcuq", 0.2)]


def held(fit, inside: bool) -> HeldOut:
    """Values at the end of the curves, in the middle of the bands or far outside."""
    group = fit.tree["predictions"].dataset
    x = group["x"].to_numpy()[-5:]
    middle = group["y"].isel(chain=0, condition=0).median("draw").to_numpy()[-5:]
    return HeldOut(x, middle + (0.0 if inside else 50.0))


def test_the_page_needs_no_other_file(fits):
    page = report(fits)
    assert not re.findall(r'(?:src|href)="(?!data:|#)[^"]*"', page)
    for place in re.findall(r'href="#([^"]*)"', page):
        assert f'id="{place}"' in page
    assert "<script" not in page
    assert "url(" not in page


def test_names_with_markup_are_shown_as_text(fits):
    page = report(fits)
    assert "<b>prey" not in page
    assert "&lt;b&gt;prey&lt;/b&gt; &amp; $x_1$" in page


def test_every_output_and_method_is_there(fits):
    page = report(fits)
    alts = re.findall(r'alt="([^"]*)"', page)
    assert sum("data and bands" in alt for alt in alts) == 2
    assert page.count('src="data:image/png;base64,iVBOR') == len(alts)
    for label in (
        "<th>PCUQ</th><th>Bayes</th>",
        "in the 50&nbsp;% | 90&nbsp;% band",
        "fixed-point residual",
        "kernel width",
        "jaxlib",
    ):
        assert label in page


def test_pcuq_comes_first_and_twins_are_told_apart(problem, fits):
    shown = gather(Case("", [*fits, fits[1]]))
    assert [one.label for one in shown] == ["PCUQ, λ = 0.001", "PCUQ, λ = 0.001 (2)", "Bayes"]
    assert len({one.style for one in shown}) == 3
    assert [one.filled for one in shown] == [True, False, True]
    labels = [one.label for one in gather(Case("", fits))]
    assert labels == ["PCUQ", "Bayes"]
    assert labels_of([fits[1], fits[1]]) == ["PCUQ, λ = 0.001", "PCUQ, λ = 0.001 (2)"]


def test_coverage_is_the_share_of_measurements_in_the_band(problem):
    fit = made_fit(problem, "pcuq", 0.0)  # one curve: bands are those of the noise, sd 0.2
    (one,) = gather(Case("", [fit]))
    y = problem.data.y
    x = problem.data.x
    curves = np.stack([1 + 0.5 * x, 1 + x], axis=-1)
    wanted = np.mean(np.abs(y - curves) < 1.645 * 0.2)
    assert abs(one.coverage["0.9"] - wanted) <= 0.1  # edges from 200 draws
    assert one.width == pytest.approx(0.0, abs=1e-6)
    assert one.measured == 22


def test_held_out_values_decide_the_verdict(fits):
    inside = judge(gather(Case("", fits, [held(fits[1], True)])))
    assert inside.kind == "yes"
    assert "100 % of 10 values that were held out" in inside.answer
    outside = judge(gather(Case("", fits, [held(fits[1], False)])))
    assert outside.kind == "no"
    assert outside.answer.startswith("No: ")


def test_without_held_out_values_the_verdict_stays_a_perhaps(fits):
    verdict = judge(gather(Case("", fits)))
    assert verdict.kind in ("care", "no")
    assert "held-out" not in verdict.answer


@pytest.mark.parametrize(
    ("share", "kind", "said"),
    [
        (0.9, "care", "Perhaps, within its bands"),
        (0.3, "no", "Not as it is: pcuq's 90 % bands hold 30 % of"),
        (float("nan"), "unknown", "holds no predictions to compare"),
    ],
)
def test_bands_that_miss_what_they_were_fitted_to_are_not_to_be_used(fits, share, kind, said):
    verdict = judge([found(fits[1], 1.0, share)])
    assert verdict.kind == kind and said in verdict.answer


@pytest.mark.parametrize(("share", "kind"), [(0.9, "yes"), (0.7, "care"), (0.2, "no")])
def test_the_share_of_held_out_values_is_the_verdict(fits, share, kind):
    heldout = {"coverage": {"0.9": share}, "scored": 20}
    verdict = judge([replace(found(fits[1], 1.0, 0.9), heldout=heldout)])
    assert verdict.kind == kind and "of 20 values that were held out" in verdict.answer


def test_a_report_of_what_does_not_belong_together_is_refused(fits):
    one = held(fits[1], True)
    with pytest.raises(InputError, match="at least one fit"):
        report([])
    with pytest.raises(InputError, match="a Case has its own `heldout`"):
        report([Case("a", fits)], [one])
    other = made_fit(growth_problem(shift=0.3), "pcuq", curves=False)
    with pytest.raises(InputError, match="these fits are of several"):
        report([fits[1], other], [one])


def test_of_many_parameters_those_that_the_data_moved_most_are_shown(problem):
    fit = made_fit(problem, "pcuq", 0.1, curves=False)
    narrow = fit.tree.copy()
    prior = narrow["unconstrained_prior"].to_dataset()
    wide = {name: prior[name] * (100.0 if name == "start" else 1.0) for name in fit.parameters}
    narrow["unconstrained_prior"] = xr.DataTree(prior.assign(wide))
    assert figures._most_moved(pcuq.Fit(narrow, problem), 1) == ["start"]
    assert figures._most_moved(fit, 2) == ["rate", "start"]


def test_a_point_has_no_traces(fits):
    (one,) = gather(Case("", [made_fit(fits[0].problem, "pcuq", 0.0)]))
    assert figures.trace_pictures(one, 2) == []


def test_a_fit_that_cannot_be_written_is_said(fits, tmp_path):
    with pytest.raises(InputError, match=r"run\.nc cannot be written: No such file"):
        fits[0].save(tmp_path / "none" / "run.nc")


def test_a_fit_that_has_not_converged_supports_no_verdict(problem):
    verdict = judge(gather(Case("", [made_fit(problem, "pcuq", 0.2, trusted=False)])))
    assert verdict.kind == "unknown"
    assert "Do not trust this fit yet" in verdict.sure


@pytest.mark.parametrize(("pcuq_fine", "said"), [(False, ()), (True, ("Bayes", "not converged"))])
def test_nothing_is_concluded_from_a_fit_that_has_not_converged(problem, pcuq_fine, said):
    pcuq = made_fit(problem, "pcuq", 0.2, trusted=pcuq_fine)
    bayes = made_fit(problem, "bayes", 0.001, trusted=not pcuq_fine)
    reasons = judge([found(pcuq, 1.0, 0.9), found(bayes, 0.01, 0.2)]).reasons
    assert len(reasons) == bool(said)
    assert all(word in " ".join(reasons) for word in said)


@pytest.mark.parametrize(
    ("bayes_width", "bayes_share", "said"),
    [
        (0.1, 0.3, "false certainty"),
        (0.1, 0.9, "more cautious"),
        (0.9, 0.9, "no sign that the model is wrong"),
        (0.9, 0.5, "noise of measurement may be larger"),
    ],
)
def test_the_reasons_compare_pcuq_with_bayes(fits, bayes_width, bayes_share, said):
    verdict = judge([found(fits[1], 1.0, 0.9), found(fits[0], bayes_width, bayes_share)])
    assert len(verdict.reasons) == 1
    assert said in verdict.reasons[0]


def test_what_was_held_out_does_not_make_a_model_wrong(fits):
    """Points of one curve are missed together, also by a model that is right."""
    unseen = {"coverage": {"0.5": 0.2, "0.9": 0.4}, "scored": 50}
    good = replace(found(fits[1], 1.0, 0.9), heldout={"coverage": {"0.9": 0.95}, "scored": 50})
    verdict = judge([good, replace(found(fits[0], 0.1, 0.9), heldout=unseen)])
    assert "too sure of itself" in verdict.reasons[0]
    assert "no sign that the model is wrong" in verdict.reasons[0]


@pytest.mark.parametrize(("sd", "said"), [(0.02, "false certainty"), (2.0, "the noise was fitted")])
def test_a_wrong_model_is_told_of_where_the_noise_is_fitted_too(sd, said):
    """Narrow bands of Bayes that miss the data; and bands that hold them, by much noise."""
    x = np.linspace(0.0, 5.0, 11)
    model = pcuq.FunctionModel(
        lambda x, p: [p["rate"] * x],
        {"rate": pcuq.Parameter("identity"), "sd": pcuq.Parameter("log")},
        ("prey",),
    )
    problem = pcuq.Problem(model, pcuq.Data(0.5 * x + np.sin(2 * x), x, noise="sd"))
    centre = [0.5, np.log(sd)]
    fits = [made_fit(problem, "pcuq", 0.3, centre), made_fit(problem, "bayes", 0.001, centre)]
    evidence = gather(Case("", fits))
    assert not any(one.known_noise for one in evidence)
    wanted = 2 * 1.645 * 0.3 * x / np.ptp(problem.data.y)  # in ranges of the data
    assert evidence[0].width == pytest.approx(wanted.mean(), rel=0.2)
    (reason,) = judge(evidence).reasons
    assert said in reason
    assert ("no sign" in reason) == (said == "the noise was fitted")


def test_bands_that_span_the_data_are_said_to_be_wide(fits):
    narrow, wide = (replace(found(fits[1], 1.0, 0.9), reach=reach) for reach in (0.3, 0.7))
    assert "wide" not in judge([narrow]).answer
    assert "wide, 70 % of the range of the data" in judge([wide]).answer


def test_the_reach_of_a_band_is_its_share_of_the_range_of_the_data(problem):
    (one,) = gather(Case("", [made_fit(problem, "pcuq", 0.0)]))  # the noise alone, sd 0.2
    wanted = np.mean(2 * 1.645 * 0.2 / np.ptp(problem.data.y, axis=0))
    assert one.reach == pytest.approx(wanted, rel=0.1)  # edges from 200 draws


def found(fit, width, share) -> Evidence:
    return Evidence(fit, fit.method, {"0.5": share, "0.9": share}, {}, width, 22)


def test_much_of_q_near_the_prior_is_told(problem):
    fit = made_fit(problem, "pcuq", 0.2, share_outside_fit=0.5)
    assert any("50 %" in reason for reason in judge(gather(Case("", [fit]))).reasons)


def test_interventions_stand_side_by_side(fits):
    page = report(fits, do=["rate*=0.5"])
    assert "Intervention: rate × 0.5" in page
    for panel in ("control", "rate × 0.5", "difference"):
        assert page.count(f", {panel}: bands without noise") == 2
    with pytest.raises(InputError, match="need the problem"):
        report([replace(fit, problem=None) for fit in fits], do=["rate*=0.5"])
    with pytest.raises(InputError, match="changes nothing"):
        report(fits, do=[" ; "])
    with pytest.raises(InputError, match="unknown condition 'none'"):
        report(fits, do=["rate*=0.5"], condition="none")


def test_what_was_held_out_needs_a_model_that_has_it(problem, fits):
    far = HeldOut(x=np.array([91.7]), y=np.array([[1.0]]), outputs=("nothing",))
    with pytest.raises(InputError, match="unknown output 'nothing'"):
        report(fits, heldout=[far])
    with pytest.raises(InputError, match="predicted by the problem"):
        report([replace(fit, problem=None) for fit in fits], heldout=[far])


def test_a_problem_may_hold_what_was_held_out(problem, fits):
    page = report(fits, heldout=Problem(problem.model, problem.data))
    assert "Measurements that were held out" in page
    assert page.count("PIT values") == 2


@pytest.mark.slow
def test_fits_of_other_data_have_a_part_of_their_own(fits):
    other = made_fit(growth_problem(), "pcuq", 0.2)
    assert report([*fits, other]).count('class="verdict') == 2
    with pytest.raises(InputError, match="belong to one problem"):
        report([*fits, other], [held(other, True)])
    with pytest.raises(InputError, match="a Case has its own"):
        report([Case("", fits)], [held(fits[1], True)])


def test_data_without_a_covariate_are_reported_too():
    model = pcuq.FunctionModel(lambda x, p: [p["m"]], {"m": pcuq.Parameter("identity")}, ("y",))
    problem = pcuq.Problem(model, pcuq.Data([0.1, 0.5, 0.9], noise=0.5))
    page = report(made_fit(problem, "pcuq", 0.3, centre=[0.5]))
    assert page.count("data and bands") == 1


def test_the_command_writes_the_page(fits, tmp_path):
    paths = [str(fit.save(tmp_path / f"{fit.method}.nc")) for fit in fits]
    out = tmp_path / "r.html"
    result = CliRunner().invoke(cli.app, ["report", *paths, "--out", str(out), "--title", "A < B"])
    assert result.exit_code == 0, result.stderr
    assert "<title>A &lt; B</title>" in out.read_text(encoding="utf-8")
    assert "bayes.nc" in out.read_text(encoding="utf-8")
    result = CliRunner().invoke(cli.app, ["report", *paths, "--out", str(out), "--json"])
    (part,) = json.loads(result.stdout)
    assert part["verdict"]["kind"] in ("care", "no")
    assert [fit["label"] for fit in part["fits"]] == ["PCUQ", "Bayes"]
    assert 0 <= part["fits"][0]["coverage"]["0.9"] <= 1
    result = CliRunner().invoke(cli.app, ["report", *paths, "--do", "rate*=2"])
    assert result.exit_code == 2
    assert "give --problem FILE" in result.stderr


@pytest.mark.default_precision
def test_a_report_is_made_in_64_bits_whatever_the_flag(problem):
    with jax.enable_x64(True):
        fit = made_fit(problem, "pcuq", 0.2)
    assert "Can this model be trusted to predict?" in report(fit, do=["rate*=0.5"])


@pytest.mark.slow
def test_a_report_on_eleven_species_by_three_methods_is_small_and_quick():
    names = [f"species_{i}" for i in range(11)]
    model = pcuq.FunctionModel(
        lambda x, p: [p[f"k{i}"] * jnp.exp(-x / (i + 2)) for i in range(11)],
        {f"k{i}": pcuq.Parameter("identity") for i in range(11)},
        names,
    )
    x = np.linspace(0, 45, 80)
    rng = np.random.default_rng(0)
    y = np.stack([np.exp(-x / (i + 2.5)) for i in range(11)], -1) + 0.05 * rng.normal(size=(80, 11))
    problem = pcuq.Problem(model, pcuq.Data(y, x, noise=0.05), pcuq.GaussianKernel(combine="sum"))
    objective = Objective(problem)
    common = {"centre": np.ones(11), "objective": objective, "draws": 150, "particles": 20}
    fits = [
        made_fit(problem, method, spread, **common)
        for method, spread in (("pcuq", 0.1), ("bayes", 0.01), ("mmd-bayes", 0.02))
    ]
    began = time.process_time()  # of this process: others may keep the machine busy
    page = report(fits)
    assert time.process_time() - began < 20
    assert len(page.encode()) < 5e6
    assert page.count("data and bands") == 11
