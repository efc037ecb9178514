"""Records of runs that never ran."""

import json
import shutil

from roformer.report.runs import write_recorded

HOSTILE = "</script><script>alert(1)</script>"
HOSTILE_NAME = "<img src=x onerror=alert(1)> & <b>bold<b> \u2028"
"""A valid folder name; a name with a slash is not valid."""


def write_run(
    folder, *, losses, seed=0, status="done", model="roformer", position="rotary", **more
):
    """Write a run's record; `losses` are by step; without a status it has not ended."""
    folder.mkdir(parents=True)
    for step, loss in losses.items():
        append_row(folder, step, loss)
    config = {
        "recipe": more.get("recipe", "mini"),
        "seed": seed,
        "model": {"name": model, "position": {"kind": position}},
        "optimizer": {"learning_rate": more.get("rate", 0.001)},
        "runtime": {"threads": 1 + seed},
    }
    (folder / "config.yaml").write_text(json.dumps(config))
    environment = {"commit": more.get("commit", "0" * 40), "dirty": False, "processor": "one"}
    (folder / "env.json").write_text(json.dumps(environment))
    (folder / "command.txt").write_text(more.get("command", "python scripts/pretrain.py") + "\n")
    if status is None:
        return folder
    summary = {
        "pipeline": "pretrain",
        "run_id": folder.name,
        "model": model,
        "position": position,
        "recipe": config["recipe"],
        "seed": seed,
        "status": status,
        "metrics": {} if status == "failed" else {"valid/mlm_loss": list(losses.values())[-1]},
        "steps": max(losses),
        "tokens": 200 * max(losses),
        "wall_seconds": 12.3456789,
        "tokens_per_second": 1620.25,
        "parameters": 5_462_784,
    }
    (folder / "summary.json").write_text(json.dumps(summary | more.get("summary", {})))
    return folder


def append_row(folder, step, loss):
    """Add a line to a run's metrics.jsonl, as a run does."""
    read = {"data/samples": step * 2, "data/tokens": step * 200}
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({"step": step, "valid/mlm_loss": loss} | read) + "\n")


def write_hostile_run(experiments):
    """Record a run that is called like markup wherever a record may say what it likes."""
    names = dict.fromkeys(("model", "position", "recipe", "commit", "command"), HOSTILE)
    folder = write_run(
        experiments / "hostile" / HOSTILE_NAME,
        **names,
        losses={1: 3.0, 2: 2.0},
        status="failed",
        summary={"error": HOSTILE, "task": HOSTILE},
    )
    row = {"step": 1, HOSTILE: 1.0, "__proto__": 2.0, "constructor": 3.0, "<b>bold</b>": 4.0}
    (folder / "metrics.jsonl").write_text(json.dumps(row) + "\n")
    write_recorded(experiments / HOSTILE_NAME, [folder])
    shutil.rmtree(experiments / "hostile")
