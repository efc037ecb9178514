"""Translation: train, average the last checkpoints, search, score (RoFormer, section 4.1)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import Tensor, nn

from roformer.config.build import plain
from roformer.config.typed import refuse
from roformer.config.wmt import (
    BuiltinParallel,
    FilesParallel,
    Parallel,
    SearchConfig,
    WmtConfig,
)
from roformer.data.parallel import PreparedPairs, prepare_parallel
from roformer.data.random import unigram_entropy
from roformer.data.translation_batches import (
    Steps,
    TranslationBatches,
    evaluation_buckets,
    share,
)
from roformer.errors import naming
from roformer.evaluation.bleu import STATISTICS, bleu_statistics, sacrebleu, translation_scores
from roformer.inference.translate import Translator
from roformer.models.cost import flops_per_token
from roformer.models.seq2seq import Seq2Seq
from roformer.nn.cross_entropy import smoothed_cross_entropy
from roformer.training import checkpoint, records
from roformer.training.averaging import AVERAGED, last_checkpoints, save_average
from roformer.training.distributed import check_share, first_process, say
from roformer.training.hardware import widest_float
from roformer.training.task import Batch, Task, share_of

GREEDY = SearchConfig(beam=1)
STATISTICS_FILE = "bleu_statistics.json"
"""File of a run: counts from which BLEU can be compared and resampled without the texts."""


class TranslationTask(Task):
    """Predict each token of the translation; the loss is summed over the target tokens."""

    monitor = "valid/loss"

    def __init__(self, config: WmtConfig):
        self.config, self.training = config, config.training
        self.keep_checkpoints = config.training.average
        self.text = prepare(config)
        say(self.text.summary, config.runtime.progress)
        self.fingerprint, self.tokenizer = self.text.fingerprint, self.text.tokenizer

    def build_model(self) -> None:
        config, text, training = self.config, self.text, self.config.training
        tokenizer = text.tokenizer
        for split, read in (("valid", text.valid.lengths), ("test", [text.test.source.lengths])):
            longest = max(int(lengths.max()) for lengths in read)
            what = f"the longest sentence of data.{split}, {longest} tokens with its end,"
            refuse(config.model.position.length_rules(longest, what))
        torch.manual_seed(config.seed)
        self.model = Seq2Seq(config.model, tokenizer.size)
        ids = (tokenizer.pad_id, tokenizer.end_id)
        self.batches: TranslationBatches = TranslationBatches(text.train, *ids)
        self.steps = Steps(
            text.train, training.tokens_per_update, training.bucket_tokens, config.seed
        )
        self.validation = TranslationBatches(text.valid, *ids)
        self.buckets = evaluation_buckets(text.valid.lengths, training.bucket_tokens)
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
        pairs = sum(map(len, self.steps[1]))
        check_share(pairs, f"a step has {pairs} pairs,", "training.tokens_per_update")
        mean = float(text.train.target.lengths.mean())
        self.flops_per_token = flops_per_token(config.model, tokenizer.size, round(mean))

    def keys(self, step: int, rank: int, world_size: int) -> list[Any]:
        micro = self.config.runtime.micro_batch_size
        keys = []
        for bucket in share(self.steps[step], rank, world_size):
            keys += share_of(bucket, 0, 1, micro) or [bucket]
        return keys

    def targets(self, batch: Batch) -> int:
        return len(batch["predict"])

    def loss(self, model: nn.Module, batch: Batch) -> Tensor:
        return self._loss(model, batch, self.config.training.label_smoothing)

    def _loss(self, model: nn.Module, batch: Batch, smoothing: float) -> Tensor:
        predict = batch["predict"]
        logits = model(
            batch["input_ids"],
            batch["decoder_input_ids"],
            attention_mask=batch.get("attention_mask"),
            predict=predict,
        )
        labels = batch["labels"].flatten()[predict]
        return smoothed_cross_entropy(logits, labels, smoothing)

    def evaluate(self, model: nn.Module, accelerator: Accelerator) -> dict[str, float]:
        """Return the loss without smoothing, the unigram entropy, and greedy BLEU of the first sentences."""
        device = accelerator.device
        rank, ranks = accelerator.process_index, accelerator.num_processes
        sums = torch.zeros(2, dtype=widest_float(device), device=device)
        for bucket in self.buckets[rank::ranks]:
            batch = {k: v.to(device) for k, v in self.validation[bucket].items()}
            sums[0] += self._loss(model, batch, 0.0)
            sums[1] += self.targets(batch)
        loss, count = accelerator.reduce(sums, "sum").tolist()
        metrics = {"valid/loss": loss / count, "valid/unigram_entropy": self.entropy}
        references = self.text.texts("valid")[1][: self.config.training.valid_bleu_sentences]
        if references:
            plain_model = accelerator.unwrap_model(model)
            translator = Translator(plain_model, self.text.tokenizer, GREEDY)
            mine = range(len(references))[rank::ranks]
            sources = [self.text.valid.source[i] for i in mine]
            # The cache of a search grows with every step: a graph would fit only one.
            with torch.compiler.set_stance("force_eager"):
                lines = [n_best[0].text for n_best in translator.translate_ids(sources)]
            pairs = gather_object(list(zip(mine, lines, strict=True)))
            hypotheses = [line for _, line in sorted(pairs)]
            metrics["valid/sacrebleu_greedy"] = sacrebleu(hypotheses, references).value
        return metrics

    def degenerate(self, metrics: dict[str, float]) -> bool:
        return not metrics["valid/loss"] < self.entropy

    def introduction(self) -> list[str]:
        tokenizer, (_, reference) = self.text.tokenizer, self.text.texts("test")
        ids = tokenizer.encode_batch(reference, tokenizer.target_language)
        ceiling = sacrebleu(tokenizer.decode_batch(ids, tokenizer.target_language), reference)
        return [
            f"{sum(p.numel() for p in self.model.parameters()):,} parameters, "
            f"{len(self.text.train.source):,} training pairs, vocabulary {tokenizer.size:,}",
            f"sacreBLEU {ceiling.value:.2f} is the ceiling of the test set: its references, tokenized "
            "and detokenized",
        ]

    def conclude(self, run: Path) -> dict[str, Any]:
        """Translate the test set with the last checkpoint and with the mean of the last ones; score both.

        `test/sacrebleu` belongs to the averaged weights. Writes `checkpoints/averaged`,
        bleu_statistics.json and `translations/test.{source,reference,single,averaged}.txt`, one sentence
        per line.
        """
        config, text, training = self.config, self.text, self.config.training
        tokenizer = text.tokenizer
        last = last_checkpoints(run, training.average, training.checkpoint_every)
        averaged = save_average(last, run / "checkpoints" / AVERAGED)
        source, reference = text.texts("test")
        sources = [text.test.source[i] for i in range(len(source))]
        shown = config.runtime.progress
        say(f"translating {len(source):,} test lines with a beam of {config.search.beam}", shown)
        systems: dict[str, list[str]] = {}
        metrics: dict[str, float] = {}
        signatures: dict[str, str] = {}
        model = Seq2Seq(config.model, tokenizer.size)
        device = next(self.model.parameters()).device
        for name, folder in (("single", last[-1]), ("averaged", averaged)):
            checkpoint.load_model(folder, model, self.description)
            translations = Translator(model.to(device), tokenizer, config.search).translate_ids(
                sources, progress=shown
            )
            systems[name] = [n_best[0].text for n_best in translations]
            scores = translation_scores(systems[name], reference, tokenizer.target_language)
            for metric, score in scores._asdict().items():
                metrics[f"test/{metric}{'' if name == 'averaged' else '_single'}"] = score.value
                signatures[metric] = score.signature
        test_set = {
            "name": test_set_name(config.data),
            "lines": len(reference),
            "fingerprint": fingerprint(reference),
        }
        write_lines(run / "translations", {"source": source, "reference": reference, **systems})
        write_bleu_statistics(run, systems, reference, test_set, signatures["sacrebleu"])
        return {
            "metrics": metrics,
            "signatures": signatures,
            "averaged": [path.name for path in last],
            "test_set": test_set,
        }

    def result(self, summary: dict[str, Any], run: Path) -> list[str]:
        metrics = summary["metrics"]
        return [
            f"test/sacrebleu {metrics['test/sacrebleu']:.2f} (mean of the last "
            f"{len(summary['averaged'])} checkpoints; the last one "
            f"{metrics['test/sacrebleu_single']:.2f}), chrF {metrics['test/chrf']:.1f}, "
            f"compound-split tokenised BLEU {metrics['test/bleu_compound']:.2f}; "
            f"valid/loss {metrics['valid/loss']:.3f}; {summary['steps']} steps, "
            f"{summary['tokens']:,} target tokens, {summary['wall_seconds']:.0f} s",
            f"sacreBLEU {summary['signatures']['sacrebleu']}, "
            f"{summary['test_set']['lines']:,} lines",
            f"run: {run}",
        ]


def prepare(config: WmtConfig) -> PreparedPairs:
    """Return the encoded parallel text, cached or made now."""
    return prepare_parallel(
        config.data,
        config.runtime.cache_dir,
        workers=config.runtime.prepare_workers,
        progress=config.runtime.progress and first_process(),
    )


def test_set_name(data: Parallel) -> str:
    """Return the name of the test set in tables."""
    if isinstance(data, FilesParallel):
        return data.test if data.test_fraction is None else f"{data.train} (held out)"
    return "builtin" if isinstance(data, BuiltinParallel) else f"{data.path} {data.name} test"


def fingerprint(references: Sequence[str]) -> str:
    """Return a hash that identifies a test set."""
    return hashlib.sha256("\n".join(references).encode()).hexdigest()


def write_bleu_statistics(
    run: Path,
    systems: dict[str, list[str]],
    references: list[str],
    test_set: dict[str, Any],
    signature: str,
) -> None:
    """Write bleu_statistics.json: the `STATISTICS` of every test line, for each system.

    `systems` are the translations by `averaged` and `single` weights; `test_set` is the summary's entry, and
    `signature` sacreBLEU's.
    """
    content = {
        "test_set": test_set,
        "signature": signature,
        "columns": list(STATISTICS),
        "systems": {
            name: bleu_statistics(systems[name], references) for name in ("averaged", "single")
        },
    }
    records.write_atomically(run / STATISTICS_FILE, json.dumps(content) + "\n")


def write_lines(folder: Path, texts: dict[str, list[str]]) -> None:
    """Write `<folder>/test.<name>.txt`, one sentence per line."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, lines in texts.items():
        file = folder / f"test.{name}.txt"
        with naming(file):
            file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
