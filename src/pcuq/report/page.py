"""From fits to one page that needs no other file and no network."""

from __future__ import annotations

import importlib.resources
import json
import math
import re
from collections.abc import Sequence
from typing import Any

import numpy as np
from jinja2 import Environment, Undefined

from pcuq._x64 import x64
from pcuq.errors import InputError
from pcuq.groups import default_grid
from pcuq.interventions import parse
from pcuq.problem import Problem
from pcuq.report import figures
from pcuq.report.evidence import Case, Evidence, HeldOut, gather, predict_together
from pcuq.report.verdict import judge, percent
from pcuq.result import Fit

TITLE = "Can this model be trusted to predict?"


def report(
    fits: Fit | Sequence[Fit] | Sequence[Case],
    heldout: Problem | Sequence[HeldOut] = (),
    do: Sequence[str] = (),
    title: str = TITLE,
    sources: Sequence[str] = (),
    introduction: str = "",
    condition: str | None = None,
) -> str:
    """One HTML page on one or several fits.

    Fits to the same data are compared. `heldout`: measurements that were not fitted, as a problem
    that holds them or as `HeldOut` parts. `do`: interventions to compare with control, as text such
    as "k6*=0.01@30", under a `condition` of the problem; they need fits that know their problem.
    `sources`: names of files, to show.
    """
    return report_and_figures(fits, heldout, do, title, sources, introduction, condition)[0]


@x64
def report_and_figures(
    fits, heldout=(), do=(), title=TITLE, sources=(), introduction="", condition=None
) -> tuple[str, list[dict[str, Any]]]:
    """The page, and for programs the verdict and the figures of each part of it."""
    with figures.looks():
        shown = [_section(case, do, condition) for case in _cases(fits, _parts(heldout))]
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["figure"] = _figure
    environment.filters["percent"] = _percent
    environment.filters["count"] = lambda value: "–" if _missing(value) else f"{value:,.0f}"
    environment.filters["rhat"] = lambda value: "–" if _missing(value) else f"{value:.3f}"
    text = importlib.resources.files("pcuq.report").joinpath("template.html").read_text("utf-8")
    page = environment.from_string(text).render(
        title=title,
        question="" if title == TITLE else TITLE,
        introduction=introduction,
        sections=shown,
        sources=list(sources),
    )
    page = re.sub(r"(\d) %", r"\1&nbsp;%", page)  # no line ends before a percent sign
    return page, [_plain(section) for section in shown]


def _plain(section: dict[str, Any]) -> dict[str, Any]:
    return {
        "title": section["title"],
        "verdict": section["verdict"]._asdict(),
        "fits": section["fits"],
        "interventions": [
            {"do": one["text"], "changes_at_the_end": one["rows"]}
            for one in section["interventions"]
        ],
    }


def _cases(fits: Any, heldout: Sequence[HeldOut]) -> list[Case]:
    several: list[Any] = [fits] if isinstance(fits, (Fit, Case)) else list(fits)
    if not several:
        raise InputError("a report needs at least one fit.")
    if all(isinstance(one, Case) for one in several):
        if heldout:
            raise InputError("a Case has its own `heldout`: give what was held out to each.")
        return several
    by_problem: dict[str, list[Fit]] = {}
    for fit in several:
        by_problem.setdefault(fit.tree.attrs["problem"], []).append(fit)
    if len(by_problem) > 1 and heldout:
        raise InputError("held-out data belong to one problem, and these fits are of several.")
    names = [f"data set {i + 1}" for i in range(len(by_problem))] if len(by_problem) > 1 else [""]
    return [
        Case(name, group, heldout) for name, group in zip(names, by_problem.values(), strict=True)
    ]


def _parts(heldout: Problem | Sequence[HeldOut]) -> Sequence[HeldOut]:
    if not isinstance(heldout, Problem):
        return heldout
    data = heldout.data
    parts = []
    for label in dict.fromkeys(data.condition.tolist()):
        rows = data.condition == label
        x = None if data.x is None else data.x[rows]
        parts.append(HeldOut(x, data.y[rows], label, outputs=heldout.outputs))
    return parts


def _section(case: Case, do: Sequence[str], condition: str | None) -> dict[str, Any]:
    evidence = gather(case)
    pictures, left_out = figures.data_pictures(evidence, case.heldout)
    return {
        "title": case.title,
        "verdict": judge(evidence),
        "legend": figures.legend(evidence),
        "compared": {"pcuq", "bayes"} <= {one.fit.method for one in evidence},
        "data": pictures,
        "left_out": left_out,
        "fits": [_row(one) for one in evidence],
        "parameters": figures.parameter_pictures(evidence),
        "traces": _traces(evidence),
        "pit": figures.pit_pictures(evidence),
        "heldout": case.heldout,
        "noisy": all(part.noisy for part in case.heldout),
        "interventions": _interventions(evidence, do, condition),
        "settings": _settings(evidence),
        "commands": [c for one in evidence if (c := one.fit.tree.attrs.get("command"))],
        "tables": [(one.label, _summary(one.fit)) for one in evidence],
        "versions": json.loads(evidence[0].fit.tree.attrs["versions"]),
    }


def _traces(evidence: Sequence[Evidence]) -> list[figures.Picture]:
    first, others = figures.MOST_TRACES
    return [
        picture
        for place, one in enumerate(evidence)
        for picture in figures.trace_pictures(one, others if place else first)
    ]


def _row(one: Evidence) -> dict[str, Any]:
    known = one.fit.diagnostics
    solver = json.loads(one.fit.tree.attrs["solver"])
    return {
        "label": one.label,
        "method": one.fit.method,
        "status": one.fit.status,
        "trusted": one.fit.trusted,
        "coverage": one.coverage,
        "by_output": one.by_output,
        "width": one.width,
        "reach": one.reach,
        "heldout": one.heldout,
        "known": known,
        "solvers": _solvers(solver),
        "failed_share": known.get("failed_draws", 0) / max(1, len(one.fit.thetas)),
    }


def _solvers(described: list[dict[str, Any]]) -> str:
    counts: dict[str, int] = {}
    for part in described:
        steps = f", {part['steps']} steps" if isinstance(part.get("steps"), (int, float)) else ""
        text = f"{part.get('method', '?')}{steps}"
        counts[text] = counts.get(text, 0) + 1
    return "; ".join(text if n == 1 else f"{n} × {text}" for text, n in counts.items())


def _summary(fit: Fit) -> list[dict[str, Any]]:
    table = fit.summary()
    return [{"name": name, **row} for name, row in table.to_dict(orient="index").items()]


def _interventions(
    evidence: Sequence[Evidence], do: Sequence[str], condition: str | None
) -> list[dict[str, Any]]:
    if not do:
        return []
    problem = next((one.fit.problem for one in evidence if one.fit.problem is not None), None)
    if problem is None:
        raise InputError("interventions need the problem: give it with --problem, or leave --do.")
    grid = default_grid(problem)
    if grid is None:
        raise InputError("interventions are shown along one covariate, which these data lack.")
    fits = [one.fit for one in evidence]
    control = predict_together(fits, grid, condition)
    found = []
    for text in do:
        changes = [part.strip() for part in text.split(";") if part.strip()]
        if not changes:
            raise InputError(f"--do {text!r} changes nothing: write it as in k*=0.5@6.")
        treated = predict_together(fits, grid, condition, changes)
        words = "; ".join(parse(change).in_words() for change in changes)
        found.append(
            {
                "text": text,
                "words": words,
                "end": f"{grid[-1]:.4g}",
                "pictures": figures.intervention_pictures(evidence, control, treated, words),
                "rows": _effects(evidence, control, treated),
            }
        )
    return found


def _effects(evidence, control, treated) -> list[dict[str, Any]]:
    """The difference at the end of the grid by output and method, and how many draws agree."""
    rows = []
    for name in control[0].outputs:
        for one, before, after in zip(evidence, control, treated, strict=True):
            contrast = after.contrast(before)
            column = contrast.outputs.index(name)
            low, mid, high = (q[-1, column] for q in contrast.quantile([0.05, 0.5, 0.95]))
            last = contrast.trajectories[contrast.ok][:, -1, column]
            agree = float(np.mean(np.sign(last) == np.sign(mid))) if mid else math.nan
            figures_ = {"low": low, "mid": mid, "high": high, "sure": agree}
            rows.append({"output": name, "label": one.label, **figures_})
    return rows


def _settings(evidence: Sequence[Evidence]) -> list[tuple[str, list[str]]]:
    """Rows of a table, a column per fit."""
    attrs = [one.fit.tree.attrs for one in evidence]
    settings = [json.loads(a["settings"]) for a in attrs]
    seconds = [json.loads(a["seconds"]) for a in attrs]
    names = ("sampler", "particles", "systems", "warmup", "draws", "thin", "seed")
    rows = [("λ, regularisation", [_figure(a["regularisation"]) for a in attrs])]
    if any(np.isfinite(a["beta"]) or a["beta"] == np.inf for a in attrs):
        rows.append(("β", [_figure(a["beta"]) for a in attrs]))
    rows += [(name, [str(s[name]) for s in settings]) for name in names]
    widths = [[f"{x:.3g}" for x in np.atleast_1d(a["lengthscale_y"])] for a in attrs]
    rows.append(("kernel width ℓ_Y", [", ".join(w if len({*w}) > 1 else w[:1]) for w in widths]))
    rows.append(("seconds", [f"{s['total']:.0f}" for s in seconds]))
    rows.append(("hash of the problem", [a["problem"][:12] for a in attrs]))
    return rows


def _figure(value: Any) -> str:
    if _missing(value):
        return "–"
    return "∞" if value == math.inf else f"{value:.3g}"


def _percent(value: Any) -> str:
    return "–" if _missing(value) else percent(value)


def _missing(value: Any) -> bool:
    """What a method does not have."""
    return value is None or isinstance(value, Undefined) or math.isnan(value)
