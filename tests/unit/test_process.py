"""What the scripts set in their process, and what they leave alone."""

import os
import subprocess
import sys
import tempfile

import pytest

from roformer.training import process
from roformer.training.process import SLACK, KeptMemory

GB = 1 << 30
SCRIPT = """
from roformer.cli import run
from roformer.config.schema import PretrainConfig

run("pretrain", PretrainConfig, lambda config: __import__("torch"))
"""


def effective(*arguments: str, **variables: str) -> dict[str, str]:
    """Return the settings that libgomp tells when torch loads it, in a process that a script starts."""
    names = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
    environment = {name: value for name, value in os.environ.items() if name not in names}
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, "recipe=smoke", *arguments],
            env={**environment, "OMP_DISPLAY_ENV": "verbose", **variables},
            cwd=folder,
            capture_output=True,
            text=True,
            check=True,
        )
    rows = (line.split(" = ") for line in done.stderr.splitlines() if " = " in line)
    told = {name.split()[-1]: value.strip("'") for name, value in rows}
    if "GOMP_SPINCOUNT" not in told:
        pytest.skip("torch brings another OpenMP runtime")
    return told


def test_threads_of_a_script_sleep_soon():
    assert effective()["GOMP_SPINCOUNT"] == "1000"


def test_how_threads_wait_is_left_alone_on_request():
    assert int(effective("runtime.tune_process=false")["GOMP_SPINCOUNT"]) > 1000
    assert effective(GOMP_SPINCOUNT="77")["GOMP_SPINCOUNT"] == "77"
    assert effective(OMP_WAIT_POLICY="active")["OMP_WAIT_POLICY"] == "ACTIVE"


@pytest.fixture
def held(monkeypatch):
    """Return what the next update leaves in RAM, in a list, and count what is given back."""
    sizes: list[float] = []
    monkeypatch.setattr(process, "anonymous_memory", lambda: sizes.pop(0) * GB)
    return sizes


def given_back(memory: KeptMemory, sizes: list[float]) -> list[int]:
    """Return the updates, from 0, after which memory is given back."""
    found, trims = [], []
    memory._trim = lambda pad: trims.append(pad)
    for update in range(len(sizes)):
        before = len(trims)
        memory.after_update()
        if len(trims) > before:
            found.append(update)
    return found


def test_memory_is_given_back_when_it_is_well_above_what_an_update_needs(held):
    held += [1, 1.1, SLACK, SLACK + 0.1, 0.9, 1.2]
    assert given_back(KeptMemory(limited=True), held) == [3]


def test_the_need_is_that_of_the_largest_update_that_began_with_nothing_kept(held):
    held += [1, 2, 1.8, 1.8 * SLACK - 0.1, 1.8 * SLACK + 0.1]
    assert given_back(KeptMemory(limited=True), held) == [1, 4]


def test_a_process_left_alone_gives_nothing_back():
    memory = KeptMemory(limited=False)
    assert memory._trim is None
    memory.after_update()
    memory.give_back()
