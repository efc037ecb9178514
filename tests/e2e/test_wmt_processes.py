"""Translation in whole processes: more ranks than pairs, kills."""

import random
import signal
import time
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY
from tests.e2e.conftest import assert_same
from tests.e2e.test_processes import finish, start
from tests.e2e.wmt_runs import SMALL, write_parallel_text

pytestmark = pytest.mark.slow
SCRIPT = REPOSITORY / "scripts" / "wmt.py"


@pytest.fixture
def arguments(tmp_path):
    write_parallel_text(tmp_path / "text")
    text = [f"data.path={tmp_path / 'text'}", f"runtime.cache_dir={tmp_path / 'cache'}"]
    return [*SMALL, *text, f"runtime.runs_dir={tmp_path / 'runs'}"]


def test_more_processes_than_pairs_is_refused(arguments):
    overrides = ["training.tokens_per_update=60", "data.filter.max_length=50"]
    overrides += ["training.bucket_tokens=60"]
    process, _ = start(
        arguments, *overrides, "data.max_train_pairs=1", runs="thin", processes=2, script=SCRIPT
    )
    output, _ = process.communicate(timeout=120)
    assert process.returncode != 0
    assert "cannot be shared by 2 processes: raise training.tokens_per_update" in output


@pytest.mark.parametrize("attempt", range(2))
def test_sigkill_at_any_moment(arguments, attempt):
    """While it trains, averages or searches: the result is bitwise that of one calm run."""
    longer = ["model.hidden_dropout=0.1", "training.steps=90", "training.checkpoint_every=5"]
    calm = finish(arguments, *longer, runs="calm", script=SCRIPT)
    moments = random.Random(attempt)
    for _ in range(4):
        process, folder = start(arguments, *longer, runs="killed", script=SCRIPT)
        metrics = None
        while metrics is None and process.poll() is None:  # past the imports
            metrics = next(Path(folder).glob("wmt/*/metrics.jsonl"), None)
            time.sleep(0.02)
        time.sleep(moments.uniform(0, 2.5))
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert_same(finish(arguments, *longer, runs="killed", script=SCRIPT), calm)
