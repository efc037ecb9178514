"""Translate lines: `python scripts/translate.py runs/wmt/roformer-… < source.txt > translation.txt`.

Reads stdin or the given files and prints one translation per line, in the order of the lines. With
--n-best it prints one hypothesis per line: number of the line, score and text with tabs between them. A
line longer than the training's longest is translated without its end, and reported on stderr.
"""

import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from roformer.data.files import decoded, text_lines
from roformer.inference.translate import load_translator
from roformer.script import Arguments, script
from roformer.training.process import tune_process

CHUNK = 2000
"""Lines that are read before the first is written: similar lengths are searched together."""
SEARCH = ("beam", "alpha", "length_penalty")


def source_lines(paths: list[Path]) -> Iterator[str]:
    """Yield the lines of files, or of stdin where there are none."""
    for path in paths:
        yield from (line for _, line in text_lines(path))
    if not paths:
        yield from (line for _, line in decoded(sys.stdin.buffer, "stdin"))


@script(prints=True)
def main() -> None:
    parser = Arguments(__doc__, device=True)
    run = "a translation run (folder or id), or the folder of a checkpoint in it"
    parser.add_argument("run", help=run)
    files = "source text, .gz or not; none: stdin"
    parser.add_argument("files", nargs="*", default=[], type=Path, help=files)
    parser.add_argument("--beam", type=int, help="1 is greedy search")
    parser.add_argument("--alpha", type=float, help="exponent of the length penalty")
    parser.add_argument("--length-penalty", choices=("fairseq", "gnmt"))
    parser.add_argument("--n-best", type=int, default=0, help="hypotheses per line, with scores")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    arguments = parser.parse_args()
    tune_process(threads=None)
    translator = load_translator(
        arguments.run,
        n_best=max(1, arguments.n_best),
        precision=arguments.precision,
        device=arguments.device,
        changes={key: value for key in SEARCH if (value := getattr(arguments, key)) is not None},
    )
    bar = sys.stderr.isatty() and not sys.stdout.isatty()
    lines, number = source_lines(arguments.files), 0
    while chunk := list(islice(lines, CHUNK)):
        for translations in translator.translate(chunk, progress=bar):
            number += 1
            if translations[0].cut:
                longest = f"longer than {translator.max_length} tokens"
                print(f"line {number} is {longest} and was cut", file=sys.stderr)
            for one in translations:
                fields = [str(number), f"{one.score:.4f}"] if arguments.n_best else []
                print("\t".join([*fields, one.text]), flush=True)


if __name__ == "__main__":
    main()
