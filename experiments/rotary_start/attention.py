"""Measure attention by distance, and its content-free part, early in the study's runs.

    PYTHONPATH=. python experiments/rotary_start/attention.py [--runs runs/pretrain]

Reads the weights that each run kept after 25, 50, 100 and 200 steps and 128 validation sequences without
masks; writes attention.json and plots/attention.png. A run whose folder is missing keeps what
attention.json has of it. The content-free scores of a layer are
q̄_m·k̄_n/√H plus the encoding's bias, with q̄_m and k̄_n the mean query and key, as rotated, over the
sequences at positions m and n. [CLS] and [SEP], the first and the last token, are excluded.

Shapes: S sequences, L layers, N heads, T tokens without these two, H head dimension.
"""

import argparse
import json
import math
import os
from pathlib import Path

from roformer.registry import EXTENSIONS

os.environ[EXTENSIONS] = "experiments.rotary_start.encodings"

import matplotlib.pyplot as plt
import torch
from torch import Tensor

from experiments.decay.measure import directions
from roformer.analysis.pretrained import open_pretrained
from roformer.config.build import run_id
from roformer.inference.load import load_model
from roformer.models.encoder import Encoder
from roformer.report.studies import read_study

HERE = Path(__file__).parent
STEPS = (25, 50, 100, 200)
SEQUENCES = 128
FARTHEST = 12
"""Tokens before and after the query that the figure shows."""


@torch.no_grad()
def observe(encoder: Encoder, input_ids: Tensor) -> list[tuple[Tensor, Tensor]]:
    """Return scores (S, N, T, T) and content-free scores (N, T, T) of each layer."""
    observed = []

    def attend_observed(layer, attend):
        def inner(q, k, v, mask, *, causal=False):
            bias = 0.0 if mask is None else mask
            scale = 1 / math.sqrt(q.shape[-1])
            scores = scale * q @ k.mT + bias
            constant = scale * q.mean(0) @ k.mean(0).mT + (
                bias if mask is None else bias.reshape(scores.shape[-3:])
            )
            observed.append((scores[..., 1:-1, 1:-1].float(), constant[..., 1:-1, 1:-1].float()))
            return attend(q, k, v, mask, causal=causal)

        return inner

    for block in encoder.blocks:
        block.attention.attend = attend_observed(block.attention, block.attention.attend)
    encoder(input_ids)
    return observed


def measure(encoder: Encoder, input_ids: Tensor) -> dict:
    """Return the content-free share of the scores by layer, and mean attention by distance."""
    shares, profiles, constant_profiles = [], [], []
    for scores, constant in observe(encoder, input_ids):
        centred, pattern = (x - x.mean(-1, keepdim=True) for x in (scores, constant))
        shares.append((pattern.pow(2).mean() / centred.pow(2).mean()).item())
        profiles.append(by_distance(scores.softmax(-1).mean((0, 1))))
        constant_profiles.append(by_distance(constant.softmax(-1).mean(0)))
    return {
        "content_free_share": [round(share, 4) for share in shares],
        "attention": torch.stack(profiles).mean(0).tolist(),
        "content_free_attention": torch.stack(constant_profiles).mean(0).tolist(),
    }


def by_distance(weights: Tensor) -> Tensor:
    """Return the mean weight of keys FARTHEST before to FARTHEST after the query, for weights (T, T)."""
    before, after = directions(weights.double())
    return torch.cat((before[1 : FARTHEST + 1].flip(0), after[: FARTHEST + 1]))


def draw(record: dict, file: Path) -> None:
    """Draw attention by distance (solid) and its content-free part (dotted), one panel per step."""
    figure, panels = plt.subplots(1, len(STEPS), figsize=(14, 3.4), sharey=True)
    distances = range(-FARTHEST, FARTHEST + 1)
    for panel, step in zip(panels, STEPS, strict=True):
        for number, (name, runs) in enumerate(record["configurations"].items()):
            for key, style in (("attention", "-"), ("content_free_attention", ":")):
                seeds = torch.tensor([run["steps"][str(step)][key] for run in runs])
                label = name if style == "-" else None
                panel.plot(distances, seeds.mean(0), style, color=f"C{number}", label=label)
        panel.set(title=f"step {step}", xlabel="key position - query position")
    panels[0].set_ylabel("mean attention weight")
    panels[0].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(file, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--runs", type=Path, default=Path("runs/pretrain"), help="folder of the runs"
    )
    runs = parser.parse_args().runs
    # Imported late: composing a config needs Hydra.
    from roformer.config.composing import compose

    file = HERE / "attention.json"
    recorded = json.loads(file.read_text())["configurations"] if file.exists() else {}
    kept = {run["run"]: run for runs in recorded.values() for run in runs}
    configurations: dict[str, list] = {}
    for name, words in read_study(HERE).commands():
        folder = runs / run_id(compose("pretrain", words[2:]))
        measured = configurations.setdefault(name, [])
        if not (folder / "summary.json").is_file():
            measured += [kept[folder.name]] if folder.name in kept else []
            print(
                f"{folder.name}: {'as recorded' if folder.name in kept else 'no run'}", flush=True
            )
            continue
        text = open_pretrained(folder).validation_sequences(SEQUENCES, 128)
        steps = {}
        for step in STEPS:
            model = load_model(f"{folder}@{step}").model
            steps[str(step)] = measure(model.encoder, text)
        measured.append({"run": folder.name, "steps": steps})
        print(folder.name, {s: steps[s]["content_free_share"] for s in steps}, flush=True)
    record = {
        "sequences": SEQUENCES,
        "distances": [-FARTHEST, FARTHEST],
        "configurations": configurations,
    }
    file.write_text(json.dumps(record, indent=1) + "\n")
    (HERE / "plots").mkdir(exist_ok=True)
    draw(record, HERE / "plots" / "attention.png")


if __name__ == "__main__":
    main()
