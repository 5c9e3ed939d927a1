"""What a study consists of: tasks that depend on the plan and on their own number, nothing else.

A task is one fit: of one replicate of one case, under one setting, by one method. Tasks are
numbered replicate by replicate, so a study of more replicates goes on where a smaller one ended.
With s the seed of the study, the data of replicate r come from SeedSequence(s, (0, r)) and the fit
of task k from SeedSequence(s, (1, k)): the methods see the same data, and who runs what and when
does not matter.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import numpy as np

from pcuq.errors import InputError

FORMAT = 1
KINDS = ("coverage", "sensitivity", "spread")
METHODS = ("bayes", "mmd-bayes", "pcuq")
# What a study looks at where nothing else is asked for.
MULTIPLES = (0.1, 0.3, 1.0, 3.0, 10.0)
WIDTHS = (0.5, 1.0, 2.0, 4.0)
COMBINES = ("product", "sum")
SIZES = (0.25, 0.5, 1.0, 2.0, 4.0)
MOST_TASKS = 100_000


@dataclass(frozen=True)
class Setting:
    """What differs between fits: multiples of λ, of ℓ_Y and of n, and how outputs combine."""

    regularisation: float = 1.0
    width: float = 1.0
    combine: str = ""  # as the problem has it
    size: float = 1.0

    @property
    def name(self) -> str:
        parts = [f"λ × {self.regularisation:g}"] * (self.regularisation != 1)
        parts += [f"ℓ × {self.width:g}"] * (self.width != 1)
        parts += [self.combine] * bool(self.combine)
        parts += [f"n × {self.size:g}"] * (self.size != 1)
        return ", ".join(parts) or "base"


class Task(NamedTuple):
    """One fit."""

    number: int
    replicate: int
    case: str
    setting: Setting
    method: str


@dataclass(frozen=True)
class Origin:
    """Where the problem comes from: texts that a worker can read by itself, nothing pickled.

    `kind`: "zoo", "python" or "petab". `digest`: of the texts. `fingerprint`: of the problem that
    they make here, which must be the one that they make there.
    """

    kind: str
    name: str
    digest: str
    fingerprint: str
    path: str = ""
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Plan:
    """A study, complete; `make_plan` fills it in. `options`: arguments of `pcuq.fit` by method."""

    kind: str
    origin: Origin
    replicates: int
    seed: int
    cases: tuple[str, ...]
    methods: tuple[str, ...]
    settings: tuple[Setting, ...]
    regularisation: float | str
    options: Mapping[str, Mapping[str, Any]]
    times: tuple[float, ...] | None
    versions: Mapping[str, str]

    def tasks(self) -> list[Task]:
        """All fits, in the order of their numbers."""
        found = []
        for replicate in range(self.replicates):
            for case in self.cases:
                for setting in self.settings:
                    for method in self.methods_for(setting):
                        found.append(Task(len(found), replicate, case, setting, method))
        return found

    def methods_for(self, setting: Setting) -> tuple[str, ...]:
        """Where λ or the kernel changes PCUQ alone is fitted anew: the study is one of it."""
        return self.methods if setting == Setting(size=setting.size) else ("pcuq",)

    def data_seed(self, replicate: int) -> int:
        """The seed of a replicate's data."""
        return _seed(self.seed, 0, replicate)

    def heading(self, number: int) -> dict[str, Any]:
        """What the record of a task begins with: which one it is."""
        task = self.tasks()[number]
        return {
            "study": self.identity,
            "task": number,
            "replicate": task.replicate,
            "case": task.case,
            "setting": task.setting.name,
            "method": task.method,
            "data_seed": self.data_seed(task.replicate),
            "seed": self.fit_seed(number),
        }

    def fit_seed(self, number: int) -> int:
        """The seed of a task's fit."""
        return _seed(self.seed, 1, number)

    def described(self) -> dict[str, Any]:
        """What the numbers depend on, ready for JSON; how many replicates is not part of it."""
        origin = self.origin
        return {
            "format": FORMAT,
            "study": self.kind,
            "problem": [origin.kind, origin.name, origin.digest, origin.fingerprint],
            "seed": self.seed,
            "cases": list(self.cases),
            "methods": list(self.methods),
            "settings": [asdict(setting) for setting in self.settings],
            "regularisation": self.regularisation,
            "options": {name: dict(options) for name, options in self.options.items()},
            "times": None if self.times is None else list(self.times),
            "versions": dict(self.versions),
        }

    @property
    def identity(self) -> str:
        """A hash of what the numbers depend on."""
        said = json.dumps(self.described(), sort_keys=True)
        return hashlib.sha256(said.encode()).hexdigest()

    def to_dict(self) -> dict[str, Any]:
        """For the journey to a worker."""
        return asdict(self)

    @classmethod
    def from_dict(cls, said: Mapping[str, Any]) -> Plan:
        """What `to_dict` gave."""
        listed = {name: tuple(said[name]) for name in ("cases", "methods")}
        settings = tuple(Setting(**setting) for setting in said["settings"])
        times = None if said["times"] is None else tuple(said["times"])
        rest = {"origin": Origin(**said["origin"]), "settings": settings, "times": times}
        return cls(**{**said, **listed, **rest})


def settings_of(
    kind: str,
    multiples: Sequence[float] | None = None,
    widths: Sequence[float] | None = None,
    combines: Sequence[str] | None = None,
    sizes: Sequence[float] | None = None,
) -> tuple[Setting, ...]:
    """The settings of a study: one thing is changed at a time, and the base is among them."""
    if kind not in KINDS:
        raise InputError(f"a study is one of {', '.join(KINDS)}: got {kind!r}.")
    asked = {"--multiples": multiples, "--widths": widths, "--combine": combines, "--sizes": sizes}
    fitting = {"sensitivity": ("--multiples", "--widths", "--combine"), "spread": ("--sizes",)}
    for name, given in asked.items():
        if given is not None and name not in fitting.get(kind, ()):
            raise InputError(f"{name} is no option of a {kind} study.")
    found = [Setting()]
    if kind == "sensitivity":
        found += [
            Setting(regularisation=_positive("--multiples", m)) for m in multiples or MULTIPLES
        ]
        found += [Setting(width=_positive("--widths", width)) for width in widths or WIDTHS]
        for combine in COMBINES if combines is None else combines:
            if combine not in COMBINES:
                raise InputError(f"--combine needs {' or '.join(COMBINES)}: got {combine!r}.")
            found.append(Setting(combine=combine))
    if kind == "spread":
        found = [Setting(size=_positive("--sizes", size)) for size in sizes or SIZES]
    return tuple(dict.fromkeys(found))


def _positive(name: str, value: float) -> float:
    if not 0 < value < np.inf:
        raise InputError(f"{name} needs numbers > 0, with commas between: got {value:g}.")
    return float(value)


def _seed(seed: int, *path: int) -> int:
    return int(np.random.SeedSequence(seed, spawn_key=path).generate_state(1)[0])
