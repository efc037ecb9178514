"""Language models over two processes are those of one."""

import pytest

from tests.conftest import REPOSITORY
from tests.e2e.conftest import assert_close
from tests.e2e.lm_runs import PIPELINES, SMALL
from tests.e2e.test_processes import finish, start

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_two_processes_are_one(pipeline, corpus, tmp_path):
    """Weights and metrics, with an odd batch. Catches a share that is lost or counted twice."""
    script = REPOSITORY / "scripts" / f"{pipeline}.py"
    arguments = [*SMALL[pipeline], *corpus, f"runtime.runs_dir={tmp_path / 'runs'}"]
    # At a low rate, so that the order of sums has no time to grow into another trajectory.
    odd = ["training.batch_size=7", "training.valid_sequences=12", "optimizer.learning_rate=1e-4"]
    one, two = (
        finish(arguments, *odd, runs=f"of_{count}", processes=count, script=script)
        for count in (1, 2)
    )
    assert_close(two, one)


def test_more_processes_than_blocks_is_refused(corpus, tmp_path):
    arguments = [*SMALL["charlm"], *corpus, f"runtime.runs_dir={tmp_path / 'runs'}"]
    script = REPOSITORY / "scripts" / "charlm.py"
    process, _ = start(arguments, "training.batch_size=1", runs="thin", processes=2, script=script)
    output, _ = process.communicate(timeout=120)
    assert process.returncode != 0
    assert "error: training.batch_size=1 is less than the 2 processes" in output
