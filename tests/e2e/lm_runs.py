"""Small language-model runs of both kinds, on the corpus of the pre-training tests."""

from tests.e2e.conftest import BLOCKS, COMMON, run_in_process
from tests.e2e.conftest import SMALL as TOKENS

SMALL = {
    "charlm": [
        *(*COMMON, *BLOCKS, "data=files", "data.max_bytes=40000"),
        *("model.attention.features=32", "model.attention.redraw_interval=10"),
    ],
    "clm": [*TOKENS, "data.max_documents=null"],
}


def small_run(pipeline: str, where: list[str], *overrides: str, runs: str = "runs"):
    """Run in this process; see `run_in_process`."""
    return run_in_process(pipeline, [*SMALL[pipeline], *where], *overrides, runs=runs)
