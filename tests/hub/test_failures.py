"""Failures on the way to a Hub: one line, exit code 2, no hang, nothing half-read kept."""

import re

import pytest

from tests.hub import repositories
from tests.hub.repositories import TINY_BERT
from tests.hub.server import Fault
from tests.hub.test_starts import arguments, run

pytestmark = pytest.mark.slow
COMMIT, OTHER = "a" * 40, "c" * 40
MRPC = "mrpc/train-00001-of-00002.parquet"
UNREAD = "cannot be read from the Hugging Face Hub: "
WAITS = 120
"""Seconds that the clients may wait in all before they give up."""
STREAM_WAITS = 1800
"""The same of a stream: `datasets` tries 20 times, a minute apart where the rate is limited."""


def glue(name, revision=COMMIT):
    return ["glue", "task=mrpc", f"data.path={name}", f"data.revision={revision}"]


def text(name, *more, revision=COMMIT, words="org/words"):
    source = f"path: {name}, revision: {revision}{''.join(f', {key}' for key in more)}"
    vocabulary = [f"data.tokenizer.source={words}", "data.tokenizer.revision=null"]
    return ["pretrain", f"data.sources=[{{{source}}}]", *vocabulary]


def streamed(command):
    return [*command, "data.streaming=true"]


def model(name, *more):
    return ["glue", "task=mrpc", f"init_from={name}", *more]


def refused(starter, folder, pipeline, *overrides, patience=WAITS):
    """Return the one line that a start ends with; nothing was prepared or started."""
    command = arguments(folder, pipeline, *overrides)
    done = starter(folder, f"{pipeline}.py", *command, patience=patience)
    assert done.code == 2 and "Traceback" not in done.errors, done.errors
    *before, last = [line for line in done.errors.splitlines() if line.strip()]
    assert last.startswith("error: ") and not any(line.startswith("error:") for line in before)
    assert not list((folder / "cache").rglob("manifest.json"))
    assert not list((folder / "runs").rglob("config.yaml"))
    return last.removeprefix("error: ")


@pytest.fixture(scope="module")
def broken(hub):
    """Repositories that cannot be read, each for another reason."""
    glue, bert = repositories.glue_set(), repositories.bert()
    half = glue[MRPC][: len(glue[MRPC]) // 2]
    for name, files in {
        "org/gated": glue,
        "org/gated-model": bert,
        "org/damaged": bert | {"model.safetensors": b"\xff" * 200_000},
        "org/down": bert,
        "org/torn": glue | {MRPC: half + b"\xff" * (len(glue[MRPC]) - len(half))},
        "org/columns": repositories.glue_set(["sentence2"]),
        "org/glue": glue,
    }.items():
        hub.push(name, files, COMMIT)
    hub.gated |= {"org/gated": 401, "org/gated-model": 401}
    hub.faults.append(Fault("org/down", 500))


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (glue("org/nothing"), f"{UNREAD}.*'org/nothing' doesn't exist on the Hub"),
        (glue("org/glue", OTHER), f"{UNREAD}.*Revision '{OTHER}' doesn't exist"),
        (glue("org/gated"), f"{UNREAD}.*gated dataset on the Hub. You must be authenticated"),
        ([*glue("org/glue"), "task=rte"], f"{UNREAD}.*BuilderConfig 'rte' not found"),
        (glue("org/torn"), "(OSError|ArrowInvalid), "),
        (glue("org/columns"), r"\(mrpc, train\) has no column 'sentence2', but sentence1, label"),
        (
            text("org/glue", "name: mrpc", "split: test", "text_field: body"),
            "has no column 'body', but sentence1, .*: set the source's text_field",
        ),
        (
            text("org/glue", words="org/nothing"),
            "tokenizer of org/nothing .*RepositoryNotFoundError",
        ),
        (model("org/nothing"), "init_from=.*the Hub has no such model, or it is not open to you"),
        (model(TINY_BERT, f"init_revision={OTHER}"), "init_from=.*model but not this revision"),
        (model("org/gated-model"), "init_from=.*asks who may read this model"),
        (model("org/damaged"), "init_from=.*model.safetensors is damaged or incomplete"),
        (model("org/down"), "init_from=.*500 Internal Server Error"),
    ],
)
def test_what_cannot_be_read_is_one_line_that_says_why(broken, start, tmp_path, command, told):
    """Catches a damaged file reported as "an error occurred", and a column looked for too late."""
    line = refused(start, tmp_path, *command)
    assert re.search(told, line) and "An error occurred while generating" not in line, line


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        (Fault("org/busy.*README", 500), "Server error '500 Internal Server Error'"),
        (Fault("org/busy.*parquet", 429), "429 Too Many Requests"),
        (Fault("GET .*org/busy.*parquet"), "peer closed connection"),
    ],
    ids=["500", "429", "cut"],
)
def test_a_hub_that_fails_and_comes_back(hub, start, tmp_path, fault, told):
    """The error names the status, not only the missing data; the next start fetches the rest."""
    name = f"org/busy-{len(hub.log)}"
    hub.push(name, repositories.sentence_set(seed=len(hub.log)), COMMIT)
    hub.faults.append(fault)
    line = refused(start, tmp_path, *text(name))
    assert line.startswith(name) and UNREAD in line and told in line
    assert told in refused(start, tmp_path, *streamed(text(name)), patience=STREAM_WAITS)
    assert not list(start.home.rglob("*.incomplete"))
    hub.faults.remove(fault)
    if fault.status is None:
        run(start, tmp_path, *text(name))


def test_another_revision_in_the_cache_is_not_taken(hub, start, tmp_path):
    """`datasets` takes the newest that it has of any revision where the Hub fails."""
    hub.push("org/changing", repositories.sentence_set(seed=5), COMMIT)
    run(start, tmp_path / "first", *text("org/changing"))
    hub.faults.append(Fault("org/changing", 500))
    other = text("org/changing", revision=OTHER)
    for command in (other, streamed(other)):
        line = refused(start, tmp_path / "then", *command)
        assert f"the cache has another revision, not {OTHER}:" in line
    # The same revision is as good from the cache.
    run(start, tmp_path / "last", *text("org/changing"), patience=WAITS)
