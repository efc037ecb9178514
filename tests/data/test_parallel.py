"""Prepared parallel text: what is kept, what is counted, and folders that are whole or not there."""

import re
from functools import partial

import numpy as np
import pytest

from roformer.config.wmt import BpeConfig, FilesParallel, FilterConfig
from roformer.data import parallel as parallel_words
from roformer.data.bpe import Bpe
from roformer.data.parallel import prepare_parallel
from roformer.errors import InputError
from tests.data.parallel_texts import ENGLISH, GERMAN, TEXT, files, prepare, trained, write

# --- what is prepared ----------------------------------------------------------------------------


@pytest.mark.parametrize("words", ["bytes", "moses"])
def test_pairs_are_the_tokens_of_the_texts_with_their_end(tmp_path, words):
    write(tmp_path)
    config = files(tmp_path, tokenizer=BpeConfig(words=words, merges=200), filter=FilterConfig())
    text = prepare(config, tmp_path / "cache")
    bpe = text.tokenizer
    assert (bpe.words, bpe.merges) == (words, 200)
    # Learnt on the training text alone: the characters of the others change nothing.
    assert bpe.fingerprint == trained(words, 200).fingerprint
    for split, pairs in (("valid", text.valid), ("test", text.test)):
        source, target = ([pair[side] for pair in TEXT[split]] for side in (0, 1))
        for sentences, texts, language in (
            (pairs.source, source, "en"),
            (pairs.target, target, "de"),
        ):
            wanted = [[*ids, bpe.end_id] for ids in bpe.encode_batch(texts, language)]
            assert [sentences[i].tolist() for i in range(len(sentences))] == wanted
            assert sentences.lengths.tolist() == [len(ids) for ids in wanted]
            assert (sentences.lengths.dtype, sentences[0].dtype) == (np.int64, np.int32)
        assert len(pairs) == len(pairs.source) == len(pairs.target) == len(source)
        assert text.texts(split) == (source, target)


def test_training_pairs_are_filtered_by_their_tokens_and_the_others_never(tmp_path):
    long, short = "word " * 60, "a"
    train = [("one two", "eins zwei"), ("", "b"), (long, long), (short, "c d e f g h"), ("x", "")]
    write(tmp_path, train=[*train, *TEXT["train"]], valid=[(long, short)], test=[(short, long)])
    bpe = trained("bytes")
    bpe.save(tmp_path / "bpe")
    counted = {}
    for ratio in (1.5, None):
        config = files(
            tmp_path,
            filter=FilterConfig(max_length=50, max_ratio=ratio),
            tokenizer=BpeConfig(source=str(tmp_path / "bpe"), words="bytes"),
        )
        text = prepare(config, tmp_path / "cache")
        assert (len(text.valid), len(text.test)) == (1, 1)
        counted[ratio] = text.manifest["filter"]
        lengths = np.array([text.train.source.lengths, text.train.target.lengths]) - 1
        assert lengths.max() <= 50 and lengths.min() > 0
        if ratio:
            assert (lengths.max(0) <= ratio * lengths.min(0)).all()
    sides = zip(bpe.encode_batch(ENGLISH, "en"), bpe.encode_batch(GERMAN, "de"), strict=True)
    pairs = [sorted(map(len, pair)) for pair in sides]
    unlike = sum(longer > 1.5 * shorter for shorter, longer in pairs if longer <= 50)
    too_long = sum(longer > 50 for _, longer in pairs)
    assert counted[1.5] == {
        "max_length": 50,
        "max_ratio": 1.5,
        "read": 45,
        "kept": 42 - 1 - unlike - too_long,
        "left_out": {"empty": 2, "too_long": 1 + too_long, "ratio": 1 + unlike},
    }
    assert counted[None]["left_out"] == {"empty": 2, "too_long": 1 + too_long, "ratio": 0}


def test_a_filter_that_leaves_nothing_is_refused(tmp_path):
    write(tmp_path)
    with pytest.raises(InputError, match=r"^none of 40 training pairs is left") as caught:
        prepare(files(tmp_path, filter=FilterConfig(max_length=2)), tmp_path / "cache")
    assert "data.filter.max_length" in str(caught.value)
    assert not list((tmp_path / "cache" / "wmt").iterdir())


def test_progress_and_what_was_left_out_are_told(tmp_path, capsys):
    write(tmp_path, train=[("a", ""), *TEXT["train"]])
    config = files(tmp_path, filter=FilterConfig(max_ratio=1.5))
    text = prepare(config, tmp_path / "cache", progress=True)
    told = capsys.readouterr().err
    for line in (
        r"en-de: reading: 45 pairs in",
        r"BPE: learning: 200 merges in",
        r"en-de: encoding: 45 pairs in",
    ):
        assert re.search(f"^{line}", told, re.M)
    kept = text.manifest["filter"]
    assert told.splitlines()[-1] == (
        f"en-de: {kept['kept']} of 41 training pairs kept (empty: 1, longer than 250 tokens: 0, "
        f"length ratio over 1.5: {40 - kept['kept']}); 200 merges, vocabulary of 459, "
        f"{text.manifest['tokenizer']['size_used']} of it in the training text"
    )
    prepare(config, tmp_path / "cache", progress=True)
    assert not capsys.readouterr().err
    used = {*text.train.source.tokens.tolist(), *text.train.target.tokens.tolist()}
    assert text.manifest["tokenizer"]["size_used"] == len(used)
    assert text.manifest["source"]["rows"] == {"train": 41, "valid": 3, "test": 2}


# --- how it is prepared --------------------------------------------------------------------------


def test_neither_processes_nor_chunks_show(tmp_path, monkeypatch):
    write(tmp_path)
    config = files(tmp_path, tokenizer=BpeConfig(merges=200))
    one = prepare(config, tmp_path / "one")
    monkeypatch.setattr(parallel_words, "CHUNK", 7)
    monkeypatch.setattr(parallel_words, "ALONE", 1)
    other = prepare(config, tmp_path / "other", workers=2)
    assert other.fingerprint == one.fingerprint
    assert other.manifest == one.manifest


def test_processes_hold_few_chunks_and_keep_their_order(monkeypatch):
    taken = []

    def chunks():
        for number in range(50):
            taken.append(number)
            yield [str(number)], [""]

    monkeypatch.setattr(parallel_words, "ALONE", 1)

    work = partial(parallel_words._split, words="moses", languages=("en", "de"))
    made = parallel_words._in_processes(work, chunks(), 2)
    for number, (texts, words) in enumerate(made):
        assert texts[0] == words[0] == [str(number)]
        assert len(taken) <= number + 6
    assert number == 49


def test_a_given_tokenizer_is_used_and_decides_the_folder(tmp_path):
    write(tmp_path / "text")
    for name, merges in (("small", 20), ("large", 100), ("again", 100)):
        trained("bytes", merges).save(tmp_path / name)
    texts = {
        name: prepare(
            files(
                tmp_path / "text", tokenizer=BpeConfig(source=str(tmp_path / name), words="bytes")
            ),
            tmp_path / "cache",
        )
        for name in ("small", "large", "again")
    }
    assert texts["small"].tokenizer.merges == 20 and texts["large"].tokenizer.merges == 100
    assert texts["small"].fingerprint != texts["large"].fingerprint
    assert texts["again"].folder == texts["large"].folder != texts["small"].folder
    assert texts["large"].manifest["tokenizer"]["source"] == "large"


@pytest.mark.parametrize(
    ("tokenizer", "message"),
    [
        (Bpe([], "bytes", "en", "fr"), "is a tokenizer of en-fr, not of en-de: "),
        (Bpe([], "bytes", "de", "en"), "is a tokenizer of de-en, not of en-de: "),
        (Bpe([], "moses", "en", "de"), "is made otherwise: set data.tokenizer.words=moses"),
    ],
)
def test_a_tokenizer_that_does_not_fit_is_refused(tmp_path, tokenizer, message):
    folder = tmp_path / "bpe"
    tokenizer.save(folder)
    write(tmp_path)
    config = files(tmp_path, tokenizer=BpeConfig(source=str(folder), words="bytes"))
    with pytest.raises(InputError) as caught:
        prepare(config, tmp_path / "cache")
    assert str(caught.value).startswith(f"data.tokenizer.source={folder} {message}")
    assert "\n" not in str(caught.value)


# --- the cache -----------------------------------------------------------------------------------


# --- real text -----------------------------------------------------------------------------------


def test_multi30k(real_data, tmp_path):
    folder = real_data / "multi30k"
    if not folder.is_dir():
        pytest.skip(f"needs {folder}")
    config = FilesParallel(
        path=str(folder),
        valid="val",
        test="test_2016_flickr",
        tokenizer=BpeConfig(words="moses", merges=1000),
        max_train_pairs=3000,
    )
    text = prepare_parallel(config, tmp_path, workers=1, progress=False)
    assert text.manifest["filter"]["read"] == 3000 and text.tokenizer.merges == 1000
    assert (len(text.valid), len(text.test)) == (1014, 1000)
    for language, sentences, texts in zip(
        ("en", "de"), (text.test.source, text.test.target), text.texts("test"), strict=True
    ):
        ids = [sentences[i] for i in range(len(sentences))]
        back = text.tokenizer.decode_batch(ids, language)
        assert sum(ours != theirs for ours, theirs in zip(back, texts, strict=True)) <= 3
