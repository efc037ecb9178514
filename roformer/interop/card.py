"""Model cards of exported models: README.md with the metadata that the Hub reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from roformer.config.build import read_yaml
from roformer.json_files import read_object

CARD = """---
library_name: {library}
pipeline_tag: {task}
license: unknown
{language}tags: {tags}
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
    "encoder": ("load_model", "feature-extraction", '"A text."'),
    "classifier": ("load_model", "text-classification", '"a text", truncation=True'),
    "causal": ("load_generator", "text-generation", '"The", max_new_tokens=40'),
    "translation": ("load_translator", "translation", ""),
}
"""Kind of a model → what opens it here, task of the Hub, and arguments of its pipeline. An encoder is a model
whose head is untrained."""
PAIR = '{"text": "a text", "text_pair": "another"}, truncation=True'
PIPELINE = """from transformers import pipeline

pipe = pipeline("{task}", model="FOLDER")
print(pipe({arguments}))"""
TRANSLATE = """from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("FOLDER")
model = AutoModelForSeq2SeqLM.from_pretrained("FOLDER")
inputs = tokenizer("a text", truncation=True, return_tensors="pt")
print(tokenizer.decode(model.generate(**inputs)[0], skip_special_tokens=True))"""
OBJECTIVES = {
    "mlm_nsp": " with next-sentence prediction",
    "mlm_sop": " with sentence-order prediction",
}

MATCHED = (
    ", trained to reproduce the hidden states of its original with other positions (`valid/error`: the "
    "share of their variance that is missing)"
)


def model_card(
    run: Path, folder: Path, description: dict[str, Any], kind: str | None, notes: tuple[str, ...]
) -> str:
    """Return the card of a run's checkpoint.

    `kind` is the `model_type` in `transformers`, or None for a folder of `roformer`; `notes` are
    sentences on the conversion for the user.
    """
    file = run / "summary.json"
    summary = read_object(file) if file.is_file() else {}
    config = read_yaml((run / "config.yaml").read_text(encoding="utf-8"))
    environment, data, model = read_object(run / "env.json"), config["data"], description["model"]
    if config.get("init_from"):  # the weights brought their tokenizer
        data = {key: value for key, value in data.items() if key != "tokenizer"}
    languages = description.get("languages")
    facts = {
        "data": f"`{json.dumps(data)}`",
        "data fingerprint": environment["data"],
        "tokenizer fingerprint": description["tokenizer"],
        "started from": config.get("init_from") or summary.get("init_from") or "random weights",
        "tokens": summary.get("tokens"),
        "learning rate": config["optimizer"]["learning_rate"],
        "precision": config["training"].get("precision"),
        "commit": environment["commit"] + (", changed" if environment["dirty"] else ""),
        "torch": environment["packages"]["torch"],
    }
    what = {
        "encoder": "Encoder, exported with a masked-language-model head that was not trained",
        "mlm": f"Masked-language model{OBJECTIVES.get(description.get('objective', ''), '')}",
        "classifier": f"{description.get('task')} of GLUE, on {data['kind']} data",
        "causal": f"Causal language model of {description.get('reads')}",
        "translation": f"Translation from {' to '.join(languages or ())}",
    }
    synthetic = data["kind"] == "builtin" and description["kind"] in ("classifier", "translation")
    return CARD.format(
        library="transformers" if kind else "roformer",
        task=TASKS[_purpose(description)][1],
        # In JSON, since YAML takes the code of Norwegian, no, for false.
        language=f"language: {json.dumps(languages)}\n" if languages else "",
        tags=json.dumps([model["name"], model["position"]["kind"]]),
        run=run.resolve().name,
        what=what[_purpose(description)] + (MATCHED if config.get("objective") == "match" else ""),
        name=model["name"],
        position=model["position"]["kind"],
        layers=" + ".join(str(model[k]) for k in ("layers", "decoder_layers") if model.get(k)),
        hidden_size=model["hidden_size"],
        checkpoint=folder.name,
        code=_code(description, kind),
        notes="\n".join(f"- {note}" for note in notes),
        results=_results(summary),
        facts="\n".join(f"- {key}: {value}" for key, value in facts.items() if value is not None),
        command=(run / "command.txt").read_text(encoding="utf-8").strip(),
        seed=config["seed"],
        synthetic="The data are synthetic: the scores say nothing of real text. " * synthetic,
    )


def _purpose(description: dict[str, Any]) -> str:
    """Return the key of `TASKS`."""
    return "encoder" if description.get("untrained_head") else str(description["kind"])


def _results(summary: dict[str, Any]) -> str:
    """Return a table with the metrics of the best and of the last step."""
    if not summary:
        return "The run has not ended."
    best, last = summary["best"], summary["metrics"]
    lines = [f"| metric | best (step {best['step']}) | last (step {summary['steps']}) |"]
    lines.append("| --- | --- | --- |")
    for key in last:
        cells = (json.dumps(row[key]) if key in row else "" for row in (best["metrics"], last))
        lines.append(f"| {' | '.join([key, *cells])} |")
    text = "\n".join(lines) + f"\n\nThe run ended as `{summary['status']}`."
    if test := summary.get("test_set"):
        text += f" Test set: {test['name']}, {test['lines']:,} lines, {test['fingerprint']}. "
        text += ", ".join(f"{k}: `{v}`" for k, v in summary["signatures"].items())
    return text


def _code(description: dict[str, Any], kind: str | None) -> str:
    """Return the code that opens the export and asks the model."""
    opener, task, arguments = TASKS[_purpose(description)]
    if kind is None:
        return f'import roformer\n\nmodel = roformer.{opener}("FOLDER")'
    if task == "translation":
        return TRANSLATE
    pair = len(description.get("texts", ())) == 2
    return PIPELINE.format(task=task, arguments=PAIR if pair else arguments)
