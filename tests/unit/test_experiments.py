"""The case studies run, and write what they print."""

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
