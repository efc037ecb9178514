"""Model cards of exported models: README.md with the metadata that the Hub reads.

Every number and name in a card comes from the run's own record.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
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
{%- for line in measurement %}

{{ line }}
{%- endfor %}
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
{% endfor %}"""


class Record(NamedTuple):
    """What a run says of itself and of one of its checkpoints."""

    run: Path
    checkpoint: Path
    description: dict[str, Any]
    """The checkpoint's `model.json`."""
    config: dict[str, Any]
    environment: dict[str, Any]
    command: str
    summary: dict[str, Any] | None
    """None of a run that has not ended."""
    rows: list[dict[str, Any]]
    """Of metrics.jsonl."""

    @property
    def name(self) -> str:
        return self.run.resolve().name

    @property
    def kind(self) -> str:
        return str(self.description["kind"])


def measured(record: Record) -> dict[str, float | None]:
    """Return the metrics that are of this very checkpoint, under the names of the record."""
    summary, name = record.summary or {}, record.checkpoint.name
    if name == AVERAGED:
        final = summary.get("metrics", {})
        return {
            key: value
            for key, value in final.items()
            if key.startswith("test/") and not key.endswith("_single")
        }
    step = checkpoint.step_of(record.checkpoint)
    if summary.get("steps") == step:
        found = summary["metrics"]
    elif summary.get("best", {}).get("step") == step:
        found = summary["best"]["metrics"]
    else:
        found = next((row for row in record.rows if row["step"] == step), {})
    kinds = ("valid/", f"{record.description.get('task')}/")
    kept = {key: value for key, value in found.items() if key.startswith(kinds)}
    if summary.get("steps") == step:
        of_this = "_single" if record.kind == "translation" else ""
        kept |= {k: v for k, v in found.items() if k.startswith("test/") and k.endswith(of_this)}
    return kept


def model_card(record: Record, kind: str | None, notes: tuple[str, ...]) -> Any:
    """Return the card, a `huggingface_hub.ModelCard`.

    Args:
        record: of the run.
        kind: `model_type` in `transformers`, or None for a folder of `roformer`.
        notes: sentences on the conversion for the user.
    """
    from huggingface_hub import EvalResult, ModelCard, ModelCardData

    task, metrics, test_name = TASKS[record.kind], measured(record), _test_name(record)
    model, data = record.description["model"], record.config["data"]
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
    card_data = ModelCardData(
        model_name=record.name,
        library_name="transformers" if kind else "roformer",
        pipeline_tag=task,
        language=_languages(record),
        license="unknown",
        tags=[model["name"], model["position"]["kind"]],
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
        measurement=list(_measurement(record, metrics)),
        checkpoint=record.checkpoint.name,
        training=_training(record),
        command=record.command,
        limits=list(_limits(record)),
    )


def _languages(record: Record) -> list[str] | None:
    if record.kind == "translation":
        return list(record.description["languages"])
    builtin = record.config["data"]["kind"] in ("builtin", "bytes_builtin")
    english = record.kind == "classifier" or builtin
    return ["en"] if english else None


def _test_name(record: Record) -> str:
    test = (record.summary or {}).get("test_set")
    if record.checkpoint.name == AVERAGED and test:
        return str(test["name"])
    task = record.description.get("task")
    return f"{record.config['data']['kind']}{f' {task}' if task else ''} validation"


def _what(record: Record) -> str:
    model, summary = record.description["model"], record.summary or {}
    if record.kind == "translation":
        source, target = record.description["languages"]
        what = f"Translation from {source} to {target}"
    elif record.kind == "classifier":
        what = f"{record.description['task']} of GLUE, on {record.config['data']['kind']} data"
    elif record.kind == "mlm":
        what = "Masked-language model"
    else:
        what = f"Causal language model of {record.description['reads']}"
    layers = f"{model['layers']}"
    if record.kind == "translation":
        layers += f" + {model.get('decoder_layers') or model['layers']}"
    size = f"{layers} layers x {model['hidden_size']}"
    if parameters := summary.get("parameters"):
        size += f", {parameters:,} parameters"
    return (
        f"{what}: {model['name']} with {model['position']['kind']} positions, {size}. "
        f"Checkpoint `{record.checkpoint.name}` of the run `{record.name}`."
    )


def _usage(record: Record, kind: str | None) -> str:
    if kind is None:
        names = {"translation": "load_translator", "causal": "load_generator"}
        name = names.get(record.kind, "load_model")
        return f'import roformer\n\nmodel = roformer.{name}("FOLDER")'
    if record.kind == "mlm":
        return (
            "from transformers import pipeline\n\n"
            'fill = pipeline("fill-mask", model="FOLDER")\n'
            'print(fill(f"A text with a {fill.tokenizer.mask_token}."))'
        )
    if record.kind == "classifier":
        pair = len(record.description["texts"]) == 2
        text = '{"text": "a text", "text_pair": "another"}' if pair else '"a text"'
        return (
            "from transformers import pipeline\n\n"
            'classify = pipeline("text-classification", model="FOLDER")\n'
            f"print(classify({text}, truncation=True))"
        )
    if record.kind == "causal":
        return (
            "from transformers import pipeline\n\n"
            'write = pipeline("text-generation", model="FOLDER")\n'
            'print(write("The", max_new_tokens=40))'
        )
    return "\n".join(_translation_usage(record))


def _translation_usage(record: Record) -> Iterator[str]:
    source, target = record.description["languages"]
    moses = json.loads((record.run / "tokenizer" / "bpe.json").read_text())["words"] == "moses"
    if moses:
        yield "from sacremoses import MosesDetokenizer, MosesTokenizer"
    yield "from transformers import AutoModelForSeq2SeqLM, AutoTokenizer"
    yield ""
    yield 'tokenizer = AutoTokenizer.from_pretrained("FOLDER")'
    yield 'model = AutoModelForSeq2SeqLM.from_pretrained("FOLDER")'
    yield 'text = "a text"'
    if moses:
        yield f'moses = MosesTokenizer("{source}")'
        yield "words = moses.tokenize(text, aggressive_dash_splits=True, escape=False)"
        yield 'text = " ".join(words)'
    yield 'inputs = tokenizer(text, truncation=True, return_tensors="pt")'
    yield "ids = model.generate(**inputs)[0]"
    yield "text = tokenizer.decode(ids, skip_special_tokens=True)"
    if moses:
        yield (f'text = MosesDetokenizer("{target}").detokenize(text.split(), unescape=False)')
    yield "print(text)"


def _measurement(record: Record, metrics: dict[str, float | None]) -> Iterator[str]:
    """Yield the test set and signatures of the metrics, and how the run ended."""
    summary = record.summary or {}
    if (test := summary.get("test_set")) and any(name.startswith("test/") for name in metrics):
        yield f"test: {test['name']}, {test['lines']:,} lines, {test['fingerprint']}"
        for name, signature in summary.get("signatures", {}).items():
            yield f"{name}: `{signature}`"
    status = summary.get("status")
    yield f"The run ended as `{status}`." if status else "The run has not ended."


def _training(record: Record) -> dict[str, str]:
    config, environment, summary = record.config, record.environment, record.summary or {}
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


def _limits(record: Record) -> Iterator[str]:
    seed, tokens = record.config["seed"], (record.summary or {}).get("tokens")
    if tokens and (paper := PAPER_TOKENS.get(record.kind)):
        yield (
            f"Its training read {tokens:,} tokens, {tokens / paper:.2%} of the paper's {paper:,}, "
            f"with one seed ({seed})."
        )
    else:
        yield f"One seed ({seed})."
    made_up = record.config["data"]["kind"] == "builtin"
    if made_up and record.kind in ("classifier", "translation"):
        yield "The data were made from templates: scores on them say nothing of real text."
    yield (
        "The code that made it is under Apache-2.0. What its training text allows is not known to "
        "this card: look at the data before you pass the weights on."
    )
