"""The two ways a call can fail: the input is bad, or the computation is."""


class InputError(ValueError):
    """What was given cannot be used: the message says what was wanted, what came, what to do."""


class ComputationError(RuntimeError):
    """The input was fine and nothing usable came out: the message says what to try."""
