"""Pictures of data, predictions and draws: functions that draw on given Axes and return them.

| function | what it shows |
|---|---|
| `plot_fit` | measurements and the bands of one or several fits to them |
| `plot_bands`, `plot_prediction`, `plot_data` | bands of predictions, and measurements |
| `plot_contrast` | what an intervention changes |
| `plot_traces` | paths of particles, system by system |
| `plot_pairs`, `plot_parameter`, `plot_pairs2d` | draws of parameters, with the prior |
| `plot_pit` | where measurements fell in their forecasts |
| `plot_sensitivity` | figures against λ |
| `plot_calibration` | how λ★ was found |
| `plot_spread` | spread against the number of data |
| `plot_check` | a whole figure of what `pcuq.check` found |
| `plot_compared`, `plot_misfit` | where the model fails, for one output |
| `plot_widths`, `plot_autocorrelation` | how much wider bands should be; residuals |

`az.plot_*` work on the file of a fit as well.
"""

from pcuq.plots.bands import plot_bands, plot_contrast, plot_data, plot_fit, plot_prediction
from pcuq.plots.calibration import plot_calibration
from pcuq.plots.checks import plot_pit, plot_sensitivity, plot_spread
from pcuq.plots.draws import plot_pairs, plot_pairs2d, plot_parameter, plot_traces
from pcuq.plots.misspecification import (
    plot_autocorrelation,
    plot_check,
    plot_compared,
    plot_misfit,
    plot_widths,
)
from pcuq.plots.styles import NAMES, STYLES, Style

__all__ = [
    "NAMES",
    "STYLES",
    "Style",
    "plot_autocorrelation",
    "plot_bands",
    "plot_calibration",
    "plot_check",
    "plot_compared",
    "plot_contrast",
    "plot_data",
    "plot_fit",
    "plot_misfit",
    "plot_pairs",
    "plot_pairs2d",
    "plot_parameter",
    "plot_pit",
    "plot_prediction",
    "plot_sensitivity",
    "plot_spread",
    "plot_traces",
    "plot_widths",
]
