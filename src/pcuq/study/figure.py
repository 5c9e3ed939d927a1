"""One figure of a study, a row of panels per case: points are means, bars two standard errors."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pcuq.plots.styles import name_of, style_of
from pcuq.study.plan import Plan, Setting

PANELS = {
    "coverage_50": "coverage of 50 % bands",
    "coverage_90": "coverage of 90 % bands",
    "crps": "CRPS",
    "spread": "spread of θ",
}
NOMINAL = {"coverage_50": 0.5, "coverage_90": 0.9}

Row = dict[str, Any]


def draw(plan: Plan, rows: list[Row]) -> Figure:
    """Every figure by method; against the setting, or n, where there are several."""
    figure = Figure(figsize=(3.3 * len(PANELS), 2.9 * len(plan.cases) + 0.5), layout="constrained")
    panels = figure.subplots(len(plan.cases), len(PANELS), squeeze=False)
    for line, case in zip(panels, plan.cases, strict=True):
        of_case = [row for row in rows if row["case"] == case]
        for ax, (name, title) in zip(line, PANELS.items(), strict=True):
            if plan.kind == "spread":
                _against_size(ax, plan, of_case, name)
            else:
                _by_place(ax, plan, of_case, name)
            if name in NOMINAL:
                ax.axhline(NOMINAL[name], color="0.5", linewidth=0.9, linestyle="-.", zorder=0)
                ax.set_ylim(-0.03, 1.03)
            ax.set_title(f"{title}\n{case}", fontsize=9)
    handles, labels = panels[0, 0].get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="outside lower center", ncols=3)
    return figure


def _against_size(ax: Axes, plan: Plan, rows: list[Row], name: str) -> None:
    for method in plan.methods:
        mine = sorted((row for row in rows if row["method"] == method and row["n"]), key=_n)
        _points(ax, [row["n"] for row in mine], mine, name, method, line=True)
    # Below zero there is nothing to show on a logarithmic axis.
    if name == "spread" and any((row[name] or 0) > 0 for row in rows):
        ax.set_yscale("log")
    ax.set(xscale="log", xlabel="n, rows of data")


def _by_place(ax: Axes, plan: Plan, rows: list[Row], name: str) -> None:
    """Places are methods in a coverage study, else settings with methods beside each other."""
    if plan.kind == "coverage":
        for place, method in enumerate(plan.methods):
            mine = [row for row in rows if row["method"] == method]
            _points(ax, [place] * len(mine), mine, name, method)
        ax.set_xticks(range(len(plan.methods)), [name_of(m) for m in plan.methods])
        ax.set_xlim(-0.6, len(plan.methods) - 0.4)
        return
    ordered = sorted(plan.settings, key=_order)
    places = {setting.name: place for place, setting in enumerate(ordered)}
    for shift, method in enumerate(plan.methods):
        mine = [row for row in rows if row["method"] == method]
        _points(ax, [places[r["setting"]] + 0.12 * shift for r in mine], mine, name, method)
    ax.set_xticks(range(len(places)), list(places), rotation=60, ha="right", fontsize=7)


def _points(ax: Axes, x, rows: list[Row], name: str, method: str, line: bool = False) -> None:
    known = [(place, row) for place, row in zip(x, rows, strict=True) if row[name] is not None]
    style = style_of(method)
    ax.errorbar(
        [place for place, _ in known],
        [row[name] for _, row in known],
        yerr=[2 * (row.get(f"{name}_se") or 0.0) for _, row in known],
        color=style.colour,
        marker=style.marker,
        linestyle=style.line if line else "none",
        capsize=3,
        label=name_of(method),
    )


def _n(row: Row) -> int:
    return row["n"]


def _order(setting: Setting) -> tuple:
    """λ first, then ℓ, then how outputs combine; the base stands among the λ."""
    kind = 2 if setting.combine else 1 if setting.width != 1 else 0
    return kind, setting.regularisation, setting.width, setting.combine
