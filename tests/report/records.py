"""Records of runs that tables and pages are made of."""

import json
import runpy
import shutil
import sys
from contextlib import suppress

from roformer.report.runs import read_runs, write_recorded
from tests.conftest import REPOSITORY

WHOLE = {
    "recipe": "mini",
    "data": "builtin",
    "steps": 20,
    "tokens": 160_000,
    "parameters": 5_000_000,
    "wall_seconds": 12.3456789,
    "tokens_per_second": 1620.25,
    "status": "done",
    "metrics": {},
}
HOSTILE = "</script><script>alert(1)</script>"
HOSTILE_NAME = "<img src=x onerror=alert(1)> & <b>bold<b> \u2028"
"""A valid folder name; a name with a slash is not valid."""


def record(folder, *, rows=(), config=None, files=None, text="d", **summary):
    """Write the record of a run and return its folder; with the status None it has not ended."""
    folder.mkdir(parents=True)
    about = {"seed": 0, "model": "roformer", "position": "rotary", "pipeline": "pretrain"} | summary
    position, seed = {"kind": about["position"]}, about["seed"]
    settings = {"recipe": "mini", "seed": seed, "runtime": {"threads": 1 + abs(seed)}}
    settings["model"] = {"name": about["model"], "position": position, "size": "mini"}
    for key, value in (config or {}).items():
        settings[key] = settings.get(key, {}) | value if isinstance(value, dict) else value
    texts = {
        "summary.json": json.dumps(WHOLE | about),
        "config.yaml": json.dumps(settings),
        "env.json": json.dumps({"commit": "0" * 40, "dirty": False, "data": text, "resumed": []}),
        "command.txt": "python scripts/x.py\n",
        "metrics.jsonl": "".join(json.dumps(row) + "\n" for row in rows or [{"step": 20}]),
    }
    if about.get("status", "done") is None:
        del texts["summary.json"]
    for name, content in (texts | (files or {})).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content if isinstance(content, str) else json.dumps(content))
    return folder


def write_run(folder, *, losses, rate=0.001, status="done", **more):
    """Write the record of a pre-training with its losses by step."""
    metrics = {} if status == "failed" else {"valid/mlm_loss": [*losses.values()][-1]}
    about = {"metrics": metrics, "steps": max(losses), "tokens": 200 * max(losses)} | more
    config = {"optimizer": {"learning_rate": rate}}
    rows = [loss_row(*point) for point in losses.items()]
    return record(folder, rows=rows, config=config, status=status, **about)


def loss_row(step, loss):
    read = {"data/samples": step * 2, "data/tokens": step * 200}
    return {"step": step, "valid/mlm_loss": loss} | read


def append_row(folder, step, loss):
    """Add a line to a run's metrics.jsonl, as a run does."""
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(loss_row(step, loss)) + "\n")


def write_hostile_run(experiments):
    """Record a run whose names are markup wherever a record has free text."""
    row = {"step": 1, HOSTILE: 1.0, "__proto__": 2.0, "constructor": 3.0, "<b>bold</b>": 4.0}
    names = dict.fromkeys(("model", "position", "recipe", "task", "error"), HOSTILE)
    folder = record(
        experiments / "hostile" / HOSTILE_NAME,
        rows=[row],
        config={"recipe": HOSTILE},
        status="failed",
        files={"command.txt": HOSTILE, "env.json": {"commit": HOSTILE, "dirty": False}},
        **names,
    )
    write_recorded(experiments / HOSTILE_NAME, [folder])
    shutil.rmtree(experiments / "hostile")


def curve(losses, *, metric="valid/mlm_loss", every=100, samples=32, tokens=512, **more):
    """Return the rows of a run that was evaluated every so many steps."""
    return [
        {"step": step, metric: loss, "data/samples": samples * step, "data/tokens": tokens * step}
        | more
        for step, loss in zip(range(every, every * (len(losses) + 1), every), losses, strict=True)
    ]


def change(folder, **values):
    """Change keys of a run's summary."""
    file = folder / "summary.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | values))
    return folder


def glue_run(
    root, seed, rate, value, *, status="done", model="roformer", task="mrpc", epochs=3, **more
):
    """Write the record of a fine-tuning; its best epoch is a point above the last."""
    metrics = {} if status == "failed" else {f"{task}/f1": value, f"{task}/accuracy": 0.5}
    best = {name: None if v is None else v + 0.01 for name, v in metrics.items()}
    config = {"task": {task: {}}, "optimizer": {"learning_rate": rate}}
    config |= {"training": {"epochs": epochs}, **more}
    return record(
        root / f"{model}-{task}-{rate}-{epochs}-{seed}",
        pipeline="glue",
        model=model,
        seed=seed,
        task=task,
        learning_rate=rate,
        headline=f"{task}/f1",
        status=status,
        metrics=metrics,
        best={"step": 1, "metrics": best},
        baselines={
            "majority": {f"{task}/f1": 0.8122, f"{task}/accuracy": 0.6838},
            "bag of words": {f"{task}/f1": 0.8336, f"{task}/accuracy": None},
        },
        config=config,
    )


SIGNATURES = {
    "sacrebleu": "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0",
    "chrf": "nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:2.6.0",
    "bleu_compound": "nrefs:1|case:mixed|eff:no|tok:moses-de+atat|smooth:exp|version:2.6.0",
}


def translation_run(folder, seed, score, *, position="rotary", status="done", alpha=0.6, **more):
    """Write a record with scores; `more` are the test set's lines and other signatures."""
    values = {"sacrebleu": score, "chrf": score + 30, "bleu_compound": score + 1}
    lines = more.get("lines", 3003)
    found = {
        "metrics": {f"test/{metric}": value for metric, value in values.items()}
        | {f"test/{metric}_single": value - 0.5 for metric, value in values.items()},
        "signatures": SIGNATURES | more.get("signatures", {}),
        "test_set": {"name": "newstest2014", "lines": lines, "fingerprint": f"{lines:064x}"},
    }
    return record(
        folder,
        pipeline="wmt",
        model="transformer",
        position=position,
        seed=seed,
        status=status,
        config={"search": {"alpha": alpha}},
        **({} if status == "failed" else found),
    )


def call_script(monkeypatch, capsys, name, *arguments):
    """Run a script in this process; return what it printed."""
    monkeypatch.setattr(sys, "argv", [name, *map(str, arguments)])
    with suppress(SystemExit):
        runpy.run_path(str(REPOSITORY / "scripts" / f"{name}.py"), run_name="__main__")
    return capsys.readouterr()


def cells(table, *starts):
    """Return the lines of a table that begin with these cells, without them."""
    found = [list(line) for line in table.lines if tuple(line[: len(starts)]) == starts]
    return [line[len(starts) :] for line in found]


def rows_of(*folders):
    """Return the rows of the frame of runs."""
    return read_runs(folders).runs
