"""Two runs to measure, on the corpus of the end-to-end tests."""

import pytest

from tests.e2e.conftest import SMALL, corpus, small_run

__all__ = ["corpus"]
BRIEF = ["training.steps=2", "training.evaluate_every=2", "training.checkpoint_every=1", "seed=3"]


@pytest.fixture(scope="session")
def runs(corpus, tmp_path_factory):
    """Return the folders of a rotary and a learned run of two steps that change no weight."""
    folder = tmp_path_factory.mktemp("measured") / "runs"
    base = [*SMALL, *corpus, f"runtime.runs_dir={folder}", "optimizer.learning_rate=1e-30", *BRIEF]
    learned = ["model/position=learned", "model.position.max_positions=64"]
    return [small_run(base, *words)[1] for words in ([], learned)]


@pytest.fixture(scope="session")
def run(runs):
    """Return the folder of the rotary run."""
    return runs[0]
