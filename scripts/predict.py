"""Classify lines: `python scripts/predict.py runs/glue/sst2-… < sentences.txt`.

One text a line, or two with a tab between them for a task of pairs. Prints one line each: the label
and its probability, or the score of a regression.
"""

import argparse
import sys
from collections.abc import Iterator

from roformer.cli import one_line_errors
from roformer.data.sources.files import decoded
from roformer.errors import InputError
from roformer.inference.load import Text, load_model
from roformer.inference.names import named
from roformer.stdout import end_with_reader
from roformer.training.hardware import default_device


def texts_of(lines: Iterator[tuple[int, str]], number_of_texts: int | None) -> Iterator[Text]:
    """Yield the text or pair of each numbered line."""
    for number, line in lines:
        fields = line.split("\t")
        number_of_texts = number_of_texts or min(len(fields), 2)  # as the first line has
        if len(fields) != number_of_texts:
            raise InputError(
                f"line {number} has {len(fields)} tab-separated texts, but the task takes "
                f"{number_of_texts}"
            )
        yield (fields[0], fields[1]) if number_of_texts == 2 else fields[0]


def main() -> None:
    end_with_reader()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "run",
        nargs="?",
        help="a fine-tuning run (folder or id), or a Hugging Face classifier (folder or Hub id)",
    )
    parser.add_argument("--device", default=default_device())
    arguments = parser.parse_args()
    with one_line_errors():
        run = named(arguments.run, "predict", ["glue"])
        trained = load_model(run, device=arguments.device)
        lines = texts_of(decoded(sys.stdin.buffer, "stdin"), trained.texts)
        for number, prediction in enumerate(trained.predict(lines), 1):
            if prediction.cut:
                print(
                    f"line {number} is longer than {trained.max_length} tokens and was cut",
                    file=sys.stderr,
                )
            label = [] if prediction.label is None else [prediction.label]
            print("\t".join([*label, f"{prediction.score:.4f}"]), flush=True)


if __name__ == "__main__":
    main()
