"""What becomes of a command whose output nobody reads any more: `make wmt-table | head`."""

from __future__ import annotations

import io
import os
import signal
import stat
import sys
from typing import Any


def end_with_reader() -> None:
    """Let a command that only prints end in silence with its reader, as those of the system do."""
    if sys.stdout is sys.__stdout__ and hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)


def outlive_reader() -> None:
    """Let long work go on when its reader has ended; its records tell what it would have."""
    output = sys.stdout
    if output is sys.__stdout__ and output is not None:
        pipe = output.fileno()
        if stat.S_ISFIFO(os.fstat(pipe).st_mode):
            buffer = io.BufferedWriter(_Outliving(pipe, "wb", closefd=False))
            sys.stdout = io.TextIOWrapper(buffer, output.encoding, output.errors)


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
