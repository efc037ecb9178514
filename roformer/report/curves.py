"""Curves of losses: at equal steps, steps to equal losses, and by position.

A configuration's runs differ in the seed. For one seed the text, its order and the masks are the same in
all configurations that differ only in the model, so they are compared in pairs by seed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

import pandas as pd

from roformer.errors import one_line
from roformer.registry import Loss
from roformer.report.runs import ENDED, LOSSES, RecordError, Runs, settings_of
from roformer.report.scores import pipeline_of
from roformer.report.statistics import paired
from roformer.report.tables import (
    Table,
    differing_keys,
    excluded_runs,
    find_baseline,
    first_of_each_seed,
    interval_text,
    mean_lines,
    named,
    paired_table,
    tables_by_group,
    unique_ids,
)

ROWS = 12
"""Most rows of a table of values at equal steps."""
QUARTERS = (0.25, 0.5, 0.75, 1.0)
"""Shares of the steps at which configurations are compared."""
OFF_THE_PLATEAU = 0.5
"""Nats below the unigram entropy at which a run has left the plateau of word frequencies."""
LOSSES_PER_PAIR, LEAST_GAP = 6, 0.05
"""Most losses at which two configurations are compared, in addition to the lowest, and the least distance."""
VALIDATION = ("masking", "objective", "training.sequence_length", "training.valid_sequences")
"""Keys of a config that decide, together with the prepared data, the targets of a validation loss."""
POSITIONS = "positions.json"
"""File of a run with its loss by the number of tokens before the predicted one."""
TEXT = ("data.kind", "data.tokenizer.source", "data.tokenizer.vocab_size")
"""Keys of a config that describe the validation text in words."""
Seeds = dict[int, dict[int, float]]
"""Seed → step → value."""


def loss_of(runs: pd.DataFrame) -> Loss:
    """Return the loss that the curves of these runs show."""
    pipeline = pipeline_of(runs)
    if pipeline not in LOSSES:
        known = ", ".join(LOSSES)
        raise RecordError(
            f"{runs.folder.iloc[0]} is a run of {pipeline}: only {known} have curves of a loss"
        )
    return LOSSES[pipeline]


def read_curves(runs: Runs, metric: str) -> pd.DataFrame:
    """Return one row per run and evaluation, ordered by run and step.

    Returns:
        study, run, folder, name (see `named`), position, seed, step, value, and the samples and tokens
        read until the step, NaN if not logged.
    """
    rows, keys = named(runs.runs), ["study", "run"]
    logged = runs.metrics[runs.metrics.run.isin(set(rows.run))]
    read = logged.groupby([*keys, "step"], as_index=False)[["samples", "tokens"]].last()
    found = logged.loc[logged.metric == metric, [*keys, "step", "value"]]
    found = found.drop_duplicates([*keys, "step"], keep="last").merge(read, "left")
    for key, folder in rows.folder[~rows.index.isin(found.set_index(keys).index)].items():
        own = logged[(logged.study == key[0]) & (logged.run == key[1])]
        known = ", ".join(sorted(set(own.metric)))
        raise RecordError(f"{folder} has no {metric}: choose one of {known}")
    about = rows[[*keys, "folder", "name", "position", "seed"]].reset_index(drop=True)
    return about.merge(found).astype({"seed": int})


def curve_tables(
    runs: Runs, metric: str, baseline: str | None = None, *, each_run: bool = False
) -> list[Table]:
    """Return values at equal steps and steps to equal losses, with a separate table per comparable group.

    A loss depends on the vocabulary, the validation text and the length of the schedule. So the runs of a
    table have the same unigram entropy of the targets, settings of validation and number of steps. Notes
    name the runs that did not end. With `each_run` each run has a column; else runs that differ only in the
    seed are one configuration, and differences from the baseline are tested (see `find_baseline`).
    """
    ended = runs.runs.status.isin(ENDED)
    rows, notes = runs.runs[ended], excluded_runs(runs.runs[~ended], runs.runs[ended])
    if rows.empty:
        raise RecordError(f"none of these runs ended: {' '.join(notes) or 'give folders of runs'}")
    if not each_run:
        rows, copies = first_of_each_seed(rows)
        notes += [f"Left out: {folder}: {reason}." for folder, reason in copies]
    logged = runs.metrics[runs.metrics.metric == metric].set_index(["study", "run"]).index
    if (has := rows.index.isin(logged)).any():
        notes += [f"Left out: {run}: it has no {metric}." for run in rows.run[~has]]
        rows = rows[has]

    def tables(group: pd.DataFrame) -> list[Table]:
        if each_run:
            ids = unique_ids(group)
            labels = group.label + ", seed " + group.seed.astype(str)
            if labels.duplicated().any():  # they differ in something else
                labels = ids
            group = group.assign(label=labels, configuration=ids)
        return _tables(runs._replace(runs=group), metric, baseline, notes, each_run)

    groups = rows.groupby([validated_on(rows), rows.steps.tolist()], sort=False)
    return tables_by_group([group for _, group in groups], validation_of, tables)


def _tables(
    runs: Runs, metric: str, baseline: str | None, notes: Sequence[str], each_run: bool
) -> list[Table]:
    frame = read_curves(runs, metric)
    base = find_baseline(frame.name, baseline)
    frame = frame.sort_values("name", key=lambda names: names != base, kind="stable")
    count = frame.groupby("step").run.count()
    steps = [*map(int, count.index[count == len(runs.runs)])] or [*map(int, count.index)]
    at = frame[frame.step.isin(steps)].sort_values("step", kind="stable")
    loss = LOSSES.get(runs.runs.pipeline.iloc[0])
    header, *lines = mean_lines(at[at.step.isin(_few(steps))], "step", "name", 3, "–")
    if each_run:
        lines = [[step, *(cell.removesuffix(" (1)") for cell in cells)] for step, *cells in lines]
    values = [["steps", "sequences", loss.read if loss else "tokens", *header[1:]]]
    values += [[f"{step:,}", *_amounts(at[at.step == step]), *cells] for step, *cells in lines]
    notes = [
        *(notes or [f"Every run ended and is counted ({len(runs.runs)})."]),
        "Mean ± standard deviation over seeds (and how many they are).",
    ]
    ids = named(runs.runs).drop_duplicates("name")
    keys = differing_keys(map(settings_of, ids.to_dict("records")))
    if simple := baselines_of(runs.runs, metric):
        scores = ", ".join(
            f"{name} {' / '.join(f'{value:.3f}' for value in sorted(set(values)))}"
            for name, values in simple.items()
        )
        notes.append(
            "Counted in as much of the training text as the runs read (n-grams with Kneser-Ney "
            f"smoothing): {scores}."
        )
    if len(ids) > 1:
        notes.append(f"All that the configurations differ in: {', '.join(keys)}.")
    tables = [Table(f"{metric} at equal steps", values, text_columns=0, notes=notes)]
    if len(ids) == 1:
        return tables
    if not each_run:
        shared = "The text, order and masks are the same. "
        if any(not key.startswith("model.") for key in keys):
            shared = "The configurations differ in more than the model, so order and masks may differ too. "
        quarters = at[at.step.isin(_quarters(steps))]
        title = f"{metric}: paired differences from {base}"
        tables.append(paired_table(quarters, base, "step", title, digits=3, note=shared))
    if loss and loss.metric == metric and (plateau := _plateau(runs, loss)) is not None:
        curves: dict[str, Seeds] = {}
        for (name, seed), part in frame.groupby(["name", "seed"], sort=False):
            points = dict(zip(part.step, part.value, strict=True))
            curves.setdefault(name, {})[0 if each_run else seed] = points
        tables.append(_steps_to_equal_losses(curves, plateau, base, metric))
    return tables


def baselines_of(runs: pd.DataFrame, metric: str) -> dict[str, list[float]]:
    """Return name of a model-free baseline → its values for a metric, one per run that has it."""
    found: dict[str, list[float]] = {}
    for summary in runs.summary:
        for name, values in summary.get("baselines", {}).items():
            if (value := values.get(metric)) is not None:
                found.setdefault(name, []).append(float(value))
    return found


def validated_on(runs: pd.DataFrame) -> list[str]:
    """Return a key per run; validation losses are comparable if the keys are equal."""
    every = zip(texts_of(runs), runs.to_dict("records"), strict=True)
    return [f"{text} {_settings(run, VALIDATION)}" for text, run in every]


def validation_of(runs: pd.DataFrame) -> dict[str, Any]:
    """Return the settings that distinguish groups of runs: of the first one's validation, and its steps."""
    run = runs.iloc[0]
    settings = {"training.steps": run["steps"], **_settings(run, (*TEXT, *VALIDATION))}
    return settings | {"fingerprint": str(run["environment"].get("data"))[:8]}


def _settings(run: Mapping[str, Any], sections: Sequence[str]) -> dict[str, Any]:
    """Return these sections of a run's config as dotted keys, sorted."""
    prefixes = tuple(f"{key}." for key in sections)
    return {k: v for k, v in sorted(run["config"].items()) if f"{k}.".startswith(prefixes)}


def texts_of(runs: pd.DataFrame) -> list[str]:
    """Return an identifier of each run's validation text, as its tokenizer reads it.

    It is the unigram entropy of the targets to its last digit, which does not depend on how the text is
    stored. A run without metrics has the entropy of another run on the same prepared data and settings of
    validation; if no run has one, the identifier is the fingerprint of the data.
    """
    places, entropies = [], []
    for run in runs.to_dict("records"):
        loss = LOSSES.get(run["pipeline"])
        places.append(str((run["environment"].get("data"), _settings(run, VALIDATION))))
        entropies.append(run["summary"].get("metrics", {}).get(loss.entropy) if loss else None)
    known = {place: one for place, one in zip(places, entropies, strict=True) if one}
    return [str(known.get(place, place)) for place in places]


def _amounts(rows: pd.DataFrame) -> list[str]:
    """Return the samples and tokens read until a step; their mean if the runs differ a little.

    They differ if some runs have already read the last block of the text, which is not full.
    """
    shown = []
    for amounts in (rows.samples, rows.tokens):
        low, high = amounts.min(), amounts.max()
        known = not amounts.isna().any() and high <= 1.01 * low
        shown.append(f"{'' if low == high else '≈ '}{amounts.mean():,.0f}" if known else "")
    return shown


# --- steps to equal losses -----------------------------------------------------------------------


def reach(points: Mapping[int, float], target: float) -> float:
    """Return the steps after which a metric stays at or below `target`.

    The curve is linear between evaluations. A run that ends above the target has inf, and a run that is
    never above it has 0.
    """
    known = sorted(points.items())
    above = [place for place, (_, value) in enumerate(known) if value > target]
    if not above:
        return 0.0
    if above[-1] == len(known) - 1:
        return math.inf
    (before, higher), (step, value) = known[above[-1] : above[-1] + 2]
    return before + (step - before) * (higher - target) / (higher - value)


def losses_of(runs: Sequence[Mapping[int, float]], plateau: float) -> list[float]:
    """Return the losses at which runs that left the plateau are compared, from the highest.

    These are round losses below the plateau that every run passes between two evaluations, and the highest
    final loss. The list is empty if a run begins below that.
    """
    top = min(plateau, *(points[min(points)] for points in runs))
    bottom = max(points[max(points)] for points in runs)
    if not bottom < top:
        return []
    least = max(LEAST_GAP, (top - bottom) / LOSSES_PER_PAIR)
    unit = 10.0 ** math.floor(math.log10(least))
    gap = next(n * unit for n in (1, 2, 5, 10) if n * unit >= least)
    places = range(math.floor(top / gap), math.floor(bottom / gap), -1)
    return [*(loss for n in places if bottom < (loss := round(n * gap, 6)) < top), bottom]


def _plateau(runs: Runs, loss: Loss) -> float | None:
    """Return the loss below which a run has left the plateau; None if no run logged the entropy."""
    logged = runs.metrics[runs.metrics.run.isin(set(runs.runs.run))]
    entropies = logged.value[logged.metric == loss.entropy].dropna()
    nat = 1 / math.log(2) if loss.unit == "bits" else 1.0
    return None if entropies.empty else float(entropies.iloc[-1]) - OFF_THE_PLATEAU * nat


def _steps_to_equal_losses(
    curves: Mapping[str, Seeds], plateau: float, base: str, metric: str
) -> Table:
    """Return the steps after which the baseline and each other configuration reach equal losses."""
    over_seeds = ["95 % (t)", "by seed"] if any(len(one) > 1 for one in curves.values()) else []
    header = ["configuration", "loss", "steps", f"steps of {base}", "ratio", *over_seeds]
    lines, left = [header], dict[str, Seeds]()

    def explain(name: str, words: str) -> None:
        lines.append([name, "–", "", "", words, *("" for _ in over_seeds)])

    for name, seeds in curves.items():
        ends = {seed: points[max(points)] for seed, points in seeds.items()}
        left[name] = {
            seed: {step: value for step, value in points.items() if not math.isnan(value)}
            for seed, points in seeds.items()
            if ends[seed] <= plateau
        }
        if stays := [seed for seed in seeds if seed not in left[name]]:
            which = f" with seed {', '.join(map(str, stays))}" if left[name] else ""
            end = fmean(ends[seed] for seed in stays)
            explain(name, f"does not get below {plateau:.3f}{which}: ends at {end:.3f}")
    for name in [one for one in curves if one != base and left[one] and left[base]]:
        both = [seed for seed in left[base] if seed in left[name]]
        ours, theirs = ([left[one][seed] for seed in both] for one in (base, name))
        losses = losses_of([*ours, *theirs], plateau) if both else []
        if not losses:
            explain(name, "no loss that both pass" if both else "no seed that both have")
        for loss in losses:
            steps, others = ([reach(points, loss) for points in one] for one in (ours, theirs))
            ratio = paired([*map(math.log, steps)], [*map(math.log, others)])
            interval = ratio.interval and [*map(math.exp, ratio.interval)]
            each = ", ".join(f"{a / b:.2f}" for a, b in zip(steps, others, strict=True))
            cells = [f"{loss:.3f}", f"{fmean(others):,.0f}", f"{fmean(steps):,.0f}"]
            spread = [interval_text(interval, 2, sign=False), each] if over_seeds else []
            lines.append([name, *cells, f"{math.exp(ratio.difference):.2f}", *spread])
    notes = [
        f"Steps after which the loss stays at or below the one named, on straight lines between "
        f"evaluations, of runs that left the plateau: they end at {plateau:.3f} or below, {OFF_THE_PLATEAU} "
        "nat under the unigram entropy. The lowest loss of a pair is the highest at which a run of it "
        "ends.",
        f"Ratio: steps of {base} divided by steps of the configuration, below 1 if {base} is sooner. One "
        "configuration may reach a loss at the end of its schedule, the other at a high learning rate.",
    ]
    if over_seeds:
        notes[-1] += " Its mean over seeds is geometric, the interval is by t of the logarithms."
    return Table(f"Steps to equal {metric} off the plateau", lines, notes=notes)


def _few(steps: Sequence[int]) -> list[int]:
    """Return at most `ROWS` of the steps, evenly spaced, with the first and the last one."""
    last = len(steps) - 1
    return [steps[round(i * last / (ROWS - 1))] for i in range(ROWS)] if last >= ROWS else [*steps]


def _quarters(steps: Sequence[int]) -> list[int]:
    """Return the last evaluated step before each quarter of the training."""
    steps = [step for step in steps if step > 0]
    places = [
        max([s for s in steps if s <= p * steps[-1]], default=steps[0]) for p in QUARTERS if steps
    ]
    return list(dict.fromkeys(places))


# --- language models: the loss by position -------------------------------------------------------


def read_positions(runs: Runs) -> pd.DataFrame:
    """Return one row per run, length and range of tokens seen, of the ended runs with a positions.json.

    Returns:
        name, position, seed, text, trained (the training length; the paper reads no longer texts), length,
        first and last (tokens seen; 0: the mean over the length), value (the loss), and the reason if a
        length was not read.
    """
    found = []
    rows = runs.runs[runs.runs.status.isin(ENDED)]
    for run in named(rows.loc[[POSITIONS in files for files in rows.files]]).to_dict("records"):
        file, shared = run["files"][POSITIONS], {k: run[k] for k in ("name", "position", "seed")}
        shared |= {"text": one_line(file["text"]), "trained": file["trained_length"]}
        for one in file["lengths"]:
            for row in ({"seen": [0, 0], "loss": one["loss"]}, *one["rows"]):
                first, last = row["seen"]
                place = {"length": one["length"], "first": first, "last": last}
                found.append(shared | place | {"value": row["loss"]})
        for one in file["left_out"]:
            found.append(shared | {"length": one["length"], "reason": one_line(one["reason"])})
    columns = ["name", "position", "seed", "text", "trained", "length", "first", "last", "value"]
    return pd.DataFrame(found, columns=[*columns, "reason"])


def position_tables(runs: Runs, baseline: str | None = None) -> list[Table]:
    """Return the loss by tokens seen, and by length if lengths beyond the trained one were read."""
    frame = read_positions(runs)
    if frame.empty:
        return []
    base, read = find_baseline(frame.name, baseline), loss_of(runs.runs).read
    frame = frame.sort_values("name", key=lambda names: names != base, kind="stable")
    tables = []
    for trained, every in frame.groupby("trained", sort=False):
        part = every[every.reason.isna()].astype({"first": int, "last": int})
        seen = part[(part.length == trained) & (part["last"] > 0)]
        seen = seen.sort_values(["first", "last"], kind="stable")
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
            missing = every[every.reason.notna()].drop_duplicates(["name", "reason"])
            notes = [
                "Beyond the paper: the same tokens predicted in longer blocks, without more training; "
                "loss in nats, mean ± standard deviation over seeds (n).",
                *(f"–: {name}: {why}." for name, why in missing[["name", "reason"]].to_numpy()),
            ]
            lines = mean_lines(whole.assign(length=lengths), "length", "name", 3, "–")
            tables.append(Table("Loss beyond the trained length", lines, notes=notes))
    return tables
