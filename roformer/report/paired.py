"""Differences of two arms, paired by the seed: on each task of GLUE, and of translation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from roformer.report.comparing import (
    find_baseline,
    interval_text,
    mean_text,
    p_text,
    sign_flip_limit,
    signed,
)
from roformer.report.glue import Row, chosen, read_cells, rows_of
from roformer.report.records import Folder, RecordError
from roformer.report.statistics import Paired, holm, paired
from roformer.report.tables import Table, arm_names
from roformer.report.wmt import one_test_set, read_runs

COLUMNS = ("difference", "95 % (t)", "sign-flip p", "p, Holm", "n", "constant")
BLEU_COLUMNS = ("difference", "95 % (t)", "t test p", "p, Holm", "sign-flip p", "n")

# --- GLUE ----------------------------------------------------------------------------------------


def paired_glue_table(folders: Iterable[Folder], baseline: str | None = None) -> Table:
    """Return one line an arm and task: its headline metric against the baseline's, in percent.

    Each arm has the learning rate that `chosen` gives it, and seeds that ended in both are paired. A
    metric that is not defined makes the difference NaN.

    Args:
        folders: of finished fine-tuning runs.
        baseline: the arm to compare with, or a part of its name; None: the first one of the tables.

    Raises:
        RecordError: see `read_cells`; two runs of one arm, task, learning rate and seed; fewer than
            two arms.
    """
    rows = rows_of(read_cells(folders))
    for row in rows:
        seeds = [cell["seed"] for cell in row.cells]
        if len(set(seeds)) < len(seeds):
            raise RecordError(
                f"{row.arm}, {row.task} at {row.learning_rate:g} has a seed twice: leave one of the "
                "runs out, or it counts as another seed"
            )
    names = list(dict.fromkeys(row.arm.name for row in rows))
    if len(names) < 2:
        raise RecordError(f"{len(names)} arms: give the runs of at least two to compare")
    base = find_baseline(names, baseline)
    best = {(arm.name, task): row for (arm, task), row in chosen(rows).items()}
    tasks = list(dict.fromkeys(row.task for row in rows))
    lines = [["arm", "metric", "learning rates", base, "arm", *COLUMNS]]
    missing: list[str] = []
    counts = [0]
    for name in names:
        if name == base:
            continue
        pairs = []
        for task in tasks:
            ours, theirs = best.get((name, task)), best.get((base, task))
            if ours and theirs and (found := _pair(ours, theirs)):
                pairs.append((ours, theirs, found))
                missing += _unpaired(ours, theirs)
            elif ours or theirs:
                missing.append(f"{name}, {task}: no seed that ended in both arms.")
        adjusted = holm([found.permutation_p for _, _, found in pairs])
        for (ours, theirs, found), p in zip(pairs, adjusted, strict=True):
            lines.append(_line(ours, theirs, found, p))
            counts.append(found.n)
    notes = [
        f"In percent, mean ± standard deviation (n); differences are from {base}, of the same seed, "
        "each arm at its own learning rate (the arm's first), chosen on the same validation set, which "
        "favours both. p-values are two-sided, Holm's for all tasks of an arm. Constant: predictors of "
        "one class, the arm's and the baseline's; they count.",
        "The seeds are those of the fine-tuning: what another pre-training would give is not in the "
        "intervals. Nor is the sampling error of the validation sets: the records do not say how many "
        "examples these have.",
        sign_flip_limit(max(counts)),
        *missing,
    ]
    return Table(f"GLUE: paired differences from {base}", lines, text_columns=3, notes=notes)


def _seeds(row: Row) -> dict[int, float]:
    """Return seed → headline metric in percent, of the runs that ended."""
    ended = [cell["seed"] for cell in row.cells if cell["status"] != "failed"]
    values = [100 * value for value in row.values(row.headline)]
    return dict(zip(ended, values, strict=True))


def _pair(ours: Row, theirs: Row) -> Paired | None:
    """Return the differences of the seeds that ended in both; None where there is none."""
    one, other = _seeds(ours), _seeds(theirs)
    common = [seed for seed in one if seed in other]
    if not common:
        return None
    return paired([one[seed] for seed in common], [other[seed] for seed in common])


def _unpaired(ours: Row, theirs: Row) -> list[str]:
    """Return a sentence on the seeds that have no pair."""
    both = [{cell["seed"] for cell in row.cells} for row in (ours, theirs)]
    alone = sorted((both[0] | both[1]) - (_seeds(ours).keys() & _seeds(theirs).keys()))
    if not alone:
        return []
    seeds = ", ".join(map(str, alone))
    return [f"{ours.arm}, {ours.task}: without a pair, failed or not run: seed {seeds}."]


def _line(ours: Row, theirs: Row, found: Paired, adjusted: float | None) -> list[str]:
    rates = [f"{row.learning_rate:g}" for row in (ours, theirs)]
    return [
        ours.arm.name,
        ours.headline,
        " / ".join(rates),
        *(mean_text(list(_seeds(row).values()), 1) for row in (theirs, ours)),
        signed(found.difference, 1),
        interval_text(found.interval, 1),
        p_text(found.permutation_p),
        p_text(adjusted),
        str(found.n),
        " / ".join(_constant(row.cells) for row in (ours, theirs)),
    ]


def _constant(cells: Sequence[dict[str, object]]) -> str:
    return str(sum(cell["status"] == "degenerate" for cell in cells))


# --- translation ---------------------------------------------------------------------------------


def paired_wmt_table(folders: Iterable[Folder], baseline: str | None = None) -> Table | None:
    """Return one line an arm: sacreBLEU against the baseline's; None where no two seeds are paired.

    It needs the scores alone, and tells what another seed would give; `bleu_table` resamples the
    lines of the test set.

    Args:
        folders: of finished translation runs, scored on one test set with one signature.
        baseline: the arm to compare with, or a part of its name; None: that of the first folder.

    Raises:
        RecordError: see `read_runs`; several test sets or signatures.
    """
    runs = one_test_set(read_runs(folders))
    names = arm_names((run.label, run.settings) for run in runs)
    scores: dict[str, dict[int, float]] = {}
    for run in runs:
        of_arm = scores.setdefault(names[run.settings], {})
        of_arm[run.summary["seed"]] = run.value("test/sacrebleu")
    base = find_baseline(scores, baseline)
    found: dict[str, Paired] = {}
    for name in scores:
        common = sorted(scores[name].keys() & scores[base].keys())
        if name != base and len(common) > 1:
            ours, theirs = ([scores[arm][seed] for seed in common] for arm in (name, base))
            found[name] = paired(ours, theirs)
    if not found:
        return None
    lines = [["arm", *BLEU_COLUMNS]]
    adjusted = holm([one.t_p for one in found.values()])
    for (name, one), p in zip(found.items(), adjusted, strict=True):
        spread = "" if one.std is None else f" ± {one.std:.2f}"
        lines.append(
            [
                name,
                f"{signed(one.difference, 2)}{spread}",
                interval_text(one.interval, 2),
                p_text(one.t_p),
                p_text(p),
                p_text(one.permutation_p),
                str(one.n),
            ]
        )
    notes = [
        f"Mean ± standard deviation of the arm minus {base}, seed by seed: the same pairs of "
        "sentences in the same order. p-values are two-sided; Holm's is the t test's for all arms. The "
        "t interval and test assume normal differences, which few seeds cannot show. The chance of "
        "other test sentences is not in them.",
        sign_flip_limit(max(one.n for one in found.values())),
    ]
    return Table(f"sacreBLEU: paired differences from {base}", lines, notes=notes)
