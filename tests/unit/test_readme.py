"""What the README shows can be run, and what is public is documented."""

import inspect
import re
import shlex
import shutil
import threading
from pathlib import Path

import matplotlib.pyplot as plt
import pytest
from typer.testing import CliRunner

import pcuq
from pcuq import cli, explore
from pcuq.explore.page import Served

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def code_blocks() -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


@pytest.mark.default_precision
def test_quick_start_runs_as_a_user_types_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (block,) = code_blocks()
    names: dict = {}
    exec(compile(block, "README.md", "exec"), names)
    plt.close("all")
    assert (tmp_path / "quickstart.png").stat().st_size > 0
    assert names["fit"].parameters == ("k", "volume")
    assert names["control"].failed == names["inhibited"].failed == 0
    # Half the elimination leaves more of the drug, and changes nothing before it begins.
    difference = names["inhibited"].contrast(names["control"]).mean()[:, 0]
    later = names["x"] > 6
    assert (difference[later] > 0).all()
    assert abs(difference[~later]).max() < 1e-2


@pytest.mark.slow
def test_commands_run_as_a_user_types_them(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    served = Served("", threading.Thread(target=lambda: None))
    served.thread.start()
    monkeypatch.setattr(explore, "serve", lambda *args: served)  # it would wait for Ctrl-C
    lines = re.findall(r"^pcuq .*$", README, re.MULTILINE)
    assert {line.split()[1] for line in lines} == {"fit", "predict", "report", "explore"}
    for line in lines:
        arguments = shlex.split(line)[1:]
        if arguments[0] == "fit":
            arguments += ["--particles", "4", "--warmup", "8", "--draws", "8"]
        result = CliRunner().invoke(cli.app, arguments)
        assert result.exit_code == 0, f"{line}\n{result.stderr}"
    for name in ("decay.nc", "decay-bayes.nc", "decay.csv", "decay.html", "run.nc"):
        assert (tmp_path / name).stat().st_size > 0


def test_files_that_the_documents_link_to_exist():
    for document in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.name}: {target}"


def test_modules_that_the_architecture_names_exist():
    text = (ROOT / "docs" / "architecture.md").read_text()
    for row in re.findall(r"^\| (`.+?) \|", text, re.MULTILINE):
        for name in re.findall(r"`(\w+)/?`", row):
            source = ROOT / "src" / "pcuq" / name
            assert source.is_dir() or source.with_suffix(".py").is_file(), name


@pytest.mark.parametrize("name", pcuq.__all__)
def test_every_public_name_is_documented(name):
    text = inspect.getdoc(getattr(pcuq, name)) or ""
    # A dataclass without a docstring gets its signature for one.
    assert text and not text.startswith(f"{name}("), name
