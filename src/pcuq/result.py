"""What a fit returns: draws, diagnostics and a verdict, in a tree that ArviZ can read.

`posterior` (chain, draw) holds natural values, `unconstrained_posterior` holds θ; a chain is one
particle's path, with coordinates `system` and `particle`. `sample_stats` holds v, failures, and the
R-hats: path-wise ones say how a particle moves, those over systems (of each parameter's ensemble
mean and sd) are the verdict. Settings and figures of the whole fit are attributes of the tree.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from pcuq import diagnostics
from pcuq._files import write_whole
from pcuq._given import check_file
from pcuq._x64 import x64
from pcuq.errors import ComputationError, InputError
from pcuq.failures import Failures
from pcuq.predict import Prediction, predict
from pcuq.problem import Problem, check_problem

FORMAT = "pcuq-fit-1"
# HDF5 keeps no checksums. This mark and a hash of all before it stand at the end of a file, where
# other readers of netCDF do not look.
MARK = b"\npcuq sha256 "
TRAILER = len(MARK) + hashlib.sha256().digest_size
GROUPS = ("posterior", "unconstrained_posterior", "sample_stats", "observed_data", "constant_data")
FIGURES = ("diagnostics", "seconds", "versions")  # mappings, as JSON
WORDS = ("method", "status", "problem", "solver", *FIGURES)
MOST_PACKED = 1000  # bytes in memory for one in the file, which no honest compression exceeds


@dataclass(frozen=True, eq=False)
class Fit:
    """Draws from Q with their diagnostics. `problem` is None where a file was loaded without it."""

    tree: xr.DataTree
    problem: Problem | None = None

    @property
    def parameters(self) -> tuple[str, ...]:
        """Their names, in order."""
        return tuple(str(name) for name in self.tree["posterior"].data_vars)

    @property
    def method(self) -> str:
        """ "pcuq", "bayes" or "mmd-bayes"."""
        return self.tree.attrs["method"]

    @property
    def status(self) -> str:
        """In words, whether to trust this fit."""
        return self.tree.attrs["status"]

    @property
    def trusted(self) -> bool:
        """Whether the status is a good one."""
        return bool(self.tree.attrs["trusted"])

    @property
    def diagnostics(self) -> dict[str, Any]:
        """Figures of the whole fit."""
        return json.loads(self.tree.attrs["diagnostics"])

    @property
    def thetas(self) -> np.ndarray:
        """All retained draws (S, p), unconstrained, pooled over systems and particles."""
        group = self.tree["unconstrained_posterior"]
        columns = [group[name].transpose("draw", "chain").to_numpy() for name in self.parameters]
        return np.stack(columns, axis=-1).reshape(-1, len(columns))

    @property
    def draws(self) -> dict[str, np.ndarray]:
        """All retained draws by name, natural values, in the order of `thetas`."""
        group = self.tree["posterior"]
        return {
            name: group[name].transpose("draw", "chain").to_numpy().ravel()
            for name in self.parameters
        }

    def predict(self, x, condition: str | None = None, do=None, **options) -> Prediction:
        """The mixture's predictions at x, under a condition of the data and an intervention."""
        if self.problem is None:
            raise InputError(
                "this fit was loaded without its problem: pcuq.load(path, problem=problem)."
            )
        return predict(self.problem, self.thetas, x, condition=condition, do=do, **options)

    def summary(self):
        """A table: mean, sd and quantiles of each parameter, with R-hat and ESS."""
        import pandas as pd

        rows = {}
        stats = self.tree["sample_stats"]
        for name in self.parameters:
            paths = self.tree["posterior"][name].transpose("chain", "draw").to_numpy()
            values = paths.ravel()
            low, mid, high = np.quantile(values, [0.05, 0.5, 0.95])
            row = {
                "mean": values.mean(),
                "sd": values.std(),
                "5%": low,
                "50%": mid,
                "95%": high,
                "ess": float(diagnostics.ess_bulk(paths)),
                "rhat_paths": float(diagnostics.rhat(paths)),
            }
            for kind in ("mean", "sd"):
                if f"rhat_systems_{kind}" in stats:
                    values = stats.dataset[f"rhat_systems_{kind}"].sel(parameter=name)
                    row[f"rhat_{kind}"] = float(values)
            rows[name] = row
        return pd.DataFrame(rows).T

    def save(self, path: str | os.PathLike) -> Path:
        """Write netCDF; the file is complete or not there at all."""
        path = Path(path)
        # In memory first: HDF5 may crash the process later when a disk was full under it.
        content = bytes(self.tree.to_netcdf(engine="h5netcdf"))
        try:
            write_whole(path, content + _trailer(content))
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
            kind = ComputationError if full else InputError
            raise kind(f"{path} cannot be written: {error.strerror or error}.") from None
        return path

    def __repr__(self) -> str:
        size = self.tree["posterior"].sizes
        return (
            f"Fit(method={self.method!r}, {size['chain']} paths × {size['draw']} draws, "
            f"parameters: {', '.join(self.parameters)})\n{self.status}"
        )


def load(path: str | os.PathLike, problem: Problem | None = None) -> Fit:
    """Read a fit; with its problem it can predict. A different problem is refused."""
    path = check_file(path, "file", "give the path that `fit.save` wrote")
    if problem is not None:
        check_problem(problem)
    try:
        whole = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from None
    trailer = whole[-TRAILER:]
    if trailer.startswith(MARK) and trailer != _trailer(whole[:-TRAILER]):
        raise InputError(f"{path} is damaged: it is not what was written. Fit again, or copy it.")
    try:
        with h5py.File(path) as file:
            _check_parts(file)
        with xr.open_datatree(path, engine="h5netcdf", phony_dims="access") as tree:
            # HDF5 needs no bytes at all for an array of any size that nothing was written into.
            if sum(part.dataset.nbytes for part in tree.subtree) > MOST_PACKED * len(whole):
                raise ValueError("it holds arrays that are far larger than the file")
            tree.load()
    except Exception as error:
        said = " ".join(str(error).split()).rstrip(".")
        raise InputError(f"{path} is not a readable netCDF file: {said}.") from error
    form = tree.attrs.get("format")
    if not isinstance(form, str) or form != FORMAT:
        said = " ".join(repr(form).split())
        raise InputError(f"{path} was not written by pcuq (format {said:.60}).")
    _check_whole(path, tree)
    if problem is not None and problem.fingerprint != tree.attrs["problem"]:
        raise InputError(
            f"{path} belongs to another problem: data, parameters, kernel or conditions differ."
        )
    return Fit(tree, problem)


def _trailer(content: bytes) -> bytes:
    return MARK + hashlib.sha256(content).digest()


def _check_parts(group: h5py.Group, inner: bool = False) -> None:
    """Refuse what pcuq never writes, and other readers go astray in: for ever, or elsewhere."""
    for name in map(str, group):
        if group.get(name, getclass=True, getlink=True) is not h5py.HardLink:
            raise ValueError(f"{name!r:.60} is a link to elsewhere")
        part = group[name]
        if h5py.h5o.get_info(part.id).rc != 1:  # pyright: ignore[reportAttributeAccessIssue]
            raise ValueError(f"{name!r:.60} is there under two names")
        if isinstance(part, h5py.Dataset):
            _check_array(name, part)
        elif inner or not isinstance(part, h5py.Group):
            raise ValueError(f"{name!r:.60} should be an array")
        else:
            _check_parts(part, inner=True)


def _check_array(name: str, array: h5py.Dataset) -> None:
    """HDF5 reads whatever stands for the dimensions as references, and frees what they lead to."""
    if array.is_virtual or array.external:
        raise ValueError(f"the numbers of {name!r:.60} lie in other files")
    if "DIMENSION_LIST" in array.attrs:
        held = array.attrs.get_id("DIMENSION_LIST")
        one = h5py.check_vlen_dtype(held.dtype)
        kind = None if one is None else h5py.check_ref_dtype(one)
        if held.shape != (array.ndim,) or kind is not h5py.Reference:
            raise ValueError(f"the dimensions of {name!r:.60} are none")


def _check_whole(path: Path, tree: xr.DataTree) -> None:
    """Refuse a tree that lacks what a fit has."""
    missing = [name for name in GROUPS if name not in tree.children]
    missing += [name for name in WORDS if not isinstance(tree.attrs.get(name), str)]
    missing += [name for name in FIGURES if name not in missing and not _is_mapping(tree, name)]
    if not isinstance(tree.attrs.get("trusted"), (int, np.integer)):
        missing.append("trusted")
    if missing:
        raise InputError(f"{path} is no whole fit: it lacks {', '.join(missing)}.")
    try:
        fine = _belong_together(tree)
    except ValueError:  # xarray's, where variables of one group have other dimensions
        fine = False
    if not fine:
        raise InputError(f"{path} is no whole fit: its draws do not belong together.")


def _belong_together(tree: xr.DataTree) -> bool:
    names = list(tree["posterior"].data_vars)
    groups = [tree[group].dataset for group in ("posterior", "unconstrained_posterior")]
    sizes = {_sizes(group.get(name)) for group in groups for name in names}
    stats = tree["sample_stats"].dataset
    known = [stats[name] for name in stats if str(name).startswith("rhat_systems_")]
    alike = len(sizes) == 1 and 0 not in sizes.pop()
    return alike and all(_labels(one) == names for one in known)


def _is_mapping(tree: xr.DataTree, name: str) -> bool:
    try:
        return isinstance(json.loads(tree.attrs[name]), dict)
    except (ValueError, RecursionError):
        return False


def _sizes(draws: xr.DataArray | None) -> tuple[int, int]:
    """How many chains and draws of numbers, (0, 0) where it is not made of these."""
    if draws is None or draws.dtype.kind != "f" or {*draws.dims} != {"chain", "draw"}:
        return 0, 0
    return draws.sizes["chain"], draws.sizes["draw"]


def _labels(figures: xr.DataArray) -> list[Any]:
    """The parameters that some figures belong to."""
    known = figures.coords.get("parameter")
    return [] if known is None or figures.dims != ("parameter",) else known.to_numpy().tolist()


@x64
def make_tree(
    problem: Problem,
    theta: np.ndarray,
    v: np.ndarray,
    failed: np.ndarray,
    info: Mapping[str, np.ndarray],
    attributes: Mapping[str, Any],
    failures: Failures | None = None,
    warmup_failures: np.ndarray | None = None,
    warmup_theta: np.ndarray | None = None,
    extra: Mapping[str, xr.Dataset] | None = None,
) -> xr.DataTree:
    """theta (S, T, N, p): systems, draws, particles. `extra`: further groups."""
    systems, draws, particles, _ = theta.shape
    names = problem.parameters.names
    coordinates = {
        "chain": np.arange(systems * particles),
        "draw": np.arange(draws),
        "system": ("chain", np.repeat(np.arange(systems), particles)),
        "particle": ("chain", np.tile(np.arange(particles), systems)),
    }

    def paths(values):  # (S, T, N) → (chain, draw)
        return np.moveaxis(values, 2, 1).reshape(systems * particles, -1)

    natural = problem.parameters.constrain(jnp.asarray(theta))
    posterior = {name: (("chain", "draw"), paths(np.asarray(natural[name]))) for name in names}
    unconstrained = {
        name: (("chain", "draw"), paths(theta[..., i]), {"long_name": parameter.theta_of(name)})
        for i, (name, parameter) in enumerate(problem.parameters.items())
    }
    stats: dict[str, Any] = {
        "v": (("chain", "draw"), paths(v)),
        "failed": (("chain", "draw"), paths(failed)),
        "failures": (("chain",), paths(failed).sum(axis=1)),
        "rhat_paths": (
            ("parameter",),
            np.array([float(diagnostics.rhat(paths(theta[..., i]))) for i in range(len(names))]),
        ),
        "ess_paths": (
            ("parameter",),
            np.array(
                [float(diagnostics.ess_bulk(paths(theta[..., i]))) for i in range(len(names))]
            ),
        ),
    }
    if systems > 1:
        for kind, summary in (("mean", theta.mean(axis=2)), ("sd", theta.std(axis=2))):
            if kind == "sd" and particles == 1:
                continue
            stats[f"rhat_systems_{kind}"] = (
                ("parameter",),
                np.asarray(diagnostics.rhat(summary)).reshape(len(names)),
            )
    if failures is not None and failures.causes:
        by_cause = failures.counts.reshape(systems * particles, -1)
        stats["failures_by_cause"] = (("chain", "cause"), by_cause)
        stats["cause"] = (("cause",), np.array(failures.causes, dtype=object))
    if warmup_failures is not None:
        stats["warmup_failures"] = (("chain",), warmup_failures.ravel())
    for name, values in info.items():
        assert name not in stats, name  # one name, one thing
        stats[name] = (("which_system", "iteration"), values)
    groups = {
        "posterior": xr.Dataset(posterior, coords=coordinates),
        "unconstrained_posterior": xr.Dataset(unconstrained, coords=coordinates),
        "sample_stats": xr.Dataset(stats, coords={**coordinates, "parameter": list(names)}),
        "observed_data": xr.Dataset(
            {"y": (("row", "output"), np.asarray(problem.data.y))},
            coords={"output": list(problem.outputs), "row": np.arange(problem.data.n)},
        ),
        "constant_data": _constant_data(problem),
        **(extra or {}),
    }
    if warmup_theta is not None and warmup_theta.shape[1]:
        warm = {
            name: (("chain", "draw"), paths(warmup_theta[..., i])) for i, name in enumerate(names)
        }
        groups["warmup_unconstrained_posterior"] = xr.Dataset(warm)
    tree = xr.DataTree.from_dict(groups)
    tree.attrs.update(format=FORMAT, problem=problem.fingerprint, **attributes)
    return tree


def _constant_data(problem: Problem) -> xr.Dataset:
    data = problem.data
    known: dict[str, Any] = {"condition": (("row",), data.condition.astype(object))}
    if data.x is not None:
        known["x"] = (("row",) if data.x.ndim == 1 else ("row", "covariate"), np.asarray(data.x))
    known["noise_scale"] = (
        ("row", "output"),
        np.where(problem.scale.static > 0, problem.scale.static, np.nan),
    )
    return xr.Dataset(known, coords={"output": list(problem.outputs), "row": np.arange(data.n)})


def versions() -> dict[str, str]:
    """Versions of what the numbers depend on."""
    import importlib.metadata

    return {
        name: importlib.metadata.version(name)
        for name in ("pcuq", "jax", "jaxlib", "diffrax", "numpyro", "blackjax", "numpy")
    } | {"devices": str(jax.devices()[0].platform)}
