"""How λ★ was found: two curves against λ, each with the bound that it must stay below."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes

from pcuq.calibrate import MOST_OUTSIDE, MOST_SPREAD, Calibration
from pcuq.errors import InputError
from pcuq.plots.styles import STYLES, few_numbers


def plot_calibration(
    calibration: Calibration | Mapping[str, Any], axes: Sequence[Axes] | None = None
) -> Sequence[Axes]:
    """Spread of Q, and the share outside the part that fits, against λ: two Axes.

    Grey: single simulated sets, with an open circle where Q had not settled. λ★ is the largest λ at
    which both are below their bounds. A calibration may also be given as its `to_dict()`.
    """
    known = calibration.to_dict() if isinstance(calibration, Calibration) else calibration
    if axes is None:
        axes = plt.subplots(1, 2, figsize=(7.6, 3.2), layout="constrained")[1]
    if axes is None or len(axes) != 2:
        raise InputError("`axes` needs two Axes: one for the spread, one for the share.")
    lams, star = np.asarray(known["lams"]), known["regularisation"]
    bayes, floor = float(np.median(known["bayes_spread"])), known["floor"]
    moving = ~np.array(known["settled"], dtype=bool)
    style = STYLES["pcuq"]
    for ax, key, middle in zip(axes, ("spread", "outside"), ("median", "mean"), strict=True):
        curves = np.ma.masked_invalid(np.array(known[key], dtype=float))
        ax.plot(lams, curves.T, color="0.75", linewidth=0.8)
        some = np.broadcast_to(lams, curves.shape)[moving]
        ax.plot(some, curves[moving], "o", color="0.5", markersize=4, fillstyle="none")
        ax.plot(
            lams,
            getattr(np.ma, middle)(curves, axis=0),
            color=style.colour,
            linestyle=style.line,
            marker=style.marker,
            markersize=3,
            label=f"PCUQ, {middle}",
        )
        ax.axvline(star, color="black", linewidth=1, linestyle="-.", label=f"λ★ = {star:.2g}")
        ax.set(xscale="log", xlabel="λ")
        few_numbers(ax.xaxis)
    above, below = axes
    above.axhline(bayes, color=STYLES["bayes"].colour, linestyle=":", label=f"Bayes: {bayes:.2g}")
    above.axhline(floor, color="0.4", linestyle=(0, (1, 2)), label=f"floor: {floor:.2g}")
    above.axhline(MOST_SPREAD * max(bayes, floor), color="black", linewidth=0.8, label="bound")
    above.set(ylabel="spread of θ in the part that fits", yscale="log")
    few_numbers(above.yaxis)
    below.axhline(MOST_OUTSIDE, color="black", linewidth=0.8, label=f"bound: {MOST_OUTSIDE:.0%}")
    below.set_ylabel("share outside the part that fits")
    for ax in axes:
        ax.legend(fontsize="small")
    return axes
