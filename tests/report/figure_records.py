"""Small records that figures are drawn from."""

import json

from roformer.report.results import QUANTITIES

PAIRS = ("both", "before", "after", "inner")


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

            whole = {name: part(1, length) for name in PAIRS}
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


def change_file(file, **values):
    """Change keys of a JSON file."""
    file.write_text(json.dumps(json.loads(file.read_text()) | values))
    return file
