"""Reads files that nobody would write, and sees that nothing but an error of pcuq's comes out.

    pip install -e ".[petab,fuzz]"
    python tests/fuzz/fuzz.py sbml --seconds 900 --out fuzzed [--seeds FOLDER]

Targets are `sbml`, `petab`, `saved` (runs, checkpoints, simulated checks) and `arguments` (the
command line with its tables). An input is some files in a row; `mutations` changes them, atheris
keeps the inputs that reach new code and changes those again, and `guard` says what must not happen.
What is found is kept as OUT/found-*, once for each place in the code, and printed; `--again FILE`
runs such a file alone.
"""

import argparse
import contextlib
import functools
import hashlib
import importlib
import os
import platform
import random
import re
import shutil
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple
from unittest import mock

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "unit")]
Files = dict[str, bytes]
MARK = b"\x00\x01file "
MOST = 300_000  # bytes of an input


def pack(files: Files) -> bytes:
    """Files in a row: one input."""
    return b"".join(MARK + name.encode() + b"\n" + data for name, data in files.items())


def unpack(data: bytes) -> Files:
    """What `pack` gave, or what is left of it; only names that stay in a folder."""
    found = {}
    for part in data.split(MARK)[1:]:
        name, _, content = part.partition(b"\n")
        if re.fullmatch(rb"(\w[\w.\-]*/)?\w[\w.\-]*[+@]?", name):
            found[name.decode()] = content
    return found


def lay_out(files: Files, folder: Path) -> None:
    """Write them: `name+` ends with the hash that makes it look whole, `name@` is a link."""
    from pcuq.result import _trailer

    for name, data in files.items():
        path = folder / name.rstrip("+@")
        with contextlib.suppress(OSError):  # a file where a folder is wanted
            path.parent.mkdir(exist_ok=True)
            if name.endswith("@"):
                path.symlink_to(data.decode(errors="replace").replace("\x00", "") or "x")
            elif not name.endswith("+"):
                path.write_bytes(data)
            elif ".nc" in name:
                path.write_bytes(data + _trailer(data))
            else:
                path.write_bytes(data + hashlib.sha256(data).digest())


# SBML ------------------------------------------------------------------------------------------


def sbml_seeds() -> list[Files]:
    import sbml_text as sb

    local = '<listOfLocalParameters><localParameter id="v" value="2"/></listOfLocalParameters>'
    wide = "A + piecewise(1, time > 3, A > 2, k) - floor(time/2)"
    models = [
        sb.model(
            species=sb.species("A", concentration=1) + sb.species("B", amount=0, only=True),
            parameters=sb.parameter("k1", 0.8) + sb.parameter("k2", 0.6),
            reactions=sb.reaction("forth", "C*k1*A*v", {"A": 1}, {"B": 2}, local)
            + sb.reaction("back", "C*k2*B", {"B": 1}, {"A": 1}),
        ),
        sb.model(
            species=sb.species("A", concentration=1),
            parameters=sb.parameter("k")
            + sb.parameter("y", 1, False)
            + sb.parameter("z", 0, False),
            initial=sb.start("k", "2*y + log(3)"),
            rules=sb.rate("y", f"f({wide}, k)") + sb.assignment("z", "y^2 + sin(A)*time"),
            functions=sb.function("f", "lambda(x, w, g(x)/w)")
            + sb.function("g", "lambda(x, x*x + abs(x))"),
            events=sb.event("dose", "time >= 2", {"A": "A + k"}, delay="1.5").replace(
                'TriggerTime="true"', 'TriggerTime="false"'
            ),
        ),
        sb.model(
            species=sb.species("A", concentration=1, compartment="V", boundary=True),
            compartments='<compartment id="V" size="2" constant="false"/>',
            parameters=sb.parameter("k", 0.1),
            rules=sb.assignment("V", "1 + k*time"),
            events=sb.event("e", "time > k", {"A": "2"}, level=2),
            level=(2, 4),
        ),
    ]
    return [{"model.xml": text.encode()} for text in models]


def read_sbml(folder: Path) -> None:
    """The right-hand side is traced, and the initial state computed."""
    import pcuq

    pcuq.from_sbml(folder / "model.xml")


# PEtab -----------------------------------------------------------------------------------------


def petab_seeds() -> list[Files]:
    import petab_text

    rich = petab_text.V1 | {
        "conditions.tsv": "conditionId\tconditionName\tk2\tA\nc0\tno\tk\t1\nc1\tyes\t0.3\t2*k\n",
        "parameters.tsv": "parameterId\tparameterScale\tlowerBound\tupperBound\tnominalValue\t"
        "estimate\tobjectivePriorType\tobjectivePriorParameters\nk1\tlog10\t0.01\t10\t0.8\t1\t"
        "parameterScaleNormal\t0;1\nk\tlin\t0\t10\t0.6\t1\tlaplace\t1;2\nsd\tlin\t0\t1\t0.5\t0\t\t\n",
        "observables.tsv": "observableId\tobservableFormula\tnoiseFormula\t"
        "observableTransformation\tnoiseDistribution\n"
        "obs_a\tobservableParameter1_obs_a*A + 0.1\tnoiseParameter1_obs_a*obs_a\tlog\tlaplace\n",
        "measurements.tsv": "observableId\tpreequilibrationConditionId\tsimulationConditionId\ttime"
        "\tmeasurement\tobservableParameters\tnoiseParameters\n"
        "obs_a\tc1\tc0\t0\t0.7\t2\tsd\nobs_a\t\tc1\tinf\t0.1\tk\t0.3\n",
    }
    more = {"link@": "model.xml", "loop@": "loop", "up@": "../.."}
    return [
        {name: text.encode() for name, text in (files | more).items()}
        for files in (petab_text.V1, petab_text.V2, rich)
    ]


def read_petab(folder: Path) -> None:
    """The problem is made, and its texts are what a run would carry."""
    import pcuq
    from pcuq.io.source import petab_source

    pcuq.from_petab(folder / "problem.yaml")
    petab_source(folder / "problem.yaml")


# What was saved --------------------------------------------------------------------------------

IDENTITY = "this run"


def saved_seeds() -> list[Files]:
    import made_fits
    import numpy as np
    import petab_text

    from pcuq.calibrate import Calibration
    from pcuq.checkpoint import DIGEST, FitCheckpoint
    from pcuq.io.source import attach, petab_source
    from pcuq.null import Null
    from pcuq.refits import Figures
    from pcuq.result import TRAILER

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        yaml = petab_text.write(folder, petab_text.V1)
        # Of another problem than the texts that it carries, which compiles sooner.
        fit = made_fits.made_fit(made_fits.growth_problem(), draws=4, curves=False)
        attach(fit.tree, petab_source(yaml))
        run = fit.save(folder / "run.nc").read_bytes()[:-TRAILER]
        keeper = FitCheckpoint(folder / "run", IDENTITY, resume=False)
        calibration = Calibration(1e-3, "share", *np.ones((4, 2, 3)), np.ones(2), 1.0)  # pyright: ignore
        keeper.keep_chosen(_said(calibration))
        start = {
            "starts": np.zeros((1, 2, 3)),
            "representatives": np.zeros((4, 3)),
            "tolerance": 0.1,
        }
        part = {"theta": np.arange(12.0).reshape(2, 2, 3), "failed": np.array([True, False])}
        attempt = keeper.attempt(0, {key: np.asarray(value) for key, value in start.items()})
        attempt.save(1, part, [np.arange(5), np.asarray(0.5)])
        kept = {}
        for path in sorted((folder / "run").rglob("*.npz")):
            name = str(path.relative_to(folder)).replace("/attempt-0/", "/a-")
            kept[f"{name}+"] = path.read_bytes()[:-DIGEST]
        figures = Figures(*(np.ones((20, 2)) for _ in Figures._fields))
        null = Null(figures, *(np.ones((2, 2)) for _ in range(4)), 0.1, "design", 0)
        null.save(folder / "null.npz")
        simulated = (folder / "null.npz").read_bytes()
    return [{"run.nc+": run}, {"run.nc": run}, kept, {"null.npz": simulated}]


def _said(calibration) -> dict:
    import json

    import numpy as np

    return {"calibration": np.frombuffer(json.dumps(calibration.to_dict()).encode(), np.uint8)}


def read_saved(folder: Path) -> None:
    """All that can be asked of a run without its problem; a checkpoint up to its numbers."""
    import pcuq
    from pcuq.checkpoint import FitCheckpoint
    from pcuq.io.source import PETAB, rebuild, source_of
    from pcuq.null import load_null

    if (folder / "run.nc").exists():
        fit = pcuq.load(folder / "run.nc")
        repr(fit), fit.status, fit.trusted, fit.diagnostics, fit.thetas, fit.draws, fit.summary()
        source = source_of(fit.tree)
        if source is not None and source.kind == PETAB:
            rebuild(source)
    if (folder / "null.npz").exists():
        len(load_null(folder / "null.npz"))
    if (folder / "run").is_dir():
        attempt = folder / "run" / "attempt-0"
        attempt.mkdir(exist_ok=True)
        for path in list((folder / "run").glob("a-*")):
            path.rename(attempt / path.name[2:])
        keeper = FitCheckpoint(folder / "run", IDENTITY, resume=True)
        keeper.latest()
        if keeper.chosen() is not None:
            importlib.import_module("pcuq.fit")._calibration(None, 0, keeper, print)
        keeper.attempt(0, None).load()


# The command line ------------------------------------------------------------------------------

LINE = """import pcuq
model = pcuq.FunctionModel(lambda x, p: [p["k"] * x], {"k": pcuq.Parameter("identity")}, ("y",))
problem = pcuq.Problem(model, pcuq.Data([[0.1], [0.6]], [0.0, 1.0], noise=0.2))
"""
COMPUTES = (
    "pcuq.fit.starting_fit", "pcuq.check.starting_fit", "pcuq.calibrate.starting_fit",
    "pcuq.study.run", "pcuq.score.score", "pcuq.report.page.report_and_figures",
)  # fmt: skip
FIXED: Files = {}  # what the command line finds in its folder, made once


def arguments_seeds() -> list[Files]:
    _make_fixed()
    table = {"data.csv": b"time,y,arm\n0,0.1,a\n1,0.6,b\n2,,a\n3,1.5,b\n".replace(b"2,,a\n", b"")}
    with_table = "--data data.csv --noise 0.2 --outputs y --condition arm"
    return [
        {"argv": words.replace(" ", "\n").encode(), **table}
        for words in (
            "fit line.py --regularisation 1e-3 --out new.nc --particles 5 --draws 10 --seed 1",
            f"fit model.py {with_table} --regularisation 1e-2 --method bayes --times 0:3:1",
            "predict run.nc --problem line.py --times 0:1:0.5 --do k*=0.5 --out out.csv",
            "check line.py --replicates 19 --regularisation 1e-3 --null null.npz --out out.png",
            f"check model.py {with_table} --json",
            "calibrate line.py --plot out.png --score --replicates 1",
            "report run.nc --out r.html --problem line.py --do k=1 --heldout data.csv --title T",
            "score run.nc line.py --problem line.py --json",
            "study coverage --problem line.py --out s --replicates 2 --times 0,1 --methods bayes",
            "study sensitivity --problem petab/problem.yaml --out s --multiples 0.1,1",
        )
    ]


def _make_fixed() -> None:
    import made_fits
    import petab_text

    from pcuq.cli.problems import load_problem
    from pcuq.io.source import attach

    if FIXED:
        return
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "line.py"
        path.write_text(LINE)
        loaded = load_problem(path)
        fit = made_fits.made_fit(loaded.problem, centre=[0.5], draws=4, curves=False)
        attach(fit.tree, loaded.source)
        FIXED["run.nc"] = fit.save(Path(name) / "run.nc").read_bytes()
    FIXED["line.py"] = LINE.encode()
    FIXED["model.py"] = LINE.rsplit("\n", 2)[0].encode()
    FIXED.update({f"petab/{name}": text.encode() for name, text in petab_text.V1.items()})


def read_arguments(folder: Path) -> None:
    """Up to where the first fit would begin."""
    from mutations import COMMANDS
    from typer.testing import CliRunner

    from pcuq import cli
    from pcuq.errors import ComputationError, InputError

    _make_fixed()
    given = folder / "argv"
    words = (
        given.read_bytes().decode("utf-8", "surrogateescape").split("\n") if given.exists() else []
    )
    words = [word.replace("\x00", "") for word in words]
    if not words or (words[0] not in COMMANDS and not words[0].startswith("-")):
        return
    lay_out({name: data for name, data in FIXED.items() if not (folder / name).exists()}, folder)
    kept = Path.cwd()
    os.chdir(folder)
    try:
        with contextlib.ExitStack() as stack:
            for name in COMPUTES:
                module, _, function = name.rpartition(".")
                __import__(module)
                begun = mock.Mock(side_effect=ComputationError("it would begin"))
                stack.enter_context(mock.patch.object(sys.modules[module], function, begun))
            result = CliRunner().invoke(cli.app, words)
    finally:
        os.chdir(kept)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    if result.exit_code not in (0, 2, 3):
        raise AssertionError(f"exit code {result.exit_code}")
    if "─ Error ─" in result.stderr:  # typer's own, in a box
        raise InputError("usage")
    if result.exit_code:
        raise InputError(re.split(r"\n?(?:error|failed): ", result.stderr)[-1].strip())


# All -------------------------------------------------------------------------------------------


class Target(NamedTuple):
    """`read` takes the folder that an input was laid out in."""

    seeds: Callable[[], list[Files]]
    read: Callable[[Path], None]


TARGETS = {
    "sbml": Target(sbml_seeds, read_sbml),
    "petab": Target(petab_seeds, read_petab),
    "saved": Target(saved_seeds, read_saved),
    "arguments": Target(arguments_seeds, read_arguments),
}


@functools.cache
def preload() -> None:
    """What makes folders of its own, or unpickles itself, when it is first imported."""
    ours = ("pcuq.fit", "pcuq.io.petab_v1", "pcuq.io.petab_v2")
    for name in ("matplotlib.pyplot", "petab.v1", "petab.v2", *ours):
        importlib.import_module(name)
    with contextlib.suppress(ImportError):  # xarray uses it where it is there
        importlib.import_module("dask.array")
    platform.processor()  # asks a program, once


def run(target: Target, data: bytes, root: Path) -> list[str]:
    """One input, in a folder of its own within `root`: by what it was refused, or guard.Broken."""
    from guard import guarded

    preload()
    folder = root / "given"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    lay_out(unpack(data), folder)
    with mock.patch.object(tempfile, "tempdir", str(root)), guarded(root) as said:
        target.read(folder)
    return said


def mutate(data: bytes, rng: random.Random, raw=None) -> bytes:
    """One or two of the files, changed; now and then one is left out or put in another's place."""
    import mutations

    files = unpack(data)
    if not files:
        return (raw or mutations.as_bytes)(data, rng)
    for _ in range(rng.choice([1, 1, 1, 2])):
        name = rng.choice(list(files))
        kind = rng.random()
        if kind < 0.02:
            del files[name]
        elif kind < 0.04:
            files[name] = files[rng.choice(list(files))]
        else:
            files[name] = mutations.mutate(name, files[name], rng, raw or mutations.as_bytes)
        if not files:
            break
    return pack(files)


def seeds_from(folder: Path, kind: str) -> Iterator[Files]:
    """SBML files and PEtab folders that lie elsewhere."""
    if kind == "sbml":
        for path in sorted(folder.rglob("*.xml")):
            yield {"model.xml": path.read_bytes()}
    if kind == "petab":
        for path in sorted([*folder.rglob("*.yaml"), *folder.rglob("*.yml")]):
            beside = {p.name: p.read_bytes() for p in path.parent.iterdir() if p.is_file()}
            yield {**beside, "problem.yaml": path.read_bytes()}


class Findings:
    """Each place in the code that broke the rules, once."""

    def __init__(self, out: Path):
        self.out, self.known, self.inputs = out, set(), 0

    def add(self, data: bytes, error: BaseException) -> None:
        cause = error.__cause__ or error
        frames = traceback.extract_tb(cause.__traceback__)
        ours = [frame for frame in frames if "/pcuq/" in frame.filename] or frames
        where = f"{Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else "?"
        key = (type(cause).__name__, where)
        if key in self.known:
            return
        self.known.add(key)
        path = self.out / f"found-{hashlib.sha256(data).hexdigest()[:12]}"
        path.write_bytes(data)
        print(f"FOUND {path.name} at {where}: {str(error)[:300]!r}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--out", type=Path, default=Path("fuzzed"), help="kept inputs and findings")
    parser.add_argument("--seeds", type=Path, help="a folder of SBML files or PEtab problems")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--again", type=Path, help="run this one input, and nothing else")
    asked = parser.parse_args()
    sys.dont_write_bytecode = True
    root = Path(tempfile.mkdtemp(prefix="pcuq-fuzz-"))
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(root / "jax")
    target = TARGETS[asked.target]
    try:
        if asked.again is not None:
            run(target, asked.again.read_bytes(), root)
            return
        _fuzz(asked, target, root)
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _fuzz(asked: argparse.Namespace, target: Target, root: Path) -> None:
    import atheris

    with atheris.instrument_imports(include=["pcuq"], enable_loader_override=False):
        import pcuq
        import pcuq.cli
        import pcuq.io.petab
        import pcuq.io.petab_v1
        import pcuq.io.petab_v2
        import pcuq.io.source  # noqa: F401
    import jax
    from guard import Broken

    out = asked.out / asked.target
    (out / "corpus").mkdir(parents=True, exist_ok=True)
    more = seeds_from(asked.seeds, asked.target) if asked.seeds else ()
    for files in (*target.seeds(), *more):
        data = pack(files)
        if len(data) <= MOST:
            (out / "corpus" / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)
    findings, began = Findings(out), time.monotonic()

    def one(data: bytes) -> None:
        findings.inputs += 1
        (out / "last").write_bytes(data)  # what a crash of the process leaves behind
        try:
            run(target, data, root)
        except Broken as error:
            findings.add(data, error)
        if findings.inputs % 500 == 0:
            jax.clear_caches()
            minutes = (time.monotonic() - began) / 60
            print(f"{findings.inputs} inputs in {minutes:.1f} minutes, "
                  f"{len(findings.known)} findings", flush=True)  # fmt: skip

    def change(data: bytes, most: int, seed: int) -> bytes:
        rng = random.Random(seed)

        def raw(part: bytes, rng: random.Random) -> bytes:
            return atheris.Mutate(part, max(len(part) + 64, 64))

        return mutate(data, rng, raw if rng.random() < 0.3 else None)[:most]

    options = [
        f"-max_total_time={asked.seconds}", f"-seed={asked.seed}", f"-max_len={MOST}",
        "-timeout=120", "-rss_limit_mb=3000", f"-artifact_prefix={out}/", "-len_control=0",
        "-reload=0",
    ]  # fmt: skip
    atheris.Setup([sys.argv[0], *options, str(out / "corpus")], one, custom_mutator=change)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
