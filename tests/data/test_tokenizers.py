"""WordPiece: deterministic training, equality with transformers, and the errors of broken files."""

import pickle
import re

import pytest

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


def test_a_vocabulary_is_a_function_of_the_text_of_the_size_asked_for(tokenizer):
    """`test_text` asks for it with other threads in another process."""
    for texts in (TEXTS, TEXTS[::-1]):
        again = train_wordpiece(texts, 200, lowercase=tokenizer.lowercase)
        assert again.vocabulary == tokenizer.vocabulary
    assert tokenizer.size == len(set(tokenizer.vocabulary)) == 200
    assert tokenizer.vocabulary[:5] == SPECIAL_TOKENS
    assert tokenizer.special_ids == (0, 1, 2, 3, 4)
    assert train_wordpiece(TEXTS, 64, lowercase=True).size <= 64
    with pytest.raises(InputError, match="hold no text"):
        train_wordpiece([" ", "\n"], 100, lowercase=True)


def test_case_and_accents_follow_the_rule(tokenizer):
    same = tokenizer.encode("NAÏVE") == tokenizer.encode("naive")
    assert same is tokenizer.lowercase
    other = WordPiece.bert(tokenizer.vocabulary, not tokenizer.lowercase)
    shuffled = WordPiece.bert([*tokenizer.vocabulary[::-1]], tokenizer.lowercase)
    assert len({of.fingerprint for of in (tokenizer, other, shuffled)}) == 3


def test_special_tokens_spelt_in_a_text_are_text(tokenizer):
    text = " ".join(SPECIAL_TOKENS[:1] + SPECIAL_TOKENS[2:]) + "[SEP] [MASK]ban"
    for encode in (tokenizer.encode, pickle.loads(pickle.dumps(tokenizer)).encode):
        assert not {0, 2, 3, 4} & set(encode(text))
    assert tokenizer.decode(tokenizer.encode("[")) == "["


# --- reading -------------------------------------------------------------------------------------

GOOD = [*SPECIAL_TOKENS, "a", "##b"]


def read(source, **options):
    return load_wordpiece(TokenizerConfig(source=str(source), **options))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("\n".join(GOOD[:4] + GOOD[5:]), ": the vocabulary has no [MASK]: add"),
        ("\n".join([*GOOD, "a", "c"]), ":8: 'a' is on line 6 too: remove the line"),
        ("\n".join([*GOOD, "", "c"]), ":8: empty entry: remove the line"),
        (b"[PAD]\n\xff\n", ":2: not UTF-8: only WordPiece is read"),
    ],
)
def test_a_broken_vocabulary_names_file_and_line(tmp_path, content, message):
    file = tmp_path / "vocab.txt"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    for source in (file, tmp_path):
        with pytest.raises(InputError, match="^" + re.escape(f"{file}{message}")):
            read(source)
    for source in (tmp_path / "none.txt", "bert"):
        with pytest.raises(InputError, match=r" does not exist: give a vocab\.txt, a folder, a Hu"):
            read(source)
    file.write_bytes("\r\n".join(GOOD).encode())
    assert read(file).vocabulary == tuple(GOOD)


def test_a_case_rule_that_contradicts_the_vocabulary_is_refused(tmp_path):
    """As its entries show it, or its folder states it."""
    (file := tmp_path / "vocab.txt").write_text("\n".join([*GOOD, "The", "Cat"]))
    with pytest.raises(InputError, match=r"lowercase=false: set data\.tokenizer\.lowercase=false"):
        read(file)
    assert read(file, lowercase=False).size == 9
    WordPiece.bert(GOOD, lowercase=True).save(tmp_path)
    with pytest.raises(InputError, match=r"lowercase=true: set data\.tokenizer\.lowercase=true"):
        read(tmp_path, lowercase=False)
