"""The command line: `pcuq demo`, `fit`, `predict` and `bench`.

Exit codes: 0 done, 2 bad input, 3 the computation failed, 130 interrupted. What was asked for goes
to stdout or a file; progress and errors go to stderr.
"""

from __future__ import annotations

import functools
import json
import math
import os
import runpy
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from pcuq.errors import ComputationError, InputError

if TYPE_CHECKING:
    from pcuq.problem import Problem
    from pcuq.samplers.base import Listener, Progress

BAD_INPUT, FAILED, INTERRUPTED = 2, 3, 130
MOST_TIMES = 1_000_000
SECONDS_BETWEEN_LINES = 2.0

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Honest predictions from models that are wrong.",
)


def main() -> None:
    """The entry point."""
    try:
        app()
    except KeyboardInterrupt:  # while arguments are read
        sys.exit(INTERRUPTED)


def _command(function: Callable[..., None]) -> Callable[..., None]:
    """A command whose expected failures are a message and an exit code, never a traceback."""

    @functools.wraps(function)
    def guarded(*args, **kwargs):
        try:
            function(*args, **kwargs)
        except InputError as error:
            _stop(f"error: {error}", BAD_INPUT)
        except ComputationError as error:
            _stop(f"failed: {error}", FAILED)
        except KeyboardInterrupt:
            _stop("interrupted", INTERRUPTED)

    return app.command()(guarded)


def _stop(message: str, code: int):
    _say(message)
    raise typer.Exit(code)


def _say(line: str) -> None:
    typer.echo(line, err=True)


ProblemFile = Annotated[Path, typer.Argument(help="Python file that defines `problem`.")]
Seed = Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Of all random numbers.")]
Json = Annotated[bool, typer.Option("--json", help="Print figures as JSON on stdout.")]


@_command
def demo(
    out: Annotated[Path, typer.Option(help="Folder for what is made.")] = Path("demo"),
    seed: Seed = 0,
    as_json: Json = False,
) -> None:
    """Both Lotka–Volterra cases by three methods: figures, summary.json and report.html."""
    _say("Lotka–Volterra, two cases by three methods: a few minutes, most of them compiling")
    _use_compilation_cache()
    from pcuq.demo import demo as run

    _make_folder(out)
    summary = run(out, seed, tell=_timed())
    if as_json:
        typer.echo(json.dumps(summary, indent=2))
    else:
        typer.echo(_demo_table(summary))
    _say(f"wrote {out / 'report.html'}, summary.json, parameters.png and predictions.png")


@_command
def fit(
    problem: ProblemFile,
    method: Annotated[str, typer.Option(help="pcuq, bayes or mmd-bayes.")] = "pcuq",
    regularisation: Annotated[str, typer.Option(help="λ of ½ MMD² + λ KL, or auto.")] = "auto",
    beta: Annotated[
        str, typer.Option(help="Of MMD-Bayes: a number, matched for 1/(2λ), or paper.")
    ] = "matched",
    particles: Annotated[int, typer.Option(help="N, in each system.")] = 50,
    systems: Annotated[int, typer.Option(help="Independent systems, to compare.")] = 2,
    sampler: Annotated[str | None, typer.Option(help="ensemble, mala, flow or nuts.")] = None,
    warmup: Annotated[int | None, typer.Option(help="Iterations before any is kept.")] = None,
    draws: Annotated[int | None, typer.Option(help="Iterations that are kept.")] = None,
    thin: Annotated[int | None, typer.Option(help="One is kept out of how many.")] = None,
    seed: Seed = 0,
    out: Annotated[Path, typer.Option(help="netCDF file for the draws.")] = Path("run.nc"),
    as_json: Json = False,
) -> None:
    """Infer a distribution over parameters, and say whether to trust it."""
    _check_out(out, (".nc",))
    loaded = load_problem(problem)
    _use_compilation_cache()
    from pcuq.fit import fit as run

    _say("finding a starting fit and compiling: up to a minute without a sign of life")
    with _listening() as listener:
        found = run(
            loaded,
            method=method,
            regularisation=_number_or_word("regularisation", regularisation, ("auto",)),
            beta=_number_or_word("beta", beta, ("matched", "paper")),
            particles=particles,
            systems=systems,
            sampler=sampler,
            warmup=warmup,
            draws=draws,
            thin=thin,
            seed=seed,
            progress=listener,
        )
    _write(out, found.save)
    table = found.summary()
    if as_json:
        figures = {
            "method": found.method,
            "status": found.status,
            "trusted": found.trusted,
            "regularisation": found.tree.attrs["regularisation"],
            "diagnostics": found.diagnostics,
            "seconds": json.loads(found.tree.attrs["seconds"]),
            "parameters": table.to_dict(orient="index"),
            "out": str(out),
        }
        typer.echo(json.dumps(_finite(figures), indent=2))
    else:
        typer.echo(table.to_string(float_format=lambda x: f"{x:.4g}"))
        typer.echo(found.status)
    _say(f"wrote {out}")


@_command
def predict(
    run: Annotated[Path, typer.Argument(help="File that `pcuq fit` wrote.")],
    problem: Annotated[Path, typer.Option(help="The Python file that was fitted.")],
    times: Annotated[
        str | None, typer.Option(help="start:stop:step with both ends, or t1,t2,…")
    ] = None,
    do: Annotated[
        list[str] | None,
        typer.Option(help="Intervention, such as k6*=0.01 or ERK=0@30; may be repeated."),
    ] = None,
    condition: Annotated[str | None, typer.Option(help="One of the problem's.")] = None,
    seed: Seed = 0,
    out: Annotated[
        Path | None, typer.Option(help="Every draw as .nc, or means and quantiles as .csv.")
    ] = None,
    as_json: Json = False,
) -> None:
    """What a fit predicts, also under interventions; a table on stdout unless --out is given."""
    if out is not None:
        _check_out(out, (".nc", ".csv"))
    x = None if times is None else parse_times(times)
    loaded = load_problem(problem)
    _use_compilation_cache()
    from pcuq.result import load

    fitted = load(run, problem=loaded)
    if not fitted.trusted:
        _say(f"warning: {fitted.status}")
    found = fitted.predict(x, condition=condition, do=do or None, seed=seed)
    if found.failed:
        _say(f"warning: {found.failed} of {len(found.draws)} draws could not be solved: left out")
    frame = found.to_frame()
    if out is not None and out.suffix == ".nc":
        dataset = found.to_dataset()
        _write(out, lambda path: dataset.to_netcdf(path, engine="h5netcdf"))
    elif out is not None:
        _write(out, lambda path: frame.to_csv(path, index=False))
    if as_json:
        rows = frame.to_dict(orient="records")
        typer.echo(json.dumps(_finite({"failed": found.failed, "predictions": rows}), indent=2))
    elif out is None:
        typer.echo(frame.to_csv(index=False), nl=False)
    if out is not None:
        _say(f"wrote {out}")


@_command
def bench(
    as_json: Json = False,
    quick: Annotated[bool, typer.Option("--quick", help="Lotka–Volterra, N = 10 alone.")] = False,
) -> None:
    """Compile and run times, with the error of the ODE solver beside them."""
    _say("compiling for each size, without the cache: a few minutes (--quick: less than one)")
    from pcuq.bench import bench as run

    found = run(quick, tell=_timed())
    typer.echo(json.dumps(_finite(found), indent=2) if as_json else _bench_table(found))


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(version("pcuq"))
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")
    ] = False,
) -> None:
    pass


# --- reading what was given ---------------------------------------------------------------------


def load_problem(path: Path) -> Problem:
    """The `problem` that a Python file defines; the file is executed."""
    if not path.is_file():
        raise InputError(f"there is no file {path}: give a Python file that defines `problem`.")
    if path.suffix.lower() in (".yaml", ".yml"):
        raise InputError(
            f"{path} looks like a PEtab problem, which is not supported yet: give a Python file "
            "that defines `problem`."
        )
    if path.suffix != ".py":
        raise InputError(f"{path} needs to be a Python file (.py) that defines `problem`.")
    from pcuq.problem import Problem

    # As when Python runs a file, it may import what lies beside it.
    sys.path.insert(0, str(path.resolve().parent))
    try:
        found = runpy.run_path(str(path), run_name="pcuq_problem").get("problem")
    except (InputError, ComputationError) as error:
        raise type(error)(f"{path}: {error}") from error
    except (Exception, SystemExit) as error:
        raise InputError(f"{path} stopped with {type(error).__name__}: {error}") from error
    finally:
        sys.path.pop(0)
    if not isinstance(found, Problem):
        came = "no such name" if found is None else type(found).__name__
        raise InputError(f"{path} needs to define `problem`, a pcuq.Problem: got {came}.")
    return found


def parse_times(text: str) -> np.ndarray:
    """ "0:90:0.5" with both ends, or "0,1,5"."""
    wanted = InputError(f"--times needs start:stop:step or t1,t2,…: got {text!r}.")
    try:
        if ":" not in text:
            times = np.array([float(part) for part in text.split(",")])
        else:
            start, stop, step = (float(part) for part in text.split(":"))
            if not (step > 0 and stop >= start and (stop - start) / step < MOST_TIMES):
                raise wanted
            # An end that is a whole number of steps away belongs to it, whatever the rounding.
            times = start + step * np.arange(math.floor((stop - start) / step + 1e-9) + 1)
    except ValueError as error:
        raise wanted from error
    if not np.isfinite(times).all():
        raise wanted
    return times


def _number_or_word(name: str, text: str, words: tuple[str, ...]) -> float | str:
    if text in words:
        return text
    try:
        return float(text)
    except ValueError:
        raise InputError(f"--{name} needs a number or {', '.join(words)}: got {text!r}.") from None


def _check_out(path: Path, suffixes: tuple[str, ...]) -> None:
    """Before anything is computed: what is found can be written."""
    if path.suffix not in suffixes:
        raise InputError(f"--out needs a file ending in {' or '.join(suffixes)}: got {path}.")
    if not os.access(path.parent, os.W_OK) or path.is_dir():
        raise InputError(f"--out {path} cannot be written: make its folder first, or choose one.")


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--out {path} cannot be a folder: {error.strerror}.") from error


def _use_compilation_cache() -> None:
    """Compile once per machine and not once per run."""
    import jax

    if "JAX_COMPILATION_CACHE_DIR" in os.environ:  # JAX has read it
        return
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(base) / "pcuq" / "jax"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


# --- saying what was found ----------------------------------------------------------------------


@contextmanager
def _listening() -> Iterator[Listener]:
    """A listener for samplers: a live display on a terminal, else a line now and then."""
    if not sys.stderr.isatty():
        yield _PlainLines()
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Display

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[figures]}"),
    )
    with Display(*columns, console=Console(stderr=True), transient=True) as display:
        task = display.add_task("compiling", total=None, figures="")

        def listen(progress: Progress) -> None:
            display.update(
                task,
                description=_phase(progress),
                completed=progress.iteration,
                total=progress.total,
                figures=_figures(progress),
            )

        yield listen


class _PlainLines:
    def __init__(self):
        self.last = -math.inf

    def __call__(self, progress: Progress) -> None:
        now = time.monotonic()
        if progress.iteration < progress.total and now - self.last < SECONDS_BETWEEN_LINES:
            return
        self.last = now
        _say(f"{_phase(progress)} {progress.iteration}/{progress.total}  {_figures(progress)}")


def _phase(progress: Progress) -> str:
    return "warm-up" if progress.warming_up else "draws"


def _figures(progress: Progress) -> str:
    return "  ".join(f"{name} {value:.3g}" for name, value in progress.info.items())


def _timed() -> Callable[[str], None]:
    began = time.monotonic()
    return lambda line: _say(f"{time.monotonic() - began:6.1f} s  {line}")


def _write(path: Path, writer: Callable[[Path], Any]) -> None:
    """Through a scratch file beside it: what is there is complete."""
    handle, scratch = tempfile.mkstemp(suffix=path.suffix, dir=path.parent)
    os.close(handle)
    try:
        writer(Path(scratch))
        os.replace(scratch, path)
    except OSError as error:
        raise InputError(f"--out {path} cannot be written: {error}.") from error
    finally:
        Path(scratch).unlink(missing_ok=True)


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity: null."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    if isinstance(value, (float, np.floating)):
        return float(value) if math.isfinite(value) else None
    return int(value) if isinstance(value, np.integer) else value


def _demo_table(summary: dict[str, Any]) -> str:
    lines = [f"{'case':16}{'method':12}{'50 %':>7}{'90 %':>7}{'CRPS':>9}{'seconds':>9}  trusted"]
    for case, methods in summary["cases"].items():
        for method, row in methods.items():
            half, most = row["coverage"]["0.5"], row["coverage"]["0.9"]
            lines.append(
                f"{case:16}{method:12}{half:7.2f}{most:7.2f}{row['crps']:9.3g}{row['seconds']:9.1f}"
                f"  {'yes' if row['trusted'] else 'no'}"
            )
    return "\n".join(lines)


def _bench_table(found: dict[str, Any]) -> str:
    head = ("ms_per_gradient", "ms_per_mala_iteration", "compile_s", "steps", "ode_error")
    lines = [f"{'model':16}{'N':>6}" + "".join(f"{name:>23}" for name in head)]
    for model in ("lotka_volterra", "erk"):
        for count, row in found.get(model, {}).items():
            figures = "".join(f"{row[name]:23.3g}" for name in head)
            lines.append(f"{model:16}{count:>6}{figures}")
    return "\n".join(lines)
