"""One process writes a run: a holder is named, and the lock of one that is gone is taken over."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import pytest

from roformer.errors import InputError
from roformer.training import lock as locks
from roformer.training.lock import Lock


@pytest.fixture(autouse=True)
def fast(monkeypatch):
    monkeypatch.setattr(locks, "BEAT_SECONDS", 0.05)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "runs" / ".run.lock"


def plant(path, host, pid, count=0):
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"host": host, "pid": pid, "count": count}))


HOLDER = """
import os, sys, time
from pathlib import Path
from roformer.training.lock import Lock
Lock(Path(sys.argv[1]), "the run").acquire()
if not os.fork():  # the worker tells, for it has let go of the lock when it comes this far
    print("held", flush=True)
time.sleep(60)
"""


def test_the_second_is_refused_and_the_holder_named(path):
    held = Lock(path, "runs/a")
    assert held.acquire() is None
    with pytest.raises(InputError) as refusal:
        Lock(path, "runs/a").acquire()
    named = f"process {os.getpid()} on {socket.gethostname()}"
    assert str(refusal.value) == f"runs/a is being written by {named}: wait for it or stop it"
    held.release()
    assert not path.exists()
    after = Lock(path, "runs/a")
    assert after.acquire() is None
    after.release()


def test_a_killed_holder_is_taken_over_though_its_worker_lives(path):
    """Catches a lock that forked data workers keep for some seconds after a kill."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdout=subprocess.PIPE, start_new_session=True
    )
    assert holder.stdout.readline() == b"held\n"
    with pytest.raises(InputError, match=f"by process {holder.pid} on"):
        Lock(path, "the run").acquire()
    holder.kill()
    holder.wait()
    mine = Lock(path, "the run")
    try:
        assert f"process {holder.pid} on {socket.gethostname()}, which is gone" in mine.acquire()
    finally:
        mine.release()
        os.killpg(holder.pid, signal.SIGKILL)


@pytest.mark.parametrize("kernel", [True, False], ids=["another machine", "no kernel locks"])
def test_without_a_common_kernel_lock_the_heartbeat_decides(path, monkeypatch, kernel):
    def unsupported(*arguments):
        raise OSError(95, "Operation not supported")

    host = "elsewhere" if kernel else socket.gethostname()
    if not kernel:
        monkeypatch.setattr(locks.fcntl, "flock", unsupported)
    plant(path, host, 7)
    stop = threading.Event()

    def beat():
        count = 0
        while not stop.wait(0.01):
            count += 1
            plant(path, host, 7, count)

    beating = threading.Thread(target=beat)
    beating.start()
    try:
        with pytest.raises(InputError, match=f"by process 7 on {host}"):
            Lock(path, "the run").acquire()
    finally:
        stop.set()
        beating.join()
    mine = Lock(path, "the run")
    assert mine.acquire() == f"taking over the lock of process 7 on {host}, which is gone"
    mine.release()


@pytest.mark.parametrize("content", [b"", b"\x00\xff", b'{"host": 1}'])
def test_a_file_without_a_holder_is_taken(path, content):
    path.parent.mkdir()
    path.write_bytes(content)
    mine = Lock(path, "the run")
    assert mine.acquire() is None
    assert json.loads(path.read_bytes()[: locks.LINE])["pid"] == os.getpid()
    mine.release()


def test_it_counts_while_it_is_held(path):
    held = Lock(path, "the run")
    held.acquire()
    seen, deadline = set(), time.monotonic() + 20
    while len(seen) < 3 and time.monotonic() < deadline:
        seen.add(json.loads(path.read_bytes()[: locks.LINE])["count"])
    held.release()
    assert len(seen) == 3
