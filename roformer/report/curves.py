"""Curves of losses: several runs side by side, configurations over several seeds, loss by position.

For one seed the text, its order and the masks are the same in all configurations, so these are compared
in pairs of a seed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from roformer.errors import one_line
from roformer.pipelines.registry import Loss
from roformer.report.runs import ENDED, LOSSES, RecordError, Runs, run_label, settings_of
from roformer.report.statistics import (
    T_TEST,
    Interval,
    bootstrap_interval,
    bootstrap_limit,
    compared,
    mean_text,
    sign_flip_limit,
    t_test_cells,
)
from roformer.report.tables import (
    Table,
    baseline_first,
    code,
    configuration_names,
    configurations,
    escaped,
    markdown,
)

QUARTERS = (0.25, 0.5, 0.75, 1.0)
"""Shares of the steps at which configurations are compared, besides the end."""
FALLING = ("loss", "bits_per_byte", "perplexity")
"""In the names of metrics of which lower is better."""
VALIDATION = ("masking", "training.sequence_length", "training.valid_sequences")
"""Keys of a config that decide, beside the prepared data, which targets a validation loss is of."""
POSITIONS = "positions.json"
"""File of a run with its loss by the number of tokens before the predicted one."""


class Curve(NamedTuple):
    """A metric of a run."""

    points: dict[int, float]
    """Step → value."""
    read: dict[int, tuple[int, int]]
    """Step → sequences and tokens read until then."""


Curves = dict[str, dict[int, Curve]]
"""Configuration → seed → curve."""


def loss_of(runs: pd.DataFrame) -> Loss:
    """Return what the curves of these runs are of.

    Raises:
        RecordError: they are of several pipelines, or of one without such a metric.
    """
    found = dict(zip(runs.pipeline, runs.folder, strict=True))
    if len(found) > 1:
        (one, first), (other, second), *_ = found.items()
        raise RecordError(
            f"{first} is a run of {one}, {second} of {other}: give those of one pipeline"
        )
    for pipeline, folder in found.items():
        if pipeline not in LOSSES:
            known = ", ".join(LOSSES)
            raise RecordError(
                f"{folder} is a run of {pipeline}: only {known} have curves of a loss"
            )
        return LOSSES[pipeline]
    raise RecordError("none of these runs is finished: give folders like runs/pretrain/*")


def read_curves(runs: Runs, metric: str) -> dict[tuple[str, str], Curve]:
    """Return (study, run) → curve.

    Raises:
        RecordError: a run has no such metric; says which it has.
    """
    wanted = runs.metrics[runs.metrics.run.isin(set(runs.runs.run))]
    groups = dict(list(wanted.groupby(["study", "run"])))
    found = {}
    for key, folder in runs.runs.folder.items():
        rows = groups.get(key, wanted[:0])
        own = rows[rows.metric == metric]
        if own.empty:
            known = ", ".join(sorted(set(rows.metric)))
            raise RecordError(f"{folder} has no {metric}: choose one of {known}")
        noted = rows[rows.samples.notna() & rows.tokens.notna()].drop_duplicates(
            "step", keep="last"
        )
        amounts = zip(noted.samples.astype(int), noted.tokens.astype(int), strict=True)
        found[key] = Curve(
            dict(zip(own.step.tolist(), own.value.tolist(), strict=True)),
            dict(zip(noted.step.tolist(), amounts, strict=True)),
        )
    return found


def steps_to(points: Mapping[int, float], target: float) -> float | None:
    """Return the steps after which a metric first is at most `target`, or None.

    Between two evaluations the curve is taken as a straight line.
    """
    before: tuple[int, float] | None = None
    for step, value in sorted(points.items()):
        if math.isnan(value):
            continue
        if value <= target:
            if before is None:
                return float(step)
            then, higher = before
            return then + (step - then) * (higher - target) / (higher - value)
        before = (step, value)
    return None


# --- runs side by side ---------------------------------------------------------------------------


def compare_runs(runs: Runs, metric: str) -> str:
    """Return the comparison of finished runs, in separate tables where losses are not comparable.

    A loss depends on the vocabulary and on the validation text, so runs share a table only where the
    fingerprint of the prepared data and the settings of validation are the same. A run that failed is
    listed with the reason and left out.

    Raises:
        RecordError: a run has no such metric, or no run is left.
    """
    rows = runs.runs
    failed = []
    for run in rows[rows.status == "failed"].to_dict("records"):
        how = "diverged" if run["reason"].startswith("Diverged: ") else "failed"
        told = escaped(run["reason"].removeprefix("Diverged: "))
        failed.append(f"- {code(run['run'])} {how}: {told}")
    rows = rows[rows.status != "failed"]
    if rows.empty and failed:
        raise RecordError("all of these runs failed: " + "; ".join(line[2:] for line in failed))
    if rows.empty:
        raise RecordError("none of these runs is finished: give folders like runs/pretrain/*")
    groups = [group for _, group in rows.groupby(rows.apply(_validated_on, axis=1), sort=False)]
    parts = []
    if len(groups) > 1:
        parts.append(
            f"Runs on {len(groups)} different validation sets: a loss depends on the vocabulary and "
            "the validation text, so losses are compared within a table only."
        )
    for number, group in enumerate(groups, start=1):
        if len(groups) > 1:
            parts.append(f"### {number} of {len(groups)}: {_data_of(group.iloc[0])}")
        parts.append(_side_by_side(runs._replace(runs=group), metric))
    if failed:
        parts.append("\n".join(["**Left out**", "", *failed]))
    return "\n\n".join(parts)


def _validated_on(run: Mapping[str, Any]) -> str:
    """Return what must be equal for the validation losses of two runs to be comparable."""
    settings = [
        (key, value)
        for key, value in sorted(run["config"].items())
        if any(f"{key}.".startswith(f"{wanted}.") for wanted in VALIDATION)
    ]
    return f"{run['environment'].get('data')} {settings}"


def _data_of(run: Mapping[str, Any]) -> str:
    """Return the data, vocabulary and length that a run validates on, in words."""
    words = {
        "data": "data.kind",
        "vocabulary": "data.tokenizer.vocab_size",
        "sequence length": "training.sequence_length",
    }
    found = {name: run["config"].get(key) for name, key in words.items()}
    shown = [
        f"{name} {value:,}" if isinstance(value, int) else f"{name} {value}"
        for name, value in found.items()
        if value is not None
    ]
    return escaped(", ".join([*shown, f"fingerprint {str(run['environment'].get('data'))[:8]}"]))


def _side_by_side(runs: Runs, metric: str) -> str:
    """Return two Markdown tables: the metric at equal steps, and the steps to equal values.

    The values are the last ones of every run: the steps after which each run is as good as another one
    is at its end.
    """
    curves = list(read_curves(runs, metric).values())
    names = [f"{run_label(run)}, seed {run['seed']}" for run in runs.runs.to_dict("records")]
    if len(set(names)) < len(names):  # they differ in something else: the id tells them apart
        names = list(runs.runs.run)
    at_steps = [["updates", "sequences", _read_by(metric), *names]]
    for step in sorted(set.intersection(*(set(curve.points) for curve in curves))):
        values = [_loss(curve.points[step]) for curve in curves]
        at_steps.append([f"{step:,}", *amounts_read(curves, step), *values])
    to_values = [["value", "which is the end of", *names]]
    for curve, name in zip(curves, names, strict=True):
        last = curve.points[max(curve.points)]
        reached = [steps_to(other.points, last) for other in curves]
        cells = [f"{r:,.0f}" if r is not None else "not reached" for r in reached]
        to_values.append([_loss(last), name, *cells])
    metric = escaped(metric)
    return (
        f"**{metric}** at equal updates\n\n{markdown(at_steps, text_columns=0)}\n\n"
        f"**Updates until {metric} is at most …**\n\n{markdown(to_values, text_columns=0)}"
    )


def amounts_read(curves: Sequence[Curve], step: int) -> list[str]:
    """Return sequences and tokens that runs had read after a step; a mean where they differ a little.

    They do where one run had the text's last block, which is not full, and another had not yet.
    """
    reads = [curve.read[step] for curve in curves if step in curve.read]
    if len(reads) < len(curves):
        return ["", ""]
    shown = []
    for amounts in zip(*reads, strict=True):
        low, high = min(amounts), max(amounts)
        about = "" if low == high else "≈ "
        shown.append("" if high > 1.01 * low else f"{about}{fmean(amounts):,.0f}")
    return shown


def _loss(value: float) -> str:
    return "NaN" if math.isnan(value) else f"{value:.3f}"


def _read_by(metric: str) -> str:
    """Return what the models read whose metric this is: tokens, or bytes."""
    return next((loss.read for loss in LOSSES.values() if loss.metric == metric), "tokens")


# --- configurations over seeds -------------------------------------------------------------------


class Reach(NamedTuple):
    """The steps to a loss, as far as evaluations tell: equal ends where they tell it."""

    low: float
    high: float


def convergence_tables(
    runs: Runs, metric: str = "valid/mlm_loss", baseline: str | None = None
) -> list[Table]:
    """Return tables of a study: values, paired differences, steps to equal losses, what is left out.

    Args:
        runs: finished or not.
        metric: of those that are not `FALLING` there is no table of steps.
        baseline: the configuration compared with the others, or a part of its name; None: that of the
            first run.

    Raises:
        RecordError: two runs of one configuration and seed; runs on different text; no run that ended,
            or no step at which all were evaluated.
    """
    rows, unread = _ended(runs.runs)
    names = configuration_names(rows)
    groups = baseline_first(configurations(rows, names), baseline)
    read = read_curves(runs._replace(runs=rows), metric)
    curves: Curves = {
        name: {seed: read[key] for key, seed in group.seed.items()}
        for name, group in groups.items()
    }
    told = [[run, names.get(key, "–"), why] for run, key, why in unread]
    for run in rows[rows.status != "done"].to_dict("records"):
        told.append([run["run"], names[run["configuration"]], f"counted, though {run['status']}"])
    for key in rows.configuration.unique():
        lacking = sorted(set(rows.seed) - curves[names[key]].keys())
        if lacking:
            told.append(["–", names[key], f"has no seed {', '.join(map(str, lacking))}"])
    steps = _common_steps(curve for seeds in curves.values() for curve in seeds.values())
    if not steps:
        raise RecordError("there is no update at which all these runs were evaluated")
    settings = [
        {k: str(v) for k, v in settings_of(group.iloc[0]).items()} for group in groups.values()
    ]
    keys = {key for one in settings for key in one}
    differing = sorted(key for key in keys if len({one.get(key) for one in settings}) > 1)
    tables = [_values(curves, metric, steps, differing, counted=not told)]
    if len(curves) > 1:
        tables.append(_differences(curves, metric, steps, differing))
        if any(word in metric for word in FALLING):
            tables.append(_steps_to_losses(curves, metric))
    if told:
        lines = [["run", "configuration", "what of it"], *told]
        tables.append(Table("Runs left out, or counted though not sound", lines, text_columns=3))
    return tables


def _ended(runs: pd.DataFrame) -> tuple[pd.DataFrame, list[list[str]]]:
    """Return the runs that ended, and (run, configuration, why) of those that are left out.

    Raises:
        RecordError: no run ended, or they read different text.
    """
    unread = []
    for run in runs[~runs.status.isin(ENDED)].to_dict("records"):
        if run["status"] == "failed":
            why = f"left out: failed ({run['reason']})"
            unread.append([run["run"], run["configuration"], why])
        else:
            unread.append([run["run"], "", "left out: no summary.json, so it did not end"])
    runs = runs[runs.status.isin(ENDED)]
    if runs.empty:
        raise RecordError("none of these runs ended: give folders like runs/pretrain/*")
    texts = {
        environment["data"]: folder
        for folder, environment in zip(runs.folder[::-1], runs.environment[::-1], strict=True)
        if "data" in environment
    }
    if len(texts) > 1:
        (other_text, two), (text, one), *_ = texts.items()
        raise RecordError(
            f"{one} and {two} read other data (fingerprints {text[:8]} and {other_text[:8]}): losses "
            "on them cannot be compared"
        )
    return runs, unread


def reach(points: Mapping[int, float], target: float) -> Reach:
    """Return the steps until the metric first is at most `target`; see `steps_to`.

    A run that is there at its first evaluation was there at some step before; one that is never there
    would be after its last step, if at all.
    """
    found = steps_to(points, target)
    if found is None:
        return Reach(float(max(points)), math.inf)
    first = min(step for step, value in points.items() if not math.isnan(value))
    return Reach(0.0 if found <= first else found, found)


def _common_steps(curves: Iterable[Curve]) -> list[int]:
    """Return the steps at which all runs were evaluated."""
    return sorted(set.intersection(*(set(curve.points) for curve in curves)))


def _at(seeds: Mapping[int, Curve], step: int) -> dict[int, float]:
    """Return seed → value after a step."""
    return {seed: curve.points[step] for seed, curve in seeds.items()}


def _values(
    curves: Curves, metric: str, steps: list[int], differing: list[str], *, counted: bool
) -> Table:
    every = [curve for seeds in curves.values() for curve in seeds.values()]
    lines = [["updates", "sequences", _read_by(metric), *curves]]
    for step in steps:
        cells = [mean_text([*_at(seeds, step).values()], 3) for seeds in curves.values()]
        lines.append([f"{step:,}", *amounts_read(every, step), *cells])
    notes = ["Mean ± standard deviation over seeds (and how many they are)."]
    if len(curves) > 1:
        notes.append(f"All that the configurations differ in: {', '.join(differing)}.")
    if counted:
        notes.append(f"All {len(every)} runs ended, and are counted.")
    return Table(f"{metric} at equal updates", lines, text_columns=0, notes=notes)


def _differences(curves: Curves, metric: str, steps: list[int], differing: list[str]) -> Table:
    base, *others = curves
    lines = [["configuration", "updates", *T_TEST]]
    most = 0
    for step in _quarters(steps):
        found = compared((_at(curves[name], step), _at(curves[base], step)) for name in others)
        for name, one in zip(others, found, strict=True):
            cells = [*["–"] * 5, "0"] if one is None else t_test_cells(one, 3)
            most = max(most, one.n if one else 0)
            lines.append([name, f"{step:,}", *cells])
    shared = "the same text, order and masks"
    if any(not key.startswith("model.") for key in differing):
        shared = "not the model alone differs, so text, order and masks may as well"
    notes = [
        f"Mean ± standard deviation of the configuration minus {base}, seed by seed: {shared}. p-values "
        "are two-sided; Holm's is the t test's for all configurations of that update. The t interval and "
        "test assume normal differences, which few seeds cannot show.",
        sign_flip_limit(most),
    ]
    return Table(f"{metric}: paired differences from {base}", lines, notes=notes)


def _steps_to_losses(curves: Curves, metric: str) -> Table:
    base, *others = curves
    numbers = ["updates", "sequences", _read_by(metric), "ratio", "95 % (bootstrap)", "not reached"]
    lines = [["configuration", "is at the loss of", "after", "loss", *numbers]]

    def quarters(name: str) -> list[int]:
        return _quarters(_common_steps(curves[name].values()))

    for other in others:
        lines += [_reaching(curves, base, other, step) for step in quarters(other)]
    for other in others:
        lines += [_reaching(curves, other, base, step) for step in quarters(base)[-1:]]
    seeds = max((len(curves[base].keys() & curves[other].keys()) for other in others), default=0)
    notes = [
        "Updates until the metric first is at most the loss, the other configuration's mean after so many "
        "updates; between two evaluations the curve is a straight line. Ratio: of the updates to those of "
        "the other configuration; below 1 is faster. ≤: some seeds were there at the first evaluation.",
        "A run that never gets there counts as still under way at its end: the mean is then a lower "
        "bound (>), and the interval has no upper end (≥).",
        "The interval is the percentile bootstrap of the ratio over seeds, drawn for both configurations "
        "together, so that the loss moves with them. " + bootstrap_limit(seeds),
    ]
    return Table(f"Updates until {metric} is that of another configuration", lines, 2, notes)


def _reaching(curves: Curves, name: str, other: str, step: int) -> list[str]:
    """Return the line that says when a configuration is where another one is after a step."""
    ours = curves[name]
    seeds = [seed for seed in ours if seed in curves[other]]
    start = [name, other, f"{step:,}"]
    losses = np.array([curves[other][seed].points[step] for seed in seeds])
    if not seeds or np.isnan(losses).any():
        return [*start, "NaN" if seeds else "–", *["–"] * 6]
    loss = fmean(losses)
    found = [reach(ours[seed].points, loss) for seed in seeds]
    mean = Reach(fmean(each.low for each in found), fmean(each.high for each in found))

    def ratio(end: int) -> Callable[[NDArray[np.intp]], float]:
        def of(draw: NDArray[np.intp]) -> float:
            target = fmean(losses[draw])
            return fmean(reach(ours[seeds[i]].points, target)[end] for i in draw) / step

        return of

    def amount(steps: float, part: int) -> float:
        """Return the sequences (part 0) or tokens (1) of so many steps, NaN where no run noted them."""
        read = next(iter(ours.values())).read
        if math.isinf(steps) or not read:
            return steps if read else math.nan
        known = sorted(read)
        return float(np.interp(steps, [0, *known], [0, *(read[step][part] for step in known)]))

    lows, highs = (bootstrap_interval(len(seeds), ratio(end)) for end in (0, 1))
    interval = Interval(lows.low, highs.high) if lows and highs else None
    never = sum(math.isinf(each.high) for each in found)
    return [
        *start,
        f"{loss:.3f}",
        _bounds(mean, "{:,.0f}"),
        *(_bounds(Reach(*(amount(end, part) for end in mean)), "{:,.0f}") for part in (0, 1)),
        _bounds(Reach(mean.low / step, mean.high / step), "{:.2f}"),
        _open(interval),
        f"{never} of {len(seeds)}",
    ]


def _bounds(mean: Reach, form: str) -> str:
    """Return a mean of which maybe only bounds are known."""
    low, high = (form.format(end) for end in mean)
    if math.isnan(mean.low):
        return ""
    if math.isinf(mean.high):
        return f"> {low}"
    return low if mean.low == mean.high else f"≤ {high}"


def _open(interval: Interval | None) -> str:
    """Return a bootstrap interval of ratios, one-sided where an end is open."""
    if interval is None:
        return "–"
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


class Positions(NamedTuple):
    """The losses of a configuration's seeds at several lengths, from their positions.json."""

    position: str
    text: str
    trained: int
    """The length of the training; what is read beyond it is beyond the paper."""
    losses: dict[int, list[float]]
    """Length → loss of each seed."""
    seen: dict[int, dict[tuple[int, int], list[float]]]
    """Length → from-to tokens seen → loss there of each seed."""
    left_out: list[str]
    """Why a length was not read."""
    seeds: int


def read_positions(runs: Runs, baseline: str | None = None) -> dict[str, Positions]:
    """Return the configurations whose runs have a positions.json, the baseline first.

    Raises:
        RecordError: see `convergence_tables`; a positions.json is damaged.
    """
    rows = runs.runs.loc[[POSITIONS in files for files in runs.runs.files]]
    if rows.empty:
        return {}
    rows, _ = _ended(rows)
    found = {}
    groups = configurations(rows, configuration_names(rows))
    for name, group in baseline_first(groups, baseline).items():
        files = [files[POSITIONS] for files in group.files]
        one = Positions(group.position.iloc[0], "", 0, {}, {}, [], len(files))
        for folder, file in zip(group.folder, files, strict=True):
            try:
                one = one._replace(text=file["text"], trained=int(file["trained_length"]))
                for each in file["lengths"]:
                    one.losses.setdefault(each["length"], []).append(float(each["loss"]))
                    seen = one.seen.setdefault(each["length"], {})
                    for row in each["rows"]:
                        first, last = row["seen"]
                        seen.setdefault((first, last), []).append(float(row["loss"]))
                one.left_out.extend(one_line(each["reason"]) for each in file["left_out"])
            except (KeyError, TypeError, ValueError) as error:
                raise RecordError(
                    f"{folder}/{POSITIONS} is not what a run wrote: {error}"
                ) from error
        found[name] = one
    return found


def position_tables(runs: Runs, baseline: str | None = None) -> list[Table]:
    """Return the loss by length, where more than the trained one was read, and by tokens seen."""
    found = read_positions(runs, baseline)
    tables = []
    for trained in dict.fromkeys(one.trained for one in found.values()):
        alike = {name: one for name, one in found.items() if one.trained == trained}
        tables.append(_by_seen(alike, trained, loss_of(runs.runs).read))
        lengths = sorted({length for one in alike.values() for length in one.losses})
        if lengths != [trained]:
            tables.append(_by_length(alike, trained, lengths))
    return tables


def _by_seen(found: dict[str, Positions], trained: int, read: str) -> Table:
    rows = [one.seen.get(trained, {}) for one in found.values()]
    lines = [[f"{read} seen", *found]]
    for first, last in sorted({place for row in rows for place in row}):
        span = f"{first:,}" if first == last else f"{first:,}-{last:,}"
        lines.append([span, *(_mean_or_dash(row.get((first, last), [])) for row in rows)])
    note = (
        f"Loss in nats of {one_line(next(iter(found.values())).text)}, read in blocks of {trained:,}, as "
        f"trained: the mean over the {read} that are predicted from so many. Mean ± standard deviation "
        "over seeds (n)."
    )
    return Table(f"Loss by how many {read} are seen", lines, notes=[note])


def _by_length(found: dict[str, Positions], trained: int, lengths: Sequence[int]) -> Table:
    lines = [["length", *found]]
    for length in lengths:
        cells = [_mean_or_dash(one.losses.get(length, [])) for one in found.values()]
        lines.append([f"{length:,}{' (trained)' if length == trained else ''}", *cells])
    notes = [
        "Beyond the paper: the same tokens predicted in longer blocks, without more training; loss in "
        "nats, mean ± standard deviation over seeds (n)."
    ]
    reasons = {f"–: {name}: {reason}." for name, one in found.items() for reason in one.left_out}
    return Table("Loss beyond the trained length", lines, notes=[*notes, *sorted(reasons)])


def _mean_or_dash(values: list[float]) -> str:
    return mean_text(values, 3) if values else "–"
