"""Measure attention scores by distance: `python scripts/decay.py runs/pretrain/roformer-… --output FILE`.

The bound of the paper's Fig. 2, and for each run the scores before the softmax and the attention
weights at every distance, on validation text of its own without masks. Writes one record of all runs
and prints its tables; `--table RECORD` prints a record's tables again.
"""

import argparse
import json
from pathlib import Path

from roformer.cli import one_line_errors
from roformer.errors import InputError
from roformer.pipelines.decay import measure
from roformer.report.results import decay_tables, read_decay
from roformer.report.tables import markdown_of
from roformer.training.hardware import default_device
from roformer.training.process import tune_process
from roformer.training.records import write_atomically


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "runs", type=Path, nargs="+", help="folders of pre-training runs, or a record's file"
    )
    parser.add_argument("--control", choices=("initial",), help="also with the initial weights")
    parser.add_argument("--sequences", type=int, default=64, help="of the validation text")
    parser.add_argument("--length", type=int, help="tokens of a sequence; default: the trained one")
    parser.add_argument("--cache-dir", help="where the prepared text is; default: the runs' own")
    parser.add_argument("--device", default=default_device())
    parser.add_argument("--threads", type=int, help="of the CPU; default: all cores")
    parser.add_argument("--output", type=Path, default=Path("runs/decay.json"), help="the record")
    parser.add_argument("--table", action="store_true", help="print the tables of a record")
    arguments = parser.parse_args()
    with one_line_errors():
        if arguments.table:
            print_tables(arguments.runs[0])
            return
        if arguments.threads is not None and arguments.threads < 1:
            raise InputError(f"--threads {arguments.threads}: give at least 1")
        if arguments.length is not None and arguments.length < 8:
            raise InputError(f"--length {arguments.length}: give at least 8")
        record = measure(
            arguments.runs,
            control=arguments.control,
            sequences=arguments.sequences,
            length=arguments.length,
            cache_dir=arguments.cache_dir,
            device=arguments.device,
            process=dict(tune_process(threads=arguments.threads)),
        )
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(arguments.output, json.dumps(record, separators=(",", ":")) + "\n")
        print_tables(arguments.output)
        print(f"\nrecord: {arguments.output}")


def print_tables(file: Path) -> None:
    """Print the tables of a record in Markdown."""
    print(markdown_of(decay_tables(read_decay(file))))


if __name__ == "__main__":
    main()
