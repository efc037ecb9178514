"""The exceptions that are told to the user in one line: what went wrong is not the code."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LONGEST = 2000
"""Characters of a message: a damaged file may quote itself at any length."""


class InputError(ValueError):
    """A mistake of the user's: what is wrong, where, and what to do, in one line.

    Entry points print the message alone and leave with code 2; any other exception keeps its
    traceback, because it is a bug.
    """

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


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


def one_line(message: str) -> str:
    """Return a message with what would break or colour the line spelt out, and its middle cut.

    Names and texts out of a file may hold anything: line ends, U+2028, a terminal's control codes,
    halves of surrogate pairs.
    """
    if len(message) > LONGEST:
        message = f"{message[: LONGEST // 2]} … {message[-LONGEST // 2 :]}"
    if message.isprintable():
        return message
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in message)
