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

import numpy as np
import pytest
import study_tasks
from study_tasks import BENT, FALSE, LINE, begun, made_plan
from typer.testing import CliRunner

from pcuq import cli
from pcuq.errors import InputError
from pcuq.study import cluster, make_plan, run, work
from pcuq.study.plan import Plan, settings_of
from pcuq.study.store import Store
from pcuq.study.summary import rows, summary
from pcuq.study.worlds import FileWorld, LotkaVolterra, read_world

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


SHORT = {"warmup": 10, "draws": 10, "thin": 1}
OPTIONS = {
    "pcuq": {"particles": 4, **SHORT},
    "bayes": {"sampler": "mala", "particles": 4, **SHORT},
    "mmd-bayes": {"sampler": "mala", "particles": 4, **SHORT},
}


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
