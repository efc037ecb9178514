"""Model cards of exported models: README.md with the metadata that the Hub reads.

Every number and name in a card comes from the run's own record.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from roformer.config.build import read_yaml
from roformer.json_files import read_object
from roformer.training import checkpoint
from roformer.training.averaging import AVERAGED
from roformer.training.records import read_metrics

TEMPLATE = Path(__file__).with_name("card.md")
TASKS = {
    "mlm": ("load_model", "fill-mask", 'pipe(f"A text with a {pipe.tokenizer.mask_token}.")'),
    "classifier": ("load_model", "text-classification", 'pipe("a text", truncation=True)'),
    "causal": ("load_generator", "text-generation", 'pipe("The", max_new_tokens=40)'),
    "translation": ("load_translator", "translation", ""),
}
"""Kind of a model → what opens it here, task of the Hub, and how its pipeline is called."""
PAIR = 'pipe({"text": "a text", "text_pair": "another"}, truncation=True)'
PAPER_TOKENS = {"mlm": 100_000 * 64 * 512, "translation": 100_000 * 25_000}
"""Tokens that the paper's (pre-training) or its baseline's (translation) training reads."""


def measured(run: Path, folder: Path, description: dict[str, Any]) -> dict[str, float | None]:
    """Return the metrics that are of this very checkpoint, under the names of the record."""
    summary, rows = summary_of(run), run / "metrics.jsonl"
    final = summary.get("metrics", {})
    if folder.name == AVERAGED:
        return {k: v for k, v in final.items() if k.startswith("test/") and "_single" not in k}
    step, best = checkpoint.step_of(folder), summary.get("best", {})
    last = summary.get("steps") == step
    if last or best.get("step") == step:
        found = final if last else best["metrics"]
    else:
        logged = read_metrics(rows, torn=True) if rows.is_file() else []
        found = next((row for row in logged if row["step"] == step), {})
    kinds = ("valid/", f"{description.get('task')}/", *(["test/"] if last else []))
    # The test set's plain metrics of a translation are those of the averaged checkpoint.
    averaged = description["kind"] == "translation"
    return {
        key: value
        for key, value in found.items()
        if key.startswith(kinds)
        and not (averaged and key.startswith("test/") and not key.endswith("_single"))
    }


def summary_of(run: Path) -> dict[str, Any]:
    """Return a run's summary; empty of a run that has not ended."""
    file = run / "summary.json"
    return read_object(file) if file.is_file() else {}


def model_card(
    run: Path, folder: Path, description: dict[str, Any], kind: str | None, notes: tuple[str, ...]
) -> Any:
    """Return the card of a run's checkpoint, a `huggingface_hub.ModelCard`.

    `kind` is the `model_type` in `transformers`, None of a folder of `roformer`; `notes` are sentences
    on the conversion for the user.
    """
    from huggingface_hub import EvalResult, ModelCard, ModelCardData

    own, model, summary = description["kind"], description["model"], summary_of(run)
    config = read_yaml((run / "config.yaml").read_text(encoding="utf-8"))
    environment, data, name = read_object(run / "env.json"), config["data"], run.resolve().name
    opener, task, call = TASKS[own]
    metrics = measured(run, folder, description)
    test, languages = summary.get("test_set"), description.get("languages")
    tested = bool(test) and any(metric.startswith("test/") for metric in metrics)
    about = " ".join([data["kind"], *filter(None, [description.get("task")])])
    sets = {
        metric: (test["name"] if test else f"{about} test")
        if metric.startswith("test/")
        else f"{about} validation"
        for metric in metrics
    }
    results = [
        EvalResult(
            task_type=task,
            dataset_type=str(data.get("path") or data["kind"]),
            dataset_name=sets[metric],
            metric_type=metric,
            metric_value=value,
        )
        for metric, value in metrics.items()
        if value is not None
    ]
    english = own == "classifier" or data["kind"] in ("builtin", "bytes_builtin")
    card_data = ModelCardData(
        model_name=name,
        library_name="transformers" if kind else "roformer",
        pipeline_tag=task,
        language=languages or (["en"] if english else None),
        license="unknown",
        tags=[model["name"], model["position"]["kind"]],
        eval_results=results or None,
    )
    layers, commit = str(model["layers"]), f"{environment['commit']}"
    if own == "translation":
        layers += f" + {model.get('decoder_layers') or layers}"
    commit += ", changed" if environment["dirty"] else ""
    if (last := summary.get("commit")) and last != environment["commit"]:
        commit += f"; {last} at its end"
    bpe = run / "tokenizer" / "bpe.json"
    return ModelCard.from_template(
        card_data,
        template_path=str(TEMPLATE),
        run=name,
        checkpoint=folder.name,
        description=description,
        config=config,
        model=model,
        languages=languages,
        layers=layers,
        kind=kind,
        task=task,
        call=PAIR if len(description.get("texts", [])) == 2 else call,
        opener=opener,
        moses=bpe.is_file() and read_object(bpe)["words"] == "moses",
        notes=notes,
        metrics=metrics,
        sets=sets,
        tested=tested,
        summary=summary,
        facts={
            "data": f"`{json.dumps(data)}`",
            "data fingerprint": environment["data"],
            "tokenizer fingerprint": description["tokenizer"],
            "started from": config.get("init_from") or summary.get("init_from") or "random weights",
            "seed": config["seed"],
            "steps": summary.get("steps"),
            "tokens": summary.get("tokens"),
            "learning rate": config["optimizer"]["learning_rate"],
            "precision": config["training"].get("precision"),
            "commit": commit,
            "started": environment["started"],
            "torch": environment["packages"]["torch"],
            "processor": environment["gpu"] or environment["processor"],
        },
        command=(run / "command.txt").read_text(encoding="utf-8").strip(),
        paper=PAPER_TOKENS.get(own),
    )
