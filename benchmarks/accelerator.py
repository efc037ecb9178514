"""Training steps on an accelerator: the share of its rate, memory, and models of transformers.

bf16 autocast, dropout 0.1 and fused AdamW on all sides, in one process with default settings:

* masked LM: base on 64 texts of 512 tokens, against transformers' RoFormer, whose attention is eager, and
  its BERT with torch's fused attention;
* translation: 6+6 layers × 512 on 256 pairs of 32 and 32 tokens, against its Marian with the same.

`mfu` compares our step with only its matrix products and with the data sheet's peak, `peers` with
transformers; `…_compiled` compile both sides. On a CPU all sizes are tiny: a trial, no measurement.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from functools import partial

import torch

from benchmarks import peers, training, translation
from benchmarks.peers import Size
from benchmarks.timing import Row, in_child, interleave, row
from roformer.training.hardware import default_device, peak_flops

LIMIT, OURS = "limit", "ours"
PEERS = {"masked LM": ("RoFormer", "BERT"), "translation": ("Marian",)}
SETTING = "bf16, dropout 0.1"
GOAL = 0.55
"""Share of the data sheet's peak (model FLOPs utilisation) that base is to reach at 512 tokens."""
Step = Callable[[], object]


def bench_mfu(*, rounds: int, compiled: bool) -> list[Row]:
    """Return a row: our step against its matrix products."""
    seconds = measured("masked LM", [LIMIT, OURS], compiled, rounds)
    size, device = size_here(), torch.device(default_device())
    tokens, flops = training.BATCH[size] * training.LENGTH, training.step_flops(size)
    if OURS not in seconds or LIMIT not in seconds:
        return []
    found = row(f"{_name(compiled)}, against its products alone", seconds[LIMIT], seconds[OURS])
    rate, peak = flops / found["ours_seconds"], peak_flops(device)
    said = f"{rate / 1e12:.1f} TFLOP/s; peak not known"
    if peak is not None:
        said = f"{rate / peak:.1%} of {peak / 1e12:.0f} TFLOP/s (goal {GOAL:.0%})"
    return [
        found
        | {
            "deviations": f"bf16 autocast; {said}",
            "mfu": None if peak is None else rate / peak,
            "ours_tokens_per_second": tokens / found["ours_seconds"],
            "ours_bytes": seconds[f"{OURS} bytes"][0],
            "step_gflop": flops / 1e9,
        }
    ]


def bench_peers(*, rounds: int, compiled: bool) -> Iterator[Row]:
    """Yield a row for each model of transformers; a failing one is skipped with a line."""
    for task, others in PEERS.items():
        seconds = measured(task, [OURS, *others], compiled, rounds)
        for peer in others:
            if OURS not in seconds or peer not in seconds:
                continue
            what = f"{_name(compiled) if task == 'masked LM' else _pairs(compiled)}, against {peer}"
            memory = {
                f"{side}_bytes": seconds[f"{name} bytes"][0]
                for side, name in (("ours", OURS), ("peer", peer))
            }
            said = "bf16 autocast on both sides"
            yield row(what, seconds[peer], seconds[OURS], deviations=said, **memory)


def measured(task: str, names: list[str], compiled: bool, rounds: int) -> dict[str, list[float]]:
    """Return the result of `measure_accelerator` in a separate process."""
    return in_child(measure_accelerator, task=task, names=names, compiled=compiled, rounds=rounds)


def measure_accelerator(
    *, task: str, names: list[str], compiled: bool, rounds: int
) -> dict[str, list[float]]:
    """Return the seconds of a step of each name, and under `<name> bytes` what it holds at most.

    A step that fails, from lack of memory or in a compiler, is skipped with a line on stderr.
    """
    found: dict[str, list[float]] = {}
    steps: dict[str, Step] = {}
    for name in names:
        step: Step | None = None  # kept, it would hold the previous model
        gc.collect()
        before = _allocated()
        try:
            step = builders(task, compiled)[name]()
            for _ in range(3):  # the first call compiles; the next one is measured
                step()
        except Exception as error:
            why = str(error).partition("\n")[0]
            print(f"{name} is left out: {type(error).__name__}: {why}", file=sys.stderr)
            continue
        steps[name] = step
        found[f"{name} bytes"] = [float(_peak() - before)]
    seconds = interleave(steps, rounds=rounds)
    if LIMIT in seconds:
        seconds[LIMIT] = [part / training.PART for part in seconds[LIMIT]]
    return found | seconds


def builders(task: str, compiled: bool) -> dict[str, Callable[[], Step]]:
    """Return the builders of a task's steps, by name."""
    if task == "translation":
        size, pairs, length = pairs_here()
        (batch,) = translation.equal_batches(pairs, length)

        def on_batch(build: Callable[..., Callable[[translation.Batch], None]]) -> Step:
            return partial(build("bf16", size, compiled=compiled), batch)

        sides = {OURS: translation.our_step, "Marian": translation.their_step}
        return {name: partial(on_batch, build) for name, build in sides.items()}
    size_name = size_here()
    peer = partial(training.peer_step, size_name, half=True, compiled=compiled)
    return {
        LIMIT: partial(training.products, size_name, half=True),
        OURS: partial(training.our_step, size_name, SETTING, compiled=compiled),
        "RoFormer": partial(peer, peers.masked_lm),
        "BERT": partial(peer, peers.bert),
    }


def size_here() -> str:
    """Return the key of the masked LM's sizes on this machine."""
    return "trial" if default_device() == "cpu" else "base on a GPU"


def pairs_here() -> tuple[Size, int, int]:
    """Return the sizes of the translation model, how many pairs a batch has, and of what length."""
    if default_device() == "cpu":
        return training.SIZES["trial"], 4, 8
    return Size(6, 512, 8, 2048), 256, 32


def _name(compiled: bool) -> str:
    size = size_here()
    mode = "compiled" if compiled else "eager"
    return f"{size} step, {training.BATCH[size]} x {training.LENGTH}, {mode}"


def _pairs(compiled: bool) -> str:
    size, pairs, length = pairs_here()
    mode = "compiled" if compiled else "eager"
    return f"translation step, {size.layers}+{size.layers} x {size.hidden_size}, {pairs} x {length}, {mode}"


def _allocated() -> int:
    """Return the bytes of all tensors on the GPU, and count its peak from now on; 0 on a CPU."""
    if not torch.cuda.is_available():
        return 0
    torch.cuda.reset_peak_memory_stats()
    return torch.cuda.memory_allocated()


def _peak() -> int:
    return torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 0
