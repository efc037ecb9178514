"""Parallel jobs: each in a separate process, a failing one fails by itself, all stop in order."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from multiprocessing import forkserver

import pytest

from roformer.config.composing import compose
from roformer.errors import InputError
from roformer.pipelines import glue
from roformer.pipelines.grid import Job, Worker, command, run_jobs


def shell(tmp_path, *commands):
    """Return a job of each shell command, with a log."""
    return [
        command(text, ["sh", "-c", text], tmp_path, tmp_path / f"{number}.log")
        for number, text in enumerate(commands)
    ]


def test_a_failing_job_ends_no_other(tmp_path):
    ended = []
    jobs = shell(tmp_path, "exit 3", "kill -9 $$", "echo done > out")
    run_jobs(jobs, 2, ended.append)
    assert {job: job.code for job in ended} == dict(zip(jobs, (3, -9, 0), strict=True))
    assert (tmp_path / "out").is_file()


def test_as_many_run_at_once_as_there_are_places(tmp_path):
    ended = []
    meet = "touch {0}; until test -e {1}; do sleep 0.05; done"
    run_jobs(shell(tmp_path, meet.format("a", "b"), meet.format("b", "a")), 2, lambda one: None)
    run_jobs(shell(tmp_path, "sleep 0.3; touch c", "test -e c"), 1, ended.append)
    assert [one.code for one in ended] == [0, 0]


def test_ctrl_c_starts_no_more_and_lets_the_running_save(tmp_path):
    wait = "trap 'sleep 0.5; touch saved; exit' TERM; touch begun; while :; do sleep 0.05; done"

    def interrupt():
        while not (tmp_path / "begun").exists():
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        run_jobs(shell(tmp_path, wait, "touch late"), 1, lambda one: None)
    assert (tmp_path / "saved").exists() and not (tmp_path / "late").exists()


def test_a_job_that_is_just_being_started_is_stopped_too():
    begun = []

    def start(place):
        begun.append(subprocess.Popen(["sleep", "60"]))
        os.kill(os.getpid(), signal.SIGINT)
        return begun[0]

    with pytest.raises(KeyboardInterrupt):
        run_jobs([Job("x", start)], 1, lambda job: None)
    assert begun[0].poll() == -signal.SIGTERM


@pytest.mark.parametrize(("parallel", "seen"), [(1, "4,5"), (2, "5")])
def test_commands_side_by_side_have_a_gpu_each(tmp_path, monkeypatch, parallel, seen):
    """A single command gets all GPUs: it may start a process on each."""
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5")
    words = ["sh", "-c", "echo $CUDA_VISIBLE_DEVICES"]
    job = command("a", words, tmp_path, tmp_path / "log", parallel=parallel)
    assert job.start(1).wait() == 0
    assert job.last_lines(1) == [seen]


def test_the_last_lines_of_a_log_are_shown_on_a_terminal(tmp_path, monkeypatch, capsys):
    (tmp_path / "0.log").write_text("a\n\n bar 1%\r bar 2%\n\n")
    (job,) = shell(tmp_path, "echo step 1; sleep 0.5; echo step 2; sleep 0.5")
    assert job.last_lines(2) == [" bar 1%", " bar 2%"]
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    run_jobs([job], 1, lambda one: None, progress=True)
    shown = capsys.readouterr().err
    assert re.search(r"… 0:0\d  step 1", shown) and "step 2" in shown and "1/1" in shown


def work(file, code):
    signal.signal(signal.SIGINT, lambda number, frame: os._exit(3))  # as a training listens to it
    file.write_text(str(os.getpid()))
    if code == "wait":
        time.sleep(99)
    raise SystemExit(code)


@pytest.mark.slow
def test_workers_are_processes_of_their_own(tmp_path):
    forkserver.ensure_running()  # by another, before, and open to Ctrl-C
    Worker.start_server()
    jobs = [
        Job(str(code), lambda place, code=code: Worker(place, work, tmp_path / str(code), code))
        for code in (0, 5)
    ]
    ended = []
    run_jobs(jobs, 2, ended.append)
    assert {job.title: job.code for job in ended} == {"0": 0, "5": 5}
    waiting = Worker(0, work, file := tmp_path / "wait", "wait")
    while not file.exists() or not file.read_text():
        time.sleep(0.05)
    assert waiting.poll() is None and int(file.read_text()) != os.getpid()
    os.kill(int(file.read_text()), signal.SIGINT)  # Ctrl-C reaches all; the parent decides
    time.sleep(0.2)
    assert waiting.poll() is None
    waiting.terminate()
    waiting.wait()
    assert waiting.poll() == -signal.SIGTERM


def test_a_cell_that_fails_in_this_process_ends_no_other(monkeypatch):
    words = ["recipe=smoke", "task=mrpc", "optimizer.learning_rate=1e-3", "seed=[0,1,2]"]
    cells = [*glue.cells_of(compose("glue", words))]
    done = []

    def attempt(cell):
        if cell.seed == 1:
            raise InputError("another process is writing it")
        done.append(cell.seed)

    monkeypatch.setattr(glue, "attempt", attempt)
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    message = r"1 of 3 runs failed: mrpc lr 0.001 seed 1 \(another process is writing it\)"
    with pytest.raises(InputError, match=message):
        glue.run_cells(cells, 1, progress=False)
    assert done == [0, 2]
    with pytest.raises(InputError, match=r"^another process is writing it$"):
        glue.run_cells(cells[1:2], 1, progress=False)
