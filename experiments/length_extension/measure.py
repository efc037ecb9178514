"""Losses of a pre-trained model at lengths beyond its training, which the paper does not measure.

    make extension RUN=runs/pretrain/roformer-…

The paper evaluates RoFormer at lengths of its pre-training. Here one run is evaluated at several lengths,
with every form of `roformer.nn.rotary_scaling` and without scaling, on the same tokens:

    mask    the validation text is cut into chunks of [CLS] l-2 tokens [SEP], l the shortest length, and
            each chunk is masked by its number, like the training's frozen validation blocks, to which
            the chunks are equal if l is the trained length
    window  L/l consecutive chunks without their [CLS] and [SEP], L the longest length
    piece   of length T: [CLS], T-2 tokens from the start of every (T/l)-th chunk of a window, [SEP]

So the masked text is the same at every length, and every masked token is predicted once per length. A
piece's first (T/l)·(l-2) tokens are predicted. The 2T/l-2 tokens after them, which make its length exactly
T, belong to the next piece and can only be attended to. The script writes <output>/<run>.json and
<output>/plots/<run>.png.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn import functional

from roformer.analysis.pretrained import open_pretrained
from roformer.config import position as encodings
from roformer.config.build import build, plain
from roformer.config.schema import EncoderConfig, PretrainConfig
from roformer.data.mlm import Ids, Masker, PackedBlocks
from roformer.data.random import IGNORED, Purpose, random_stream
from roformer.data.text import PreparedText
from roformer.errors import InputError
from roformer.inference.resolve import find
from roformer.models.encoder import MaskedLM
from roformer.nn.position import build_position
from roformer.report.pages import script_of
from roformer.report.tables import end_with, markdown_of
from roformer.script import Arguments, at_least, script
from roformer.training.hardware import autocast_of
from roformer.training.process import tune_process
from roformer.training.records import command_line, environment, write_atomically
from roformer.training.task import Batch

KINDS = ("none", "linear", "ntk", "dynamic_ntk", "yarn")
"""Scalings in the order of the tables; `none` is the control."""
SEGMENTS = 8
"""Number of parts of a window whose losses are recorded separately."""
TOKENS_PER_PASS = 8192
REPORT = script_of("length_extension")


class Scores(NamedTuple):
    """Values of every predicted token, (N,), in the order of the text at every length."""

    loss: NDArray[np.float64]
    correct: NDArray[np.bool_]


class Windows:
    """The validation text, masked once, as windows that are cut into pieces of any of the lengths.

    Args:
        config: of the run, with its masking.
        text: the run's text.
        lengths: ascending; each a multiple of the first and a divisor of the last.
        count: number of windows, a fixed sample; fewer if the text is too short.
    """

    def __init__(
        self, config: PretrainConfig, text: PreparedText, lengths: Sequence[int], count: int
    ):
        self.shortest, self.longest = lengths[0], lengths[-1]
        if any(length % self.shortest or self.longest % length for length in lengths):
            raise InputError(
                f"lengths {', '.join(map(str, lengths))}: each must be a multiple of the shortest and "
                "divide the longest, as 128 256 512 1024 do"
            )
        self.chunks = self.longest // self.shortest
        if 2 * self.chunks > self.shortest:
            raise InputError(
                f"lengths from {self.shortest} to {self.longest} are too far apart: the longest may be "
                f"{self.shortest // 2} times the shortest"
            )
        self.body = self.shortest - 2
        """Tokens of a chunk that can be predicted."""
        self.tokenizer = text.tokenizer
        self.blocks = PackedBlocks(text.valid, text.tokenizer, self.shortest)
        self.masker = Masker(config.masking, text.tokenizer, self.shortest)
        there = (len(self.blocks) - 1) // self.chunks
        if min(there, count) < 2:
            raise InputError(
                f"{count} windows of {self.longest} tokens are asked for and the validation text has "
                f"{there}: two are needed, so give more --windows or shorter --lengths"
            )
        order = random_stream(0, Purpose.VALID_SAMPLE).permutation(there)
        self.numbers: list[int] = np.sort(order[:count]).tolist()

    def masked(self, number: int) -> tuple[Ids, Ids]:
        """Return the tokens of a window and the chunk after it, and their labels, or IGNORED."""
        tokens, labels = [], []
        for index in range(number * self.chunks, (number + 1) * self.chunks + 1):
            block = self.masker(self.blocks[index], random_stream(0, Purpose.VALID_MASK, 0, index))
            answers = np.full(self.shortest, IGNORED)
            kept = block.labels != IGNORED
            answers[block.predict[kept]] = block.labels[kept]
            tokens.append(block.input_ids[1:-1])
            labels.append(answers[1:-1])
        return np.concatenate(tokens), np.concatenate(labels)

    def batches(self, length: int) -> Iterator[Batch]:
        """Yield all windows, several per batch, cut into pieces in the order of the text.

        Yields:
            input_ids (B, length); predict and labels (B, K), padded with 0 and IGNORED.
        """
        together = max(1, TOKENS_PER_PASS // self.longest)
        for first in range(0, len(self.numbers), together):
            pieces = [
                piece
                for number in self.numbers[first : first + together]
                for piece in self._pieces(number, length)
            ]
            names = ("input_ids", "predict", "labels")
            rows = zip(*pieces, strict=True)
            yield {n: torch.from_numpy(np.array(r)) for n, r in zip(names, rows, strict=True)}

    def _pieces(self, number: int, length: int) -> Iterator[tuple[list[int], Ids, Ids]]:
        step = length // self.shortest * self.body
        slots = length // self.shortest * self.masker.count
        tokens, labels = self.masked(number)
        for start in range(0, self.chunks * self.body, step):
            text = tokens[start : start + length - 2]
            answers = labels[start : start + step]
            places = np.flatnonzero(answers != IGNORED)
            empty = (0, slots - len(places))
            yield (
                [self.tokenizer.cls_id, *text, self.tokenizer.sep_id],
                np.pad(places + 1, empty),
                np.pad(answers[places], empty, constant_values=IGNORED),
            )

    def places(self) -> tuple[Ids, Ids]:
        """Return the window and the place in it, of every predicted token, each (N,)."""
        labels = [self.masked(number)[1][: self.chunks * self.body] for number in self.numbers]
        window, place = np.nonzero(np.stack(labels) != IGNORED)
        return window, place


def read_at_lengths(
    run: Path,
    lengths: Sequence[int] = (128, 256, 512, 1024),
    *,
    windows: int = 128,
    precision: str = "fp32",
    cache_dir: str | None = None,
    device: str = "cpu",
    process: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the record of one run at several lengths, with every scaling.

    The factor is length / trained length, at least 1. The weights are the run's last ones; scaling has no
    weights.

    Args:
        run: folder of a pre-training. Positions other than rotary ones are evaluated only without scaling,
            a learned table only up to its end.
        lengths: tokens per sequence, including [CLS] and [SEP].
        windows: number of windows of the longest length.
        precision: `fp32`, or `bf16` for autocast.
        cache_dir: folder of the prepared text; None: the folder that the run used.
        device: device of the model.
        process: the result of `tune_process`, for the record.
    """
    opened = open_pretrained(run, cache_dir)
    config, position = opened.config, opened.config.model.position
    scaling = getattr(position, "scaling", encodings.NoScaling())
    if scaling != encodings.NoScaling():
        raise InputError(
            f"{run} was trained with position.scaling.kind={scaling.kind}: give a run trained "
            "without scaling, the control"
        )
    # First, because it records the time and the state of the repository.
    data = opened.text.fingerprint
    env = environment(seed=config.seed, data=data, devices=1, process=process or {})
    model = opened.model(device)
    folder, checksum = opened.weights
    ordered = sorted(set(lengths))
    if position.longest is not None and ordered[0] > position.longest:
        raise InputError(
            f"{run} has a learned table of {position.longest} positions: give a length within it"
        )
    text = Windows(config, opened.text, ordered, windows)
    trained_length = config.training.sequence_length
    scores: dict[tuple[str, int], Scores] = {}
    for kind in KINDS if position.kind == "rotary" else KINDS[:1]:
        for length in ordered:
            if length > (position.longest or length):
                continue
            scaled = with_scaling(config.model, kind, length, trained_length)
            if scaled.position.kind == "rotary":
                # The table of learned positions, if the model has one too.
                learned = model.encoder.position.state_dict()
                model.encoder.position = build_position(scaled.position, scaled).to(device)
                model.encoder.position.load_state_dict(learned)
            scores[kind, length] = score(model, text.batches(length), device, precision)
            loss = scores[kind, length].loss.mean()
            print(f"{kind} at {length}: loss {loss:.4f}", file=sys.stderr, flush=True)
    window, place = text.places()
    control_length = trained_length if ("none", trained_length) in scores else ordered[0]
    control = scores["none", control_length].loss
    rows = [
        {
            "kind": kind,
            "length": length,
            "factor": factor(length, trained_length) if kind != "none" else 1.0,
            "loss": float(found.loss.mean()),
            "pseudo_perplexity": math.exp(found.loss.mean()),
            "accuracy": float(found.correct.mean()),
            "against_control": paired_difference(found.loss - control, window),
            "against_none": paired_difference(found.loss - scores["none", length].loss, window),
            "segments": by_segment(found.loss, place, text.chunks * text.body),
        }
        for (kind, length), found in scores.items()
    ]
    return {
        "run": run.resolve().name,
        "beyond_the_paper": "the paper evaluates lengths of the pre-training only",
        "trained_length": trained_length,
        "control_length": control_length,
        "lengths": ordered,
        "windows": len(text.numbers),
        "tokens": len(text.numbers) * text.chunks * text.body,
        "predicted": len(window),
        "precision": precision,
        "checkpoint": folder.name,
        "weights": checksum,
        "position": plain(config.model)["position"],
        "rows": rows,
        "command": command_line(),
        "env": env,
    }


def factor(length: int, trained_length: int) -> float:
    """Return s = length / trained length, at least 1."""
    return max(1.0, length / trained_length)


def with_scaling(
    model: EncoderConfig, kind: str, length: int, trained_length: int
) -> EncoderConfig:
    """Return the config with the scaling for `length`; unchanged for `none`."""
    if kind == "none":
        return model
    given: dict[str, Any] = {"kind": kind, "factor": factor(length, trained_length)}
    if kind in ("dynamic_ntk", "yarn"):
        given["trained_length"] = trained_length
    content = plain(model)
    content["position"]["scaling"] = given
    return build(EncoderConfig, content)


@torch.no_grad()
def score(model: MaskedLM, batches: Iterator[Batch], device: str, precision: str) -> Scores:
    """Return loss in nats and correctness of every predicted token."""
    losses, hits = [], []
    for batch in batches:
        inputs = {name: tensor.to(device) for name, tensor in batch.items()}
        labels = inputs.pop("labels")
        with autocast_of(torch.device(device), precision):
            logits = model(**inputs)
        kept = labels != IGNORED
        logits, labels = logits[kept].float(), labels[kept]
        losses.append(functional.cross_entropy(logits, labels, reduction="none").cpu())
        hits.append((logits.argmax(-1) == labels).cpu())
    return Scores(torch.cat(losses).double().numpy(), torch.cat(hits).numpy())


def paired_difference(difference: NDArray[np.float64], window: Ids) -> dict[str, float]:
    """Return the mean difference of the same tokens' losses and its standard error over windows.

    Tokens of a window depend on each other, so windows are the sampling units of this ratio estimator.
    """
    mean = float(difference.mean())
    residuals = np.bincount(window, weights=difference - mean)
    n = len(residuals)
    spread = math.sqrt(n / (n - 1) * float((residuals**2).sum()))
    return {"difference": mean, "standard_error": spread / len(difference)}


def by_segment(loss: NDArray[np.float64], place: Ids, length: int) -> list[float]:
    """Return the mean loss of each of the equal parts of a window."""
    segment = place * SEGMENTS // length
    sums = np.bincount(segment, weights=loss, minlength=SEGMENTS)
    return [float(x) for x in sums / np.maximum(np.bincount(segment, minlength=SEGMENTS), 1)]


@script()
def main() -> None:
    parser = Arguments(__doc__.partition("\n")[0], device=True, threads=True)
    parser.add_argument("run", help="a pre-training run, or a record's file")
    parser.add_argument("--lengths", type=at_least(8), nargs="+", default=[128, 256, 512, 1024])
    parser.add_argument("--windows", type=int, default=128, help="stretches of the longest length")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--cache-dir", help="where the prepared text is; default: the run's own")
    parser.add_argument("--output", type=Path, default=Path("runs/extension"))
    parser.add_argument("--table", action="store_true", help="print the tables of a record")
    arguments = parser.parse_args()
    if arguments.table:
        print(markdown_of(REPORT["extension_tables"](Path(arguments.run))))
        return
    record = read_at_lengths(
        Path(find(arguments.run)),
        arguments.lengths,
        windows=arguments.windows,
        precision=arguments.precision,
        cache_dir=arguments.cache_dir,
        device=arguments.device,
        process=dict(tune_process(threads=arguments.threads)),
    )
    arguments.output.mkdir(parents=True, exist_ok=True)
    file = arguments.output / f"{record['run']}.json"
    write_atomically(file, json.dumps(record, indent=1) + "\n")
    REPORT["draw_extension"](file, arguments.output / "plots" / f"{record['run']}.png")
    end_with(REPORT["extension_tables"](file), file.with_suffix(".md"))
    print(f"record: {file}")


if __name__ == "__main__":
    main()
