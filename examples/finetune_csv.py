"""Fine-tune a pre-trained model on a CSV file with transformers' Trainer.

    python examples/finetune_csv.py runs/pretrain/YOUR_RUN reviews.csv
    python examples/finetune_csv.py runs/pretrain/YOUR_RUN pairs.csv --texts question answer --label fits

The CSV has a header. Its labels are classes, or scores with `--regression`. A tenth of the rows is held
out for evaluation. The encoder comes from this repository, `Dataset` and `Trainer` from Hugging Face. The
trained model is saved in `<output>/model`:

    roformer.load_model("<output>/model").predict("any text")
"""

import argparse
import math
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from transformers import DataCollatorWithPadding, EvalPrediction, Trainer, TrainingArguments

import roformer
from roformer.data.files import Columns, file_rows
from roformer.errors import InputError
from roformer.interop.trainer import WithLoss
from roformer.models.classifier import Classifier
from roformer.script import Arguments, script

LENGTH = 512
"""Longest text or pair in tokens; longer ones are truncated. A model's own limit may be lower."""


@script()
def main() -> None:
    parser = Arguments(__doc__)
    parser.add_argument("model", help="a pre-trained model: a run, a folder or a Hub id")
    parser.add_argument("csv", type=Path, help="a .csv, or a .tsv without quotes, in UTF-8")
    parser.add_argument(
        "--texts", nargs="+", default=["text"], help="column of the text, or both of a pair"
    )
    parser.add_argument("--label", default="label", help="column of the label")
    parser.add_argument("--regression", action="store_true", help="the labels are scores")
    parser.add_argument("--epochs", type=float, default=3.0)
    parser.add_argument("--learning-rate", type=float, default=1e-4)
    parser.add_argument(
        "--output", type=Path, default=Path("runs/examples/csv"), help="folder for the model"
    )
    finetune(parser.parse_args())


def read(arguments: argparse.Namespace) -> tuple[list[dict[str, str]], list[str] | None]:
    """Return the rows of the file and the class names, or None for a regression."""
    file, names = arguments.csv, [*arguments.texts, arguments.label]
    if file.suffix.lower() not in (".csv", ".tsv") or not file.is_file():
        raise InputError(f"{file} does not exist or is no .csv or .tsv: give one with a header")
    if len(arguments.texts) > 2 or len(set(names)) < len(names):
        raise InputError(f"{', '.join(names)}: give one or two columns of texts, and another label")
    rows = []
    columns = Columns(arguments.texts, arguments.label, set_by="--texts and --label")
    for where, line, row in file_rows(file, columns):
        empty = [name for name in names if isinstance(row, dict) and not row[name].strip()]
        if isinstance(row, str) or empty:
            raise InputError(f"{where}:{line}: {row if isinstance(row, str) else f'no {empty[0]}'}")
        if arguments.regression and not math.isfinite(_number(row[arguments.label])):
            raise InputError(f"{where}:{line}: {row[arguments.label]} is no score: give a number")
        rows.append(row)
    if len(rows) < 10:
        raise InputError(f"{file} has {len(rows)} rows: give 10 or more, a tenth is held out")
    if arguments.regression:
        return rows, None
    labels = sorted({row[arguments.label] for row in rows})
    counts = Counter(row[arguments.label] for row in rows)
    print("classes:", ", ".join(f"{label!r} {counts[label]}" for label in labels))
    if len(labels) < 2:
        raise InputError(f"{file} has one class, {labels[0]!r}: give rows of two or more")
    scores = [label for label in labels if not re.fullmatch(r"[+-]?\d+", label)]
    if scores and not any(math.isnan(_number(label)) for label in labels):
        raise InputError(
            f"{file} has the label {scores[0]}, a number with a fraction: add --regression, or write "
            f"classes as words, such as v{scores[0]}"
        )
    return rows, labels


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def finetune(arguments: argparse.Namespace) -> None:
    output = arguments.output / "model"
    if output.exists():
        raise InputError(f"{output} exists: choose another --output")
    if not 0 < arguments.epochs < math.inf:
        raise InputError(f"--epochs={arguments.epochs:g}: give a number above 0")
    rows, labels = read(arguments)
    trained = roformer.load_model(arguments.model)
    tokenizer = trained.tokenizer.to_transformers()
    # A Hugging Face model without a head is an encoder; all other models have an encoder.
    encoder = getattr(trained.model, "encoder", trained.model)
    length = min(LENGTH, encoder.config.position.longest or LENGTH)
    if len(arguments.texts) > encoder.config.token_types:
        raise InputError(f"{arguments.model} has one token type: a pair of texts needs two")

    def encode(batch: dict[str, list[str]]) -> dict[str, Any]:
        inputs = tokenizer(
            *(batch[name] for name in arguments.texts),
            truncation=True,
            max_length=length,
            split_special_tokens=True,  # "[SEP]" in a text is text, as in `predict`
        )
        found = batch[arguments.label]
        numbers = [float(label) if labels is None else labels.index(label) for label in found]
        return {**inputs, "labels": numbers}

    data = Dataset.from_list(rows)
    parts = data.map(encode, batched=True, remove_columns=data.column_names)
    parts = parts.train_test_split(test_size=0.1, seed=0)

    def metrics(result: EvalPrediction) -> dict[str, float]:
        if labels is None:
            error = result.predictions[:, 0] - result.label_ids
            return {"mean_squared_error": float(np.mean(error**2))}
        return {"accuracy": float(np.mean(result.predictions.argmax(-1) == result.label_ids))}

    torch.manual_seed(0)
    classes = 1 if labels is None else len(labels)
    model = Classifier(encoder.config, encoder.tokens.num_embeddings, classes, dropout=0.1)
    model.encoder.load_state_dict(encoder.state_dict())
    trainer = Trainer(
        model=WithLoss(model),
        args=TrainingArguments(
            output_dir=str(arguments.output / "trainer"),
            num_train_epochs=arguments.epochs,
            learning_rate=arguments.learning_rate,
            per_device_train_batch_size=32,
            warmup_steps=20,
            eval_strategy="epoch",
            save_strategy="no",  # load_model cannot open Trainer's checkpoints
            logging_steps=50,
            report_to=[],
            dataloader_pin_memory=torch.cuda.is_available(),
        ),
        train_dataset=parts["train"],
        eval_dataset=parts["test"],
        data_collator=DataCollatorWithPadding(tokenizer),
        compute_metrics=metrics,
    )
    trainer.train()
    name = "mean_squared_error" if labels is None else "accuracy"
    value = trainer.evaluate()[f"eval_{name}"]
    print(f"{name.replace('_', ' ')} {value:.3f} on {len(parts['test'])} held-out rows")
    texts = arguments.texts
    description = {"task": "csv", "labels": labels, "texts": texts, "max_length": length}
    roformer.TrainedModel(model.cpu().eval(), trained.tokenizer, description).save(output)
    print(f'roformer.load_model("{output}") opens it')


if __name__ == "__main__":
    main()
