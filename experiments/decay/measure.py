"""Attention by distance: the paper's bound, and the scores of trained models.

    python experiments/decay/measure.py runs/pretrain/roformer-… --output FILE

The paper (section 3.4.3) bounds the product of a rotated query and key by a function of their distance
(Eq. 37), shows that the bound falls (Fig. 2), and concludes that scores decay. This script computes the
bound for several head sizes, and three quantities of trained models on their own validation text:

    score     s = q·k/√H before the softmax, with the encoding's bias if it has one
    centred   s minus the mean of s over the keys of its query, because a softmax ignores a query's offset
    weight    softmax(s), the share of the attention

Each is the mean over all pairs of a query and a key at one distance and over the heads: per layer with
both directions together, and averaged over layers also per direction. Distant pairs are few and mostly
contain [CLS] or the last [SEP], which are not read like words: `inner` excludes these two.

Shapes: S sequences, L layers, N heads, T tokens of a sequence.
"""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from roformer.analysis.pretrained import ObservedAttention, Pretrained, open_pretrained
from roformer.config.build import configuration, plain
from roformer.errors import InputError
from roformer.inference.resolve import find
from roformer.models.encoder import Encoder, MaskedLM
from roformer.nn.rotary import decay_bound
from roformer.report.pages import script_of
from roformer.report.tables import end_with, markdown_of
from roformer.script import Arguments, at_least, script
from roformer.tasks.mlm import MaskedLMTask
from roformer.training import checkpoint
from roformer.training.process import tune_process
from roformer.training.records import command_line, environment, write_atomically

HEAD_SIZES = (32, 64, 128, 256)
FARTHEST = 250
"""The last distance of the paper's Fig. 2."""
QUANTITIES = ("score", "centred", "weight")
PAIRS = ("both", "before", "after", "inner")
"""Place of the key: on either side of the query, before it, after it; on either side without the first and
the last token, so that the distances end at T-3."""
SEQUENCES_PER_PASS = 16
REPORT = script_of("decay")

Weights = Literal["trained", "initial"]
Values = NDArray[np.float64]


def measure(
    runs: Sequence[Path],
    *,
    control: Weights | None = None,
    sequences: int = 64,
    length: int | None = None,
    cache_dir: str | None = None,
    device: str = "cpu",
    process: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Return the record of the bound, and of the scores of pre-training runs by distance.

    Args:
        runs: folders of finished pre-trainings on the same text; their last weights are used.
        control: `initial` also measures each network with its initial weights.
        sequences: number of frozen validation sequences, without masks; at least 2.
        length: tokens per sequence; None: the training length, which must be the same for all runs.
        cache_dir: folder of the prepared text; None: the folder that each run used.
        device: device of the models.
        process: the result of `tune_process`, for the record.
    """
    opened = list[Pretrained]()
    for run in runs:
        if run.resolve() in (one.folder.resolve() for one in opened):
            raise InputError(f"{run} is given twice: it would count as another seed")
        one = open_pretrained(run, cache_dir)
        last, steps = checkpoint.step_of(one.weights[0]), one.config.training.steps
        if last != steps:
            raise InputError(
                f"{run}: its last complete checkpoint is of step {last:,} of {steps:,}: let the run "
                "end, or train it again"
            )
        if opened and one.text.fingerprint != opened[0].text.fingerprint:
            raise InputError(
                f"{opened[0].folder} and {run} were trained on different texts: measure them apart"
            )
        opened.append(one)
    if length is None:
        length, *others = sorted({one.config.training.sequence_length for one in opened})
        if others:
            lengths = ", ".join(map(str, [length, *others]))
            raise InputError(f"trained at {lengths} tokens: give one --length")
    # First, because it records the time and the state of the repository.
    data = opened[0].text.fingerprint
    env = environment(seed=0, data=data, devices=1, process=process or {})
    kinds: list[Weights] = ["trained"] if control is None else ["trained", control]
    entries = []
    for one in opened:
        input_ids = one.validation_sequences(sequences, length).to(device)
        for weights in kinds:
            print(f"{one.folder.name}, {weights} weights", file=sys.stderr, flush=True)
            model = one.model(device) if weights == "trained" else initial_model(one).to(device)
            values = scores_by_distance(model, input_ids)
            entries.append({**describe(one, weights), **summarised(values)})
    return {
        "paper": "RoFormer, section 3.4.3, Eq. 35-37 and Fig. 2",
        "bound": bound_by_distance(),
        "sequences": sequences,
        "length": length,
        "runs": entries,
        "command": command_line(),
        "env": env,
    }


def bound_by_distance() -> dict[str, Any]:
    """Return the paper's bound (Eq. 37) at distances 0 … 250, by head size."""
    distances = torch.arange(FARTHEST + 1)
    return {
        "base": 10000.0,
        "distances": distances.tolist(),
        "head_sizes": {
            str(d): rounded(decay_bound(distances, d).numpy(), digits=5) for d in HEAD_SIZES
        },
    }


@torch.no_grad()
def scores_by_distance(model: MaskedLM, input_ids: Tensor) -> Values:
    """Return the mean of each quantity at each distance, (S, L, N, 3 quantities, 4 kinds of pairs, T).

    Args:
        model: in evaluation mode.
        input_ids: (S, T).
    """
    passes = []
    for batch in input_ids.split(SEQUENCES_PER_PASS):
        with observed(model.encoder) as layers:
            model.encoder(batch)
        passes.append(np.stack(layers, axis=1))
    return np.concatenate(passes)


@contextmanager
def observed(encoder: Encoder) -> Iterator[list[Values]]:
    """Yield a list to which each layer of a forward pass appends its (S, N, 3, 4, T) means."""
    found: list[Values] = []
    blocks: list[Any] = list(encoder.blocks)
    layers = [block.attention for block in blocks]

    def append_means(scores: Tensor, weights: Tensor) -> None:
        scores, weights = scores.cpu().double(), weights.cpu().double()
        centred = scores - scores.mean(-1, keepdim=True)
        found.append(by_distance(torch.stack((scores, centred, weights), dim=2)).numpy())

    try:
        for block, layer in zip(blocks, layers, strict=True):
            block.attention = (
                ObservedAttention(layer, append_means).to(layer.output.weight.device).eval()
            )
        yield found
    finally:
        for block, layer in zip(blocks, layers, strict=True):
            block.attention = layer


def by_distance(matrix: Tensor) -> Tensor:
    """Return the means over each of `PAIRS` at each distance, (…, 4, T); NaN without pairs.

    Args:
        matrix: (…, T queries, T keys), fp64 on the CPU.
    """
    before, after = directions(matrix)
    # At distance 0 both are the same diagonal.
    inner = torch.stack(directions(matrix[..., 1:-1, 1:-1])).mean(0)
    inner = functional.pad(inner, (0, 2), value=math.nan)
    return torch.stack(((before + after) / 2, before, after, inner), dim=-2)


def directions(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Return the means over the keys 0 … T-1 tokens before the query, and after it, each (…, T)."""
    length = matrix.shape[-1]
    place = torch.arange(length)
    offset = place[None, :] - place[:, None] + length - 1  # key minus query, from 0
    sums = matrix.new_zeros(*matrix.shape[:-2], 2 * length - 1)
    sums.index_add_(-1, offset.flatten(), matrix.flatten(-2))
    count = torch.arange(length, 0, -1)
    return sums[..., :length].flip(-1) / count, sums[..., length - 1 :] / count


def summarised(values: Values) -> dict[str, Any]:
    """Return the record of the means of `scores_by_distance`."""

    def over_sequences(found: Values) -> dict[str, list[float]]:
        """Return mean and standard error of (S, T), for the distances that have pairs."""
        found = found[:, ~np.isnan(found[0])]
        error = found.std(axis=0, ddof=1) / math.sqrt(len(found))
        return {"mean": rounded(found.mean(axis=0)), "standard_error": rounded(error, digits=2)}

    def each_quantity(found: Values) -> dict[str, Any]:
        """Return `over_sequences` of (S, 3 quantities, T)."""
        return {name: over_sequences(found[:, i]) for i, name in enumerate(QUANTITIES)}

    everywhere, by_layer = values.mean(axis=(1, 2)), values[..., 0, :].mean(axis=2)
    return {
        "mean": {name: each_quantity(everywhere[:, :, i]) for i, name in enumerate(PAIRS)},
        "by_layer": [each_quantity(by_layer[:, layer]) for layer in range(values.shape[1])],
    }


def rounded(values: NDArray[Any], digits: int = 4) -> list[float]:
    """Return numbers without the digits below their standard errors, which halves the file."""
    return [float(f"{value:.{digits}g}") for value in values]


def initial_model(run: Pretrained) -> MaskedLM:
    """Return the run's model with the weights that its training began with."""
    config = dataclasses.replace(run.config, keep_moments=False)
    task = MaskedLMTask(config, run.text)
    task.build_model()
    assert isinstance(task.model, MaskedLM)
    return task.model.eval()


def describe(run: Pretrained, weights: Weights) -> dict[str, Any]:
    """Return the settings that distinguish the network from others."""
    model = run.config.model
    folder, checksum = run.weights
    trained = {"checkpoint": folder.name, "sha256": checksum}
    return {
        "run": run.folder.resolve().name,
        "model": model.name,
        "position": model.position.name,
        "seed": run.config.seed,
        "weights": weights,
        "layers": model.layers,
        "heads": model.heads,
        "head_dim": model.head_dim,
        **(trained if weights == "trained" else {}),
        "settings": configuration(type(run.config), plain(run.config)),
    }


@script()
def main() -> None:
    parser = Arguments(__doc__.partition("\n")[0], device=True, threads=True)
    parser.add_argument("runs", nargs="+", help="pre-training runs, or a record's file")
    parser.add_argument("--control", choices=("initial",), help="also with the initial weights")
    parser.add_argument("--sequences", type=int, default=64, help="of the validation text")
    parser.add_argument(
        "--length", type=at_least(8), help="tokens of a sequence; default: the trained one"
    )
    parser.add_argument("--cache-dir", help="where the prepared text is; default: the runs' own")
    parser.add_argument("--output", type=Path, default=Path("runs/decay.json"), help="the record")
    parser.add_argument("--table", action="store_true", help="print the tables of a record")
    arguments = parser.parse_args()
    if arguments.table:
        if not (record := Path(arguments.runs[0])).is_file():
            raise InputError(f"{record} cannot be read: give a record of this script")
        print(markdown_of(REPORT["decay_tables"](record)))
        return
    found = measure(
        [Path(find(run)) for run in arguments.runs],
        control=arguments.control,
        sequences=arguments.sequences,
        length=arguments.length,
        cache_dir=arguments.cache_dir,
        device=arguments.device,
        process=dict(tune_process(threads=arguments.threads)),
    )
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(arguments.output, json.dumps(found, separators=(",", ":")) + "\n")
    end_with(REPORT["decay_tables"](arguments.output), arguments.output.with_suffix(".md"))
    print(f"record: {arguments.output}")


if __name__ == "__main__":
    main()
