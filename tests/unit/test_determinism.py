"""The same seed gives the same bytes, however a run is watched, cut up or kept."""

import functools
import importlib
import subprocess
import sys
from pathlib import Path

import numpy as np
import numpyro.distributions as dist
import pytest

import pcuq
from pcuq.samplers.base import sample

fit_module = importlib.import_module("pcuq.fit")  # the name in pcuq is the function
SETTINGS = {"particles": 6, "warmup": 50, "draws": 40, "thin": 2, "seed": 5}
METHODS = {
    "pcuq": {"regularisation": 1e-3},
    "mala": {"regularisation": 1e-3, "sampler": "mala"},
    "bayes": {"method": "bayes", "sampler": "ensemble"},
    "nuts": {"method": "bayes"},
    "mmd-bayes": {"method": "mmd-bayes", "beta": 100.0, "sampler": "ensemble"},
}


def decay():
    model = pcuq.ODEModel(
        lambda t, u, p: [-p["rate"] * u[0]],
        lambda p: [p["start"]],
        {
            "rate": pcuq.Parameter("log", dist.Normal(0, 0.5)),
            "start": pcuq.Parameter("log", dist.Normal(0, 0.5)),
        },
        ("u",),
    )
    t = np.linspace(0.25, 3, 8)
    y = np.exp(-t) + 0.05 * np.sin(31 * t)
    return pcuq.Problem(model, pcuq.Data(y[:, None], t, 0.1))


def fitted(name, **ways):
    return pcuq.fit(decay(), **SETTINGS, **METHODS[name], **ways)


def bytes_of(fit):
    """Everything but what says when and how long."""
    found = {}
    for group in fit.tree.groups:
        for name, values in fit.tree[group].dataset.variables.items():
            array = values.values
            known = array.astype("U").tobytes() if array.dtype == object else array.tobytes()
            found[group, name] = known
    return found


@pytest.fixture(scope="module", params=METHODS)
def whole(request):
    return request.param, bytes_of(fitted(request.param))


def test_runs_are_repeated(whole):
    name, known = whole
    assert bytes_of(fitted(name)) == known
    assert bytes_of(fitted(name, progress=lambda progress: None)) == known


def test_chunks_and_checkpoints_change_nothing(whole, tmp_path, monkeypatch):
    """A checkpoint is written after each chunk."""
    (name, known), chunk = whole, 7
    monkeypatch.setattr(fit_module, "sample", functools.partial(sample, chunk=chunk))
    told = []
    kept = fitted(name, checkpoint=tmp_path / "kept", progress=told.append)
    assert len(told) > 50 // chunk + 1
    assert bytes_of(kept) == known


def test_another_seed_is_told_apart(whole):
    name, known = whole
    other = bytes_of(pcuq.fit(decay(), **(SETTINGS | {"seed": 6}), **METHODS[name]))
    assert other.keys() == known.keys()
    draws = ("/posterior", "rate")
    assert other[draws] != known[draws]


def test_another_process_gives_the_same_file(tmp_path):
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from test_determinism import fitted; fitted('pcuq').save(sys.argv[2])"
    )
    here = str(tmp_path.joinpath("here.nc"))
    fitted("pcuq").save(here)
    there = str(tmp_path.joinpath("there.nc"))
    folder = str(Path(__file__).parent)
    subprocess.run([sys.executable, "-c", script, folder, there], check=True, timeout=300)
    assert bytes_of(pcuq.load(here)) == bytes_of(pcuq.load(there))
