"""The exceptions that are told to the user in one line: what went wrong is not the code."""


class InputError(ValueError):
    """A mistake of the user's: what is wrong, where, and what to do, in one line.

    Entry points print the message alone and leave with code 2; any other exception keeps its
    traceback, because it is a bug.
    """


class Diverged(RuntimeError):
    """The loss or its gradient became infinite or NaN; the message names the step."""


class PeerLost(RuntimeError):
    """Another process of the run ended, so this one cannot go on; nothing written is lost."""
