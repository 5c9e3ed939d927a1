"""A run file carries the texts of a PEtab problem, and of a Python problem no code."""

import petab_text
import pytest
import xarray as xr
from typer.testing import CliRunner

from pcuq import cli
from pcuq.errors import InputError
from pcuq.io.petab import from_petab
from pcuq.io.source import (
    Source,
    attach,
    petab_source,
    python_source,
    rebuild,
    source_of,
    text_digest,
)


def there_and_back(source: Source, path) -> Source | None:
    tree = xr.DataTree()
    attach(tree, source)
    tree.to_netcdf(path, engine="h5netcdf")
    return source_of(xr.load_datatree(path, engine="h5netcdf"))


@pytest.mark.parametrize("version", ["V1", "V2"])
def test_a_petab_problem_is_the_same_after_a_journey_through_a_file(tmp_path, version):
    path = petab_text.write(tmp_path, getattr(petab_text, version))
    path.write_text(path.read_text().replace("model.xml", "./model.xml"))
    assert "./model.xml" in path.read_text()
    source = there_and_back(petab_source(path), tmp_path / "run.nc")
    wanted = from_petab(path).fingerprint
    for file in tmp_path.iterdir():
        file.unlink()
    assert rebuild(source).fingerprint == wanted


def test_of_a_python_file_only_its_hash_is_kept(tmp_path):
    path = tmp_path / "model.py"
    path.write_text("secret = 1\n")
    source = there_and_back(python_source(path, {"d.csv": "a,b\n"}, x="time"), tmp_path / "run.nc")
    assert source.digest == text_digest(path)
    assert source.files == {"d.csv": "a,b\n"}
    assert source.options == {"x": "time"}
    assert b"secret" not in (tmp_path / "run.nc").read_bytes()
    with pytest.raises(InputError, match=r"not model\.py"):
        rebuild(source)


def test_a_tree_without_a_source_has_none():
    assert source_of(xr.DataTree()) is None


@pytest.mark.parametrize("name", ["../problem.yaml", "/etc/problem.yaml", "a/../../b", "..\\b", ""])
def test_texts_cannot_be_written_outside_their_folder(name):
    with pytest.raises(InputError, match="outside the problem's own folder"):
        rebuild(Source("petab", "problem.yaml", "", {name: "text"}))


def test_the_hash_does_not_depend_on_line_ends(tmp_path):
    (tmp_path / "a.py").write_bytes(b"x = 1\ny = 2\n")
    (tmp_path / "b.py").write_bytes(b"x = 1\r\ny = 2\r\n")
    assert text_digest(tmp_path / "a.py") == text_digest(tmp_path / "b.py")


@pytest.mark.slow
def test_a_petab_run_predicts_with_nothing_beside_it(tmp_path):
    path, run = petab_text.write(tmp_path, petab_text.V1), tmp_path / "run.nc"
    short = [
        "--regularisation",
        "1e-2",
        "--particles",
        "4",
        "--warmup",
        "8",
        "--draws",
        "8",
        "--out",
    ]
    result = CliRunner().invoke(cli.app, ["fit", str(path), *short, str(run)])
    assert result.exit_code == 0, result.stderr
    for file in tmp_path.iterdir():
        if file != run:
            file.unlink()
    result = CliRunner().invoke(cli.app, ["predict", str(run), "--times", "0,1,2"])
    assert result.exit_code == 0, result.stderr
    assert len(result.stdout.splitlines()) == 4
