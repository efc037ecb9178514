"""WordPiece: deterministic training, equality with transformers, and what broken files are told."""

import json
import os
import pickle
import re
import subprocess
import sys

import huggingface_hub
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from roformer.config.schema import TokenizerConfig
from roformer.data.tokenizers import SPECIAL_TOKENS, WordPiece, load_wordpiece, train_wordpiece
from roformer.errors import InputError

WORDS = [f"{a}{b}{c}" for a in "bdfgkl" for b in "aeiou" for c in ("ns", "rt", "m", "ll", "", "ks")]
TEXTS = [
    " ".join(WORDS[(i * 7 + j * j) % len(WORDS)] for j in range(60)) + f". Naïve {i}, [Über] 中文!"
    for i in range(200)
]


@pytest.fixture(scope="module", params=[True, False], ids=["uncased", "cased"])
def tokenizer(request):
    return train_wordpiece(TEXTS, 200, lowercase=request.param)


@pytest.fixture(scope="module")
def folder(tokenizer, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    tokenizer.save(folder)
    return folder


def train_on_one_thread():
    code = (
        "import json, sys\n"
        "from roformer.data.tokenizers import train_wordpiece\n"
        "print(train_wordpiece(json.load(sys.stdin), 200, lowercase=True).fingerprint)"
    )
    environment = {"RAYON_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        input=json.dumps(TEXTS),
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def test_training_is_a_function_of_the_text_whatever_the_threads():
    """All cores here, and one thread in another process."""
    here = {train_wordpiece(TEXTS, 200, lowercase=True).fingerprint for _ in range(3)}
    assert here == {train_on_one_thread()}


def test_a_vocabulary_has_the_size_asked_for_and_the_specials_first(tokenizer):
    assert tokenizer.size == len(set(tokenizer.vocabulary)) == 200
    assert tokenizer.vocabulary[:5] == SPECIAL_TOKENS
    assert tokenizer.special_ids == (0, 1, 2, 3, 4)
    assert train_wordpiece(TEXTS, 64, lowercase=True).size <= 64


def test_case_and_accents_follow_the_rule(tokenizer):
    same = tokenizer.encode("NAÏVE") == tokenizer.encode("naive")
    assert same is tokenizer.lowercase


def test_special_tokens_spelt_in_a_text_are_text(tokenizer):
    text = " ".join(SPECIAL_TOKENS[:1] + SPECIAL_TOKENS[2:]) + "[SEP] [MASK]ban"
    for encode in (tokenizer.encode, pickle.loads(pickle.dumps(tokenizer)).encode):
        assert not {0, 2, 3, 4} & set(encode(text))
    assert tokenizer.decode(tokenizer.encode("[")) == "["


def test_continuation_marks_pieces_inside_words(tokenizer):
    assert tokenizer.continuation.shape == (tokenizer.size,)
    assert tokenizer.continuation.dtype == np.bool_
    marked = [tokenizer.vocabulary[i] for i in np.flatnonzero(tokenizer.continuation)]
    assert marked == [entry for entry in tokenizer.vocabulary if entry.startswith("##")]
    ids = tokenizer.encode("banslllks dart")
    assert int((~tokenizer.continuation[ids]).sum()) == 2 < len(ids)


@given(st.lists(st.text(max_size=40), max_size=4))
@settings(max_examples=50, deadline=None)
def test_a_batch_is_its_texts_one_by_one(texts):
    assert UNCASED.encode_batch(texts) == [UNCASED.encode(text) for text in texts]


UNCASED = train_wordpiece(TEXTS[:40], 150, lowercase=True)


def test_transformers_opens_what_was_saved_with_equal_ids(tokenizer, folder):
    theirs = AutoTokenizer.from_pretrained(folder)
    assert type(theirs).__name__.startswith("BertTokenizer")
    assert len(theirs) == tokenizer.size
    for name in ("pad", "unk", "cls", "sep", "mask"):
        assert getattr(theirs, f"{name}_token_id") == getattr(tokenizer, f"{name}_id")
    for text in [*TEXTS[:20], "Ünknown ☃ words, 中文 x" + "y" * 200]:
        ids = [tokenizer.cls_id, *tokenizer.encode(text), tokenizer.sep_id]
        assert theirs(text)["input_ids"] == ids
    assert theirs("a [MASK]")["input_ids"][-2] == tokenizer.mask_id


def test_loading_returns_what_we_or_transformers_saved(tokenizer, folder):
    loaded = WordPiece.load(folder)
    assert loaded.fingerprint == tokenizer.fingerprint
    assert loaded.encode_batch(TEXTS) == tokenizer.encode_batch(TEXTS)
    (folder / "vocab.txt").rename(folder / "aside")
    assert WordPiece.load(folder).fingerprint == tokenizer.fingerprint  # from tokenizer.json
    (folder / "aside").rename(folder / "vocab.txt")
    theirs = folder / "theirs"
    AutoTokenizer.from_pretrained(folder).save_pretrained(theirs)
    assert WordPiece.load(theirs).fingerprint == tokenizer.fingerprint


def test_the_fingerprint_tells_order_and_case_apart():
    entries = [*SPECIAL_TOKENS, "a", "b"]
    changed = [([*SPECIAL_TOKENS, "b", "a"], True), (entries, False), ([*entries, "c"], True)]
    prints = {WordPiece(*arguments).fingerprint for arguments in [(entries, True), *changed]}
    assert len(prints) == 4


def test_the_real_vocabulary_is_read(real_data):
    source = str(real_data / "vocab" / "bert-base-uncased.txt")
    bert = load_wordpiece(TokenizerConfig(source=source))
    assert (bert.size, bert.pad_id, bert.mask_id) == (30522, 0, 103)
    assert bert.encode("Hello, embeddings!") == [7592, 1010, 7861, 8270, 4667, 2015, 999]


# --- what is wrong -------------------------------------------------------------------------------

GOOD = [*SPECIAL_TOKENS, "a", "##b"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("\n".join(GOOD[:4] + GOOD[5:]), ":6: the vocabulary ends without [MASK]: add a line"),
        ("a\nb\n", ":2: the vocabulary ends without [PAD], [UNK], [CLS], [SEP], [MASK]: add"),
        ("\n".join([*GOOD, "a", "c"]), ":8: 'a' is on line 6 too: remove one"),
        ("\n".join([*GOOD, "", "c"]), ":8: empty entry: remove the line"),
        ("", ":1: empty entry"),
        (b"[PAD]\n\xff\n", ":2: not UTF-8: is this a vocab.txt?"),
    ],
)
def test_a_broken_vocabulary_names_file_and_line(tmp_path, content, message):
    file = tmp_path / "vocab.txt"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    for source in (file, tmp_path):
        with pytest.raises(InputError, match="^" + re.escape(f"{file}{message}")):
            load_wordpiece(TokenizerConfig(source=str(source)))


def test_a_missing_path_says_what_can_be_given(tmp_path):
    for source in (f"{tmp_path}/vocab.txt", "./vocab", "bert", "no/such.txt"):
        with pytest.raises(InputError, match=rf"source={re.escape(source)} does not exist: give a"):
            load_wordpiece(TokenizerConfig(source=source))


def test_a_folder_without_a_tokenizer_or_with_another_kind(tmp_path):
    with pytest.raises(InputError, match=r"has neither vocab\.txt nor tokenizer\.json"):
        load_wordpiece(TokenizerConfig(source=str(tmp_path)))
    (tmp_path / "tokenizer.json").write_text('{"model": {"type": "BPE"}}')
    with pytest.raises(InputError, match=r"tokenizer\.json is a BPE tokenizer: only BERT's"):
        load_wordpiece(TokenizerConfig(source=str(tmp_path)))
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(InputError, match=r"tokenizer\.json is not JSON"):
        WordPiece.load(tmp_path)


def test_a_case_rule_that_contradicts_the_vocabulary_is_refused(tmp_path):
    (file := tmp_path / "vocab.txt").write_text("\n".join([*GOOD, "The", "Cat"]))
    with pytest.raises(InputError, match=r"capitals.*set data\.tokenizer\.lowercase=false"):
        load_wordpiece(TokenizerConfig(source=str(file)))
    assert load_wordpiece(TokenizerConfig(source=str(file), lowercase=False)).size == 9
    WordPiece(GOOD, lowercase=True).save(tmp_path)
    with pytest.raises(InputError, match=r"made otherwise: set data\.tokenizer\.lowercase=true"):
        load_wordpiece(TokenizerConfig(source=str(tmp_path), lowercase=False))


def test_a_hub_id_is_downloaded_at_its_revision(tmp_path, monkeypatch):
    (tmp_path / "vocab.txt").write_text("\n".join(GOOD))
    calls = []

    def hf_hub_download(repo_id, filename, *, revision=None):
        calls.append((repo_id, filename, revision))
        return str(tmp_path / filename)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", hf_hub_download)
    config = TokenizerConfig(source="google-bert/bert-base-uncased", revision="86b5")
    assert load_wordpiece(config).vocabulary == tuple(GOOD)
    assert calls == [("google-bert/bert-base-uncased", "vocab.txt", "86b5")]


def test_no_network_is_one_line_with_a_way_out(monkeypatch):
    def hf_hub_download(*_, **__):
        raise huggingface_hub.errors.LocalEntryNotFoundError("no connection\nand more")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", hf_hub_download)
    with pytest.raises(InputError, match=r"vocab.txt of a/b cannot be had.*local vocab.txt") as e:
        load_wordpiece(TokenizerConfig(source="a/b"))
    assert "\n" not in str(e.value)


def test_training_wants_text():
    with pytest.raises(InputError, match="hold no text"):
        train_wordpiece([" ", "\n"], 100, lowercase=True)
