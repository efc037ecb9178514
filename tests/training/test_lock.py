"""One process writes a run: a holder is named, and the lock of one that is gone is taken over."""

import os
import signal
import socket
import subprocess
import sys
import threading

import pytest
from filelock import SoftFileLease

from roformer.errors import InputError
from roformer.training import lock as locks
from roformer.training.lock import Lock

HOST = socket.gethostname()


@pytest.fixture(autouse=True)
def fast(monkeypatch):
    monkeypatch.setattr(locks, "BEAT_SECONDS", 0.1)
    monkeypatch.setattr(locks, "LEASE_SECONDS", 0.5)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "runs" / ".run.lock"


HOLDER = """
import os, sys, time
from pathlib import Path
from roformer.training.lock import Lock
(lock := Lock(Path(sys.argv[1]), "the run")).acquire()
if os.fork():  # a worker outlives it
    print("held", flush=True)
time.sleep(60)
"""


def test_the_second_is_refused_and_the_holder_named(path):
    held = Lock(path, "runs/a")
    assert held.acquire() is None
    with pytest.raises(InputError) as refusal:
        Lock(path, "runs/a").acquire()
    named = f"process {os.getpid()} on {HOST}"
    assert str(refusal.value) == f"runs/a is being written by {named}: wait for it or stop it"
    held.release()
    assert not path.exists()
    after = Lock(path, "runs/a")
    assert after.acquire() is None
    after.release()


def test_a_killed_holder_is_taken_over_at_once_though_its_worker_lives(path, monkeypatch):
    monkeypatch.undo()  # long leases
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdout=subprocess.PIPE, start_new_session=True
    )
    assert holder.stdout.readline() == b"held\n"
    holder.kill()
    holder.wait()
    mine = Lock(path, "the run")
    try:
        assert (
            mine.acquire()
            == f"taking over the lock of process {holder.pid} on {HOST}, which is gone"
        )
    finally:
        mine.release()
        os.killpg(holder.pid, signal.SIGKILL)


def test_on_another_machine_the_heartbeat_decides(path):
    """Its process cannot be asked for: a file that is touched has a holder, one that is not has none."""
    path.parent.mkdir()
    lease = SoftFileLease(path, lease_duration=locks.LEASE_SECONDS)
    lease.acquire()
    there = path.read_text().replace(HOST, "elsewhere")
    lease.release()
    path.write_text(there)
    path.chmod(0o600)
    stop = threading.Event()

    def beat():
        while not stop.wait(0.05):
            os.utime(path)

    (beating := threading.Thread(target=beat)).start()
    try:
        with pytest.raises(InputError, match=f"by process {os.getpid()} on elsewhere"):
            Lock(path, "the run").acquire()
    finally:
        stop.set()
        beating.join()
    mine = Lock(path, "the run")
    assert (
        mine.acquire()
        == f"taking over the lock of process {os.getpid()} on elsewhere, which is gone"
    )
    mine.release()


def test_one_that_stood_still_leaves_once_another_has_taken_over(path, monkeypatch, capsys):
    """As after a night's sleep of the machine; else two processes would write one run."""
    left = threading.Event()
    monkeypatch.setattr(os, "_exit", lambda code: left.set() if code == 4 else None)
    Lock(path, "runs/a").acquire()
    other = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(taken := path.with_name("other"))],
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        assert other.stdout.readline() == b"held\n"
        taken.replace(path)
        assert left.wait(30)
    finally:
        os.killpg(other.pid, signal.SIGKILL)
        other.wait()
        other.stdout.close()
    assert "runs/a was taken over while this process stood still" in capsys.readouterr().err
