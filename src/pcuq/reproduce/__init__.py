"""The paper's experiments, each from its settings to figures, numbers and files of every fit.

| name | what it makes |
|---|---|
| lotka-volterra, lotka-volterra-alt | the Lotka–Volterra figures at the paper's two settings |
| erk | the ERK figures |
| all | these three |
| replicates | coverage and CRPS over many data sets, and ERK over seeds of the noise |
| robustness | a share of the data grossly wrong |
| prior | Q0 widened, narrowed and shifted |
| spread | uncertainty against the number of data |
| departures | what the authors' code does otherwise than the paper |
| erk-kernels | ERK with other kernels and λ |

Those below `all` take long and can be interrupted: what is finished is not computed again.
"""

from pcuq.reproduce.all import ALL, EXPERIMENTS, check_name, reproduce
from pcuq.reproduce.methods import TINY, Run, Size

__all__ = ["ALL", "EXPERIMENTS", "TINY", "Run", "Size", "check_name", "reproduce"]
