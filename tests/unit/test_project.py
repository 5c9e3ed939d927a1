"""What the project says about itself is so."""

import re
import subprocess
import tomllib
from importlib import metadata, resources
from itertools import chain
from pathlib import Path

import jax.numpy as jnp
import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def constraint_lines() -> list[str]:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def tracked_files() -> list[Path]:
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listing.returncode:
        pytest.skip("not a git checkout: which files are tracked is not known")
    return [path for name in listing.stdout.split("\0") if (path := ROOT / name).is_file()]


def test_constraints_are_exact_pins_without_addresses_or_paths():
    assert constraint_lines()
    for line in constraint_lines():
        assert re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.!+_-]+", line), line


def test_constraints_pin_each_dependency_within_its_bounds():
    pins = {
        canonicalize_name(name): version
        for name, version in (line.split("==") for line in constraint_lines())
    }
    extras = PROJECT["optional-dependencies"]
    # `make install` leaves `fuzz` out: it is for one kind of system, and for nothing but fuzzing.
    apart = ("petab", "fuzz")
    installed = [text for name in extras if name not in apart for text in extras[name]]
    for text in [*PROJECT["dependencies"], *installed]:
        wanted = Requirement(text)
        assert pins[canonicalize_name(wanted.name)] in wanted.specifier, text


def test_every_extra_is_named():
    extras = PROJECT["optional-dependencies"]
    assert set(extras) == {"arviz", "petab", "study", "explore", "docs", "dev", "fuzz"}


def test_each_lower_bound_is_stated():
    for text in chain(PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()):
        assert [s.operator for s in Requirement(text).specifier] == [">="], text


def test_py_typed_is_shipped():
    assert resources.files("pcuq").joinpath("py.typed").is_file()


def test_version_is_the_same_everywhere():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    latest = re.search(r"^## (\d\S*)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert latest is not None
    assert {citation["version"], latest[1], metadata.version("pcuq")} == {PROJECT["version"]}


def test_licence_is_the_one_that_is_named():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert PROJECT["license"] == citation["license"] == "Apache-2.0"
    assert "Apache License\n" in (ROOT / "LICENSE").read_text()


def test_no_tracked_file_names_a_folder_of_one_machine():
    # Not part of a longer path or an address; written so that this file does not match itself.
    machine_path = re.compile(rb"(?<![\w./~-])/(?:work|root|home)\b")
    found = [
        f"{path.relative_to(ROOT)}: {match[0].decode()}"
        for path in tracked_files()
        if (match := machine_path.search(path.read_bytes()))
    ]
    assert not found


def test_tests_run_in_64_bits():
    assert jnp.zeros(1).dtype == jnp.float64


@pytest.mark.default_precision
def test_tests_marked_default_precision_run_in_32_bits():
    assert jnp.zeros(1).dtype == jnp.float32


def test_what_killed_a_mutant_is_still_there_and_none_is_killed_and_explained():
    rows = {
        name: [line.split("\t") for line in (ROOT / "tests" / name).read_text().splitlines()[1:]]
        for name in ("killed.tsv", "survivors.tsv")
    }
    killers = {by.partition("[")[0] for *_, by in rows["killed.tsv"] if "::" in by}
    sources = {file: (ROOT / file).read_text() for file in {k.partition("::")[0] for k in killers}}
    gone = {
        k for k in killers if f"def {k.rpartition('::')[2]}(" not in sources[k.partition("::")[0]]
    }
    assert killers and not gone
    keys = [row[0] for some in rows.values() for row in some]
    assert len(set(keys)) == len(keys)
