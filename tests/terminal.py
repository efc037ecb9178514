"""A fake terminal: tests can read what programs draw on it."""

import fcntl
import os
import pty
import struct
import sys
import termios
import threading
from contextlib import contextmanager


@contextmanager
def terminal(monkeypatch, columns=80):
    """Make stderr a terminal; yield a function that returns, afterwards, what was drawn on it."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    drawn = []

    def read():
        try:
            while part := os.read(ours, 4096):
                drawn.append(part)
        except OSError:  # the other end is closed
            pass

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    with open(theirs, "w") as stream, monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", stream)
        yield lambda: b"".join(drawn).decode()
    reader.join(10)
    os.close(ours)
