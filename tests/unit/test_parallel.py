"""Prepared parallel text: what is kept, what is counted, and folders that are whole or not there."""

import hashlib
import json
import re
import signal
import subprocess
import sys
import time
from functools import partial

import numpy as np
import pytest

from roformer.config.wmt import BpeConfig, FilesParallel, FilterConfig
from roformer.data import parallel, parallel_words
from roformer.data.bpe import Bpe
from roformer.data.parallel import ParallelText, prepare_parallel
from roformer.errors import InputError
from tests.conftest import REPOSITORY
from tests.unit.parallel_texts import ENGLISH, GERMAN, TEXT, files, prepare, trained, write

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
    with pytest.raises(ValueError, match="texts of train are not kept"):
        text.texts("train")


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


def test_what_moses_leaves_nothing_of_is_empty(tmp_path):
    write(tmp_path, train=[("a\x07", "\x01\x02"), *TEXT["train"]])
    config = files(tmp_path, tokenizer=BpeConfig(merges=50), filter=FilterConfig(max_ratio=None))
    assert prepare(config, tmp_path / "cache").manifest["filter"]["left_out"]["empty"] == 1


def test_a_filter_that_leaves_nothing_is_refused(tmp_path):
    write(tmp_path)
    with pytest.raises(InputError, match=r"^none of 40 training pairs is left") as caught:
        prepare(files(tmp_path, filter=FilterConfig(max_length=2)), tmp_path / "cache")
    assert "data.filter.max_length" in str(caught.value)
    assert not list((tmp_path / "cache" / "wmt").iterdir())


def test_the_manifest_tells_what_was_made(tmp_path):
    text = prepare(write(tmp_path / "text"), tmp_path / "cache")
    manifest = text.manifest
    assert str(tmp_path) not in json.dumps(manifest)
    assert manifest["languages"] == ["en", "de"]
    assert manifest["source"]["pairs"] == {"train": 40, "valid": 3, "test": 2}
    assert manifest["pairs"] == {"train": 40, "valid": 3, "test": 2}
    assert manifest["tokens"]["train"] == {
        "source": int(text.train.source.lengths.sum()),
        "target": int(text.train.target.lengths.sum()),
    }
    bpe = manifest["tokenizer"]
    assert (bpe["source"], bpe["words"], bpe["merges"], bpe["size"]) == (
        "train",
        "bytes",
        200,
        459,
    )
    used = {*text.train.source.tokens.tolist(), *text.train.target.tokens.tolist()}
    assert bpe["size_used"] == len(used)
    assert set(manifest["versions"]) == {"python", "numpy", "tokenizers", "sacremoses"}
    for name, file in manifest["files"].items():
        content = (text.folder / name).read_bytes()
        assert file == {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    assert sorted(path.name for path in text.folder.iterdir()) == sorted(
        [*manifest["files"], "manifest.json", "tokenizer"]
    )


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

    work = partial(parallel_words.split_texts, words="moses", languages=("en", "de"))
    made = parallel_words.in_processes(work, chunks(), 2)
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
    # That of a prepared text can be given to the next one.
    folder = str(texts["large"].folder / "tokenizer")
    config = files(tmp_path / "text", tokenizer=BpeConfig(source=folder, words="bytes"))
    assert prepare(config, tmp_path / "cache").folder == texts["large"].folder


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


def test_a_prepared_text_is_opened_and_not_read_again(tmp_path, monkeypatch):
    config = write(tmp_path / "text")
    first = prepare(config, tmp_path / "cache")
    monkeypatch.setattr(parallel, "_build", None)
    again = prepare(config, tmp_path / "cache")
    assert again.folder == first.folder and again.manifest == first.manifest
    assert [path.name for path in first.folder.parent.iterdir()] == [first.folder.name]


def test_what_decides_the_content_decides_the_folder_and_the_place_does_not(tmp_path):
    config = write(tmp_path / "here")
    (tmp_path / "there").symlink_to(tmp_path / "here")
    cache = tmp_path / "cache"
    first = prepare(config, cache)
    assert prepare(files(tmp_path / "there"), cache).folder == first.folder
    tokenizer = BpeConfig(words="bytes", merges=100)
    others = [
        prepare(files(tmp_path / "here", **changes), cache)
        for changes in (
            {"tokenizer": tokenizer},
            {"filter": FilterConfig(max_length=20, max_ratio=None)},
            {"max_train_pairs": 30},
            {"source_language": "de", "target_language": "en"},
        )
    ]
    (tmp_path / "here/test.de").write_text("Die Straße ist breit.\nHalt!\n")
    others.append(prepare(config, cache))
    assert len({first.folder, *(text.folder for text in others)}) == 6
    assert len({first.fingerprint, *(text.fingerprint for text in others)}) == 6


def test_a_preparation_that_fails_leaves_nothing(tmp_path):
    config = write(tmp_path, test=(b"a\n", b"b\nc\n"))  # the last to be read
    with pytest.raises(InputError, match="has 1 lines"):
        prepare(config, tmp_path / "cache")
    assert not list((tmp_path / "cache" / "wmt").iterdir())


KILLED = """
import sys, time
from roformer.data import parallel, parallel_words
from tests.unit.parallel_texts import files, prepare

def stored_files(folder):
    print("halfway", flush=True)
    time.sleep(60)

parallel.stored_files = stored_files
prepare(files(sys.argv[1]), sys.argv[2])
"""


def test_a_killed_preparation_leaves_nothing_half(tmp_path):
    config = write(tmp_path / "text")
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED, tmp_path / "text", tmp_path / "cache"],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout.readline() == b"halfway\n"
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
    assert list((tmp_path / "cache/wmt").glob("*.tmp/*.npy"))
    started = time.monotonic()
    text = prepare(config, tmp_path / "cache")
    assert time.monotonic() - started < 10
    assert list((tmp_path / "cache/wmt").iterdir()) == [text.folder]


def manifest_with(**changes):
    def change(folder):
        file = folder / "manifest.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | changes))

    return change


def cut_short(folder):
    file = folder / "train.target.tokens.npy"
    file.write_bytes(file.read_bytes()[:-4])


def other_offsets(folder):
    np.save(folder / "valid.source.offsets.npy", np.zeros(4, np.int64))


def no_array(folder):
    file = folder / "test.source.tokens.npy"
    file.write_bytes(b"x" * len(file.read_bytes()))


def other_lines(folder):
    file = folder / "test.source.txt"
    file.write_bytes(file.read_bytes().replace(b"\n", b" "))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: (f / "manifest.json").unlink(), "{f} has no manifest.json"),
        (lambda f: (f / "manifest.json").write_text("{"), "{f}/manifest.json is damaged ("),
        (lambda f: (f / "manifest.json").write_text("[]"), "{f}/manifest.json is damaged ("),
        (manifest_with(format=0), "{f} is parallel of format 0, not parallel of format 1"),
        (manifest_with(kind="glue"), "{f} is glue of format 1, not parallel"),
        (manifest_with(pairs={"train": 1, "valid": 3, "test": 2}), "{f}/train.source has 40 sent"),
        (lambda f: (f / "train.source.offsets.npy").unlink(), "{f}/train.source.offsets.npy has 0"),
        (cut_short, "{f}/train.target.tokens.npy has "),
        (no_array, "{f}/test.source.tokens.npy is damaged ("),
        (other_offsets, "{f}/valid.source.tokens.npy and {f}/valid.source.offsets.npy do not fit"),
        (lambda f: (f / "tokenizer/bpe.json").unlink(), "{f}/tokenizer/bpe.json cannot be read"),
        (lambda f: trained("bytes", 9).save(f / "tokenizer"), "{f}/tokenizer is not the one of"),
        (other_lines, "{f}/test.source.txt has 0 lines, not 2"),
    ],
)
def test_a_folder_that_is_not_what_was_prepared_is_refused(tmp_path, damage, message):
    text = prepare(write(tmp_path / "text"), tmp_path / "cache")
    damage(text.folder)
    with pytest.raises(InputError, match="^" + re.escape(message.format(f=text.folder))) as caught:
        ParallelText.open(text.folder).texts("test")
    assert f"delete {text.folder} and it will be prepared again" in str(caught.value)
    assert "\n" not in str(caught.value)


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
