"""What goes wrong on the way to a Hub: one line, exit code 2, no hang, nothing half-read kept."""

from pathlib import Path

import pytest

from tests.hub import repositories
from tests.hub.conftest import Starter
from tests.hub.repositories import TINY_BERT, WORDS
from tests.hub.server import Fault
from tests.hub.test_starts import SMALL, run

pytestmark = pytest.mark.slow
COMMIT = "a" * 40
OTHER = "c" * 40
MRPC = "mrpc/train-00001-of-00002.parquet"
VOCABULARY = [f"data.tokenizer.source={WORDS}", "data.tokenizer.revision=null"]
WAITS = 120.0
"""Seconds that the clients may wait in all before they give up."""
STREAM_WAITS = 1800.0
"""The same of a stream: `datasets` tries 20 times, a minute apart where the rate is limited."""


def glue(name: str, revision: str = COMMIT) -> list[str]:
    return ["glue", "task=mrpc", f"data.path={name}", f"data.revision={revision}"]


def wmt(name: str, revision: str = COMMIT) -> list[str]:
    return ["wmt", f"data.path={name}", f"data.revision={revision}"]


def text(name: str, revision: str = COMMIT, streaming: bool = False) -> list[str]:
    source = f"data.sources=[{{path: {name}, revision: {revision}}}]"
    return ["pretrain", source, f"data.streaming={streaming}", *VOCABULARY]


def model(name: str, *more: str) -> list[str]:
    return ["glue", "task=mrpc", f"init_from={name}", *more]


def refused(starter, folder: Path, pipeline: str, *overrides: str, waits: float = WAITS) -> str:
    """Return the one line that a start ends with; nothing was prepared or begun."""
    where = [f"runtime.runs_dir={folder / 'runs'}", f"runtime.cache_dir={folder / 'cache'}"]
    arguments = [*SMALL[pipeline], *where, *overrides]
    done = starter(folder, f"{pipeline}.py", *arguments, waits=False)
    assert done.code == 2, done.errors
    assert "Traceback" not in done.errors
    *before, last = [line for line in done.errors.splitlines() if line.strip()]
    assert last.startswith("error: ") and not any(line.startswith("error:") for line in before)
    assert done.slept <= waits
    assert not list((folder / "cache").rglob("manifest.json"))
    assert not list((folder / "runs").rglob("config.yaml"))
    return last.removeprefix("error: ")


def damaged(how: str) -> dict[str, bytes]:
    files = repositories.glue_set()
    content = files[MRPC]
    middle = len(content) // 3
    torn = content[:middle] + b"\xff" * middle + content[2 * middle :]
    return files | {MRPC: content[:-10] if how == "truncated" else torn}


def test_a_data_set_that_is_not_there_or_not_open(hub, start, tmp_path):
    hub.push("datasets", "org/gated", repositories.glue_set(), COMMIT).gated = 401
    hub.push("datasets", "org/asked", repositories.glue_set(), COMMIT).gated = 403
    hub.push("datasets", "org/wmt", repositories.wmt_set(), COMMIT)
    for number, (command, told) in enumerate(
        [
            (glue("org/nothing"), "'org/nothing' doesn't exist on the Hub"),
            (text("org/nothing", streaming=True), "'org/nothing' doesn't exist on the Hub"),
            (glue("nyu-mll/glue"), f"Revision '{COMMIT}' doesn't exist"),
            (wmt("wmt/wmt14"), f"Revision '{COMMIT}' doesn't exist"),
            (glue("org/gated"), "gated dataset on the Hub. You must be authenticated"),
            (glue("org/asked"), "to ask for access"),
            ([*wmt("org/wmt"), "data.name=xx-en"], "BuilderConfig 'xx-en' not found"),
        ]
    ):
        line = refused(start, tmp_path / str(number), *command)
        assert "cannot be read from the Hugging Face Hub: " in line and told in line, line


def test_a_model_that_is_not_there_or_not_open(hub, start, faults, tmp_path):
    hub.push("models", "org/gated", repositories.bert(), COMMIT).gated = 401
    weights = {"model.safetensors": b"\xff" * 200_000}
    hub.push("models", "org/damaged", repositories.bert() | weights, COMMIT)
    bare = repositories.bert()
    del bare["model.safetensors"]
    hub.push("models", "org/bare", bare, COMMIT)
    hub.push("models", "org/down", bare, COMMIT)
    faults.append(Fault("org/down", 500))
    for number, (command, told) in enumerate(
        [
            (model("org/nothing"), "the Hub has no such model, or it is not open to you"),
            (model(TINY_BERT, f"init_revision={OTHER}"), "the model but not this revision"),
            (model("org/gated"), "asks who may read this model"),
            (model("org/damaged"), "model.safetensors is damaged or incomplete"),
            (model("org/bare"), "there is no model.safetensors"),
            (model("org/down"), "500 Internal Server Error"),
        ]
    ):
        line = refused(start, tmp_path / str(number), *command)
        assert line.startswith("init_from=org/") and told in line, line


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (Fault("org/busy.*parquet", 500), "Server error '500 Internal Server Error'"),
        (Fault("org/busy.*README", 500), "Server error '500 Internal Server Error'"),
        (Fault("org/busy.*parquet", 429), "429 Too Many Requests"),
        (Fault("GET .*(cdn|parquet)"), "peer closed connection"),
    ],
    ids=["500", "500 at once", "429", "cut"],
)
def test_a_hub_that_fails_and_comes_back(hub, start, faults, tmp_path, fault, told):
    """The status is told, not only that nothing was found; the next start fetches what is missing."""
    name = f"org/busy-{len(hub.log)}"
    hub.push("datasets", name, repositories.bookcorpus_set(seed=len(hub.log)), COMMIT)
    faults.append(fault)
    line = refused(start, tmp_path, *text(name))
    assert line.startswith(f"{name} cannot be read from the Hugging Face Hub: ") and told in line
    streamed = refused(start, tmp_path, *text(name, streaming=True), waits=STREAM_WAITS)
    assert told in streamed
    assert not list(start.home.rglob("*.incomplete"))
    faults.clear()
    if fault.status is None:
        run(start, tmp_path, *text(name))


def test_a_start_outlives_a_short_cut(hub, start, faults, tmp_path):
    hub.push("datasets", "org/flaky", repositories.bookcorpus_set(seed=77), COMMIT)
    faults.append(Fault("GET .*cdn", times=2))
    run(start, tmp_path, *text("org/flaky"))
    assert faults[0].times == 0


def test_data_of_another_shape(hub, start, tmp_path):
    """Catches a damaged file told as \"an error occurred\", and a column looked for too late."""
    translations = repositories.wmt_set(without="translation")
    one = "path: org/pairs, name: de-en, split: test, text_field: body"
    for name, files, command, told in (
        ("org/torn", damaged("torn"), glue("org/torn"), "Error, "),
        ("org/short", damaged("truncated"), glue("org/short"), "ArrowInvalid, "),
        (
            "org/columns",
            repositories.glue_set(without="sentence2"),
            glue("org/columns"),
            "(mrpc, train) has no column 'sentence2', but sentence1, label, idx",
        ),
        ("org/pairs", translations, wmt("org/pairs"), "has no column 'translation', but text"),
        (
            "org/pairs",
            translations,
            ["pretrain", f"data.sources=[{{{one}, revision: {COMMIT}}}]", *VOCABULARY],
            "has no column 'body', but text: set the source's text_field",
        ),
    ):
        hub.push("datasets", name, files, COMMIT)
        line = refused(start, tmp_path, *command)
        assert told in line and "An error occurred while generating" not in line, line


def test_another_revision_in_the_cache_is_not_taken(hub, start, faults, tmp_path):
    """`datasets` takes the newest that it has of any revision where the Hub fails."""
    hub.push("datasets", "org/changing", repositories.bookcorpus_set(seed=5), COMMIT)
    run(start, tmp_path / "first", *text("org/changing"))
    faults.append(Fault("org/changing", 500))
    for streaming in (False, True):
        line = refused(start, tmp_path / "then", *text("org/changing", OTHER, streaming))
        assert f"of revision {OTHER} nothing is in the cache" in line
    # The same revision is as good from the cache.
    run(start, tmp_path / "last", *text("org/changing"), waits=False)


def test_nothing_listens(tmp_path):
    with Starter("http://127.0.0.1:9", tmp_path / "home") as starter:
        for number, (command, told) in enumerate(
            [
                (glue("nyu-mll/glue"), "ConnectionError, Couldn't reach 'nyu-mll/glue' on the Hub"),
                (wmt("wmt/wmt14"), "ConnectionError, Couldn't reach 'wmt/wmt14' on the Hub"),
                (text("org/text"), "[Errno 111] Connection refused"),
                (model(TINY_BERT), "[Errno 111] Connection refused"),
            ]
        ):
            line = refused(starter, tmp_path / str(number), *command)
            assert told in line, line
