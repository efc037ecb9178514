"""Curves of losses: at equal steps, steps to equal losses, and the loss by position.

A configuration's runs differ in the seed. For one seed the text, its order and the masks are the same in
all configurations that differ in the model alone, so these are compared in pairs of a seed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from roformer.errors import one_line
from roformer.pipelines.registry import Loss
from roformer.report.runs import ENDED, LOSSES, RecordError, Runs, settings_of
from roformer.report.scores import Scored, paired_table, pipeline_of
from roformer.report.statistics import Interval, bootstrap_interval, bootstrap_limit
from roformer.report.tables import (
    Table,
    check_seeds,
    differing_keys,
    find_baseline,
    mean_lines,
    named,
)

QUARTERS = (0.25, 0.5, 0.75, 1.0)
"""Shares of the steps at which configurations are compared, besides the end."""
FALLING = ("loss", "bits_per_byte", "perplexity")
"""In the names of metrics of which lower is better."""
VALIDATION = ("masking", "training.sequence_length", "training.valid_sequences")
"""Keys of a config that decide, beside the prepared data, which targets a validation loss is of."""
NGRAMS = "n-grams with Kneser-Ney smoothing"
POSITIONS = "positions.json"
"""File of a run with its loss by the number of tokens before the predicted one."""
DATA = {
    "data": "data.kind",
    "vocabulary": "data.tokenizer.vocab_size",
    "sequence length": "training.sequence_length",
}
"""Words for what a run validates on → keys of its config."""
Seeds = dict[int, dict[int, float]]
"""Seed → step → value."""


def loss_of(runs: pd.DataFrame) -> Loss:
    """Return what the curves of these runs are of.

    Raises:
        RecordError: they are of several pipelines, or of one without such a metric.
    """
    pipeline = pipeline_of(runs)
    if pipeline not in LOSSES:
        known = ", ".join(LOSSES)
        raise RecordError(
            f"{runs.folder.iloc[0]} is a run of {pipeline}: only {known} have curves of a loss"
        )
    return LOSSES[pipeline]


def read_curves(runs: Runs, metric: str) -> pd.DataFrame:
    """Return one row a run and evaluation, by run and step.

    Returns:
        study, run, folder, name (see `named`), position, seed, step, value, and the samples and tokens
        that were read until the step, NaN where no line of it says so.

    Raises:
        RecordError: a run has no such metric; says which it has.
    """
    rows, keys = named(runs.runs), ["study", "run"]
    logged = runs.metrics[runs.metrics.run.isin(set(rows.run))]
    read = logged.groupby([*keys, "step"], as_index=False)[["samples", "tokens"]].last()
    found = logged.loc[logged.metric == metric, [*keys, "step", "value"]]
    found = found.drop_duplicates([*keys, "step"], keep="last").merge(read, "left")
    about = rows[[*keys, "folder", "name", "position", "seed"]].reset_index(drop=True)
    for key, folder in rows.folder[~rows.index.isin(found.set_index(keys).index)].items():
        own = logged[(logged.study == key[0]) & (logged.run == key[1])]
        known = ", ".join(sorted(set(own.metric)))
        raise RecordError(f"{folder} has no {metric}: choose one of {known}")
    return about.merge(found).astype({"seed": int})


def curve_tables(
    runs: Runs, metric: str, baseline: str | None = None, *, each_run: bool = False
) -> list[Table]:
    """Return values at equal steps and steps to equal losses, of comparable runs in tables of their own.

    A loss depends on the vocabulary and on the validation text, so runs share a table only where the
    fingerprint of the prepared data and the settings of validation are the same.

    Args:
        runs: finished or not; what did not end is told of.
        metric: of those that are not `FALLING` there is no table of steps.
        baseline: the configuration compared with the others, or a part of its name; None: the first.
        each_run: each run stands alone; else runs that differ in the seed are one configuration, and
            differences from the baseline are tested.

    Raises:
        RecordError: two runs of one configuration and seed; no run that ended, or no step at which all
            were evaluated.
    """
    rows = runs.runs
    told = [
        f"Left out: {run['run']}: {run['reason']}."
        for run in rows[~rows.status.isin(ENDED)].to_dict("records")
    ]
    told += [
        f"Counted, though {run['status']}: {run['run']}."
        for run in rows[rows.status == "degenerate"].to_dict("records")
    ]
    rows = rows[rows.status.isin(ENDED)]
    if rows.empty:
        raise RecordError(f"none of these runs ended: {' '.join(told) or 'give folders of runs'}")
    groups = [group for _, group in rows.groupby(rows.apply(_validated_on, axis=1), sort=False)]
    tables = []
    for number, group in enumerate(groups, 1):
        about = ""
        if len(groups) > 1:
            about = f" (validation set {number} of {len(groups)}: {_data_of(group.iloc[0])})"
        if each_run:
            labels = group.label + ", seed " + group.seed.astype(str)
            if labels.duplicated().any():  # they differ in something else: the id tells them apart
                labels = group.run
            group = group.assign(label=labels, configuration=group.run)
        tables += _tables(runs._replace(runs=group), metric, baseline, about, told, each_run)
    return tables


def _tables(
    runs: Runs, metric: str, baseline: str | None, about: str, told: Sequence[str], each_run: bool
) -> list[Table]:
    frame = read_curves(runs, metric)
    base = find_baseline(frame.name, baseline)
    frame = frame.sort_values("name", key=lambda names: names != base, kind="stable")
    check_seeds(frame, "name", "step")
    steps = frame.groupby("step").run.count()
    common = [int(step) for step in steps.index[steps == len(runs.runs)]]
    if not common:
        raise RecordError("there is no step at which all these runs were evaluated")
    at = frame[frame.step.isin(common)].sort_values("step", kind="stable")
    read = LOSSES[loss].read if (loss := runs.runs.pipeline.iloc[0]) in LOSSES else "tokens"
    header, *lines = mean_lines(at, "step", "name", 3)
    if each_run:
        lines = [[step, *(cell.removesuffix(" (1)") for cell in cells)] for step, *cells in lines]
    values = [["steps", "sequences", read, *header[1:]]]
    values += [[f"{step:,}", *_amounts(at[at.step == step]), *cells] for step, *cells in lines]
    counted = told or [f"All {len(runs.runs)} runs ended, and are counted."]
    notes = [*counted, "Mean ± standard deviation over seeds (and how many they are)."]
    one_each = {
        name: settings_of(run)
        for name, run in zip(named(runs.runs).name, runs.runs.to_dict("records"), strict=True)
    }
    keys = differing_keys(one_each.values())
    if simple := baselines_of(runs.runs, metric):
        worth = ", ".join(
            f"{name} {' / '.join(f'{value:.3f}' for value in sorted(set(values)))}"
            for name, values in simple.items()
        )
        notes.append(
            f"Counted in as much of the training text as the runs read ({NGRAMS}): {worth}."
        )
    if len(one_each) > 1:
        notes.append(f"All that the configurations differ in: {', '.join(keys)}.")
    tables = [Table(f"{metric} at equal steps{about}", values, text_columns=0, notes=notes)]
    if len(header) == 2:
        return tables
    curves: dict[str, Seeds] = {name: {} for name in header[1:]}
    for (name, seed), part in frame.groupby(["name", "seed"], sort=False):
        curves[name][seed] = dict(zip(part.step, part.value, strict=True))
    if not each_run:
        shared = "The text, order and masks are the same. "
        if any(not key.startswith("model.") for key in keys):
            shared = "Not the model alone differs, so text, order and masks may as well. "
        quarters = at[at.step.isin(_quarters(common))]
        title = f"{metric}: paired differences from {base}{about}"
        tables.append(
            paired_table(quarters, base, "step", title, Scored("", digits=3), note=shared)
        )
    if any(word in metric for word in FALLING) and each_run:
        tables.append(_all_steps_to(curves, f"Steps to {metric} of the others' ends{about}"))
    elif any(word in metric for word in FALLING):
        tables.append(_ratios(curves, frame, base, metric + about, read))
    return tables


def baselines_of(runs: pd.DataFrame, metric: str) -> dict[str, list[float]]:
    """Return name of a trivial baseline → its value for a metric, of each run that has one."""
    found: dict[str, list[float]] = {}
    for summary in runs.summary:
        for name, values in summary.get("baselines", {}).items():
            if (value := values.get(metric)) is not None:
                found.setdefault(name, []).append(float(value))
    return found


def _validated_on(run: Mapping[str, Any]) -> str:
    """Return what must be equal for the validation losses of two runs to be comparable."""
    prefixes = tuple(f"{key}." for key in VALIDATION)
    settings = [(k, v) for k, v in sorted(run["config"].items()) if f"{k}.".startswith(prefixes)]
    return f"{run['environment'].get('data')} {settings}"


def _data_of(run: Mapping[str, Any]) -> str:
    """Return the data, vocabulary and length that a run validates on, in words."""
    found = {name: run["config"].get(key) for name, key in DATA.items()}
    shown = [f"{k} {v:,}" if isinstance(v, int) else f"{k} {v}" for k, v in found.items() if v]
    return ", ".join([*shown, f"fingerprint {str(run['environment'].get('data'))[:8]}"])


def _amounts(rows: pd.DataFrame) -> list[str]:
    """Return samples and tokens that runs had read after a step; a mean where they differ a little.

    They do where one run had the text's last block, which is not full, and another had not yet.
    """
    shown = []
    for amounts in (rows.samples, rows.tokens):
        low, high = amounts.min(), amounts.max()
        about = "" if low == high else "≈ "
        known = not amounts.isna().any() and high <= 1.01 * low
        shown.append(f"{about}{amounts.mean():,.0f}" if known else "")
    return shown


# --- steps to a loss -----------------------------------------------------------------------------


def reach(points: Mapping[int, float], target: float) -> Interval:
    """Return the steps until a metric first is at most `target`, as far as evaluations tell.

    Between two evaluations the curve is a straight line: both ends are then the same. A run that is
    there at its first evaluation was there at some step before; one that is never there would be after
    its last step, if at all.
    """
    before: tuple[int, float] | None = None
    for step, value in sorted(points.items()):
        if math.isnan(value):
            continue
        if value <= target:
            if before is None:
                return Interval(0.0, float(step))
            then, higher = before
            found = then + (step - then) * (higher - target) / (higher - value)
            return Interval(found, found)
        before = (step, value)
    return Interval(float(max(points)), math.inf)


def _mean_reach(seeds: Sequence[Mapping[int, float]], target: float) -> Interval:
    found = [reach(points, target) for points in seeds]
    return Interval(fmean(one.low for one in found), fmean(one.high for one in found))


def _all_steps_to(curves: Mapping[str, Seeds], title: str) -> Table:
    """Return one line a configuration: after how many steps each one is where it is at its end."""
    lines = [["end of", "loss", *curves]]
    for name, seeds in curves.items():
        loss = fmean(points[max(points)] for points in seeds.values())
        found = [_mean_reach([*one.values()], loss) for one in curves.values()]
        texts = ["–" if math.isnan(loss) else _bounds(one, "{:,.0f}") for one in found]
        lines.append([name, "NaN" if math.isnan(loss) else f"{loss:.3f}", *texts])
    note = (
        "Between two evaluations a curve is a straight line; the loss is the mean over seeds, the steps "
        "are the mean of those of the seeds. ≤: some were there at the first evaluation; >: some are not "
        "there at their end."
    )
    return Table(title, lines, notes=[note])


def _ratios(
    curves: Mapping[str, Seeds], frame: pd.DataFrame, base: str, metric: str, read: str
) -> Table:
    """Return when the baseline is where the others are at each quarter, and when they are at its end."""
    numbers = ["steps", "sequences", read, "ratio", "95 % (bootstrap)", "not reached"]
    lines = [["configuration", "is at the loss of", "after", "loss", *numbers]]
    others = [name for name in curves if name != base]
    quarters = {
        name: _quarters(sorted(set.intersection(*map(set, seeds.values()))))
        for name, seeds in curves.items()
    }
    pairs = [(base, other, step) for other in others for step in quarters[other]]
    pairs += [(other, base, quarters[base][-1]) for other in others]
    for name, other, step in pairs:
        own = frame[frame.name == name].sort_values("seed", kind="stable").drop_duplicates("step")
        own = own.set_index("step")[["samples", "tokens"]].dropna()
        lines.append([name, other, f"{step:,}", *_ratio(curves[name], curves[other], step, own)])
    seeds = max(len(curves[base].keys() & curves[other].keys()) for other in others)
    notes = [
        "Steps until the metric first is at most the loss, the other configuration's mean after so many "
        "steps. Ratio: of the steps to those of the other configuration; below 1 is faster. ≤: some seeds "
        "were there at the first evaluation.",
        "A run that never gets there counts as still under way at its end: the mean is then a lower "
        "bound (>), and the interval has no upper end (≥).",
        "The interval is the percentile bootstrap of the ratio over seeds, drawn for both configurations "
        "together, so that the loss moves with them. " + bootstrap_limit(seeds),
    ]
    return Table(f"Steps until {metric} is that of another configuration", lines, 2, notes)


def _ratio(ours: Seeds, theirs: Seeds, step: int, read: pd.DataFrame) -> list[str]:
    """Return the cells that say when a configuration is where another one is after a step."""
    common = [seed for seed in ours if seed in theirs]
    losses = np.array([theirs[seed][step] for seed in common])
    if not common or np.isnan(losses).any():
        return ["NaN" if common else "–", *["–"] * 6]
    points = [ours[seed] for seed in common]

    def ratio(end: int) -> Callable[[NDArray[np.intp]], float]:
        return lambda draw: _mean_reach([points[i] for i in draw], fmean(losses[draw]))[end] / step

    def amount(steps: float, column: str) -> float:
        """Return the sequences or tokens of so many steps, NaN where no run noted them."""
        if math.isinf(steps) or read.empty:
            return math.nan if read.empty else steps
        return float(np.interp(steps, [0, *read.index], [0, *read[column]]))

    mean = _mean_reach(points, fmean(losses))
    amounts = [Interval(*(amount(end, one) for end in mean)) for one in ("samples", "tokens")]
    lows, highs = (bootstrap_interval(len(common), ratio(end)) for end in (0, 1))
    never = sum(math.isinf(reach(one, fmean(losses)).high) for one in points)
    return [
        f"{fmean(losses):.3f}",
        *(_bounds(one, "{:,.0f}") for one in (mean, *amounts)),
        _bounds(Interval(mean.low / step, mean.high / step), "{:.2f}"),
        _open(Interval(lows.low, highs.high)) if lows and highs else "–",
        f"{never} of {len(common)}",
    ]


def _bounds(mean: Interval, form: str) -> str:
    """Return a mean of which maybe only bounds are known."""
    low, high = (form.format(end) for end in mean)
    if math.isnan(mean.low):
        return ""
    if math.isinf(mean.high):
        return f"> {low}"
    return low if mean.low == mean.high else f"≤ {high}"


def _open(interval: Interval) -> str:
    """Return a bootstrap interval of ratios, one-sided where an end is open."""
    low, high = f"{interval.low:.2f}", f"{interval.high:.2f}"
    if math.isinf(interval.high):
        return f"≥ {low}"
    return f"≤ {high}" if interval.low == 0 else f"{low} to {high}"


def _quarters(steps: Sequence[int]) -> list[int]:
    """Return the last evaluated steps before each quarter of the way."""
    steps = [step for step in steps if step > 0]
    places = [
        max([s for s in steps if s <= p * steps[-1]], default=steps[0]) for p in QUARTERS if steps
    ]
    return list(dict.fromkeys(places))


# --- language models: the loss by position -------------------------------------------------------


def read_positions(runs: Runs) -> pd.DataFrame:
    """Return one row a run, length and range of tokens seen, of the ended runs with a positions.json.

    Returns:
        name, position, seed, text, trained (the length of the training; what is read beyond it is beyond
        the paper), length, first and last (tokens seen; 0: the mean over the length), loss, and reason:
        why a length was not read, where it was not.

    Raises:
        RecordError: a positions.json is damaged.
    """
    found = []
    rows = runs.runs[runs.runs.status.isin(ENDED)]
    for run in named(rows.loc[[POSITIONS in files for files in rows.files]]).to_dict("records"):
        file, about = (
            run["files"][POSITIONS],
            {key: run[key] for key in ("name", "position", "seed")},
        )
        try:
            about |= {"text": one_line(file["text"]), "trained": int(file["trained_length"])}
            for one in file["lengths"]:
                whole = {"seen": [0, 0], "loss": one["loss"]}
                for row in (whole, *one["rows"]):
                    first, last = row["seen"]
                    place = {"length": one["length"], "first": first, "last": last}
                    found.append(about | place | {"value": float(row["loss"])})
            for one in file["left_out"]:
                found.append(about | {"length": one["length"], "reason": one_line(one["reason"])})
        except (KeyError, TypeError, ValueError) as error:
            raise RecordError(
                f"{run['folder']}/{POSITIONS} is not what a run wrote: {error}"
            ) from error
    columns = ["name", "position", "seed", "text", "trained", "length", "first", "last", "value"]
    return pd.DataFrame(found, columns=[*columns, "reason"])


def position_tables(runs: Runs, baseline: str | None = None) -> list[Table]:
    """Return the loss by tokens seen, and by length where more than the trained one was read."""
    frame = read_positions(runs)
    if frame.empty:
        return []
    base, read = find_baseline(frame.name, baseline), loss_of(runs.runs).read
    frame = frame.sort_values("name", key=lambda names: names != base, kind="stable")
    tables = []
    for trained, every in frame.groupby("trained", sort=False):
        part = every[every.reason.isna()].astype({"first": int, "last": int})
        seen = part[(part.length == trained) & (part["last"] > 0)].sort_values(
            ["first", "last"], kind="stable"
        )
        spans = zip(seen["first"], seen["last"], strict=True)
        seen = seen.assign(span=[f"{a:,}" if a == b else f"{a:,}-{b:,}" for a, b in spans])
        header, *lines = mean_lines(seen, "span", "name", 3, "–")
        note = (
            f"Loss in nats of {part.text.iloc[0]}, read in blocks of {trained:,}, as trained: the mean over "
            f"the {read} that are predicted from so many. Mean ± standard deviation over seeds (n)."
        )
        lines = [[f"{read} seen", *header[1:]], *lines]
        tables.append(Table(f"Loss by how many {read} are seen", lines, notes=[note]))
        whole = part[part["last"] == 0].sort_values("length", kind="stable")
        if [*whole.length.unique()] != [trained]:
            lengths = [f"{n:,}{' (trained)' if n == trained else ''}" for n in whole.length]
            notes = [
                "Beyond the paper: the same tokens predicted in longer blocks, without more training; "
                "loss in nats, mean ± standard deviation over seeds (n)."
            ]
            missing = every[every.reason.notna()].drop_duplicates(["name", "reason"])
            notes += [
                f"–: {row.name_}: {row.reason}."
                for row in missing.rename(columns={"name": "name_"}).itertuples()
            ]
            lines = mean_lines(whole.assign(length=lengths), "length", "name", 3, "–")
            tables.append(Table("Loss beyond the trained length", lines, notes=notes))
    return tables
