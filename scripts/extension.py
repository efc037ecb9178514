"""Read a trained run at other lengths: `python scripts/extension.py runs/pretrain/roformer-…`.

Beyond the paper: masked-LM loss on the run's own validation text, without scaling and with position
interpolation, NTK-aware scaling (fixed and dynamic) and YaRN; the same masked tokens at every length.
Writes <output>/<run>.json and <output>/plots/<run>.png; `--table RECORD` prints a record's tables.
"""

import argparse
import json
from pathlib import Path

from roformer.cli import one_line_errors
from roformer.errors import InputError
from roformer.pipelines.extension import read_at_lengths
from roformer.report.figures import draw_extension
from roformer.report.results import extension_tables
from roformer.training.hardware import default_device
from roformer.training.process import tune_process
from roformer.training.records import write_atomically


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, help="folder of a pre-training run, or a record's file")
    parser.add_argument("--lengths", type=int, nargs="+", default=[128, 256, 512, 1024])
    parser.add_argument("--windows", type=int, default=128, help="stretches of the longest length")
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--cache-dir", help="where the prepared text is; default: the run's own")
    parser.add_argument("--device", default=default_device())
    parser.add_argument("--threads", type=int, help="of the CPU; default: all cores")
    parser.add_argument("--output", type=Path, default=Path("runs/extension"))
    parser.add_argument("--table", action="store_true", help="print the tables of a record")
    arguments = parser.parse_args()
    with one_line_errors():
        if arguments.table:
            if not arguments.run.is_file():
                raise InputError(f"{arguments.run} is no record: give the .json of an earlier run")
            print(extension_tables(json.loads(arguments.run.read_text())))
            return
        if arguments.threads is not None and arguments.threads < 1:
            raise InputError(f"--threads {arguments.threads}: give at least 1")
        if min(arguments.lengths) < 8:
            raise InputError(f"--lengths {min(arguments.lengths)}: give at least 8")
        record = read_at_lengths(
            arguments.run,
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
        draw_extension(record, arguments.output / "plots" / f"{record['run']}.png")
        print(extension_tables(record))
        print(f"\nrecord: {file}")


if __name__ == "__main__":
    main()
