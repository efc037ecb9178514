"""Translation tables out of run records: one row an arm, one table a test set and signature.

Scores with different signatures, or of different test sets, never stand in one column. That is why
the paper's Table 1 is not printed beside them: its 27.3 (Transformer-base) and 27.5 (RoFormer) are
tokenised BLEU of newstest2014, most likely with split compounds, and no signature tells. sacreBLEU
of the same translations is about 0.5-1 lower.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from roformer.report.records import Folder, RecordError, configuration, read_config, read_summary
from roformer.report.tables import arm_names, code, escaped, markdown, run_label

COLUMNS = {
    "test/sacrebleu": "sacreBLEU",
    "test/sacrebleu_single": "sacreBLEU, last checkpoint",
    "test/chrf": "chrF",
    "test/bleu_compound": "compound BLEU",
}
"""Metric → column; of the averaged checkpoints, unless it says otherwise."""
SIGNATURES = {"sacrebleu": "sacreBLEU", "chrf": "chrF", "bleu_compound": "compound BLEU"}
"""Key of a summary's `signatures` → what it is called in tables."""


KEYS = ("model", "position", "seed", "status", "metrics")
"""Of a summary."""


class Run(NamedTuple):
    """The record of a translation run."""

    folder: Folder
    summary: dict[str, Any]
    settings: str
    """All that the runs of an arm share, as JSON: they differ in the seed alone."""

    @property
    def label(self) -> str:
        return run_label(self.summary)

    @property
    def has_scores(self) -> bool:
        return self.summary["status"] != "failed" and "test_set" in self.summary

    @property
    def scored_by(self) -> str:
        """Test set and signatures: runs are compared only where these are the same."""
        return json.dumps([self.summary["test_set"], self.summary["signatures"]], sort_keys=True)

    def value(self, metric: str) -> float:
        """Return a metric; NaN where it is not defined."""
        value = self.summary["metrics"].get(metric)
        return math.nan if value is None else float(value)


def read_runs(folders: Iterable[Folder]) -> list[Run]:
    """Return the records of translation runs.

    Raises:
        RecordError: a folder without a summary or config, of another pipeline, or damaged; two runs
            of one arm and seed, which would be counted as two seeds.
    """
    runs: list[Run] = []
    seeds: dict[tuple[str, int], Folder] = {}
    for folder in folders:
        for path in (folder / "summary.json", folder / "config.yaml"):
            if not path.is_file():
                raise RecordError(f"{folder} has no {path.name}: it did not end, or is no run")
        pipeline = read_summary(folder, "pipeline")["pipeline"]
        if pipeline != "wmt":
            raise RecordError(f"{folder} is a run of {pipeline}, not of wmt")
        summary = read_summary(folder, *KEYS)
        if "test_set" in summary:
            read_summary(folder, "signatures")
        run = Run(folder, summary, configuration(summary, read_config(folder)))
        runs.append(run)
        if not run.has_scores:
            continue
        known = seeds.setdefault((run.settings, summary["seed"]), folder)
        if known is not folder:
            raise RecordError(
                f"{known} and {folder} have the same settings and seed: leave one of them out, or "
                "it counts as another seed"
            )
    return runs


def one_test_set(runs: Iterable[Run]) -> list[Run]:
    """Return the runs that have scores.

    Raises:
        RecordError: none has, or they have several test sets or signatures.
    """
    scored = [run for run in runs if run.has_scores]
    if not scored:
        raise RecordError("none of these runs has scores: give folders like runs/wmt/*")
    for run in scored:
        if run.scored_by != scored[0].scored_by:
            raise RecordError(
                f"{run.folder} has another test set or signature than {scored[0].folder}: compare "
                "runs that have the same"
            )
    return scored


def wmt_tables(folders: Iterable[Folder]) -> str:
    """Return one Markdown table a test set and signature, and below what they leave out.

    Cells are the mean ± the standard deviation over seeds (and how many they are).

    Args:
        folders: of finished translation runs.

    Raises:
        RecordError: see `read_runs`; or there is nothing to show.
    """
    runs = read_runs(folders)
    if not runs:
        raise RecordError("none of these runs is finished: give folders like runs/wmt/*")
    names = arm_names((run.label, run.settings) for run in runs)
    tables: dict[str, list[Run]] = {}
    for run in runs:
        if run.has_scores:
            tables.setdefault(run.scored_by, []).append(run)
    parts = [_table(group, names) for group in tables.values()]
    for run in runs:
        where, status = escaped(names[run.settings]), escaped(run.summary["status"])
        if not run.has_scores:
            parts.append(
                f"Left out, without scores: {code(run.folder.name)} ({where}) is {status}."
            )
        elif status != "done":
            parts.append(f"Counted, though {status}: {code(run.folder.name)} ({where}).")
    return "\n\n".join(parts)


def _table(runs: Sequence[Run], names: dict[str, str]) -> str:
    """Return the table of runs with one test set and signature."""
    lines = [["model", *COLUMNS.values()]]
    arms: dict[str, list[Run]] = {}
    for run in sorted(runs, key=lambda run: names[run.settings]):
        arms.setdefault(run.settings, []).append(run)
    for settings, seeds in arms.items():
        values = [[run.value(metric) for run in seeds] for metric in COLUMNS]
        lines.append([names[settings], *map(_mean, values)])
    test_set, signatures = runs[0].summary["test_set"], runs[0].summary["signatures"]
    title = (
        f"**{escaped(test_set['name'])}**, {test_set['lines']:,} lines "
        f"(fingerprint {escaped(test_set['fingerprint'][:12])})"
    )
    how = [
        f"- {escaped(SIGNATURES.get(key, key))}: {code(value)}" for key, value in signatures.items()
    ]
    return "\n\n".join([title, markdown(lines, text_columns=1), "\n".join(how)])


def _mean(values: list[float]) -> str:
    if any(map(math.isnan, values)):
        return f"NaN ({len(values)})"
    spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.2f}{spread} ({len(values)})"
