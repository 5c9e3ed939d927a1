"""Changes to files that keep enough of their structure to get past the first check.

Every function takes bytes and a `random.Random` and gives bytes; what cannot be parsed any more is
changed as bytes. `mutate` chooses by the file's name.
"""

import io
import json
import random
import re
import zipfile
from collections.abc import Callable
from functools import cache
from xml.dom import minidom

import h5py
import libsbml
import numpy as np
import yaml
from guard import CANARY

Random = random.Random
CODE = f"__import__('os').system('touch {CANARY}')"
NUMBERS = [
    "0", "-0.0", "1", "-1", "2", "0.5", "1e-320", "1e308", "-1e308", "1e400", "1e10000000", "nan",
    "NaN", "inf", "-inf", "INF", "", " ", "0x10", "1_0", "1,5", "١", "1e", "9" * 400, "true",
    "2147483648", "-9223372036854775809", "1;2", "1e-5",
]  # fmt: skip
WORDS = [
    "", " ", "λ", "a b", "a\tb", "A", "B", "C", "k", "k1", "k2", "m", "c0", "e1", "low", "obs_a",
    "time", "y", "avogadro", "lambda", "None", "__class__", "noiseParameter1_obs_a",
    "observableParameter1_obs_a", "forth", "lin", "log", "log10", "normal", "laplace", "log-normal",
    "uniform", "parameterScaleNormal", "logNormal", "gamma", "\u202e", "\ufeff", "\x00", "\x1b[31m",
    "x" * 5000, "{0}", "%s", "$HOME", "[bold]", CODE, "!!python/object/apply:os.system ['true']",
]  # fmt: skip
FORMULAS = [
    "9^9^9^9", "exp(exp(exp(10)))", "sin(1e10000000)", "1/0", "A/0", "0^-1", "log(-1)", "log(0)",
    "(-8)^(1/3)", "A^1e400", "sqrt(-A)", "k1*A", "A + B + time", "min(A, B)",
    "piecewise(1, A > 2, 0)", "A > 1 && B < 2", "!A", "A == B", "log10(A)", "log(A, 1)",
    "tan(pi/2)", "arccoth(0)", "noSuch(A)", "A(", "obs_a", "obs_a * 2", "time^time", "floor(time)",
    "e", "i", "I", "zoo", "oo", "0.1*A;k1", "a;b;c",
]  # fmt: skip
PATHS = [
    "../problem.yaml", "/etc/passwd", "/dev/zero", "/dev/stdin", "/proc/self/environ", ".", "",
    "link", "loop", "http://127.0.0.1:9/model.xml", "file:///etc/passwd", "model.xml",
    "parameters.tsv", "~/x", "a" * 300, "\x00", "measurements.tsv/x", "model.xml.gz",
]  # fmt: skip


def nested(rng: Random) -> str:
    """A formula that is deep, or long."""
    n = rng.choice([3, 30, 100, 300, 1000, 3000])
    return rng.choice([
        "(" * n + "A" + ")" * n, "sin(" * n + "A" + ")" * n, "-" * n + "A", "+".join(["A"] * n),
        "^".join(["A"] * n), "piecewise(1, A > 1, " * n + "0" + ")" * n, "(" * n,
        "*".join(f"(A+{i})" for i in range(n)), "!" * n + "A",
    ])  # fmt: skip


def word(rng: Random) -> str:
    """Anything that could stand in a cell, an attribute or an option."""
    kind = rng.random()
    if kind < 0.4:
        return rng.choice(NUMBERS)
    if kind < 0.7:
        return rng.choice(WORDS)
    if kind < 0.85:
        return rng.choice(FORMULAS)
    if kind < 0.93:
        return rng.choice(PATHS)
    return nested(rng)


def as_bytes(data: bytes, rng: Random) -> bytes:
    """Flip, cut, copy or insert, a few times."""
    changed = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 4, 16])):
        place = rng.randrange(len(changed) + 1)
        kind = rng.randrange(6)
        if kind == 0 and place < len(changed):
            changed[place] ^= 1 << rng.randrange(8)
        elif kind == 1 and place < len(changed):
            changed[place] = rng.randrange(256)
        elif kind == 2:
            del changed[place : place + rng.choice([1, 4, 32, 1000])]
        elif kind == 3:
            start = rng.randrange(len(changed) + 1)
            changed[place:place] = changed[start : start + rng.choice([1, 8, 64, 500])]
        elif kind == 4:
            changed[place:place] = word(rng).encode(errors="replace")
        else:
            size = rng.choice([1, 2, 4, 8])
            value = rng.choice([0, 1, 127, 128, 255, 2**15, 2**31 - 1, 2**31, 2**63, 2**64 - 1])
            changed[place : place + size] = (value % 256**size).to_bytes(size, "little")
    return bytes(changed)


# XML -------------------------------------------------------------------------------------------

OPERATORS = [
    "plus", "minus", "times", "divide", "power", "root", "ln", "log", "exp", "abs", "floor",
    "ceiling", "factorial", "quotient", "rem", "min", "max", "sin", "cos", "tan", "sec", "arccoth",
    "arcsech", "piecewise", "piece", "otherwise", "and", "or", "xor", "not", "implies", "eq", "neq",
    "lt", "leq", "gt", "geq", "ci", "cn", "csymbol", "apply", "lambda", "bvar", "degree", "logbase",
    "true", "false", "pi", "infinity", "notanumber", "math",
]  # fmt: skip
ELEMENTS = [
    "assignmentRule", "rateRule", "algebraicRule", "initialAssignment", "parameter",
    "localParameter", "species", "compartment", "reaction", "kineticLaw", "event", "trigger",
    "delay", "priority", "eventAssignment", "speciesReference", "modifierSpeciesReference",
    "functionDefinition", "constraint", "unitDefinition", "stoichiometryMath",
]  # fmt: skip
ENTITIES = (
    '<!DOCTYPE sbml [<!ENTITY x0 "lol">'
    + "".join(f'<!ENTITY x{i} "{f"&x{i - 1};" * 10}">' for i in range(1, 10))
    + '<!ENTITY out SYSTEM "file:///etc/passwd">]>'
)


def as_xml(data: bytes, rng: Random) -> bytes:
    if rng.random() < 0.03:
        reference = rng.choice([b"&x9;", b"&x3;", b"&out;", b"&none;"])
        head, _, rest = data.partition(b"?>")
        rest = rest.replace(b'"1"', b'"' + reference + b'"', 1)
        return head + b"?>" + ENTITIES.encode() + rest
    if rng.random() < 0.05:
        return _deepen(data, rng)
    if rng.random() < 0.4:
        return _other_formula(data, rng)
    try:
        document = minidom.parseString(data)
        for _ in range(rng.choice([1, 1, 1, 2, 3, 6])):
            _change_element(document, rng)
        return document.toxml(encoding="utf-8")
    except Exception:
        return as_bytes(data, rng)


def _change_element(document: minidom.Document, rng: Random) -> None:
    everything = [e for e in document.getElementsByTagName("*") if e.parentNode is not document]
    if not everything:
        return
    one, other = rng.choice(everything), rng.choice(everything)
    kind = rng.randrange(11)
    if kind in (0, 1, 2):
        name = rng.choice(list(one.attributes.keys()) or ["id", "value", "constant", "units"])
        ids = [e.getAttribute("id") for e in everything if e.getAttribute("id")]
        now = one.getAttribute(name)
        likely = ids if now in ids else ["true", "false"] if now in ("true", "false") else NUMBERS
        value = word(rng) if rng.random() < 0.2 or not likely else rng.choice(likely)
        one.setAttribute(name, value.replace("\x00", ""))
    elif kind == 3 and one.attributes:
        one.removeAttribute(rng.choice(list(one.attributes.keys())))
    elif kind == 4:
        one.parentNode.removeChild(one)
    elif kind == 5:
        copies = [1, 1, 2, 50] if len(everything) < 2000 else [1]  # or it fills the memory
        for _ in range(rng.choice(copies)):
            one.parentNode.insertBefore(one.cloneNode(True), one)
    elif kind == 6:
        other.appendChild(one.cloneNode(True))
    elif kind == 7:
        one.parentNode.replaceChild(other.cloneNode(True), one)
    elif kind == 8:
        one.tagName = one.nodeName = rng.choice([*OPERATORS, *ELEMENTS])
    elif kind == 9:
        leaves = [e for e in everything if e.tagName in ("ci", "cn")]
        leaf = rng.choice(leaves or [one])
        for child in list(leaf.childNodes):
            leaf.removeChild(child)
        leaf.appendChild(document.createTextNode(word(rng).replace("\x00", "")))
    else:
        _double(document, rng)


def _deepen(data: bytes, rng: Random) -> bytes:
    """An operand inside many applications of an operation: as text, since minidom recurses."""
    operands = list(re.finditer(rb"<ci>[^<]*</ci>|<cn[^>]*>[^<]*</cn>", data))
    if not operands:
        return as_bytes(data, rng)
    inner, operator = rng.choice(operands), rng.choice(OPERATORS[:36]).encode()
    second = rng.choice([b"", b"", inner[0]])
    depth = rng.choice([1, 2, 5, 50, 300, 2000, 30_000])
    outer = b"<apply><%s/>" % operator * depth + inner[0] + (second + b"</apply>") * depth
    return data[: inner.start()] + outer + data[inner.end() :]


def _other_formula(data: bytes, rng: Random) -> bytes:
    """One of the formulas replaced by another, of what the model has."""
    ids = [match.decode() for match in re.findall(rb'[^\w]id="(\w+)"', data)] or ["A"]
    places = list(re.finditer(rb"<math.*?</math>", data, re.DOTALL))
    parsed = libsbml.parseL3Formula(formula(rng, ids, rng.choice([0, 1, 2, 4])))
    if not places or parsed is None:
        return as_bytes(data, rng)
    place = rng.choice(places)
    made = libsbml.writeMathMLToString(parsed).split("?>", 1)[1].encode()
    return data[: place.start()] + made + data[place.end() :]


def formula(rng: Random, names: list[str], depth: int) -> str:
    """Infix, at random."""
    if depth == 0 or rng.random() < 0.1:
        numbers = ["0", "1", "2.5", "-1", "1e308", "1e400", "INF", "NaN", "1e-320", "true", "false"]
        return rng.choice([rng.choice(names), rng.choice(names), "time", rng.choice(numbers)])
    parts = [formula(rng, names, depth - 1) for _ in range(3)]
    return rng.choice([
        "({0} + {1})", "({0} - {1})", "(-{0})", "({0} * {1})", "({0} / {1})", "({0} ^ {1})",
        "piecewise({0}, {1}, {2})", "piecewise({0}, {1} > {2})", "({0} > {1})", "({0} == {1})",
        "({0} && {1})", "!({0})", "log({0}, {1})", "root({0}, {1})", "({0} % {1})", "min({0}, {1})",
        "max({0})", "rateOf({0})", "delay({0}, {1})", "factorial({0})", "quotient({0}, {1})",
        "implies({0}, {1})", "xor({0}, {1})", "f({0}, {1})", "g({0})", "{0}({1})",
        rng.choice(["sin", "tan", "exp", "ln", "sqrt", "floor", "arcsech", "arccoth"]) + "({0})",
    ]).format(*parts)  # fmt: skip


def _double(document: minidom.Document, rng: Random) -> None:
    """Functions of which each calls the one before it twice, and a call of the last."""
    operands = [e for e in document.getElementsByTagName("ci") if e.parentNode is not None]
    models = document.getElementsByTagName("model")
    if not operands or not models:
        return
    count, operator = rng.choice([2, 5, 40]), rng.choice(OPERATORS[:12])
    definitions = []
    for i in range(count):
        called = "<ci>x</ci>" if i == 0 else f"<apply><ci>d{i - 1}</ci><ci>x</ci></apply>"
        definitions.append(
            f'<functionDefinition id="d{i}"><math xmlns="http://www.w3.org/1998/Math/MathML">'
            f"<lambda><bvar><ci>x</ci></bvar><apply><{operator}/>{called}{called}</apply></lambda>"
            "</math></functionDefinition>"
        )
    if rng.random() < 0.3:
        rng.shuffle(definitions)
    text = f"<listOfFunctionDefinitions>{''.join(definitions)}</listOfFunctionDefinitions>"
    made = minidom.parseString(text).documentElement
    call = minidom.parseString(f"<apply><ci>d{count - 1}</ci></apply>").documentElement
    operand = rng.choice(operands)
    call.appendChild(operand.cloneNode(True))
    operand.parentNode.replaceChild(call, operand)
    there = document.getElementsByTagName("listOfFunctionDefinitions")
    if not there:
        models[0].insertBefore(made, models[0].firstChild)
    for definition in list(made.childNodes) if there else ():
        there[0].appendChild(definition)


# Tables ----------------------------------------------------------------------------------------


def as_table(data: bytes, rng: Random, separator: str = "\t") -> bytes:
    try:
        rows = [line.split(separator) for line in data.decode().splitlines()]
    except UnicodeDecodeError:
        return as_bytes(data, rng)
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        _change_table(rows, rng)
    text = rng.choice(["\n"] * 8 + ["\r\n", "\r"]).join(separator.join(row) for row in rows) + "\n"
    if rng.random() < 0.02:
        text = "\ufeff" + text
    return text.encode(errors="replace")


def _change_table(rows: list[list[str]], rng: Random) -> None:
    if not rows or not any(rows):
        rows.append([word(rng) for _ in range(3)])
        return
    i, j = rng.randrange(len(rows)), rng.randrange(len(rows))
    column = rng.randrange(max(map(len, rows)) or 1)
    kind = rng.randrange(12)
    if kind <= 3:
        rows[i][column : column + 1] = [word(rng)]
    elif kind == 4 and column < len(rows[j]):
        rows[i][column : column + 1] = [rng.choice(rows[j])]
    elif kind == 5:
        del rows[i]
    elif kind == 6:
        rows[i:i] = [list(rows[j]) for _ in range(rng.choice([1, 1, 2, 300]))]
    elif kind == 7:
        rows[i], rows[j] = rows[j], rows[i]
    elif kind == 8:
        for row in rows:
            del row[column : column + 1]
    elif kind == 9:
        names = [
            "noiseParameters", "observableParameters", "preequilibrationConditionId",
            "observableTransformation", "noiseDistribution", "objectivePriorType",
            "objectivePriorParameters", "priorDistribution", "priorParameters", "noisePlaceholders",
            "observablePlaceholders", "conditionName", "parameterName", "A", "k1", "C",
            "nominalValue",
        ]  # fmt: skip
        value = word(rng)
        for k, row in enumerate(rows):
            row.append(rng.choice(names) if k == 0 else value)
    elif kind == 10:
        rows[i].append(rng.choice(['"', "'", '"open', "a\tb", ""]))
    else:
        rows[0][column : column + 1] = [word(rng)]


# YAML and JSON ---------------------------------------------------------------------------------

BOMB = (
    "a0: &a0 [x, x]\n"
    + "".join(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]\n" for i in range(1, 40))
    + "sbml_files: *a39\n"
)


def as_yaml(data: bytes, rng: Random) -> bytes:
    kind = rng.random()
    if kind < 0.05:
        return data + rng.choice([
            BOMB, BOMB.replace("sbml_files", "problems"), "x_files: " + "[" * 2000,
            BOMB.replace("sbml_files", "format_version"), BOMB.replace("sbml_files", "extensions"),
            "x: !!python/object/apply:os.system ['true']\n", "<<: 1\n", "? [1]\n: 2\n", "&a [*a]\n",
            "parameter_file: &p [*p]\n", "problems: &p [*p]\n",
        ]).encode()  # fmt: skip
    try:
        content = yaml.safe_load(data)
    except Exception:
        return as_bytes(data, rng)
    for _ in range(rng.choice([1, 1, 2])):
        content = _change_tree(content, rng)
    try:
        return yaml.safe_dump(content, sort_keys=False).encode()
    except Exception:
        return as_bytes(data, rng)


def as_json(text: str, rng: Random) -> str:
    try:
        content = json.loads(text)
    except ValueError:
        return rng.choice(["{}", "[]", "null", "1", '"x"', "{", "[" * 5000, "NaN", "1e999"])
    return json.dumps(_change_tree(content, rng))


def _change_tree(content: object, rng: Random) -> object:
    """Somewhere in lists and mappings."""
    if isinstance(content, dict) and content and rng.random() < 0.85:
        key = rng.choice(list(content))
        kind = rng.random()
        if kind < 0.1:
            return {k: v for k, v in content.items() if k != key}
        if kind < 0.2:
            return content | {rng.choice([word(rng), 1, None, True, 2.5]): content[key]}
        return content | {key: _change_tree(content[key], rng)}
    if isinstance(content, list) and content and rng.random() < 0.85:
        place = rng.randrange(len(content))
        kind = rng.random()
        if kind < 0.1:
            return content[:place] + content[place + 1 :]
        if kind < 0.25:
            return [*content, content[place]]
        return [*content[:place], _change_tree(content[place], rng), *content[place + 1 :]]
    plain = [None, 0, -1, 10**400, 1.5, True, [], {}, [content], {"x": content}]
    return rng.choice([word(rng), rng.choice(PATHS), *plain])


# Arrays ----------------------------------------------------------------------------------------


def an_array(array: np.ndarray, rng: Random) -> np.ndarray:
    """The same with another shape, type or value."""
    kind = rng.randrange(9)
    if kind == 0:
        return array.reshape(-1)[: rng.randrange(array.size + 1)]
    if kind == 1:
        return array[None]
    if kind == 2 and array.dtype.kind in "biuf":
        kinds = [np.int8, np.uint64, np.float32, np.complex128, bool, "S3", "U3", ">f8"]
        return array.astype(rng.choice(kinds))
    if kind == 3 and array.dtype.kind == "f" and array.size:
        changed = array.copy()
        changed.flat[rng.randrange(array.size)] = rng.choice([np.nan, np.inf, -np.inf, 1e308])
        return changed
    if kind == 4 and array.dtype.kind in "iu" and array.size:
        changed = array.copy()
        changed.flat[rng.randrange(array.size)] = rng.choice([0, 1, 100, np.iinfo(array.dtype).max])
        return changed
    if kind == 5 and array.dtype.kind == "i" and array.size:
        changed = array.copy()
        changed.flat[rng.randrange(array.size)] = rng.choice([-1, np.iinfo(array.dtype).min])
        return changed
    if kind == 6:
        return np.zeros(rng.choice([(), (0,), (0, 3), (1, 1, 1), (10**6,)]))
    if kind == 7 and array.dtype == np.uint8:
        return np.frombuffer(
            as_json(array.tobytes().decode("utf-8", "replace"), rng).encode(), "u1"
        )
    if array.dtype.kind == "U" and array.ndim == 0:
        return np.array(as_json(str(array), rng))
    return np.array([word(rng)], dtype=rng.choice([object, "U"]))


def as_npz(data: bytes, rng: Random) -> bytes:
    try:
        with np.load(io.BytesIO(data), allow_pickle=False) as file:
            arrays = {name: file[name] for name in file.files}
    except Exception:
        return as_bytes(data, rng)
    name = rng.choice(list(arrays) or ["mark"])
    kind = rng.randrange(8)
    if kind == 0:
        arrays.pop(name, None)
    elif kind == 1:
        arrays[rng.choice(["x", "leaf-999", "leaf-000", "mark"])] = arrays.get(name, np.zeros(1))
    elif kind == 2:
        return _bomb(name)
    elif name in arrays:
        arrays[name] = an_array(arrays[name], rng)
    packed = io.BytesIO()
    try:
        np.savez(packed, **arrays)
    except Exception:
        return as_bytes(data, rng)
    return packed.getvalue()


@cache
def _bomb(name: str) -> bytes:
    """A few kilobytes that unpack to three thousand million."""
    packed, header = io.BytesIO(), io.BytesIO()
    shape = {"descr": "|u1", "fortran_order": False, "shape": (3_000_000_000,)}
    np.lib.format.write_array_header_1_0(header, shape)
    with (
        zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open(f"{name}.npy", "w", force_zip64=True) as file,
    ):
        file.write(header.getvalue())
        file.write(bytes(30_000_000))  # a hundredth of it: enough to see whether it is unpacked
    return packed.getvalue()


def as_netcdf(data: bytes, rng: Random) -> bytes:
    held = io.BytesIO(data)
    try:
        with h5py.File(held, "r+") as file:
            for _ in range(rng.choice([1, 1, 2, 3])):
                _change_hdf5(file, rng)
        return held.getvalue()
    except Exception:
        return as_bytes(data, rng)


def _change_hdf5(file: h5py.File, rng: Random) -> None:
    found: list[h5py.Group | h5py.Dataset] = [file]
    file.visititems(lambda _, item: found.append(item))
    one = rng.choice(found)
    kind = rng.randrange(10)
    if kind <= 3:
        holder = file if rng.random() < 0.6 else one
        names = list(holder.attrs) or ["format"]
        name = rng.choice(names)
        value = holder.attrs.get(name)
        if isinstance(value, str) and rng.random() < 0.7:
            holder.attrs[name] = as_json(value, rng) if value[:1] in "{[n" else word(rng)
        elif rng.random() < 0.3:
            del holder.attrs[name]
        else:
            values = [1, 2.5, [1, 2], ["a", "b"], "", np.zeros((2, 2)), b"\xff", h5py.Empty("f8")]
            holder.attrs[name] = rng.choice(values)
    elif kind <= 5 and one.name != "/":
        parent, name = one.parent, one.name.rsplit("/", 1)[1]
        values = one[()] if isinstance(one, h5py.Dataset) else None
        del parent[name]
        if isinstance(values, np.ndarray) and rng.random() < 0.8:
            parent[name] = an_array(values, rng)
        elif rng.random() < 0.2:
            parent.create_group(name)
    elif kind == 6 and isinstance(one, h5py.Group):
        other = rng.choice(found)
        one[rng.choice(["loop", "posterior", "text"])] = rng.choice(
            [
                other,
                h5py.SoftLink("/loop"),
                h5py.ExternalLink("/etc/passwd", "/"),
                h5py.SoftLink("/"),
            ]
        )
    elif kind == 7 and isinstance(one, h5py.Group):
        shape = rng.choice([(10**13,), (2**40, 2**20), (10**9,), (0,)])
        one.create_dataset("huge", shape, "f8", chunks=(1,) * len(shape))
    elif kind == 8 and one.name != "/":
        one.parent.move(one.name, f"/{rng.choice(['x', 'posterior', 'a/b', 'sample_stats'])}")
    elif "problem_source" in file and "text" in file["problem_source"]:
        _change_source(file["problem_source"], rng)


def _change_source(group: h5py.Group, rng: Random) -> None:
    """The texts of the PEtab problem that a run carries."""
    names, texts = ([v.decode() for v in group[n][()]] for n in ("file", "text"))
    place = rng.randrange(len(texts))
    if rng.random() < 0.3:
        names[place] = rng.choice([*PATHS, "../../x", "/tmp/x", "a/../../x", "problem.yaml"])
    else:
        texts[place] = mutate(names[place], texts[place].encode(), rng).decode("utf-8", "replace")
    for key, values in (("file", names), ("text", texts)):
        group[key][...] = [value.replace("\x00", "") for value in values]


# The command line ------------------------------------------------------------------------------

OPTIONS = [
    "--method", "--regularisation", "--data", "--x", "--outputs", "--condition", "--noise",
    "--beta", "--particles", "--systems", "--sampler", "--warmup", "--draws", "--thin", "--seed",
    "--times", "--resume", "--restart", "--out", "--json", "--problem", "--do", "--even-if-changed",
    "--heldout", "--title", "--replicates", "--null", "--plot", "--score", "--workers",
    "--scheduler", "--multiples", "--widths", "--combine", "--sizes", "--methods", "--cases",
    "--help", "--version", "--open", "--port",
]  # fmt: skip
COMMANDS = ["fit", "predict", "check", "calibrate", "report", "score", "study"]
DOINGS = [
    "k*=0.5@6", "k=nan", "k=inf@inf", "k:=0", "u:=0@1", "k/=0", "k+=1@-1", "=", "k=", "=1", "k==1",
    "k=1@", "k=1@2@3", " " * 300 + "=1", "k" + " " * 2000, "k=1e400", "k-=1e308", f"{CODE}=1",
    "k*=0.5;k=2",
]  # fmt: skip
TIMES = [
    "0:1:0.5", "0:1e9:1", "1:0:1", "0:1:0", "0:1:-1", "nan", "0,1,nan", "0:inf:1", ":", "::", "0:1",
    ",", "1e400", "0:1:1e-320", "-1:1:0.5", "0:1:1:1",
]  # fmt: skip
FILES = [
    "line.py", "model.py", "data.csv", "run.nc", "petab/problem.yaml", "problem.yaml", "new.nc",
    "none.py", ".", "..", "/", "/dev/null", "run.checkpoint", "out.csv", "out.png", "null.npz",
    "x" * 300, "\udcff.py", "a\nb.py",
]  # fmt: skip


def as_arguments(data: bytes, rng: Random) -> bytes:
    """One argument per line."""
    words = data.decode("utf-8", "surrogateescape").split("\n")
    for _ in range(rng.choice([1, 1, 2, 3])):
        place = rng.randrange(len(words) + 1)
        new = rng.choice([word(rng), *(rng.choice(c) for c in (OPTIONS, DOINGS, TIMES, FILES))])
        kind = rng.randrange(6)
        if kind == 0 and words:
            words[0] = rng.choice(COMMANDS)
        elif kind == 1:
            del words[place : place + 1]
        elif kind == 2:
            words[place:place] = [rng.choice(OPTIONS), new]
        elif kind == 3:
            words[place:place] = [new]
        else:
            words[place : place + 1] = [new]
    return "\n".join(words).encode("utf-8", "surrogateescape")


# All -------------------------------------------------------------------------------------------

KINDS: dict[str, Callable[[bytes, Random], bytes]] = {
    "argv": as_arguments,
    "xml": as_xml,
    "tsv": as_table,
    "csv": lambda data, rng: as_table(data, rng, ","),
    "yaml": as_yaml,
    "npz": as_npz,
    "nc": as_netcdf,
}


def mutate(name: str, data: bytes, rng: Random, raw: Callable[[bytes, Random], bytes] = as_bytes):
    """By the ending of the name, now and then by `raw`; a Python file is left as it is."""
    kind = name.rsplit(".", 1)[-1].rstrip("+")
    if kind == "py":  # it is code that the user gives, and is run
        return data
    change = KINDS.get(kind, raw)
    return raw(data, rng) if rng.random() < 0.2 else change(data, rng)
