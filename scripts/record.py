"""Copy the records of finished runs, without weights, into a study under experiments/.

`python scripts/record.py experiments/pretraining_builtin runs/pretrain/*`

Also what further tables are made of, where a run has it: of translations the counts of each test line,
not the texts; of language models the loss by position; of triplets the scores.
"""

import argparse
import shutil
import sys
from pathlib import Path

from roformer.cli import one_line_errors
from roformer.pipelines.bleu_record import NAME, add_bleu_statistics
from roformer.training.records import RunFolder, read_metrics

FILES = ("config.yaml", "env.json", "command.txt", "metrics.jsonl", "summary.json")
MORE = {
    "wmt": (NAME,),
    "charlm": ("positions.json",),
    "clm": ("positions.json",),
    "scm": ("predictions/validation.tsv", "predictions/test.tsv"),
}
"""Pipeline → what further tables are made of, where a run has it."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("study", type=Path, help="folder under experiments/ that has a PLAN.md")
    parser.add_argument("runs", nargs="+", type=Path, help="folders of finished runs")
    arguments = parser.parse_args()
    missing = [
        arguments.study / "PLAN.md",
        *(run / name for run in arguments.runs for name in FILES),
    ]
    for path in missing:
        if not path.is_file():
            print(
                f"error: {path} is missing: plan first, and record finished runs", file=sys.stderr
            )
            raise SystemExit(2)
    summaries = {}
    with one_line_errors():  # a damaged record is no record
        for run in arguments.runs:
            summaries[run] = RunFolder(run).summary() or {}
            RunFolder(run).data()
            read_metrics(run / "metrics.jsonl")
            add_bleu_statistics(run)
    for run in arguments.runs:
        target = arguments.study / "runs" / run.resolve().name
        target.mkdir(parents=True, exist_ok=True)
        for name in FILES:
            shutil.copy2(run / name, target / name)
        for name in MORE.get(summaries[run]["pipeline"], ()):
            if (run / name).is_file():
                (target / name).parent.mkdir(exist_ok=True)
                shutil.copy2(run / name, target / name)
        print(target)


if __name__ == "__main__":
    main()
