"""Paths on the command line are read as typed, whatever characters they have."""

from pathlib import Path

import pytest

from roformer.config.composing import Composer, compose
from roformer.config.schema import RuntimeConfig
from roformer.errors import InputError
from tests.conf.composed import built, config

TYPED = [
    *("语料/größe (1).txt", "/data/lang=en/a.txt", "a[1].txt", "{a}", 'say "x"', "it's 'q'x"),
    *(
        "  lead",
        "trail  ",
        "a\\b",
        "a\\",
        "2024",
        "1e3",
        "true",
        "$x",
        "a:b;c@d#e&f!",
        "a*?<>|`^+~",
    ),
]
KEYS = {
    "pretrain": ["data.path", "data.tokenizer.source", "runtime.runs_dir"],
    "charlm": ["data.path", "data.member", "runtime.cache_dir"],
    "wmt": ["data.path", "data.train", "data.tokenizer.source"],
    "glue": ["data.path", "init_from", "tokenizer.source", "task.sst2.files.folder"],
    "scm": ["data.path", "init_from"],
}


def value(key, *overrides, pipeline="pretrain"):
    """Return what a key is in the config of a command line."""
    found = built(pipeline, ["data=files", "data.path=x", *overrides])
    for part in key.split("."):
        found = found[part] if isinstance(found, dict) else getattr(found, part)
    return found


@pytest.mark.parametrize("typed", TYPED)
def test_a_path_is_read_as_typed(typed):
    found = value("data", f"data.path={typed}", f"data.tokenizer.source={typed}")
    assert (found.path, found.tokenizer.source) == (typed, typed)


@pytest.mark.parametrize("pipeline", KEYS)
def test_every_key_that_holds_a_path_takes_any(pipeline):
    for key in KEYS[pipeline]:
        for typed in (f'{key}="größe =(1), 语料"', f"++{key}=größe =(1), 语料"):
            assert value(key, typed, pipeline=pipeline) == "größe =(1), 语料"


def test_home_and_interpolations_are_expanded_and_null_is_no_path(monkeypatch):
    monkeypatch.setenv("HOME", "/höme (1)")
    runtime = config("runtime.runs_dir=~/runs runtime.cache_dir=${oc.env:HOME}/ü").runtime
    assert (runtime.runs_dir, runtime.cache_dir) == ("/höme (1)/runs", "/höme (1)/ü")
    assert value("data.path", "data.path=${oc.env:NOWHERE,/a}/ü") == "/a/ü"
    assert RuntimeConfig(runs_dir="~").runs_dir == "/höme (1)"
    assert value("init_from", "init_from=null") is None


@pytest.mark.parametrize("name", ["a,b", '"a"', "${x}", "[a,b]"])
def test_the_name_of_an_existing_path_wins(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path(name).touch()
    assert value("data.path", f"data.path={name}") == name
    key = Composer("pretrain").open_key(f"data.path={name}", multirun=True)
    assert len(Composer("pretrain").jobs([key])) == 1


def test_commas_part_paths_in_a_multirun_alone():
    assert value("data.path", "data.path=ä,b") == "ä,b"
    composer = Composer("pretrain")
    words = ("data=files", "data.path=~a,(b), 'c,d'", "seed=1")
    jobs = composer.jobs([composer.open_key(word, multirun=True) for word in words])
    assert [compose("pretrain", job).data.path for job in jobs] == ["~a", "(b)", "c,d"]


def test_other_values_that_need_quotes_are_shown_with_them():
    message = "^tracker.project=größe: this value needs quotes, 'tracker.project=\"größe\"'$"
    with pytest.raises(InputError, match=message):
        compose("pretrain", ["tracker.project=größe"])
    assert config('tracker.project="größe"').tracker.project == "größe"
