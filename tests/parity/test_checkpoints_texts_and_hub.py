"""Models of others read texts by their own tokenizer or not at all, and are found on the Hub."""

import json

import huggingface_hub
import pytest
import torch
from transformers import BertForMaskedLM, RoFormerForMaskedLM, RoFormerTokenizer

from roformer.data.tokenizers import WordPiece
from roformer.errors import InputError
from roformer.models.encoder import MaskedLM
from tests.data.glue_tasks import COMMIT, TOKENIZER
from tests.parity.hugging_face_models import (
    MASKED_LMS,
    TOLERANCE,
    as_pickle,
    configure,
    load,
    refusal,
    saved,
    start,
)

# --- tokenizers ----------------------------------------------------------------------------------


def settings(folder, **stated):
    (folder / "tokenizer_config.json").write_text(json.dumps(stated))
    (folder / "tokenizer.json").unlink(missing_ok=True)


def chinese_words(folder):
    """Leave the class unsaid, with a vocabulary that holds a word of two characters."""
    settings(folder)
    lines = (folder / "vocab.txt").read_text().splitlines()
    lines[-1] = "\u5929\u6c14"
    (folder / "vocab.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def no_files(folder):
    for name in ("vocab.txt", "tokenizer.json"):
        (folder / name).unlink()


OTHER_TOKENIZERS = {
    "words, cut into characters": (
        lambda f: (chinese_words(f), configure(f, tokenizer_class="BertTokenizer")),
        "BertTokenizer, which cuts Chinese into characters, but its vocabulary has words",
    ),
    "another class": (
        lambda f: settings(f, tokenizer_class="BertJapaneseTokenizer"),
        "its tokenizer is BertJapaneseTokenizer",
    ),
    "accents": (
        lambda f: settings(f, tokenizer_class="BertTokenizer", strip_accents=False),
        "BertTokenizer with strip_accents=False",
    ),
    "characters": (
        lambda f: settings(f, tokenizer_class="BertTokenizer", tokenize_chinese_chars=False),
        "tokenize_chinese_chars=false",
    ),
    "added": (
        lambda f: (f / "added_tokens.json").write_text(json.dumps({"[NEW]": 59})),
        r"added tokens \(\[NEW\]\)",
    ),
    "none": (no_files, "comes without a tokenizer"),
}


@pytest.mark.parametrize(("change", "message"), OTHER_TOKENIZERS.values(), ids=OTHER_TOKENIZERS)
def test_texts_are_never_cut_by_another_tokenizer(change, message, tmp_path):
    """The model loads and computes; what needs texts names the tokenizer that is not here."""
    theirs = saved(RoFormerForMaskedLM, tmp_path)
    change(tmp_path)
    trained = load(tmp_path)
    ids = torch.randint(5, TOKENIZER.size, (1, 9))
    with torch.no_grad():
        assert (trained.model(ids) - theirs(ids).logits).abs().max() <= TOLERANCE
    for use in (lambda: trained.tokenizer, lambda: trained.fill_mask("[MASK]")):
        with pytest.raises(InputError, match=message) as refused:
            use()
        assert "\n" not in str(refused.value)
    with pytest.raises(InputError, match=f"cannot be fine-tuned on texts: .*{message}"):
        start(tmp_path)


WORDS = {
    "in its settings": lambda f: settings(f, tokenizer_class="RoFormerTokenizer"),
    "in its settings, Chinese characters left together": lambda f: settings(
        f, tokenizer_class="RoFormerTokenizer", tokenize_chinese_chars=False
    ),
    "in config.json": lambda f: (
        settings(f),
        configure(f, tokenizer_class="RoFormerTokenizerFast"),
    ),
    "unsaid": lambda f: None,
    "as transformers saves it": lambda f: RoFormerTokenizer(
        vocab={entry: i for i, entry in enumerate(WordPiece.load(f).vocabulary)}
    ).save_pretrained(f),
}


@pytest.mark.parametrize("model_class", MASKED_LMS, ids=["bert", "roformer"])
@pytest.mark.parametrize("named", WORDS)
def test_models_of_words_read_texts(named, model_class, tmp_path):
    """WoBERT and RoFormer: a word of the vocabulary is one token, wherever the class is named."""
    saved(model_class, tmp_path)
    chinese_words(tmp_path)
    WORDS[named](tmp_path)
    trained = load(tmp_path)
    word = TOKENIZER.size - 1
    assert trained.tokenizer.words == "jieba"
    assert trained.tokenizer.encode("\u5929\u6c14a") == [word, TOKENIZER.encode("a")[0]]
    assert trained.fill_mask("\u5929\u6c14[MASK]") and start(tmp_path).tokenizer.words == "jieba"


def test_models_of_characters_read_texts(tmp_path):
    """Their config.json names BertTokenizer; where nothing does, the vocabulary has no words."""
    saved(RoFormerForMaskedLM, tmp_path)
    settings(tmp_path)
    assert load(tmp_path).fill_mask("[MASK]")
    configure(tmp_path, tokenizer_class="BertTokenizer")
    assert load(tmp_path).tokenizer.fingerprint == TOKENIZER.fingerprint


# --- the Hub -------------------------------------------------------------------------------------


def hub(monkeypatch, folder):
    """Stand in for the download; returns what was asked for."""
    asked = []

    def snapshot(repository, *, revision=None, allow_patterns=None):
        asked.append((repository, revision, allow_patterns))
        return str(folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    return asked


@pytest.mark.parametrize("name", ["junnyu/roformer_chinese_char_small", "bert-base-uncased"])
def test_a_hub_id_is_read_at_its_revision_and_pickles_never(name, tmp_path, monkeypatch):
    snapshot = tmp_path / COMMIT
    saved(BertForMaskedLM, snapshot)
    asked = hub(monkeypatch, snapshot)
    assert isinstance(load(name, revision="v1").model, MaskedLM)
    assert start(name).name == name and start(name).revision == COMMIT
    as_pickle(snapshot)
    assert "no model.safetensors" in refusal(name) and "refs/pr/1" in refusal(name)
    assert {repository for repository, _, _ in asked} == {name} and asked[0][1] == "v1"
    assert not any(".bin" in pattern for _, _, patterns in asked for pattern in patterns)


@pytest.mark.parametrize(
    ("error", "message"),
    [
        ("RepositoryNotFoundError", "the Hub has no such model"),
        ("RevisionNotFoundError", "not this revision"),
        ("LocalEntryNotFoundError", "cannot be reached, and the cache does not have it"),
        ("ConnectionError", "ConnectionError, no route"),
    ],
)
def test_a_hub_that_fails_is_told_in_one_line(error, message, monkeypatch):
    def snapshot(repository, **_):
        raise type(error, (Exception,), {})("no route\nto the Hub")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    found = refusal("owner/name", revision="v1")
    assert "at revision v1" in found and message in found and "HF_HUB_OFFLINE=1" in found
    with pytest.raises(InputError, match="init_from=owner/name cannot be read"):
        start("owner/name")


def test_an_offline_machine_without_the_model_says_so(monkeypatch, tmp_path):
    """Through the library itself, with nothing in its cache."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    assert "cannot be read as a Hugging Face model: no such folder here" in refusal("owner/name")
