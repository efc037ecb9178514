"""Classify lines: `python scripts/predict.py runs/glue/sst2-… < sentences.txt`.

Reads one text per line, or two with a tab between them for a task of pairs. Prints one line per input:
the label and its probability, or the score of a regression.
"""

import sys
from collections.abc import Iterator
from itertools import islice

from roformer.data.files import decoded
from roformer.errors import InputError
from roformer.inference.load import BATCH, Text, load_model
from roformer.script import Arguments, script


def texts_of(count: int | None) -> Iterator[Text]:
    """Yield the text or pair of each line of stdin; without a count, as many as the first line has."""
    for number, line in decoded(sys.stdin.buffer, "stdin"):
        fields = line.split("\t")
        count = count or min(len(fields), 2)
        if len(fields) != count:
            found = f"line {number} has {len(fields)} tab-separated texts"
            raise InputError(f"{found}, but the task takes {count}")
        yield (fields[0], fields[1]) if count == 2 else fields[0]


@script(prints=True)
def main() -> None:
    parser = Arguments(__doc__, device=True)
    run = "a fine-tuning run (folder or id), or a Hugging Face classifier (folder or Hub id)"
    parser.add_argument("run", help=run)
    arguments = parser.parse_args()
    trained = load_model(arguments.run, device=arguments.device)
    texts, number = texts_of(trained.texts), 0
    while batch := list(islice(texts, BATCH)):
        for found in trained.predict(batch):
            number += 1
            if found.cut:
                longest = f"longer than {trained.max_length} tokens"
                print(f"line {number} is {longest} and was cut", file=sys.stderr)
            label = [] if found.label is None else [found.label]
            print("\t".join([*label, f"{found.score:.4f}"]), flush=True)


if __name__ == "__main__":
    main()
