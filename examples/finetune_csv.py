"""Fine-tune a pre-trained model on your own CSV with transformers' Trainer.

    python examples/finetune_csv.py runs/pretrain/YOUR_RUN reviews.csv

The CSV has the columns `text` and `label`; a tenth of its rows is held out. The encoder is this
repository's, everything around it is Hugging Face's: `datasets` reads, `Trainer` trains. What was
trained is saved in `<output>/model`, and from then on

    roformer.load_model("<output>/model").predict("a text of your own")
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from datasets import load_dataset
from transformers import DataCollatorWithPadding, Trainer, TrainingArguments

import roformer
from roformer.cli import one_line_errors
from roformer.errors import InputError
from roformer.interop.trainer import WithLoss
from roformer.models.classifier import Classifier

LENGTH = 512
"""Tokens of a text, where the model reads as many; what is longer is cut."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", help="a pre-trained model: a run, a folder or a Hub id")
    parser.add_argument("csv", type=Path, help="a file with the columns text and label")
    parser.add_argument("--epochs", type=float, default=3.0)
    parser.add_argument("--learning-rate", type=float, default=1e-4)
    parser.add_argument(
        "--output", type=Path, default=Path("runs/examples/csv"), help="folder for the model"
    )
    arguments = parser.parse_args()
    with one_line_errors():
        finetune(arguments)


def finetune(arguments: argparse.Namespace) -> None:
    output = arguments.output / "model"
    if output.exists():
        raise InputError(f"{output} is there already: choose another --output")
    trained = roformer.load_model(arguments.model)
    if not arguments.csv.is_file():
        raise InputError(
            f"{arguments.csv} does not exist: give a CSV with the columns text and label"
        )
    try:
        rows = load_dataset("csv", data_files=str(arguments.csv), split="train")
    except Exception as error:  # datasets' own, of many classes
        raise InputError(
            f"{arguments.csv} cannot be read as CSV ({type(error).__name__}): give a header and rows, "
            "texts with commas in quotes"
        ) from error
    if missing := {"text", "label"} - set(rows.column_names):
        raise InputError(f"{arguments.csv} has no column {', '.join(sorted(missing))}")
    for number, row in enumerate(rows, 2):
        if row["text"] is None or row["label"] is None:
            raise InputError(f"{arguments.csv}: row {number} has no text or no label: mend it")
    if len(rows) < 10:
        raise InputError(
            f"{arguments.csv} has {len(rows)} rows: give 10 or more, a tenth is held out"
        )
    labels = sorted({str(label) for label in rows["label"]})

    tokenizer = trained.tokenizer.to_transformers()
    # A Hugging Face model without a head is an encoder, all others have one.
    encoder = getattr(trained.model, "encoder", trained.model)
    length = min(LENGTH, encoder.config.position.longest or LENGTH)

    def encode(batch: dict[str, list[object]]) -> dict[str, list[object]]:
        inputs = tokenizer(
            [str(text) for text in batch["text"]],
            truncation=True,
            max_length=length,
            split_special_tokens=True,  # what spells [SEP] is text, as it is in `predict`
        )
        return {**inputs, "labels": [labels.index(str(label)) for label in batch["label"]]}

    parts = rows.map(encode, batched=True, remove_columns=rows.column_names)
    parts = parts.train_test_split(test_size=0.1, seed=0)

    torch.manual_seed(0)
    model = Classifier(encoder.config, encoder.tokens.num_embeddings, len(labels), dropout=0.1)
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
            save_strategy="no",  # its checkpoints are no models that anything opens
            logging_steps=50,
            report_to=[],
            dataloader_pin_memory=torch.cuda.is_available(),
        ),
        train_dataset=parts["train"],
        eval_dataset=parts["test"],
        data_collator=DataCollatorWithPadding(tokenizer),
        compute_metrics=lambda result: {
            "accuracy": float(np.mean(result.predictions.argmax(-1) == result.label_ids))
        },
    )
    trainer.train()
    print(
        f"accuracy {trainer.evaluate()['eval_accuracy']:.3f} on {len(parts['test'])} held-out rows"
    )
    description = {"task": "csv", "labels": labels, "texts": ["text"], "max_length": length}
    roformer.TrainedModel(model.cpu().eval(), trained.tokenizer, description).save(output)
    print(f'roformer.load_model("{output}") opens it')


if __name__ == "__main__":
    main()
