"""Growth of anonymous memory over steps, evaluations and the size of the corpus.

RssAnon is sampled all the time: mapped files do not count in it, and peaks between steps do. Every
measurement is a child of a process that has imported everything, so that none sees another's.
"""

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections import deque
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from roformer.config.schema import FilesText, TokenizerConfig
from roformer.data import text
from roformer.data.store import Builder, RaggedTokens
from roformer.data.tokenizers import train_wordpiece
from roformer.data.translation_batches import Pairs, Steps
from roformer.tasks import mlm
from roformer.training.loop import Loop
from roformer.training.process import KeptMemory, tune_process
from tests.conftest import REPOSITORY
from tests.e2e.conftest import SMALL, small_run
from tests.e2e.wmt_runs import SMALL as TRANSLATION
from tests.e2e.wmt_runs import small_run as translate
from tests.e2e.wmt_runs import write_parallel_text

pytestmark = pytest.mark.slow
MB = 1 << 20
SMALLEST = [
    *(*SMALL, "model.layers=1", "model.hidden_size=32", "model.heads=2"),
    *("model.intermediate_size=64", "training.batch_size=32"),
]
STEPS, LENGTH, SHAPES = 400, 128, 20
CORPORA = {"1 MB": MB, "100 MB": 100 * MB}
TEXTS = {"text of 1 MB": MB, "text of 10 MB": 10 * MB}
PAIRS = (100_000, 1_000_000)


# --- in the process that measures ----------------------------------------------------------------


def anonymous():
    """Return bytes of memory that is no file's, now in RAM."""
    (line,) = (
        line
        for line in Path("/proc/self/status").read_text().splitlines()
        if line.startswith("RssAnon:")
    )
    return int(line.split()[1]) << 10


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


def measured(work, *given):
    """Return what `work` returns, in a child."""
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        os.write(writing, json.dumps(work(*given)).encode())
        os._exit(0)
    os.close(writing)
    with open(reading) as stream:
        result = stream.read()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    return json.loads(result)


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
    where = [f"data.path={folder / 'text'}", f"runtime.cache_dir={folder / 'cache'}"]
    where += [f"runtime.runs_dir={folder / 'runs'}"]
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
    where = [f"data.path={folder / 'parallel'}", f"runtime.cache_dir={folder / 'cache'}"]
    where += [
        f"runtime.runs_dir={folder / 'runs'}",
        "runtime.tune_process=true",
        "runtime.threads=1",
    ]
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
    config = FilesText(path=str(folder), tokenizer=TokenizerConfig(vocab_size=500))
    samples = Samples()
    text.prepare_text(config, folder / "cache", workers=1, progress=False)
    return samples.peak()


def over_pairs(count):
    """Cut the first two epochs of so many pairs into steps; return the peak."""
    generator, empty = np.random.default_rng(0), np.empty(0, np.int32)
    sides = [np.cumsum(generator.integers(2, 60, count + 1)) for _ in range(2)]
    samples = Samples()
    steps = Steps(Pairs(*(RaggedTokens(empty, side) for side in sides)), 25_000, 4096, seed=0)
    number = 1
    while steps.locate(number)[0] < 1:
        number += 1000
    steps[number]
    return samples.peak()


def over_lengths(limited):
    """Allocate as steps of varying lengths do, and what outlives them; return the most MB held."""
    tune_process(threads=1)
    memory, generator, most = KeptMemory(limited=limited), random.Random(0), 0
    outliving = deque(maxlen=400)
    for _ in range(120):
        length, activations = generator.randint(5, 40), []
        for _ in range(20):
            activations.append(torch.zeros(length * 65536 + generator.randint(0, 9999) * 16))
            outliving.append(torch.zeros(5000 + generator.randint(0, 3000)))
        del activations
        memory.after_step()
        most = max(most, anonymous())
    return most // MB


def main(folder):
    for name in ("text", *CORPORA, *TEXTS):
        (folder / name).mkdir()
    write_text(folder / "text", MB)
    outcome = {"steps": measured(over_steps, folder)}
    outcome["shapes"] = measured(over_shapes, folder)
    for name, size in CORPORA.items():
        measured(write_shards, folder / name, size)  # it starts threads
        outcome[name] = measured(over_corpus, folder / name)
    for name, size in TEXTS.items():
        write_text(folder / name, size)
        outcome[name] = measured(over_preparation, folder / name)
    outcome["pairs"] = [*map(partial(measured, over_pairs), PAIRS)]
    outcome["lengths"] = [*map(partial(measured, over_lengths), (False, True))]
    (folder / "outcome.json").write_text(json.dumps(outcome, indent=1))


# --- what came of it -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def outcome(tmp_path_factory):
    folder = tmp_path_factory.mktemp("memory")
    done = subprocess.run(
        [sys.executable, "-m", __name__, str(folder)],
        cwd=REPOSITORY,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=500,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads((folder / "outcome.json").read_text())


def test_steps_and_evaluations_keep_nothing(outcome):
    """300 batches of 21 kB would be 6 MB, 30 evaluations' logits of 1.3 MB each 39 MB."""
    first, last = outcome["steps"]
    assert last - first < 4 * MB


def test_new_lengths_keep_nothing(outcome):
    """By 72 MB where ideep keeps the primitives of 1,024 shapes, by 11 as shipped."""
    first, last = outcome["shapes"]
    assert last - first < 30 * MB


def test_a_larger_corpus_costs_the_order_of_its_blocks(outcome):
    """8 bytes a block, the permutation of an epoch: 70 MB for English Wikipedia and BookCorpus in
    blocks of 512. The tokens themselves stay in the mapped file: 99 MB more would show."""
    (small, few), (large, many) = (outcome[name] for name in CORPORA)
    assert large - small < 8 * (many - few) + 12 * MB


def test_preparing_more_text_costs_a_digest_a_document(outcome):
    """Python keeps about 100 bytes of each, 0.2 MB for 1,800 more documents."""
    small, large = (outcome[name] for name in TEXTS)
    assert large - small < 6 * MB


def test_the_order_of_an_epoch_of_pairs(outcome):
    """Lengths and order in int64, plus what sorting needs, at most 16 numbers per pair: 0.6 GB
    for the 4.5 M pairs of WMT14 English-German, in each process."""
    small, large = outcome["pairs"]
    assert (large - small) / (PAIRS[1] - PAIRS[0]) < 128


def test_memory_that_varying_lengths_leave_is_given_back(outcome):
    """20 blocks of up to 10 MB are live at once; the holes between what outlives them add up."""
    kept, given_back = outcome["lengths"]
    assert given_back < 0.6 * kept


if __name__ == "__main__":
    main(Path(sys.argv[1]))
