"""Model cards of exported models: README.md with the metadata that the Hub reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from roformer.config.build import read_yaml
from roformer.json_files import read_object
from roformer.training import checkpoint
from roformer.training.averaging import AVERAGED

CARD = """---
{metadata}
---

# {run}

{what}: {name} with {position} positions, {layers} layers x {hidden_size}.
Checkpoint `{checkpoint}` of the run `{run}`.

## Use

```python
{code}
```

{notes}

## Results

{results}

## Training

{facts}

```sh
{command}
```

## Limits

One seed ({seed}). {synthetic}The code is under Apache-2.0. The card does not know the licence of the \
training text: check it before you pass the weights on.
"""
TASKS = {
    "mlm": ("load_model", "fill-mask", 'f"A text with a {pipe.tokenizer.mask_token}."'),
    "classifier": ("load_model", "text-classification", '"a text", truncation=True'),
    "causal": ("load_generator", "text-generation", '"The", max_new_tokens=40'),
    "translation": ("load_translator", "translation", ""),
}
"""Kind of a model → what opens it here, task of the Hub, and arguments of its pipeline."""
PAIR = '{"text": "a text", "text_pair": "another"}, truncation=True'
PIPELINE = """from transformers import pipeline

pipe = pipeline("{task}", model="FOLDER")
print(pipe({arguments}))"""
TRANSLATE = """from transformers import AutoModelForSeq2SeqLM, AutoTokenizer
{imports}
tokenizer = AutoTokenizer.from_pretrained("FOLDER")
model = AutoModelForSeq2SeqLM.from_pretrained("FOLDER")
inputs = tokenizer({text}, truncation=True, return_tensors="pt")
text = tokenizer.decode(model.generate(**inputs)[0], skip_special_tokens=True)
print({decoded})"""
WORDS = 'MosesTokenizer("{}").tokenize("a text", aggressive_dash_splits=True, escape=False)'


def model_card(
    run: Path, folder: Path, description: dict[str, Any], kind: str | None, notes: tuple[str, ...]
) -> Any:
    """Return the card of a run's checkpoint, a `huggingface_hub.ModelCard`.

    `kind` is the `model_type` in `transformers`, None of a folder of `roformer`; `notes` are sentences
    on the conversion for the user.
    """
    from huggingface_hub import EvalResult, ModelCard, ModelCardData

    file = run / "summary.json"
    summary = read_object(file) if file.is_file() else {}
    config = read_yaml((run / "config.yaml").read_text(encoding="utf-8"))
    environment, data, model = read_object(run / "env.json"), config["data"], description["model"]
    name, task = run.resolve().name, TASKS[description["kind"]][1]
    languages = description.get("languages")
    metadata = ModelCardData(
        model_name=name,
        library_name="transformers" if kind else "roformer",
        pipeline_tag=task,
        language=languages,
        license="unknown",
        tags=[model["name"], model["position"]["kind"]],
        eval_results=[
            EvalResult(
                task_type=task,
                dataset_type=str(data.get("path") or data["kind"]),
                dataset_name=f"{data['kind']} {'test' if metric.startswith('test/') else 'valid'}",
                metric_type=metric,
                metric_value=value,
            )
            for metric, value in _measured(summary, folder, description["kind"]).items()
            if value is not None
        ]
        or None,
    )
    changed = ", changed" if environment["dirty"] else ""
    facts = {
        "data": f"`{json.dumps(data)}`".replace("|", "\\|"),
        "data fingerprint": environment["data"],
        "tokenizer fingerprint": description["tokenizer"],
        "started from": config.get("init_from") or summary.get("init_from") or "random weights",
        "tokens": summary.get("tokens"),
        "learning rate": config["optimizer"]["learning_rate"],
        "precision": config["training"].get("precision"),
        "commit": environment["commit"] + changed,
        "torch": environment["packages"]["torch"],
    }
    objective = {
        "mlm_nsp": " with next-sentence prediction",
        "mlm_sop": " with sentence-order prediction",
    }
    what = {
        "mlm": f"Masked-language model{objective.get(description.get('objective', ''), '')}",
        "classifier": f"{description.get('task')} of GLUE, on {data['kind']} data",
        "causal": f"Causal language model of {description.get('reads')}",
        "translation": f"Translation from {' to '.join(languages or ())}",
    }
    synthetic = data["kind"] == "builtin" and description["kind"] in ("classifier", "translation")
    text = CARD.format(
        metadata=metadata,
        run=name,
        what=what[description["kind"]],
        name=model["name"],
        position=model["position"]["kind"],
        layers=" + ".join(str(model[k]) for k in ("layers", "decoder_layers") if model.get(k)),
        hidden_size=model["hidden_size"],
        checkpoint=folder.name,
        code=_code(run, description, kind),
        notes="\n".join(f"- {note}" for note in notes),
        results=_results(summary),
        facts=_table(["", ""], [[k, v] for k, v in facts.items() if v is not None]),
        command=(run / "command.txt").read_text(encoding="utf-8").strip(),
        seed=config["seed"],
        synthetic="The data are synthetic: the scores say nothing of real text. " * synthetic,
    )
    return ModelCard(text)


def _measured(summary: dict[str, Any], folder: Path, kind: str) -> dict[str, float | None]:
    """Return the metrics of this very checkpoint, under the names of the record."""
    metrics, best = summary.get("metrics", {}), summary.get("best", {})
    averaged = folder.name == AVERAGED
    if not averaged and (step := checkpoint.step_of(folder)) != summary.get("steps"):
        metrics = best["metrics"] if best.get("step") == step else {}
    if kind != "translation":
        return metrics
    # The test metrics of a translation without `_single` belong to the averaged checkpoint.
    return {
        key: value
        for key, value in metrics.items()
        if (key.startswith("test/") and not key.endswith("_single")) == averaged
    }


def _results(summary: dict[str, Any]) -> str:
    """Return a table with the metrics of the best and of the last step."""
    if not summary:
        return "The run has not ended."
    best, last = summary["best"], summary["metrics"]
    rows = [
        [key, *(json.dumps(row[key]) if key in row else "" for row in (best["metrics"], last))]
        for key in last
    ]
    text = _table(
        ["metric", f"best (step {best['step']})", f"last (step {summary['steps']})"], rows
    )
    text += f"\n\nThe run ended as `{summary['status']}`."
    if test := summary.get("test_set"):
        text += f" Test set: {test['name']}, {test['lines']:,} lines, {test['fingerprint']}. "
        text += ", ".join(f"{k}: `{v}`" for k, v in summary["signatures"].items())
    return text


def _table(head: list[str], rows: list[list[Any]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(str, cells))} |" for cells in lines)


def _code(run: Path, description: dict[str, Any], kind: str | None) -> str:
    """Return the code that opens the export and asks the model."""
    opener, task, arguments = TASKS[description["kind"]]
    if kind is None:
        return f'import roformer\n\nmodel = roformer.{opener}("FOLDER")'
    if task != "translation":
        pair = len(description.get("texts", ())) == 2
        return PIPELINE.format(task=task, arguments=PAIR if pair else arguments)
    if read_object(run / "tokenizer" / "bpe.json")["words"] != "moses":
        return TRANSLATE.format(imports="", text='"a text"', decoded="text")
    source, target = description["languages"]
    return TRANSLATE.format(
        imports="from sacremoses import MosesDetokenizer, MosesTokenizer\n",
        text=f'" ".join({WORDS.format(source)})',
        decoded=f'MosesDetokenizer("{target}").detokenize(text.split(), unescape=False)',
    )
