"""A run that was cut off goes on to the same bytes."""

import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time

import numpy as np
import pytest
from made_fits import CALIBRATION

import pcuq
from pcuq import checkpoint, trust
from pcuq import settings as settings_module
from pcuq.errors import ComputationError, InputError

SETTINGS = dict(regularisation=1e-3, particles=8, warmup=120, draws=100, thin=2, seed=3)
TOTAL = 120 + 200


def line(shift=0.0):
    model = pcuq.FunctionModel(
        lambda x, p: [p["a"] + p["b"] * x],
        {"a": pcuq.Parameter("identity"), "b": pcuq.Parameter("identity")},
        ("y",),
    )
    x = np.linspace(0, 1, 12)
    y = 1 + 0.5 * x + 0.1 * np.sin(37 * x) + shift
    return pcuq.Problem(model, pcuq.Data(y[:, None], x, 0.2))


class CutError(Exception):
    """The run is cut off here."""


def cut_at(share):
    def listener(progress):
        if progress.iteration >= share * TOTAL:
            raise CutError

    return listener


@pytest.fixture(scope="module")
def whole():
    return pcuq.fit(line(), **SETTINGS)


def same_bytes(a, b):
    for group in ("posterior", "unconstrained_posterior", "sample_stats"):
        assert set(a.tree[group].data_vars) == set(b.tree[group].data_vars)
        for name, values in a.tree[group].data_vars.items():
            assert values.values.tobytes() == b.tree[group][name].values.tobytes(), (group, name)


@pytest.mark.slow  # a quick one goes through the command line: test_cli
@pytest.mark.parametrize("share", [0.2, 0.5, 0.75, 0.9])
def test_a_run_that_goes_on_gives_the_same_bytes(whole, share, tmp_path):
    folder = tmp_path / "run"
    with pytest.raises(CutError):
        pcuq.fit(line(), **SETTINGS, checkpoint=folder, progress=cut_at(share))
    same_bytes(whole, pcuq.fit(line(), **SETTINGS, checkpoint=folder, resume=True))


@pytest.mark.slow
def test_a_whole_run_with_a_checkpoint_is_unchanged_and_can_be_packed_again(whole, tmp_path):
    folder = tmp_path / "run"
    same_bytes(whole, pcuq.fit(line(), **SETTINGS, checkpoint=folder))
    same_bytes(whole, pcuq.fit(line(), **SETTINGS, checkpoint=folder, resume=True))


@pytest.mark.slow
def test_a_run_that_had_to_be_lengthened_goes_on_too(tmp_path, monkeypatch):
    monkeypatch.setitem(settings_module.LENGTHS, "ensemble", (60, 40, 1))
    monkeypatch.setattr(settings_module, "MOST_ROUNDS", 2)
    monkeypatch.setattr(settings_module, "MOST_STAGES", 1)
    monkeypatch.setattr(trust, "GOOD_ESS", 1e9)
    monkeypatch.setattr(trust, "SETTLED_RHAT", 0.0)
    monkeypatch.setattr(trust, "SETTLED_APART", 0.0)
    monkeypatch.setattr(trust, "MOVED_RHAT", 0.0)
    settings = {k: v for k, v in SETTINGS.items() if k not in ("warmup", "draws", "thin")}
    expected = pcuq.fit(line(), **settings)
    figures = json.loads(expected.tree.attrs["diagnostics"])
    assert figures["iterations"] == 60 + 30 + 40 + 80 + 160 and figures["thin"] == 4
    assert expected.tree["posterior"].sizes["draw"] == 20 + 40  # of the last two rounds
    # Of 370: in the longer warm-up, and in the first, the second and the third round.
    for share in (0.2, 0.3, 0.5, 0.8):
        with pytest.raises(CutError):
            pcuq.fit(line(), **settings, checkpoint=tmp_path / "run", progress=cut_at(share))
        found = pcuq.fit(line(), **settings, checkpoint=tmp_path / "run", resume=True)
        same_bytes(expected, found)


@pytest.mark.parametrize("sampler", ["mala", "nuts"])
@pytest.mark.slow
def test_other_samplers_go_on_too(sampler, tmp_path):
    settings = SETTINGS | dict(sampler=sampler, warmup=60, draws=90, thin=1)
    expected = pcuq.fit(line(), **settings)
    with pytest.raises(CutError):
        pcuq.fit(line(), **settings, checkpoint=tmp_path / "run", progress=cut_at(0.2))
    found = pcuq.fit(line(), **settings, checkpoint=tmp_path / "run", resume=True)
    same_bytes(expected, found)


@pytest.mark.slow
def test_a_calibrated_run_does_not_calibrate_again(tmp_path, monkeypatch):
    settings = SETTINGS | dict(regularisation="auto")
    module = importlib.import_module("pcuq.fit")
    monkeypatch.setattr(module, "calibrate", lambda *args, **kwargs: CALIBRATION)
    with pytest.raises(CutError):
        pcuq.fit(line(), **settings, checkpoint=tmp_path / "run", progress=cut_at(0.5))
    monkeypatch.setattr(module, "calibrate", lambda *args, **kwargs: pytest.fail("again"))
    fit = pcuq.fit(line(), **settings, checkpoint=tmp_path / "run", resume=True)
    assert fit.tree.attrs["regularisation"] == 2e-3
    assert json.loads(fit.tree.attrs["calibration"]) == CALIBRATION.to_dict()


@pytest.fixture(scope="module")
def cut_once(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cut") / "run"
    with pytest.raises(CutError):
        pcuq.fit(line(), **SETTINGS, checkpoint=folder, progress=cut_at(0.6))
    return folder


@pytest.fixture
def cut_run(cut_once, tmp_path):
    return shutil.copytree(cut_once, tmp_path / "run")


def test_another_problem_or_other_settings_are_refused(cut_run):
    with pytest.raises(InputError, match="another problem or other settings"):
        pcuq.fit(line(0.1), **SETTINGS, checkpoint=cut_run, resume=True)
    with pytest.raises(InputError, match="another problem or other settings"):
        pcuq.fit(line(), **SETTINGS | {"seed": 4}, checkpoint=cut_run, resume=True)


@pytest.mark.parametrize("name", ["state.npz", "part-00001.npz", "start.npz"])
def test_a_truncated_file_is_refused(cut_run, name):
    path = cut_run / "attempt-0" / name
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(InputError, match="damaged or no checkpoint"):
        pcuq.fit(line(), **SETTINGS, checkpoint=cut_run, resume=True)


def test_a_file_with_objects_in_it_is_not_unpickled(cut_run):
    path = cut_run / "attempt-0" / "state.npz"
    checkpoint._write(path, {"mark": np.array([object()], dtype=object)})
    with pytest.raises(InputError, match="damaged or no checkpoint"):
        pcuq.fit(line(), **SETTINGS, checkpoint=cut_run, resume=True)


@pytest.mark.slow
def test_a_full_disk_is_said_and_the_last_good_checkpoint_is_still_there(
    whole, cut_run, monkeypatch
):
    before = (cut_run / "attempt-0" / "state.npz").read_bytes()

    def full(file, **arrays):
        file.write(b"half of it")
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint.np, "savez", full)
        with pytest.raises(ComputationError, match=r"No space left on device.*still there"):
            pcuq.fit(line(), **SETTINGS, checkpoint=cut_run, resume=True)
    assert (cut_run / "attempt-0" / "state.npz").read_bytes() == before
    assert not list(cut_run.rglob("*.new"))
    same_bytes(whole, pcuq.fit(line(), **SETTINGS, checkpoint=cut_run, resume=True))


def test_resume_needs_something_to_resume(tmp_path):
    with pytest.raises(InputError, match="no checkpoint to resume"):
        pcuq.fit(line(), **SETTINGS, checkpoint=tmp_path / "none", resume=True)
    with pytest.raises(InputError, match="needs the folder"):
        pcuq.fit(line(), **SETTINGS, resume=True)


def test_a_folder_with_other_things_in_it_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(InputError, match=r"no checkpoint \(thesis.tex\)"):
        pcuq.fit(line(), **SETTINGS, checkpoint=tmp_path)
    assert (tmp_path / "thesis.tex").exists()


def test_a_folder_that_a_link_leads_out_of_is_left_alone(tmp_path):
    (tmp_path / "elsewhere").write_text("years of work")
    keeper = checkpoint.FitCheckpoint(tmp_path / "run", "identity", resume=False)
    (keeper.folder / "chosen.npz").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(InputError, match=r"no checkpoint \(chosen.npz\)"):
        checkpoint.discard(keeper.folder)
    assert (keeper.folder / "begun.npz").exists()


def test_what_the_disk_refuses_is_said(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match=r"no checkpoint can be kept in .*: Not a directory"):
        checkpoint.FitCheckpoint(tmp_path / "file" / "run", "identity", resume=False)
    keeper = checkpoint.FitCheckpoint(tmp_path / "run", "identity", resume=False)

    def refuse(*args, **options):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "write_whole", refuse)
        with pytest.raises(ComputationError, match=r"No space left on device.*make room"):
            keeper.keep_chosen({"a": np.zeros(1)})
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint.shutil, "rmtree", refuse)
        with pytest.raises(InputError, match=r"cannot be removed: .*No space left"):
            checkpoint.discard(keeper.folder)
    with monkeypatch.context() as patch:
        patch.setattr("pathlib.Path.read_bytes", refuse)
        with pytest.raises(InputError, match=r"begun.npz cannot be read: No space left"):
            checkpoint.FitCheckpoint(tmp_path / "run", "identity", resume=True)


@pytest.mark.slow
def test_a_killed_process_leaves_a_checkpoint_that_can_go_on(whole, tmp_path):
    folder = tmp_path / "run"
    code = f"""
        import sys, time
        sys.path.insert(0, {os.path.dirname(__file__)!r})
        import pcuq
        from test_checkpoint import SETTINGS, line
        pcuq.fit(line(), **SETTINGS, checkpoint={str(folder)!r}, progress=lambda p: time.sleep(0.5))
    """
    run = subprocess.Popen([sys.executable, "-c", textwrap.dedent(code)])
    try:
        parts = []
        deadline = time.monotonic() + 120
        while len(parts) < 3 and time.monotonic() < deadline and run.poll() is None:
            time.sleep(0.05)
            parts = list(folder.glob("attempt-0/part-*.npz"))
    finally:
        run.send_signal(signal.SIGKILL)
        run.wait()
    assert run.returncode == -signal.SIGKILL and len(parts) >= 3
    same_bytes(whole, pcuq.fit(line(), **SETTINGS, checkpoint=folder, resume=True))
