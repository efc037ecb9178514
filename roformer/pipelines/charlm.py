"""Byte-level language modelling (RoFormer, section 4.4): Performer with and without rotary positions."""

from __future__ import annotations

import math
from typing import Any

from roformer.config.lm import CharLMConfig
from roformer.data.text import PreparedBytes, prepare_bytes
from roformer.pipelines.causal import (
    CausalTask,
    Scorer,
    check_processes,
    tell,
    train_language_model,
    write_positions,
)
from roformer.pipelines.run import Opened, Run, first_process, resolve, say
from roformer.training.task import Batch


class ByteTask(CausalTask):
    """Predict every byte; reported in bits."""

    monitor = "valid/bits_per_byte"

    def __init__(self, config: CharLMConfig, text: PreparedBytes):
        super().__init__(config, text.train, text.valid, text.vocabulary, "bytes")

    def measured(self, split: str, nats: float) -> dict[str, float]:
        return {f"{split}/bits_per_byte": nats / math.log(2)}

    def texts(self, batch: Batch) -> list[str]:
        rows = batch["input_ids"].tolist()
        return [bytes(row).decode(errors="replace") for row in rows]


def prepare(config: CharLMConfig) -> PreparedBytes:
    """Read the text into files of bytes, unless that is done; return it."""
    return prepare_bytes(
        config.data,
        config.runtime.cache_dir,
        workers=config.runtime.prepare_workers,
        progress=config.runtime.progress and first_process(),
    )


def open_task(config: CharLMConfig) -> Opened:
    """Return the parts of a run, see `Opened`."""
    text = prepare(config)
    return Opened(config, ByteTask(config, text), config.training, text.fingerprint)


def charlm(config: CharLMConfig) -> dict[str, Any]:
    """Prepare the text if it is not, train, score, and return the summary.

    `valid/bits_per_byte` is of the frozen sample, at every evaluation; at the end the whole
    validation text gives `valid/bits_per_byte_whole` and the test text `test/bits_per_byte`. In both
    every byte but the first is predicted once, in blocks of `training.sequence_length` one after the
    other: the first prediction of a block sees one byte, the last one `sequence_length`.

    Raises:
        InputError: see `Run` and `prepare_bytes`; fewer blocks than processes.
    """
    config = resolve(config)
    check_processes(config)
    text = prepare(config)
    run = Run("charlm", config, text.fingerprint)
    if run.summary is not None:
        return run.summary
    task = ByteTask(config, text)

    def conclude() -> dict[str, Any]:
        say(f"scoring {len(text.valid):,} validation and {len(text.test):,} test bytes")
        scorer = Scorer(config, task, run.folder.path)
        length = config.training.sequence_length
        valid, test = (scorer.whole(stream, length) for stream in (text.valid, text.test))
        write_positions(run.folder.path, "the whole validation text", [valid], length)
        metrics = {
            "valid/bits_per_byte_whole": task.measured("valid", valid.mean)[task.monitor],
            **task.measured("test", test.mean),
        }
        return {"metrics": metrics}

    source = text.manifest["source"]
    summary = train_language_model(run, task, text.vocabulary, source, conclude)
    names = ("valid/bits_per_byte_whole", "test/bits_per_byte", *task.baseline())
    tell(summary, run, names)
    return summary
