"""How things are drawn: one style per method, and Axes where none are given.

Methods differ by line style and hatching as well as by colour, from the palette of Okabe and Ito:
the figures can be read in greyscale and by colour-blind readers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.ticker import FormatStrFormatter, LogLocator, NullFormatter


class Style(NamedTuple):
    """How one method is drawn."""

    colour: str
    line: str
    marker: str
    hatch: str | None


STYLES = {
    "pcuq": Style("#0072B2", "-", "o", None),
    "bayes": Style("#D55E00", "--", "^", "////"),
    "mmd-bayes": Style("#009E73", ":", "s", "...."),
}
NAMES = {"pcuq": "PCUQ", "bayes": "Bayes", "mmd-bayes": "MMD-Bayes"}
# Of further fits by a method that has been drawn already.
FURTHER = (
    Style("#CC79A7", "-.", "d", None),
    Style("#000000", "--", "v", None),
    Style("#E69F00", ":", "P", None),
)
PRIOR = Style("#8C8C8C", "-.", "x", None)
# Of systems, or other things without a name.
SHADES = ("#0072B2", "#E69F00", "#000000", "#CC79A7")


def style_of(style: Style | str) -> Style:
    """A style, by the name of a method where it is text; methods without one are drawn in black."""
    if isinstance(style, Style):
        return style
    return STYLES.get(style, Style("#000000", "-", "d", None))


def styles_of(methods: Sequence[str]) -> list[Style]:
    """A style for each of several fits: that of its method, and others where one comes again."""
    found, again = [], 0
    for i, method in enumerate(methods):
        if method in methods[:i]:
            found.append(FURTHER[again % len(FURTHER)])
            again += 1
        else:
            found.append(style_of(method))
    return found


def name_of(method: str) -> str:
    """A method's name as people write it."""
    return NAMES.get(method, method)


def axes_or_new(ax: Axes | None) -> Axes:
    """The given Axes, or those of a new figure."""
    return plt.subplots(figsize=(5, 3.2), layout="constrained")[1] if ax is None else ax


def few_numbers(axis: Axis) -> None:
    """1, 2 and 5 of each decade, in plain figures: what matplotlib writes runs into itself."""
    axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.set_major_formatter(FormatStrFormatter("%g"))
    axis.set_minor_formatter(NullFormatter())
