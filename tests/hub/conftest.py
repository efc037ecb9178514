"""A fake Hub with all that the project reads, and processes of the project that see nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.conftest import REPOSITORY
from tests.hub import repositories
from tests.hub.repositories import GLUE, TINY_BERT, VOCABULARY, WIKIPEDIA, WMT, WORDS
from tests.hub.server import FakeHub

HERE = Path(__file__).parent


class Done(NamedTuple):
    """What a process left behind."""

    code: int
    output: str
    errors: str
    slept: float
    """Seconds that it wanted to sleep, where nobody waited."""


@pytest.fixture(scope="session")
def hub():
    """Every repository has the pinned commit and a newer `main`, which nothing may read."""
    with FakeHub() as hub:
        tiny = repositories.bert()
        for name, commit, files, newer in (
            ("nyu-mll/glue", GLUE, repositories.glue_set(), repositories.glue_set(without="idx")),
            ("wmt/wmt14", WMT, repositories.wmt_set(), repositories.wmt_set(without="translation")),
            ("wikimedia/wikipedia", WIKIPEDIA, repositories.wikipedia_set(), {"README.md": b""}),
        ):
            hub.push("datasets", name, files, commit)
            hub.push("datasets", name, newer)
        hub.push("datasets", "rojagtap/bookcorpus", repositories.bookcorpus_set(seed=1))
        hub.push("datasets", "rojagtap/bookcorpus", repositories.bookcorpus_set())
        hub.push("models", "google-bert/bert-base-uncased", tiny, VOCABULARY)
        hub.push("models", "google-bert/bert-base-uncased", {"README.md": b"newer"})
        hub.push("models", TINY_BERT, tiny)
        hub.push("models", WORDS, {"vocab.txt": tiny["vocab.txt"]})
        yield hub


@pytest.fixture
def faults(hub):
    """The hub's faults, none at the start of a test and none after it."""
    hub.faults.clear()
    yield hub.faults
    hub.faults.clear()


class Starter:
    """Runs scripts of the project in processes of their own; see `tests.hub.starter`.

    They reach `endpoint` and nothing else; whom else they tried is written into `escapes`.
    """

    def __init__(self, endpoint: str, home: Path, **more: str) -> None:
        self.home, self.escapes = home, home.with_name("escapes")
        self.escapes.touch()
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "HUGGING"))}
        path = [str(HERE / "alone"), str(REPOSITORY), *filter(None, [kept.get("PYTHONPATH")])]
        ours = {"PYTHONPATH": os.pathsep.join(path), "OMP_NUM_THREADS": "1"}
        ours |= {"HF_ENDPOINT": endpoint, "HF_HOME": str(home), "ESCAPES": str(self.escapes)}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.hub.starter"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=REPOSITORY,
            env=kept | ours | more,
        )

    def __call__(self, folder: Path, script: str, *arguments: str, waits: bool = True) -> Done:
        """Run a script to its end; unless it `waits`, a client's pauses are added up instead."""
        folder.mkdir(parents=True, exist_ok=True)
        command = [str(REPOSITORY / "scripts" / script), *arguments]
        order = {"command": command, "folder": str(folder), "fast_clock": not waits}
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        output, errors = ((folder / name).read_text() for name in ("stdout", "stderr"))
        return Done(answer["code"], output, errors, answer["slept"])

    def __enter__(self) -> Starter:
        return self

    def __exit__(self, *error: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(30)


@pytest.fixture(scope="session")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("hub") / "home"


@pytest.fixture(scope="session")
def start(hub, home):
    with Starter(hub.endpoint, home) as starter:
        yield starter
        # The one other address: `datasets` counts downloads there, and does not mind its absence.
        assert set(starter.escapes.read_text().split()) <= {"s3.amazonaws.com"}
