"""The exceptions that are told to the user in one line: what went wrong is not the code."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class InputError(ValueError):
    """A mistake of the user's: what is wrong, where, and what to do, in one line.

    Entry points print the message alone and leave with code 2; any other exception keeps its
    traceback, because it is a bug.
    """


class Diverged(RuntimeError):
    """The loss or its gradient became infinite or NaN; the message names the step."""


class PeerLost(RuntimeError):
    """Another process of the run ended, so this one cannot go on; nothing written is lost."""


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Tell what was being written in a system's error that does not: of a file that was open."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            error.filename = str(path)
        raise
