"""Studies: what is done is kept, what is lost is done again, and nothing is done twice."""

import functools
import io
import itertools
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import study_tasks
from study_tasks import BENT, FALSE, LINE, begun, made_plan
from typer.testing import CliRunner

from pcuq import Data, FunctionModel, Parameter, Problem, cli
from pcuq.cli.study import _listening, _table
from pcuq.errors import ComputationError, InputError
from pcuq.study import cluster, make_plan, run, work, worlds
from pcuq.study.drive import Step
from pcuq.study.plan import MOST_TASKS, Plan, settings_of
from pcuq.study.store import Store
from pcuq.study.summary import rows, summary
from pcuq.study.worlds import FileWorld, LotkaVolterra, Replicate, Target, read_world, world_of

distributed = pytest.importorskip("distributed", reason="dask.distributed is not installed")

ANCHORS = {"well-specified": [0.3, 0.5]}
PREPARED = {"anchors": ANCHORS, "regularisation": 1e-2, "factors": [1.0]}


def run_made(plan, out, folder, task=study_tasks.quick, **options):
    task = functools.partial(task, str(folder))
    return run(plan, out, prepare=study_tasks.prepare, task=task, **options)


def kept(out: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in (out / "tasks").glob("*.json")}


@pytest.fixture(scope="module")
def local():
    """A cluster of two workers on this machine, as one that runs elsewhere would be used."""
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0", host="127.0.0.1"
    ) as cluster:
        yield cluster


@pytest.fixture
def line(tmp_path) -> Path:
    path = tmp_path / "line.py"
    path.write_text(LINE)
    return path


# --- the plan -----------------------------------------------------------------------------------


def test_a_task_depends_on_the_plan_and_its_number_alone():
    few, many = made_plan(3), made_plan(5)
    assert many.tasks()[: len(few.tasks())] == few.tasks()
    assert few.identity == many.identity
    seeds = [few.fit_seed(task.number) for task in few.tasks()]
    assert len(set(seeds)) == len(seeds)
    same_data = {few.data_seed(t.replicate) for t in few.tasks() if t.replicate == 0}
    assert len(same_data) == 1


def test_a_plan_survives_the_journey_to_a_worker():
    plan = made_plan(2, "sensitivity", times=(0.0, 1.0))
    assert Plan.from_dict(plan.to_dict()) == plan


def test_methods_that_know_nothing_of_the_setting_are_fitted_once():
    plan = made_plan(1, "sensitivity", settings=settings_of("sensitivity", [0.1], [2.0], []))
    assert [(t.setting.name, t.method) for t in plan.tasks()] == [
        ("base", "bayes"),
        ("base", "pcuq"),
        ("λ × 0.1", "pcuq"),
        ("ℓ × 2", "pcuq"),
    ]
    sizes = made_plan(1, "spread", settings=settings_of("spread", sizes=[1, 2]))
    assert [task.method for task in sizes.tasks()] == ["bayes", "pcuq"] * 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "breadth"}, "coverage, sensitivity, spread"),
        ({"replicates": 0}, "a whole number from 1"),
        ({"methods": ["abc"]}, "some of"),
        ({"cases": ["misspecified"]}, "some of well-specified"),
        ({"sizes": [2.0]}, "--sizes is no option of a coverage study"),
        ({"kind": "spread", "sizes": [1.5]}, "whole number of times"),
        ({"kind": "spread", "sizes": [-1.0]}, "> 0"),
        ({"regularisation": -1.0}, "regularisation"),
        ({"options": {"pcuq": {"colour": 1}}}, "options of a fit"),
        ({"options": {"bayes": {"sampler": "gibbs"}}}, "`sampler` needs one of"),
        ({"kind": "sensitivity", "methods": ["bayes"]}, "keep it among the methods"),
        ({"replicates": MOST_TASKS}, "more than a study may have"),
        ({"problem": "lotka-volterra", "times": [70.0]}, "leave --times out"),
        ({"problem": "lotka-volterra", "kind": "spread", "sizes": [11.0]}, "at most 10 times"),
        ({"problem": Path(__file__).parents[2] / "README.md"}, r"\(.yaml\) or a Python file"),
    ],
)
def test_a_study_that_cannot_be_is_refused_before_it_begins(line, change, message):
    with pytest.raises(InputError, match=message):
        make_plan(**{"kind": "coverage", "problem": line, "replicates": 2, **change})


# --- the folder ---------------------------------------------------------------------------------


def test_a_changed_study_is_refused_by_what_has_changed(tmp_path):
    Store(tmp_path / "s", made_plan(2))
    Store(tmp_path / "s", made_plan(9))  # more replicates: it goes on
    with pytest.raises(InputError, match="begun with another seed: go on"):
        Store(tmp_path / "s", made_plan(2, seed=6))
    with pytest.raises(InputError, match="another methods"):
        Store(tmp_path / "s", made_plan(2, methods=("pcuq",)))


def test_a_folder_of_other_things_is_refused(tmp_path):
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(InputError, match=r"holds no study but other things \(thesis.tex\)"):
        Store(tmp_path, made_plan(2))


def test_an_edited_problem_is_another_study(line, tmp_path):
    plan = make_plan("coverage", line, 1, regularisation=1e-2)
    Store(tmp_path / "s", plan)
    line.write_text(LINE.replace("0.5 * x, x", "0.6 * x, x"))
    with pytest.raises(InputError, match="another problem"):
        Store(tmp_path / "s", make_plan("coverage", line, 1, regularisation=1e-2))


def test_a_damaged_or_foreign_record_is_run_again(tmp_path):
    plan = made_plan(2)
    store = Store(tmp_path / "s", plan)
    for number in range(3):
        store.add(study_tasks.record(plan.to_dict(), number))
    store._path(1).write_text('{"study": ')
    store.add({**study_tasks.record(plan.to_dict(), 2), "study": "other"})
    assert set(store.records()) == {0}


def test_two_processes_do_not_share_a_folder(tmp_path):
    store = Store(tmp_path / "s", made_plan(1))
    with store.lock(), pytest.raises(InputError, match="another process"), store.lock():
        pass


def test_a_plan_that_cannot_be_read_is_refused(tmp_path):
    Store(tmp_path / "s", made_plan(1))
    (tmp_path / "s" / "study.json").write_text("[1]")
    with pytest.raises(InputError, match=r"study.json cannot be read: choose another folder"):
        Store(tmp_path / "s", made_plan(1))


def test_a_folder_that_cannot_be_made_or_filled_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="file cannot be written: File exists"):
        Store(tmp_path / "file", made_plan(1))
    store = Store(tmp_path / "s", made_plan(1))
    (tmp_path / "s" / "tasks").rmdir()
    with pytest.raises(ComputationError, match=r"00000.json could not be written \(No such file"):
        store.add({"task": 0})


# --- the cluster --------------------------------------------------------------------------------


def test_the_cluster_of_a_study_has_no_pages_for_a_browser():
    with cluster.connected(1) as client:
        known = client.scheduler_info()
        ports = [known["services"]["dashboard"]]
        ports += [worker["services"]["dashboard"] for worker in known["workers"].values()]
        for port, page in itertools.product(ports, ("info/main/workers.html", "status", "health")):
            with pytest.raises(urllib.error.HTTPError, match="404"):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/{page}")


def test_results_stream_to_disk_and_more_replicates_go_on(tmp_path, local):
    steps = []
    out = tmp_path / "s"
    address = local.scheduler_address
    found = run_made(made_plan(2), out, tmp_path, scheduler=address, listen=steps.append)
    assert [step.done for step in steps] == [0, 1, 2, 3, 4]
    assert steps[0].workers == 2
    assert (found["tasks"], found["done"], found["failed"]) == (4, 4, 0)
    before = kept(out)
    run_made(made_plan(3), out, tmp_path, scheduler=address)
    assert sorted(begun(tmp_path)) == [0, 1, 2, 3, 4, 5]
    assert before.items() <= kept(out).items()
    assert {"summary.json", "summary.csv", "tasks.csv", "coverage.png"} <= set(os.listdir(out))
    assert json.loads((out / "summary.json").read_text())["replicates"] == 3


def test_a_worker_killed_by_its_pid_costs_only_time(tmp_path, local):
    plan, out = made_plan(4), tmp_path / "s"
    with distributed.Client(local, set_as_default=False) as client:
        victim = next(iter(client.run(os.getpid).values()))
    killed = []

    def listen(step):
        if step.record is not None and not killed:
            killed.append(step.done)
            os.kill(victim, signal.SIGKILL)

    address = local.scheduler_address
    found = run_made(plan, out, tmp_path, study_tasks.steady, scheduler=address, listen=listen)
    assert killed and found["done"] == len(plan.tasks()) and found["failed"] == 0
    assert set(begun(tmp_path)) == set(range(8))
    assert len(begun(tmp_path)) <= 8 + 2  # the one that it was at, and one that may have been next


def test_a_task_that_kills_its_workers_is_given_up_and_recorded(tmp_path):
    found = run_made(made_plan(2), tmp_path / "s", tmp_path, study_tasks.deadly, workers=1)
    assert (found["done"], found["failed"]) == (4, 1)
    assert begun(tmp_path).count(1) == 3
    assert [error["task"] for error in found["errors"]] == [1]
    assert "died" in found["errors"][0]["message"]


HALF_WAY = """
import functools, sys
import study_tasks
from pcuq.study import run

if __name__ == "__main__":
    task = functools.partial(study_tasks.steady, sys.argv[1])
    plan = study_tasks.made_plan(10)
    run(plan, sys.argv[1] + "/s", workers=2, prepare=study_tasks.prepare, task=task)
"""


def test_a_study_killed_half_way_loses_and_doubles_nothing(tmp_path, local):
    script = tmp_path / "script.py"
    script.write_text(HALF_WAY)
    paths = [str(Path(study_tasks.__file__).parent), *sys.path]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    out = tmp_path / "s"
    running = subprocess.Popen([sys.executable, str(script), str(tmp_path)], env=environment)
    try:
        deadline = time.monotonic() + 240
        while len(list(out.glob("tasks/*.json"))) < 5 and time.monotonic() < deadline:
            assert running.poll() is None
            time.sleep(0.02)
    finally:
        running.kill()
        running.wait()
    done = kept(out)
    assert 5 <= len(done) < 20
    first = begun(tmp_path)
    time.sleep(1)  # its workers see that it is gone
    run_made(made_plan(10), out, tmp_path, scheduler=local.scheduler_address)
    again = begun(tmp_path)[len(first) :]
    finished = {int(name[:-5]) for name in done}
    assert sorted(again) == sorted(set(range(20)) - finished)
    assert done.items() <= kept(out).items()
    assert len(kept(out)) == 20


def test_no_scheduler_at_an_address_is_said(tmp_path, monkeypatch):
    monkeypatch.setattr("pcuq.study.cluster.SECONDS_TO_CONNECT", 1)
    with pytest.raises(InputError, match="no Dask scheduler answers"):
        run_made(made_plan(1), tmp_path / "s", tmp_path, scheduler="tcp://127.0.0.1:9")


def test_workers_and_a_scheduler_exclude_each_other(tmp_path):
    with pytest.raises(InputError, match="not both"):
        run_made(made_plan(1), tmp_path / "s", tmp_path, workers=1, scheduler="tcp://h:1")
    assert not (tmp_path / "s").exists()


def test_a_task_that_a_worker_cannot_run_ends_the_study_and_is_named(tmp_path, local):
    options = {"scheduler": local.scheduler_address, "prepare": study_tasks.prepare}
    with pytest.raises(ComputationError, match=r"task \d could not be run.*ValueError: no such"):
        run(made_plan(1), tmp_path / "s", task=study_tasks.raising, **options)
    # What was prepared is kept, and the same command goes on.
    assert Store(tmp_path / "s", made_plan(1)).prepared == {"regularisation": 1e-3, "factors": [1]}


def test_a_study_whose_preparation_kills_the_workers_says_so():
    def killed():
        raise distributed.KilledWorker("prepare", None, 3)

    client = SimpleNamespace(submit=lambda *args, **options: SimpleNamespace(result=killed))
    with pytest.raises(ComputationError, match="could not be prepared: every worker"):
        cluster.call(client, study_tasks.prepare, {})


def test_workers_compile_into_the_cache_of_who_started_them(monkeypatch):
    def told(folder):
        config = SimpleNamespace(
            jax_compilation_cache_dir=folder, jax_persistent_cache_min_compile_time_secs=0.5
        )
        monkeypatch.setitem(sys.modules, "jax", SimpleNamespace(config=config))
        return cluster._environment()

    assert told("/a/cache") == {
        "JAX_COMPILATION_CACHE_DIR": "/a/cache",
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.5",
    }
    assert told(None) == {}
    monkeypatch.delitem(sys.modules, "jax")
    assert cluster._environment() == {}


def test_without_dask_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(InputError, match=r'pip install "pcuq\[study\]"'):
        run_made(made_plan(1), tmp_path / "s", tmp_path)
    assert not (tmp_path / "s").exists()


# --- data and truth -----------------------------------------------------------------------------


def test_a_replicate_that_raises_is_recorded_with_its_error(line):
    line.write_text(LINE + FALSE)
    plan = make_plan("coverage", line, 1, cases=["misspecified"], regularisation=1e-2)
    found = work.run_task(plan.to_dict(), PREPARED, 0)
    assert found["error"] == {"kind": "ValueError", "message": "nature is out of order"}
    told = summary(plan, [found], PREPARED)
    assert told["failed"] == 1
    assert told["cases"]["misspecified"]["bayes"]["status"] == "0 of 0 fits converged, 1 failed"


def test_data_come_from_the_model_or_from_the_file_s_truth(line):
    line.write_text(LINE + BENT)
    plan = make_plan("coverage", line, 1, regularisation=1e-2, times=[0.0, 6.0])
    assert plan.cases == ("well-specified", "misspecified")
    world = read_world(plan.origin, plan.times)
    kernel = world.problem.kernel
    well, same, wrong = (
        world.replicate(case, 7, ANCHORS, kernel, 1.0)
        for case in ("well-specified", "well-specified", "misspecified")
    )
    np.testing.assert_allclose(well.targets[0].truth[:, 0], [0.3, 3.3])
    np.testing.assert_array_equal(well.problem.data.y, same.problem.data.y)
    assert well.problem.model is world.problem.model
    bend = 0.3 * np.random.default_rng(np.random.SeedSequence(7, spawn_key=(3,))).normal()
    expected = [0.3, 3.3 + bend * np.sin(18.0)]
    np.testing.assert_allclose(wrong.targets[0].truth[:, 0], expected)
    assert not np.allclose(well.problem.data.y, wrong.problem.data.y)


def test_rows_are_thinned_evenly_or_measured_again(line):
    world = read_world(make_plan("coverage", line, 1, regularisation=1e-2).origin)
    assert isinstance(world, FileWorld)
    np.testing.assert_array_equal(world.rows(0.5), [0, 2, 5, 7])
    np.testing.assert_array_equal(world.rows(2), np.repeat(np.arange(8), 2))
    more = world.replicate("well-specified", 1, ANCHORS, world.problem.kernel, 2)
    assert more.problem.data.n == 16
    assert len(more.targets[0].x) == 8


def test_a_worker_without_the_file_reads_its_text_and_refuses_other_data(line, monkeypatch):
    line.write_text(f"# λ\n{line.read_text()}", encoding="utf-8")
    # Whatever text is written in where it works.
    monkeypatch.setattr(io, "text_encoding", lambda encoding, *_: encoding or "ascii")
    origin = make_plan("coverage", line, 1, regularisation=1e-2).origin
    line.unlink()
    assert read_world(origin).problem.fingerprint == origin.fingerprint
    with pytest.raises(InputError, match="makes another problem here"):
        read_world(replace(origin, fingerprint="0"))


def test_lotka_volterra_is_scored_beyond_its_data_and_counts_redrawn_paths():
    world = LotkaVolterra()
    anchors, kernel = world.anchors(0), world.problem.kernel
    made = [world.replicate("misspecified", seed, anchors, kernel, 1.0) for seed in (0, 4)]
    assert [one.exploded_paths for one in made] == [0, 1]
    x = made[0].targets[0].x
    assert x.min() > 60 and x.max() == 90
    assert [len(world.rows(size)) for size in (0.5, 2, 10)] == [31, 121, 601]
    more = world.replicate("well-specified", 0, anchors, kernel, 2.0).problem.data
    np.testing.assert_allclose(np.diff(more.x), 0.5)


ALONE = "\nproblem = pcuq.Problem(model, pcuq.Data([[0.1], [0.2]], noise=0.2))\n"
WITHOUT_X = (
    LINE.split("problem =")[0].replace("lambda x, p: [p", "lambda p: [p").replace(" * x]", "]")
)
FUNCTION = "\n\ndef truth(x, rng):\n    return 0.5 * x\n"
FREE = LINE.replace("noise=0.2", 'noise=lambda p: jnp.exp(p["a"])').replace(
    "import pcuq", "import jax.numpy as jnp\nimport pcuq"
)


@pytest.mark.parametrize(
    ("text", "times", "message"),
    [
        ("import pcuq\n", None, "needs to define `problem`.*no such name"),
        ("problem = 3\n", None, "needs to define `problem`.*int"),
        (LINE + "\ntruth = 3\n", None, r"outputs of the data: \['y'\] lack"),
        (WITHOUT_X + ALONE, [1.0], "one covariate: leave it out"),
        (WITHOUT_X + ALONE + FUNCTION, None, "needs data with covariates"),
        (FREE + FUNCTION, None, "noise with a known scale"),
    ],
)
def test_a_file_of_which_no_study_can_be_made_is_refused(line, text, times, message):
    line.write_text(text)
    with pytest.raises(InputError, match=message):
        make_plan("coverage", line, 1, regularisation=1e-2, times=times)


def test_a_truth_of_another_shape_is_refused_when_it_is_asked(line):
    line.write_text(LINE + FUNCTION)
    world = read_world(make_plan("coverage", line, 1, regularisation=1e-2).origin)
    with pytest.raises(InputError, match=r"finite numbers of shape \(8, 1\): got shape \(8,\)"):
        world.replicate("misspecified", 0, {}, world.problem.kernel, 1.0)


def test_a_truth_that_is_a_model_stands_at_its_parameters_or_at_its_fit():
    x = np.linspace(0.0, 3.0, 8)
    wrong = FunctionModel(lambda x, p: [p["b"] * x], {"b": Parameter("identity")}, ("y",))
    data = Data(0.5 * x[:, None], x, noise=0.2)
    problem = Problem(wrong, data)
    fitted = FileWorld(problem, {"truth": wrong}, None).anchors(0)
    assert set(fitted) == {"well-specified", "misspecified"}
    np.testing.assert_allclose(fitted["misspecified"], [0.5], atol=0.02)
    given = FileWorld(problem, {"truth": wrong, "truth_parameters": {"b": 2.0}}, None)
    anchors = given.anchors(0)
    assert anchors["misspecified"] == [2.0]
    made = given.replicate("misspecified", 1, anchors, problem.kernel, 1.0)
    np.testing.assert_allclose(made.targets[0].truth[:, 0], 2.0 * x, atol=1e-5)


def test_a_process_reads_a_world_once_and_keeps_few(line, monkeypatch):
    monkeypatch.setattr(worlds, "_worlds", type(worlds._worlds)())
    origin = make_plan("coverage", line, 1, regularisation=1e-2).origin
    first = world_of(origin)
    assert world_of(origin) is first
    for one in range(worlds.KEPT):
        world_of(origin, (float(one),))
    assert len(worlds._worlds) == worlds.KEPT
    assert world_of(origin) is not first


SHORT = {"warmup": 10, "draws": 10, "thin": 1}
OPTIONS = {
    "pcuq": {"particles": 4, **SHORT},
    "bayes": {"sampler": "mala", "particles": 4, **SHORT},
    "mmd-bayes": {"sampler": "mala", "particles": 4, **SHORT},
}


# --- a task -------------------------------------------------------------------------------------


def scored(trajectories, ok):
    """A fit that predicts this; the truth is 0 everywhere, under two conditions."""
    asked = iter(zip(trajectories, ok, strict=True))

    def predict(x, condition, noise, max_draws):
        assert not noise
        drawn, fine = next(asked)
        return SimpleNamespace(trajectories=np.asarray(drawn), ok=np.asarray(fine))

    targets = [Target(name, np.zeros(1), np.zeros((1, 1))) for name in "ab"]
    replicate = Replicate(SimpleNamespace(columns=[0]), targets)
    return work._scores(SimpleNamespace(predict=predict), replicate)


def test_scores_are_of_draws_that_could_be_solved_under_every_condition():
    draws = np.linspace(-1.0, 1.0, 101)
    inside, beside = draws[:, None, None], (draws + 0.75)[:, None, None]
    fine = np.ones(101, dtype=bool)
    told = scored([inside, beside], [fine, fine])
    assert told["coverage"] == {"0.5": 0.5, "0.9": 1.0}
    assert told["width"] == pytest.approx(1.8)
    assert told["failed_predictions"] == 0
    lost = np.where(draws > 0, np.nan, draws)[:, None, None]
    told = scored([lost, beside], [draws <= 0, fine])
    assert told["failed_predictions"] == 50
    assert told["width"] == pytest.approx(0.9)
    with pytest.raises(ComputationError, match="no draw could be solved"):
        scored([lost, beside], [draws <= 0, draws > 0])


def test_every_setting_has_the_regularisation_at_which_its_fit_is_worth_as_much(line):
    common = {"methods": ["pcuq"], "regularisation": 1e-2}
    plan = make_plan("spread", line, 1, sizes=[0.5, 1, 2], **common)
    # With different covariates v falls as 1/n, with repeated ones it stays.
    prepared = work.prepare(plan.to_dict())
    assert prepared["regularisation"] == 1e-2
    np.testing.assert_allclose(prepared["factors"], [2.0, 1.0, 1.0], rtol=0.3)
    assert prepared["factors"][1] == 1.0
    np.testing.assert_allclose(prepared["anchors"]["well-specified"], [0.3, 0.5], atol=1e-2)
    plan = make_plan("sensitivity", line, 1, multiples=[0.3], widths=[2.0], **common)
    factors = work.prepare(plan.to_dict())["factors"]
    names = [setting.name for setting in plan.settings]
    assert factors[names.index("λ × 0.3")] == factors[names.index("base")] == 1.0
    assert factors[names.index("ℓ × 2")] > 1.0  # the same fit explains more to a wider kernel


def test_a_setting_under_which_the_fit_explains_nothing_is_named(line, monkeypatch):
    plan = make_plan("spread", line, 1, sizes=[2], regularisation=1e-2)
    monkeypatch.setattr(
        work.Objective, "data_terms_of_many", lambda self, thetas: np.zeros(len(thetas))
    )
    with pytest.raises(ComputationError, match=r"under the setting 'base' \(v = 0\)"):
        work.prepare(plan.to_dict())


def test_a_task_fits_with_the_regularisation_of_its_setting_and_scores(line):
    plan = make_plan(
        "sensitivity",
        line,
        1,
        methods=["pcuq"],
        regularisation="auto",
        multiples=[0.3],
        widths=[2.0],
        options=OPTIONS,
    )
    names = [setting.name for setting in plan.settings]
    prepared = {
        "anchors": ANCHORS,
        "regularisation": 1e-2,
        "factors": [4.0 if name == "λ × 0.3" else 1.0 for name in names],
        "lengthscale": [0.5],
    }
    (number,) = [t.number for t in plan.tasks() if t.setting.name == "λ × 0.3"]
    found = work.run_task(plan.to_dict(), prepared, number)
    assert "error" not in found
    assert found["regularisation"] == pytest.approx(0.3 * 4.0 * 1e-2)
    assert (found["n"], found["failed_predictions"], found["exploded_paths"]) == (8, 0, 0)
    assert set(found["coverage"]) == {"0.5", "0.9"}
    assert 0 < found["crps"] < found["width"]
    told = found.pop("run")
    assert told["compiled"] >= 1 and told["pid"] == os.getpid()
    again = work.run_task(plan.to_dict(), prepared, number)
    assert again.pop("run")["compiled"] < 0.25 * told["compiled"]
    assert again == found


# --- tables -------------------------------------------------------------------------------------


def test_means_and_standard_errors_are_those_of_the_replicates():
    plan = made_plan(2, methods=("pcuq",))
    first, second = (study_tasks.record(plan.to_dict(), number) for number in (0, 1))
    first["crps"], second["crps"] = 1.0, 3.0
    (row,) = rows(plan, [second, first])
    assert (row["crps"], row["crps_se"], row["replicates"]) == (2.0, 1.0, 2)
    told = summary(plan, [first, second], PREPARED)
    assert told["exploded_paths"]["well-specified"] == sum(
        record["exploded_paths"] for record in (first, second)
    )
    assert told["cases"]["well-specified"]["pcuq"]["standard_errors"]["crps"] == 1.0


@pytest.mark.parametrize("kind", ["sensitivity", "spread"])
def test_every_setting_is_in_the_table_and_the_figure_is_drawn(kind, tmp_path):
    from pcuq.study.figure import draw

    plan = made_plan(2, kind)
    records = [study_tasks.record(plan.to_dict(), task.number) for task in plan.tasks()]
    told = summary(plan, records, PREPARED)
    names = {setting.name for setting in plan.settings}
    assert set(told["cases"]["well-specified"]["pcuq"]) == names
    draw(plan, rows(plan, records)).savefig(tmp_path / "figure.png")
    draw(plan, []).savefig(tmp_path / "empty.png")


# --- the command --------------------------------------------------------------------------------


def test_the_command_refuses_what_excludes_itself(tmp_path):
    arguments = ["study", "coverage", "--problem", "lotka-volterra", "--out", str(tmp_path / "s")]
    both = CliRunner().invoke(cli.app, [*arguments, "--workers", "2", "--scheduler", "tcp://h:1"])
    assert both.exit_code == 2 and "exclude each other" in both.stderr
    unknown = CliRunner().invoke(cli.app, ["study", "width", *arguments[2:]])
    assert unknown.exit_code == 2 and "coverage, sensitivity, spread" in unknown.stderr


@pytest.fixture
def made(tmp_path, monkeypatch, local):
    """The command with stand-ins for what workers do, and its arguments."""
    monkeypatch.setattr(work, "prepare", study_tasks.prepare)
    monkeypatch.setattr(work, "run_task", functools.partial(study_tasks.unlucky, str(tmp_path)))
    chosen = ["--methods", "bayes,pcuq", "--regularisation", "1e-2", "--replicates", "2"]
    place = ["--scheduler", local.scheduler_address, "--out", str(tmp_path / "s")]

    def invoke(kind, *more):
        problem = ["--problem", str(tmp_path / "line.py")]
        return CliRunner().invoke(cli.app, ["study", kind, *problem, *chosen, *place, *more])

    return invoke


def test_the_command_tells_how_far_it_is_and_what_failed_and_runs_that_again(line, tmp_path, made):
    first = made("coverage")
    assert first.exit_code == 0, first.stderr
    assert "4 fits; results are kept in" in first.stderr
    assert "0/4 fits  preparing on 2 workers\n" in first.stderr
    assert "4/4 fits  on 2 workers, 1 failed\n" in first.stderr
    assert "task 1 failed: ValueError: no luck" in first.stderr
    head, *table = first.stdout.splitlines()
    assert head.split()[:3] == ["case", "method", "setting"]
    assert [row.split()[:2] for row in table] == [
        ["well-specified", "bayes"],
        ["well-specified", "pcuq"],
    ]
    assert "1 of 1 fits converged, 1 failed" in table[1]
    told = made("coverage", "--json")
    assert json.loads(told.stdout) == json.loads((tmp_path / "s" / "summary.json").read_text())
    assert sorted(begun(tmp_path)) == [0, 1, 2, 3]  # all is known: nothing is run again
    again = made("coverage", "--retry-failed")
    assert "2 of 2 fits converged" in again.stdout.splitlines()[2]
    assert "failed" not in again.stderr
    assert sorted(begun(tmp_path)) == [0, 1, 1, 2, 3]


def test_the_table_has_a_row_for_each_setting_and_a_dash_for_what_is_not_known():
    plan = made_plan(1, "spread", settings=settings_of("spread", sizes=[1, 2]), methods=("pcuq",))
    records = [study_tasks.record(plan.to_dict(), task.number) for task in plan.tasks()]
    records[1]["rhat_max"] = None
    lines = _table(summary(plan, records, PREPARED)).splitlines()
    assert "n × 2" in lines[2] and lines[2].split("  ")[-2].strip() == "–"
    assert f"{records[0]['crps']:.3g}" in lines[1] and "1.00" in lines[1]


def test_an_interrupted_command_says_how_to_go_on(line, tmp_path, made, monkeypatch):
    def interrupted(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr("pcuq.study.run", interrupted)
    stopped = made("coverage")
    assert stopped.exit_code == 130
    assert f"what is done is kept in {tmp_path / 's'}" in stopped.stderr.replace("\n", " ")


def test_numbers_that_are_none_are_refused_by_their_option(line, made):
    refused = made("sensitivity", "--multiples", "0.1,much")
    assert refused.exit_code == 2
    assert "--multiples needs numbers with commas between" in refused.stderr


def test_a_terminal_shows_a_bar_with_what_is_done_and_what_failed(monkeypatch):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with _listening() as listen:
        listen(Step(0, 4, 0, 2, None))
        listen(Step(3, 4, 1, 2, {}))
    assert "3/4" in terminal.getvalue()
    assert "on 2 workers, 1 failed" in terminal.getvalue()


@pytest.mark.slow
def test_numbers_do_not_depend_on_the_workers_who_compile_once_each(line, tmp_path):
    line.write_text(LINE + BENT)
    plan = make_plan("coverage", line, 2, regularisation=1e-2, options=OPTIONS)
    found = []
    for workers in (1, 2):
        run(plan, tmp_path / str(workers), workers=workers)
        found.append(
            [json.loads(text) for _, text in sorted(kept(tmp_path / str(workers)).items())]
        )
    runs = [[record.pop("run") for record in records] for records in found]
    assert found[0] == found[1]
    assert not any("error" in record for record in found[0])
    assert {len({one["pid"] for one in records}) for records in runs} == {1, 2}
    # In the first run one worker did it all: the second replicate finds nearly all compiled.
    first, second = (sum(one["compiled"] for one in part) for part in (runs[0][:6], runs[0][6:]))
    assert second < 0.25 * first


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "options"),
    [("sensitivity", {"multiples": [0.3], "widths": [2.0]}), ("spread", {"sizes": [0.5, 2.0]})],
)
def test_settings_are_compared_at_equal_worth_of_the_fit(line, tmp_path, kind, options):
    plan = make_plan(
        kind, line, 1, methods=["pcuq"], regularisation=1e-2, options=OPTIONS, **options
    )
    found = run(plan, tmp_path / "s", workers=1)
    of_setting = found["cases"]["well-specified"]["pcuq"]
    assert found["failed"] == 0
    assert set(of_setting) == {setting.name for setting in plan.settings}
    if kind == "sensitivity":
        lam = of_setting["base"]["regularisation"]
        assert of_setting["λ × 0.3"]["regularisation"] == pytest.approx(0.3 * lam)
    else:
        # With different covariates v falls as 1/n, with repeated ones it stays.
        assert of_setting["n × 0.5"]["regularisation"] == pytest.approx(2e-2, rel=0.3)
        assert of_setting["n × 2"]["regularisation"] == pytest.approx(1e-2, rel=0.3)
