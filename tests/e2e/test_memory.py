"""Growth of memory over steps, evaluations and the size of the corpus."""

import json
import random
import re
import resource
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from roformer.config.schema import FilesText, TokenizerConfig
from roformer.data import text
from roformer.data.store import Builder
from roformer.data.tokenizers import train_wordpiece
from roformer.tasks import mlm
from roformer.training.loop import Loop
from tests.e2e.conftest import SMALL, places, small_run
from tests.e2e.wmt_runs import SMALL as TRANSLATION
from tests.e2e.wmt_runs import small_run as translate
from tests.e2e.wmt_runs import write_parallel_text
from tests.scripts import forkserver

pytestmark = pytest.mark.slow
MB = 1 << 20
SMALLEST = [
    *(*SMALL, "model.layers=1", "model.hidden_size=32", "model.heads=2"),
    *("model.intermediate_size=64", "training.batch_size=32"),
]
STEPS, LENGTH, SHAPES = 400, 128, 20


# --- in the process that is measured -------------------------------------------------------------


def anonymous():
    """Return bytes of memory that is no file's, now in RAM."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"RssAnon:\s+(\d+)", status)[1]) << 10


def sampled():
    """Return a list that gets the memory before each step of the trainings in this process."""
    sizes, make = [], Loop._step

    def sample(loop, batches):
        sizes.append(anonymous())
        make(loop, batches)

    Loop._step = sample
    return sizes


def over_steps(folder):
    """Train long, evaluating often; return the most in the first quarter, warmed up, and the last."""
    sizes = sampled()
    keys = [f"steps={STEPS}", "evaluate_every=10", "log_every=10", "checkpoint_every=100"]
    keys += ["sequence_length=64", "valid_sequences=64"]
    where = [f"data.path={folder / 'text.jsonl'}", *places(folder)]
    small_run([*SMALLEST, *(f"training.{key}" for key in keys), *where])
    quarter = STEPS // 4
    return max(sizes[quarter // 2 : quarter]), max(sizes[-quarter:])


def over_shapes(folder):
    """Translate pairs of many lengths; return the most before step N and before 3N."""
    steps = 3 * SHAPES
    sizes = sampled()
    write_parallel_text(folder / "parallel", 4000, longest=40)
    keys = [f"steps={steps}", f"evaluate_every={steps}", f"checkpoint_every={SHAPES}"]
    keys += ["precision=bf16", "tokens_per_update=1024", "bucket_tokens=1024"]
    where = [f"data.path={folder / 'parallel'}", *places(folder)]
    where += ["runtime.tune_process=true", "runtime.threads=1"]
    translate([*TRANSLATION, *(f"training.{key}" for key in keys), *where])
    return max(sizes[SHAPES - 5 : SHAPES]), max(sizes[-6:])


def write_shards(folder, size):
    """Write a prepared corpus of so many bytes of training tokens, as `prepare_text` would."""
    tokenizer = train_wordpiece(["a few words of some text"] * 2, 64, True)
    tokenizer.save(folder / "tokenizer")
    generator = np.random.default_rng(0)
    builder = Builder(folder)
    for split, tokens in (("train", size // 2), ("valid", 50_000)):
        ids = generator.integers(5, tokenizer.size, tokens, dtype=np.uint16)
        ids[::100] = tokenizer.sep_id
        builder.split(split, ids=np.uint16).append(ids=[ids])
    facts = {"max_documents": None, "duplicates_dropped": 0, "unknown_share": 0.0}
    builder.finish("text", {"source": {"kind": "made here"}, **facts})


def over_corpus(folder):
    """Train a few steps on prepared tokens; return the growth and the number of blocks."""

    def opened(config=None, start=None):
        return text.PreparedText(folder)

    mlm.prepare = opened
    sizes, before = sampled(), anonymous()
    keys = ["training.steps=12", f"training.sequence_length={LENGTH}"]
    small_run([*SMALLEST, *keys, "data.path=unread", f"runtime.runs_dir={folder / 'runs'}"])
    return max(sizes) - before, len(opened().train) // (LENGTH - 2)


def write_text(folder, size):
    """Write documents of about 5 kB out of 2,000 words."""
    generator = random.Random(0)
    words = ["".join(generator.choices("abcdefghijklmnop", k=7)) for _ in range(2000)]
    with (folder / "text.jsonl").open("w") as file:
        while file.tell() < size:
            file.write(json.dumps({"text": " ".join(generator.choices(words, k=600))}) + "\n")


def over_preparation(folder):
    """Prepare a text in small batches; return the peak."""
    text.CHARACTERS = 2**18  # so that the smaller text has several
    config = FilesText(path=str(folder / "text.jsonl"), tokenizer=TokenizerConfig(vocab_size=500))
    text.prepare_text(config, folder / "cache", workers=1, progress=False)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


# --- in the process of the tests -----------------------------------------------------------------


def measured(work, *given):
    """Return what `work` returns, in a process of its own."""
    with ProcessPoolExecutor(1, forkserver()) as pool:
        return pool.submit(work, *given).result()


def test_steps_and_evaluations_keep_nothing(tmp_path):
    """300 batches of 21 kB would be 6 MB, 30 evaluations' logits of 1.3 MB each 39 MB."""
    write_text(tmp_path, MB)
    first, last = measured(over_steps, tmp_path)
    assert last - first < 4 * MB


def test_new_lengths_keep_nothing(tmp_path):
    """By 72 MB where ideep keeps the primitives of 1,024 shapes, by 11 as shipped."""
    first, last = measured(over_shapes, tmp_path)
    assert last - first < 30 * MB


def test_a_larger_corpus_costs_the_order_of_its_blocks(tmp_path):
    """8 bytes a block, the permutation of an epoch: 70 MB for English Wikipedia and BookCorpus in
    blocks of 512. The tokens themselves stay in the mapped file: 99 MB more would show."""
    found = []
    for size in (1, 100):
        (folder := tmp_path / f"{size} MB").mkdir()
        write_shards(folder, size * MB)
        found.append(measured(over_corpus, folder))
    (small, few), (large, many) = found
    assert large - small < 8 * (many - few) + 12 * MB


def test_preparing_more_text_costs_a_digest_a_document(tmp_path):
    """Python keeps about 100 bytes of each, 0.2 MB for 1,800 more documents."""
    found = []
    for size in (1, 10):
        (folder := tmp_path / f"{size} MB").mkdir()
        write_text(folder, size * MB)
        found.append(measured(over_preparation, folder))
    assert found[1] - found[0] < 6 * MB
