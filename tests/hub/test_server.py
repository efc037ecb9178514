"""The fake Hub as the pinned clients see it, without a process: listings, downloads, errors."""

import time

import huggingface_hub
import pytest
from huggingface_hub import constants
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from roformer.config.schema import TokenizerConfig
from roformer.data.tokenizers import load_wordpiece
from roformer.errors import InputError
from tests.hub.server import FakeHub, Fault

COMMIT = "0123456789abcdef0123456789abcdef01234567"
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b"]
FILES = {f"{letter}/{number}.json": b"{}" for letter in "ab" for number in range(5)} | {
    "model.safetensors": bytes(range(256)) * 40,
    "pytorch_model.bin": b"1",
    "vocab.txt": "\n".join(WORDS).encode(),
}


@pytest.fixture
def small(tmp_path, monkeypatch):
    """A hub that this process's client is sent to, with a cache of its own and no waiting."""
    with FakeHub() as hub:
        hub.push("models", "org/model", FILES, COMMIT)
        hub.push("models", "org/model", {"vocab.txt": b"newer"})
        template = hub.endpoint + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "ENDPOINT", hub.endpoint)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setattr(time, "sleep", lambda seconds: None)
        yield hub


def snapshot(hub, **options):
    wanted = {"revision": COMMIT} | options
    return huggingface_hub.snapshot_download("org/model", endpoint=hub.endpoint, **wanted)


def test_a_snapshot_is_the_files_of_its_commit_that_are_wanted(small):
    """Through several pages of the listing, and over the other host that keeps LFS files."""
    folder = snapshot(small, allow_patterns=["*.json", "*.safetensors"])
    wanted = {name for name in FILES if name.endswith(("json", "safetensors"))}
    assert small.fetched("org/model") == {f"{COMMIT}/{name}" for name in wanted}
    for name in wanted:
        with open(f"{folder}/{name}", "rb") as file:
            assert file.read() == FILES[name]
    assert len(small.asked("/tree/")) == 4 and len(small.asked("GET /cdn/")) == 1
    before = len(small.log)
    assert snapshot(small, allow_patterns=["*.json", "*.safetensors"]) == folder
    assert not small.asked(since=before)


def test_a_cut_download_goes_on_where_it_stopped(small, monkeypatch):
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 1024)
    small.faults.append(Fault("GET /cdn/", times=1))
    folder = snapshot(small, allow_patterns="*.safetensors")
    with open(f"{folder}/model.safetensors", "rb") as file:
        assert file.read() == FILES["model.safetensors"]
    assert [request.range for request in small.asked("GET /cdn/")] == [None, "bytes=5120-"]


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"repo_id": "org/nothing"}, RepositoryNotFoundError),
        ({"revision": "f" * 40}, RevisionNotFoundError),
        ({"filename": "nothing.txt"}, EntryNotFoundError),
        ({"repo_id": "org/gated"}, GatedRepoError),
    ],
)
def test_what_is_not_there_is_refused_in_the_hubs_words(small, change, error):
    small.push("models", "org/gated", FILES, COMMIT).gated = 401
    wanted = {"repo_id": "org/model", "filename": "vocab.txt", "revision": COMMIT} | change
    with pytest.raises(error):
        huggingface_hub.hf_hub_download(endpoint=small.endpoint, **wanted)


def test_a_vocabulary_is_read_at_its_revision(small):
    words = load_wordpiece(TokenizerConfig(source="org/model", revision=COMMIT))
    assert list(words.vocabulary) == WORDS
    assert small.revisions("org/model") == {COMMIT}
    assert small.fetched("org/model") == {f"{COMMIT}/vocab.txt"}


@pytest.mark.parametrize(
    ("source", "fault", "told"),
    [
        ("org/nothing", None, "RepositoryNotFoundError, 404"),
        ("org/gated", None, "GatedRepoError, 403"),
        ("org/model", 500, "HfHubHTTPError, Server error '500 Internal Server Error'"),
        ("org/model", 429, "HfHubHTTPError, 429 Too Many Requests"),
    ],
)
def test_a_vocabulary_that_cannot_be_had_is_one_line_that_says_why(small, source, fault, told):
    """Catches the client's `LocalEntryNotFoundError` told instead of what happened."""
    small.push("models", "org/gated", FILES, COMMIT).gated = 403
    small.faults += [Fault("org/model", fault)] if fault else []
    with pytest.raises(InputError) as caught:
        load_wordpiece(TokenizerConfig(source=source, revision=COMMIT))
    message = str(caught.value)
    assert message.startswith(
        f"vocab.txt of {source} cannot be had from the Hugging Face Hub: {told}"
    )
    assert "\n" not in message
