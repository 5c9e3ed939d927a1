"""Files of which a bit has changed are refused, and never read as something else."""

import hashlib

import made_fits
import numpy as np
import pytest
import xarray as xr
from typer.testing import CliRunner

import pcuq
from pcuq import cli
from pcuq.checkpoint import DIGEST, Checkpoint, FitCheckpoint
from pcuq.errors import InputError
from pcuq.result import MARK, TRAILER

PART = {"theta": np.arange(12.0).reshape(2, 2, 3), "failed": np.array([True, False])}
STATE = [np.arange(5), np.float64(0.5), np.ones((2, 3), np.float32)]


@pytest.fixture
def kept(tmp_path) -> Checkpoint:
    """A checkpoint after one chunk of a run."""
    fit = FitCheckpoint(tmp_path / "run", "this run", resume=False)
    checkpoint = fit.attempt(0, {"starts": np.zeros((1, 2, 3))})
    checkpoint.save(1, PART, STATE)
    return checkpoint


def load(checkpoint: Checkpoint):
    FitCheckpoint(checkpoint.folder.parent, "this run", resume=True).latest()
    return checkpoint.load()


def is_whole(found) -> bool:
    parts, state = found
    arrays = [parts[0]["theta"], parts[0]["failed"], *state]
    wanted = [*PART.values(), *STATE]
    return len(parts) == 1 and all(
        a.tobytes() == np.asarray(b).tobytes() for a, b in zip(arrays, wanted, strict=True)
    )


def flipped(content: bytes, place: int) -> bytes:
    """With one bit changed, another one from byte to byte."""
    changed = bytearray(content)
    changed[place] ^= 1 << (place % 8)
    return bytes(changed)


@pytest.mark.parametrize("name", ["state.npz", "part-00000.npz", "start.npz"])
def test_a_checkpoint_with_a_flipped_bit_is_refused_and_left_as_it_is(kept, name):
    assert is_whole(load(kept))
    path = kept.folder / name
    content = path.read_bytes()
    for place in range(0, len(content), 3):
        path.write_bytes(flipped(content, place))
        with pytest.raises(InputError, match=f"{name} is damaged"):
            load(kept)
        assert path.read_bytes() == flipped(content, place)
    path.write_bytes(content)
    assert is_whole(load(kept))


@pytest.mark.parametrize("name", ["state.npz", "part-00000.npz"])
def test_a_checkpoint_that_was_made_to_look_whole_raises_nothing_else(kept, name):
    """Such as an archive that says it is encrypted, or an array that says it is huge."""
    path = kept.folder / name
    content = path.read_bytes()[:-DIGEST]
    refused = 0
    places = range(0, len(content), 5)
    for place in places:
        changed = flipped(content, place)
        path.write_bytes(changed + hashlib.sha256(changed).digest())
        try:
            load(kept)
        except InputError:
            refused += 1
    assert refused > len(places) // 2


@pytest.mark.parametrize("size", [0, 1, 31, 32, 100])
def test_a_checkpoint_that_was_cut_off_is_refused(kept, size):
    path = kept.folder / "state.npz"
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(InputError, match="is damaged"):
        load(kept)


def test_a_run_that_had_only_begun_is_not_taken_for_another(tmp_path):
    FitCheckpoint(tmp_path, "one run", False).attempt(0, {"starts": np.zeros(3)})
    with pytest.raises(InputError, match="another problem or other settings"):
        FitCheckpoint(tmp_path, "another run", True).latest()


@pytest.mark.parametrize("name", ["part-one.txt", "state.npz.backup", "attempt-0/part-1.npz"])
def test_files_that_are_named_a_little_like_ours_are_left_alone(tmp_path, name):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("years of work")
    with pytest.raises(InputError, match="holds what is no checkpoint"):
        FitCheckpoint(tmp_path, "a run", resume=False)
    assert path.read_text() == "years of work"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    fit = made_fits.made_fit(made_fits.growth_problem(), draws=8, curves=False)
    return fit, fit.save(tmp_path_factory.mktemp("run") / "run.nc")


def test_a_run_is_read_as_it_was_written(run):
    fit, path = run
    found = pcuq.load(path)
    for group in fit.tree.children:
        xr.testing.assert_equal(found.tree[group].to_dataset(), fit.tree[group].to_dataset())


def test_a_run_with_a_flipped_bit_is_refused_or_the_same(run, tmp_path):
    fit, path = run
    content, damaged = path.read_bytes(), tmp_path / "damaged.nc"
    mark, digest = len(content) - TRAILER, len(content) - TRAILER + len(MARK)
    for place in [*range(0, mark, 997), *range(digest, len(content))]:
        damaged.write_bytes(flipped(content, place))
        with pytest.raises(InputError, match="is damaged"):
            pcuq.load(damaged)
    damaged.write_bytes(flipped(content, mark))  # nothing else is changed then
    assert np.array_equal(pcuq.load(damaged).thetas, fit.thetas)


@pytest.mark.parametrize("share", [0.0, 0.01, 0.3, 0.7, 0.999])
def test_a_run_that_was_cut_off_is_refused(run, tmp_path, share):
    content, cut = run[1].read_bytes(), tmp_path / "cut.nc"
    cut.write_bytes(content[: int(share * len(content))])
    with pytest.raises(InputError, match="not a readable netCDF file"):
        pcuq.load(cut)
    result = CliRunner().invoke(cli.app, ["report", str(cut), "--out", str(tmp_path / "r.html")])
    assert result.exit_code == 2
    assert sorted(tmp_path.iterdir()) == [cut]


def test_a_tree_that_lacks_something_is_refused(run, tmp_path):
    fit, _ = run
    tree = fit.tree.copy()
    del tree["sample_stats"]
    del tree.attrs["status"]
    path = pcuq.result.Fit(tree).save(tmp_path / "some.nc")
    with pytest.raises(InputError, match="lacks sample_stats, status"):
        pcuq.load(path)
