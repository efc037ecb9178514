"""The blocks of REPORT.md, also of other studies: the final loss by learning rate."""

import json
import math
from pathlib import Path

import pandas as pd

from roformer.report.curves import validated_on, validation_of
from roformer.report.drawing import Panel, draw_ordered
from roformer.report.pages import matching
from roformer.report.runs import ENDED, LOSSES, SPIKES, RecordError, Runs, settings_of
from roformer.report.scores import pipeline_of
from roformer.report.tables import Table, figure_markdown, mean_text, named, tables_by_group

RATE = "optimizer.learning_rate"
CHOSEN_BY = {name: loss.metric for name, loss in LOSSES.items()} | {"wmt": "valid/loss"}
"""Pipeline → the validation loss by which learning rates are compared."""
CAPTION = (
    "Validation loss after the last step against the learning rate. Points: single seeds, lines: the mean of "
    "those that ended; diverged runs are not drawn."
)


def read_rates(runs: Runs) -> pd.DataFrame:
    """Return one row per run that ended or diverged, of configurations with several learning rates.

    At least two of their rates have a run that ended. A configuration is all settings except the rate.

    Returns:
        The columns of the runs and: name, rate, diverged (its loss was not finite), value (the last
        validation loss; NaN if it diverged), spikes (NaN if not recorded), best (the rate has the lowest
        mean of its configuration, among rates at which no run diverged).
    """
    metric = CHOSEN_BY[pipeline_of(runs.runs)]
    rows = []
    for run in runs.runs.to_dict("records"):
        diverged = run["status"] == "failed" and run["reason"].startswith("Diverged")
        if run["status"] not in ENDED and not diverged:
            continue
        settings = {key: value for key, value in settings_of(run).items() if key != RATE}
        spikes = run["files"].get(SPIKES)
        last = None if diverged else run["summary"]["metrics"].get(metric)
        rows.append(
            run
            | {"config": settings, "configuration": json.dumps(settings, sort_keys=True)}
            | {"rate": run["config"].get(RATE), "diverged": diverged}
            | {"value": math.nan if last is None else last}
            | {"spikes": math.nan if spikes is None else _spikes(spikes)}
        )
    columns = [*runs.runs.columns, "rate", "diverged", "value", "spikes"]
    frame = named(pd.DataFrame(rows, columns=columns)).astype({"diverged": bool, "value": float})
    ended = frame[~frame.diverged].groupby("configuration").rate.nunique()
    frame = frame[frame.configuration.isin(set(ended.index[ended > 1]))]
    means = frame.groupby(["name", "rate"]).value.agg(lambda values: values.mean(skipna=False))
    best = set(means.dropna().groupby("name").idxmin())
    chosen = [key in best for key in zip(frame.name, frame.rate, strict=True)]
    return frame.assign(best=chosen).sort_values(["name", "rate", "seed"], kind="stable")


def _spikes(text: str) -> int:
    """Return the number of recorded spikes, without the step at which the run diverged."""
    return text.count("\n") - text.count('"loss": null')


def rate_tables(runs: Runs) -> list[Table]:
    """Return the results of each learning rate, for configurations with several; see `read_rates`."""
    groups = [group for _, group in runs.runs.groupby(validated_on(runs.runs), sort=False)]
    frames = [read_rates(runs._replace(runs=group)) for group in groups]
    frames = [frame for frame in frames if not frame.empty]
    return tables_by_group(frames, validation_of, lambda frame: [_rate_table(frame)])


def _rate_table(frame: pd.DataFrame) -> Table:
    numbers = ["runs", "diverged", "degenerate", "spikes", "final loss"]
    lines = [["configuration", "learning rate", *numbers]]
    for (name, rate), part in frame.groupby(["name", "rate"], sort=False):
        values, spikes = part.value[~part.diverged], part.spikes.sum(skipna=False)
        counts = (len(part), part.diverged.sum(), (part.status == "degenerate").sum())
        lines.append(
            [
                name,
                f"{rate:g}{' ←' if part.best.iloc[0] else ''}",
                *map(str, counts),
                "–" if math.isnan(spikes) else f"{spikes:.0f}",
                mean_text([*values], 3) if len(values) else "–",
            ]
        )
    notes = [
        "Diverged: the loss or its gradient was not finite. Degenerate: it ended above the unigram "
        "entropy. Final loss: the last on validation, mean ± standard deviation over the seeds that "
        "did not diverge (n). ←: the lowest mean, of rates where no run diverged.",
        "A spike is a step whose training loss is above the running mean m of about ten steps "
        "before by more than the greatest of 6 s, m / 5 and 0.1 nat, where s is the noise of about "
        "50; of several between two log lines one counts. –: recorded before spikes were.",
    ]
    return Table(f"{CHOSEN_BY[frame.pipeline.iloc[0]]} by learning rate", lines, 2, notes)


def figure(folder: Path, words: list[str]) -> str:
    """`figure PNG RUN …`: the final validation loss against the learning rate."""
    name, *sources = words
    frame = read_rates(matching(folder, sources))
    if frame.empty:
        raise RecordError("none of these configurations was run with several learning rates")
    metric, rates = CHOSEN_BY[frame.pipeline.iloc[0]], sorted(frame.rate.unique())
    panel = Panel("learning rate", metric, log="x", ticks=rates)
    points = frame.assign(panel=0, x=frame.rate, y=frame.value)[~frame.diverged]
    draw_ordered(folder / name, points, [panel], points=True, size=(5.6, 3.6))
    return figure_markdown(CAPTION, name)


def rates(folder: Path, words: list[str]) -> list[Table]:
    """`rates RUN …`: the results of each learning rate."""
    return rate_tables(matching(folder, words))
