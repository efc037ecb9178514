"""What the tests of hostile caches share: prepared data of each kind, read as a run reads it."""

import hashlib
import json

from roformer.config.schema import FilesText, TokenizerConfig
from roformer.data import glue_prepared, parallel, shards
from roformer.data.glue_prepared import TaskData
from roformer.data.parallel import ParallelText
from roformer.data.shards import TextShards, prepare_text
from tests.unit.glue_tasks import TASKS, as_files
from tests.unit.glue_tasks import prepare as prepare_task
from tests.unit.parallel_texts import files
from tests.unit.parallel_texts import prepare as prepare_parallel
from tests.unit.parallel_texts import write as write_parallel


def make_text(folder):
    (folder / "text").mkdir(parents=True, exist_ok=True)
    if not (file := folder / "text" / "rows.jsonl").exists():  # the cache knows it by its time
        rows = [json.dumps({"text": f"Document {i} of the few."}) + "\n" for i in range(40)]
        file.write_text("".join(rows))
    config = FilesText(path=str(file), tokenizer=TokenizerConfig(vocab_size=100))
    return prepare_text(config, folder / "cache", progress=False).folder


def make_task(folder):
    return prepare_task("rte", as_files(folder), folder / "cache").folder


def make_parallel(folder):
    config = files(folder) if folder.exists() else write_parallel(folder)
    return prepare_parallel(config, folder / "cache").folder


MAKE = {"text": make_text, "task": make_task, "parallel": make_parallel}


def read(kind, folder):
    """Open prepared data as a run does; return all that the run would use."""
    if kind == "text":
        text = TextShards.open(folder)
        text.verify()
        return text.fingerprint, text.train[:].tolist(), text.valid[:].tolist()
    if kind == "task":
        task = TaskData.open(folder, "rte", TASKS["rte"])
        splits = [task.split(name) for name in task.splits]
        ids = [[list(map(int, i)) for i in (*s.ids_a, *(s.ids_b or []))] for s in splits]
        return task.fingerprint, ids, [s.labels.tolist() for s in splits], task.labels
    text = ParallelText.open(folder)
    text.verify()
    sides = [side for pairs in (text.train, text.valid, text.test) for side in vars(pairs).values()]
    ids = [[side[i].tolist() for i in range(len(side))] for side in sides]
    return text.fingerprint, ids, text.texts("valid"), text.texts("test")


def files_of(kind, manifest):
    """Return what a manifest says of each file, to be changed in place."""
    if kind == "text":
        return {shard["file"]: shard for split in manifest["shards"].values() for shard in split}
    return manifest["files"]


def sealed(kind, folder, manifest):
    """Write a manifest whose sums are those of the files as they are and of what it says."""
    for name, stored in files_of(kind, manifest).items():
        if (folder / name).is_file():
            content = (folder / name).read_bytes()
            stored |= {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    tokenizer = manifest["tokenizer"]["fingerprint"]
    if kind == "text":
        manifest["fingerprint"] = shards._fingerprint(manifest["shards"], tokenizer)
    elif kind == "parallel":
        manifest["fingerprint"] = parallel._fingerprint(tokenizer, manifest["files"])
    else:
        manifest["seal"] = glue_prepared.seal(manifest)
    (folder / "manifest.json").write_text(json.dumps(manifest))
