"""Keep the records of finished runs, without weights, in a study under experiments/.

`python scripts/record.py experiments/causal_lm runs/clm/*`

Adds them to the study's runs.jsonl and metrics.csv, with the names of their configurations in study.yaml; a
run that is already recorded is replaced. A record also has the data of further tables: the spikes of the
loss, the counts of each test line of translations (not the texts), the loss by position of language models
and the scores of triplets. Runs of the study without model-free baselines get them from their data, which
must be where their config says. Without runs, only these baselines and the names of configurations are
added.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from roformer import registry
from roformer.config.build import build
from roformer.report.resampling import STATISTICS, packed, unpacked
from roformer.report.runs import Record, write_recorded
from roformer.report.studies import Study, read_study, require_plan
from roformer.script import Arguments, script
from roformer.training.records import finite


def completing(study: Study | None = None) -> Callable[[Record], Record]:
    """Return a function that adds the plan's name of the configuration and the baselines to a record."""
    known: dict[str, Any] = {}

    def complete(record: Record) -> Record:
        summary, config = record["summary"], record["config"]
        pipeline = registry.get(summary["pipeline"])
        if study and (planned := study.configuration_of(record["command"])):
            record = record | {"planned": planned}
        # Only the tables of triplets read predictions; the first studies' records have no files.
        if pipeline.kind != "scorer" and "files" in record:
            files = record["files"].items()
            kept = {name: text for name, text in files if not name.startswith("predictions/")}
            if lines := kept.get(STATISTICS):
                systems = {name: packed(unpacked(one)) for name, one in lines["systems"].items()}
                kept[STATISTICS] = lines | {"systems": systems}
            record = record | {"files": kept}
        if pipeline.baselines is None or "baselines" in summary:
            return record
        sections = [config.get(section) for section in registry.DECIDE_BASELINES]
        key = json.dumps([pipeline.name, sections])
        if key not in known:
            typed = build(pipeline.config_of_run, config)
            known[key] = finite(pipeline.baselines(typed))
        return record | {"summary": summary | {"baselines": known[key]}}

    return complete


@script()
def main() -> None:
    parser = Arguments(__doc__)
    parser.add_argument("study", type=Path, help="folder under experiments/ that has a PLAN.md")
    parser.add_argument("runs", nargs="*", type=Path, help="folders of finished runs")
    arguments = parser.parse_args()
    require_plan(arguments.study)
    complete = completing(read_study(arguments.study))
    for name in write_recorded(arguments.study, arguments.runs, complete):
        print(f"{arguments.study}: {name}")


if __name__ == "__main__":
    main()
