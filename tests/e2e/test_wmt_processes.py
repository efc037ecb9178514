"""Translation in whole processes: two ranks."""

import pytest

from tests.conftest import REPOSITORY
from tests.e2e.conftest import assert_close
from tests.e2e.test_processes import finish, start
from tests.e2e.wmt_runs import SMALL, write_parallel_text

pytestmark = pytest.mark.slow
SCRIPT = REPOSITORY / "scripts" / "wmt.py"


@pytest.fixture
def arguments(tmp_path):
    write_parallel_text(tmp_path / "text")
    text = [f"data.path={tmp_path / 'text'}", f"runtime.cache_dir={tmp_path / 'cache'}"]
    return [*SMALL, *text, f"runtime.runs_dir={tmp_path / 'runs'}"]


@pytest.mark.parametrize("bucket", [128, 256], ids=["a bucket each", "halves of one bucket"])
def test_two_processes_equal_one(arguments, bucket):
    """Catches a loss divided by a rank's own targets, and ranks that read the same pairs."""
    overrides = [f"training.bucket_tokens={bucket}", "optimizer.eps=1e-5"]
    overrides += ["optimizer.learning_rate=1e-3"]  # so that the order of sums has no time to grow
    one = finish(arguments, *overrides, runs="one", script=SCRIPT)
    two = finish(arguments, *overrides, runs="two", processes=2, script=SCRIPT)
    assert_close(two, one, tolerance=1e-4)


def test_more_processes_than_pairs_is_refused(arguments):
    overrides = ["training.tokens_per_update=60", "data.filter.max_length=50"]
    overrides += ["training.bucket_tokens=60"]
    process, _ = start(
        arguments, *overrides, "data.max_train_pairs=1", runs="thin", processes=2, script=SCRIPT
    )
    output, _ = process.communicate(timeout=120)
    assert process.returncode != 0
    assert "cannot be shared by 2 processes: raise training.tokens_per_update" in output
