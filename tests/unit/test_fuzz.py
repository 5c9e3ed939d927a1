"""The fuzzer of tests/fuzz, for a few inputs: that it still runs, and that nothing is found."""

import random
import subprocess

import mutations
import pytest
from guard import Broken, guarded

import fuzz
from pcuq.errors import InputError

# How many inputs; those of `petab` and `arguments` take longer.
COUNTS = {"sbml": 60, "petab": 15, "saved": 20, "arguments": 15}


@pytest.mark.parametrize("name", fuzz.TARGETS)
def test_changed_inputs_are_read_or_refused_in_one_line(name, tmp_path):
    target, rng = fuzz.TARGETS[name], random.Random(1)
    seeds = [fuzz.pack(files) for files in target.seeds()]
    for data in seeds:
        # Else all others would be refused for what the seed is refused for.
        assert fuzz.run(target, data, tmp_path) in ([], ["it would begin"])
    said = [
        fuzz.run(target, fuzz.mutate(rng.choice(seeds), rng), tmp_path) for _ in range(COUNTS[name])
    ]
    refused = sum(one not in ([], ["it would begin"]) for one in said)
    assert 0 < refused < len(said)


def test_inputs_are_the_files_they_were_made_of():
    files = {"a.xml": b"<a/>\n", "b/c.npz+": bytes(range(256)), "link@": b"../.."}
    assert fuzz.unpack(fuzz.pack(files)) == files
    assert fuzz.unpack(fuzz.pack({"../x": b"", "/x": b"", "a/b/c": b""})) == {}


def test_copied_rows_are_changed_one_by_one():
    """Else a cell that is added to 300 copies is added 300 times to each."""
    for seed in range(100):
        rows = [["time", "y"], ["0", "1"]]
        mutations._change_table(rows, random.Random(seed))
        assert len({id(row) for row in rows}) == len(rows)


def write_elsewhere(folder):
    (folder.parent / "elsewhere").write_text("")


def start_a_program(folder):
    subprocess.run(["true"], check=True)


def evaluate(folder):
    eval("'pcuq_canary'")


def go_on_for_ever(folder):
    while True:
        pass


def raise_another_error(folder):
    raise KeyError("a")


def raise_two_lines(folder):
    raise InputError("one\ntwo")


@pytest.mark.parametrize(
    "what",
    [
        write_elsewhere,
        start_a_program,
        evaluate,
        go_on_for_ever,
        raise_another_error,
        raise_two_lines,
    ],
)
def test_the_guard_sees_what_must_not_happen(what, tmp_path, monkeypatch):
    monkeypatch.setattr("guard.SECONDS", 0.2)
    with pytest.raises(Broken), guarded(tmp_path / "given"):
        what(tmp_path)


def test_the_guard_lets_pass_what_may_happen(tmp_path):
    with guarded(tmp_path) as said:
        (tmp_path / "inside").write_text("")
        raise InputError("a sentence.")
    assert said == ["a sentence."]
