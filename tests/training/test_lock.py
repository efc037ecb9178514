"""One process writes a run: its holder is named, and the lock ends with the holder."""

import os
import socket
import subprocess
import sys

import pytest

from roformer.errors import InputError
from roformer.training.lock import Lock

HOLDER = """
import sys, time
from pathlib import Path
from roformer.training.lock import Lock
lock = Lock(Path(sys.argv[1]), "the run")
lock.acquire()
print("held", flush=True)
time.sleep(60)
"""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "runs" / ".run.lock"


def test_a_second_process_gets_an_error_that_names_the_holder(path):
    """Also that a killed holder is no obstacle, though its file is left behind."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(InputError) as refusal:
            Lock(path, "runs/a").acquire()
        holder.kill()
    named = f"process {holder.pid} on {socket.gethostname()}"
    assert str(refusal.value) == f"runs/a is being written by {named}: wait for it or stop it"
    assert path.exists()
    Lock(path, "runs/a").acquire()


def test_a_released_lock_can_be_taken_again(path):
    for _ in range(2):
        lock = Lock(path, "runs/a")
        lock.acquire()
        assert str(os.getpid()) in path.read_text()
        lock.release()
        assert not path.exists()
        lock.release()
