"""Small versions of the paper's experiments: what they write is complete and says what it should.

Sizes are far too small to converge, so nothing here is about coverage; that fits are not to be
trusted must then be said everywhere. Every experiment runs with closed forms and draws that were
made up, and among the slow tests with the equations and the sampler.
"""

import io
import json
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import closed_forms
import numpy as np
import pytest
from matplotlib.figure import Figure

import pcuq
from pcuq.calibrate import Calibration
from pcuq.errors import ComputationError, InputError
from pcuq.reproduce import TINY, erk_cases, reproduce
from pcuq.reproduce import ahead as ahead_module
from pcuq.reproduce import all as all_module
from pcuq.reproduce import cases as lv_cases
from pcuq.reproduce import erk as erk_module
from pcuq.reproduce import erk_replicates as erk_replicates_module
from pcuq.reproduce import lotka_volterra as lv_module
from pcuq.reproduce import replicates as replicates_module
from pcuq.reproduce.departures import CODE_TIMES, Departure, problem_with
from pcuq.reproduce.figures import DISTRUST, warn, warn_of_means
from pcuq.reproduce.methods import fit_by
from pcuq.reproduce.prior import PRIORS, with_prior
from pcuq.reproduce.readme import write_readme
from pcuq.reproduce.robustness import ERROR, contaminated
from pcuq.reproduce.rows import mean_row
from pcuq.reproduce.spread import denser
from pcuq.reproduce.store import Store
from pcuq.zoo import erk, lotka_volterra

KEYS = {
    "regularisation",
    "rhat_max",
    "ess_min",
    "fixed_point_residual",
    "share_outside_fit",
    "coverage",
    "crps",
    "seconds",
    "status",
}
CALIBRATION = {
    "regularisation": 4e-5,
    "bound_by": "the spread",
    "lams": [1e-5, 3e-5, 1e-4],
    "outside": [[0.0, 0.02, 0.2]],
    "spread": [[0.03, 0.035, 0.05]],
    "bayes_spread": [0.01],
    "settled": [[True, True, True]],
    "floor": 0.03,
    "seconds": 0.0,
}


@pytest.fixture(autouse=True)
def quick_calibration(monkeypatch):
    """λ★ is tested where it is made: here it only has to be used."""
    for module in (lv_module, replicates_module):
        monkeypatch.setattr(module, "calibration", lambda setting, seed, size: CALIBRATION)
    cells = CALIBRATION | {"regularisation": 2.7e-6}
    for module in (erk_module, erk_replicates_module):
        monkeypatch.setattr(module, "calibration", lambda seed, size: cells)


@pytest.fixture(params=["made up", pytest.param("sampled", marks=pytest.mark.slow)])
def draws(request, monkeypatch):
    """Where the draws of every fit come from."""
    if request.param == "made up":
        closed_forms.put_in_place(monkeypatch)
    return request.param


def check_rows(rows):
    for row in rows.values():
        if isinstance(row, dict):
            assert row.keys() >= KEYS
            assert set(row["coverage"]) == {"0.5", "0.9"}
            assert 0 <= row["coverage"]["0.5"] <= row["coverage"]["0.9"] <= 1
            assert row["crps"] > 0


def check_files(out, summary):
    assert json.loads((out / "summary.json").read_text()) == json.loads(json.dumps(summary))
    text = (out / "README.md").read_text()
    for name in summary.get("figures", []):
        assert (out / name).stat().st_size > 1000
        assert name.split(".")[0] in text
    return text


def test_lotka_volterra_writes_every_figure_and_fit(draws, tmp_path):
    said = []
    summary = reproduce("lotka-volterra", tmp_path, size=TINY, tell=said.append)
    check_files(tmp_path, summary)
    stems = {name.split(".")[0] for name in summary["figures"]}
    assert stems == {"main", "traces", "sensitivity", "particles", "calibration"}
    assert set(summary["cases"]) == {"well-specified", "misspecified"}
    for case, rows in summary["cases"].items():
        check_rows(rows)
        assert rows["pcuq-tenfold"]["regularisation"] == pytest.approx(4e-4)
        assert {"bayes", "mmd-bayes", "pcuq", "pcuq-tenth", "pcuq-N6"} <= set(rows)
        for key in rows:
            assert pcuq.load(tmp_path / "fits" / f"{case}-{key}.nc").status == rows[key]["status"]
            assert any(case in line and key in line and "R-hat" in line for line in said)
    counted = summary["exploded_paths"]["misspecified"]
    assert counted == lotka_volterra.simulate(0, misspecified=True).exploded_paths


def test_erk_writes_every_figure_and_coverage_by_species(draws, tmp_path):
    summary = reproduce("erk", tmp_path, size=TINY, tell=lambda line: None)
    text = check_files(tmp_path, summary)
    assert {name.split(".")[0] for name in summary["figures"]} == {
        "main", "bayes", "pcuq", "rates", "truth", "coverage", "calibration"
    }  # fmt: skip
    for regime in ("control", "inhibited"):
        check_rows(summary["cases"][regime])
        for method in ("bayes", "pcuq"):
            species = summary["cases"][regime][method]["species"]
            assert tuple(species) == erk.OUTPUTS
            shares = [one["coverage"]["0.9"] for one in species.values()]
            overall = summary["cases"][regime][method]["coverage"]["0.9"]
            assert np.mean(shares) == pytest.approx(overall)
    assert "MEKPP_ERK" in text and "NOT converged" in text


def test_replicates_resume_where_they_stopped(draws, tmp_path):
    said = []
    first = reproduce("replicates", tmp_path, size=TINY, tell=said.append)
    for case in ("well-specified", "misspecified"):
        rows = first["cases"]["main"][case]
        check_rows(rows)
        assert rows["pcuq"]["replicates"] == 2
        assert np.isfinite(rows["pcuq"]["standard_error"]["coverage"]["0.9"])
        assert rows["exploded_paths"] == sum(rows["exploded_paths_by_set"])
    assert set(first["bars"]) == {"main"}
    assert first["cases"]["erk"]["inhibited"]["pcuq"]["replicates"] == 2
    parts = sorted((tmp_path / "parts").glob("*.json"))
    before = [path.stat().st_mtime_ns for path in parts]
    again = reproduce("replicates", tmp_path, size=TINY, tell=said.append)
    assert [path.stat().st_mtime_ns for path in parts] == before
    assert again["cases"] == first["cases"]
    assert "0 parts computed" in again["parts"]
    assert {name.split(".")[0] for name in again["figures"]} == {"replicates", "erk"}
    check_files(tmp_path, again)
    text = (tmp_path / "README.md").read_text()
    held = sum(again["bars"]["main"].values())
    assert (text.count(": yes"), text.count(": NO")) == (held, 3 - held)
    assert f"redrawn: {again['cases']['main']['misspecified']['exploded_paths']}." in text
    cover = again["cases"]["erk"]["inhibited"]["bayes"]["species"]["RKIPP_RP"]["coverage"]
    assert f"| RKIPP_RP | {cover['0.5']:.2f} / {cover['0.9']:.2f} |" in text


class AtOnce(ThreadPoolExecutor):
    """In place of processes, which would know nothing of what is made up."""

    def __init__(self, workers, mp_context):
        super().__init__(workers)


def test_replicates_of_several_workers_are_those_of_one(tmp_path, monkeypatch):
    closed_forms.put_in_place(monkeypatch)
    monkeypatch.setattr(ahead_module, "ProcessPoolExecutor", AtOnce)
    said = []
    one, two = tmp_path / "one", tmp_path / "two"
    alone = reproduce("replicates", one, size=TINY, tell=lambda line: None)
    shared = reproduce("replicates", two, size=replace(TINY, workers=2), tell=said.append)
    # Every part was there when the loop came to it, but for λ★; nothing was said twice.
    counts = r"1 parts computed, {} found on disk, \d+ s for all of them"
    told = f"Lotka–Volterra: {counts.format(4)}; ERK: {counts.format(2)}"
    assert re.fullmatch(told, shared["parts"])
    assert sum("set 1, pcuq" in line for line in said) == 2
    for setting, cases in alone["cases"].items():
        for case, rows in cases.items():
            for name in ("bayes", "pcuq"):
                assert shared["cases"][setting][case][name]["each"] == rows[name]["each"]


@pytest.mark.slow
def test_processes_of_their_own_answer_in_order_and_in_64_bits():
    said = []
    ahead_module.ahead(closed_forms.twice, [(1,), (2,), (3,)], 2, said.append)
    assert said == ["2 in float64", "4 in float64", "6 in float64"]


def test_robustness_compares_methods_at_each_share(draws, tmp_path):
    summary = reproduce("robustness", tmp_path, size=TINY, tell=lambda line: None)
    check_files(tmp_path, summary)
    assert list(summary["cases"]) == ["0% outliers", "20% outliers"]
    for rows in summary["cases"].values():
        check_rows(rows)
        assert len(rows) == 5
    wrong = summary["cases"]["20% outliers"]
    if draws == "sampled":
        assert wrong["bayes"]["parameter_error"] > 5 * wrong["bayes-student-t"]["parameter_error"]


def test_prior_tries_every_q0(draws, tmp_path):
    summary = reproduce("prior", tmp_path, size=TINY, tell=lambda line: None)
    check_files(tmp_path, summary)
    for rows in summary["cases"].values():
        check_rows(rows)
        assert list(rows) == list(PRIORS)[:2]


def test_spread_lets_regularisation_fall_with_n(draws, tmp_path):
    summary = reproduce("spread", tmp_path, size=TINY, tell=lambda line: None)
    check_files(tmp_path, summary)
    for n in (30, 60):
        rows = summary["cases"][f"misspecified, n = {n}"]
        check_rows(rows)
        assert rows["pcuq-1/n"]["regularisation"] == pytest.approx(4e-5 * 61 / n)
        assert rows["pcuq"]["regularisation"] == pytest.approx(4e-5 * (61 / n) ** 2)
        assert rows["pcuq"]["band_width"] > 0


def test_departures_change_one_thing_at_a_time(draws, tmp_path):
    summary = reproduce("departures", tmp_path, size=TINY, tell=lambda line: None)
    check_files(tmp_path, summary)
    for rows in summary["cases"].values():
        check_rows(rows)
        assert rows["ℓ² = 0.1"]["regularisation"] == rows["the paper"]["regularisation"]
        assert rows["both"]["regularisation"] == pytest.approx(1e-3 / 59**2)


def test_erk_is_fitted_with_other_kernels(draws, tmp_path):
    summary = reproduce("erk-kernels", tmp_path, size=TINY, tell=lambda line: None)
    check_files(tmp_path, summary)
    for rows in summary["cases"].values():
        check_rows(rows)
        assert list(rows) == list(erk_replicates_module.KERNELS)[:2]
        assert rows["sum, λ★/10"]["regularisation"] == pytest.approx(2.7e-7)
        assert set(rows["sum, λ★"]["species"]) == set(erk.OUTPUTS)


@pytest.mark.slow
def test_a_late_start_is_a_shift_of_the_solution():
    data = lotka_volterra.simulate(0)
    late = problem_with(data, Departure(late_start=True)).model
    usual = lotka_volterra.model()
    values = lotka_volterra.true_parameters()
    shifted = late.simulate(CODE_TIMES, values)["prey"]
    assert np.allclose(shifted, usual.simulate(CODE_TIMES - CODE_TIMES[0], values)["prey"])


def test_all_are_the_paper_s_own_each_in_its_folder(tmp_path, monkeypatch):
    ran, said = [], []

    def experiment(name):
        def run(out, seed, size, tell):
            assert out.is_dir()
            ran.append((name, out.name, seed))
            return {"name": name}

        return run

    known = {name: experiment(name) for name in all_module.EXPERIMENTS}
    monkeypatch.setattr(all_module, "EXPERIMENTS", known)
    found = reproduce("all", tmp_path, seed=4, size=TINY, tell=said.append)
    assert ran == [(name, name, 4) for name in all_module.ALL]
    assert found == {name: {"name": name} for name in all_module.ALL}
    written = json.loads((tmp_path / "summary.json").read_text())
    assert written["experiments"] == list(all_module.ALL)
    assert said[-1].startswith("all: ")


def test_data_without_a_regularisation_of_their_own_get_a_fixed_one_and_say_why(monkeypatch):
    monkeypatch.setattr(erk, "problem", lambda *args, **options: "problem")

    def calibrate(problem, replicates, seed):
        if seed:
            raise ComputationError("no λ will do")
        return Calibration.from_dict(CALIBRATION)

    monkeypatch.setattr(erk_cases, "calibrate", calibrate)
    assert erk_cases.calibration(0, TINY) == CALIBRATION
    fixed = erk_cases.calibration(1, TINY)
    assert fixed == {"regularisation": erk_cases.FALLBACK, "bound_by": "nothing: no λ will do"}


def test_an_unknown_experiment_is_refused(tmp_path):
    with pytest.raises(InputError, match="lotka-volterra"):
        reproduce("lotka", tmp_path)


def test_a_part_of_other_settings_is_refused(tmp_path):
    Store(tmp_path, {"seed": 0, "n": 1}).get("one", lambda: {"a": 1})
    with pytest.raises(InputError, match="n differ"):
        Store(tmp_path, {"seed": 0, "n": 2}).get("one", lambda: {"a": 1})


def test_a_part_that_cannot_be_written_leaves_nothing(tmp_path):
    store = Store(tmp_path, {})
    with pytest.raises(TypeError, match="not JSON serializable"):
        store.get("one", lambda: {"a": object()})
    assert list(tmp_path.iterdir()) == []


def test_what_is_written_is_utf_8_wherever_it_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(io, "text_encoding", lambda encoding, *_: encoding or "ascii")
    for _ in range(2):
        assert Store(tmp_path, {}).get("one", lambda: {"λ★": 1}) == {"λ★": 1}
    summary = {"experiment": "λ★", "seed": 0, "seconds": 1.0, "cases": {}}
    write_readme(tmp_path, summary, {}, [])
    assert "# λ★" in (tmp_path / "README.md").read_text(encoding="utf-8")


def test_what_is_not_a_number_is_null(tmp_path):
    part = Store(tmp_path, {}).get("one", lambda: {"a": [float("nan"), 1.0]})
    assert part == {"a": [None, 1.0]}


def test_standard_error_is_that_of_the_mean():
    def row(cover):
        figures = dict.fromkeys(KEYS, 1.0)
        return figures | {"coverage": {"0.5": cover, "0.9": 1.0}, "trusted": True, "spread": 0.1}

    found = mean_row([row(0.2), row(0.4), row(0.9)])
    assert found["coverage"]["0.5"] == pytest.approx(0.5)
    wanted = np.std([0.2, 0.4, 0.9], ddof=1) / np.sqrt(3)
    assert found["standard_error"]["coverage"]["0.5"] == pytest.approx(wanted)
    assert found["replicates"] == 3


def test_contamination_touches_its_share_and_nests():
    clean = lotka_volterra.problem(0)
    few, many = (contaminated(clean, share, 3).data.y - clean.data.y for share in (0.1, 0.2))
    assert np.count_nonzero(few[:, 0]) == 6 and np.count_nonzero(many[:, 0]) == 12
    assert set(np.unique(many.round(9))) == {0.0, ERROR}
    assert (many[few[:, 0] > 0] == few[few[:, 0] > 0]).all()


def test_a_changed_q0_is_the_normal_it_says():
    problem = with_prior(lotka_volterra.problem(0), -2.0, 0.5)
    theta = np.array([-2.0, -1.5])
    wanted = -0.5 - 2 * np.log(0.5 * np.sqrt(2 * np.pi))
    assert float(problem.parameters.log_prior(theta)) == pytest.approx(wanted)


def test_denser_data_are_of_the_same_truth():
    data = lotka_volterra.simulate(1, True)
    problem = denser(data, 601, 1)
    residuals = np.asarray(problem.data.y) - data.truth[:601]
    assert residuals.std() == pytest.approx(1.0, abs=4 / np.sqrt(2 * residuals.size))


@pytest.mark.slow
def test_figures_say_which_fits_not_to_trust():
    assert TINY.pcuq.draws < 50  # so that no fit can be good
    fitted, _ = fit_by("pcuq", lotka_volterra.problem(0), 4e-5, TINY.pcuq)
    ax = Figure().subplots()
    warn(ax, {"PCUQ": fitted})
    assert DISTRUST in ax.texts[0].get_text() and "PCUQ" in ax.texts[0].get_text()


def test_a_figure_of_means_says_which_hold_fits_not_to_trust():
    made = Figure()
    good, bad = {"trusted": True, "status": ""}, {"trusted": False, "status": "3 of 4 converged."}
    warn_of_means(made, {"PCUQ": good})
    assert not made.get_suptitle()
    warn_of_means(made, {"PCUQ": good, "Bayes": bad})
    assert "1 of 2" in made.get_suptitle() and "Bayes (3 of 4 converged.)" in made.get_suptitle()


def test_scores_are_of_what_lies_beyond_the_data():
    assert lv_cases.TIMES[lv_cases.LATER].min() > 60
    assert lv_cases.TIMES[-1] == 90


def test_a_folder_can_be_carried_to_another_place(tmp_path):
    Store(tmp_path / "a", {"seed": 0}).get("one", lambda: {"x": 1})
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    store = Store(tmp_path / "b", {"seed": 0})
    assert store.get("one", lambda: {"x": 2}) == {"x": 1}
