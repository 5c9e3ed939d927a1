"""Can this model be trusted to predict, and how sure is that: in words.

The rules, from the figures of the PCUQ fit (or of the first one, without it):

1. A fit that has not converged supports no statement, and none is compared with it.
2. Held-out measurements decide where there are any: at least 80 % of them within the 90 % bands is
   a yes, 60 % a qualified one.
3. Without them the bands can only be held against the data they were fitted to: a maybe at best.
4. Bands that span more than half of the range of the data are said to be wide: they may be right
   and of little use.
5. Bayes takes the model to be right. Where its bands miss the data that they were fitted to, it is
   wrong. Where they only miss what was held out, they are too narrow, and the model may be right:
   points of one curve are missed together. Where the noise is fitted too, bands that hold the data
   say less: what the model misses may have been taken for noise.

Points of one time course are not independent, so that no standard error is given for a share.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from pcuq.report.evidence import Evidence

GOOD, FAIR = 0.8, 0.6
MUCH_WIDER = 2.0
MUCH_OUTSIDE = 0.25
WIDE = 0.5


class Verdict(NamedTuple):
    """`kind`: yes, care, no or unknown. `answer`: one sentence. `reasons`: what it stands on."""

    kind: str
    answer: str
    sure: str
    reasons: tuple[str, ...]


def judge(evidence: Sequence[Evidence]) -> Verdict:
    """The verdict on a case."""
    main = evidence[0]
    if not main.fit.trusted:
        return Verdict(
            "unknown",
            f"It cannot be said yet: the {main.label} computation has not converged, so its bands "
            "may still move.",
            main.fit.status,
            (),
        )
    reasons = [*_against_bayes(evidence), *_outside(main.fit.diagnostics)]
    if main.heldout is not None and main.heldout["scored"]:
        return _by_heldout(main, reasons)
    share = main.coverage["0.9"]
    if math.isnan(share):
        return Verdict(
            "unknown",
            "It cannot be said: this file holds no predictions to compare with the data.",
            "Fit again with the present version.",
            tuple(reasons),
        )
    held = f"{main.label}'s 90 % bands hold {percent(share)} of the {main.measured} measurements"
    if share >= GOOD:
        return Verdict(
            "care",
            f"Perhaps, within its bands: {held} that were fitted{_how_wide(main)}.",
            "Not sure: these are the measurements that were fitted. Only measurements that the fit "
            "has not seen can tell whether it predicts: keep some back, and give them to the "
            "report.",
            tuple(reasons),
        )
    return Verdict(
        "no",
        f"Not as it is: {held}, where 90 % were wanted.",
        "Fairly sure: bands that miss what they were fitted to will miss the rest.",
        tuple(reasons),
    )


def percent(share: float) -> str:
    """ "93 %"."""
    return f"{100 * share:.0f} %"


def _how_wide(main: Evidence) -> str:
    if not main.reach > WIDE:
        return ""
    return f"; but they are wide, {percent(main.reach)} of the range of the data on average"


def _by_heldout(main: Evidence, reasons: list[str]) -> Verdict:
    assert main.heldout is not None
    share, count = main.heldout["coverage"]["0.9"], main.heldout["scored"]
    held = f"{main.label}'s 90 % bands hold {percent(share)} of {count} values that were held out"
    sure = (
        f"As sure as {count} values of this one experiment allow: points of one curve rise and "
        "fall together, and another experiment may differ."
    )
    if share >= GOOD:
        kind, answer = "yes", f"Yes, within its bands: {held}{_how_wide(main)}."
    elif share >= FAIR:
        kind, answer = "care", f"With care: {held}, fewer than promised{_how_wide(main)}."
    else:
        kind, answer = "no", f"No: {held}, far fewer than promised."
    return Verdict(kind, answer, sure, tuple(reasons))


def _against_bayes(evidence: Sequence[Evidence]) -> list[str]:
    main = evidence[0]
    bayes = next((one for one in evidence if one.fit.method == "bayes"), None)
    if bayes is None or main.fit.method != "pcuq" or not (bayes.width > 0 and main.width > 0):
        return []
    if not bayes.fit.trusted:
        return ["The Bayes computation has not converged, so nothing is concluded from it."]
    ratio = main.width / bayes.width
    seen = bayes.coverage["0.9"]
    unseen = (bayes.heldout or {}).get("coverage", {}).get("0.9", math.nan)
    shares = f"hold {percent(seen)} of the data" + (
        f" and {percent(unseen)} of what was held out" if math.isfinite(unseen) else ""
    )
    hidden = (
        "" if bayes.known_noise
        else "; but the noise was fitted too, and may have taken up what the model misses"
    )  # fmt: skip
    if ratio > MUCH_WIDER and seen < GOOD:
        return [
            "The model is wrong in a way that matters: no single set of parameters describes these "
            f"data. Bayes takes it to be right, and its 90 % bands {shares}; its curves spread "
            f"{ratio:.0f} times less than PCUQ's, which is false certainty."
        ]
    if ratio > MUCH_WIDER and unseen < FAIR:
        return [
            f"Bayes, which takes the model to be right, is too sure of itself: its 90 % bands "
            f"{shares}, and its curves spread {ratio:.0f} times less than PCUQ's. The data that "
            f"were fitted give no sign that the model is wrong{hidden}."
        ]
    if ratio > MUCH_WIDER:
        return [
            f"PCUQ's curves spread {ratio:.0f} times as wide as those of Bayes, which takes the "
            f"model to be right, and whose 90 % bands {shares}: PCUQ is the more cautious of the "
            f"two, and the data give no sign that the model is wrong{hidden}."
        ]
    if seen < GOOD:
        return [
            "PCUQ and Bayes agree on how uncertain the curves are, and Bayes's 90 % bands "
            f"{shares}: the noise of measurement may be larger than was said, or the model wrong."
        ]
    return [
        "PCUQ and Bayes agree on how uncertain the curves are: the data give no sign that the "
        f"model is wrong{hidden}."
    ]


def _outside(figures: dict) -> list[str]:
    share = figures.get("share_outside_fit", 0.0) or 0.0
    if share < MUCH_OUTSIDE:
        return []
    return [
        f"{percent(share)} of PCUQ's distribution explains little of the data and follows the "
        "prior: the bands lean on what was assumed beforehand. A smaller λ leans less."
    ]
