"""Measure attention scores by distance: `python scripts/decay.py runs/pretrain/roformer-… --output FILE`.

The bound of the paper's Fig. 2, and for each run the scores before the softmax and the attention
weights at every distance, on its own validation text without masks. Writes one record of all runs
and prints its tables; `--table RECORD` prints a record's tables again.
"""

import json
from pathlib import Path

from roformer.analysis.decay import measure
from roformer.errors import InputError
from roformer.inference.resolve import find
from roformer.report.pages import script_of
from roformer.report.tables import end_with, markdown_of
from roformer.script import Arguments, at_least, script
from roformer.training.process import tune_process
from roformer.training.records import write_atomically

REPORT = script_of("decay")


@script()
def main() -> None:
    parser = Arguments(__doc__, device=True, threads=True)
    parser.add_argument("runs", nargs="+", help="pre-training runs, or a record's file")
    parser.add_argument("--control", choices=("initial",), help="also with the initial weights")
    parser.add_argument("--sequences", type=int, default=64, help="of the validation text")
    parser.add_argument(
        "--length", type=at_least(8), help="tokens of a sequence; default: the trained one"
    )
    parser.add_argument("--cache-dir", help="where the prepared text is; default: the runs' own")
    parser.add_argument("--output", type=Path, default=Path("runs/decay.json"), help="the record")
    parser.add_argument("--table", action="store_true", help="print the tables of a record")
    arguments = parser.parse_args()
    if arguments.table:
        if not (record_file := Path(arguments.runs[0])).is_file():
            raise InputError(f"{record_file} cannot be read: give a record of this script")
        print(markdown_of(REPORT["decay_tables"](record_file)))
        return
    record = measure(
        [Path(find(run)) for run in arguments.runs],
        control=arguments.control,
        sequences=arguments.sequences,
        length=arguments.length,
        cache_dir=arguments.cache_dir,
        device=arguments.device,
        process=dict(tune_process(threads=arguments.threads)),
    )
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(arguments.output, json.dumps(record, separators=(",", ":")) + "\n")
    end_with(REPORT["decay_tables"](arguments.output), arguments.output.with_suffix(".md"))
    print(f"record: {arguments.output}")


if __name__ == "__main__":
    main()
