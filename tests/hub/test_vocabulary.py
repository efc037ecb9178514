"""A vocabulary of the Hub: read at its revision, or one line that says why not."""

import time

import pytest
from huggingface_hub import constants

from roformer.config.schema import TokenizerConfig
from roformer.data.tokenizers import load_wordpiece
from roformer.errors import InputError
from tests.hub.server import FakeHub, Fault

COMMIT = "0123456789abcdef0123456789abcdef01234567"
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b"]
FILES = {"model.safetensors": b"weights", "vocab.txt": "\n".join(WORDS).encode()}


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
