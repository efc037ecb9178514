"""Causal language modelling on the text of pre-training: one decoder, any position encoding."""

from __future__ import annotations

from typing import Any

from roformer.config.lm import CausalLMConfig
from roformer.data.text import PreparedText, prepare_text
from roformer.pipelines.causal import (
    CausalTask,
    Scorer,
    check_processes,
    perplexity,
    read_longer,
    tell,
    train_language_model,
    write_positions,
)
from roformer.pipelines.run import Opened, Run, first_process, resolve, say
from roformer.training.task import Batch


class TokenTask(CausalTask):
    """Predict every token of packed documents, each with its end; reported in nats."""

    monitor = "valid/loss"

    def __init__(self, config: CausalLMConfig, shards: PreparedText):
        super().__init__(config, shards.train, shards.valid, shards.tokenizer, "tokens")
        self.tokenizer = shards.tokenizer

    def measured(self, split: str, nats: float) -> dict[str, float]:
        return {f"{split}/loss": nats, f"{split}/perplexity": perplexity(nats)}

    def texts(self, batch: Batch) -> list[str]:
        return [self.tokenizer.decode(row) for row in batch["input_ids"].tolist()]


def prepare(config: CausalLMConfig) -> PreparedText:
    """Tokenise the corpus into shards, unless that is done; they are those of pre-training."""
    return prepare_text(
        config.data,
        config.runtime.cache_dir,
        workers=config.runtime.prepare_workers,
        progress=config.runtime.progress and first_process(),
    )


def open_task(config: CausalLMConfig) -> Opened:
    """Return the parts of a run, see `Opened`."""
    shards = prepare(config)
    return Opened(config, TokenTask(config, shards), config.training, shards.fingerprint)


def clm(config: CausalLMConfig) -> dict[str, Any]:
    """Prepare the text if it is not, train, score, and return the summary.

    `valid/loss` is of the frozen sample, at every evaluation; at the end its tokens are read again in
    blocks of multiples of the training's length, which is beyond the paper: `valid/loss_at_<length>`,
    and positions.json for the loss by the number of tokens seen.

    Raises:
        InputError: see `Run` and `prepare_text`; fewer blocks than processes.
    """
    config = resolve(config)
    check_processes(config)
    shards = prepare(config)
    run = Run("clm", config, shards.fingerprint)
    if run.summary is not None:
        return run.summary
    task = TokenTask(config, shards)

    def conclude() -> dict[str, Any]:
        say("reading the validation sample by position, and longer (beyond the paper)")
        losses, left_out = read_longer(Scorer(config, task, run.folder.path), task)
        trained = config.training.sequence_length
        text = "the validation sample"
        write_positions(run.folder.path, text, losses, trained, left_out)
        longer = {
            f"valid/loss_at_{found.length}": found.mean
            for found in losses
            if found.length > trained
        }
        return {"metrics": longer}

    source = shards.manifest["source"]
    summary = train_language_model(run, task, shards.tokenizer, source, conclude)
    tell(summary, run, ["valid/loss", "valid/perplexity", *task.baseline()])
    return summary
