"""A fake Hub with all that the project reads, and processes of the project that see nothing else."""

import pytest

from tests.hub import repositories
from tests.hub.repositories import GLUE, TINY_BERT, VOCABULARY, WIKIPEDIA
from tests.hub.server import fake_hub
from tests.hub.starter import Starter


@pytest.fixture(scope="session")
def hub():
    """Every repository has the pinned commit and a newer `main`, which nothing may read."""
    with fake_hub() as hub:
        tiny = repositories.bert()
        for name, commit, files, newer in (
            ("nyu-mll/glue", GLUE, repositories.glue_set(), repositories.glue_set(["idx"])),
            ("wikimedia/wikipedia", WIKIPEDIA, repositories.wikipedia_set(), {"README.md": b""}),
            ("google-bert/bert-base-uncased", VOCABULARY, tiny, {"README.md": b"newer"}),
        ):
            hub.push(name, files, commit)
            hub.push(name, newer)
        hub.push("rojagtap/bookcorpus", repositories.bookcorpus_set(seed=1))
        hub.push("rojagtap/bookcorpus", repositories.bookcorpus_set())
        hub.push(TINY_BERT, tiny)
        hub.push("org/words", {"vocab.txt": tiny["vocab.txt"]})
        yield hub


@pytest.fixture(scope="session")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("hub") / "home"


@pytest.fixture(scope="session")
def start(hub, home):
    with Starter(hub.endpoint, home) as starter:
        yield starter
        # The one other address: `datasets` counts downloads there, and does not mind its absence.
        assert set(starter.escapes.read_text().split()) <= {"s3.amazonaws.com"}
