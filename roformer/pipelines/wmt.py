"""Translation: train, average the last checkpoints, search, score (RoFormer, section 4.1)."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import Tensor, nn

from roformer.config.build import plain
from roformer.config.wmt import (
    BuiltinParallel,
    FilesParallel,
    Parallel,
    SearchConfig,
    WmtConfig,
)
from roformer.data.parallel import PreparedPairs, prepare_parallel
from roformer.data.random import IGNORED, unigram_entropy
from roformer.data.translation_batches import (
    TranslationBatches,
    Updates,
    evaluation_buckets,
    share,
)
from roformer.errors import naming
from roformer.evaluation.bleu import sacrebleu, translation_scores
from roformer.inference.translate import Translator
from roformer.models.cost import seq2seq_flops_per_token
from roformer.models.seq2seq import Seq2Seq
from roformer.nn.cross_entropy import smoothed_cross_entropy
from roformer.pipelines.bleu_record import SCORES, fingerprint, write_bleu_statistics
from roformer.pipelines.run import Opened, Run, first_process, resolve, say
from roformer.training import checkpoint
from roformer.training.averaging import AVERAGED, last_checkpoints, save_average
from roformer.training.task import Batch

GREEDY = SearchConfig(beam=1)


class TranslationTask:
    """Predict each token of the translation; the loss is summed over the target tokens."""

    monitor = "valid/loss"
    higher_is_better = False

    def __init__(self, config: WmtConfig, text: PreparedPairs):
        self.config, self.text = config, text
        tokenizer, training = text.tokenizer, config.training
        torch.manual_seed(config.seed)
        self.model: nn.Module = Seq2Seq(
            config.model,
            tokenizer.size,
            gradient_checkpointing=config.runtime.gradient_checkpointing,
        )
        ids = (tokenizer.pad_id, tokenizer.end_id)
        self.batches: TranslationBatches = TranslationBatches(text.train, *ids)
        self.updates = Updates(
            text.train, training.tokens_per_update, training.bucket_tokens, config.seed
        )
        self.validation = TranslationBatches(text.valid, *ids)
        self.buckets = evaluation_buckets(
            text.valid.source.lengths, text.valid.target.lengths, training.bucket_tokens
        )
        self.entropy = unigram_entropy(text.valid.target.tokens)
        self.description = {
            "kind": "translation",
            "model": plain(config.model),
            "vocab_size": tokenizer.size,
            "tokenizer": tokenizer.fingerprint,
            "languages": [text.tokenizer.source_language, text.tokenizer.target_language],
            "search": plain(config.search),
            "max_length": config.data.filter.max_length,
        }
        mean = float(text.train.target.lengths.mean())
        self.flops_per_token = seq2seq_flops_per_token(config.model, tokenizer.size, round(mean))

    def keys(self, update: int, rank: int, world_size: int) -> list[Any]:
        micro = self.config.runtime.micro_batch_size
        keys = []
        for bucket in share(self.updates.update(update), rank, world_size):
            size = micro or len(bucket)
            keys += [bucket[i : i + size] for i in range(0, len(bucket), size)]
        return keys

    def samples(self, key: Any) -> list[int]:
        return [int(number) for number in key]

    def texts(self, batch: Batch) -> list[str]:
        tokenizer = self.text.tokenizer
        source = tokenizer.decode_batch(batch["input_ids"].tolist(), tokenizer.source_language)
        target = tokenizer.decode_batch(batch["labels"].tolist(), tokenizer.target_language)
        return [f"{ours} → {theirs}" for ours, theirs in zip(source, target, strict=True)]

    def targets(self, batch: Batch) -> int:
        return int((batch["labels"] != IGNORED).sum())

    def tokens(self, batch: Batch) -> int:
        return self.targets(batch)

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        return self._loss(model, batch, self.config.training.label_smoothing)[0]

    def _loss(self, model: nn.Module, batch: Batch, smoothing: float) -> tuple[Tensor, int]:
        """Return the summed loss over the real target tokens, and how many they are."""
        labels = batch["labels"].flatten()
        (predict,) = (labels != IGNORED).nonzero(as_tuple=True)
        logits = model(
            batch["input_ids"],
            batch["decoder_input_ids"],
            attention_mask=batch.get("attention_mask"),
            predict=predict,
        )
        return smoothed_cross_entropy(logits, labels[predict], smoothing), len(predict)

    def evaluate(self, model: nn.Module, accelerator: Accelerator) -> dict[str, float]:
        """Return loss without smoothing, its entropy bound, and greedy BLEU of the first sentences."""
        device, rank, ranks = (
            accelerator.device,
            accelerator.process_index,
            accelerator.num_processes,
        )
        wide = torch.float32 if device.type == "mps" else torch.float64
        sums = torch.zeros(2, dtype=wide, device=device)
        for bucket in self.buckets[rank::ranks]:
            batch = {k: v.to(device) for k, v in self.validation[bucket].items()}
            loss, count = self._loss(model, batch, 0.0)
            sums += torch.stack([loss.to(wide), torch.tensor(count, dtype=wide, device=device)])
        loss_sum, count_sum = accelerator.reduce(sums, "sum").tolist()
        metrics = {
            "valid/loss": loss_sum / count_sum,
            "valid/unigram_entropy": self.entropy,
        }
        if count := min(
            self.config.training.valid_bleu_sentences, len(self.text.texts("valid")[0])
        ):
            plain_model = accelerator.unwrap_model(model)
            translator = Translator(plain_model, self.text.tokenizer, GREEDY)
            mine = range(count)[rank::ranks]
            sources = [self.text.valid.source[i] for i in mine]
            lines = [n_best[0].text for n_best in translator.translate_ids(sources)]
            pairs = gather_object(list(zip(mine, lines, strict=True)))
            hypotheses = [line for _, line in sorted(pairs)]
            references = self.text.texts("valid")[1][:count]
            metrics["valid/sacrebleu_greedy"] = sacrebleu(hypotheses, references).value
        return metrics

    def degenerate(self, metrics: dict[str, float]) -> bool:
        return not metrics["valid/loss"] < self.entropy


def prepare(config: WmtConfig) -> PreparedPairs:
    """Read, cut and encode the parallel text, unless that is done; return it."""
    return prepare_parallel(
        config.data,
        config.runtime.cache_dir,
        workers=config.runtime.prepare_workers,
        progress=config.runtime.progress and first_process(),
    )


def open_task(config: WmtConfig) -> Opened:
    """Return the parts of a run, see `Opened`."""
    text = prepare(config)
    return Opened(config, TranslationTask(config, text), config.training, text.fingerprint)


def wmt(config: WmtConfig) -> dict[str, Any]:
    """Prepare the text if it is not, train, score, and return the summary.

    The last checkpoint and the mean of the last `training.average` are both scored on the test set;
    `test/sacrebleu` is that of the mean.

    Raises:
        InputError: see `Run` and `prepare_parallel`.
    """
    config = resolve(config)
    text = prepare(config)
    run = Run("wmt", config, text.fingerprint)
    if run.summary is not None:
        return run.summary
    task = TranslationTask(config, text)
    # A rank without a share would wait for ever; told before anything is trained.
    task.keys(1, 0, int(os.environ.get("WORLD_SIZE", "1")))
    say(
        f"{run.id}: {sum(p.numel() for p in task.model.parameters()):,} parameters, "
        f"{len(text.train.source):,} training pairs, vocabulary {text.tokenizer.size:,}"
    )

    def conclude() -> dict[str, Any]:
        say(f"translating {len(text.test.source):,} test lines with a beam of {config.search.beam}")
        return score_test_set(config, task, run.folder.path)

    summary = run.train(
        task,
        config.training,
        text.tokenizer,
        conclude=conclude,
        keep_checkpoints=config.training.average,
    )
    tell(summary)
    return summary


def score_test_set(config: WmtConfig, task: TranslationTask, run: Path) -> dict[str, Any]:
    """Translate the test set with the last checkpoint and with the mean of the last; score both.

    Writes `translations/test.{source,reference,single,averaged}.txt`, a sentence a line,
    `bleu_statistics.json` and `checkpoints/averaged`.

    Returns:
        What the summary says besides: metrics, their signatures, the test set, what was averaged.
    """
    training, text = config.training, task.text
    last = last_checkpoints(run, training.average, training.checkpoint_every)
    averaged = save_average(last, run / "checkpoints" / AVERAGED)
    source, reference = text.texts("test")
    sources = [text.test.source[i] for i in range(len(source))]
    lines = {"source": source, "reference": reference}
    metrics: dict[str, float] = {}
    signatures: dict[str, str] = {}
    model = Seq2Seq(config.model, text.tokenizer.size)
    device = next(task.model.parameters()).device
    for name, folder in (("single", last[-1]), ("averaged", averaged)):
        checkpoint.load_model(folder, model, task.description)
        translator = Translator(model.to(device), text.tokenizer, config.search)
        found = translator.translate_ids(
            sources, progress=config.runtime.progress and sys.stderr.isatty()
        )
        lines[name] = [best[0].text for best in found]
        suffix = "" if name == "averaged" else f"_{name}"
        scores = translation_scores(lines[name], reference, text.tokenizer.target_language)
        for metric, score in scores._asdict().items():
            metrics[f"test/{metric}{suffix}"] = score.value
            signatures[metric] = score.signature
    test_set = {
        "name": test_set_name(config.data),
        "lines": len(reference),
        "fingerprint": fingerprint(reference),
    }
    write_lines(run / "translations", lines)
    systems = {name: lines[name] for name in SCORES}
    write_bleu_statistics(run, systems, reference, test_set, signatures["sacrebleu"])
    return {
        "metrics": metrics,
        "signatures": signatures,
        "averaged": [path.name for path in last],
        "test_set": test_set,
    }


def test_set_name(data: Parallel) -> str:
    """Return what the test set is called in tables."""
    if isinstance(data, FilesParallel):
        return data.test
    return "builtin" if isinstance(data, BuiltinParallel) else f"{data.path} {data.name} test"


def write_lines(folder: Path, texts: dict[str, list[str]]) -> None:
    """Write `<folder>/test.<name>.txt`, a sentence a line."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, lines in texts.items():
        content = "".join(f"{line}\n" for line in lines)
        file = folder / f"test.{name}.txt"
        with naming(file):
            file.write_text(content, encoding="utf-8")


def tell(summary: dict[str, Any]) -> None:
    """Print the outcome."""
    metrics, signatures = summary["metrics"], summary.get("signatures", {})
    if "test/sacrebleu" not in metrics:  # on a rank that does not score
        return
    say(
        f"test/sacrebleu {metrics['test/sacrebleu']:.2f} (mean of the last "
        f"{len(summary['averaged'])} checkpoints; the last one {metrics['test/sacrebleu_single']:.2f}), "
        f"chrF {metrics['test/chrf']:.1f}, compound-split tokenised BLEU "
        f"{metrics['test/bleu_compound']:.2f}; valid/loss {metrics['valid/loss']:.3f}; "
        f"{summary['steps']} steps, {summary['tokens']:,} target tokens, "
        f"{summary['wall_seconds']:.0f} s"
    )
    say(f"sacreBLEU {signatures['sacrebleu']}, {summary['test_set']['lines']:,} lines")
    say(f"run: runs/wmt/{summary['run_id']}")
