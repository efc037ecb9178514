"""What counting bytes is worth on this study's validation text, for the numbers of REPORT.md.

    python experiments/performer_bytes/counting.py data/english

Prints the bits per byte of the whole validation text by counts of the training text, of as many
bytes from its beginning as a run of the study reads: single bytes, 1 added to each; pairs, 12.8
times the share of the second byte added; triples, 2.56 times what pairs say.
"""

import sys

import numpy as np

from roformer.config.lm import FileBytes
from roformer.data.text import prepare_bytes

READ = 300 * 16 * 256
"""Updates x sequences x bytes."""
BYTES = 256


def main() -> None:
    text = prepare_bytes(FileBytes(path=sys.argv[1]), "cache")
    seen, held_out = text.train[:READ], text.valid[: len(text.valid)]

    singles = np.bincount(seen, minlength=BYTES) + 1.0
    single = singles / singles.sum()

    pairs = np.zeros((BYTES, BYTES))
    np.add.at(pairs, (seen[:-1], seen[1:]), 1)
    pairs += 12.8 * single
    pair = pairs / pairs.sum(1, keepdims=True)

    triples = np.zeros((BYTES, BYTES, BYTES))
    np.add.at(triples, (seen[:-2], seen[1:-1], seen[2:]), 1)
    triples += 2.56 * pair
    triple = triples / triples.sum(2, keepdims=True)

    before, last, byte = held_out[:-2], held_out[1:-1], held_out[2:]
    for name, chance in {
        "single bytes": single[byte],
        "pairs": pair[last, byte],
        "triples": triple[before, last, byte],
    }.items():
        print(f"{name}: {-np.log2(chance).mean():.3f} bits a byte")


if __name__ == "__main__":
    main()
