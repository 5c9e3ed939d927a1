"""PEtab problems that were made to do harm are refused by name: they neither hang nor crash."""

import petab_text
import pytest

import pcuq
from pcuq.errors import InputError

ENDLESS = ["9^9^9^9", "sin(1e10000000)", "exp(exp(exp(10)))", "A + 2*9^9^9^9", "A + 1e-10000000"]


@pytest.mark.parametrize("formula", ENDLESS)
@pytest.mark.parametrize("version", ["V1", "V2"])
def test_formulas_whose_numbers_would_take_for_ever_are_refused(formula, version, tmp_path):
    files = getattr(petab_text, version)
    observables = files["observables.tsv"].replace("\tA\t", f"\t{formula}\t")
    path = petab_text.write(tmp_path, files, observables=observables)
    with pytest.raises(InputError, match=r"observableFormula .* it exceeds 1e\+308"):
        pcuq.from_petab(path)


@pytest.mark.parametrize("table", ["conditions", "measurements"])
def test_so_are_those_of_conditions_and_overrides(table, tmp_path):
    files = petab_text.V2
    changed = {
        "conditions": files["conditions.tsv"].replace("\t0.3\n", "\t9^9^9^9\n"),
        "measurements": files["measurements.tsv"]
        .replace("measurement\n", "measurement\tnoiseParameters\n")
        .replace("0.7\n", "0.7\t1;9^9^9^9\n"),
    }
    path = petab_text.write(tmp_path, files, **{table: changed[table]})
    with pytest.raises(InputError, match=r"line 2 of .* it exceeds 1e\+308"):
        pcuq.from_petab(path)


def test_aliases_in_yaml_are_refused_before_they_are_written_out(tmp_path):
    bomb = "a0: &a0 [x, x]\n" + "".join(
        f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]\n" for i in range(1, 60)
    )
    problem = petab_text.V1["problem.yaml"] + bomb + "sbml_files: *a59\n"
    with pytest.raises(InputError, match="uses aliases"):
        pcuq.from_petab(petab_text.write(tmp_path, petab_text.V1, problem=problem))


def test_an_entry_that_is_longer_than_csv_reads_is_refused(tmp_path):
    conditions = f"conditionId\n{'c' * 200_000}\n"
    with pytest.raises(InputError, match=r"conditions\.tsv cannot be read as a table"):
        pcuq.from_petab(petab_text.write(tmp_path, petab_text.V1, conditions=conditions))


def test_a_model_is_looked_at_first_whatever_its_name_ends_in(tmp_path):
    problem = petab_text.V2["problem.yaml"].replace("model.xml", "model.sbml")
    path = petab_text.write(tmp_path, petab_text.V2, problem=problem)
    deep = "<annotation>" + "<a>" * 5000 + "</a>" * 5000 + "</annotation></model>"
    (tmp_path / "model.sbml").write_text(petab_text.MODEL.replace("</model>", deep))
    with pytest.raises(InputError, match=r"model\.sbml is nested too deeply"):
        pcuq.from_petab(path)
