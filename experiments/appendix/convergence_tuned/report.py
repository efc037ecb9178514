"""The block of REPORT.md: the last loss of every configuration of several studies."""

import math
from pathlib import Path

from roformer.report.curves import loss_of
from roformer.report.pages import matching
from roformer.report.runs import ENDED, Runs
from roformer.report.tables import Table, excluded_runs, mean_text, named


def final_tables(runs: Runs) -> list[Table]:
    """Return the last validation loss of each configuration, grouped by model, lowest first."""
    loss = loss_of(runs.runs)
    metric, entropy = loss.metric, loss.entropy
    ended = runs.runs.status.isin(ENDED)
    frame = named(runs.runs[ended])
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
    notes = [about, *excluded_runs(runs.runs[~ended], frame)]
    return [Table(f"{metric} after the last step", lines, notes=notes)]


def final(folder: Path, words: list[str]) -> list[Table]:
    """`final RUN …`: the losses after the last step."""
    return final_tables(matching(folder, words))
