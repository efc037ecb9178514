"""The blocks of REPORT.md: trainings in stages against trainings of one stage."""

from pathlib import Path

from roformer.report.runs import read_runs
from roformer.report.scores import paired_table
from roformer.report.stages import read_stages
from roformer.report.tables import Table, mean_lines


def stages(folder: Path, words: list[str]) -> list[Table]:
    """Return means and paired differences of trainings of as many tokens that end at the same length."""
    every, tables = read_stages(read_runs([folder]).runs), []
    frame = every[every.after == every.stages]
    for (length, tokens), part in frame.groupby(["length", "tokens"], sort=False):
        (single,) = part[part.stages == 1].name.unique()
        part = part.sort_values("stages", kind="stable")
        title = (
            f"Stages and one stage of as many tokens ({tokens:,}), validated on {length:,} tokens"
        )
        note = (
            "Mean ± standard deviation over seeds (n); steps of sequences × tokens, stage by stage."
        )
        means = mean_lines(part.assign(training=part.name), "training", "metric", 3)
        tables.append(Table(title, means, notes=[note]))
        title = f"Validated on {length:,} tokens: paired differences from one stage"
        tables.append(paired_table(part, single, "metric", title, digits=3))
    several = every[every.stages > 1]
    labels = several.name + "; after stage " + several.after.astype(str)
    means = mean_lines(several.assign(training=labels), "training", "metric", 3)
    note = "Each stage is validated on blocks of its own length; the targets of two lengths differ."
    return [*tables, Table("After each stage", means, notes=[note])]
