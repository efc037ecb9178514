"""Settings and fixtures of all tests."""

import gc
import os
import signal
from pathlib import Path

# A shell's background jobs ignore Ctrl-C, which the processes that tests start would inherit.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Test processes share the cores, and models this small gain nothing from a pool of threads.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# `make test ARGS=…` would give its ARGS to the `make` that tests start.
os.environ.pop("MAKEFLAGS", None)
os.environ.pop("ARGS", None)

import hypothesis
import pytest
import torch

REPOSITORY = Path(__file__).parents[1]
REAL_DATA = Path(os.environ.get("ROFORMER_TEST_DATA", REPOSITORY / "data"))
"""Real text that some tests use; they are skipped where it is absent."""

hypothesis.settings.register_profile("tests", deadline=None, max_examples=20)
hypothesis.settings.load_profile("tests")


def pytest_collection_finish():
    gc.freeze()  # no collection looks again at what was imported


@pytest.fixture(autouse=True)
def seeded():
    torch.default_generator.manual_seed(0)  # torch.manual_seed also asks for devices, slowly


@pytest.fixture
def real_data():
    if not REAL_DATA.is_dir():
        pytest.skip("needs real text: ROFORMER_TEST_DATA or data/")
    return REAL_DATA
