"""The command line: what it writes, and how it fails."""

import errno
import io
import json
import math
import re
import runpy
import shlex
import subprocess
import sys
import time
import types
from pathlib import Path

import closed_forms
import jax
import numpy as np
import petab_text
import pytest
import xarray as xr
from made_fits import growth_problem, made_fit
from matplotlib.figure import Figure
from rich.console import Console
from typer.testing import CliRunner

import pcuq
from pcuq import cli, demo
from pcuq.cli.cache import use_compilation_cache
from pcuq.cli.files import finite, write
from pcuq.cli.fit import _choice
from pcuq.cli.options import parse_noise, parse_times
from pcuq.cli.problems import load_problem, load_runs, read_heldout, read_table
from pcuq.cli.progress import Figures, PlainLines, _duration, display, listening
from pcuq.demo import NAMES
from pcuq.errors import ComputationError, InputError
from pcuq.reproduce.cases import CASES
from pcuq.reproduce.methods import METHODS, Run
from pcuq.samplers.base import Draw, Progress

EXAMPLES = Path(__file__).parents[2] / "examples"
LINE = """
import pcuq

model = pcuq.FunctionModel(
    lambda x, p: [p["slope"] * x], {"slope": pcuq.Parameter("identity")}, ("y",)
)
problem = pcuq.Problem(model, pcuq.Data([0.1, 0.6, 0.9, 1.7], [0.0, 1.0, 2.0, 3.0], noise=0.2))
"""
SHORT = ["--regularisation", "1e-2", "--particles", "4", "--warmup", "8", "--draws", "8"]


def invoke(*arguments):
    return CliRunner().invoke(cli.app, [str(argument) for argument in arguments])


@pytest.fixture
def line(tmp_path) -> Path:
    path = tmp_path / "line.py"
    path.write_text(LINE)
    return path


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """(problem file, run file, result) of one short fit."""
    folder = tmp_path_factory.mktemp("cli")
    problem, out = folder / "line.py", folder / "run.nc"
    problem.write_text(LINE)
    result = invoke("fit", problem, *SHORT, "--out", out, "--json")
    return problem, out, result


def test_fit_prints_its_figures_as_json_and_writes_the_run(fitted):
    _, out, result = fitted
    assert result.exit_code == 0, result.stderr
    figures = json.loads(result.stdout)
    assert figures["method"] == "pcuq"
    assert figures["regularisation"] == 1e-2
    assert isinstance(figures["trusted"], bool)
    assert figures["status"] == pcuq.load(out).status
    said = pcuq.load(out).tree.attrs["command"]
    assert said == shlex.join(["pcuq", "fit", str(fitted[0]), *SHORT])
    assert set(figures["parameters"]) == {"slope"}
    assert "16/" in result.stderr or "draws" in result.stderr  # progress, apart from the figures


def test_what_is_written_may_be_read_by_those_who_may_read_other_files(fitted, tmp_path):
    other = tmp_path / "other"
    other.write_text("")
    assert fitted[1].stat().st_mode == other.stat().st_mode


def test_predict_writes_quantiles_as_csv_and_every_draw_as_netcdf(fitted, tmp_path):
    problem, run, _ = fitted
    table, every = tmp_path / "p.csv", tmp_path / "p.nc"
    common = ("predict", run, "--problem", problem, "--times", "0:3:0.5")
    assert invoke(*common, "--out", table).exit_code == 0
    lines = table.read_text().splitlines()
    assert lines[0].startswith("x,output,mean,q05")
    assert len(lines) == 8
    assert invoke(*common, "--out", every).exit_code == 0
    with xr.open_dataset(every, engine="h5netcdf") as dataset:
        assert dataset.sizes["x"] == 7
        assert dataset.sizes["sample"] == 2 * 4 * 8


def test_an_intervention_changes_the_prediction(fitted):
    problem, run, _ = fitted

    def means(*do):
        result = invoke("predict", run, "--problem", problem, "--times", "1,2", "--json", *do)
        assert result.exit_code == 0, result.stderr
        return np.array([row["mean"] for row in json.loads(result.stdout)["predictions"]])

    assert np.allclose(means("--do", "slope*=3"), 3 * means())
    assert np.allclose(means("--do", "slope=2", "--do", "slope+=1"), [3.0, 6.0])


def test_score_tells_how_well_a_second_problem_is_predicted(fitted, tmp_path):
    problem, run, _ = fitted
    later, figure = tmp_path / "later.py", tmp_path / "scores.png"
    later.write_text(LINE.replace("1.7", "1.8"))
    common = ("score", run, later, "--problem", problem)
    table = invoke(*common, "--out", figure)
    assert table.exit_code == 0, table.stderr
    assert "crps" in table.stdout and "pcuq" in table.stdout
    assert figure.read_bytes().startswith(b"\x89PNG")
    said = json.loads(invoke(*common, "--json").stdout)
    assert 0 <= said["pcuq"]["scores"]["all"]["coverage"]["0.9"] <= 1
    alone = invoke("score", run, "--problem", problem)
    assert alone.exit_code == 2 and "after it the held-out problem" in alone.stderr


def test_runs_of_one_name_in_several_folders_are_all_scored(fitted, tmp_path):
    problem, run, _ = fitted
    runs = [tmp_path / folder / "run.nc" for folder in ("a", "b", "c")]
    for copy in runs:
        copy.parent.mkdir()
        copy.write_bytes(run.read_bytes())
    result = invoke("score", *runs, problem, "--problem", problem, "--json")
    assert result.exit_code == 0, result.stderr
    assert list(json.loads(result.stdout)) == ["pcuq", "run", str(runs[2])]


def test_a_file_that_adds_to_the_path_keeps_what_it_added(tmp_path, monkeypatch):
    before = list(sys.path)
    monkeypatch.setattr(sys, "path", list(before))
    path = tmp_path / "line.py"
    path.write_text(f"import sys\nsys.path.insert(0, '/elsewhere')\n{LINE}")
    load_problem(path)
    assert sys.path == ["/elsewhere", *before]


def test_held_out_rows_of_an_unknown_condition_are_refused(tmp_path):
    plain = growth_problem()
    data = pcuq.Data(plain.data.y, plain.data.x, 0.2, condition=["quick"] * plain.data.n)
    quick = {"quick": pcuq.Intervention(scale={"rate": 2.0})}
    problem = pcuq.Problem(plain.model, data, conditions=quick)
    table = tmp_path / "later.csv"
    table.write_text("time,prey\n6,3.1\n")
    fit = pcuq.Fit(xr.DataTree(), problem)
    with pytest.raises(InputError, match="which of the conditions quick"):
        read_heldout(table, fit)
    assert read_heldout(table, pcuq.Fit(xr.DataTree(), plain)).data.n == 1


def test_held_out_measurements_are_a_table_s_or_a_problem_s(tmp_path, line):
    fit = pcuq.Fit(xr.DataTree(), growth_problem())
    assert read_heldout(line, fit).data.n == 4
    table = tmp_path / "later.csv"
    table.write_text("time,predators\n6,3.1\n")
    with pytest.raises(InputError, match=r"later.csv has no column named like .*prey"):
        read_heldout(table, fit)


def test_a_table_needs_a_model_in_the_file(tmp_path):
    (tmp_path / "table.csv").write_text("x,y\n1,2\n")
    (tmp_path / "empty.py").write_text("a = 1\n")
    table = read_table(tmp_path / "table.csv", None, None, None, "0.1")
    with pytest.raises(InputError, match=r"empty\.py needs to define `model`, for the meas"):
        load_problem(tmp_path / "empty.py", table)


def test_a_petab_problem_whose_files_cannot_be_carried_is_fitted_all_the_same(
    tmp_path, monkeypatch, capsys
):
    def refuse(path):
        raise InputError("it names a file outside its folder.")

    monkeypatch.setattr("pcuq.io.source.petab_source", refuse)
    path = petab_text.write(tmp_path, petab_text.V1)
    loaded = load_problem(path)
    assert loaded.source.main == "problem.yaml" and not loaded.source.files
    assert "will not carry its problem: it names a file outside" in capsys.readouterr().err


def test_runs_of_one_problem_share_it(fitted):
    """Its file may make data by simulation, and is executed once."""
    problem, run, _ = fitted
    one, other = load_runs([run, run], problem)
    assert one.problem is not None and one.problem is other.problem


def test_predict_refuses_another_problem(fitted, tmp_path):
    _, run, _ = fitted
    other = tmp_path / "other.py"
    other.write_text(LINE.replace("1.7", "1.8"))
    result = invoke("predict", run, "--problem", other, "--times", "0:3:1")
    assert result.exit_code == 2
    assert "was edited since" in result.stderr
    result = invoke("predict", run, "--problem", other, "--times", "0:3:1", "--even-if-changed")
    assert result.exit_code == 2
    assert "another problem" in result.stderr


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("x = 1", "needs to define `problem`"),
        ("problem = 3", "got int"),
        ("1 / 0", "ZeroDivisionError"),
        ("import pcuq\npcuq.Parameter('logg')", "`transform` needs one of"),
        ("import sys\nsys.exit(0)", "SystemExit"),
    ],
)
def test_a_bad_problem_file_is_bad_input(tmp_path, content, message):
    path = tmp_path / "bad.py"
    path.write_text(content)
    result = invoke("fit", path)
    assert result.exit_code == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""


def test_a_petab_file_that_is_none_is_bad_input(tmp_path):
    path = tmp_path / "problem.yaml"
    path.write_text("format: 1\n")
    result = invoke("fit", path)
    assert result.exit_code == 2
    assert "no PEtab problem" in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("--out", "run.csv"),
        ("--out", "no/such/folder/run.nc"),
        ("--regularisation", "small"),
        ("--regularisation", "-1"),
        ("--method", "magic", "--regularisation", "1e-3"),
        ("--particles", "1", "--regularisation", "1e-3"),
        ("--seed", "-1"),
        ("--no-such-option",),
    ],
)
def test_bad_options_are_bad_input(line, tmp_path, monkeypatch, arguments):
    monkeypatch.chdir(tmp_path)
    result = invoke("fit", line, *arguments)
    assert result.exit_code == 2
    assert result.stderr
    assert sorted(tmp_path.iterdir()) == [line]


def test_a_missing_file_is_bad_input(tmp_path, line):
    assert invoke("fit", tmp_path / "none.py").exit_code == 2
    result = invoke("predict", tmp_path / "none.nc", "--problem", line, "--times", "0:1:1")
    assert result.exit_code == 2
    assert "there is no file" in result.stderr


@pytest.mark.parametrize(
    ("error", "code"),
    [(InputError("bad"), 2), (ComputationError("lost"), 3), (KeyboardInterrupt(), 130)],
)
def test_exit_codes_say_what_happened(line, tmp_path, monkeypatch, error, code):
    def fail(*args, **kwargs):
        raise error

    # `pcuq.fit` is the function: the module of that name is found another way.
    monkeypatch.setattr(sys.modules["pcuq.fit"], "fit", fail)
    result = invoke("fit", line, "--out", tmp_path / "run.nc")
    assert result.exit_code == code
    assert not (tmp_path / "run.nc").exists()


def test_a_fit_that_was_stopped_goes_on_to_the_same_result(fitted, tmp_path, monkeypatch):
    problem, run, _ = fitted
    out = tmp_path / "run.nc"
    command = ("fit", problem, *SHORT, "--out", out)

    def stop(self, progress):
        if not progress.warming_up:  # a chunk is kept
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(PlainLines, "__call__", stop)
        result = invoke(*command)
    assert result.exit_code == 130
    assert "--resume" in result.stderr
    assert not out.exists()
    result = invoke(*command)  # an hour's work is not thrown away unasked
    assert result.exit_code == 2
    assert "--restart" in result.stderr
    result = invoke(*command, "--resume")
    assert result.exit_code == 0, result.stderr
    assert np.array_equal(pcuq.load(out).thetas, pcuq.load(run).thetas)
    assert list(tmp_path.iterdir()) == [out]  # nothing is left of the checkpoint
    assert invoke(*command, "--resume").exit_code == 2  # there is nothing to go on with


def test_times_include_both_ends():
    assert np.array_equal(parse_times("0:90:0.5"), np.arange(181) / 2)
    assert np.allclose(parse_times("0:0.3:0.1"), [0.0, 0.1, 0.2, 0.3])
    assert np.array_equal(parse_times("0:1:0.4"), [0.0, 0.4, 0.8])
    assert np.array_equal(parse_times("3,1"), [3.0, 1.0])


@pytest.mark.parametrize("text", ["", "0:1", "0:1:0", "1:0:1", "a:b:c", "0,nan", "0:1e9:1e-9"])
def test_times_that_cannot_be_read_are_bad_input(text):
    with pytest.raises(InputError, match="--times needs"):
        parse_times(text)


def test_a_problem_file_may_import_what_lies_beside_it(tmp_path):
    (tmp_path / "beside_the_problem.py").write_text("noise = 0.2\n")
    path = tmp_path / "problem.py"
    path.write_text("from beside_the_problem import noise\n" + LINE.replace("=0.2", "=noise"))
    assert load_problem(path).problem.data.n == 4


@pytest.mark.parametrize("name", ["decay", "lotka_volterra"])
def test_examples_define_a_problem(name):
    found = load_problem(EXAMPLES / f"{name}.py").problem
    assert found.fingerprint == runpy.run_path(str(EXAMPLES / f"{name}.py"))["problem"].fingerprint


def test_the_example_of_a_table_fits_its_model():
    table = read_table(EXAMPLES / "infusion.csv", "time", None, None, "0.15")
    found = load_problem(EXAMPLES / "infusion.py", table).problem
    assert found.outputs == ("plasma",)
    assert found.data.n == 14


@pytest.mark.slow
def test_demo_writes_figures_a_summary_and_a_report(tmp_path):
    size = demo.Size(
        1e-4, Run(particles=6, warmup=10, draws=10), Run(systems=1, warmup=10, draws=10)
    )
    summary = demo.demo(tmp_path, size=size)
    written = json.loads((tmp_path / "summary.json").read_text())
    assert written == summary
    wanted = {"regularisation", "rhat_max", "ess_min", "fixed_point_residual", "share_outside_fit"}
    wanted |= {"coverage", "crps", "seconds", "status"}
    for methods in written["cases"].values():
        assert set(methods) == {"bayes", "mmd-bayes", "pcuq"}
        for row in methods.values():
            assert wanted <= set(row)
            assert set(row["coverage"]) == {"0.5", "0.9"}
    assert written["exploded_paths"]["well-specified"] == 0
    page = (tmp_path / "report.html").read_text()
    assert page.count("<h2>") == 2  # a part for each case
    assert 'src="http' not in page
    assert "Do not trust this fit yet" in page  # ten draws are not enough, and it says so
    assert "It cannot be said yet" in page


def test_the_demo_prints_what_it_writes_as_a_table_or_as_json(tmp_path, monkeypatch):
    closed_forms.put_in_place(monkeypatch)
    drawn = []

    def composed(figure, file, **options):
        drawn.append([ax.get_title() for ax in figure.axes])
        (file.write if hasattr(file, "write") else file.write_bytes)(b"composed, not rendered")

    def fitted(problem, method, regularisation, **options):
        truth = {name: 0.1 for name in problem.parameters}
        return made_fit(problem, method, centre=problem.parameters.unconstrain(truth), draws=10)

    monkeypatch.setattr(Figure, "savefig", composed)
    monkeypatch.setattr("pcuq.reproduce.methods.fit", fitted)
    shown = invoke("demo", "--out", tmp_path, "--seed", 3)
    assert shown.exit_code == 0, shown.stderr
    written = json.loads((tmp_path / "summary.json").read_text())
    assert written["seed"] == 3
    rows = shown.stdout.splitlines()[1:]
    names = [(case, method) for case in CASES for method in METHODS]
    assert [tuple(row.split()[:2]) for row in rows] == names
    for row, (case, method) in zip(rows, names, strict=True):
        known = written["cases"][case][method]
        assert f"{known['coverage']['0.9']:.2f}" in row and row.endswith("yes")
        assert f"{known['crps']:.3g}" in row
    # A panel of parameters for each case, and one of predictions for each method and case.
    assert list(CASES) in drawn
    assert [f"{NAMES[m]}, {c}" for c in CASES for m in METHODS] in drawn
    for file in ("report.html", "parameters.png", "predictions.png"):
        assert (tmp_path / file).stat().st_size > 0
    page = (tmp_path / "report.html").read_text()
    assert page.count("<h2>") == 2 and "from seed 3" in page
    assert "misspecified: PCUQ, " in shown.stderr and "wrote" in shown.stderr


def test_bench_prints_a_row_for_each_size_and_the_other_code_beside(monkeypatch):
    row = {"ms_per_gradient": 1.25, "ms_per_mala_iteration": 2.5, "compile_s": 3.0}
    row |= {"steps": 81, "ode_error": 2e-6}
    theirs = {"ms_per_mala_iteration": 250.0}
    found = {
        "lotka_volterra": {"10": row, "50": row},
        "erk": {"20": row},
        "reference": {
            "lotka_volterra": {"10": {**theirs, "times_as_long": 100.0}},
            "erk": {"20": theirs},
        },
        "memory_mb": math.nan,
    }
    asked = []

    def run(quick, reference, tell):
        asked.append((quick, reference))
        return found

    monkeypatch.setattr("pcuq.bench.bench", run)
    shown = invoke("bench", "--quick", "--reference", "theirs")
    assert asked == [(True, Path("theirs"))]
    lines = shown.stdout.splitlines()
    assert [line.split() for line in lines[1:4]] == [
        ["lotka_volterra", "10", "1.25", "2.5", "3", "81", "2e-06"],
        ["lotka_volterra", "50", "1.25", "2.5", "3", "81", "2e-06"],
        ["erk", "20", "1.25", "2.5", "3", "81", "2e-06"],
    ]
    assert lines[4].endswith("N = 10: 250 ms per MALA iteration, 100 times ours")
    assert lines[5].endswith("erk, N = 20: 250 ms per MALA iteration")
    assert json.loads(invoke("bench", "--json").stdout) == {**found, "memory_mb": None}


def test_explore_serves_the_runs_until_it_is_stopped(fitted, monkeypatch):
    pytest.importorskip("panel", reason="panel is not installed")
    from pcuq import explore

    said, stopped = [], []

    class Thread:
        def join(self):
            raise KeyboardInterrupt

    def serve(engine, port, show):
        said.append((engine, port, show))
        served = types.SimpleNamespace(url="http://127.0.0.1:5006", thread=Thread())
        served.stop = lambda: stopped.append(True)
        return served

    monkeypatch.setattr(explore, "serve", serve)
    monkeypatch.setattr(explore, "Engine", lambda fits, condition: (fits, condition))
    problem, run, _ = fitted
    shown = invoke("explore", run, "--problem", problem, "--port", 5006, "--no-open", "--json")
    assert shown.exit_code == 0, shown.stderr
    assert json.loads(shown.stdout) == {"url": "http://127.0.0.1:5006"}
    (((fits, condition), port, show),) = said
    assert [fit.method for fit in fits] == ["pcuq"] and condition == ""
    assert (port, show, stopped) == (5006, False, [True])
    assert "stop with Ctrl-C" in shown.stderr


def test_what_is_compiled_is_kept_in_the_user_s_cache(tmp_path, monkeypatch):
    told = {}
    monkeypatch.setattr(jax.config, "update", told.__setitem__)
    use_compilation_cache()
    assert told == {}  # JAX was told where, by the environment
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    use_compilation_cache()
    assert told["jax_compilation_cache_dir"] == str(tmp_path / "pcuq" / "jax")
    assert (tmp_path / "pcuq" / "jax").is_dir()
    told.clear()
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    use_compilation_cache()
    assert told == {}  # nowhere to keep it: compile anew


@pytest.mark.parametrize(
    ("raised", "kind", "said"),
    [
        (OSError(errno.ENOSPC, "No space left"), ComputationError, "could not be written: No sp"),
        (OSError(errno.EACCES, "Denied"), InputError, "cannot be written: Denied"),
        (InputError("{} is wrong"), InputError, "out.nc is wrong"),
    ],
)
def test_a_file_that_cannot_be_written_leaves_the_old_one(tmp_path, raised, kind, said):
    out = tmp_path / "out.nc"
    out.write_text("old")

    def writer(path):
        path.write_text("half")
        if isinstance(raised, InputError):
            raise InputError(str(raised).format(path))
        raise raised

    with pytest.raises(kind, match=said) as caught:
        write(out, writer)
    assert str(out) in str(caught.value)
    assert out.read_text() == "old" and list(tmp_path.iterdir()) == [out]


def test_an_interrupt_while_arguments_are_read_has_its_code(monkeypatch):
    def interrupted():
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "app", interrupted)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 130


def test_version_and_help_need_no_command():
    assert invoke("--version").stdout.strip() == pcuq.__version__
    for command in cli.COMMANDS:
        assert command in invoke("--help").stdout


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_help_teaches_by_example(name):
    page = invoke(name, "--help").stdout
    assert "For example:" in page
    assert f"  pcuq {name}" in page
    # Each can be copied from a terminal of 80 columns: what is folded ends with a backslash.
    shown = page.split("For example:")[1].split("╭")[0]
    assert max(map(len, shown.splitlines())) <= 80
    for line in re.sub(r"\\ *\n", " ", shown).splitlines():
        assert line.split()[:2] in ([], ["pcuq", name])


def test_help_comes_without_waiting_for_jax():
    code = (
        "import sys; from pcuq.cli import app; print(sorted({'jax', 'xarray'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_names_that_are_imported_late_are_all_that_are_public():
    assert sorted(pcuq._HOME) == sorted(pcuq.__all__) == pcuq.__all__
    for name in pcuq.__all__:
        assert getattr(pcuq, name) is getattr(sys.modules[pcuq._HOME[name]], name)
    assert set(pcuq.__all__) <= set(dir(pcuq))
    assert callable(pcuq.fit)  # and not the module of that name, which has been imported
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        pcuq.nothing  # noqa: B018


def test_a_model_and_a_table_are_enough(tmp_path):
    model, table, out = tmp_path / "model.py", tmp_path / "data.csv", tmp_path / "run.nc"
    model.write_text(LINE.split("problem =")[0])
    table.write_text("time, y, remark\n0, 0.1, a\n1, 0.6, b\n2, 0.9, c\n3, 1.7, d\n")
    result = invoke("fit", model, *SHORT, "--data", table, "--noise", "0.2", "--out", out)
    assert result.exit_code == 0, result.stderr
    table.unlink()  # the run has its own copy
    common = ("predict", out, "--times", "1,2")
    result = invoke(*common, "--problem", model)
    assert result.exit_code == 0, result.stderr
    assert len(result.stdout.splitlines()) == 3

    later, page = tmp_path / "later.csv", tmp_path / "report.html"
    later.write_text("time,y\n4,2.1\n5,2.4\n")
    result = invoke("report", out, "--problem", model, "--heldout", later, "--out", page)
    assert result.exit_code == 0, result.stderr
    assert "Measurements that were held out" in page.read_text(encoding="utf-8")

    result = invoke(*common)
    assert result.exit_code == 2
    assert "give --problem FILE. It was model.py" in result.stderr
    model.write_text(model.read_text().replace("* x", "* x * x"))
    result = invoke(*common, "--problem", model)
    assert result.exit_code == 2
    assert "was edited since" in result.stderr
    assert invoke(*common, "--problem", model, "--even-if-changed").exit_code == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--noise", "0.2"), "give --data"),
        (("--data", "none.csv", "--noise", "0.2"), "no file none.csv"),
        (("--data", "data.csv"), "--data needs --noise"),
        (("--data", "data.csv", "--noise", "0.2", "--x", "hour"), "no column ['hour']"),
        (("--data", "other.csv", "--noise", "0.2"), "no column named like an output"),
        ((), "give its measurements with --data"),
    ],
)
def test_a_table_that_does_not_fit_the_model_is_bad_input(tmp_path, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    Path("model.py").write_text(LINE.split("problem =")[0])
    Path("data.csv").write_text("time,y\n0,0.1\n1,0.6\n")
    Path("other.csv").write_text("time,z\n0,0.1\n1,0.6\n")
    result = invoke("fit", "model.py", *SHORT, *options)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())


def test_noise_is_read_as_numbers_or_names():
    assert parse_noise("0.1") == 0.1
    assert parse_noise("sigma") == "sigma"
    assert parse_noise("0.1, sigma") == [0.1, "sigma"]
    with pytest.raises(InputError, match="--noise needs"):
        parse_noise("0.1,")


def test_figures_beside_the_bar_are_those_of_the_particles():
    figures = Figures()
    rng = np.random.default_rng(0)

    def told(warming_up, **info):
        theta = rng.normal(size=(10, 2, 5, 3)).repeat(2, axis=0)  # each of them stays for two draws
        draw = Draw(theta[-1], theta[-1, ..., 0], theta[-1, ..., 0] > 9)
        return figures(Progress(1, 9, warming_up, info, draw, None if warming_up else theta))

    assert told(True, acceptance=0.5, mmd2=0.0123) == "accepted 50%  MMD² 0.0123"
    assert (
        told(True, walked=0.3, jumped=0.1, failed_proposals=0.25)
        == "accepted 30%  failed solves 25%"
    )
    for _ in range(8):
        figures.due = 0.0
        line = told(False, walked=0.3)
    # Ten paths of 160 draws, half of which are new.
    assert 500 < float(line.split("ESS ")[1]) < 1100


def test_too_few_draws_have_no_ess():
    figures = Figures()
    theta = np.random.default_rng(0).normal(size=(8, 2, 5, 3))
    draw = Draw(theta[-1], theta[-1, ..., 0], theta[-1, ..., 0] > 9)
    said = [figures(Progress(i, 9, False, {}, draw, theta)) for i in range(3)]
    assert said[:2] == ["", ""] and said[2].startswith("ESS ")


def progress(iteration: int, **info) -> Progress:
    theta = np.zeros((2, 5, 3))
    return Progress(iteration, 100, False, info, Draw(theta, theta[..., 0], theta[..., 0] > 9))


def test_a_terminal_of_the_usual_width_shows_how_far_it_is():
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=80, color_system=None)
    with display(console) as listen:
        assert listen.wants_mmd2
        listen.stage("λ = 3e-05: 2.0% outside")
        listen(progress(40, walked=0.25, mmd2=0.0321))
        console.print("")  # the screen is drawn now and not at the next tick
    before, after = screen.getvalue().split("draws", 1)
    assert "λ = 3e-05: 2.0% outside" in before
    assert "left" not in before  # nobody knows
    for text in ("40/100", "left -:--:--", "accepted 25%", "MMD² 0.0321"):
        assert text in after
    assert "…" not in screen.getvalue()  # nothing is cut off


def test_what_a_chosen_regularisation_cost_is_said():
    found = {"regularisation": 3e-5, "bound_by": "the spread"}
    said = {"calibration": json.dumps(found), "seconds": '{"calibration": 40.2, "total": 61.0}'}
    wanted = "λ★ = 3e-05, bound by the spread: finding it took 40 s, the fit 21 s."
    assert _choice(said) == wanted
    assert _choice(said | {"calibration": "null"}) == ""


@pytest.mark.parametrize(
    ("seconds", "said"), [(89, "89 s"), (120, "2 min"), (5340, "89 min"), (9000, "2.5 h")]
)
def test_durations_are_told_in_the_unit_that_suits_them(seconds, said):
    assert _duration(seconds) == said


def test_a_terminal_has_a_bar_and_anything_else_has_lines(monkeypatch):
    with listening() as listen:
        assert isinstance(listen, PlainLines)
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", terminal)
    with listening() as listen:
        assert not isinstance(listen, PlainLines)


def test_lines_are_told_now_and_then_with_the_time_left(monkeypatch, capsys):
    clock = iter([0.0, 10.0, 10.5, 20.0, 21.0])
    monkeypatch.setattr("pcuq.cli.progress.time.monotonic", lambda: next(clock))
    lines = PlainLines()
    for iteration in (20, 21, 40, 100):
        lines(progress(iteration, acceptance=0.5))
    lines.stop()
    told = capsys.readouterr().err.splitlines()
    # Not the second, half a second later; twenty iterations took ten seconds, sixty are left.
    assert [line.split()[1] for line in told] == ["20/100", "40/100", "100/100"]
    assert "about 30 s left" in told[1]
    assert "left" not in told[2]


def test_lines_tell_the_stage_and_that_it_still_goes_on(monkeypatch, capsys):
    monkeypatch.setattr("pcuq.cli.progress.SECONDS_OF_SILENCE", 0.02)
    lines = PlainLines()
    lines.stage("choosing λ")
    time.sleep(0.2)
    lines.stop()
    told = capsys.readouterr().err.splitlines()
    assert told[0] == "choosing λ" and "still choosing λ: 0 s" in told


@pytest.mark.slow
def test_the_mmd_that_is_told_is_that_of_the_particles(fitted):
    problem = load_problem(fitted[0]).problem
    heard = []

    def listen(progress):
        heard.append(progress)

    listen.wants_mmd2 = True
    pcuq.fit(problem, regularisation=1e-2, particles=4, warmup=8, draws=8, progress=listen)
    particles = heard[0].draw.theta.reshape(-1, 1)
    assert heard[0].info["mmd2"] == pytest.approx(float(pcuq.mmd2(problem, particles)), rel=1e-4)


def test_listening_changes_no_draw(fitted, tmp_path):
    problem, run, _ = fitted
    silent = pcuq.fit(
        load_problem(problem).problem, regularisation=1e-2, particles=4, warmup=8, draws=8
    )
    assert np.array_equal(silent.thetas, pcuq.load(run).thetas)


def test_json_has_no_numbers_that_json_does_not_have():
    found = finite({"a": [float("nan"), np.float64(1.5), np.int64(2)], "b": (float("inf"),)})
    assert json.dumps(found, allow_nan=False) == '{"a": [null, 1.5, 2], "b": [null]}'
