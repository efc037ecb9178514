"""Prepared data of every kind, small: made, made again and read as a run does it."""

import json

from roformer.config.glue import FilesGlue
from roformer.config.lm import FileBytes
from roformer.config.schema import FilesText, TokenizerConfig
from roformer.config.scm import FilesTriplets
from roformer.data.bytes import prepare_bytes
from roformer.data.text import prepare_text
from roformer.data.triplets import triplet_rows
from tests.data.glue_tasks import TOKENIZER, as_files
from tests.data.glue_tasks import prepare as prepare_task
from tests.data.parallel_texts import files
from tests.data.parallel_texts import prepare as prepare_parallel
from tests.data.parallel_texts import write as write_parallel


def make_text(source, cache):
    if not (file := source / "rows.jsonl").exists():
        rows = [json.dumps({"text": f"Document {i} of the few."}) + "\n" for i in range(40)]
        file.write_text("".join(rows))
    config = FilesText(path=str(source), tokenizer=TokenizerConfig(vocab_size=100))
    return prepare_text(config, cache, progress=False)


def make_bytes(source, cache):
    if not (file := source / "a.txt").exists():
        file.write_bytes(bytes(range(256)) * 4)
    return prepare_bytes(FileBytes(path=str(source)), cache, progress=False)


def make_task(source, cache):
    config = FilesGlue(path=str(source)) if (source / "RTE").exists() else as_files(source)
    return prepare_task("rte", config, cache)


def make_triplets(source, cache):
    for name, label in (("train", "C"), ("validation", "B")):
        row = {"A": "a b", "B": "c", "C": "d e f", "label": label}
        if not (file := source / f"{name}.json").exists():
            file.write_text(json.dumps(row) + "\n")
    return triplet_rows(FilesTriplets(path=str(source))).prepare(TOKENIZER, cache, progress=False)


def make_pairs(source, cache):
    config = files(source) if (source / "train.en").exists() else write_parallel(source)
    return prepare_parallel(config, cache)


MAKE = {
    "text": make_text,
    "bytes": make_bytes,
    "glue": make_task,
    "scm": make_triplets,
    "wmt": make_pairs,
}
"""Kind of prepared data → what makes it of a source folder, which it fills where it is empty."""


def make(kind, folder):
    """Prepare data of a kind below a folder, or open what is prepared there."""
    (folder / "source").mkdir(parents=True, exist_ok=True)
    return MAKE[kind](folder / "source", folder / "cache")


def content(prepared):
    """Return all that a run would use."""
    files = sorted(prepared.folder.rglob("*"))
    return {file.name: file.read_bytes() for file in files if file.is_file()}
