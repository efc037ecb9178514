"""Parallel text from files, the Hub and the templates: aligned pairs, or one line that says why not."""

from types import SimpleNamespace

import datasets
import pytest

from roformer.config.wmt import BuiltinParallel, HubParallel
from roformer.data.sources.pairs import open_parallel
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
    for split, pairs in TEXT.items():
        assert read(config, split) == pairs
    few = files(tmp_path, max_train_pairs=2)
    assert read(few) == TEXT["train"][:2] and len(read(few, "valid")) == 3


def test_only_a_newline_ends_a_line_and_a_byte_order_mark_is_no_text(tmp_path):
    config = write(tmp_path, valid=("\ufeffa \u2028 b\r\nc\x85d\n".encode(), b"e\nf\x0bg"))
    assert read(config, "valid") == [("a \u2028 b", "e"), ("c\x85d", "f\x0bg")]


def test_names_and_languages_are_those_of_the_config(tmp_path):
    write(tmp_path, dev=[("one", "eins")])
    config = files(tmp_path, valid="dev", source_language="de", target_language="en")
    assert read(config, "valid") == [("eins", "one")]


def test_empty_training_sides_are_left_out_and_counted(tmp_path):
    config = write(tmp_path, train=[("a", "b"), ("", "c"), ("d", " \t"), ("", ""), ("e", "f")])
    source = open_parallel(config)
    for _ in range(2):  # the counts are of one reading
        assert [row.texts for row in source.rows("train")] == [("a", "b"), ("e", "f")]
        assert (source.skipped, source.rows_read) == ({"train": 3}, {"train": 5})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([("a", "b"), ("", "b")], "{0}/valid.en and valid.de:2: 'en' is empty: it would falsify"),
        ([("a", "b"), ("a", "\t")], "{0}/valid.en and valid.de:2: 'de' is empty: it would falsify"),
        ((b"a\n" * 3, b"b\n" * 5), "{0}/valid.en has 3 lines and {0}/valid.de 5: "),
        ((b"", b"b\n"), "{0}/valid.en has 0 lines and {0}/valid.de 1: "),
        ((b"", b""), "{0}/valid.en and valid.de are empty"),
        (
            None,
            "{0} has no valid.de, nor with .gz, but test.de, test.en, train.de, train.en, valid.en",
        ),
    ],
)
def test_what_is_wrong_with_files_is_named(tmp_path, content, message):
    config = write(tmp_path, **({"valid": content} if content else {}))
    if content is None:
        (tmp_path / "valid.de").unlink()
    assert refused(config, "valid").startswith(message.format(tmp_path))


def test_a_missing_folder_is_named(tmp_path):
    assert refused(files(tmp_path / "no")).startswith(f"data.path: {tmp_path}/no is no folder")


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
    assert read(of_hub()) == [("a b", "c \u2028 d")]


def test_what_is_wrong_on_the_hub_is_named(hub):
    for rows, message in (
        ([{"en": "a", "de": "b"}, {"en": "c", "de": None}], ":2: 'de' is empty: it would falsify"),
        ([], " has no row"),
    ):
        hub.splits["validation"] = rows
        told = f"wmt/wmt14 (de-en, validation){message}"
        assert refused(of_hub(), "valid").startswith(told)
    message = refused(of_hub(target_language="fr"))
    assert message.startswith("wmt/wmt14 (de-en, train) has the languages de, en, not fr: ")


def test_the_number_of_test_lines_is_checked(hub):
    hub.splits["test"] = hub.splits["test"][:1] * 2737
    message = refused(of_hub(test_lines=3003), "test")
    assert message.startswith(
        "wmt/wmt14 (de-en, test) has 2,737 lines (a filtered newstest2014), not 3,003: scores"
    )
    for lines in (2737, None):
        assert len(read(of_hub(test_lines=lines), "test")) == 2737


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


# --- the same from all ---------------------------------------------------------------------------


def test_equal_content_has_an_equal_fingerprint_wherever_it_came_from(hub, tmp_path):
    shared = {"tokenizer": files(".").tokenizer, "filter": files(".").filter}
    sources = [
        write(tmp_path / "plain"),
        write(tmp_path / "packed", packed=True),
        of_hub(**shared),
    ]
    made = [prepare(source, tmp_path / "cache") for source in sources]
    assert len({text.folder for text in made}) == 3
    assert len({text.fingerprint for text in made}) == 1
