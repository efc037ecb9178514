"""Growth of anonymous memory over steps, evaluations and the size of the corpus.

RssAnon is sampled all the time: mapped files do not count in it, and peaks between steps do.
"""

import json
import random
import re
import threading
import time
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


class Samples(threading.Thread):
    """The most RssAnon at each place of the work, beyond what it was at the start.

    Its own memory is all there from the start: a list of samples would grow with time, by megabytes on
    a slow machine.
    """

    def __init__(self, place=lambda: 0, places=1):
        super().__init__(daemon=True)
        self.place, self.most = place, np.full(places, -1, np.int64)
        self.before = anonymous()
        self.start()

    def run(self):
        while True:
            place = self.place()
            self.most[place] = max(self.most[place], anonymous() - self.before)
            time.sleep(0.002)

    def peak(self, first=0, last=None):
        """Return the most while the work was at `first` … before `last`."""
        most = int(self.most[first:last].max())
        assert most >= 0, "no sample was taken there"
        return most


def sampled(steps):
    """Sample the memory by the step that is being made, from 0."""
    step, make = 0, Loop._step

    def counted(loop, batches):
        nonlocal step
        step = loop.state.step
        make(loop, batches)

    Loop._step = counted
    return Samples(lambda: step, steps + 1)


def over_steps(folder):
    """Train long, evaluating often; return the peaks of the first quarter, warmed up, and the last."""
    samples = sampled(STEPS)
    keys = [f"steps={STEPS}", "evaluate_every=10", "log_every=10", "checkpoint_every=100"]
    keys += ["sequence_length=64", "valid_sequences=64"]
    where = [f"data.path={folder / 'text.jsonl'}", *places(folder)]
    small_run([*SMALLEST, *(f"training.{key}" for key in keys), *where])
    quarter = STEPS // 4
    return samples.peak(quarter // 2, quarter), samples.peak(STEPS - quarter)


def over_shapes(folder):
    """Translate pairs of many lengths; return the peaks before step N and before 3N."""
    steps = 3 * SHAPES
    samples = sampled(steps)
    write_parallel_text(folder / "parallel", 4000, longest=40)
    keys = [f"steps={steps}", f"evaluate_every={steps}", f"checkpoint_every={SHAPES}"]
    keys += ["precision=bf16", "tokens_per_update=1024", "bucket_tokens=1024"]
    where = [f"data.path={folder / 'parallel'}", *places(folder)]
    where += ["runtime.tune_process=true", "runtime.threads=1"]
    translate([*TRANSLATION, *(f"training.{key}" for key in keys), *where])
    return samples.peak(SHAPES - 5, SHAPES), samples.peak(steps - 6, steps - 1)


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
    """Train a few steps on prepared tokens; return the peak and the number of blocks."""

    def opened(config=None, start=None):
        return text.PreparedText(folder)

    mlm.prepare = opened
    samples = Samples()
    keys = ["training.steps=12", f"training.sequence_length={LENGTH}"]
    small_run([*SMALLEST, *keys, "data.path=unread", f"runtime.runs_dir={folder / 'runs'}"])
    return samples.peak(), len(opened().train) // (LENGTH - 2)


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
    samples = Samples()
    text.prepare_text(config, folder / "cache", workers=1, progress=False)
    return samples.peak()


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
