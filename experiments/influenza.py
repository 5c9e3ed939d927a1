"""Influenza in a boarding school: fit the first eight days, forecast the other six."""

from common import arguments, study

from pcuq.zoo import influenza

LAST = 8.0  # day


def main(options):
    """Split the data, then fit and score."""
    problem = influenza.problem()
    early = problem.data.x <= LAST
    study("influenza", problem.take(early), {"days 9-14": problem.take(~early)}, options)


if __name__ == "__main__":
    main(arguments(__doc__))
