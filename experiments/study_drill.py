"""A coverage study that is killed, and what is left of it.

    python experiments/study_drill.py --replicates 100 --out drill

Runs `pcuq study coverage` for Lotka–Volterra three ways: with two workers, of which one is killed
early and the study itself half-way, and then gone on with; with one worker to the end; and counts
the fits that are lost, double, or differ. Only processes that were started here are killed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

# Short runs: what is tried here is the study, not the fits.
SHORT = ["--particles", "10", "--warmup", "40", "--draws", "20"]
SHORT += ["--baseline-warmup", "60", "--baseline-draws", "40"]
VARYING = {"run"}  # seconds, and who ran it: what may differ between two runs of the same fit


def main() -> None:
    """Kill, go on, compare, and say what was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--replicates", type=int, default=100)
    parser.add_argument("--out", type=Path, required=True, help="a folder")
    parser.add_argument("--methods", default="bayes,mmd-bayes,pcuq")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    said = drill(options.out, options.replicates, options.methods)
    said = {"replicates": options.replicates, "methods": options.methods, **said}
    print(json.dumps({**said, "seconds": round(time.perf_counter() - began)}, indent=2))


def drill(out: Path, replicates: int, methods: str) -> dict:
    """What came of a study that was killed, beside one that was not."""
    killed, whole = out / "killed", out / "whole"
    fits = len(methods.split(",")) * replicates
    running = start(killed, replicates, methods, 2)
    wait_for(killed, fits // 10, running)
    worker = workers_of(running.pid)[0]
    os.kill(worker, signal.SIGKILL)
    wait_for(killed, fits // 2, running)
    left = processes_below(running.pid)
    running.kill()
    running.wait()
    at_kill = kept(killed)
    for pid in left:  # workers see by themselves that the study is gone; this is to be sure
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for folder, workers in ((killed, 2), (whole, 1)):
        code = start(folder, replicates, methods, workers).wait()
        if code:
            sys.exit(f"the study in {folder} ended with {code}")
    first, second = kept(killed), kept(whole)
    wanted = {f"{i:05d}.json" for i in range(fits)}
    return {
        "fits": fits,
        "done_when_killed": len(at_kill),
        "done_then_and_changed_since": sum(first.get(k) != v for k, v in at_kill.items()),
        "lost": len(wanted - first.keys()),
        "double": len(first.keys() - wanted),
        "failed": sum("error" in json.loads(text) for text in first.values()),
        "differ_from_one_worker": sum(
            numbers(text) != numbers(second[name]) for name, text in first.items()
        ),
    }


def start(folder: Path, replicates: int, methods: str, workers: int) -> subprocess.Popen:
    """The study's command."""
    command = [str(Path(sys.executable).with_name("pcuq")), "study", "coverage"]
    command += ["--problem", "lotka-volterra", "--cases", "misspecified"]
    command += ["--replicates", str(replicates), "--regularisation", "1.6e-5", *SHORT]
    command += ["--methods", methods]
    command += ["--workers", str(workers), "--out", str(folder)]
    log = (folder.parent / f"{folder.name}.log").open("a")
    return subprocess.Popen(command, stdout=log, stderr=log)


def wait_for(folder: Path, count: int, running: subprocess.Popen) -> None:
    """Until so many fits are done."""
    while len(list(folder.glob("tasks/*.json"))) < count:
        if running.poll() is not None:
            sys.exit("the study ended before it could be killed")
        time.sleep(0.1)


def kept(folder: Path) -> dict[str, str]:
    """The file of each fit."""
    return {path.name: path.read_text() for path in sorted(folder.glob("tasks/*.json"))}


def numbers(text: str) -> dict:
    """What two runs of the same fit must agree in."""
    return {name: value for name, value in json.loads(text).items() if name not in VARYING}


def processes_below(pid: int) -> list[int]:
    """Children, and theirs."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, task.read_text().split()):
            found += [child, *processes_below(child)]
    return found


def workers_of(pid: int) -> list[int]:
    """Those of them that have used a processor for longest: a fit is what takes time."""

    def ticks(pid: int) -> int:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        return int(fields[11]) + int(fields[12])

    return sorted(processes_below(pid), key=ticks, reverse=True)


if __name__ == "__main__":
    main()
