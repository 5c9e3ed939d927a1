"""A README for each experiment, made from its summary: what figures show and what numbers are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pcuq.reproduce.rows import Row

HEAD = (
    "method",
    "λ",
    "R-hat",
    "ESS",
    "fixed point",
    "outside fit",
    "50 % band",
    "90 % band",
    "CRPS",
    "seconds",
    "status",
)


def write_readme(
    out: Path, summary: Mapping[str, Any], captions: Mapping[str, str], notes: Sequence[str]
) -> None:
    """README.md beside the files it is about."""
    parts = [f"# {summary['experiment']}", *notes]
    told = f"Seed {summary['seed']}; {summary['seconds']:.0f} seconds."
    parts.append(f"{told} {summary['parts']}." if "parts" in summary else told)
    parts.append("## Figures")
    for name, caption in captions.items():
        parts.append(f"![{name}]({name}.png)\n\n**{name}** (also as PDF): {caption}")
    parts.append("## Numbers")
    parts.append("The same and more are in summary.json; – is what a method does not have.")
    for case, rows in summary["cases"].items():
        parts += [f"### {case}", table(rows)]
    (out / "README.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def table(rows: Mapping[str, Row]) -> str:
    """Rows by method as Markdown, with ± standard errors where there are replicates."""
    lines = ["| " + " | ".join(HEAD) + " |", "|" + "---|" * len(HEAD)]
    for method, row in rows.items():
        if not isinstance(row, Mapping) or "coverage" not in row:
            continue
        errors = row.get("standard_error", {})
        spread = errors.get("coverage", {})
        cells = [
            method,
            text(row["regularisation"]),
            text(row["rhat_max"]),
            text(row["ess_min"]),
            text(row["fixed_point_residual"]),
            text(row["share_outside_fit"], errors.get("share_outside_fit")),
            text(row["coverage"]["0.5"], spread.get("0.5")),
            text(row["coverage"]["0.9"], spread.get("0.9")),
            text(row["crps"], errors.get("crps")),
            text(row["seconds"]),
            row["status"],
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def text(value: float | None, error: float | None = None) -> str:
    """Three digits, with a standard error where there is one."""
    if value is None:
        return "–"
    return f"{value:.3g}" if error is None else f"{value:.3g} ± {error:.2g}"
