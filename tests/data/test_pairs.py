"""Parallel text from files, the Hub and the templates: aligned pairs, or one line that says why not."""

import json
from dataclasses import replace
from types import SimpleNamespace

import datasets
import pytest

from roformer.config.wmt import BuiltinParallel, HubParallel
from roformer.data.parallel import open_parallel
from roformer.data.toy.translation import builtin_pairs
from roformer.errors import InputError
from tests.data.parallel_texts import TEXT, files, prepare, write

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def read(config, split="train"):
    return [row.texts for row in open_parallel(config).rows(split)]


def refused(config, split="train"):
    with pytest.raises(InputError) as caught:
        read(config, split)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# --- files ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("packed", [False, True])
def test_files_are_read_in_pairs(tmp_path, packed):
    config = write(tmp_path, packed=packed)
    back = replace(config, source_language="de", target_language="en")
    for split, pairs in TEXT.items():
        assert read(config, split) == pairs
        assert read(back, split) == [pair[::-1] for pair in pairs]
    few = files(tmp_path, max_train_pairs=2)
    assert read(few) == TEXT["train"][:2] and len(read(few, "valid")) == 3


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([("a", "b"), ("", "b")], "{0}/valid.en and valid.de:2: 'en' is empty: it would falsify"),
        ([("a", "b"), ("a", "\t")], "{0}/valid.en and valid.de:2: 'de' is empty: it would falsify"),
        ((b"a\n" * 3, b"b\n" * 5), "{0}/valid.en has 3 lines and {0}/valid.de 5: "),
        ((b"", b"b\n"), "{0}/valid.en has 0 lines and {0}/valid.de 1: "),
        ((b"", b""), "{0}/valid.en and valid.de are empty"),
        (None, "{0} has no valid.en and valid.de, aligned by line, nor valid with .tsv, .tsv.gz"),
    ],
)
def test_what_is_wrong_with_files_is_named(tmp_path, content, message):
    config = write(tmp_path, **({"valid": content} if content else {}))
    if content is None:
        (tmp_path / "valid.de").unlink()
    assert refused(config, "valid").startswith(message.format(tmp_path))


# --- rows ----------------------------------------------------------------------------------------

PAIRS = [("one, two", "eins"), ('"quoted" text', "zwei"), ("", "leer"), ("four", "vier\u2028")]


def tsv(pairs, *header):
    return "".join("\t".join(row) + "\n" for row in [*([header] if header else []), *pairs])


def without_train(folder):
    config = write(folder, train=[])
    for language in ("en", "de"):
        (folder / f"train.{language}").unlink()
    return config


def jsonl(pairs, source="en", target="de"):
    return "".join(json.dumps({source: a, target: b, "id": 1}) + "\n" for a, b in pairs)


def nested(pairs):
    """The rows of Hugging Face's translation data sets."""
    return "".join(json.dumps({"translation": {"en": a, "de": b}}) + "\n" for a, b in pairs)


@pytest.mark.parametrize(
    ("name", "content", "fields"),
    [
        ("train.TSV", tsv([("x", b, a) for a, b in PAIRS], "id", "de", "en"), {}),
        ("train.tsv", tsv(PAIRS), {"source_field": 0, "target_field": 1}),
        ("train.json", nested(PAIRS), {}),
        ("train.json", jsonl(PAIRS, "src", "tgt"), {"source_field": "src", "target_field": "tgt"}),
    ],
)
def test_rows_of_tables_and_json_are_pairs(tmp_path, name, content, fields):
    config = replace(without_train(tmp_path), **fields)
    (tmp_path / name).write_text(content)
    assert read(config) == PAIRS
    # The path may name the file itself, next to the other splits.
    one = replace(config, path=str(tmp_path / name))
    assert read(one) == PAIRS and read(one, "test") == TEXT["test"]


@pytest.mark.parametrize(
    ("valid", "test", "aligned"), [(0.2, 0.3, True), (0.2, 0.3, False), (0.1, None, False)]
)
def test_shares_of_one_corpus_are_held_out(tmp_path, valid, test, aligned):
    """By the pair itself, whatever its place, and the same in both directions."""
    pairs = [(f"sentence {i}", f"Satz {i}") for i in range(500)]
    every = [*pairs, *pairs[:50], ("", "leer")]
    if aligned:
        write(tmp_path, corpus=every)
    else:
        write(tmp_path)
        (tmp_path / "corpus.tsv").write_text(tsv([*every, ("three", "x", "y")], "en", "de"))
    shares = {"valid_fraction": valid, "test_fraction": test, "max_bad_rows": 1}
    config = files(tmp_path, train="corpus", **shares)
    source = open_parallel(config)
    found = {split: [row.texts for row in source.rows(split)] for split in TEXT}
    assert found["train"].pop() == ("", "leer")
    if test is None:
        assert found.pop("test") == TEXT["test"]
    assert sorted(pair for split in found.values() for pair in split) == sorted(
        [*pairs, *pairs[:50]]
    )
    split_of = {pair: split for split, some in found.items() for pair in some}
    assert len(split_of) == len(pairs) == sum(len(set(some)) for some in found.values())
    assert len(set(found["valid"])) == pytest.approx(500 * valid, abs=30)
    back = replace(config, source_language="de", target_language="en")
    assert [pair[::-1] for pair in read(back, "valid")] == found["valid"]
    few = replace(config, max_train_pairs=7)
    assert read(few) == found["train"][:7] and read(few, "valid") == found["valid"]


@pytest.mark.parametrize(
    ("name", "content", "changes", "message"),
    [
        ("train.tmx", "", {}, "{0} has no train.en and train.de, .*(convert a TMX), or set"),
        ("a.tmx", "", {"path": "a.tmx"}, "data.path={0}/a.tmx is not a file .*: convert it, or"),
        ("a", "", {"path": "no"}, "data.path: {0}/no is no folder"),
        (
            "train.tsv",
            tsv(PAIRS),
            {},
            "{0}/train.tsv:1 has no column 'en', but one, two, eins: set",
        ),
        ("train.jsonl", '{"a": 1}', {}, "{0}/train.jsonl:1: no 'en' among its keys ['a'] (data.so"),
        (
            *("train.tsv", "en\tde\na\tb\n", {"valid_fraction": 1e-9}),
            "{0}/train.tsv has no pair for valid with data.valid_fraction=1e-09 and",
        ),
    ],
)
def test_what_is_wrong_with_rows_is_named(tmp_path, name, content, changes, message):
    config = without_train(tmp_path)
    (tmp_path / name).write_text(content)
    if "path" in changes:
        changes = {"path": str(tmp_path / changes["path"])}
    split = "valid" if "valid_fraction" in changes else "train"
    start, *end = message.format(tmp_path).split(".*")
    told = refused(replace(config, **changes), split)
    assert told.startswith(start) and all(part in told for part in end)


def test_aligned_files_and_rows_of_one_split_are_a_mistake(tmp_path):
    config = write(tmp_path)
    (tmp_path / "train.tsv").write_text("")
    assert refused(config).startswith(f"{tmp_path} has train.en and train.tsv: keep one of them")


def test_bad_rows_are_skipped_up_to_the_limit_and_empty_ones_always(tmp_path, capsys):
    rows = tsv([*TEXT["train"], ("", "leer"), ("a", "b", "c"), ("d",)], "en", "de")
    write(tmp_path)
    (tmp_path / "bad.tsv").write_text(rows)
    with pytest.raises(InputError, match=r"bad\.tsv:43: 3 tab-separated .*so far: 2\).*\(now 1\)"):
        read(files(tmp_path, train="bad", max_bad_rows=1))
    text = prepare(files(tmp_path, train="bad", max_bad_rows=2), tmp_path / "cache")
    assert capsys.readouterr().err.startswith(
        "en-de: 2 bad rows skipped (the first: bad.tsv:43: 3 tab"
    )
    assert text.manifest["filter"]["left_out"]["empty"] == 1


# --- the Hub -------------------------------------------------------------------------------------


@pytest.fixture
def hub(monkeypatch):
    """Replace WMT14 on the Hub with a fake; return its splits and the calls that were made."""
    names = {"train": "train", "validation": "valid", "test": "test"}
    stand_in = SimpleNamespace(
        splits={
            name: [{"de": german, "en": english} for english, german in TEXT[split]]
            for name, split in names.items()
        },
        features=datasets.Features(translation=datasets.Translation(languages=["de", "en"])),
        calls=[],
    )

    def load_dataset(path, name=None, *, revision=None, split=None, streaming=False):
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
        assert [row.texts for row in source.rows(split)] == pairs
    assert hub.calls == [
        ("wmt/wmt14", "de-en", COMMIT, split) for split in ("train", "validation", "test")
    ]
    account = source.describe()
    assert (account["kind"], account["revision"]) == ("hub", COMMIT)
    assert account["rows"] == {split: len(pairs) for split, pairs in TEXT.items()}
    hub.splits["train"] = [{"en": "a\nb\r\n", "de": "c \u2028 d"}, {"en": "a", "de": ""}]
    assert read(of_hub()) == [("a b", "c \u2028 d"), ("a", "")]


@pytest.mark.parametrize(
    ("rows", "changes", "message"),
    [
        (
            [{"en": "a", "de": "b"}, {"en": "c", "de": None}],
            {},
            ":2: 'de' is empty: it would falsi",
        ),
        ([], {}, " has no row"),
        ([], {"target_language": "fr"}, " has the languages de, en, not fr: "),
        (
            *([{"en": "a", "de": "b"}] * 2737, {"test_lines": 3003}),
            " has 2,737 lines, not 3,003: scores on the two cannot be compared",
        ),
    ],
)
def test_what_is_wrong_on_the_hub_is_named(hub, rows, changes, message):
    hub.splits["test"] = rows
    told = refused(of_hub(**({"test_lines": None} | changes)), "test")
    assert told.startswith(f"wmt/wmt14 (de-en, test){message}")


# --- the templates -------------------------------------------------------------------------------


def test_built_in_pairs_go_both_ways_and_have_no_other_language():
    config = BuiltinParallel(train_pairs=40, valid_pairs=3, test_pairs=2)
    for split, count in (("train", 40), ("valid", 3), ("test", 2)):
        assert read(config, split) == list(builtin_pairs(split, count))
    back = BuiltinParallel(source_language="de", target_language="en", test_pairs=1)
    ((english, german),) = builtin_pairs("test", 1)
    assert read(back, "test") == [(german, english)]
    message = refused(BuiltinParallel(target_language="fr"))
    assert message.startswith("the built-in text is English and German, not en and fr")
