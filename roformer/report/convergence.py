"""How fast arms converge, over several seeds: from the records of pre-training runs alone.

An arm are the runs with equal settings but the seed. For one seed the text, its order and the masks
are the same in all arms, so arms are compared in pairs of a seed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from roformer.report.comparing import (
    bootstrap_limit,
    find_baseline,
    interval_text,
    mean_text,
    p_text,
    sign_flip_limit,
    signed,
)
from roformer.report.curves import Curve, amounts_read, read_curve, steps_to
from roformer.report.losses import read_by
from roformer.report.records import (
    Folder,
    RecordError,
    configuration,
    read_config,
    read_environment,
    read_summary,
)
from roformer.report.statistics import Interval, bootstrap_interval, holm, paired
from roformer.report.tables import Table, arm_names, run_label

QUARTERS = (0.25, 0.5, 0.75, 1.0)
"""Of the updates: where arms are compared besides at the end."""
FALLING = ("loss", "bits_per_byte", "perplexity")
"""In the names of metrics of which lower is better."""


class Arm(NamedTuple):
    """Runs that differ in the seed alone."""

    name: str
    settings: str
    """As JSON."""
    curves: dict[int, Curve]
    """Seed → curve."""

    @property
    def steps(self) -> list[int]:
        """The updates at which all runs were evaluated."""
        return sorted(set.intersection(*(set(curve.points) for curve in self.curves.values())))

    def values(self, step: int, seeds: Iterable[int]) -> list[float]:
        """Return the metric after an update, a seed each."""
        return [self.curves[seed].points[step] for seed in seeds]


class Told(NamedTuple):
    """A run that does not count, or not as it should."""

    run: str
    arm: str
    why: str


class Reach(NamedTuple):
    """The updates to a loss, as far as evaluations tell: equal ends where they tell it."""

    low: float
    high: float


def convergence_tables(
    folders: Iterable[Folder], metric: str = "valid/mlm_loss", baseline: str | None = None
) -> list[Table]:
    """Return tables of a study: values, paired differences, updates to equal losses, what is left out.

    Args:
        folders: of runs, finished or not.
        metric: of those that are not `FALLING` there is no table of updates.
        baseline: the arm compared with the others, or a part of its name; None: that of the first
            folder.

    Raises:
        RecordError: a damaged record; two runs of one arm and seed; runs on different text; no run
            that ended, or no update at which all were evaluated.
    """
    arms, told = read_arms(folders, metric)
    first = find_baseline((arm.name for arm in arms), baseline)
    arms.sort(key=lambda arm: arm.name != first)
    steps = sorted(set.intersection(*(set(arm.steps) for arm in arms)))
    if not steps:
        raise RecordError("there is no update at which all these runs were evaluated")
    tables = [_values(arms, metric, steps, told)]
    if len(arms) > 1:
        tables.append(_differences(arms, metric, steps))
        if any(word in metric for word in FALLING):
            tables.append(_updates(arms, metric))
    if told:
        lines = [["run", "arm", "what of it"], *map(list, told)]
        tables.append(Table("Runs left out, or counted though not sound", lines, text_columns=3))
    return tables


def read_arms(folders: Iterable[Folder], metric: str) -> tuple[list[Arm], list[Told]]:
    """Return the arms of the runs that ended, in the order of the folders, and what to tell of runs.

    Raises:
        RecordError: see `convergence_tables`.
    """
    read: list[tuple[Curve, str, str]] = []
    unread: list[tuple[str, str, str]] = []
    known: dict[tuple[str, int], Folder] = {}
    texts: dict[str, Folder] = {}
    for folder in folders:
        if not (folder / "summary.json").is_file():
            unread.append((folder.name, "", "left out: no summary.json, so it did not end"))
            continue
        summary = read_summary(folder, "model", "position", "seed", "status")
        settings = configuration(summary, read_config(folder))
        if summary["status"] == "failed":
            why = f"left out: failed ({summary.get('error', 'its record does not say why')})"
            unread.append((folder.name, settings, why))
            continue
        curve = read_curve(folder, metric)
        other = known.setdefault((settings, summary["seed"]), folder)
        if other is not folder:
            raise RecordError(
                f"{other} and {folder} have the same settings and seed: leave one of them out, or "
                "it counts as another seed"
            )
        if (folder / "env.json").is_file():
            texts.setdefault(read_environment(folder, "data")["data"], folder)
        read.append((curve._replace(summary=summary), settings, summary["status"]))
    if len(texts) > 1:
        (text, one), (other_text, two), *_ = texts.items()
        raise RecordError(
            f"{one} and {two} read other data (fingerprints {text[:8]} and {other_text[:8]}): losses "
            "on them cannot be compared"
        )
    if not read:
        raise RecordError("none of these runs ended: give folders like runs/pretrain/*")
    names = arm_names((run_label(curve.summary), settings) for curve, settings, _ in read)
    groups: dict[str, dict[int, Curve]] = {}
    for curve, settings, _ in read:
        groups.setdefault(settings, {})[curve.summary["seed"]] = curve
    told = [Told(run, names.get(settings, "–"), why) for run, settings, why in unread]
    told += [
        Told(curve.name, names[settings], f"counted, though {status}")
        for curve, settings, status in read
        if status != "done"
    ]
    arms = [
        Arm(names[settings], settings, dict(sorted(curves.items())))
        for settings, curves in groups.items()
    ]
    everything = sorted({seed for arm in arms for seed in arm.curves})
    for arm in arms:
        if lacking := [str(seed) for seed in everything if seed not in arm.curves]:
            told.append(Told("–", arm.name, f"has no seed {', '.join(lacking)}"))
    return arms, told


def reach(curve: Curve, target: float) -> Reach:
    """Return the updates until the metric first is at most `target`; see `steps_to`.

    A run that is there at its first evaluation was there at some update before; one that is never
    there would be after its last update, if at all.
    """
    found = steps_to(curve, target)
    if found is None:
        return Reach(float(max(curve.points)), math.inf)
    first = min(step for step, value in curve.points.items() if not math.isnan(value))
    return Reach(0.0 if found <= first else found, found)


def _values(arms: list[Arm], metric: str, steps: list[int], told: list[Told]) -> Table:
    lines = [["updates", "sequences", read_by(metric), *(arm.name for arm in arms)]]
    for step in steps:
        amounts = amounts_read([curve for arm in arms for curve in arm.curves.values()], step)
        cells = [mean_text(arm.values(step, arm.curves), 3) for arm in arms]
        lines.append([f"{step:,}", *amounts, *cells])
    notes = ["Mean ± standard deviation over seeds (and how many they are)."]
    if len(arms) > 1:
        notes.append(f"All that the arms differ in: {', '.join(_differing(arms))}.")
    if not told:
        count = sum(len(arm.curves) for arm in arms)
        notes.append(f"All {count} runs ended, and are counted.")
    return Table(f"{metric} at equal updates", lines, text_columns=0, notes=notes)


def _differences(arms: list[Arm], metric: str, steps: list[int]) -> Table:
    base, *others = arms
    numbers = ["difference", "95 % (t)", "t test p", "p, Holm", "sign-flip p", "n"]
    lines = [["arm", "updates", *numbers]]
    counts = []
    for step in _quarters(steps):
        pairs = []
        for arm in others:
            seeds = _common(base, arm)
            both = (arm.values(step, seeds), base.values(step, seeds))
            pairs.append((arm, paired(*both) if seeds else None))
        adjusted = holm([found.t_p if found else None for _, found in pairs])
        for (arm, found), p in zip(pairs, adjusted, strict=True):
            if found is None:
                lines.append([arm.name, f"{step:,}", *["–"] * 5, "0"])
                continue
            counts.append(found.n)
            mean = signed(found.difference, 3)
            if found.std is not None and not math.isnan(found.std):
                mean += f" ± {found.std:.3f}"
            ps = map(p_text, (found.t_p, p, found.permutation_p))
            interval = interval_text(found.interval, 3)
            lines.append([arm.name, f"{step:,}", mean, interval, *ps, str(found.n)])
    shared = "the same text, order and masks"
    if any(not key.startswith("model.") for key in _differing(arms)):
        shared = "not the model alone differs, so text, order and masks may as well"
    notes = [
        f"Mean ± standard deviation of the arm minus {base.name}, seed by seed: {shared}. p-values "
        "are two-sided; Holm's is the t test's for all arms of that update. The t interval and test "
        "assume normal differences, which few seeds cannot show.",
        sign_flip_limit(max(counts, default=0)),
    ]
    return Table(f"{metric}: paired differences from {base.name}", lines, notes=notes)


def _updates(arms: list[Arm], metric: str) -> Table:
    base, *others = arms
    numbers = ["updates", "sequences", read_by(metric), "ratio", "95 % (bootstrap)", "not reached"]
    lines = [["arm", "is at the loss of", "after", "loss", *numbers]]
    for other in others:
        lines += [_reaching(base, other, step) for step in _quarters(other.steps)]
    for other in others:
        lines += [_reaching(other, base, step) for step in _quarters(base.steps)[-1:]]
    seeds = max((len(_common(base, other)) for other in others), default=0)
    notes = [
        "Updates until the metric first is at most the loss, the other arm's mean after so many "
        "updates; between two evaluations the curve is a straight line. Ratio: of the updates to "
        "those of the other arm; below 1 is faster. ≤: some seeds were there at the first evaluation.",
        "A run that never gets there counts as still under way at its end: the mean is then a lower "
        "bound (>), and the interval has no upper end (≥).",
        "The interval is the percentile bootstrap of the ratio over seeds, drawn for both arms "
        "together, so that the loss moves with them. " + bootstrap_limit(seeds),
    ]
    return Table(f"Updates until {metric} is that of another arm", lines, 2, notes)


def _reaching(arm: Arm, other: Arm, step: int) -> list[str]:
    """Return the line that says when `arm` is where `other` is after an update."""
    seeds = _common(arm, other)
    start = [arm.name, other.name, f"{step:,}"]
    losses = np.array(other.values(step, seeds))
    if not seeds or np.isnan(losses).any():
        return [*start, "NaN" if seeds else "–", *["–"] * 6]
    loss = fmean(losses)
    found = [reach(arm.curves[seed], loss) for seed in seeds]
    mean = Reach(fmean(each.low for each in found), fmean(each.high for each in found))

    def ratio(end: int) -> Callable[[NDArray[np.intp]], float]:
        def of(draw: NDArray[np.intp]) -> float:
            target = fmean(losses[draw])
            return fmean(reach(arm.curves[seeds[i]], target)[end] for i in draw) / step

        return of

    lows, highs = (bootstrap_interval(len(seeds), ratio(end)) for end in (0, 1))
    interval = Interval(lows.low, highs.high) if lows and highs else None
    read = [
        _bounds(Reach(*(_amount(arm, end, part) for end in mean)), "{:,.0f}") for part in (0, 1)
    ]
    never = sum(math.isinf(each.high) for each in found)
    return [
        *start,
        f"{loss:.3f}",
        _bounds(mean, "{:,.0f}"),
        *read,
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


def _amount(arm: Arm, updates: float, part: int) -> float:
    """Return the sequences (part 0) or tokens (1) of so many updates, NaN where no run noted them."""
    read = next(iter(arm.curves.values())).read
    if math.isinf(updates) or not read:
        return updates if read else math.nan
    steps = sorted(read)
    return float(np.interp(updates, [0, *steps], [0, *(read[step][part] for step in steps)]))


def _quarters(steps: Sequence[int]) -> list[int]:
    """Return the last evaluated updates before each quarter of the way."""
    steps = [step for step in steps if step > 0]
    if not steps:
        return []
    places = [
        max([s for s in steps if s <= part * steps[-1]], default=steps[0]) for part in QUARTERS
    ]
    return list(dict.fromkeys(places))


def _differing(arms: Sequence[Arm]) -> list[str]:
    """Return the settings in which arms differ, as dotted keys."""
    named = arm_names(("", arm.settings) for arm in arms)
    return sorted({key for name in named.values() for key in re.findall(r", ([\w.]+)=", name)})


def _common(one: Arm, other: Arm) -> list[int]:
    return [seed for seed in one.curves if seed in other.curves]
