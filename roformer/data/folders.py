"""Folders that appear complete or not at all, whoever is killed while making them.

    with temporary_beside(folder) as temporary:
        …                                  # write everything below `temporary`
        publish(temporary, folder)         # one rename

Processes that make the same folder at once each have a temporary of their own; the first to rename
wins, and the others drop theirs.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def temporary_beside(folder: Path) -> Iterator[Path]:
    """Lend an empty folder on the same disk, and remove it if it is still there at the end.

    Raises:
        OSError: the disk is full; names the folder, which is gone by then.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    _remove_abandoned(folder.parent)
    temporary = folder.with_name(f"{folder.name}.{uuid.uuid4().hex[:8]}.tmp")
    lock = temporary.with_suffix(".lock")
    with open(lock, "a") as held:
        with suppress(OSError):  # a file system without locks: nobody will take it for abandoned
            fcntl.flock(held, fcntl.LOCK_EX)
        try:
            temporary.mkdir()
            yield temporary
        except OSError as error:
            if error.errno == errno.ENOSPC:
                what = "the disk is full; what was written is removed. Move runtime.cache_dir"
                raise OSError(errno.ENOSPC, what, str(folder)) from error
            raise
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
            lock.unlink(missing_ok=True)


@contextmanager
def one_at_a_time(folder: Path, progress: bool) -> Iterator[None]:
    """Wait while another process of this machine is making `folder`, then hold others back.

    Look whether it exists after entering: the other process may have finished it.

    Args:
        folder: what is made.
        progress: tell on stderr that it waits.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    busy = folder.with_name(f"{folder.name}.busy")
    with open(busy, "a") as held:
        with suppress(OSError):  # a file system without locks: both make it, the first one wins
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if progress:
                    print(f"waiting: another process is making {folder}", file=sys.stderr)
                fcntl.flock(held, fcntl.LOCK_EX)
        try:
            yield
        finally:
            busy.unlink(missing_ok=True)


def _remove_abandoned(parent: Path) -> None:
    """Remove what killed processes left: the system releases a lock when its holder dies."""
    for lock in parent.glob("*.lock"):
        with suppress(OSError), open(lock, "a") as held:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock.with_suffix(".tmp"), ignore_errors=True)
            lock.unlink(missing_ok=True)


def publish(temporary: Path, folder: Path) -> None:
    """Give the finished folder its name; where another process was first, keep that one's."""
    try:
        temporary.rename(folder)
    except OSError as error:
        if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
            raise
        return
    sync(folder.parent)


def sync(*paths: Path) -> None:
    """Have files and folders on disk, not only in memory."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
