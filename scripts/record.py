"""Keep the records of finished runs, without weights, in a study under experiments/.

`python scripts/record.py experiments/pretraining_builtin runs/pretrain/*`

Adds them to the study's runs.jsonl and metrics.csv; a run that is there is replaced. Also what further
tables are made of, where a run has it: the spikes of its loss; of translations the counts of each test
line, not the texts; of language models the loss by position; of triplets the scores.
"""

from pathlib import Path

from roformer.errors import InputError
from roformer.report.runs import write_recorded
from roformer.script import Arguments, script
from roformer.training.records import RunFolder, read_metrics

FILES = ("config.yaml", "env.json", "command.txt", "metrics.jsonl", "summary.json")


@script()
def main() -> None:
    parser = Arguments(__doc__)
    parser.add_argument("study", type=Path, help="folder under experiments/ that has a PLAN.md")
    parser.add_argument("runs", nargs="+", type=Path, help="folders of finished runs")
    arguments = parser.parse_args()
    wanted = [arguments.study / "PLAN.md"]
    wanted += [run / name for run in arguments.runs for name in FILES]
    for path in wanted:
        if not path.is_file():
            raise InputError(f"{path} is missing: plan first, and record finished runs")
    for run in arguments.runs:  # a damaged record is no record
        RunFolder(run).summary()
        RunFolder(run).data()
        read_metrics(run / "metrics.jsonl")
    for name in write_recorded(arguments.study, arguments.runs):
        print(f"{arguments.study}: {name}")


if __name__ == "__main__":
    main()
