"""ERK, where there is no exact answer: four systems that start apart must come to agree."""

import pytest

import pcuq
from pcuq.zoo import erk


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("combine, lam", [("product", 1.6e-7), ("sum", 2.7e-6)])
def test_systems_that_start_apart_come_to_agree(combine, lam):
    fit = pcuq.fit(erk.problem(combine=combine), regularisation=lam, particles=50, systems=4)
    table = fit.summary()
    print(fit.status, fit.tree.attrs["seconds"], table.to_string(), sep="\n")
    assert fit.trusted, fit.status
    assert table[["rhat_mean", "rhat_sd"]].to_numpy().max() < 1.05
