"""Exclusive lock on a run folder, released whenever its process ends."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from roformer.errors import InputError

if TYPE_CHECKING:
    from filelock import BaseFileLock


class Lock:
    """A lock file that names its holder; messages name the run `what`."""

    def __init__(self, path: Path, what: str):
        self.path, self.what = path, what
        self._lock: BaseFileLock | None = None

    def acquire(self) -> None:
        """Take the lock; if another process has it, raise InputError with its host and pid."""
        from filelock import FileLock, SoftFileLock, Timeout  # reading a record does not need it

        self.path.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self.path)
        try:
            lock.acquire(blocking=False)
        except Timeout:
            holder = self.path.read_text(encoding="utf-8").strip() or "another process"
            raise InputError(
                f"{self.what} is being written by {holder}: wait for it or stop it"
            ) from None
        # On a disk without flock the library keeps its own text in the file.
        if not isinstance(lock, SoftFileLock):
            self.path.write_text(
                f"process {os.getpid()} on {socket.gethostname()}", encoding="utf-8"
            )
        self._lock = lock

    def release(self) -> None:
        """Release the lock if this process has it."""
        if self._lock is not None:
            self.path.unlink(missing_ok=True)
            self._lock.release()
            self._lock = None
