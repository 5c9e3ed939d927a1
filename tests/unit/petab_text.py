"""A small PEtab problem, written by hand: A ⇌ B, with A measured."""

import sbml_text as sb

MODEL = sb.model(
    species=sb.species("A", concentration=1) + sb.species("B", concentration=0),
    parameters=sb.parameter("k1", 0.8) + sb.parameter("k2", 0.6),
    reactions=sb.reaction("forth", "C*k1*A", {"A": 1}, {"B": 1})
    + sb.reaction("back", "C*k2*B", {"B": 1}, {"A": 1}),
)

V1 = {
    "problem.yaml": """format_version: 1
parameter_file: parameters.tsv
problems:
- condition_files: [conditions.tsv]
  measurement_files: [measurements.tsv]
  observable_files: [observables.tsv]
  sbml_files: [model.xml]
""",
    "model.xml": MODEL,
    "conditions.tsv": "conditionId\nc0\n",
    "parameters.tsv": "parameterId\tparameterScale\tlowerBound\tupperBound\tnominalValue\t"
    "estimate\nk1\tlog10\t0.01\t10\t0.8\t1\nk2\tlin\t0\t10\t0.6\t1\n",
    "observables.tsv": "observableId\tobservableFormula\tnoiseFormula\nobs_a\tA\t0.5\n",
    "measurements.tsv": "observableId\tsimulationConditionId\ttime\tmeasurement\n"
    "obs_a\tc0\t0\t0.7\nobs_a\tc0\t1\t0.1\n",
}

V2 = {
    "problem.yaml": """format_version: 2.0.0
parameter_files: [parameters.tsv]
model_files:
  model: {location: model.xml, language: sbml}
condition_files: [conditions.tsv]
experiment_files: [experiments.tsv]
measurement_files: [measurements.tsv]
observable_files: [observables.tsv]
""",
    "model.xml": MODEL,
    "conditions.tsv": "conditionId\ttargetId\ttargetValue\nlow\tk1\t0.3\nhigh\tk1\tk\nadd\tA\t1\n",
    "experiments.tsv": "experimentId\ttime\tconditionId\n"
    "e1\t-inf\tlow\ne1\t0\thigh\ne1\t2\tadd\ne2\t0\tlow\n",
    "parameters.tsv": "parameterId\tlowerBound\tupperBound\tnominalValue\testimate\n"
    "k\t0.01\t10\t0.8\ttrue\nk2\t0\t10\t0.6\ttrue\n",
    "observables.tsv": "observableId\tobservableFormula\tnoiseFormula\tnoiseDistribution\n"
    "obs_a\tA\t0.5\tlog-normal\n",
    "measurements.tsv": "observableId\texperimentId\ttime\tmeasurement\n"
    "obs_a\te1\t1\t0.7\nobs_a\te1\t3\t0.1\nobs_a\te2\t1\t0.4\n",
}


def write(folder, files, **changes):
    """The files in a folder, some replaced (`conditions=` for conditions.tsv) or absent (None)."""
    for name, text in files.items():
        text = changes.get(name.split(".")[0], text)
        if text is not None:
            (folder / name).write_text(text)
    return folder / "problem.yaml"
