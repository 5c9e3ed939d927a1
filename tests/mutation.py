"""Mutation testing of the numerical core: change one thing at a time; some test must fail.

    python tests/mutation.py                  # all mutants that have no outcome yet
    python tests/mutation.py --sample 40      # at most 40 of each module, at random
    python tests/mutation.py --only objective --budget 200
    python tests/mutation.py --again          # survivors, by tests that they have not passed yet
    python tests/mutation.py --list           # counts, and each survivor that is not explained
    python tests/mutation.py --part 1/2       # every second one: parts run side by side
    python tests/mutation.py --keys 1f2e --budget 600    # this one, anew
    python tests/mutation.py --record         # write what was killed into tests/killed.tsv

Mutants are made from the syntax tree: arithmetic and comparisons swapped, constants changed,
conditions fixed or turned round, min for max, branches of `where` swapped, keywords, slices and
statements left out. Texts, annotations, errors and asserts are left alone. Run from a checkout, on
Linux. A mutant lives if none of the module's tests (`TESTS`, those that are not slow) fails within
the budget in seconds of CPU; hanging or dying is failing.

Importing JAX takes longer than most tests. So it is imported once, and each mutant is run in a
fork of that process, made before JAX has started its threads. Tests that have killed much in
little time come first. Outcomes are lines of .cache/mutation.jsonl, and a run can be stopped.

tests/survivors.tsv has those that no test is to kill, each with its change and the reason, and
tests/killed.tsv those that a test has killed. Neither are tried again.
"""

from __future__ import annotations

import argparse
import ast
import copy
import csv
import hashlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import random
import resource
import select
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
OUTCOMES = ROOT / ".cache" / "mutation.jsonl"
SURVIVORS = ROOT / "tests" / "survivors.tsv"
KILLED = ROOT / "tests" / "killed.tsv"

# For each module the files whose tests are run, the most telling first.
TESTS = {
    "objective": ("objective", "random_batch"),
    "embedding": ("embedding", "objective"),
    "interventions": ("interventions",),
    "samplers.mixture": ("mixture", "steps", "straight", "anchors"),
    "samplers.ensemble": ("steps", "samplers"),
    "samplers.base": ("loop",),
    "samplers.plan": ("loop",),
    "samplers.shared": ("steps",),
    "samplers.mala": ("steps", "samplers"),
    "samplers.flow": ("steps", "random_batch"),
    "samplers.nuts": ("steps",),
    "samplers.anchors": ("anchors",),
}
# Imported before the forks. Not blackjax: it starts the threads.
AHEAD = (
    "jax numpyro.distributions scipy.stats scipy.optimize scipy.interpolate equinox diffrax optax "
    "xarray pandas h5netcdf matplotlib.pyplot pytest hypothesis pytest_timeout typer rich"
)
PATIENCE = 60  # seconds: a mutant that says nothing and computes nothing for so long hangs

OTHER_OPERATOR = {
    ast.Add: [ast.Sub],
    ast.Sub: [ast.Add],
    ast.Mult: [ast.Div],
    ast.Div: [ast.Mult],
    ast.FloorDiv: [ast.Mult],
    ast.Mod: [ast.Mult],
    ast.Pow: [ast.Mult],
    ast.BitAnd: [ast.BitOr],
    ast.BitOr: [ast.BitAnd],
    ast.And: [ast.Or],
    ast.Or: [ast.And],
    ast.Lt: [ast.LtE, ast.GtE],
    ast.LtE: [ast.Lt, ast.Gt],
    ast.Gt: [ast.GtE, ast.LtE],
    ast.GtE: [ast.Gt, ast.Lt],
    ast.Eq: [ast.NotEq],
    ast.NotEq: [ast.Eq],
    ast.In: [ast.NotIn],
    ast.NotIn: [ast.In],
    ast.Is: [ast.IsNot],
    ast.IsNot: [ast.Is],
}
OTHER_FUNCTION = {"min": "max", "minimum": "maximum", "any": "all", "isnan": "isinf"}
OTHER_FUNCTION |= {new: old for old, new in OTHER_FUNCTION.items()}
LEFT_OUT = ("sqrt", "exp", "log", "log1p", "abs", "cumsum", "sorted", "at_least_lowest")
UNTOUCHED = (ast.Raise, ast.JoinedStr, ast.Assert, ast.Import, ast.ImportFrom)
UNTOUCHED_FIELDS = ("annotation", "returns", "decorator_list", "bases")


class Mutant(NamedTuple):
    """One change; `code()` is the whole module with it."""

    key: str
    module: str
    function: str
    line: int
    before: str
    after: str
    code: Callable[[], CodeType]


def mutants_of(module: str) -> list[Mutant]:
    source = path_of(module).read_text()
    found, seen = [], Counter()
    for number, (holder, place, statement, where) in enumerate(places(ast.parse(source))):
        node, before = get(holder, place), described(statement)
        for new in changes(node):
            put(holder, place, new)
            after = described(new if node is statement else statement)
            put(holder, place, node)
            text = "\n".join((module, where, before, after))
            seen[text] += 1  # lines may move, and the outcome still be known
            key = hashlib.sha256(f"{text}\n{seen[text]}".encode()).hexdigest()[:12]
            line = getattr(node, "lineno", statement.lineno)
            code = partial(compiled, module, source, number, new)
            found.append(Mutant(key, module, where, line, before, after, code))
    return found


def compiled(module: str, source: str, number: int, new: ast.AST) -> CodeType:
    tree = ast.parse(source)
    holder, place, *_ = next(islice(places(tree), number, None))
    put(holder, place, new)
    return compile(ast.fix_missing_locations(tree), str(path_of(module)), "exec")


def path_of(module: str) -> Path:
    return ROOT / "src" / "pcuq" / (module.replace(".", "/") + ".py")


def described(statement: ast.stmt) -> str:
    """The statement, of a compound one its head."""
    if hasattr(statement, "body"):
        statement = changed(statement, body=[ast.Pass()], orelse=[], decorator_list=[])
    return ast.unparse(statement)


def get(holder, place):
    return holder[place] if isinstance(holder, list) else getattr(holder, place)


def put(holder, place, node):
    if isinstance(holder, list):
        holder[place] = node
    else:
        setattr(holder, place, node)


def places(node, statement=None, where="") -> Iterator[tuple[Any, Any, Any, str]]:
    """(holder, place in it, statement, function) of every node that may be changed."""
    for field, value in list(ast.iter_fields(node)):
        if field in UNTOUCHED_FIELDS:
            continue
        several = isinstance(value, list)
        for place, child in enumerate(value) if several else [(field, value)]:
            if not isinstance(child, ast.AST) or isinstance(child, UNTOUCHED):
                continue
            if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
                continue  # a docstring
            if isinstance(child, ast.keyword) and child.arg == "strict":
                continue  # as good as an assert
            own = child if isinstance(child, ast.stmt) else statement
            named = isinstance(child, (ast.FunctionDef, ast.ClassDef))
            inside = f"{where}.{child.name}" if named else where
            yield (value if several else node), place, own, inside
            yield from places(child, own, inside)


def changes(node: ast.AST) -> Iterator[ast.AST]:
    """What may stand in place of the node."""
    if isinstance(node, (ast.operator, ast.cmpop, ast.boolop)):
        yield from (new() for new in OTHER_OPERATOR.get(type(node), []))
    elif isinstance(node, ast.Constant):
        yield from (ast.Constant(value) for value in other_values(node.value))
    elif isinstance(node, ast.UnaryOp):
        yield node.operand
    elif isinstance(node, ast.IfExp):
        yield from (node.body, node.orelse)
    elif isinstance(node, ast.Attribute) and node.attr == "T":
        yield node.value
    elif isinstance(node, ast.Slice):
        for part in ("lower", "upper", "step"):
            if getattr(node, part) is not None:
                yield changed(node, **{part: None})
    elif isinstance(node, ast.comprehension) and node.ifs:
        yield changed(node, ifs=[])
    elif isinstance(node, ast.Call):
        yield from other_calls(node)
    elif isinstance(node, ast.If):
        yield from (changed(node, test=ast.Constant(value)) for value in (True, False))
    elif isinstance(node, (ast.AugAssign, ast.Continue, ast.Break, ast.Expr)):
        yield ast.Pass()
    elif isinstance(node, ast.Assign) and not isinstance(node.targets[0], ast.Tuple):
        target = node.targets[0]
        names = {n.id for n in ast.walk(node.value) if isinstance(n, ast.Name)}
        if not isinstance(target, ast.Name) or target.id in names:
            yield ast.Pass()


def changed(node, **fields):
    new = copy.copy(node)
    for name, value in fields.items():
        setattr(new, name, value)
    return new


def other_values(value) -> list[Any]:
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, value - 1]
    if isinstance(value, float):
        return [2 * value, -value] if value else [1.0]
    return []


def other_calls(node: ast.Call) -> Iterator[ast.AST]:
    name = getattr(node.func, "attr", getattr(node.func, "id", ""))
    if name in OTHER_FUNCTION:
        new = copy.copy(node.func)
        setattr(new, "attr" if isinstance(new, ast.Attribute) else "id", OTHER_FUNCTION[name])
        yield changed(node, func=new)
    if name == "where" and len(node.args) == 3:
        yield changed(node, args=[node.args[0], node.args[2], node.args[1]])
    if name in LEFT_OUT and len(node.args) == 1:
        yield node.args[0]
    for i, keyword in enumerate(node.keywords):
        if keyword.arg and keyword.arg != "strict":
            yield changed(node, keywords=node.keywords[:i] + node.keywords[i + 1 :])


# --- running ------------------------------------------------------------------------------------


class Changed(importlib.abc.MetaPathFinder):
    """Imports the module from other code."""

    def __init__(self, module: str, code):
        self.name, self.path, self.code = f"pcuq.{module}", str(path_of(module)), code

    def find_spec(self, name, path=None, target=None):
        if name != self.name:
            return None
        loader = importlib.machinery.SourceFileLoader(self.name, self.path)
        loader.get_code = lambda _: self.code  # type: ignore[method-assign]
        return importlib.util.spec_from_file_location(name, self.path, loader=loader)


class Teller:
    """Runs the tests that are worth most first, and tells the parent of each that has ended."""

    def __init__(self, pipe: int, worth: Callable[[str], float], budget: float):
        self.pipe, self.worth, self.budget, self.began = pipe, worth, budget, 0.0

    def say(self, test: str, passed: bool):
        now = time.process_time()
        line = json.dumps({"test": test, "passed": passed, "seconds": now - self.began})
        os.write(self.pipe, f"{line}\n".encode())
        self.began = now
        if not passed or now > self.budget:
            os._exit(0)

    def pytest_collectreport(self, report):
        if report.failed:
            self.say("import", False)

    def pytest_collection_finish(self, session):
        session.items[:] = [item for item in session.items if self.worth(item.nodeid) > 0]
        session.items.sort(key=lambda item: -self.worth(item.nodeid))
        self.began = time.process_time()

    def pytest_runtest_logreport(self, report):
        if report.failed or report.when == "teardown":
            self.say(report.nodeid, not report.failed)


def run(mutant: Mutant | None, file: str, worth: Callable[[str], float], budget: float):
    """(what failed, or None; {test: seconds}) of one file of tests, in a fork."""
    code = mutant and mutant.code()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        nothing = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nothing, stream)
        allowed = int(3 * budget) + 15
        resource.setrlimit(resource.RLIMIT_CPU, (allowed, allowed))
        if mutant:
            sys.meta_path.insert(0, Changed(mutant.module, code))
            sys.modules["jax"].config.update("jax_persistent_cache_min_compile_time_secs", 1e9)
        options = ["-q", "-m", "not slow", "-p", "no:cacheprovider", "-p", "pytest_timeout"]
        teller = Teller(writing, worth, budget)
        sys.modules["pytest"].main([*options, f"tests/unit/test_{file}.py"], plugins=[teller])
        os._exit(0)
    os.close(writing)
    failed, times, before = None, {}, -1
    with os.fdopen(reading, "rb", buffering=0) as lines:
        while True:
            if select.select([lines], [], [], PATIENCE)[0]:
                if not (line := lines.readline()):
                    break
                told = json.loads(line)
                times[told["test"]] = told["seconds"]
                failed = failed or (None if told["passed"] else told["test"])
            elif before == (before := ticks(child)):
                os.kill(child, signal.SIGKILL)  # it waits for something
    _, status = os.waitpid(child, 0)
    return failed or (None if status == 0 else "hangs or dies"), times


def ticks(process: int) -> int:
    """Hundredths of a second of CPU that it has used."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def known_outcomes() -> dict[str, dict[str, Any]]:
    """The last outcome of each mutant."""
    found = {row["key"]: row | {"function": "", "seconds": {}} for row in rows_of(KILLED)}
    lines = OUTCOMES.read_text().splitlines() if OUTCOMES.exists() else []
    return found | {line["key"]: line for line in map(json.loads, lines)}


def explained() -> dict[str, str]:
    """Why a mutant may live, by key."""
    return {row["key"]: row["reason"] for row in rows_of(SURVIVORS)}


def rows_of(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def record() -> None:
    """Keep what was killed, of mutants that there still are."""
    known = known_outcomes()
    killed = [m for module in TESTS for m in mutants_of(module)]
    killed = [m for m in killed if m.key in known and known[m.key]["by"]]
    killed.sort(key=lambda mutant: (mutant.module, mutant.key))
    with KILLED.open("w", newline="") as file:
        table = csv.writer(file, delimiter="\t", lineterminator="\n")
        table.writerow(["key", "module", "by"])
        table.writerows([m.key, m.module, known[m.key]["by"]] for m in killed)


def run_all(mutants: list[Mutant], budget: float, anew: bool) -> None:
    """Without `anew`, tests that a mutant has passed are not run again."""
    os.chdir(ROOT)
    sys.path.insert(0, str(ROOT / "src"))
    os.environ |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "CI": "1", "MPLBACKEND": "agg"}
    os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")
    os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".cache" / "jax"))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.1")
    for name in AHEAD.split():
        importlib.import_module(name)
    OUTCOMES.parent.mkdir(exist_ok=True)
    kills: dict[str, Counter] = defaultdict(Counter)  # by module, and by function
    seconds: dict[str, float] = {}

    def learn(line: dict[str, Any]) -> None:
        for place in (line["module"], line["module"] + line["function"]):
            kills[place][line["by"]] += 1
        seconds.update(line["seconds"])

    known = known_outcomes()
    for line in known.values():
        learn(line)
    for mutant in mutants:
        passed = known[mutant.key]["seconds"] if mutant.key in known and not anew else {}

        def worth(test: str, mutant=mutant, passed=passed) -> float:
            here = kills[mutant.module][test] + 5 * kills[mutant.module + mutant.function][test]
            return 0.0 if test in passed else (here + 0.1) / (seconds.get(test, 0.5) + 0.1)

        began, failed, spent = resource.getrusage(resource.RUSAGE_CHILDREN), None, {}
        for file in TESTS[mutant.module]:
            failed, times = run(mutant, file, worth, budget - sum(spent.values()))
            spent |= times
            if failed or sum(spent.values()) > budget:
                break
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = ended.ru_utime + ended.ru_stime - began.ru_utime - began.ru_stime
        line = mutant._asdict() | {"by": failed, "cpu": round(cpu, 2), "seconds": passed | spent}
        del line["code"]
        learn(line)
        with OUTCOMES.open("a") as file:
            file.write(json.dumps(line) + "\n")
        print(f"{cpu:6.1f} s  {mutant.module}:{mutant.line}  {failed or 'ALIVE'}", flush=True)


def show(mutants: list[Mutant]) -> None:
    """What is known, and the reasons that are of no mutant any more."""
    known, reasons = known_outcomes(), explained()
    for module in dict.fromkeys(mutant.module for mutant in mutants):
        own = [mutant for mutant in mutants if mutant.module == module]
        tried = [mutant for mutant in own if mutant.key in known or mutant.key in reasons]
        of_reason = Counter(reasons[mutant.key] for mutant in own if mutant.key in reasons)
        alive = [m for m in tried if m.key not in reasons and known[m.key]["by"] is None]
        killed = len(tried) - len(alive) - of_reason.total()
        print(
            f"{module}: {len(own)} mutants, {len(tried)} tried, {killed} killed, "
            f"{len(alive)} alive, explained: "
            + (", ".join(f"{n} {reason}" for reason, n in sorted(of_reason.items())) or "none")
        )
        for mutant in sorted(alive, key=lambda mutant: mutant.line):
            print(f"  {mutant.key} line {mutant.line}")
            print("".join(f"    - {line}\n" for line in mutant.before.splitlines()), end="")
            print("".join(f"    + {line}\n" for line in mutant.after.splitlines()), end="")
    known_keys = {mutant.key for module in TESTS for mutant in mutants_of(module)}
    for key in sorted(reasons.keys() - known_keys):
        print(f"  {key} is explained, and there is no such mutant")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="+", choices=TESTS, default=list(TESTS))
    parser.add_argument("--sample", type=int, help="at most so many of each module, at random")
    parser.add_argument("--budget", type=float, default=60, help="seconds of CPU for a mutant")
    parser.add_argument("--again", action="store_true", help="survivors, by further tests")
    parser.add_argument("--part", default="1/1", help="K/N: every N-th mutant, from the K-th on")
    parser.add_argument("--keys", nargs="+", help="these mutants, whatever is known of them")
    parser.add_argument("--record", action="store_true", help="keep what was killed")
    parser.add_argument("--list", action="store_true", help="show what is known")
    asked = parser.parse_args()
    chosen = []
    for module in asked.only:
        # In the same order each time, so that a sample is part of a larger one.
        own = sorted(mutants_of(module), key=lambda mutant: mutant.key)
        chosen += own[: asked.sample]
    if asked.list:
        return show(chosen)
    if asked.record:
        return record()
    known, reasons = known_outcomes(), explained()
    if asked.keys:
        chosen = [m for m in chosen if m.key in asked.keys]
    elif asked.again:
        chosen = [m for m in chosen if m.key in known and known[m.key]["by"] is None]
        chosen = [m for m in chosen if m.key not in reasons]
    else:
        chosen = [m for m in chosen if m.key not in known and m.key not in reasons]
    random.Random(0).shuffle(chosen)
    part, parts = map(int, asked.part.split("/"))
    run_all(chosen[part - 1 :: parts], asked.budget, anew=bool(asked.keys))


if __name__ == "__main__":
    main()
