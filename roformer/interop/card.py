"""Model cards of exported models: README.md with the metadata that the Hub reads.

Every number and name in a card comes from the run's own record.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from roformer.training import checkpoint
from roformer.training.averaging import AVERAGED

TASKS = {
    "mlm": "fill-mask",
    "classifier": "text-classification",
    "translation": "translation",
    "causal": "text-generation",
}
"""Kind of a model → task of the Hub."""
PAPER_TOKENS = {"mlm": 100_000 * 64 * 512, "translation": 100_000 * 25_000}
"""Tokens that the paper's (pre-training) or its baseline's (translation) training reads."""
TEMPLATE = """\
---
{{ card_data }}
---

# {{ model_name }}

{{ what }}

## Use

```python
{{ usage }}
```
{% for note in notes %}
- {{ note }}
{%- endfor %}

## Results

{% if metrics -%}
| metric | {{ test_name }} |
| --- | --- |
{%- for metric, value in metrics.items() %}
| {{ metric }} | {{ value }} |
{%- endfor %}
{%- if test %}

test: {{ test.name }}, {{ "{:,}".format(test.lines) }} lines, {{ test.fingerprint }}
{%- endif %}
{%- for name, signature in signatures.items() %}

{{ name }}: `{{ signature }}`
{%- endfor %}

{% if status %}The run ended as `{{ status }}`.{% else %}The run has not ended.{% endif %}
{%- else -%}
Nothing was measured of `{{ checkpoint }}`.
{%- endif %}

## Training

|  |  |
| --- | --- |
{%- for key, value in training.items() %}
| {{ key }} | {{ value | replace("|", "\\\\|") }} |
{%- endfor %}

```sh
{{ command }}
```

## Limits
{% for limit in limits %}
{{ limit }}
{% endfor %}
The code that made it is under Apache-2.0. What its training text allows is not known to this card: look \
at the data before you pass the weights on.

"""
OPENERS = {
    "mlm": "load_model",
    "classifier": "load_model",
    "translation": "load_translator",
    "causal": "load_generator",
}
TRANSLATION_USAGE = """\
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

tokenizer = AutoTokenizer.from_pretrained("FOLDER")
model = AutoModelForSeq2SeqLM.from_pretrained("FOLDER")
text = "a text"
{before}inputs = tokenizer(text, truncation=True, return_tensors="pt")
ids = model.generate(**inputs)[0]
text = tokenizer.decode(ids, skip_special_tokens=True)
{after}print(text)"""
MOSES_IMPORT = "from sacremoses import MosesDetokenizer, MosesTokenizer\n"
MOSES_BEFORE = """\
moses = MosesTokenizer("{}")
words = moses.tokenize(text, aggressive_dash_splits=True, escape=False)
text = " ".join(words)
"""
MOSES_AFTER = 'text = MosesDetokenizer("{}").detokenize(text.split(), unescape=False)\n'


class Record(NamedTuple):
    """A run's record and one of its checkpoints."""

    run: Path
    checkpoint: Path
    description: dict[str, Any]
    """The checkpoint's `model.json`."""
    config: dict[str, Any]
    environment: dict[str, Any]
    command: str
    summary: dict[str, Any]
    """Empty of a run that has not ended."""
    rows: list[dict[str, Any]]
    """Rows of metrics.jsonl."""

    @property
    def name(self) -> str:
        return self.run.resolve().name

    @property
    def kind(self) -> str:
        return str(self.description["kind"])


def measured(record: Record) -> dict[str, float | None]:
    """Return the metrics that are of this very checkpoint, under the names of the record."""
    summary = record.summary
    final = summary.get("metrics", {})
    if record.checkpoint.name == AVERAGED:
        return {k: v for k, v in final.items() if k.startswith("test/") and "_single" not in k}
    step = checkpoint.step_of(record.checkpoint)
    last, best = summary.get("steps") == step, summary.get("best", {})
    found = final if last else best["metrics"] if best.get("step") == step else None
    if found is None:
        found = next((row for row in record.rows if row["step"] == step), {})
    kinds = ("valid/", f"{record.description.get('task')}/", *(["test/"] if last else []))
    # The test set's plain metrics of a translation are those of the averaged checkpoint.
    averaged = record.kind == "translation"
    return {
        key: value
        for key, value in found.items()
        if key.startswith(kinds)
        and not (averaged and key.startswith("test/") and not key.endswith("_single"))
    }


def model_card(record: Record, kind: str | None, notes: tuple[str, ...]) -> Any:
    """Return the card, a `huggingface_hub.ModelCard`.

    Args:
        record: of the run.
        kind: `model_type` in `transformers`, or None for a folder of `roformer`.
        notes: sentences on the conversion for the user.
    """
    from huggingface_hub import EvalResult, ModelCard, ModelCardData

    summary, description, data = record.summary, record.description, record.config["data"]
    task, metrics, test = TASKS[record.kind], measured(record), summary.get("test_set")
    test_name = " ".join([data["kind"], *filter(None, [description.get("task")]), "validation"])
    if record.checkpoint.name == AVERAGED and test:
        test_name = test["name"]
    tested = test and any(name.startswith("test/") for name in metrics)
    results = [
        EvalResult(
            task_type=task,
            dataset_type=str(data.get("path") or data["kind"]),
            dataset_name=test_name,
            metric_type=name,
            metric_value=value,
        )
        for name, value in metrics.items()
        if value is not None
    ]
    english = record.kind == "classifier" or data["kind"] in ("builtin", "bytes_builtin")
    card_data = ModelCardData(
        model_name=record.name,
        library_name="transformers" if kind else "roformer",
        pipeline_tag=task,
        language=description.get("languages") or (["en"] if english else None),
        license="unknown",
        tags=[description["model"]["name"], description["model"]["position"]["kind"]],
        eval_results=results or None,
    )
    return ModelCard.from_template(
        card_data,
        template_str=TEMPLATE,
        model_name=record.name,
        what=_what(record),
        usage=_usage(record, kind),
        notes=notes,
        metrics={k: "undefined" if v is None else json.dumps(v) for k, v in metrics.items()},
        test_name=test_name,
        test=test if tested else None,
        signatures=summary.get("signatures", {}) if tested else {},
        status=summary.get("status"),
        checkpoint=record.checkpoint.name,
        training=_training(record),
        command=record.command,
        limits=_limits(record),
    )


def _what(record: Record) -> str:
    description, data = record.description, record.config["data"]["kind"]
    model, layers = description["model"], str(description["model"]["layers"])
    if record.kind == "translation":
        what = "Translation from {} to {}".format(*description["languages"])
        layers += f" + {model.get('decoder_layers') or layers}"
    elif record.kind == "classifier":
        what = f"{description['task']} of GLUE, on {data} data"
    elif record.kind == "mlm":
        what = "Masked-language model"
    else:
        what = f"Causal language model of {description['reads']}"
    parameters = record.summary.get("parameters")
    count = f", {parameters:,} parameters" if parameters else ""
    return (
        f"{what}: {model['name']} with {model['position']['kind']} positions, {layers} layers x "
        f"{model['hidden_size']}{count}. Checkpoint `{record.checkpoint.name}` of the run "
        f"`{record.name}`."
    )


def _usage(record: Record, kind: str | None) -> str:
    if kind is None:
        return f'import roformer\n\nmodel = roformer.{OPENERS[record.kind]}("FOLDER")'
    if record.kind == "translation":
        source, target = record.description["languages"]
        settings = json.loads((record.run / "tokenizer" / "bpe.json").read_text())
        if settings["words"] != "moses":
            return TRANSLATION_USAGE.format(before="", after="")
        around = {"before": MOSES_BEFORE.format(source), "after": MOSES_AFTER.format(target)}
        return MOSES_IMPORT + TRANSLATION_USAGE.format(**around)
    pair = len(record.description.get("texts", [])) == 2
    text = '{"text": "a text", "text_pair": "another"}' if pair else '"a text"'
    name, call = {
        "mlm": ("fill", 'fill(f"A text with a {fill.tokenizer.mask_token}.")'),
        "classifier": ("classify", f"classify({text}, truncation=True)"),
        "causal": ("write", 'write("The", max_new_tokens=40)'),
    }[record.kind]
    return (
        "from transformers import pipeline\n\n"
        f'{name} = pipeline("{TASKS[record.kind]}", model="FOLDER")\nprint({call})'
    )


def _training(record: Record) -> dict[str, str]:
    config, environment, summary = record.config, record.environment, record.summary
    commit = f"{environment['commit']}{', changed' if environment['dirty'] else ''}"
    if (last := summary.get("commit")) and last != environment["commit"]:
        commit += f"; {last} at its end"
    facts = {
        "data": f"`{json.dumps(config['data'])}`",
        "data fingerprint": environment["data"],
        "tokenizer fingerprint": record.description["tokenizer"],
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
    }
    return {key: str(value) for key, value in facts.items() if value is not None}


def _limits(record: Record) -> list[str]:
    seed, tokens = record.config["seed"], record.summary.get("tokens")
    limits = [f"One seed ({seed})."]
    if tokens and (paper := PAPER_TOKENS.get(record.kind)):
        limits = [
            f"Its training read {tokens:,} tokens, {tokens / paper:.2%} of the paper's {paper:,}, "
            f"with one seed ({seed})."
        ]
    made_up = record.config["data"]["kind"] == "builtin"
    if made_up and record.kind in ("classifier", "translation"):
        limits.append("The data were made from templates: scores on them say nothing of real text.")
    return limits
