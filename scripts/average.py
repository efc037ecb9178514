"""Average checkpoints: `python scripts/average.py runs/wmt/roformer-… --last 5`, or a list of them.

The mean is taken in fp32 and written as a separate checkpoint; `scripts/translate.py RUN` uses a run's
average if it has one.
"""

from pathlib import Path

from roformer.config.build import read_yaml
from roformer.errors import InputError
from roformer.inference.resolve import find
from roformer.json_files import read_object
from roformer.script import Arguments, at_least, script
from roformer.training.averaging import ACCOUNT, AVERAGED, last_checkpoints, save_average


def check_output(folder: Path, checkpoints: list[Path]) -> None:
    """Raise InputError if the average would replace anything but itself."""
    try:
        averaged = read_object(folder / ACCOUNT)["checkpoints"]
    except (OSError, ValueError, KeyError):
        averaged = None
    beside = folder.resolve().parent == checkpoints[0].resolve().parent
    if not beside or averaged != [path.name for path in checkpoints]:
        # A run may have its scores from it.
        raise InputError(
            f"{folder} exists and is no mean of these checkpoints: give another --output"
        )


@script()
def main() -> None:
    parser = Arguments(__doc__)
    parser.add_argument("paths", nargs="+", help="a run with --last, else checkpoints")
    last = "average this many of the run's last checkpoints"
    parser.add_argument("--last", type=at_least(1), help=last)
    parser.add_argument("--output", type=Path, help=f"default: {AVERAGED}, next to the first one")
    arguments = parser.parse_args()
    paths = [Path(find(path)) for path in arguments.paths]
    for path in paths:
        if not path.exists():
            raise InputError(f"{path}: no such run or checkpoint: give a folder under runs/")
    if arguments.last is not None:
        if len(paths) != 1:
            raise InputError("--last takes one run: give a list of checkpoints without it")
        file = paths[0] / "config.yaml"
        training = read_yaml(file.read_text(encoding="utf-8"))["training"] if file.is_file() else {}
        # As at the end of a translation: not the best one, which may be of a step between them.
        every = training.get("checkpoint_every") or 1
        paths = last_checkpoints(paths[0], arguments.last, every)
    for path in paths:
        if (path / "checkpoints").is_dir():
            raise InputError(f"{path} is a run: give --last N, or its checkpoints one by one")
    folder = arguments.output or paths[0].parent / AVERAGED
    if folder.exists():
        check_output(folder, paths)
    save_average(paths, folder)
    print(f"{folder}: mean of {', '.join(path.name for path in paths)}")


if __name__ == "__main__":
    main()
