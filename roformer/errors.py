"""Errors caused by input or by the machine, printed as one line."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

LONGEST = 2000
"""Characters of a message: a damaged file may quote itself at any length."""


class InputError(ValueError):
    """Bad input: what is wrong, where, and what to do, in one line.

    Entry points print the message alone and exit with code 2; any other exception is a bug and keeps
    its traceback.
    """

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


class Diverged(RuntimeError):
    """The loss or its gradient became infinite or NaN; the message names the step."""


class PeerLost(RuntimeError):
    """Another process of the run ended, so this one cannot go on; nothing written is lost."""


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Add the path to an OSError that does not name one, as those of an open file."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            error.filename = str(path)
        raise


def one_line(message: str) -> str:
    """Return a message with unprintable characters escaped and, if it is long, its middle cut out."""
    if len(message) > LONGEST:
        message = f"{message[: LONGEST // 2]} … {message[-LONGEST // 2 :]}"
    if message.isprintable():
        return message
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in message)
