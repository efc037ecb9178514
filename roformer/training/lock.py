"""A lock file, so that one process at a time writes a run.

The kernel releases the lock (flock) when its process ends, however it ends. Some file systems that
machines share keep flocks to one machine, or have none: there the holder's heartbeat decides, a count
in the file. A count that stands still belongs to a holder that is gone; no clocks are compared.
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
"""Seconds between two beats of a holder."""
BEATS_TO_WAIT = 4
"""Beats without a count after which a holder on another machine is taken to be gone."""
LINE = 200
"""Bytes of the file, so that a shorter content replaces a longer one whole."""


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

    def acquire(self) -> str | None:
        """Take the lock; return a line about its last holder if that one ended without releasing it.

        Raises:
            InputError: another process holds it: its host and pid are named.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
        holder = self._holder()
        named = f"process {holder['pid']} on {holder['host']}" if holder else "another process"
        if not self._can_take(file, holder):
            os.close(file)
            raise InputError(f"{self.what} is being written by {named}: wait for it or stop it")
        if os.fstat(file).st_nlink == 0:  # its holder has released and removed it meanwhile
            os.close(file)
            return self.acquire()
        self._file = file
        self._write(0)
        os.register_at_fork(after_in_child=self._close)  # workers must not outlive it with the lock
        self._beating = threading.Thread(target=self._beat, daemon=True)
        self._beating.start()
        return f"taking over the lock of {named}, which is gone" if holder else None

    def release(self) -> None:
        """Let others have it."""
        if self._file is None:
            return
        self._released.set()
        self._beating.join()
        with suppress(OSError):  # a disk that became read-only; the kernel's lock goes all the same
            self.path.unlink()
        self._close()

    def _can_take(self, file: int, holder: dict[str, Any]) -> bool:
        """Take the kernel's lock; return whether nobody has it and the holder in the file is gone."""
        flocked = True
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:  # this file system has no such locks
            flocked = False
        if not holder or (flocked and holder["host"] == socket.gethostname()):
            return True
        for _ in range(BEATS_TO_WAIT):
            time.sleep(BEAT_SECONDS)
            if self._holder() != holder:
                return False
        return True

    def _beat(self) -> None:
        count = 0
        while not self._released.wait(BEAT_SECONDS):
            count += 1
            with suppress(OSError):  # a full disk is reported where something of value is written
                self._write(count)

    def _write(self, count: int) -> None:
        assert self._file is not None
        holder = {"host": socket.gethostname(), "pid": os.getpid(), "count": count}
        os.pwrite(self._file, json.dumps(holder).ljust(LINE).encode() + b"\n", 0)

    def _holder(self) -> dict[str, Any]:
        """Return what the file says now, {} if nothing; opened anew, as some file systems cache it."""
        try:
            holder = json.loads(self.path.read_bytes())
            return holder if {"host", "pid", "count"} <= holder.keys() else {}
        except (OSError, ValueError, AttributeError):
            return {}

    def _close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
