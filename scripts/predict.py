"""Classify lines: `python scripts/predict.py runs/glue/sst2-… < sentences.txt`.

One text a line, or two with a tab between them for a task of pairs. Prints one line each: the label
and its probability, or the score of a regression.
"""

import sys
from collections.abc import Iterator

from roformer.data.sources.files import decoded
from roformer.errors import InputError
from roformer.inference.load import Text, load_model
from roformer.inference.names import named
from roformer.script import Arguments, script


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


@script(prints=True)
def main() -> None:
    parser = Arguments(__doc__, device=True)
    parser.add_argument(
        "run",
        nargs="?",
        help="a fine-tuning run (folder or id), or a Hugging Face classifier (folder or Hub id)",
    )
    arguments = parser.parse_args()
    trained = load_model(named(arguments.run, "predict", ["glue"]), device=arguments.device)
    lines = texts_of(decoded(sys.stdin.buffer, "stdin"), trained.texts)
    for number, found in enumerate(trained.predict(lines), 1):
        if found.cut:
            longest = f"longer than {trained.max_length} tokens"
            print(f"line {number} is {longest} and was cut", file=sys.stderr)
        label = [] if found.label is None else [found.label]
        print("\t".join([*label, f"{found.score:.4f}"]), flush=True)


if __name__ == "__main__":
    main()
