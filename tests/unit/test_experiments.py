"""The case studies run, and write what they print."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
KEYS = {
    "method", "regularisation", "rhat_max", "ess_min", "fixed_point_residual",
    "share_outside_fit", "seconds", "trusted", "status", "heldout",
}  # fmt: skip


def run(name, *options, **environment):
    return subprocess.run(
        [sys.executable, str(EXPERIMENTS / f"{name}.py"), *options],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=550,
    )


@pytest.mark.slow
def test_a_case_study_writes_scores_of_all_methods(tmp_path):
    short = ["--particles", "6", "--warmup", "20", "--draws", "20", "--strengths", "0.1"]
    done = run("influenza", "--out", str(tmp_path), *short)
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "influenza"
    summary = json.loads((folder / "summary.json").read_text())
    assert [one["method"] for one in summary["runs"]] == ["bayes", "mmd-bayes", "pcuq"]
    for one in summary["runs"]:
        assert set(one) == KEYS
        crps = one["heldout"]["days 9-14"]["all"]["crps"]
        assert f"CRPS {crps:.4g}" in done.stdout
    assert (folder / "days 9-14.png").stat().st_size > 10_000


@pytest.mark.parametrize("name", ["fujita", "sneyd"])
def test_a_case_study_without_its_data_says_what_is_missing(name):
    done = run(name, PCUQ_EXTERNAL_DATA="")
    assert done.returncode == 1
    assert "set PCUQ_EXTERNAL_DATA" in done.stderr
    assert "Traceback" not in done.stderr


def test_ranks_that_are_not_even_are_found_out(monkeypatch):
    monkeypatch.syspath_prepend(EXPERIMENTS)
    summary = importlib.import_module("sbc").summary
    even = [37 * run % 100 for run in range(200)]
    rows = [{"run": 0, "ranks": {"a": rank, "b": rank}, "rhat": 1.0} for rank in even]
    assert summary(rows)["calibrated"]
    narrow = [
        {**row, "ranks": {"a": row["ranks"]["a"], "b": row["ranks"]["b"] // 2}} for row in rows
    ]
    assert not summary(narrow)["calibrated"]


def test_a_record_that_was_cut_off_is_left_out(monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(EXPERIMENTS)
    records = importlib.import_module("records")
    path = tmp_path / "lines.jsonl"
    assert records.read(path) == []
    records.append(path, {"run": 0})
    path.write_text(path.read_text() + '{"run": ')
    assert records.read(path) == [{"run": 0}]
    records.append(path, {"run": 1})
    assert records.read(path) == [{"run": 0}, {"run": 1}]
