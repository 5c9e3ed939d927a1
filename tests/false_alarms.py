"""How often the tests of a right program would fail by chance, over other seeds.

    python tests/false_alarms.py
    python tests/false_alarms.py --runs 20 tests/unit/test_noise.py

The first prints, for each limit on a figure of random draws, the chance that a right program passes
it, and their sum. The second runs tests with other seeds, as other versions of the generators would
have them, and prints which failed, and how often.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import Counter
from pathlib import Path

import numpy as np
from scipy import stats

ROOT = Path(__file__).parents[1]
# Tests with a level: (file, name, number of p-values, the level of each).
LEVELS = [
    ("test_noise", "draws_follow_the_density, student and log-normal", 2, 1e-3),
    ("test_parameters", "draws_follow_the_prior, two; reaches_outside", 3, 1e-3),
    ("test_scores", "pit_of_a_calibrated_forecast", 3, 1e-3),
    ("test_mixture", "chances_are_uniform_and_normal: 3 + 2 + 10 columns", 15, 1e-4),
    ("test_calibrate", "λ★ of eight seeds against the exact one", 1, 1e-3),
]
# Tests with a limit: (file, name, number of figures, the limit in their standard errors).
LIMITS = [
    ("test_noise", "draws_follow_the_density, negative binomial", 12, 4.5),
    ("test_noise", "a_custom_density; joint_noise", 3, 4.0),
    ("test_scores", "mean_squared_z: ± 0.08 of 0.02", 2, 4.0),
    ("test_mixture", "the_local_move_is_reversible", 15, 4.5),
    ("test_mixture", "chances_are_uniform_and_normal: 15 columns in pairs", 105, 5.0),
    ("test_mixture", "a_jump_is_a_draw: 0.15 − 0.07 and 0.6 ± 0.1 of 400", 3, 3.9),
    ("test_monte_carlo", "value_and_gradient; correlated_outputs", 14, 4.0),
    ("test_monte_carlo", "the_error_falls: 1.4 at 7 %", 7, 4.8),
    ("test_random_batch", "the_drift_is_unbiased", 48, 4.5),
    ("test_random_batch", "the error stated: 8 % at 1.1 %", 2, 7.0),
    ("test_samplers", "independent_chains", 6, 4.5),
    ("test_samplers", "parameters_that_are_drawn_anew, two kinds", 24, 5.0),
    ("test_samplers", "steps_of_many_parameters: sds", 12, 5.0),
    ("test_samplers", "steps_of_many_parameters: means", 12, 4.5),
    ("test_samplers", "jumps_beyond_a_bound_are_drawn_again", 12, 4.5),
    ("test_mixture", "partial_moves_are_reversible, three sizes", 9, 4.5),
    ("test_steps", "draw from their density: three samplers", 15, 4.5),
    ("test_predict", "noise_has_its_scale, means", 2, 4.0),
    ("test_predict", "noise: sds within 2 or 6 %", 24, 5.3),
    ("test_predict", "log-normal sd; counts; contrasts; prior_predictive", 5, 4.0),
    ("test_synthetic", "mean and sd of data, five figures", 5, 4.0),
    ("test_synthetic", "others within 0.02 to 0.2: at least", 6, 4.4),
    ("test_groups", "noise_at_the_data: 0.05 of 0.011, 0.07 of 0.015", 2, 4.5),
    ("test_zoo", "law_of_an_ornstein_uhlenbeck_process", 4, 4.0),
    ("test_zoo", "erk: sd of the residuals", 1, 4.0),
    ("test_zoo", "lotka_volterra: sd of 122 residuals ± 0.2", 2, 3.1),
    ("test_reproduce", "denser_data", 1, 4.0),
    ("test_check_windows", "one_time_in_twenty: ± 0.021 of 0.0069", 1, 3.05),
    ("test_fit", "random_draws_of_the_exact_answer", 2, 4.5),
    ("test_joint_law", "three samplers, and two with a doubled pair sum", 45, 4.5),
]


class Failed:
    """Notes what failed."""

    def __init__(self):
        self.found, self.passed = {}, 0

    def pytest_runtest_logreport(self, report):
        self.passed += report.passed and report.when == "call"
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            lines = (crash.message if crash else str(report.longrepr)).splitlines() or [""]
            self.found[report.nodeid] = lines[0][:200]


def print_chances() -> None:
    """Of each test, and their sum, which no dependence between them can exceed."""
    rows = [(file, name, number, f"p > {level:g}", number * level)
            for file, name, number, level in LEVELS]  # fmt: skip
    rows += [(file, name, number, f"{sds:g} sds", number * 2 * stats.norm.sf(sds))
             for file, name, number, sds in LIMITS]  # fmt: skip
    for file, name, number, limit, chance in sorted(rows, key=lambda row: -row[-1]):
        print(f"{chance:.1e}  {file}: {name} ({number} × {limit})")
    print(f"{sum(row[-1] for row in rows):.4f}  all")


def run_with_other_seeds(runs: int, first: int, tests: list[str]) -> None:
    """Every whole number that seeds a generator, in tests and library, is another one."""
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    import jax
    import pytest

    new_rng, new_key = np.random.default_rng, jax.random.key
    told: dict[str, list[str]] = {}
    counts: Counter[str] = Counter()
    number = 0
    for shift in range(first, first + runs):

        def moved(seed, shift=shift):
            if not isinstance(seed, int | np.integer):
                return seed
            return (int(seed) + 1_000_003 * shift) % 2**32

        np.random.default_rng = lambda seed=None, moved=moved: new_rng(moved(seed))
        jax.random.key = lambda seed, moved=moved, **given: new_key(moved(seed), **given)
        for name, module in list(sys.modules.items()):
            if str(getattr(module, "__file__", None) or "").startswith(str(ROOT / "tests")):
                del sys.modules[name]
        noted = Failed()
        quiet = ["-q", "--no-header", "--tb=no", "-p", "no:cacheprovider"]
        pytest.main([*quiet, "-m", "not slow", *tests], plugins=[noted])
        number = max(number, noted.passed + len(noted.found))
        counts.update(noted.found.keys())
        for test, message in noted.found.items():
            told.setdefault(test, []).append(message)
    print(f"{number} tests, {runs} runs each, {sum(counts.values())} failures")
    for test, count in counts.most_common():
        print(f"{count} of {runs}: {test}")
        for message in told[test]:
            print(f"    {message}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tests", nargs="*")
    parser.add_argument("--runs", type=int, default=0)
    parser.add_argument("--first", type=int, default=1)
    asked = parser.parse_args()
    if asked.runs:
        run_with_other_seeds(asked.runs, asked.first, asked.tests)
    else:
        print_chances()
