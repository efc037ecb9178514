"""Compare runs with a baseline: `python scripts/wmt_compare.py runs/wmt/BASELINE runs/wmt/RUN …`.

Paired bootstrap resampling of the test set, translated by each run's averaged checkpoints. It
resamples the `bleu_statistics.json` of runs; a study means its recorded runs. With `--seeds`
runs that differ only in the seed are one configuration.
"""

from pathlib import Path

from roformer.report.resampling import METRIC, bleu_table, scored_on
from roformer.report.runs import RecordError, read_runs
from roformer.report.scores import scores
from roformer.report.tables import excluded_runs, unique_ids
from roformer.script import Arguments, at_least, script


def compare(paths: list[Path], samples: int, seed: int, *, seeds: bool = False) -> str:
    """Return the table of the runs; the first run is the baseline."""
    runs = read_runs(paths).runs
    if not seeds:
        runs = runs.assign(configuration=unique_ids(runs), label=unique_ids(runs))
    frame = scores(runs)
    if frame.group.nunique() != 1:
        raise RecordError("these runs have no scores, or not all of one test set and signature")
    if METRIC not in set(frame.metric):
        raise RecordError("these are no translations: give runs under runs/wmt/")
    table = bleu_table(frame, frame.name.iloc[0], samples=samples, seed=seed)
    excluded = excluded_runs(runs[~runs.folder.isin(frame.folder)], frame)
    return table._replace(notes=[*scored_on(frame), *table.notes, *excluded]).markdown()


@script(prints=True)
def main() -> None:
    parser = Arguments(__doc__)
    parser.add_argument("runs", nargs="+", type=Path, help="runs or studies, the baseline first")
    parser.add_argument("--seeds", action="store_true", help="runs are seeds of configurations")
    parser.add_argument("--samples", type=at_least(1), default=1000)
    parser.add_argument("--seed", type=at_least(0), default=12345)
    arguments = parser.parse_args()
    print(compare(arguments.runs, arguments.samples, arguments.seed, seeds=arguments.seeds))


if __name__ == "__main__":
    main()
