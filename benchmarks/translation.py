"""Translation against `transformers`' Marian: training steps, real lengths, beam search.

* equal batches: 273 pairs of 15 and 15 tokens, 6+6 layers × 256, vocabulary 10,000, the same dropout,
  label smoothing and fused AdamW; forward, backward and update.
* real lengths: the same model on batches of Multi30k's lengths; ours by length, theirs at random and
  padded to their longest by the default collator, as many tokens a batch. Real target tokens a second.
* beam search: one post-norm, sinusoidal run of ours, its weights in both models; test_2016_flickr with
  a beam of 4, sentences a second and BLEU. Needs the run: `make bench ARGS="decoding --run runs/wmt/…"`.

Processes take turns; within one, theirs and ours alternate.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.timing import in_child, interleave, ratio
from roformer.config import position as encodings
from roformer.config.attention import SoftmaxAttention
from roformer.config.schema import OptimizerConfig
from roformer.config.wmt import Seq2SeqConfig
from roformer.data.random import IGNORED
from roformer.data.tokens import TokenLists
from roformer.data.translation_batches import Pairs, TranslationBatches, epoch_buckets
from roformer.errors import InputError
from roformer.evaluation.bleu import sacrebleu
from roformer.inference.translate import Translator, load_translator
from roformer.interop.equivalents import to_marian
from roformer.models.seq2seq import Seq2Seq
from roformer.nn.cross_entropy import smoothed_cross_entropy
from roformer.training.hardware import default_device
from roformer.training.optim import build_optimizer
from roformer.training.process import tune_process

VOCABULARY, PAD, END, DROPOUT, SMOOTHING = 10_000, 0, 1, 0.1, 0.1
PAIRS, LENGTH, BUCKET = 273, 15, 4096
BATCHES = 1
"""Of Multi30k's lengths that a call goes through."""
SEARCH_BATCH = 64
"""Sentences that Marian's `generate` is given at once, sorted by length."""
WAYS = {
    "stock": ("as shipped", "bf16", "fp32", False),
    "fp32": ("process settings and fp32 on both sides", "fp32", "fp32", True),
    "bf16": ("process settings and bf16 on both sides", "bf16", "bf16", True),
}
"""Name → what is said of it, our precision, theirs, whether theirs gets the process settings."""

Batch = dict[str, Tensor]
Lengths = NDArray[np.int64]


def bench_translation(*, rounds: int) -> list[dict[str, Any]]:
    """Return one row a way of training and kind of batch."""
    seconds: dict[str, list[float]] = {}
    for _ in range(rounds):
        for kind in ("equal", "lengths"):
            for tuned in (False, True):
                times = in_child("translation", kind=kind, tuned=tuned)
                for name, each in times.items():
                    seconds.setdefault(name, []).append(statistics.median(each))
    rows = []
    for kind, what, goal in (
        ("equal", "translation step, equal batches", 1.3),
        ("lengths", "translation step, Multi30k's lengths", 2.0),
    ):
        for said, ours, theirs, tuned in WAYS.values():
            peer = seconds[f"{kind} theirs {theirs}{' tuned' if tuned else ''}"]
            mine = seconds[f"{kind} ours {ours} tuned"]
            rows.append(
                {
                    "what": f"{what}, {said}",
                    "ratio": ratio(peer, mine),
                    "goal": goal if said != "as shipped" or kind == "lengths" else None,
                    "peer_tokens_per_second": 1 / statistics.median(peer),
                    "ours_tokens_per_second": 1 / statistics.median(mine),
                    "deviations": "none" if ours == theirs == "fp32" else "bf16 autocast",
                }
            )
    return rows


def measure_translation(*, kind: str, tuned: bool, rounds: int = 2) -> dict[str, list[float]]:
    """Return seconds a real target token of the variants of one process."""
    if tuned:
        tune_process()
    ending = " tuned" if tuned else ""
    variants: dict[str, Callable[[], None]] = {}
    tokens: dict[str, float] = {}
    for precision in ("fp32", "bf16") if tuned else ("fp32",):
        for name, build, batches in (
            ("theirs", their_step, default_batches if kind == "lengths" else equal_batches),
            ("ours", our_step, our_batches if kind == "lengths" else equal_batches),
        ):
            if name == "ours" and not tuned:
                continue
            made = batches()
            variant = f"{kind} {name} {precision}{ending}"
            variants[variant] = partial(every, made, build(precision))
            tokens[variant] = float(sum(int((b["labels"] != IGNORED).sum()) for b in made))
    seconds = interleave(variants, rounds=rounds, warmup=1 if kind == "equal" else 0)
    return {name: [s / tokens[name] for s in times] for name, times in seconds.items()}


def every(batches: list[Batch], step: Callable[[Batch], None]) -> None:
    for batch in batches:
        step(batch)


# --- batches -------------------------------------------------------------------------------------


def multi30k_lengths(count: int = 4000) -> tuple[Lengths, Lengths]:
    """Return source and target tokens of so many pairs, drawn as Multi30k's are distributed.

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
        TokenLists.of([[*random.integers(3, VOCABULARY, n - 1), END] for n in side])
        for side in (source, target)
    )
    return TranslationBatches(Pairs(*sides), PAD, END)


def equal_batches() -> list[Batch]:
    lengths = np.full(PAIRS, LENGTH)
    return [text_of(lengths, lengths)[range(PAIRS)]]


def our_batches() -> list[Batch]:
    source, target = multi30k_lengths()
    text = text_of(source, target)
    return [text[numbers] for numbers in epoch_buckets(source, target, BUCKET, 0, 0)[:BATCHES]]


def default_batches() -> list[Batch]:
    """Return batches of pairs at random, each padded to its longest source and target."""
    source, target = multi30k_lengths()
    text = text_of(source, target)
    order = np.random.default_rng(2).permutation(len(source))
    size = round(BUCKET / float(np.maximum(source, target).mean()))
    return [text[order[i : i + size]] for i in range(0, BATCHES * size, size)]


# --- training ------------------------------------------------------------------------------------


def our_step(precision: str) -> Callable[[Batch], None]:
    """Return a function that makes one update of our model."""
    torch.manual_seed(0)
    config = Seq2SeqConfig(
        name="transformer",
        size="mini",
        layers=6,
        hidden_size=256,
        heads=4,
        intermediate_size=1024,
        hidden_dropout=DROPOUT,
        attention_dropout=DROPOUT,
        position=encodings.Sinusoidal(),
        attention=SoftmaxAttention(),
    )
    model = Seq2Seq(config, VOCABULARY).to(default_device())

    def loss(batch: Batch) -> Tensor:
        labels = batch["labels"].flatten()
        (predict,) = (labels != IGNORED).nonzero(as_tuple=True)
        logits = model(
            batch["input_ids"],
            batch["decoder_input_ids"],
            attention_mask=batch.get("attention_mask"),
            predict=predict,
        )
        return smoothed_cross_entropy(logits, labels[predict], SMOOTHING) / len(predict)

    return update(model, loss, precision)


def their_step(precision: str) -> Callable[[Batch], None]:
    """Return a function that makes one update of a Marian model of the same sizes."""
    torch.manual_seed(0)
    model = marian(VOCABULARY, layers=6, hidden_size=256, heads=4, intermediate_size=1024)
    model.train().to(default_device())

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

    return update(model, loss, precision)


def update(
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


def marian(
    vocabulary: int, *, layers: int, hidden_size: int, heads: int, intermediate_size: int
) -> Any:
    from transformers import MarianConfig, MarianMTModel

    return MarianMTModel(
        MarianConfig(
            vocab_size=vocabulary,
            d_model=hidden_size,
            encoder_layers=layers,
            decoder_layers=layers,
            encoder_attention_heads=heads,
            decoder_attention_heads=heads,
            encoder_ffn_dim=intermediate_size,
            decoder_ffn_dim=intermediate_size,
            activation_function="relu",
            scale_embedding=True,
            dropout=DROPOUT,
            attention_dropout=DROPOUT,
            pad_token_id=PAD,
            eos_token_id=END,
            decoder_start_token_id=END,
            forced_eos_token_id=None,
        )
    )


# --- beam search ---------------------------------------------------------------------------------


def bench_decoding(*, rounds: int, run: str) -> list[dict[str, Any]]:
    """Return one row a way of searching, with the BLEU of both sides.

    Raises:
        InputError: the run is not post-norm and sinusoidal, as Marian is.
    """
    results: dict[str, list[float]] = {}
    for _ in range(rounds):
        for tuned in (False, True):
            for name, values in in_child("decoding", run=run, tuned=tuned).items():
                results.setdefault(name, []).append(statistics.median(values))
    rows = []
    for said, ours, theirs, tuned in WAYS.values():
        peer = f"theirs {theirs}{' tuned' if tuned else ''}"
        mine = f"ours {ours} tuned"
        rows.append(
            {
                "what": f"beam search of test_2016_flickr, {said}",
                "ratio": ratio(results[peer], results[mine]),
                "goal": 2.0,
                "peer_sentences_per_second": 1 / statistics.median(results[peer]),
                "ours_sentences_per_second": 1 / statistics.median(results[mine]),
                "deviations": f"{'none' if ours == theirs == 'fp32' else 'bf16 autocast'}; sacreBLEU "
                f"{results[f'{mine} bleu'][0]:.2f}, theirs {results[f'{peer} bleu'][0]:.2f}",
            }
        )
    return rows


def measure_decoding(*, run: str, tuned: bool) -> dict[str, list[float]]:
    """Return seconds a sentence and BLEU of each variant, of one pass after a short one."""
    if tuned:
        tune_process()
    folder = Path(run) / "translations"
    lines, references = (
        (folder / f"test.{name}.txt").read_text(encoding="utf-8").split("\n")[:-1]
        for name in ("source", "reference")
    )
    results: dict[str, list[float]] = {}
    for precision in ("fp32", "bf16") if tuned else ("fp32",):
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
    """Return a function that translates with Marian's `generate`, cache and all.

    It is given the sentences sorted by length, in batches, which it would not do by itself.
    """
    config, tokenizer, search = ours.model.config, ours.tokenizer, ours.search
    if config.norm != "post" or config.position.kind != "sinusoidal":
        raise InputError(
            f"a {config.norm}-norm model with {config.position.kind} positions cannot be a Marian "
            "model: give --run a run with model=transformer model.norm=post"
        )
    model = marian(
        tokenizer.size,
        layers=config.layers,
        hidden_size=config.hidden_size,
        heads=config.heads,
        intermediate_size=config.intermediate_size,
    )
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
