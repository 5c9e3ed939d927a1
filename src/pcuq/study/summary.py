"""From the records of tasks to tables: means over replicates with their standard errors.

se = sd / √R,   R the replicates that were fitted; those with an error are counted apart.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from pcuq.study.plan import Plan

Record = Mapping[str, Any]
MEANS = {
    "coverage_50": ("coverage", "0.5"),
    "coverage_90": ("coverage", "0.9"),
    "crps": ("crps",),
    "width": ("width",),
    "spread": ("spread",),
    "share_outside_fit": ("share_outside_fit",),
    "regularisation": ("regularisation",),
    "seconds": ("run", "seconds"),
}
WITH_ERROR = ("coverage_50", "coverage_90", "crps", "width", "spread")


def rows(plan: Plan, records: Iterable[Record]) -> list[dict[str, Any]]:
    """A row per case, setting and method that has any record, in the order of the plan."""
    grouped: dict[tuple[str, str, str], list[Record]] = {
        (case, setting.name, method): []
        for case in plan.cases
        for setting in plan.settings
        for method in plan.methods_for(setting)
    }
    for record in sorted(records, key=lambda record: record["task"]):
        grouped[record["case"], record["setting"], record["method"]].append(record)
    return [
        {"case": case, "setting": setting, "method": method, **_row(found)}
        for (case, setting, method), found in grouped.items()
        if found
    ]


def summary(plan: Plan, records: Iterable[Record], prepared: Mapping[str, Any]) -> dict[str, Any]:
    """Everything by case and method (and setting, where there are several), ready for JSON."""
    records = list(records)
    cases: dict[str, Any] = {}
    for row in rows(plan, records):
        methods = cases.setdefault(row["case"], {})
        nested = _nested(row)
        if plan.kind == "coverage":
            methods[row["method"]] = nested
        else:
            methods.setdefault(row["method"], {})[row["setting"]] = nested
    return {
        "study": plan.kind,
        "problem": plan.origin.name,
        "identity": plan.identity,
        "seed": plan.seed,
        "replicates": plan.replicates,
        "tasks": len(plan.tasks()),
        "done": len(records),
        "failed": sum("error" in record for record in records),
        "regularisation": prepared.get("regularisation"),
        "exploded_paths": _exploded(records),
        "scored_on": "noise-free predictions of the noise-free truth",
        "cases": cases,
        "errors": [
            {"task": record["task"], **record["error"]} for record in records if "error" in record
        ],
        "versions": dict(plan.versions),
    }


def table(lines: list[dict[str, Any]]) -> str:
    """As CSV; empty where there is no number."""
    text = io.StringIO()
    names = list(dict.fromkeys(name for line in lines for name in line))
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()


def flat(record: Record) -> dict[str, Any]:
    """A record as one line of a table."""
    left_out = ("study", "run", "coverage", "error")
    line = {name: value for name, value in record.items() if name not in left_out}
    line |= {f"coverage_{float(q) * 100:g}": c for q, c in record.get("coverage", {}).items()}
    line["error"] = record["error"]["message"] if "error" in record else None
    return line | {"seconds": record["run"]["seconds"]}


def _row(found: list[Record]) -> dict[str, Any]:
    fitted = [record for record in found if "error" not in record]
    trusted = sum(bool(record["trusted"]) for record in fitted)
    row: dict[str, Any] = {"replicates": len(fitted), "failed": len(found) - len(fitted)}
    row |= {"trusted": trusted, "n": fitted[0]["n"] if fitted else None}
    for name, path in MEANS.items():
        values = [value for record in fitted if (value := _at(record, path)) is not None]
        row[name] = float(np.mean(values)) if values else None
        if name in WITH_ERROR:
            several = len(values) > 1
            row[f"{name}_se"] = (
                float(np.std(values, ddof=1) / math.sqrt(len(values))) if several else None
            )
    for name, extreme in (("rhat_max", max), ("ess_min", min), ("fixed_point_residual", max)):
        row[name] = extreme((r[name] for r in fitted if r[name] is not None), default=None)
    return row


def _at(record: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        record = record[name]
    return record


def _nested(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row with coverages and standard errors together."""
    errors = {name: row[f"{name}_se"] for name in WITH_ERROR}
    levels = {"0.5": "coverage_50", "0.9": "coverage_90"}
    left_out = {"case", "setting", "method", *levels.values(), *(f"{n}_se" for n in WITH_ERROR)}
    return {
        **{name: value for name, value in row.items() if name not in left_out},
        "coverage": {level: row[name] for level, name in levels.items()},
        "standard_errors": {
            "coverage": {level: errors.pop(name) for level, name in levels.items()},
            **errors,
        },
        "status": f"{row['trusted']} of {row['replicates']} fits converged, {row['failed']} failed",
    }


def _exploded(records: list[Record]) -> dict[str, int]:
    """Redrawn paths by case, each replicate counted once."""
    paths = {
        (record["case"], record["replicate"]): record["exploded_paths"]
        for record in records
        if "exploded_paths" in record
    }
    found: dict[str, int] = {}
    for (case, _), count in paths.items():
        found[case] = found.get(case, 0) + count
    return found
