"""Lynx and hare pelts: fit the years to 1914, forecast those to 1920."""

from common import arguments, study

from pcuq.zoo import lynx_hare

LAST = 14.0  # years from 1900


def main(options):
    """Split the data, then fit and score."""
    problem = lynx_hare.problem()
    early = problem.data.x <= LAST
    study("lynx_hare", problem.take(early), {"1915-1920": problem.take(~early)}, options)


if __name__ == "__main__":
    main(arguments(__doc__))
