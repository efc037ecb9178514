"""Shared parts of scripts: arguments, one-line errors, signals, and a reader that leaves (`… | head`)."""

from __future__ import annotations

import argparse
import io
import os
import signal
import stat
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any, NoReturn

from roformer.errors import InputError, one_line_errors

QUIET = "print only the last one or two lines, and errors"
"""What `--quiet` does in every command that has it."""


def script(*, prints: bool = False) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Return a decorator of a script's main function, which leaves with one line on a mistake.

    A script that only `prints` ends with its reader; other work continues.
    """

    def decorate(main: Callable[[], None]) -> Callable[[], None]:
        @wraps(main)
        def started() -> None:
            if prints:
                end_with_reader()
            else:
                signal.signal(signal.SIGTERM, leave_on_signal)
                outlive_reader()
            with one_line_errors():
                main()

        return started

    return decorate


class Arguments(argparse.ArgumentParser):
    """The arguments of a script, with `--device` and `--threads` if asked for; a mistake is one line."""

    def __init__(self, text: str | None, *, device: bool = False, threads: bool = False):
        super().__init__(description=text)
        if device:
            from roformer.training.hardware import default_device

            self.add_argument("--device", type=usable_device, default=default_device())
        if threads:
            self.add_argument("--threads", type=at_least(1), help="of the CPU; default: all cores")

    def add_argument(self, *names: Any, **options: Any) -> argparse.Action:
        """Add an argument whose help ends with its default."""
        if options.get("default") not in (None, [], argparse.SUPPRESS):
            options["help"] = "; ".join(filter(None, [options.get("help"), "default: %(default)s"]))
        return super().add_argument(*names, **options)

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message}; --help lists what can be given")


def at_least(least: int) -> Callable[[str], int]:
    """Return the type of an argument that is an integer with a lower limit."""

    def integer(text: str) -> int:
        if int(text) < least:
            raise argparse.ArgumentTypeError(f"give at least {least}, not {text}")
        return int(text)

    return integer


def usable_device(name: str) -> str:
    """The type of an argument that is a device of this machine, as torch names it."""
    from roformer.training.hardware import check_device

    try:
        check_device(name)
    except InputError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return name


def leave_on_signal(number: int, frame: object) -> None:
    """Leave in order, as on Ctrl-C; the training loop has its own handler, which saves first."""
    print("stopped by SIGTERM: what is finished is kept", file=sys.stderr)
    raise SystemExit(128 + number)


def end_with_reader() -> None:
    """Let a command that only prints end in silence with its reader, as system commands do."""
    _print_any_text()
    if sys.stdout is sys.__stdout__ and hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)


def outlive_reader() -> None:
    """Let long work continue when its reader has ended; its records have the results."""
    _print_any_text()
    output = sys.stdout
    if output is sys.__stdout__ and output is not None:
        pipe = output.fileno()
        if stat.S_ISFIFO(os.fstat(pipe).st_mode):
            buffer = io.BufferedWriter(_Outliving(pipe, "wb", closefd=False))
            sys.stdout = io.TextIOWrapper(buffer, output.encoding, output.errors)


def _print_any_text() -> None:
    """Print "?" for a character that the encoding of stdout does not have."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


class _Outliving(io.FileIO):
    """A pipe to which nothing more is written once its other end is closed."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno())
            os.close(nowhere)
            print("nothing reads the output any more: going on without it", file=sys.stderr)
            return len(data)
