"""Process settings of the scripts, and settings that they leave unchanged."""

import os
import subprocess
import sys

import pytest
import torch

from roformer.training import process
from roformer.training.process import SLACK, KeptMemory, tune_process

GB = 1 << 30
SCRIPT = """
from roformer import cli

cli.act = lambda *_: __import__("torch")
cli.main("pretrain")
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tuned", "given", "turns"),
    [
        ("true", {}, range(1000, 1001)),
        ("true", {"GOMP_SPINCOUNT": "77"}, range(77, 78)),
        ("false", {}, range(1001, 10**12)),
    ],
)
def test_threads_of_a_script_sleep_soon_unless_it_is_left_alone(tmp_path, tuned, given, turns):
    """As libgomp prints it when torch loads it: it reads its settings only then."""
    names = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
    environment = {name: value for name, value in os.environ.items() if name not in names}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, "recipe=smoke", f"runtime.tune_process={tuned}"],
        env={**environment, **given, "OMP_DISPLAY_ENV": "verbose"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    rows = (line.split(" = ") for line in done.stderr.splitlines() if " = " in line)
    shown = {name.split()[-1]: value.strip("'") for name, value in rows}
    if "GOMP_SPINCOUNT" not in shown:
        pytest.skip("torch brings another OpenMP runtime")
    assert int(shown["GOMP_SPINCOUNT"]) in turns


@pytest.mark.parametrize(
    ("given", "threads"),
    [
        ({}, 4),
        ({"OMP_NUM_THREADS": "3"}, 3),
        ({"OMP_NUM_THREADS": "1", "LOCAL_WORLD_SIZE": "2"}, 2),  # as torchrun sets them
    ],
)
def test_threads_are_the_users_number_or_a_share_of_the_cores(monkeypatch, given, threads):
    for name in ("OMP_NUM_THREADS", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name in process.CACHES:
        monkeypatch.setenv(name, "64")
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(process, "usable_cores", lambda: [0, 1, 2, 3])
    monkeypatch.setattr(process, "_of_glibc", lambda name: None)
    monkeypatch.setattr(torch, "set_num_threads", lambda number: None)
    monkeypatch.setattr(torch.backends.cuda, "enable_cudnn_sdp", lambda on: None)
    assert tune_process()["threads"] == threads
    assert tune_process(threads=5)["threads"] == 5


def test_cudnn_plans_no_attention(monkeypatch):
    monkeypatch.setattr(process, "_of_glibc", lambda name: None)
    for cache in process.CACHES:
        monkeypatch.setenv(cache, "64")
    threads, before = torch.get_num_threads(), torch.backends.cuda.cudnn_sdp_enabled()
    try:
        torch.backends.cuda.enable_cudnn_sdp(True)
        assert tune_process(threads=threads) == {"threads": threads, "allocator": False}
        assert not torch.backends.cuda.cudnn_sdp_enabled()
    finally:
        torch.backends.cuda.enable_cudnn_sdp(before)


def given_back(monkeypatch, sizes):
    """Return the steps, from 0, after which memory is given back, of the sizes held in GB."""
    left, found = list(sizes), []
    monkeypatch.setattr(process, "anonymous_memory", lambda: left.pop(0) * GB)
    memory = KeptMemory(limited=True)
    memory._trim = lambda pad: found.append(len(sizes) - len(left) - 1)
    for _ in sizes:
        memory.after_step()
    return found


@pytest.mark.parametrize(
    ("sizes", "steps"),
    [
        ([1, 1.1, SLACK, SLACK + 0.1, 0.9, 1.2], [3]),
        # The need of a step is the largest size among steps that began with nothing kept.
        ([1, 2, 1.8, 1.8 * SLACK - 0.1, 1.8 * SLACK + 0.1], [1, 4]),
    ],
)
def test_memory_is_given_back_when_it_is_well_above_what_a_step_needs(monkeypatch, sizes, steps):
    assert given_back(monkeypatch, sizes) == steps


def test_a_process_left_alone_gives_nothing_back():
    memory = KeptMemory(limited=False)
    assert memory._trim is None
    memory.after_step()
    memory.give_back()
