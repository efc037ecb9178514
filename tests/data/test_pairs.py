"""Parallel text from files, the Hub and the grammar: aligned pairs, or one line that says why not."""

import gzip
import json
import os
import re
from types import SimpleNamespace

import datasets
import pytest
from omegaconf import OmegaConf

from roformer.config.build import build
from roformer.config.wmt import BuiltinParallel, HubParallel
from roformer.data.sources import pairs as parallel_sources
from roformer.data.sources.pairs import open_parallel
from roformer.data.toy.translation import TRANSLATION_GRAMMAR, builtin_pairs
from roformer.errors import InputError
from tests.conftest import REPOSITORY
from tests.data.parallel_texts import TEXT, files, prepare, write

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def read(config, split="train"):
    return list(open_parallel(config).rows(split))


def numbered(pairs):
    return list(pairs)


def refused(config, split="train"):
    with pytest.raises(InputError) as caught:
        read(config, split)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# --- files ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("packed", [False, True])
def test_files_are_read_in_pairs(tmp_path, packed):
    config = write(tmp_path, packed=packed)
    for split, pairs in TEXT.items():
        assert read(config, split) == numbered(pairs)


def test_only_a_newline_ends_a_line_and_a_byte_order_mark_is_no_text(tmp_path):
    config = write(tmp_path, valid=("\ufeffa \u2028 b\r\nc\x85d\n".encode(), b"e\nf\x0bg"))
    assert read(config, "valid") == [("a \u2028 b", "e"), ("c\x85d", "f\x0bg")]


def test_names_and_languages_are_those_of_the_config(tmp_path):
    write(tmp_path, dev=[("one", "eins")])
    config = files(tmp_path, valid="dev", source_language="de", target_language="en")
    assert read(config, "valid") == [("eins", "one")]


def test_a_plain_file_goes_before_a_packed_one(tmp_path):
    config = write(tmp_path)
    (tmp_path / "valid.en.gz").write_bytes(gzip.compress(b"other\n"))
    assert read(config, "valid") == numbered(TEXT["valid"])


def test_no_more_training_pairs_than_asked_for(tmp_path):
    write(tmp_path)
    config = files(tmp_path, max_train_pairs=3)
    assert read(config) == numbered(TEXT["train"])[:3]
    assert len(read(config, "valid")) == 3
    config = files(tmp_path, max_train_pairs=2)
    assert len(read(config, "valid")) == 3


def test_empty_training_sides_are_left_out_and_counted(tmp_path):
    config = write(tmp_path, train=[("a", "b"), ("", "c"), ("d", " \t"), ("", ""), ("e", "f")])
    source = open_parallel(config)
    for _ in range(2):  # the counts are of one reading
        assert list(source.rows("train")) == [("a", "b"), ("e", "f")]
        assert source.empty == 3 and source.pairs_read == {"train": 5}


@pytest.mark.parametrize("split", ["valid", "test"])
@pytest.mark.parametrize(("pair", "language"), [(("", "b"), "en"), (("a", "\t"), "de")])
def test_an_empty_line_to_be_scored_is_named(tmp_path, split, pair, language):
    config = write(tmp_path, **{split: [("a", "b"), pair]})
    message = f"{tmp_path}/{split}.{language}:2: an empty sentence would falsify the {split} score"
    assert refused(config, split).startswith(message)


def test_a_missing_file_is_named_with_and_without_gz(tmp_path):
    config = write(tmp_path)
    (tmp_path / "valid.de").unlink()
    message = refused(config)
    assert message.startswith(f"{tmp_path}/valid.de does not exist, nor with .gz: ")
    assert "data.valid=" in message
    assert refused(files(tmp_path / "no")).startswith(f"data.path={tmp_path}/no is no folder")


@pytest.mark.parametrize(("english", "german"), [(3, 5), (5, 3), (0, 2), (4, 5)])
def test_unequal_line_counts_are_both_told(tmp_path, english, german):
    config = write(tmp_path, test=(b"a\n" * english, b"b\n" * german))
    message = f"{tmp_path}/test.en has {english} lines and {tmp_path}/test.de {german}: "
    assert refused(config, "test").startswith(message)


def test_empty_files_are_named(tmp_path):
    message = refused(write(tmp_path, train=(b"", b"")))
    assert message.startswith(f"{tmp_path}/train.en and {tmp_path}/train.de are empty")


def test_bytes_that_are_no_utf8_are_named(tmp_path):
    message = refused(write(tmp_path, train=(b"a\nb\n", b"c\n\xe4\n")))
    assert message.startswith(f"{tmp_path}/train.de:2: not UTF-8 (byte 1 of the line is 0xe4)")


def test_a_broken_gzip_file_is_named(tmp_path):
    config = write(tmp_path, packed=True)
    packed = tmp_path / "train.de.gz"
    packed.write_bytes(packed.read_bytes()[:-20])
    assert refused(config).startswith(f"{packed} is not a complete gzip file")


def test_files_are_told_by_name_and_content(tmp_path):
    source = open_parallel(write(tmp_path))
    for split in TEXT:
        list(source.rows(split))
    account = source.describe()
    names = [f"{split}.{language}" for split in TEXT for language in ("en", "de")]
    assert [file["file"] for file in account["files"]] == names
    assert account["pairs"] == {split: len(pairs) for split, pairs in TEXT.items()}
    assert str(tmp_path) not in json.dumps([account, source.key()])
    key = source.key()
    os.utime(tmp_path / "test.de", ns=(1, 1))
    assert open_parallel(files(tmp_path)).key() != key


# --- the Hub -------------------------------------------------------------------------------------


@pytest.fixture
def hub(monkeypatch):
    """A stand-in for WMT14 on the Hub; returns its splits and the calls that were made."""
    names = {"train": "train", "validation": "valid", "test": "test"}
    stand_in = SimpleNamespace(
        splits={
            name: [{"de": german, "en": english} for english, german in TEXT[split]]
            for name, split in names.items()
        },
        features=datasets.Features(translation=datasets.Translation(languages=["de", "en"])),
        calls=[],
    )

    def load_dataset(path, name=None, *, revision=None, split=None):
        stand_in.calls.append((path, name, revision, split))
        rows = {"translation": stand_in.splits[split]}
        return datasets.Dataset.from_dict(rows, features=stand_in.features)

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    return stand_in


def of_hub(**changes):
    settings = {"name": "de-en", "revision": COMMIT, "test_lines": len(TEXT["test"])}
    return HubParallel(**(settings | changes))


def test_the_hub_is_read_by_name_revision_and_split(hub):
    source = open_parallel(of_hub())
    for split, pairs in TEXT.items():
        assert list(source.rows(split)) == numbered(pairs)
    assert hub.calls == [
        ("wmt/wmt14", "de-en", COMMIT, split) for split in ("train", "validation", "test")
    ]
    assert source.describe() == {
        "kind": "hub",
        "path": "wmt/wmt14",
        "name": "de-en",
        "revision": COMMIT,
        "pairs": {split: len(pairs) for split, pairs in TEXT.items()},
    }


def test_the_hub_is_read_in_batches(hub, monkeypatch):
    monkeypatch.setattr(parallel_sources, "BATCH", 7)
    assert read(of_hub()) == numbered(TEXT["train"])
    assert len(read(of_hub(max_train_pairs=10))) == 10


def test_line_breaks_inside_a_row_of_the_hub_are_spaces(hub):
    hub.splits["train"] = [{"en": "a\nb\r\n", "de": "c \u2028 d"}]
    assert read(of_hub()) == [("a b", "c \u2028 d")]


def test_empty_and_null_sentences_of_the_hub(hub):
    hub.splits["train"] = [{"en": "a", "de": ""}, {"en": "b", "de": "c"}]
    assert read(of_hub()) == [("b", "c")]
    hub.splits["validation"] = [{"en": "a", "de": "b"}, {"en": "c", "de": ""}]
    assert refused(of_hub(), "valid").startswith(
        "wmt/wmt14 (de-en, validation), row 2, de: an empty sentence"
    )
    hub.splits["validation"] = [{"en": None, "de": "b"}]
    assert refused(of_hub(), "valid").startswith(
        "wmt/wmt14 (de-en, validation), row 1, en: the sentence is null"
    )
    hub.splits["train"] = []
    assert refused(of_hub()).startswith("wmt/wmt14 (de-en, train) has no row")


def test_a_language_that_the_hub_does_not_have_is_named(hub):
    message = refused(of_hub(target_language="fr"))
    assert message.startswith("wmt/wmt14 (de-en, train) has the languages de, en, not fr: ")
    assert "data.target_language" in message


def test_a_set_without_translations_is_named(monkeypatch):
    table = datasets.Dataset.from_dict({"text": ["a"]})
    monkeypatch.setattr(datasets, "load_dataset", lambda *args, **options: table)
    message = "wmt/wmt14 (de-en, train) has no column 'translation', but text: "
    assert refused(of_hub()).startswith(message)


def test_the_number_of_test_lines_is_checked(hub):
    row = hub.splits["test"][0]
    assert of_hub(test_lines=3003) == HubParallel(name="de-en", revision=COMMIT)
    message = refused(of_hub(test_lines=3003), "test")
    assert message.startswith("wmt/wmt14 (de-en, test) has 2 lines, not 3,003: ")
    hub.splits["test"] = [row] * 2737
    message = refused(of_hub(test_lines=3003), "test")
    assert message.startswith(
        "wmt/wmt14 (de-en, test) has 2,737 lines (the filtered newstest2014, sacrebleu's wmt14 and "
        "not wmt14/full), not 3,003: scores on the two cannot be compared; data.test_lines=2737 or "
        "null takes it"
    )
    for lines in (2737, None):
        assert len(read(of_hub(test_lines=lines), "test")) == 2737
    hub.splits["test"] = [row] * 3003
    assert len(read(of_hub(test_lines=3003), "test")) == 3003


def test_no_network_is_one_line_with_a_way_out(monkeypatch):
    def load_dataset(path, *args, **options):
        raise ConnectionError(f"Couldn't reach '{path}' on the Hub\nand a second line")

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    message = refused(of_hub())
    assert message.startswith("wmt/wmt14 cannot be read from the Hugging Face Hub: Connection")
    assert "data=files data.path=…" in message


def test_the_pinned_hub_config_is_a_valid_one():
    config = build(HubParallel, OmegaConf.load(REPOSITORY / "conf/pipelines/wmt/data/hub.yaml"))
    assert (config.path, config.name, config.test_lines) == ("wmt/wmt14", "de-en", 3003)
    assert re.fullmatch("[0-9a-f]{40}", config.revision)


# --- the grammar ---------------------------------------------------------------------------------


def test_built_in_pairs_go_both_ways():
    config = BuiltinParallel(train_pairs=40, valid_pairs=3, test_pairs=2)
    for split, count in (("train", 40), ("valid", 3), ("test", 2)):
        assert read(config, split) == numbered(builtin_pairs(split, count))
    back = BuiltinParallel(source_language="de", target_language="en", test_pairs=1)
    ((english, german),) = builtin_pairs("test", 1)
    assert read(back, "test") == [(german, english)]
    source = open_parallel(config)
    assert source.key() == {"grammar": TRANSLATION_GRAMMAR}
    assert source.describe() == {"kind": "builtin", "grammar": TRANSLATION_GRAMMAR, "pairs": {}}


def test_the_grammar_has_no_other_language():
    message = refused(BuiltinParallel(target_language="fr"))
    assert message.startswith("the built-in text is English and German, not en and fr")


# --- the same from all ---------------------------------------------------------------------------


def test_equal_content_has_an_equal_fingerprint_wherever_it_came_from(hub, tmp_path):
    plain = prepare(write(tmp_path / "plain"), tmp_path / "cache")
    packed = prepare(write(tmp_path / "packed", packed=True), tmp_path / "cache")
    shared = {"tokenizer": files(".").tokenizer, "filter": files(".").filter}
    remote = prepare(of_hub(**shared), tmp_path / "cache")
    assert len({text.folder for text in (plain, packed, remote)}) == 3
    assert len({text.fingerprint for text in (plain, packed, remote)}) == 1
