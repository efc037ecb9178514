"""The right to write one run, for one process at a time: a lease of filelock's.

Its holder touches the lock file now and then. A lock of a process of this machine that is gone is taken
over at once; one of another machine when its file has not been touched for `LEASE_SECONDS`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roformer.errors import PROCESS_LOST, InputError

if TYPE_CHECKING:
    from filelock import SoftFileLease

LEASE_SECONDS = 60.0
BEAT_SECONDS = 1.0
"""Seconds between touches, in which a second process learns that the run has a holder."""


class Lock:
    """A lock file, removed on release; messages call the run `what`."""

    def __init__(self, path: Path, what: str):
        self.path, self.what = path, what
        self._lease: SoftFileLease | None = None

    def acquire(self) -> str | None:
        """Take the lock; return a line about its last holder if that one ended without releasing it.

        Raises:
            InputError: another process holds it: its host and pid are named.
        """
        from filelock import SoftFileLease, Timeout  # training needs it, reading a record does not

        self.path.parent.mkdir(parents=True, exist_ok=True)
        lease = SoftFileLease(
            self.path,
            lease_duration=LEASE_SECONDS,
            heartbeat_interval=BEAT_SECONDS,
            on_compromise=self._lost,
        )
        holder, touched = lease.owner, self._touched()
        # `?pidns-…` tells the containers of a machine apart.
        named = f"process {holder.pid} on {holder.hostname.partition('?')[0]}" if holder else None
        try:
            lease.acquire(
                timeout=LEASE_SECONDS + BEAT_SECONDS,
                cancel_check=lambda: self._touched() not in (touched, None),
            )
        except Timeout:
            by = named or "another process"
            raise InputError(
                f"{self.what} is being written by {by}: wait for it or stop it"
            ) from None
        self._lease = lease
        return f"taking over the lock of {named}, which is gone" if named else None

    def release(self) -> None:
        """Let others have it."""
        if self._lease is not None:
            self._lease.release()

    def _lost(self, loss: Any) -> None:
        """Leave where another has taken the run over, as after a sleep of this machine: two would write."""
        if loss.reason == "owner-changed":
            told = f"error: {self.what} was taken over while this process stood still"
            print(told, file=sys.stderr, flush=True)
            os._exit(PROCESS_LOST)

    def _touched(self) -> int | None:
        return self.path.stat().st_mtime_ns if self.path.exists() else None
