"""The project's scripts read models and data sets of a Hub, to the end of a small run."""

import json
import os
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from tests.hub.conftest import Starter
from tests.hub.repositories import GLUE, TINY_BERT, VOCABULARY, WIKIPEDIA, WMT

pytestmark = pytest.mark.slow
HERE = ["tracker=none", "runtime.device=cpu", "runtime.threads=1", "runtime.progress=false"]
BERT = "google-bert/bert-base-uncased"
BOOKS = "rojagtap/bookcorpus"
FEW = ["training.steps=4", "training.log_every=2", "training.evaluate_every=4"]
SMALL = {
    "glue": [*HERE, "recipe=smoke", "data=hub", "task=[mrpc,stsb]", "jobs=1"],
    "wmt": [
        *(*HERE, *FEW, "recipe=smoke", "data=hub", "data.test_lines=15"),
        *(
            "data.tokenizer.merges=50",
            "schedule.warmup_steps=2",
            "training.tokens_per_update=256",
            "search.beam=1",
        ),
        *("training.bucket_tokens=128", "training.checkpoint_every=2"),
        "training.valid_bleu_sentences=2",
    ],
    "pretrain": [
        *(*HERE, *FEW, "recipe=smoke", "data=hub", "runtime.prepare_workers=1"),
        *("training.checkpoint_every=4", "training.valid_sequences=8"),
    ],
}


def run(starter, folder: Path, pipeline: str, *overrides: str, waits: bool = True):
    """Run a script to its end; return (what it printed, folders of its runs)."""
    where = [f"runtime.runs_dir={folder / 'runs'}", f"runtime.cache_dir={folder / 'cache'}"]
    arguments = [*SMALL[pipeline], *where, *overrides]
    done = starter(folder, f"{pipeline}.py", *arguments, waits=waits)
    assert done.code == 0, done.errors
    return done, sorted((folder / "runs" / pipeline).iterdir())


def read(file: Path):
    return json.loads(file.read_text())


def data_files(config: str, trains: int, *others: str) -> set[str]:
    names = {f"{config}/train-{i:05d}-of-{trains:05d}.parquet" for i in range(trains)}
    return {"README.md"} | names | {f"{config}/{split}-00000-of-00001.parquet" for split in others}


def at(commit: str, names: set[str]) -> set[str]:
    return {f"{commit}/{name}" for name in names}


def test_glue_from_hub_data_and_a_hub_model(hub, home, start, tmp_path):
    """The pinned commit alone, no weights of other frameworks, nothing twice, and without a network.

    Catches a call without its revision, a lost allow_patterns, and a record without the commit.
    """
    (commit,) = hub.repositories["models", TINY_BERT].commits
    begun = len(hub.log)
    done, folders = run(start, tmp_path, "glue", f"init_from={TINY_BERT}")
    assert hub.revisions("nyu-mll/glue", begun) == {GLUE}
    files = data_files("mrpc", 2, "validation", "test") | data_files(
        "stsb", 2, "validation", "test"
    )
    assert hub.fetched("nyu-mll/glue", begun) == at(GLUE, files)
    names = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"}
    assert hub.fetched(TINY_BERT, begun) == at(commit, {*names, "vocab.txt"})
    assert [folder.name.split("-")[0] for folder in folders] == ["mrpc", "stsb"]
    for folder in folders:
        config = OmegaConf.load(folder / "config.yaml")
        assert (config.init_from, config.init_revision) == (TINY_BERT, commit)
        assert (config.data.path, config.data.revision) == ("nyu-mll/glue", GLUE)
    assert "29 weights from org/tiny-bert" in done.output
    for manifest in map(read, (tmp_path / "cache").rglob("manifest.json")):
        assert manifest["source"]["revision"] == GLUE
        assert manifest["source"]["rows"] == {"train": 60, "validation": 20}

    begun = len(hub.log)
    again, _ = run(start, tmp_path, "glue", f"init_from={TINY_BERT}")
    assert again.output.count("already done") == 2
    assert not hub.asked("/resolve/|/cdn/|/datasets/", begun)

    begun = len(hub.log)
    with Starter(hub.endpoint, home, HF_HUB_OFFLINE="1") as offline:
        _, without = run(offline, tmp_path / "offline", "glue", f"init_from={TINY_BERT}")
        assert not hub.asked(since=begun)
        other = offline(
            *(tmp_path / "other", "glue.py", *SMALL["glue"], f"data.revision={'c' * 40}"),
            f"runtime.cache_dir={tmp_path / 'other'}",
        )
    assert [folder.name for folder in without] == [folder.name for folder in folders]
    for ours, theirs in zip(without, folders, strict=True):
        assert read(ours / "summary.json")["metrics"] == read(theirs / "summary.json")["metrics"]
    # `datasets` would take what it has of another revision, and the record would not know.
    assert other.code == 2 and f"of revision {'c' * 40} nothing is in the cache" in other.errors


def test_translation_of_hub_data(hub, start, tmp_path):
    begun = len(hub.log)
    _, (folder,) = run(start, tmp_path, "wmt")
    assert hub.revisions("wmt/wmt14", begun) == {WMT}
    files = data_files("de-en", 3, "validation", "test")
    assert hub.fetched("wmt/wmt14", begun) == at(WMT, files)
    config = OmegaConf.load(folder / "config.yaml")
    assert (config.data.path, config.data.revision) == ("wmt/wmt14", WMT)
    (manifest,) = map(read, (tmp_path / "cache").rglob("manifest.json"))
    assert manifest["source"]["rows"] == {"train": 240, "valid": 12, "test": 15}
    begun = len(hub.log)
    run(start, tmp_path, "wmt", "seed=1")
    assert not hub.asked("wmt14", begun)


def test_pretraining_on_hub_text_downloaded_and_streamed(hub, start, tmp_path):
    """Both read the same; a null revision is looked up, read at that commit, and in the record."""
    newest = next(reversed(hub.repositories["datasets", BOOKS].commits))
    prepared = []
    for streaming in (False, True):
        begun = len(hub.log)
        folder = tmp_path / str(streaming)
        _, (made,) = run(start, folder, "pretrain", f"data.streaming={streaming}")
        assert hub.revisions("wikimedia/wikipedia", begun) == {WIKIPEDIA}
        files = data_files("20231101.en", 3)
        assert hub.fetched("wikimedia/wikipedia", begun) >= at(WIKIPEDIA, files - {"README.md"})
        assert hub.fetched("wikimedia/wikipedia", begun) <= at(WIKIPEDIA, files)
        assert hub.revisions(BOOKS, begun) == {"main", newest}
        assert len(hub.asked(f"/api/datasets/{BOOKS}$", begun)) == 1
        if not streaming:
            assert hub.fetched(BERT, begun) == {f"{VOCABULARY}/vocab.txt"}
        sources = read(made / "summary.json")["source"]["sources"]
        assert [(s["path"], s["revision"], s["rows_read"]) for s in sources] == [
            ("wikimedia/wikipedia", WIKIPEDIA, 60),
            (BOOKS, newest, 500),
        ]
        tokenizer = OmegaConf.load(made / "config.yaml").data.tokenizer
        assert (tokenizer.source, tokenizer.revision) == (BERT, VOCABULARY)
        prepared.append(next(folder.rglob("manifest.json")))
    downloaded, streamed = map(read, prepared)
    assert downloaded["fingerprint"] == streamed["fingerprint"]
    assert downloaded["rows"] == {"train": 57, "valid": 7}
    begun = len(hub.log)
    run(start, tmp_path / "False", "pretrain", "data.streaming=false", "seed=1")
    assert not hub.asked("/resolve/|/cdn/|/datasets/", begun)
    assert os.listdir(tmp_path / "False" / "cache" / "text") == [prepared[0].parent.name]


def test_pretraining_on_chinese_hub_text(hub, start, tmp_path):
    """The Chinese Wikipedia alone, at the pinned commit; the vocabulary is learnt from it."""
    begun = len(hub.log)
    _, (made,) = run(start, tmp_path, "pretrain", "data=chinese_hub")
    assert hub.revisions("wikimedia/wikipedia", begun) == {WIKIPEDIA}
    assert hub.fetched("wikimedia/wikipedia", begun) <= at(WIKIPEDIA, data_files("20231101.zh", 3))
    (manifest,) = map(read, (tmp_path / "cache").rglob("manifest.json"))
    assert manifest["tokenizer"]["words"].startswith("rjieba ")
    settings = read(made / "tokenizer" / "tokenizer_config.json")
    assert settings["tokenizer_class"] == "RoFormerTokenizer"


def test_load_model_of_a_hub_id(hub, start, tmp_path):
    (commit,) = hub.repositories["models", TINY_BERT].commits
    script = tmp_path / "load.py"
    script.write_text(
        f"import roformer\nprint(type(roformer.load_model({TINY_BERT!r}).model).__name__)\n"
    )
    begun = len(hub.log)
    done = start(tmp_path / "loaded", str(script))
    assert (done.code, done.output.strip()) == (0, "MaskedLM"), done.errors
    assert hub.revisions(TINY_BERT, begun) <= {"main", commit}
    fetched = hub.fetched(TINY_BERT)
    assert not [name for name in fetched if name.endswith((".bin", ".h5", ".onnx"))]
