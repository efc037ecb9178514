"""Errors caused by input or by the machine, printed as one line."""

import errno
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

LONGEST = 2000
"""Characters of a message: a damaged file may quote itself at any length."""
DIVERGED = 3
"""Exit code of a training whose loss became infinite."""
PROCESS_LOST = 4
"""Exit code of a process after another one of its run ended."""
ROOM, ALLOW = "make room", "allow it or choose another folder"
REMEDIES = {
    errno.ENOSPC: ROOM,
    errno.EDQUOT: ROOM,
    errno.EROFS: "make it writable or choose another folder",
    errno.EACCES: ALLOW,
    errno.EPERM: ALLOW,
}


class InputError(ValueError):
    """Bad input: what is wrong, where, and what to do, in one line.

    Every function that reads input may raise it, so docstrings do not list it. Entry points print only
    the message and exit with code 2; any other exception is a bug and keeps its traceback.
    """

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


class Diverged(RuntimeError):
    """The loss or its gradient became infinite or NaN; the message names the step."""


class ProcessLost(RuntimeError):
    """Another process of the run ended, so this process cannot continue; nothing written is lost."""


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Print an error of the input or the disk as one line, and exit with its code."""
    try:
        yield
    except InputError as error:
        _leave(f"error: {error}", 2)
    except Diverged as error:
        _leave(f"error: {error}", DIVERGED)
    except ProcessLost as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        os._exit(PROCESS_LOST)  # a normal exit would wait for the rest of the process group
    except KeyboardInterrupt:
        _leave("stopped by Ctrl-C: start the same command again to resume", 128 + signal.SIGINT)
    except OSError as error:
        if error.errno not in REMEDIES:
            raise
        where = f" while writing {error.filename}" if error.filename else ""
        what = f"{error.strerror}{where}: {REMEDIES[error.errno]}"
        notes = "".join(f"; {note}" for note in getattr(error, "__notes__", ()))
        _leave(f"error: {what} and start the same command again{notes}", 1)


def _leave(line: str, code: int) -> NoReturn:
    print(line, file=sys.stderr)
    raise SystemExit(code) from None


@contextmanager
def prefixed(prefix: str) -> Iterator[None]:
    """Begin the message of an InputError with what it is about."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{prefix}{error}") from error


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Add the path to an OSError that does not name one, such as an error of an open file."""
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
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in message)
