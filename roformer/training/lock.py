"""One process writes a run: a lock file that names its holder.

The kernel's own lock (flock) ends with the process that holds it, however it ends. Where machines
share a file system, and some of these keep flocks to one machine or have none, the file's content
decides: its holder counts in it while it lives, and a count that stands still is of a holder that
is gone. No two clocks are compared.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from roformer.errors import InputError

BEAT_SECONDS = 15.0
"""How often a holder counts."""
LINE = 200
"""Bytes of the file, so that a shorter content replaces a longer one whole."""
BEATS_TO_WAIT = 4
"""After so many beats without a count, a holder on another machine is taken to be gone."""


class Lock:
    """The right to write one run.

    Args:
        path: the lock file; it is removed on release.
        what: the run, as messages call it.
    """

    def __init__(self, path: Path, what: str):
        self.path, self.what = path, what
        self._file: int | None = None
        self._released = threading.Event()
        self._beating: threading.Thread | None = None

    def acquire(self) -> str | None:
        """Take the lock; return a line about the lock of a holder that is gone, if there was one.

        Raises:
            InputError: another process holds it: its host and pid are named.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        while self._file is None:
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
            locked = self._flock()
            if os.fstat(self._file).st_nlink == 0:  # its holder has removed it meanwhile
                os.close(self._file)
                self._file = None
        holder = _holder(self._content())
        stale = None
        if holder:
            if self._is_alive(holder, locked):
                self._refuse(_named(holder))
            stale = f"taking over the lock of {_named(holder)}, which is gone"
        self._write(0)
        os.register_at_fork(after_in_child=self._leave_to_the_parent)
        self._beating = threading.Thread(target=self._beat, daemon=True)
        self._beating.start()
        return stale

    def release(self) -> None:
        """Let others have it."""
        if self._file is None:
            return
        self._released.set()
        if self._beating is not None:
            self._beating.join()
        with suppress(OSError):  # a disk that became read-only; the kernel's lock goes all the same
            self.path.unlink()
        os.close(self._file)
        self._file = None

    def _flock(self) -> bool:
        """Take the kernel's lock; return whether this file system has such locks."""
        assert self._file is not None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = _holder(self._content())
            self._refuse(_named(holder))
        except OSError:
            return False
        return True

    def _is_alive(self, holder: dict[str, Any], locked: bool) -> bool:
        """Return whether the holder that the file names lives, whatever the kernel's lock says."""
        if holder["host"] == socket.gethostname():
            return not locked and _runs(holder["pid"])
        before = self._content()
        for _ in range(BEATS_TO_WAIT):
            time.sleep(BEAT_SECONDS)
            if self._content() != before:
                return True
        return False

    def _refuse(self, holder: str) -> None:
        assert self._file is not None
        os.close(self._file)
        self._file = None
        raise InputError(
            f"{self.what} is being written by {holder}: wait for it or stop it"
        ) from None

    def _beat(self) -> None:
        count = 0
        while not self._released.wait(BEAT_SECONDS):
            count += 1
            with suppress(OSError):  # told of where something of value is written
                self._write(count)

    def _write(self, count: int) -> None:
        assert self._file is not None
        holder = {"host": socket.gethostname(), "pid": os.getpid(), "count": count}
        os.pwrite(self._file, json.dumps(holder).ljust(LINE).encode() + b"\n", 0)

    def _leave_to_the_parent(self) -> None:
        """In a forked process: a worker that outlives its parent must not hold the lock."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _content(self) -> bytes:
        """Return what stands in the file now; opened anew, for file systems that cache it."""
        try:
            return self.path.read_bytes()
        except OSError:
            return b""


def _holder(content: bytes) -> dict[str, Any]:
    """Return host and pid of the holder; empty where the file does not say."""
    try:
        holder: dict[str, Any] = json.loads(content)
        return {"host": str(holder["host"]), "pid": int(holder["pid"])}
    except (ValueError, KeyError, TypeError):
        return {}


def _named(holder: dict[str, Any]) -> str:
    return f"process {holder['pid']} on {holder['host']}" if holder else "another process"


def _runs(pid: int) -> bool:
    """Return whether a process of this machine lives."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # somebody else's
        pass
    return True
