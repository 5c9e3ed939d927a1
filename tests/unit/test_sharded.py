"""One particle system on several devices against the same on one."""

import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

SCRIPT = Path(__file__).with_name("sharded_run.py")


def begin(out, devices, *arguments):
    flags = f"--xla_force_host_platform_device_count={devices}"
    environment = os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, str(SCRIPT), str(out), *map(str, arguments)]
    return subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def finish(*processes):
    for process in processes:
        said, _ = process.communicate(timeout=300)
        assert process.returncode == 0, said[-3000:]


def relative(found, wanted):
    return np.max(np.abs(found - wanted)) / np.max(np.abs(wanted))


def check_as_one(path):
    """Value, gradient and 20 decisions of MALA; what a device needs falls with their number."""
    with np.load(path) as found:
        assert found["devices"] == 4
        assert relative(found["shared_value"], found["value"]) < 1e-10
        assert relative(found["shared_gradient"], found["gradient"]) < 1e-10
        moved = np.any(np.diff(found["path"], axis=0) != 0, axis=(1, 2))
        shared = np.any(np.diff(found["shared_path"], axis=0) != 0, axis=(1, 2))
        assert 3 < moved.sum() < 19  # decisions of both kinds
        np.testing.assert_array_equal(shared, moved)
        np.testing.assert_allclose(found["shared_path"], found["path"], rtol=1e-8)
        print({name: int(found[name]) for name in ("memory", "shared_memory")})
        assert found["shared_memory"] < 0.4 * found["memory"]


def test_four_devices_are_as_one(tmp_path):
    finish(begin(tmp_path / "found.npz", 4))
    check_as_one(tmp_path / "found.npz")


@pytest.mark.slow
def test_two_processes_are_as_one(tmp_path):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    finish(*[begin(tmp_path / "found.npz", 2, process, 2, port) for process in range(2)])
    check_as_one(tmp_path / "found.npz")
