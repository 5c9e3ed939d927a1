"""The command itself, killed while it runs: what was done is there, and --resume goes on with it.

`python tests/unit/test_kills.py PROBLEM [OPTIONS OF pcuq fit]` does the same with any problem.
"""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
import xarray as xr

EXAMPLE = Path(__file__).parents[2] / "examples" / "decay.py"
SHARES = (0.2, 0.5, 0.75, 0.9)
FIXED = ("--regularisation", "1e-3", "--particles", "20", "--warmup", "300", "--draws", "400")
# Lengths that are left to pcuq, at a λ where ten particles hinder each other: all rounds are run.
LENGTHENED = ("--regularisation", "1e-5", "--particles", "10")
CHOSEN = ("--regularisation", "auto", "--particles", "20")


pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]


class Command:
    """`pcuq fit` as a process of its own, and the folder that it keeps its checkpoint in."""

    def __init__(self, folder: Path, *options: str, problem: Path = EXAMPLE):
        self.out = folder / "run.nc"
        self.kept = folder / "run.checkpoint"
        self.words = ["fit", str(problem), *options, "--out", str(self.out)]

    def start(self, *more: str, **options) -> subprocess.Popen:
        code = "from pcuq.cli import main; main()"
        words = [sys.executable, "-c", code, *self.words, *more]
        return subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
        )

    def chunks(self) -> int:
        return sum(1 for _ in self.kept.glob("attempt-*/part-*.npz"))

    def wait_for(self, run: subprocess.Popen, chunks: float) -> int:
        """The most chunks that were seen, when there were so many or the run was over."""
        seen = 0
        while run.poll() is None and seen < chunks:
            seen = max(seen, self.chunks())
            time.sleep(0.002)
        return seen

    def whole(self) -> int:
        """Run to the end; how many chunks there were."""
        run = self.start()
        chunks = self.wait_for(run, np.inf)
        said = run.communicate()[1]
        assert run.returncode == 0, said
        return chunks

    def killed(self, chunks: float, *more: str) -> None:
        run = self.start(*more)
        try:
            seen = self.wait_for(run, chunks)
        finally:
            run.kill()
            said = run.communicate()[1]
        assert run.returncode == -signal.SIGKILL, said
        assert seen >= chunks and not self.out.exists()

    def resumed(self) -> str:
        run = self.start("--resume")
        said = run.communicate()[1]
        assert run.returncode == 0, said
        assert not self.kept.exists()
        return said


def same_bytes(a: Path, b: Path) -> int:
    """How many arrays the files hold: all of them the same, as is all else but the time it took."""
    ours, theirs = (xr.load_datatree(path, engine="h5netcdf") for path in (a, b))
    count = 0
    for here in ours.subtree:
        there = theirs[here.path]
        assert set(here.data_vars) == set(there.data_vars)
        for name, values in here.data_vars.items():
            assert values.dtype == there[name].dtype
            assert values.values.tobytes() == there[name].values.tobytes(), (here.path, name)
            count += 1
    attributes = [dict(tree.attrs) for tree in (ours, theirs)]
    for one in attributes:
        del one["seconds"]
        if (calibration := json.loads(one.pop("calibration"))) is not None:
            del calibration["seconds"]
            one["λ★"] = calibration
    assert json.dumps(attributes[0], default=str) == json.dumps(attributes[1], default=str)
    return count


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    command = Command(tmp_path_factory.mktemp("whole"), *FIXED)
    return command, command.whole()


@pytest.mark.parametrize("share", SHARES)
def test_a_fit_that_was_killed_goes_on_to_the_same_bytes(whole, share, tmp_path):
    command = Command(tmp_path, *FIXED)
    command.killed(share * whole[1])
    command.resumed()
    assert same_bytes(whole[0].out, command.out) > 20


@pytest.mark.parametrize("options", [LENGTHENED, CHOSEN], ids=["lengthened", "auto"])
def test_a_fit_that_was_killed_time_and_again_goes_on_to_the_same_bytes(options, tmp_path):
    for name in ("whole", "killed"):
        (tmp_path / name).mkdir()
    expected = Command(tmp_path / "whole", *options)
    chunks = expected.whole()
    iterations = json.loads(xr.load_datatree(expected.out).attrs["diagnostics"])["iterations"]
    # 400 and 63 times 600 in all rounds; the systems may ask for a longer warm-up.
    assert 38200 <= iterations < 40000 if options is LENGTHENED else iterations == 1000
    command = Command(tmp_path / "killed", *options)
    for number, share in enumerate(SHARES):
        command.killed(share * chunks, *(["--resume"] if number else []))
    command.resumed()
    same_bytes(expected.out, command.out)


def test_a_fit_that_was_killed_before_its_first_chunk_begins_again(whole, tmp_path):
    command = Command(tmp_path, *FIXED)
    run = command.start()
    while not (command.kept / "begun.npz").exists() and run.poll() is None:
        time.sleep(0.002)
    run.kill()
    run.communicate()
    assert command.chunks() == 0
    command.resumed()
    same_bytes(whole[0].out, command.out)


def test_ctrl_c_stops_cleanly_and_says_how_to_go_on(whole, tmp_path):
    command = Command(tmp_path, *FIXED)
    # A shell may have told its background jobs to ignore it.
    run = command.start(preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
    command.wait_for(run, 0.4 * whole[1])
    run.send_signal(signal.SIGINT)
    said = run.communicate()[1]
    assert run.returncode == 130
    assert f"what was done is kept in {command.kept}" in said and "--resume" in said
    assert said.endswith("interrupted\n") and "Traceback" not in said
    command.resumed()
    same_bytes(whole[0].out, command.out)


@pytest.mark.parametrize("most", [20_000, 300_000], ids=["a chunk", "the run file"])
def test_a_disk_that_is_full_costs_nothing_that_was_done(whole, most, tmp_path):
    """No file may have more than so many bytes: as on a full disk, only for this process."""
    command = Command(tmp_path, *FIXED)
    command.killed(0.2 * whole[1])
    chunks = command.chunks()
    run = command.start(
        "--resume",
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (most, most)),
    )
    said = run.communicate()[1]
    assert run.returncode == 3, said
    assert "be written" in said and "--resume" in said and "Traceback" not in said
    assert command.chunks() >= chunks and not command.out.exists()
    assert [path.name for path in tmp_path.iterdir()] == [command.kept.name]  # no scrap
    command.resumed()
    same_bytes(whole[0].out, command.out)


if __name__ == "__main__":
    folder = Path(tempfile.mkdtemp())
    try:
        for name in ("whole", *map(str, SHARES)):
            (folder / name).mkdir()
        problem, options = Path(sys.argv[1]), sys.argv[2:]
        expected = Command(folder / "whole", *options, problem=problem)
        chunks = expected.whole()
        print(f"not killed: {chunks} chunks, {os.path.getsize(expected.out)} bytes")
        for share in SHARES:
            command = Command(folder / str(share), *options, problem=problem)
            command.killed(share * chunks)
            left = command.chunks()
            command.resumed()
            arrays = same_bytes(expected.out, command.out)
            print(f"killed after {left} chunks ({share:.0%}): {arrays} arrays, all the same bytes")
    finally:
        shutil.rmtree(folder)
