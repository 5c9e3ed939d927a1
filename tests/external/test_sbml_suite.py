"""Cases of the SBML semantic test suite, within their own tolerances."""

import csv

import numpy as np
import pytest

import pcuq
from pcuq.io.sbml_document import read

# One in forty stands for all in the quick run; the whole suite compiles for a quarter of an hour.
EVERY = 40


def deviation(case):
    """The largest error over the case's variables, in units of its tolerance."""
    lines = (case / "settings.txt").read_text().splitlines()
    settings = dict(line.split(":", 1) for line in lines if ":" in line)
    in_amount, in_concentration = (
        [name.strip() for name in settings.get(key, "").split(",")]
        for key in ("amount", "concentration")
    )
    header, *rows = csv.reader((case / "results.csv").read_text().splitlines())
    table = np.array([[float(entry) for entry in row] for row in rows if row])
    found = pcuq.from_sbml(case / "model.xml").simulate(table[:, 0])
    document, worst = read(case / "model.xml"), 0.0
    for name, wanted in zip(map(str.strip, header[1:]), table[:, 1:].T, strict=True):
        series = found[name]
        if name in document.species:
            species = document.species[name]
            size = found[species.compartment]
            if name in in_amount and not species.substance_only:
                series = series * size
            if name in in_concentration and species.substance_only:
                series = series / size
        tolerance = float(settings["absolute"]) + float(settings["relative"]) * np.abs(wanted)
        with np.errstate(invalid="ignore"):
            error = np.where(series == wanted, 0.0, np.abs(series - wanted) / tolerance)
        same = np.isnan(series) & np.isnan(wanted)
        worst = max(worst, float(np.max(np.where(same, 0.0, np.nan_to_num(error, nan=np.inf)))))
    return worst


def failures(cases):
    """{case: what went wrong}, and which were refused by name."""
    wrong, refused = {}, {}
    for case in cases:
        try:
            error = deviation(case)
        except pcuq.InputError as reason:
            refused[case.name] = str(reason)
            continue
        if not error <= 1:
            wrong[case.name] = error
    return wrong, refused


def test_every_fortieth_case_is_within_its_tolerance(external_data):
    cases = sorted((external_data / "sbml-suite").iterdir())[::EVERY]
    assert len(cases) > 5
    assert failures(cases) == ({}, {})


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_all_cases_are_within_their_tolerance_or_refused(external_data):
    cases = sorted((external_data / "sbml-suite").iterdir())
    wrong, refused = failures(cases)
    assert not wrong
    assert len(refused) <= 2, refused
