"""The README.md of an exported model: what it is, how to open it, what was measured, what it is made of.

Every number and name in it is read from the run's own record.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from roformer.training import checkpoint
from roformer.training.averaging import AVERAGED

TASKS = {
    "pretrain": "fill-mask",
    "glue": "text-classification",
    "wmt": "translation",
    "clm": "text-generation",
    "charlm": "text-generation",
}
"""Pipeline → task of the Hub."""
PAPER_TOKENS = {"pretrain": 100_000 * 64 * 512, "wmt": 100_000 * 25_000}
"""Tokens that the paper's (pre-training) or its baseline's (translation) training reads."""


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
    def pipeline(self) -> str:
        if "languages" in self.description:
            return "wmt"
        if reads := self.description.get("reads"):
            return "charlm" if reads == "bytes" else "clm"
        return "glue" if "task" in self.description else "pretrain"


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
        of_this = "_single" if record.pipeline == "wmt" else ""
        kept |= {k: v for k, v in found.items() if k.startswith("test/") and k.endswith(of_this)}
    return kept


def model_card(record: Record, kind: str | None, notes: tuple[str, ...]) -> str:
    """Return the card.

    Args:
        record: of the run.
        kind: `model_type` in `transformers`, or None for a folder of `roformer`.
        notes: what the user should know of the conversion.
    """
    sections = [
        f"# {record.name}",
        _what(record),
        "## Use",
        f"```python\n{_usage(record, kind)}\n```",
        "\n".join(f"- {note}" for note in notes),
        "## Results",
        _results(record),
        "## Training",
        _table(_training(record)),
        f"```sh\n{record.command}\n```",
        "## Limits",
        _limits(record),
    ]
    text = "\n\n".join(section for section in sections if section)
    return f"---\n{_front_matter(record, kind)}---\n\n{text}\n"


def _front_matter(record: Record, kind: str | None) -> str:
    from huggingface_hub import EvalResult, ModelCardData

    task = TASKS[record.pipeline]
    model, data = record.description["model"], record.config["data"]
    results = [
        EvalResult(
            task_type=task,
            dataset_type=str(data.get("path") or data["kind"]),
            dataset_name=_test_name(record),
            metric_type=name,
            metric_value=value,
        )
        for name, value in measured(record).items()
        if value is not None
    ]
    card = ModelCardData(
        model_name=record.name,
        library_name="transformers" if kind else "roformer",
        pipeline_tag=task,
        language=_languages(record),
        license="unknown",
        tags=[model["name"], model["position"]["kind"]],
        eval_results=results or None,
    )
    return str(card.to_yaml()) + "\n"


def _languages(record: Record) -> list[str] | None:
    if record.pipeline == "wmt":
        return list(record.description["languages"])
    builtin = record.config["data"]["kind"] in ("builtin", "bytes_builtin")
    english = record.pipeline == "glue" or builtin
    return ["en"] if english else None


def _test_name(record: Record) -> str:
    test = (record.summary or {}).get("test_set")
    if record.checkpoint.name == AVERAGED and test:
        return str(test["name"])
    task = record.description.get("task")
    return f"{record.config['data']['kind']}{f' {task}' if task else ''} validation"


def _what(record: Record) -> str:
    model, summary = record.description["model"], record.summary or {}
    if record.pipeline == "wmt":
        source, target = record.description["languages"]
        what = f"Translation from {source} to {target}"
    elif record.pipeline == "glue":
        what = f"{record.description['task']} of GLUE, on {record.config['data']['kind']} data"
    elif record.pipeline == "pretrain":
        what = "Masked-language model"
    else:
        what = f"Causal language model of {record.description['reads']}"
    layers = f"{model['layers']}"
    if record.pipeline == "wmt":
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
        names = {"wmt": "load_translator", "clm": "load_generator", "charlm": "load_generator"}
        name = names.get(record.pipeline, "load_model")
        return f'import roformer\n\nmodel = roformer.{name}("FOLDER")'
    if record.pipeline == "pretrain":
        return (
            "from transformers import pipeline\n\n"
            'fill = pipeline("fill-mask", model="FOLDER")\n'
            'print(fill(f"A text with a {fill.tokenizer.mask_token}."))'
        )
    if record.pipeline == "glue":
        pair = len(record.description["texts"]) == 2
        text = '{"text": "a text", "text_pair": "another"}' if pair else '"a text"'
        return (
            "from transformers import pipeline\n\n"
            'classify = pipeline("text-classification", model="FOLDER")\n'
            f"print(classify({text}, truncation=True))"
        )
    if record.pipeline in ("clm", "charlm"):
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


def _results(record: Record) -> str:
    summary, metrics = record.summary or {}, measured(record)
    if not metrics:
        return f"Nothing was measured of `{record.checkpoint.name}`."
    signatures = summary.get("signatures", {})
    rows = {
        name: "undefined" if value is None else json.dumps(value) for name, value in metrics.items()
    }
    lines = [_table(rows, "metric", _test_name(record))]
    if (test := summary.get("test_set")) and any(name.startswith("test/") for name in metrics):
        lines.append(f"test: {test['name']}, {test['lines']:,} lines, {test['fingerprint']}")
        lines += [f"{name}: `{signature}`" for name, signature in signatures.items()]
    if status := summary.get("status"):
        lines.append(f"The run ended as `{status}`.")
    else:
        lines.append("The run has not ended.")
    return "\n\n".join(lines)


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
        "updates": summary.get("steps"),
        "tokens": summary.get("tokens"),
        "learning rate": config["optimizer"]["learning_rate"],
        "precision": config["training"].get("precision"),
        "commit": commit,
        "started": environment["started"],
        "torch": environment["packages"]["torch"],
        "processor": environment["gpu"] or environment["processor"],
    }
    return {key: str(value) for key, value in facts.items() if value is not None}


def _limits(record: Record) -> str:
    summary, lines = record.summary or {}, []
    tokens, paper = summary.get("tokens"), PAPER_TOKENS.get(record.pipeline)
    if tokens and paper:
        lines.append(
            f"Its training read {tokens:,} tokens, {tokens / paper:.2%} of the paper's {paper:,}, "
            f"with one seed ({record.config['seed']})."
        )
    else:
        lines.append(f"One seed ({record.config['seed']}).")
    if record.config["data"]["kind"] == "builtin" and record.pipeline in ("glue", "wmt"):
        lines.append("The data were made by a grammar: scores on them say nothing of real text.")
    lines.append(
        "The code that made it is under Apache-2.0. What its training text allows is not known to "
        "this card: look at the data before you pass the weights on."
    )
    return "\n\n".join(lines)


def _table(rows: dict[str, str], *header: str) -> str:
    first, second = header or ("", "")
    body = "".join(
        f"\n| {key} | {value.replace('|', chr(92) + '|')} |" for key, value in rows.items()
    )
    return f"| {first} | {second} |\n| --- | --- |{body}"
