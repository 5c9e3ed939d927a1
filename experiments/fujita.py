"""EGF and Akt signalling: fit steps of EGF, predict pulses and ramps that the fit never saw."""

from common import arguments, external_data, study

import pcuq

NAME = "Fujita_SciSignal2010"


def main(options):
    """Split the data, then fit and score."""
    folder = external_data() / "petab" / NAME
    heldout = {
        kind: pcuq.from_petab(folder / "test_data" / f"input_{kind}_{NAME}.yaml")
        for kind in ("pulse", "ramp")
    }
    study("fujita", pcuq.from_petab(folder / f"{NAME}.yaml"), heldout, options)


if __name__ == "__main__":
    main(arguments(__doc__))
