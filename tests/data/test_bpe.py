"""Joint byte-pair encoding: nothing is lost, what Moses changes is written down, merges are exact."""

import pickle
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sacremoses import MosesTokenizer
from tokenizers import Tokenizer

from roformer.config.wmt import BpeConfig
from roformer.data.bpe import ALPHABET, SPECIAL_TOKENS, Bpe, split_words
from tests.data.parallel_texts import ENGLISH, GERMAN, joint_bpe, trained

BPE = cache(trained)
WORDS = ("moses", "bytes")


def there_and_back(bpe, text, language):
    return bpe.decode_batch(bpe.encode_batch([text], language), language)[0]


# --- text comes back -----------------------------------------------------------------------------


@pytest.mark.parametrize("words", WORDS)
def test_golden_sentences_come_back(words):
    for texts, language in ((ENGLISH, "en"), (GERMAN, "de")):
        ids = BPE(words).encode_batch(texts, language)
        assert BPE(words).decode_batch(ids, language) == texts
        assert len(set(map(tuple, ids))) == len(set(texts))


MOSES_CHANGES = [
    # Typographic quotes are separate tokens, and in English not known as quotes.
    ("en", "He said “yes”.", "He said “yes ”."),
    # German has no rule for the English genitive.
    ("de", "Das ist Peter's Auto.", "Das ist Peter 's Auto."),
    # Signs between words: no rule on the way back.
    ("en", "https://example.org/?a=1", "https: / / example.org /? a = 1"),
    # An entity of the text stays one, in pieces: nothing was escaped, nothing is unescaped.
    ("en", "Lounge &amp; Grill", "Lounge & amp; Grill"),
    # Currency signs stick to what follows them, per cent signs to what precedes them.
    ("de", "20 € und 5 %", "20 €und 5%"),
    # Spaces become one space and are dropped at the ends; control characters are removed.
    ("en", " two  spaces\tand\u00a0mo\x07re ", "two spaces and more"),
]


@pytest.mark.parametrize(("language", "text", "back"), MOSES_CHANGES)
def test_what_moses_changes_is_known_and_bytes_change_nothing(language, text, back):
    assert there_and_back(BPE("moses"), text, language) == back
    assert there_and_back(BPE("bytes"), text, language) == text


FULL_STOPS = (
    *("z.B.", "1.5.", "No.", "Dr.", "am", "Ä.", "é.", "end.", "7", "A.", "„so“.", "a-b", "..."),
)


@given(st.lists(st.sampled_from(FULL_STOPS) | st.text()), st.sampled_from(["en", "de"]))
def test_words_are_those_of_sacremoses(words, language):
    text = " ".join(words)
    moses = MosesTokenizer(language).tokenize(text, aggressive_dash_splits=True, escape=False)
    assert split_words([text], "moses", language) == [" ".join(moses)]


@given(st.lists(st.lists(st.sampled_from((*FULL_STOPS, "", " ")) | st.text()).map(" ".join)))
def test_words_looked_up_have_the_ids_of_whole_lines(lines):
    bpe = BPE("moses")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("roformer.data.bpe.KNOWN_WORDS", 20)
        looked_up = bpe.encode_words(lines)
    assert looked_up == [e.ids for e in bpe._tokenizer.encode_batch_fast(lines)]


@given(st.text())
def test_characters_that_were_never_seen_come_back(text):
    """Bytes restore the text; Moses, the only step that changes it, restores the words it cut."""
    assert there_and_back(BPE("bytes"), text, "en") == text
    bpe = BPE("moses")
    (words,) = split_words([text], "moses", "de")
    (ids,) = bpe.encode_words([words])
    assert bpe._tokenizer.decode(ids) == (f" {words}" if words else "")
    assert bpe.unknown_id not in ids


@pytest.mark.parametrize("words", WORDS)
@pytest.mark.parametrize("text", ["<pad>", "</s>", "x</s><unk>y"])
def test_special_tokens_spelt_in_a_text_are_text(words, text):
    (ids,) = BPE(words).encode_batch([text], "en")
    assert min(ids) >= len(SPECIAL_TOKENS)


def test_special_tokens_are_dropped_and_broken_bytes_replaced():
    bpe = BPE("bytes")
    (ids,) = bpe.encode_batch(["ß"], "de")
    spread = [bpe.end_id, *ids, bpe.end_id, bpe.pad_id, bpe.unknown_id]
    assert bpe.decode_batch([spread, [], [bpe.pad_id]], "de") == ["ß", "", ""]
    alone = 3 + ALPHABET.index("Ã")  # the first of two bytes
    assert bpe.decode_batch([[alone]], "de") == ["\ufffd"]


# --- learning ------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", WORDS)
def test_as_many_merges_as_asked_for(words):
    for merges in (1, 50, 300):
        bpe = BPE(words, merges)
        assert bpe.merges == merges
        assert bpe.size <= len(SPECIAL_TOKENS) + len(ALPHABET) + merges
    # Two of these make one entry.
    bpe = Bpe([("a", "b"), ("b", "c"), ("ab", "c"), ("a", "bc")], "bytes", "en", "de")
    assert bpe.merges == 4 and bpe.size == len(SPECIAL_TOKENS) + len(ALPHABET) + 3


def test_learning_is_joint_and_the_same_every_time():
    bpe = BPE("moses")
    assert trained("moses").fingerprint == bpe.fingerprint
    english = joint_bpe(ENGLISH, [], BpeConfig(merges=300))
    german = joint_bpe([], GERMAN, BpeConfig(merges=300))
    both, *alone = (
        sum(map(len, of.encode_batch(ENGLISH, "en") + of.encode_batch(GERMAN, "de")))
        for of in (bpe, english, german)
    )
    assert both < min(alone)


# --- files ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", WORDS)
def test_saved_loaded_and_pickled_it_is_the_same(tmp_path, words):
    bpe, texts = BPE(words), [*GERMAN, "", "</s> Ж"]
    bpe.save(tmp_path / "new" / "folder")
    for other in (Bpe.load(tmp_path / "new/folder"), pickle.loads(pickle.dumps(bpe))):
        assert other.fingerprint == bpe.fingerprint
        assert (other.words, other.source_language, other.target_language) == (words, "en", "de")
        assert other.encode_batch(texts, "de") == bpe.encode_batch(texts, "de")
    plain = Tokenizer.from_file(str(tmp_path / "new/folder/tokenizer.json"))
    lines = split_words(texts, words, "de")
    assert [plain.encode(line).ids for line in lines] == bpe.encode_words(lines)
