"""IP3 receptor: fit some stimulations by calcium and IP3, predict the strongest of each kind."""

from common import arguments, external_data, study

import pcuq

NAME = "Sneyd_PNAS2002"


def main(options):
    """Split the data, then fit and score."""
    problem = pcuq.from_petab(external_data() / "petab" / NAME / f"{NAME}.yaml")
    labels = list(dict.fromkeys(problem.data.condition.tolist()))
    kinds = dict.fromkeys(label.split("__")[0] for label in labels)
    # The condition table lists each kind from weak to strong. One stimulation is in both: its
    # other measurement is left out of the fit, too.
    strongest = {[label for label in labels if label.startswith(kind)][-1] for kind in kinds}
    strongest.add("Ca_dose_response__3")
    new = [label in strongest for label in problem.data.condition]
    study(
        "sneyd", problem.take([not out for out in new]), {"strongest": problem.take(new)}, options
    )


if __name__ == "__main__":
    main(arguments(__doc__))
