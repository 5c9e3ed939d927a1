"""From what a user names to a plan: the problem is read here once, and again by workers."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pcuq._given import check_file, check_regularisation, check_seed, read_text, whole_number
from pcuq.errors import InputError
from pcuq.io.source import PETAB, PYTHON, petab_source, text_digest
from pcuq.result import versions
from pcuq.settings import LENGTHS
from pcuq.study.plan import METHODS, MOST_TASKS, Origin, Plan, Setting, settings_of
from pcuq.study.worlds import ZOO, read_world

# With two parameters parallel MALA is as good as NUTS, and compiles sooner.
QUICK = {"sampler": "mala", "particles": 10, "warmup": 1000, "draws": 500, "thin": 4}
ZOO_OPTIONS = {"bayes": QUICK, "mmd-bayes": QUICK, "pcuq": {"warmup": 200, "draws": 300}}


def make_plan(
    kind: str,
    problem: str | Path,
    replicates: int,
    seed: int = 0,
    methods: Sequence[str] | None = None,
    cases: Sequence[str] | None = None,
    regularisation: float | str | None = None,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    times: Sequence[float] | None = None,
    multiples: Sequence[float] | None = None,
    widths: Sequence[float] | None = None,
    combines: Sequence[str] | None = None,
    sizes: Sequence[float] | None = None,
) -> Plan:
    """A study of `kind` "coverage", "sensitivity" or "spread", checked before anything is run.

    `problem`: "lotka-volterra", a PEtab YAML or a Python file that defines `problem`, and `truth`
    if nature is not to be the model itself. `options`: arguments of `pcuq.fit` by method.
    `times`: covariates at which predictions are scored, those of the data by default.
    `multiples` of λ, `widths` as multiples of ℓ_Y and `combines` are for sensitivity; `sizes` as
    multiples of n are for spread.
    """
    settings = settings_of(kind, multiples, widths, combines, sizes)
    replicates, seed = whole_number("replicates", replicates, 1, MOST_TASKS), check_seed(seed)
    chosen = _chosen("methods", methods, METHODS)
    if kind == "sensitivity" and "pcuq" not in chosen:
        raise InputError("a sensitivity study is one of pcuq: keep it among the methods.")
    scored = None if times is None else tuple(float(x) for x in times)
    origin = read_origin(problem)
    world = read_world(origin, scored)
    origin = replace(origin, fingerprint=world.problem.fingerprint)
    lam = ZOO.get(origin.name, "auto") if regularisation is None else regularisation
    own = world.problem.kernel.combine
    plan = Plan(
        kind=kind,
        origin=origin,
        replicates=replicates,
        seed=seed,
        cases=_chosen("cases", cases, world.cases),
        methods=chosen,
        settings=tuple(s for s in settings if s != Setting(combine=own)),
        regularisation=lam if lam == "auto" else check_regularisation(lam),
        options=_options(origin, chosen, options or {}),
        times=scored,
        versions={name: one for name, one in versions().items() if name != "devices"},
    )
    _check_sizes(plan, world)
    if len(plan.tasks()) > MOST_TASKS:
        raise InputError(f"{len(plan.tasks())} fits are more than a study may have: {MOST_TASKS}.")
    return plan


def read_origin(problem: str | Path) -> Origin:
    """The texts that a problem is made from."""
    if str(problem) in ZOO:
        return Origin("zoo", str(problem), "", "")
    files = "a PEtab YAML file, or a Python file that defines `problem`"
    path = check_file(problem, "file", f"give {', '.join(ZOO)}, {files}")
    if path.suffix.lower() in (".yaml", ".yml"):
        files = petab_source(path).files
        digest = hashlib.sha256(repr(sorted(files.items())).encode()).hexdigest()
        return Origin(PETAB, path.name, digest, "", str(path.resolve()), files)
    if path.suffix != ".py":
        raise InputError(f"{path} needs to be a PEtab YAML file (.yaml) or a Python file (.py).")
    files = {path.name: read_text(path)}
    return Origin(PYTHON, path.name, text_digest(path), "", str(path.resolve()), files)


def _chosen(name: str, asked: Sequence[str] | None, known: Sequence[str]) -> tuple[str, ...]:
    """In the known order, so that the same choice is the same study."""
    if asked is None:
        return tuple(known)
    unknown = [one for one in asked if one not in known]
    if unknown or not asked:
        raise InputError(f"`{name}` needs some of {', '.join(known)}: got {', '.join(asked)}.")
    return tuple(one for one in known if one in asked)


def _options(origin: Origin, methods, given) -> dict[str, dict[str, Any]]:
    """What the caller says, over what suits the problem."""
    suited = ZOO_OPTIONS if origin.kind == "zoo" else {}
    known = {"particles", "systems", "sampler", "warmup", "draws", "thin", "beta", "solver"}
    found = {}
    for method in methods:
        asked = {name: value for name, value in given.get(method, {}).items() if value is not None}
        unknown = sorted(set(asked) - known)
        if unknown:
            raise InputError(f"options of a fit are {', '.join(sorted(known))}: got {unknown}.")
        if asked.get("sampler", "mala") not in LENGTHS:
            raise InputError(f"`sampler` needs one of {', '.join(LENGTHS)}.")
        found[method] = {**suited.get(method, {}), **asked}
    return found


def _check_sizes(plan: Plan, world) -> None:
    """Sizes that the world cannot make are refused before the study begins."""
    for setting in plan.settings:
        world.rows(setting.size)
