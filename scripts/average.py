"""Average checkpoints: `python scripts/average.py runs/wmt/roformer-… --last 5`, or a list of them.

The mean is taken in fp32 and written as a checkpoint of its own; `scripts/translate.py RUN` uses the
one that a run has.
"""

from pathlib import Path

from roformer.errors import InputError
from roformer.inference.names import find
from roformer.script import Arguments, script
from roformer.training.averaging import AVERAGED, last_checkpoints, save_average


@script()
def main() -> None:
    parser = Arguments(__doc__)
    parser.add_argument("paths", nargs="+", help="a run with --last, else checkpoints")
    parser.add_argument("--last", type=int, help="average this many of the run's last checkpoints")
    parser.add_argument("--output", type=Path, help=f"default: {AVERAGED}, beside the first one")
    arguments = parser.parse_args()
    paths = [Path(find(path)) for path in arguments.paths]
    if arguments.last is not None:
        if len(paths) != 1:
            raise InputError("--last takes one run: give a list of checkpoints without it")
        paths = last_checkpoints(paths[0], arguments.last)
    folder = save_average(paths, arguments.output or paths[0].parent / AVERAGED)
    print(f"{folder}: mean of {', '.join(path.name for path in paths)}")


if __name__ == "__main__":
    main()
