"""Runs, checkpoints and simulated checks that are not as pcuq writes them are refused when read."""

import hashlib
import importlib
import io
import zipfile

import h5py
import made_fits
import numpy as np
import petab_text
import pytest

import pcuq
from pcuq.checkpoint import FitCheckpoint, _read, _write
from pcuq.cli.problems import _kept_table
from pcuq.errors import InputError
from pcuq.io.source import PETAB, PYTHON, Source, rebuild, source_of
from pcuq.null import Null, load_null
from pcuq.refits import Figures


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    fit = made_fits.made_fit(made_fits.growth_problem(), draws=4, curves=False)
    return fit.save(tmp_path_factory.mktemp("run") / "run.nc")


def of_any_size(file):
    file["posterior"].create_dataset("huge", (10**12,), "f8", chunks=(1,))


def of_another_format(file):
    file.attrs["format"] = np.zeros((2, 2))


def without_figures(file):
    file.attrs["diagnostics"] = "[" * 5000


def without_a_verdict(file):
    del file.attrs["trusted"]


def without_draws(file):
    del file["unconstrained_posterior/rate"]


def with_words_for_draws(file):
    dims = file["posterior/rate"].attrs["DIMENSION_LIST"]
    shape = file["posterior/rate"].shape
    del file["posterior/rate"]
    made = file["posterior"].create_dataset("rate", data=np.full(shape, b"x"))
    made.attrs["DIMENSION_LIST"] = dims


def with_other_parameters(file):
    file["sample_stats/parameter"][...] = ["rate", "other"]


def with_draws_of_another_size(file):
    del file["posterior/particle"]
    file["posterior/particle"] = np.zeros(1)
    for name in ("chain", "draw", "system"):
        del file[f"posterior/{name}"]
        file[f"posterior/{name}"] = np.zeros(10)


def with_a_group_for_figures(file):
    del file["sample_stats/rhat_systems_sd"]
    file.create_group("sample_stats/rhat_systems_sd")


def that_holds_itself(file):
    file["prior/text"] = file["/"]


def that_leads_back_to_itself(file):
    file["prior/text"] = h5py.SoftLink("/")


def with_a_part_in_another_file(file):
    file["more"] = h5py.ExternalLink("other.nc", "/posterior")


def with_numbers_in_another_file(file):
    file.create_dataset("more", (1,), "f8", external=[("other", 0, 8)])


def with_numbers_for_dimensions(file):
    file["posterior/rate"].attrs["DIMENSION_LIST"] = np.zeros((2, 2))


def with_too_many_dimensions(file):
    kept = file["posterior/rate"].attrs["DIMENSION_LIST"]
    made = file["posterior/chain"].attrs
    made.create("DIMENSION_LIST", kept, (2,), h5py.vlen_dtype(h5py.ref_dtype))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (of_any_size, "far larger than the file"),
        (of_another_format, "not written by pcuq"),
        (without_figures, "lacks diagnostics"),
        (without_a_verdict, "lacks trusted"),
        (without_draws, "do not belong together"),
        (with_words_for_draws, "do not belong together"),
        (with_other_parameters, "do not belong together"),
        (with_draws_of_another_size, "do not belong together|not a readable netCDF"),
        (with_a_group_for_figures, "'rhat_systems_sd' should be an array"),
        (that_holds_itself, "'text' is there under two names"),
        (that_leads_back_to_itself, "'text' is a link to elsewhere"),
        (with_a_part_in_another_file, "'more' is a link to elsewhere"),
        (with_numbers_in_another_file, "the numbers of 'more' lie in other files"),
        (with_numbers_for_dimensions, "the dimensions of 'rate' are none"),
        (with_too_many_dimensions, "the dimensions of 'chain' are none"),
    ],
)
def test_a_run_that_is_not_what_a_fit_saves_is_refused_when_it_is_read(
    change, words, run, tmp_path
):
    path = tmp_path / "run.nc"
    path.write_bytes(run.read_bytes())
    with h5py.File(path, "r+") as file:
        change(file)
    with pytest.raises(InputError, match=words) as refused:
        pcuq.load(path)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    "files", [{"a" * 300: ""}, {"a": "", "a/b": ""}, {"a\0b": ""}, {"a": "\ud800"}, {"../a": ""}]
)
def test_a_run_whose_files_cannot_be_written_is_refused(files):
    with pytest.raises(InputError, match=r"cannot be written|outside the problem's own folder"):
        rebuild(Source(PETAB, "problem.yaml", "", files))


@pytest.mark.parametrize("main", ["problem.yaml", "./problem.yaml", "a/../problem.yaml"])
@pytest.mark.parametrize("elsewhere", ["/etc/hostname", "../parameters.tsv"])
def test_a_run_cannot_make_pcuq_read_other_files_by_another_name_for_its_own(main, elsewhere):
    files = petab_text.V1 | {
        "problem.yaml": petab_text.V1["problem.yaml"].replace("parameters.tsv", elsewhere)
    }
    with pytest.raises(InputError, match="outside the problem's own folder"):
        rebuild(Source(PETAB, main, "", files))


OPTIONS = {"name": "t.csv", "x": "time", "outputs": ["y"], "condition": None, "noise": "1"}


@pytest.mark.parametrize(
    "change",
    [{"name": "no"}, {"more": 1}, {"outputs": 3}, {"outputs": [3]}, {"x": []}, {"noise": 1}],
)
def test_a_run_that_does_not_say_how_its_table_is_read_is_refused(change, tmp_path):
    files, path = {"t.csv": "time,y\n0,1\n"}, tmp_path / "run.nc"
    assert _kept_table(path, Source(PYTHON, "m.py", "", files, OPTIONS)).x == "time"
    with pytest.raises(InputError, match="how its table is to be read"):
        _kept_table(path, Source(PYTHON, "m.py", "", files, OPTIONS | change))


@pytest.mark.parametrize("described", ["[]", "{", "{}", '{"main": 1, "digest": 2, "options": 3}'])
def test_a_run_that_does_not_say_where_its_problem_comes_from_is_refused(described, run):
    tree = pcuq.load(run).tree.copy()
    tree["problem_source"] = tree["posterior"].copy()
    tree["problem_source"].attrs.update(kind="petab", described=described)
    with pytest.raises(InputError, match="does not say which problem"):
        source_of(tree)


def test_a_checkpoint_that_would_grow_when_unpacked_is_refused(tmp_path):
    packed = io.BytesIO()
    np.savez_compressed(packed, theta=np.zeros(1000))
    assert zipfile.ZipFile(packed).infolist()[0].compress_type == zipfile.ZIP_DEFLATED
    path = tmp_path / "state.npz"
    _write(path, {"theta": np.zeros(1000)})
    assert _read(path)["theta"].shape == (1000,)
    path.write_bytes(packed.getvalue() + hashlib.sha256(packed.getbuffer()).digest())
    with pytest.raises(InputError, match="is damaged"):
        _read(path)


@pytest.mark.parametrize("said", [b"[", b"[]", b"{}", b"\xff", b"[" * 5000])
def test_a_checkpoint_whose_choice_cannot_be_read_is_refused(said, tmp_path):
    keeper = FitCheckpoint(tmp_path, "a run", resume=False)
    keeper.keep_chosen({"calibration": np.frombuffer(said, np.uint8)})
    with pytest.raises(InputError, match="is damaged"):
        importlib.import_module("pcuq.fit")._calibration(None, 0, keeper, print)


START = {"starts": np.zeros((2, 5, 3)), "representatives": np.zeros((4, 3)), "tolerance": 0.1}


@pytest.mark.parametrize(
    "change",
    [
        {}, {"starts": np.zeros((2, 5, 2))}, {"representatives": np.zeros(3)},
        {"tolerance": np.zeros(2)}, {"starts": np.array(["a"])},
        {"representatives": np.zeros((4, 2))},
    ],
)  # fmt: skip
def test_an_attempt_that_began_elsewhere_is_refused(change, tmp_path):
    begun = importlib.import_module("pcuq.fit")._begun
    keeper = FitCheckpoint(tmp_path, "a run", resume=False)
    assert begun(0, START, np.ones((2, 5, 3)), keeper)[2] == 0.1
    found = START | change if change else {"starts": START["starts"]}
    with pytest.raises(InputError, match="is damaged"):
        begun(0, found, np.ones((2, 5, 3)), keeper)
    with pytest.raises(InputError, match="is damaged"):
        begun(1000, START, np.ones((2, 5, 3)), keeper)


def saved_null(path, figures=None, **said):
    figures = figures or Figures(*(np.ones((20, 2)) for _ in Figures._fields))
    told = {"regularisation": 0.1, "design": "d", "seed": 0, "failed": 0} | said
    Null(figures, *(np.ones((2, 2)) for _ in range(4)), **told).save(path)


@pytest.mark.parametrize(
    "change",
    [
        {"regularisation": "0.1"}, {"design": 3}, {"seed": None}, {"failed": [1]},
        {"figures": Figures(*(np.ones(()) for _ in Figures._fields))},
        {"figures": Figures(*(np.ones((i, 2)) for i, _ in enumerate(Figures._fields)))},
        {"figures": Figures(*(np.full((2, 2), "x") for _ in Figures._fields))},
    ],
)  # fmt: skip
def test_simulated_checks_with_other_contents_are_refused(change, tmp_path):
    saved_null(tmp_path / "null.npz")
    assert len(load_null(tmp_path / "null.npz")) == 20
    saved_null(tmp_path / "null.npz", **change)
    with pytest.raises(InputError, match="not a file of simulated checks"):
        load_null(tmp_path / "null.npz")


def test_simulated_checks_that_would_fill_the_memory_are_refused(tmp_path, monkeypatch):
    saved_null(tmp_path / "null.npz")
    monkeypatch.setattr("pcuq.null.MOST_BYTES", 1000)
    with pytest.raises(InputError, match="not a file of simulated checks"):
        load_null(tmp_path / "null.npz")
