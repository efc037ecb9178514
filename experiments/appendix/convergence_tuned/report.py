"""The block of REPORT.md: the last loss of every configuration of several studies."""

import math
from pathlib import Path

from roformer.report.curves import loss_of
from roformer.report.pages import matching
from roformer.report.runs import ENDED
from roformer.report.tables import Table, excluded_runs, mean_text, named


def final(folder: Path, words: list[str]) -> list[Table]:
    """`final RUN …`: the last validation loss of each configuration, grouped by model, lowest first."""
    runs = matching(folder, words).runs
    loss, ended = loss_of(runs), runs.status.isin(ENDED)
    metric, entropy = loss.metric, loss.entropy
    frame = named(runs[ended])
    frame = frame.assign(
        value=[summary["metrics"][metric] for summary in frame.summary],
        entropy=[summary["metrics"].get(entropy, math.nan) for summary in frame.summary],
    )
    mean = frame.groupby("name").value.transform("mean")
    frame = frame.assign(mean=mean).sort_values(["label", "mean", "name"], kind="stable")
    lines = [["configuration", metric, "unigram entropy"]]
    for name, part in frame.groupby("name", sort=False):
        entropies = sorted({f"{value:.6f}" for value in part.entropy.dropna()})
        lines.append([name, mean_text([*part.value], 3), ", ".join(entropies)])
    about = "Mean ± standard deviation over seeds (n)."
    notes = [about, *excluded_runs(runs[~ended], frame)]
    return [Table(f"{metric} after the last step", lines, notes=notes)]
