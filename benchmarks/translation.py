"""Translation against transformers' Marian: training steps, real lengths, beam search.

* equal batches: a step on 273 pairs of 15 and 15 tokens, 6+6 layers × 256, vocabulary 10,000, the same
  dropout, label smoothing and fused AdamW.
* real lengths: the same model on batches of Multi30k's lengths; ours bucketed by length, theirs at
  random and padded to their longest, with as many tokens. Real target tokens per second; on equal
  terms only in the precision that `auto` is.
* beam search: the weights of one of our post-norm, sinusoidal runs in both models; test_2016_flickr with
  a beam of 4, sentences per second and BLEU: `make bench ARGS="decoding --run runs/wmt/…"`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from benchmarks import peers
from benchmarks.peers import END, PAD, Size
from benchmarks.timing import Row, in_turns, interleave, row
from roformer.config import position as encodings
from roformer.config.attention import SoftmaxAttention
from roformer.config.schema import OptimizerConfig
from roformer.config.wmt import Seq2SeqConfig
from roformer.data.random import IGNORED
from roformer.data.store import RaggedTokens
from roformer.data.translation_batches import Pairs, TranslationBatches, epoch_buckets
from roformer.errors import InputError
from roformer.evaluation.bleu import sacrebleu
from roformer.inference.translate import Translator, load_translator
from roformer.interop.equivalents import to_marian
from roformer.models.seq2seq import Seq2Seq
from roformer.models.transformer import compile_blocks
from roformer.nn.cross_entropy import smoothed_cross_entropy
from roformer.training.hardware import auto_precision, default_device
from roformer.training.optim import build_optimizer
from roformer.training.process import tune_process

VOCABULARY, DROPOUT, SMOOTHING = 10_000, 0.1, 0.1
SIZE = Size(6, 256, 4, 1024)
PAIRS, LENGTH, BUCKET = 273, 15, 4096
BATCHES = 1
"""Batches of Multi30k's lengths in a call."""
SEARCH_BATCH = 64
"""Sentences of a call of Marian's `generate`, sorted by length."""

Batch = dict[str, Tensor]
Lengths = NDArray[np.int64]


def precisions() -> list[str]:
    """Return the precisions to measure: fp32, and bf16 where `auto` is that."""
    return [*dict.fromkeys(("fp32", auto_precision(default_device())))]


def ways() -> list[tuple[str, str, str]]:
    """Return name, our precision (always with the process settings) and theirs of each comparison."""
    same = "process settings and {} on both sides"
    equal = [
        (same.format(precision), precision, f"{precision} tuned") for precision in precisions()
    ]
    return [("as shipped", precisions()[-1], "fp32"), *equal]


def bench_translation(*, rounds: int) -> list[Row]:
    """Return one row for each kind of batch and way of training."""
    requests = [{"tuned": tuned} for tuned in (False, True)]
    seconds = in_turns(measure_translation, requests, rounds=rounds)
    rows = []
    for kind, what, goal in (
        ("equal", "translation step, equal batches", 1.3),
        ("lengths", "translation step, Multi30k's lengths", 2.0),
    ):
        for name, ours, theirs in ways():
            if f"{kind} ours {ours} tuned" not in seconds:
                continue
            found = row(
                f"{what}, {name}",
                seconds[f"{kind} theirs {theirs}"],
                seconds[f"{kind} ours {ours} tuned"],
                goal=goal if name != "as shipped" or kind == "lengths" else None,
                deviations=_deviations(ours, theirs, bucketed=kind == "lengths"),
            )
            rows.append(_rates(found, "tokens"))
    return rows


def _deviations(ours: str, theirs: str, *, bucketed: bool = False) -> str:
    found = [] if ours == "fp32" and theirs.startswith("fp32") else ["bf16 autocast"]
    if bucketed:
        found.append("length-bucketed batches")
    return ", ".join(found) or "none"


def _rates(found: Row, unit: str) -> Row:
    """Replace the seconds of one token or sentence by how many there are in a second."""
    rates = {
        f"{side}_{unit}_per_second": 1 / found.pop(f"{side}_seconds") for side in ("peer", "ours")
    }
    return found | rates


def measure_translation(*, tuned: bool, rounds: int = 2) -> dict[str, list[float]]:
    """Return the seconds of a real target token of each variant in this process."""
    if tuned:
        tune_process()
    return measure_batches("equal", tuned, rounds) | measure_batches("lengths", tuned, rounds)


def measure_batches(kind: str, tuned: bool, rounds: int) -> dict[str, list[float]]:
    """Return the seconds of a real target token on batches of a kind."""
    equal = kind == "equal"
    sides = {"theirs": (their_step, equal_batches if equal else default_batches)}
    if tuned:
        sides["ours"] = (our_step, equal_batches if equal else our_batches)
    variants: dict[str, Callable[[], None]] = {}
    tokens: dict[str, float] = {}
    chosen = precisions() if equal else precisions()[-1:]
    for precision in chosen if tuned else ["fp32"]:
        for name, (build, batches) in sides.items():
            made = batches()
            variant = f"{kind} {name} {precision}{' tuned' if tuned else ''}"
            variants[variant] = partial(every, made, build(precision))
            tokens[variant] = float(sum(int((b["labels"] != IGNORED).sum()) for b in made))
    seconds = interleave(variants, rounds=rounds, warmup=int(equal))
    return {name: [s / tokens[name] for s in times] for name, times in seconds.items()}


def every(batches: list[Batch], step: Callable[[Batch], None]) -> None:
    for batch in batches:
        step(batch)


# --- batches -------------------------------------------------------------------------------------


def multi30k_lengths(count: int = 4000) -> tuple[Lengths, Lengths]:
    """Return source and target lengths of `count` pairs, distributed like Multi30k's.

    In joint BPE of 8,000 merges, ends included, its sources have a mean of 15.3 tokens and a
    standard deviation of 4.7, its targets 15.8 and 5.4; logarithms are nearly normal, with 2.68 and
    0.29, 2.70 and 0.33, and a correlation of 0.86.
    """
    random = np.random.default_rng(0)
    common, own = random.normal(size=(2, count))
    source = np.exp(2.68 + 0.29 * common)
    target = np.exp(2.70 + 0.33 * (0.86 * common + 0.51 * own))
    clipped = (np.clip(side.round(), 4, 55).astype(np.int64) for side in (source, target))
    first, second = clipped
    return first, second


def text_of(source: Lengths, target: Lengths) -> TranslationBatches:
    random = np.random.default_rng(1)
    sides = (
        RaggedTokens.of([[*random.integers(3, VOCABULARY, n - 1), END] for n in side])
        for side in (source, target)
    )
    return TranslationBatches(Pairs(*sides), PAD, END)


def equal_batches(pairs: int = PAIRS, length: int = LENGTH) -> list[Batch]:
    lengths = np.full(pairs, length)
    return [text_of(lengths, lengths)[range(pairs)]]


def our_batches() -> list[Batch]:
    lengths = multi30k_lengths()
    text = text_of(*lengths)
    return [text[numbers] for numbers in epoch_buckets(lengths, BUCKET, 0, 0)[:BATCHES]]


def default_batches() -> list[Batch]:
    """Return batches of pairs at random, each padded to its longest source and target."""
    source, target = multi30k_lengths()
    text = text_of(source, target)
    order = np.random.default_rng(2).permutation(len(source))
    size = round(BUCKET / float(np.maximum(source, target).mean()))
    return [text[order[i : i + size]] for i in range(0, BATCHES * size, size)]


# --- training ------------------------------------------------------------------------------------


def our_step(
    precision: str, size: Size = SIZE, *, compiled: bool = False
) -> Callable[[Batch], None]:
    """Return a training step of our model."""
    torch.manual_seed(0)
    config = Seq2SeqConfig(
        name="transformer",
        size="mini",
        **size._asdict(),
        hidden_dropout=DROPOUT,
        attention_dropout=DROPOUT,
        position=encodings.Sinusoidal(),
        attention=SoftmaxAttention(),
    )
    model = Seq2Seq(config, VOCABULARY).to(default_device())
    if compiled:
        compile_blocks(model)

    def loss(batch: Batch) -> Tensor:
        predict = batch["predict"]
        logits = model(
            batch["input_ids"],
            batch["decoder_input_ids"],
            attention_mask=batch.get("attention_mask"),
            predict=predict,
        )
        labels = batch["labels"].flatten()[predict]
        return smoothed_cross_entropy(logits, labels, SMOOTHING) / len(predict)

    return train_step(model, loss, precision)


def their_step(
    precision: str, size: Size = SIZE, *, compiled: bool = False
) -> Callable[[Batch], None]:
    """Return a training step of a Marian model of the same sizes."""
    torch.manual_seed(0)
    model = peers.marian(size, VOCABULARY, DROPOUT).train().to(default_device())
    if compiled:
        model.compile()

    def loss(batch: Batch) -> Tensor:
        mask = batch.get("attention_mask", torch.ones_like(batch["input_ids"]))
        logits = model(
            input_ids=batch["input_ids"],
            attention_mask=mask.long(),
            decoder_input_ids=batch["decoder_input_ids"],
        ).logits
        return functional.cross_entropy(
            logits.flatten(0, 1),
            batch["labels"].flatten(),
            ignore_index=IGNORED,
            label_smoothing=SMOOTHING,
        )

    return train_step(model, loss, precision)


def train_step(
    model: nn.Module, loss: Callable[[Batch], Tensor], precision: str
) -> Callable[[Batch], None]:
    optimizer = build_optimizer(OptimizerConfig(learning_rate=1e-4, weight_decay=0.0), model)
    device = next(model.parameters()).device

    def step(batch: Batch) -> None:
        batch = {name: tensor.to(device) for name, tensor in batch.items()}
        with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16"):
            value = loss(batch)
        value.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


# --- beam search ---------------------------------------------------------------------------------


def bench_decoding(*, rounds: int, run: str) -> list[Row]:
    """Return one row for each way of searching, with the BLEU of both sides.

    Raises:
        InputError: the run is not post-norm and sinusoidal, as Marian is.
    """
    requests = [{"run": run, "tuned": tuned} for tuned in (False, True)]
    values = in_turns(measure_decoding, requests, rounds=rounds)
    rows = []
    for name, ours, theirs in ways():
        mine, peer = f"ours {ours} tuned", f"theirs {theirs}"
        found = row(
            f"beam search of test_2016_flickr, {name}",
            values[peer],
            values[mine],
            goal=4.0 if theirs.startswith("bf16") else 2.0,
            deviations=f"{_deviations(ours, theirs)}; sacreBLEU {values[f'{mine} bleu'][0]:.2f}, "
            f"theirs {values[f'{peer} bleu'][0]:.2f}",
        )
        rows.append(_rates(found, "sentences"))
    return rows


def measure_decoding(*, run: str, tuned: bool) -> dict[str, list[float]]:
    """Return the seconds of a sentence and the BLEU of each variant, of one pass after a short one."""
    if tuned:
        tune_process()
    folder = Path(run) / "translations"
    lines, references = (
        (folder / f"test.{name}.txt").read_text(encoding="utf-8").split("\n")[:-1]
        for name in ("source", "reference")
    )
    results: dict[str, list[float]] = {}
    for precision in precisions() if tuned else ["fp32"]:
        ours = load_translator(run, precision=precision, device=default_device())
        sides: dict[str, Callable[[list[str]], list[str]]] = {"theirs": marian_search(ours)}
        if tuned:
            sides["ours"] = partial(our_search, ours)
        for name, search in sides.items():
            search(lines[:SEARCH_BATCH])
            began = time.perf_counter()
            translations = search(lines)
            variant = f"{name} {precision}{' tuned' if tuned else ''}"
            results[variant] = [(time.perf_counter() - began) / len(lines)]
            results[f"{variant} bleu"] = [sacrebleu(translations, references).value]
    return results


def our_search(translator: Translator, lines: list[str]) -> list[str]:
    return [best[0].text for best in translator.translate(lines)]


def marian_search(ours: Translator) -> Callable[[list[str]], list[str]]:
    """Return a function that translates with Marian's `generate` and its cache.

    It gets batches of sentences sorted by length, which it would not form itself.
    """
    config, tokenizer, search = ours.model.config, ours.tokenizer, ours.search
    if config.norm != "post" or config.position.kind != "sinusoidal":
        raise InputError(
            f"a {config.norm}-norm model with {config.position.kind} positions cannot be a Marian "
            "model: choose a --run with model=transformer model.norm=post"
        )
    size = Size(config.layers, config.hidden_size, config.heads, config.intermediate_size)
    model = peers.marian(size, tokenizer.size, DROPOUT)
    model.load_state_dict(to_marian(ours.model.state_dict()), strict=False)
    model.tie_weights()
    model.eval().to(default_device())
    device = next(model.parameters()).device

    @torch.no_grad()
    def translate(lines: list[str]) -> list[str]:
        encoded = [
            [*ids, tokenizer.end_id]
            for ids in tokenizer.encode_batch(lines, tokenizer.source_language)
        ]
        order = sorted(range(len(lines)), key=lambda number: -len(encoded[number]))
        found: dict[int, list[int]] = {}
        for first in range(0, len(order), SEARCH_BATCH):
            numbers = order[first : first + SEARCH_BATCH]
            rows = [torch.tensor(encoded[number]) for number in numbers]
            ids = nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=PAD).to(device)
            with torch.autocast(device.type, torch.bfloat16, enabled=ours.precision == "bf16"):
                outputs = model.generate(
                    input_ids=ids,
                    attention_mask=(ids != PAD).long(),
                    num_beams=search.beam,
                    length_penalty=search.alpha,
                    early_stopping=True,  # as our search: at `num_beams` finished hypotheses
                    bad_words_ids=[[PAD]],
                    max_new_tokens=ids.shape[1] + search.max_length_extra,
                )
            found |= dict(zip(numbers, outputs[:, 1:].tolist(), strict=True))
        kept = [
            [token for token in found[number] if token not in (PAD, END)]
            for number in range(len(lines))
        ]
        return tokenizer.decode_batch(kept, tokenizer.target_language)

    return translate
