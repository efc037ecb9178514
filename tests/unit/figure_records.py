"""Small records that figures are drawn from."""

import json

from roformer.report.decay import QUANTITIES, Pairs


def decay_record(path, *, seeds=(0,), length=16, layers=2, model="roformer", position="rotary"):
    """Write a record whose curves tell run, layer and quantity apart."""
    runs = []
    for weights in ("trained", "initial"):
        for seed in seeds:

            def part(start, distances, scale=seed + 1 + 10 * (weights == "initial")):
                return {
                    name: {
                        "mean": [scale * (start + i) / (r + 1) for r in range(distances)],
                        "standard_error": [0.1] * distances,
                    }
                    for i, name in enumerate(QUANTITIES)
                }

            whole = {name: part(1, length) for name in Pairs.__annotations__}
            runs.append(
                {
                    "run": f"run-s{seed}",
                    "model": model,
                    "position": position,
                    "seed": seed,
                    "weights": weights,
                    "layers": layers,
                    "heads": 2,
                    "head_dim": 8,
                    "settings": {"model": {"name": model}},
                    "mean": whole | {"inner": part(1, length - 2)},
                    "by_layer": [part(100 * (layer + 1), length) for layer in range(layers)],
                }
            )
    bound = {"distances": [0, 1, 2], "head_sizes": {"64": [16.5, 10.0, 9.0], "128": [32.5, 20, 18]}}
    path.write_text(json.dumps({"bound": bound, "sequences": 4, "length": length, "runs": runs}))
    return path


def pretraining(folder, seed, losses, *, model="roformer", position="rotary", tokens=8192):
    """Write the record of a run with a loss at every 100 updates."""
    folder.mkdir(parents=True)
    rows = [
        {
            "step": 100 * n,
            "valid/mlm_loss": loss,
            "valid/unigram_entropy": 5.5,
            "data/samples": 6400 * n,
            "data/tokens": 100 * n * tokens,
        }
        for n, loss in enumerate(losses, 1)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    summary = {"pipeline": "pretrain", "model": model, "position": position, "seed": seed}
    (folder / "summary.json").write_text(json.dumps(summary))
    config = {
        "seed": seed,
        "model": {"name": model, "position": position, "layers": 4, "hidden_size": 256},
        "training": {"steps": 300, "batch_size": 64, "sequence_length": 128},
        "runtime": {"threads": seed},
    }
    (folder / "config.yaml").write_text(json.dumps(config))
    return folder


def change(file, **values):
    file.write_text(json.dumps(json.loads(file.read_text()) | values))
