"""What the documentation shows can be run, and what is public stands in it."""

import inspect
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import pytest
from typer.testing import CliRunner

import pcuq
from pcuq import cli, plots, report, study

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
# A fit or a check takes a quarter of a minute or more, most of it compiling.
FITS = re.compile(r"(pcuq\.(fit|check)|study\.run)\(|pcuq (fit|check|study) ")
# Enough to see that a command runs; the text shows what a person would type.
FEW = ["--particles", "4", "--warmup", "8", "--draws", "8"]
SHORTER = {
    "fit": FEW,
    "check": ["--replicates", "19", "--regularisation", "1e-3"],
    "study": [*FEW, "--replicates", "1", "--workers", "1", "--methods", "pcuq"],
}


def blocks(path: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", path.read_text(), re.DOTALL | re.MULTILINE)


def pages(language: str) -> list:
    return [
        pytest.param(
            path,
            id=path.stem,
            marks=[pytest.mark.slow] if FITS.search("".join(blocks(path, language))) else [],
        )
        for path in PAGES
        if blocks(path, language)
    ]


@pytest.mark.default_precision
@pytest.mark.parametrize("path", pages("python"))
def test_code_runs_as_a_user_types_it(path, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    names: dict = {}
    for number, block in enumerate(blocks(path, "python")):
        exec(compile(block, f"{path.name}, block {number + 1}", "exec"), names)
    plt.close("all")
    assert set(names) > {"__builtins__"}


@pytest.mark.parametrize("path", pages("console"))
def test_commands_run_as_a_user_types_them(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    for line in "".join(blocks(path, "console")).splitlines():
        prompt, program, *arguments = shlex.split(line)
        assert (prompt, program) == ("$", "pcuq"), line
        arguments += SHORTER.get(arguments[0], [])
        result = CliRunner().invoke(cli.app, arguments)
        assert result.exit_code == 0, f"{line}\n{result.stderr}"


def test_every_block_is_of_a_kind_that_is_run():
    for path in PAGES:
        fences = re.findall(r"^ *```(.*)$", path.read_text(), re.MULTILINE)
        assert set(fences[::2]) <= {"python", "console"}, path.name
        assert set(fences[1::2]) <= {""}, path.name
        assert not re.search(r"^ {4,}\$? ?pcuq ", path.read_text(), re.MULTILINE), path.name


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_every_page_is_in_the_table_of_contents(page):
    listed = (ROOT / "mkdocs.yml").read_text()
    assert str(page.relative_to(ROOT / "docs")) in listed


def test_every_public_name_stands_in_the_reference():
    shown = set(re.findall(r"^::: (\S+)", (ROOT / "docs" / "api.md").read_text(), re.MULTILINE))
    # A function that has its module's name is found in the module.
    wanted = {
        f"pcuq.{name}.{name}" if pcuq._HOME[name] == f"pcuq.{name}" else f"pcuq.{name}"
        for name in pcuq.__all__
    }
    wanted |= {f"pcuq.plots.{name}" for name in plots.__all__}
    wanted |= {f"pcuq.report.{name}" for name in report.__all__}
    wanted |= {f"pcuq.study.{name}" for name in study.__all__}
    assert shown == wanted


@pytest.mark.parametrize("module", [plots, report, study])
def test_every_name_of_a_package_has_a_docstring(module):
    for name in module.__all__:
        thing = getattr(module, name)
        if callable(thing):
            assert (thing.__doc__ or "").strip(), name


@pytest.mark.parametrize("module", [pcuq, plots, report, study])
def test_every_public_part_of_a_public_class_has_a_docstring(module):
    silent = []
    for name in module.__all__:
        thing = getattr(module, name)
        for part in vars(thing) if inspect.isclass(thing) else ():
            found = getattr(thing, part)
            said = callable(found) or isinstance(found, property) or hasattr(found, "func")
            if not part.startswith("_") and said and not inspect.getdoc(found):
                silent.append(f"{name}.{part}")
    assert not silent


def test_files_that_pages_link_to_exist():
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / " ".join(target.split())).exists(), f"{page.name}: {target}"


def test_the_site_is_built_and_fetches_nothing(tmp_path):
    pytest.importorskip("mkdocs", reason="mkdocs is not installed")
    pytest.importorskip("mkdocstrings", reason="mkdocstrings is not installed")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet"]
    done = subprocess.run(
        [*command, "--site-dir", str(tmp_path / "site")], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    api = (tmp_path / "site" / "api" / "index.html").read_text()
    for name in ("plot_contrast", "lengthscale_y", "time_to_threshold", "InputError"):
        assert name in api
    for page in (tmp_path / "site").rglob("*.html"):
        fetched = re.findall(r'<(?:script|img|iframe)[^>]+src="(https?:[^"]+)"', page.read_text())
        fetched += re.findall(r'<link[^>]+stylesheet[^>]+href="(https?:[^"]+)"', page.read_text())
        assert not fetched, page
