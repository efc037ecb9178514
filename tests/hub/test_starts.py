"""The project's scripts read models and data sets of a Hub, to the end of a small run."""

import json

import pytest
from omegaconf import OmegaConf

from tests.hub.repositories import GLUE, TINY_BERT, VOCABULARY, WIKIPEDIA
from tests.hub.starter import Starter

pytestmark = pytest.mark.slow
SMALL = {
    "glue": ["task=[mrpc,stsb]", "jobs=1"],
    "pretrain": [
        *("training.steps=4", "training.log_every=2", "training.evaluate_every=4"),
        *("training.checkpoint_every=2", "training.valid_sequences=8", "runtime.prepare_workers=1"),
    ],
}
NOTHING_FETCHED = "/resolve/|/api/datasets/"


def arguments(folder, pipeline, *overrides):
    return [
        *("recipe=smoke", "data=hub", "tracker=none", "runtime.device=cpu", "runtime.threads=1"),
        f"runtime.runs_dir={folder / 'runs'}",
        *(f"runtime.cache_dir={folder / 'cache'}", *SMALL[pipeline], *overrides),
    ]


def run(starter, folder, pipeline, *overrides, patience=None):
    """Run a script to its end; return (what it printed, folders of its runs)."""
    command = arguments(folder, pipeline, *overrides)
    done = starter(folder, f"{pipeline}.py", *command, patience=patience)
    assert done.code == 0, done.errors
    return done.output, sorted((folder / "runs" / pipeline).iterdir())


def read(file):
    return OmegaConf.load(file) if file.suffix == ".yaml" else json.loads(file.read_text())


def manifests(folder):
    return [read(file) for file in (folder / "cache").rglob("manifest.json")]


def data_files(commit, config, trains, *others):
    """Return the files of a configuration in the words of `fetched`."""
    names = {f"{config}/train-{i:05d}-of-{trains:05d}.parquet" for i in range(trains)}
    names |= {f"{config}/{split}-00000-of-00001.parquet" for split in others}
    return {f"{commit}/{name}" for name in names}


def test_glue_from_hub_data_and_a_hub_model(hub, home, start, tmp_path):
    """Only the pinned commit, no weights of other frameworks, nothing twice, and without a network.

    Catches a call without its revision, a lost allow_patterns, and a record without the commit.
    """
    (commit,) = hub.repositories[TINY_BERT]
    begun, initial = len(hub.log), f"init_from={TINY_BERT}"
    output, folders = run(start, tmp_path, "glue", initial)
    assert hub.revisions("nyu-mll/glue", begun) == {GLUE}
    files = set().union(*(data_files(GLUE, t, 2, "validation", "test") for t in ("mrpc", "stsb")))
    assert hub.fetched("nyu-mll/glue", begun) == {f"{GLUE}/README.md"} | files
    names = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
    model = {f"{commit}/{name}" for name in (*names, "vocab.txt")}
    assert hub.fetched(TINY_BERT, begun) == model
    assert [folder.name.split("-")[0] for folder in folders] == ["mrpc", "stsb"]
    for folder in folders:
        config = read(folder / "config.yaml")
        assert (config.init_from, config.init_revision) == (TINY_BERT, commit)
        assert (config.data.path, config.data.revision) == ("nyu-mll/glue", GLUE)
    assert "taken: 37 weights of org/tiny-bert" in output
    for manifest in manifests(tmp_path):
        assert manifest["source"]["revision"] == GLUE
        assert manifest["source"]["rows"] == {"train": 60, "validation": 20}

    begun = len(hub.log)
    output, _ = run(start, tmp_path, "glue", initial)
    assert output.count("already done") == 2
    assert all(f"best run, weights kept: {folder}" in output for folder in folders)
    assert not hub.asked(NOTHING_FETCHED, begun)

    begun = len(hub.log)
    with Starter(hub.endpoint, home, HF_HUB_OFFLINE="1") as offline:
        _, without = run(offline, tmp_path / "offline", "glue", initial)
    assert not hub.asked(since=begun)
    assert [folder.name for folder in without] == [folder.name for folder in folders]
    for ours, theirs in zip(without, folders, strict=True):
        assert read(ours / "summary.json")["metrics"] == read(theirs / "summary.json")["metrics"]


def test_pretraining_on_hub_text_downloaded_and_streamed(hub, start, tmp_path):
    """Both read the same; a null revision is looked up, read at that commit, and in the record."""
    books, words = "rojagtap/bookcorpus", "google-bert/bert-base-uncased"
    newest = next(reversed(hub.repositories[books]))
    prepared = []
    for streaming in ("false", "true"):
        begun, folder = len(hub.log), tmp_path / streaming
        _, (made,) = run(start, folder, "pretrain", f"data.streaming={streaming}")
        assert hub.revisions("wikimedia/wikipedia", begun) == {WIKIPEDIA}
        fetched = hub.fetched("wikimedia/wikipedia", begun) - {f"{WIKIPEDIA}/README.md"}
        assert fetched == data_files(WIKIPEDIA, "20231101.en", 3)
        assert hub.revisions(books, begun) == {"main", newest}
        assert len(hub.asked(f"/api/datasets/{books}$", begun)) == 1
        if streaming == "false":
            names = ("tokenizer.json", "tokenizer_config.json", "vocab.txt")
            assert hub.fetched(words, begun) == {f"{VOCABULARY}/{name}" for name in names}
        sources = read(made / "summary.json")["source"]["sources"]
        assert [(s["path"], s["revision"], s["rows_read"]) for s in sources] == [
            ("wikimedia/wikipedia", WIKIPEDIA, 60),
            (books, newest, 500),
        ]
        tokenizer = read(made / "config.yaml").data.tokenizer
        assert (tokenizer.source, tokenizer.revision) == (words, VOCABULARY)
        prepared += manifests(folder)
    downloaded, streamed = prepared
    assert downloaded["fingerprint"] == streamed["fingerprint"]
    assert downloaded["rows"] == {"train": 53, "valid": 11}
    begun = len(hub.log)
    run(start, tmp_path / "false", "pretrain", "data.streaming=false", "seed=1")
    assert not hub.asked(NOTHING_FETCHED, begun)
    assert len([*(tmp_path / "false" / "cache" / "text").glob("[!.]*")]) == 1
