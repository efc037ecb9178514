"""Translation over more ranks than it has pairs."""

import pytest

from tests.conftest import REPOSITORY
from tests.e2e.test_processes import start
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
