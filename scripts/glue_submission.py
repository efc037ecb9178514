"""Write the GLUE server's files: `python scripts/glue_submission.py runs/glue/*roformer*`."""

from pathlib import Path

from roformer.inference.submission import missing, write_submission
from roformer.script import Arguments, script


@script()
def main() -> None:
    parser = Arguments(__doc__)
    parser.add_argument("runs", nargs="+", type=Path, help="fine-tuning runs of one model")
    parser.add_argument("--output", type=Path, default=Path("runs/submission"))
    arguments = parser.parse_args()
    files = write_submission(arguments.runs, arguments.output)
    for file in [*files, arguments.output / "submission.zip"]:
        print(file)
    if absent := missing(files):
        print(f"the server wants these too: {', '.join(absent)}")


if __name__ == "__main__":
    main()
