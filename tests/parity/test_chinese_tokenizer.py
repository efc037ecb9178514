"""Chinese words: ids equal `transformers`' RoFormerTokenizer's ids, from text to files and back."""

import pickle

import pytest
import rjieba
from hypothesis import example, given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer, RoFormerTokenizer

from roformer.config.schema import TokenizerConfig
from roformer.data.tokenizers import (
    SPECIAL_TOKENS,
    WordPiece,
    load_wordpiece,
    train_wordpiece,
    train_words,
)
from roformer.data.toy.cases import case_documents
from roformer.errors import InputError

DOCUMENTS = [
    *case_documents(30, seed=0),
    "RoFormer encodes positions by rotation, rotary rotors.",
] * 2
TRAINED = train_words(DOCUMENTS, 1200, lowercase=True)
WORDS = [
    *("非常", "天气", "今天天气", "北京天安门", "广场", "龘", "卡拉ok", "5g", "ｗｏｒｄ"),
    *("é", "##é", "。。", "Ok", "OK", "##ＯＫ", "１９"),
]
"""Words that cut one another, a word of letters, one with a digit, full-width letters, accents."""
OURS = {
    lowercase: WordPiece.bert([*TRAINED.vocabulary, *WORDS], lowercase, "jieba")
    for lowercase in (True, False)
}
THEIRS = {
    lowercase: RoFormerTokenizer(
        vocab={entry: number for number, entry in enumerate(ours.vocabulary)},
        do_lower_case=lowercase,
    )
    for lowercase, ours in OURS.items()
}
TEXTS = [
    "今天天气非常好。我们去北京天安门广场！",
    "卡拉OK唱了5G、RoFormer和BERT-base 3.14%",
    "２０１９年５月２２日，ｗｏｒｄ（ＯＫ）『』…——",
    "龘靐齉爩𠮷𠀀",
    "原告张三诉称：2015年6月27日借款16000元\r\n\t未还；",
    "ＲｏＦｏｒｍｅｒ  a\u3000b\u00a0c\u200bd\ufffd e\u0301é",
    "これは日本語、한국어도 привет ##不 [MASK]不[SEP]",
    "",
    " \n",
    "很" * 300 + "x" * 101,
    *DOCUMENTS[:3],
]
ALPHABET = st.sampled_from(
    "今天气非常好北京安门广场原告被借款，。！ａＯＫ１9aé卡拉ok5gI\u0307#[]-_ \n𠮷龘年月日元"
)


@given(st.one_of(st.text(ALPHABET, max_size=60), st.text(max_size=20)), st.booleans())
@example("𠮷" * 3, True)
@settings(max_examples=100, deadline=None)
def test_ids_of_any_text_are_theirs(text, lowercase):
    theirs = THEIRS[lowercase](text, add_special_tokens=False, split_special_tokens=True)
    assert OURS[lowercase].encode_batch([text]) == [theirs["input_ids"]]


def test_the_hidden_markov_model_is_off():
    """Switched on it would join names that no dictionary has, and ids would be others."""
    text = "他来到了网易杭研大厦"
    assert "杭研" in rjieba.cut(text, True) and "杭研" not in rjieba.cut(text, False)
    tokenizer = WordPiece.bert([*SPECIAL_TOKENS, *text, "杭研", "大厦"], True, "jieba")
    pieces = [tokenizer.vocabulary[i] for i in tokenizer.encode(text)]
    assert pieces[-3:] == ["杭", "研", "大厦"]


def test_a_batch_is_its_texts_one_by_one_and_a_copy_is_the_same():
    ours = OURS[True]
    one_by_one = [ours.encode(text) for text in TEXTS * 20]  # more than wait at once
    assert ours.encode_batch(TEXTS * 20) == one_by_one
    assert pickle.loads(pickle.dumps(ours)).encode_batch(TEXTS) == one_by_one[: len(TEXTS)]


@pytest.mark.parametrize("lowercase", [True, False])
def test_transformers_opens_what_was_saved_and_we_what_it_saved(tmp_path, lowercase):
    ours = OURS[lowercase]
    ours.save(tmp_path / "ours")
    theirs = AutoTokenizer.from_pretrained(tmp_path / "ours")
    assert type(theirs).__name__ == "RoFormerTokenizer" and len(theirs) == ours.size
    theirs.save_pretrained(tmp_path / "theirs")
    for text in TEXTS:
        ids = ours.encode(text)
        expected = [ours.cls_id, *ids, ours.sep_id]
        assert theirs(text, split_special_tokens=True)["input_ids"] == expected, text
    for folder in ("ours", "theirs"):
        read = WordPiece.load(tmp_path / folder)
        assert (read.words, read.fingerprint) == ("jieba", ours.fingerprint)


# --- training ------------------------------------------------------------------------------------


def test_training_is_a_function_of_the_words_alone():
    again = train_words(DOCUMENTS[::-1], 1200, lowercase=True)
    assert again.vocabulary == TRAINED.vocabulary
    assert TRAINED.size == len(set(TRAINED.vocabulary)) <= 1200
    assert TRAINED.vocabulary[:5] == SPECIAL_TOKENS


def test_a_vocabulary_has_the_frequent_words_characters_and_pieces():
    documents = ["法院判决被告偿还借款，法院", "法院认定借款 model models", "被告上诉 modeling"] * 2
    found = train_words(documents, 100, lowercase=True).vocabulary
    words = [entry for entry in found if len(entry) > 1 and "一" <= entry[0] <= "鿿"]
    assert words[:3] == ["法院", "借款", "被告"]  # 6, 4, 4 times; then by code point
    assert set("法院借款被告") < set(found) and "model" in found
    small = train_words(DOCUMENTS, 400, lowercase=True)
    assert small.size == 400
    large = train_words(DOCUMENTS, 4000, lowercase=True)
    assert large.unk_id not in [i for ids in large.encode_batch(DOCUMENTS) for i in ids]


def test_characters_of_chinese_are_learnt_beyond_those_of_an_alphabet():
    """bert-base-chinese knows 7,322; the limit for alphabets, 1,000, would lose most."""
    characters = [chr(0x4E00 + i) for i in range(3000)]
    trained = train_wordpiece(["".join(characters)] * 2, 8192, lowercase=True)
    assert trained.size == 3005  # no token continues a word
    few = train_wordpiece(["".join(characters) + " letters" * 3000], 8192, lowercase=True)
    assert sum(len(entry) == 1 for entry in few.vocabulary) == 1000


def test_training_wants_chinese():
    with pytest.raises(InputError, match=r"no Chinese to find words in: set data\.tokenizer\."):
        train_words(["English alone"], 100, lowercase=True)


# --- a vocabulary and the way it is read -----------------------------------------------------------


@pytest.mark.parametrize(
    ("entries", "words", "message"),
    [
        (["非常", "好"], "none", "made with words=jieba: set data.tokenizer.words=jieba"),
        (["非", "常"], "jieba", "made with words=none: set data.tokenizer.words=none"),
    ],
)
def test_a_vocabulary_of_the_other_level_is_refused(tmp_path, entries, words, message):
    """As a bare file by its entries; as a folder by the class that it names."""
    vocabulary, other = [*SPECIAL_TOKENS, *entries], "none" if words == "jieba" else "jieba"
    (file := tmp_path / "vocab.txt").write_text("\n".join(vocabulary), encoding="utf-8")
    WordPiece.bert(vocabulary, True, other).save(tmp_path / "folder")
    for source in (file, tmp_path / "folder"):
        with pytest.raises(InputError, match=message):
            load_wordpiece(TokenizerConfig(source=str(source), words=words))
        assert load_wordpiece(TokenizerConfig(source=str(source), words=other)).words == other
