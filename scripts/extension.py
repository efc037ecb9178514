"""Read a trained run at other lengths: `python scripts/extension.py runs/pretrain/roformer-…`.

Beyond the paper: masked-LM loss on the run's own validation text, without scaling and with position
interpolation, NTK-aware scaling (fixed and dynamic) and YaRN; the same masked tokens at every length.
Writes <output>/<run>.json and <output>/plots/<run>.png; `--table RECORD` prints a record's tables.
"""

import json
from pathlib import Path

from roformer.analysis.extension import read_at_lengths
from roformer.inference.resolve import find
from roformer.report.pages import script_of
from roformer.report.tables import end_with, markdown_of
from roformer.script import Arguments, at_least, script
from roformer.training.process import tune_process
from roformer.training.records import write_atomically

REPORT = script_of("length_extension")


@script()
def main() -> None:
    parser = Arguments(__doc__, device=True, threads=True)
    parser.add_argument("run", help="a pre-training run, or a record's file")
    parser.add_argument("--lengths", type=at_least(8), nargs="+", default=[128, 256, 512, 1024])
    parser.add_argument("--windows", type=int, default=128, help="stretches of the longest length")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--cache-dir", help="where the prepared text is; default: the run's own")
    parser.add_argument("--output", type=Path, default=Path("runs/extension"))
    parser.add_argument("--table", action="store_true", help="print the tables of a record")
    arguments = parser.parse_args()
    if arguments.table:
        print(markdown_of(REPORT["extension_tables"](Path(arguments.run))))
        return
    record = read_at_lengths(
        Path(find(arguments.run)),
        arguments.lengths,
        windows=arguments.windows,
        precision=arguments.precision,
        cache_dir=arguments.cache_dir,
        device=arguments.device,
        process=dict(tune_process(threads=arguments.threads)),
    )
    arguments.output.mkdir(parents=True, exist_ok=True)
    file = arguments.output / f"{record['run']}.json"
    write_atomically(file, json.dumps(record, indent=1) + "\n")
    REPORT["draw_extension"](file, arguments.output / "plots" / f"{record['run']}.png")
    end_with(REPORT["extension_tables"](file), file.with_suffix(".md"))
    print(f"record: {file}")


if __name__ == "__main__":
    main()
