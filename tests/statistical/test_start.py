"""The fit that everything begins from is the best one, whatever the data's seed."""

import numpy as np
import pytest

from pcuq import start as starting
from pcuq.start import starting_fit
from pcuq.zoo import lotka_volterra


@pytest.mark.quick("2")
@pytest.mark.parametrize(
    ("data", "seed"),
    [(2, 0), (10, 0), (11, 0), (16, 0), (18, 0), (7, 7), (8, 7), (8, 8), (17, 7), (3, 7)],
)
def test_the_best_fit_is_found_though_its_phase_must_match(data, seed):
    """Ascents from the best of 256 prior draws, or the best 24 of 2048, ended 4000 nats below."""
    start = starting_fit(lotka_volterra.problem(data, misspecified=False), seed)
    np.testing.assert_allclose(start.best, [-2.0, -4.0], atol=0.15)


@pytest.mark.slow
def test_the_best_of_fewer_draws_would_miss_it(monkeypatch):
    monkeypatch.setattr(starting, "SURVEYED", 2048)
    monkeypatch.setattr(starting, "STARTS", 24)
    monkeypatch.setattr(starting, "_best_of_groups", lambda values, n: np.argsort(-values)[:n])
    start = starting_fit(lotka_volterra.problem(3, misspecified=False), 7)
    assert np.max(np.abs(start.best - [-2.0, -4.0])) > 0.5
