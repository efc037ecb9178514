"""Write the GLUE server's files: `python scripts/glue_submission.py runs/glue/*roformer*`."""

import argparse
from pathlib import Path

from roformer.cli import one_line_errors
from roformer.inference.submission import missing, write_submission


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "runs", nargs="+", type=Path, help="folders of fine-tuning runs, one model's"
    )
    parser.add_argument("--output", type=Path, default=Path("runs/submission"))
    arguments = parser.parse_args()
    with one_line_errors():
        files = write_submission(arguments.runs, arguments.output)
    for file in [*files, arguments.output / "submission.zip"]:
        print(file)
    if absent := missing(files):
        print(f"the server wants these too: {', '.join(absent)}")


if __name__ == "__main__":
    main()
