"""Models with data, ready to fit: two of the paper's with their truth, two with real data.

Each module has `model()` and `problem()`; those whose data are simulated also have `simulate()`,
which returns the noise-free truth beyond the data, to score predictions against.
"""

from pcuq.zoo import erk, influenza, lotka_volterra, lynx_hare

__all__ = ["erk", "influenza", "lotka_volterra", "lynx_hare"]
