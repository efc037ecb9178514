"""Convert the rotary layout: `python scripts/convert_layout.py RUN --to half --output OUT`.

The model computes the same. Queries and keys then have their pairs at (i, i + d/2), as in GPT-NeoX, and
Llama in transformers; with `--to interleaved` at (0, 1), (2, 3), …, as in the paper.
"""

from roformer.inference.folders import convert_run_layout
from roformer.inference.resolve import find
from roformer.nn.rotary import LAYOUTS
from roformer.script import Arguments, script


@script()
def main() -> None:
    parser = Arguments(__doc__)
    parser.add_argument("path", help="a run, or a checkpoint in one")
    parser.add_argument("--to", choices=LAYOUTS, required=True)
    parser.add_argument("--output", required=True, help="folder of the new run")
    arguments = parser.parse_args()
    folder = convert_run_layout(find(arguments.path), arguments.to, arguments.output)
    print(f"{folder}: queries and keys in the layout {arguments.to}")


if __name__ == "__main__":
    main()
