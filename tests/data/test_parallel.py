"""Prepared parallel text: what is kept, what is counted, and that workers and chunks do not show."""

import numpy as np
import pytest

from roformer.config.wmt import BpeConfig, FilterConfig
from roformer.data import parallel
from roformer.data.bpe import Bpe
from roformer.data.work import imap_ordered
from roformer.errors import InputError
from tests.data.parallel_texts import ENGLISH, GERMAN, TEXT, files, prepare, trained, write


@pytest.mark.parametrize("words", ["bytes", "moses"])
def test_pairs_are_the_tokens_of_the_texts_with_their_end(tmp_path, words):
    write(tmp_path)
    config = files(tmp_path, tokenizer=BpeConfig(words=words, merges=200), filter=FilterConfig())
    text = prepare(config, tmp_path / "cache")
    bpe = text.tokenizer
    # Learnt only on the training text: the characters of the others change nothing.
    assert bpe.fingerprint == trained(words, 200).fingerprint
    for split, pairs in (("valid", text.valid), ("test", text.test)):
        source, target = ([pair[side] for pair in TEXT[split]] for side in (0, 1))
        for lists, texts, language in ((pairs.source, source, "en"), (pairs.target, target, "de")):
            wanted = [[*ids, bpe.end_id] for ids in bpe.encode_batch(texts, language)]
            assert [ids.tolist() for ids in lists] == wanted
            assert lists[0].dtype == np.int32
        assert len(pairs) == len(source)
        assert text.texts(split) == (source, target)


def test_training_pairs_are_filtered_by_their_tokens_and_the_others_never(tmp_path):
    long, short = "word " * 60, "a"
    train = [
        ("one two", "eins zwei"),
        ("", "b"),
        (long, long),
        (short, "c d e f g h"),
        ("x", " \t"),
    ]
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


def test_the_summary_counts_what_is_kept_and_nothing_kept_is_refused(tmp_path):
    write(tmp_path, train=[("a", ""), *TEXT["train"]])
    text = prepare(files(tmp_path, filter=FilterConfig(max_ratio=1.5)), tmp_path / "cache")
    kept = text.manifest["filter"]["kept"]
    assert text.summary == (
        f"en-de: {kept} of 41 training pairs kept (empty: 1, longer than 250 tokens: 0, "
        f"length ratio over 1.5: {40 - kept}), 3 validation and 2 test pairs; 200 merges, "
        f"vocabulary of 459: {text.folder}"
    )
    config = files(tmp_path, filter=FilterConfig(max_length=2, max_ratio=None))
    message = (
        r"0 of 41 training pairs kept \(empty: 1, longer than 2 tokens: 40\): raise data\.filter"
    )
    with pytest.raises(InputError, match=message):
        prepare(config, tmp_path / "cache")


# --- how it is prepared --------------------------------------------------------------------------


def test_neither_processes_nor_chunks_show(tmp_path, monkeypatch):
    """And few chunks are held at once."""
    write(tmp_path)
    config = files(tmp_path, tokenizer=BpeConfig(merges=200))
    one = prepare(config, tmp_path / "one")
    most = []

    def watched(pool, work, chunks, ahead):
        taken = 0

        def counted():
            nonlocal taken
            for chunk in chunks:
                taken += 1
                yield chunk

        for done, found in enumerate(imap_ordered(pool, work, counted(), ahead)):
            most.append(taken - done)
            yield found

    monkeypatch.setattr(parallel, "CHUNK", 3)
    monkeypatch.setattr(parallel, "FIRST_CHUNKS", 1)
    monkeypatch.setattr(parallel, "imap_ordered", watched)
    other = prepare(config, tmp_path / "other", workers=2)
    assert other.manifest == one.manifest and other.fingerprint == one.fingerprint
    assert len(most) > 10 and max(most) <= 4


def test_a_given_tokenizer_is_used_and_decides_the_folder(tmp_path):
    write(tmp_path / "text")
    texts = {}
    for name, merges in (("small", 20), ("large", 100), ("again", 100)):
        trained("bytes", merges).save(tmp_path / name)
        tokenizer = BpeConfig(source=str(tmp_path / name), words="bytes")
        texts[name] = prepare(files(tmp_path / "text", tokenizer=tokenizer), tmp_path / "cache")
    assert texts["small"].tokenizer.merges == 20 and texts["large"].tokenizer.merges == 100
    assert texts["small"].fingerprint != texts["large"].fingerprint
    assert texts["again"].folder == texts["large"].folder != texts["small"].folder
    assert texts["large"].manifest["tokenizer"]["source"] == "large"


def test_another_version_of_moses_cuts_anew(tmp_path, monkeypatch):
    write(tmp_path / "text")
    config = files(tmp_path / "text", tokenizer=BpeConfig(words="moses", merges=100))
    first = prepare(config, tmp_path / "cache").folder
    monkeypatch.setattr(parallel.metadata, "version", lambda name: "9.9.9")
    assert prepare(config, tmp_path / "cache").folder != first


@pytest.mark.parametrize(
    ("tokenizer", "message"),
    [
        (Bpe([], "bytes", "en", "fr"), "with target_language=fr, not de: set data.target_language"),
        (Bpe([], "moses", "en", "de"), "with tokenizer.words=moses, not bytes: set data.tokenizer"),
    ],
)
def test_a_tokenizer_that_does_not_fit_is_refused(tmp_path, tokenizer, message):
    tokenizer.save(folder := tmp_path / "bpe")
    write(tmp_path)
    config = files(tmp_path, tokenizer=BpeConfig(source=str(folder), words="bytes"))
    with pytest.raises(InputError, match=f"^data.tokenizer.source={folder} was made {message}"):
        prepare(config, tmp_path / "cache")
