"""Export a trained model: `python scripts/export.py runs/pretrain/roformer-… --output FOLDER`.

Writes a folder that `transformers` opens without our code, or, where it has no such model, one that
`roformer.load_model`, `load_translator` or `load_generator` opens; says which, and why.
"""

from pathlib import Path

from roformer.inference.export import export
from roformer.script import Arguments, script


@script()
def main() -> None:
    parser = Arguments(__doc__)
    parser.add_argument(
        "run", help="a run: folder or id; or a folder of a saved or published model"
    )
    output = "default: export/<run id>, next to the pipelines"
    parser.add_argument("--output", type=Path, help=output)
    checkpoint = "step_…, best, last or averaged; default: the one that loading takes"
    parser.add_argument("--checkpoint", help=checkpoint)
    arguments = parser.parse_args()
    written = export(Path(arguments.run), arguments.output, arguments.checkpoint)
    opener = f"a {written.kind} of transformers" if written.kind else "a folder of roformer"
    print(f"{written.folder}: {written.checkpoint} as {opener}")
    for note in written.notes:
        print(f"- {note}")


if __name__ == "__main__":
    main()
