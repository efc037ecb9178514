"""Keep the records of finished runs, without weights, in a study under experiments/.

`python scripts/record.py experiments/pretraining_builtin runs/pretrain/*`

Adds them to the study's runs.jsonl and metrics.csv, by what its study.yaml calls their configurations;
a run that is there is replaced. Also what further tables are made of, where a run has it: the spikes of
its loss; of translations the counts of each test line, not the texts; of language models the loss by
position; of triplets the scores. Runs of the study whose summary has no trivial baselines get them from
their data, which must be where their config says; without runs that, and the names of configurations, is
all.
"""

import json
from pathlib import Path
from typing import Any

from roformer import registry
from roformer.config.build import build
from roformer.report.runs import write_recorded
from roformer.report.studies import Study, read_study, require_plan
from roformer.script import Arguments, script
from roformer.training.records import finite

READ = ("data", "task", "training", "tokenizer")
"""Sections of a config that decide what a trivial baseline is of."""


class Completed:
    """Records with what the plan of their study calls their configuration, and with the trivial baselines
    of their data, which are the same for many runs."""

    def __init__(self, study: Study | None = None) -> None:
        self.study = study
        self.known: dict[str, Any] = {}

    def __call__(self, record: dict[str, Any]) -> dict[str, Any]:
        summary, config = record["summary"], record["config"]
        pipeline = registry.get(summary["pipeline"])
        if self.study and (planned := self.study.configuration_of(record["command"])):
            record = record | {"planned": planned}
        # No table reads what others say of each example; the first studies' records have no files.
        if pipeline.kind != "scorer" and "files" in record:
            files = record["files"].items()
            kept = {name: text for name, text in files if not name.startswith("predictions/")}
            record = record | {"files": kept}
        if not pipeline.baselines or "baselines" in summary:
            return record
        key = json.dumps([pipeline.name, [config.get(section) for section in READ]])
        if key not in self.known:
            typed = build(pipeline.config_of_run, config)
            self.known[key] = finite(pipeline.baselines(typed))
        return record | {"summary": summary | {"baselines": self.known[key]}}


@script()
def main() -> None:
    parser = Arguments(__doc__)
    parser.add_argument("study", type=Path, help="folder under experiments/ that has a PLAN.md")
    parser.add_argument("runs", nargs="*", type=Path, help="folders of finished runs")
    arguments = parser.parse_args()
    require_plan(arguments.study)
    complete = Completed(read_study(arguments.study))
    for name in write_recorded(arguments.study, arguments.runs, complete):
        print(f"{arguments.study}: {name}")


if __name__ == "__main__":
    main()
