"""The runs of this machine, the record and the paper side by side: one row per comparison of two models.

`screen` prints the rows of `read_reproduction`, and the dashboard shows the same rows. The paper's scale
differs, so no difference from its numbers is taken: the verdicts compare the runs here with the record, and
the order of the two models with the claim. expected.yaml lists the comparisons.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from textwrap import shorten
from typing import Any, NamedTuple

import pandas as pd

from roformer.config.schema import TRIAL
from roformer.report.runs import (
    ENDED,
    LOSSES,
    YOURS,
    Runs,
    begun_from,
    read_yaml_file,
    settings_of,
    tokens_before,
)
from roformer.report.scores import scores
from roformer.report.tables import Table, number_text, signed

OF_THE_MODEL = re.compile(
    r"model\.(name|position|attention)(\..*)?|init_from|init_revision|init_digest|tokenizer\..*|training\.max_length"
)
"""Keys in which the two models of a comparison may differ. Their pre-trainings may differ in these too."""
NOT_RUN = "not run"
LEGEND = "claim: yes if ahead by more than the spread; (…) not claimed by the paper; * copied, another split"
WIDTHS = (18, 13, 14, 14, 10, 28)
"""Widths of the columns on a terminal."""


class Side(NamedTuple):
    """One model of a comparison: its row in paper.yaml, `RoFormer (rotary)`, and settings of its runs."""

    paper: str
    config: dict[str, Any]


class Comparison(NamedTuple):
    """A row of expected.yaml, which describes the fields."""

    experiment: str
    label: str
    record: str
    pipeline: str
    metric: str
    measured: str
    model: Side
    baseline: Side
    spread: Sequence[float]
    how: str
    task: str = ""
    split: str = ""

    @property
    def sides(self) -> tuple[Side, Side]:
        return self.model, self.baseline

    @property
    def names(self) -> list[str]:
        """Names of the two models, or of their positions where both have one model name."""
        words = [side.paper.removesuffix(")").partition(" (") for side in self.sides]
        return [word[0 if words[0][0] != words[1][0] else 2] for word in words]

    @property
    def digits(self) -> int:
        return 3 if self.pipeline in LOSSES else 1

    def lead(self, model: float, baseline: float) -> float:
        """Return by how much the model is better."""
        return baseline - model if self.pipeline in LOSSES else model - baseline


class Measured(NamedTuple):
    """Results of the runs of one side; `state` is the status of its runs, or `not run`."""

    state: str = NOT_RUN
    value: float = math.nan
    """Mean over seeds; NaN if a run has no value."""
    config: Mapping[str, Any] = {}
    """Without the keys that may differ between seeds."""
    scale: str = ""

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    def text(self, digits: int) -> str:
        """Return the value, or the reason why it is missing."""
        if self.ended:
            return number_text(self.value, digits)
        return "–" if self.state == NOT_RUN else self.state


class Row(NamedTuple):
    """A comparison with its numbers, the model's before the baseline's."""

    experiment: str
    """Its key in paper.yaml."""
    title: str
    """Table or figure of the paper, and its title."""
    models: str
    metric: str
    paper: str
    record: str
    here: str
    spread: str
    holds: str
    """Verdict on the claim: whether the two models are in the claimed order here."""
    verdict: str
    """Verdict on the result here against the record."""
    is_run: bool
    """True if this machine has a run of either model."""
    scales: dict[str, str]
    """Scale of the runs here, of the record, and of the paper."""
    folders: set[str]
    """Folders of the runs of this machine that the row shows."""

    @property
    def where(self) -> str:
        return self.title.partition(":")[0]


def read_comparisons(experiments: Path) -> Iterator[Comparison]:
    """Yield the rows of expected.yaml, in its order."""
    file = experiments / "appendix" / "reproduce" / "expected.yaml"
    for key, entry in read_yaml_file(file, what="what is expected of a reproduction").items():
        for label, row in entry.pop("rows").items():
            fields = {"experiment": key, "label": label, "metric": label} | entry | row
            sides = {side: Side(**fields[side]) for side in ("model", "baseline")}
            yield Comparison(**fields | sides)


def read_reproduction(experiments: Path, runs: Runs) -> list[Row]:
    """Return one row per comparison; nothing if the folder has no paper.yaml or no expected.yaml.

    The two models of a row differ only in `OF_THE_MODEL`, and smoke tests are excluded (see `_paired`). A
    fine-tuning uses the best of its learning rates, as in the paper.

    Args:
        experiments: the folder of the paper's numbers and of the records.
        runs: of the record and of this machine.
    """
    needed = ("paper.yaml", "appendix/reproduce/expected.yaml")
    if not all((experiments / name).is_file() for name in needed):
        return []
    paper = read_yaml_file(experiments / "paper.yaml", what="the paper's numbers")["experiments"]
    return [_row(paper[one.experiment], one, runs.runs) for one in read_comparisons(experiments)]


def excluded(rows: Sequence[Row], runs: pd.DataFrame) -> str:
    """Return how many runs of this machine no row shows, by reason; empty if every run is shown."""
    shown = {folder for row in rows for folder in row.folders}
    rest = runs[(runs.study == YOURS) & ~runs.folder.isin(shown)]
    other = rest.status.where(~rest.status.isin(ENDED), "of other models or settings")
    reasons = other.mask(_is_trial(rest), f"shorter than {TRIAL} steps")
    counts = [f"{count} {reason}" for reason, count in reasons.value_counts(sort=False).items()]
    return f"not in this table: {', '.join(counts)}" if counts else ""


def screen(rows: Sequence[Row], runs: pd.DataFrame, width: int = 100) -> str:
    """Return the rows as a table for a terminal, grouped by table and figure.

    The last lines list the comparisons that were not run, and count the runs that no row shows.
    """

    def line(*cells: str) -> str:
        text = " ".join(map(str.ljust, cells, WIDTHS)).rstrip()
        return text if len(text) <= width else text[: width - 1] + "…"

    lines = [line("model / baseline", "paper", "record", "here", "claim", "here and the record")]
    for where, group in groupby([row for row in rows if row.is_run], lambda row: row.where):
        first, *more = group
        here, record, paper = first.scales.values()
        shown = [here, *([f"record: {record}"] if record != here else []), f"paper: {paper}"]
        about = f"{where}, {first.models}: {'; '.join(shown)}"
        lines.append(shorten(about, width, placeholder=" …"))
        for row in (first, *more):
            cells = (row.paper, row.record, row.here, row.holds, row.verdict)
            lines.append(line(f"  {row.metric}", *cells))
    missing = dict.fromkeys(row.where for row in rows if not row.is_run)
    below = [
        f"not run: {', '.join(missing)}" if missing else "",
        LEGEND if len(lines) > 1 else "",
        excluded(rows, runs),
    ]
    lines += [shorten(text, width, placeholder=" …") for text in below if text]
    return "\n".join(lines)


def result_table(rows: Sequence[Row], runs: pd.DataFrame) -> Table | None:
    """Return the rows as a table for the dashboard; None without rows."""
    if not rows:
        return None
    header = ["", "Metric", "Paper", "Record", "Here", "Claim", "Here and the record"]
    lines, seen = [[*header, "Spread", "Scale"]], set[str]()
    for row in rows:
        scale = "; ".join(f"{name} {text}" for name, text in row.scales.items() if text)
        about = ("", "") if row.experiment in seen else (f"{row.where}, {row.models}", scale)
        cells = [row.metric, row.paper, row.record, row.here, row.holds, row.verdict, row.spread]
        lines.append([about[0], *cells, about[1]])
        seen.add(row.experiment)
    spread = (
        "Spread: of recorded runs; experiments/appendix/reproduce/expected.yaml has the sources."
    )
    notes = [*filter(None, [spread, excluded(rows, runs)])]
    return Table(f"Pairs: the model / its baseline. {LEGEND}", lines, text_columns=2, notes=notes)


def _row(about: Mapping[str, Any], one: Comparison, runs: pd.DataFrame) -> Row:
    recorded, mine = runs[runs.study == one.record], runs[runs.study == YOURS]
    record = [_measure(one, rows, recorded) for rows in _paired(one, recorded)]
    pair = _paired(one, mine, [side.config for side in record])
    here = [_measure(one, rows, mine) for rows in pair]
    numbers, paper = _paper(about, one)
    names = [one.names[0], "others" if one.label != one.metric else one.names[1]]
    scales = {"here": here, "record": record}
    return Row(
        experiment=one.experiment,
        title=about["title"],
        models=" / ".join(names),
        metric=one.label,
        paper=paper,
        record=_pair(record, one.digits),
        here=_pair(here, one.digits),
        spread=" / ".join(f"±{value:.{one.digits}f}" for value in one.spread),
        holds=_holds(one, here, numbers),
        verdict=_verdict(one, record, here),
        is_run=any(side.state != NOT_RUN for side in here),
        scales={
            name: next((side.scale for side in sides if side.scale), "")
            for name, sides in scales.items()
        }
        | {"paper": about["settings"].get("data", "not said")},
        folders={folder for rows in pair for folder in rows.folder},
    )


def _paired(
    one: Comparison, runs: pd.DataFrame, like: Sequence[Mapping[str, Any]] = ()
) -> list[pd.DataFrame]:
    """Return the runs of each side, one configuration each, that differ only in `OF_THE_MODEL`.

    If there are several pairs of configurations, pairs with a result on both sides come first, then those
    in `like`, then the pair written last.
    """
    runs = runs[~_is_trial(runs) & ~runs.recipe.str.startswith("stages").astype(bool)]
    rows = runs[(runs.pipeline == one.pipeline) & (runs.task == one.task)]
    found = pd.concat(
        rows.loc[[side.config.items() <= config.items() for config in rows.config]].assign(side=n)
        for n, side in enumerate(one.sides)
    )
    configs = [_configuration(run) for run in found.to_dict("records")]
    found = found.assign(
        kept=configs,
        key=[json.dumps(config, sort_keys=True) for config in configs],
        shared=[_shared(run, runs) for run in found.to_dict("records")],
        ended=found.status.isin(ENDED),
    )
    wanted = [json.dumps(config, sort_keys=True) for config in like]

    def rank(group: pd.DataFrame) -> tuple[Any, ...]:
        return group.side[group.ended].nunique(), group.key.isin(wanted).any(), group.written.max()

    def best(by: str, rows: pd.DataFrame) -> pd.DataFrame:
        return max((group for _, group in rows.groupby(by, sort=False)), key=rank, default=rows)

    pair = best("shared", found)
    return [best("key", pair[pair.side == number]) for number in range(2)]


def _measure(one: Comparison, rows: pd.DataFrame, runs: pd.DataFrame) -> Measured:
    """Return the result of runs of one configuration; `runs` has their pre-trainings."""
    if rows.empty:
        return Measured()
    ended = rows[rows.ended]
    first = (rows if ended.empty else ended).iloc[0]
    scale = _scale(first, runs)
    if ended.empty:
        return Measured(first.status, config=first.kept, scale=scale)
    if one.pipeline == "glue":  # the learning rate that the tables choose
        found = scores(rows[rows.status.isin((*ENDED, "failed"))])
        ended = ended[ended.folder.isin(found[found.chosen].folder)]
    values = [summary["metrics"].get(one.measured) for summary in ended.summary]
    state = "degenerate" if "degenerate" in set(ended.status) else "done"
    percent = 100 if one.pipeline in ("glue", "scm") else 1
    mean = pd.Series(values, dtype=float).mean(skipna=False)
    return Measured(state, percent * float(mean), first.kept, scale)


def _configuration(run: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a run, except those that differ between seeds or are chosen on validation."""
    kept = settings_of(run)
    if run["pipeline"] == "glue":
        kept.pop("optimizer.learning_rate", None)
    if kept.get("init_from"):
        kept["init_from"] = re.sub(r"-s-?\d+(?=@|$)", "", str(kept["init_from"]))
    return kept


def _shared(run: Mapping[str, Any], runs: pd.DataFrame) -> str:
    """Return the settings that both models of a comparison share, including their pre-training's."""
    kept = {k: v for k, v in _configuration(run).items() if not OF_THE_MODEL.fullmatch(k)}
    name, step = begun_from(run["config"])
    for earlier in runs[runs.run == name].to_dict("records"):
        kept |= {"step": step, "pre-training": _shared(earlier, runs)}
    return json.dumps(kept, sort_keys=True)


def _is_trial(runs: pd.DataFrame) -> "pd.Series[bool]":
    """Return which runs ended after so few steps that they are smoke tests."""
    return runs.status.isin(ENDED) & (runs.steps.astype(float) < TRIAL)


def _scale(run: Mapping[str, Any], runs: pd.DataFrame) -> str:
    """Return tokens, size and data of a run, and the tokens of its pre-training if `runs` has it."""
    config = run["config"]
    read = LOSSES[run["pipeline"]].read if run["pipeline"] in LOSSES else "tokens"
    amount = "" if run["tokens"] is None else f"{run['tokens'] / 1e6:,.1f} M {read}"
    if before := tokens_before(config, runs):
        amount += f" after {before / 1e6:,.1f} M"
    size = f"{config.get('model.layers', '?')} × {config.get('model.hidden_size', '?')}"
    data = str(config.get("data.kind", "")).removeprefix("scm_").removeprefix("bytes_")
    return ", ".join(filter(None, (amount, size, data)))


def _paper(about: Mapping[str, Any], one: Comparison) -> tuple[list[float], str]:
    """Return the paper's two numbers and their text; no numbers unless the paper has both."""
    numbers = []
    for side in one.sides:
        for number in about["numbers"]:
            name = f"{number['model']} ({number['position']})"
            fits = one.split in ("", number["split"])
            if fits and (name, number["metric"]) == (side.paper, one.metric):
                numbers.append(number)
                break
    if len(numbers) < 2:
        return [], "curves" if "curves" in about else "–"
    texts = [f"{number['value']:.{about['metrics'][one.metric]}f}" for number in numbers]
    other = "*" if len({number["split"] for number in numbers}) > 1 else ""
    return [number["value"] for number in numbers], f"{' / '.join(texts)}{other}"


def _pair(sides: Sequence[Measured], digits: int) -> str:
    texts = [side.text(digits) for side in sides]
    return "–" if all(side.state == NOT_RUN for side in sides) else " / ".join(texts)


def _holds(one: Comparison, here: Sequence[Measured], numbers: Sequence[float]) -> str:
    """Return whether the model is better here, as claimed by the paper: yes, no or unclear.

    Unclear is a lead within the larger spread. In brackets where the paper's own numbers have the
    model behind, so that nothing is claimed.
    """
    model, baseline = here
    lead = one.lead(model.value, baseline.value)  # NaN unless both ended
    if math.isnan(lead):
        return "–"
    answer = "unclear" if abs(lead) <= max(one.spread) else "yes" if lead > 0 else "no"
    return f"({answer})" if numbers and one.lead(*numbers) <= 0 else answer


def _verdict(one: Comparison, record: Sequence[Measured], here: Sequence[Measured]) -> str:
    """Return whether the values here are within the spread of the recorded ones, or why not compared."""
    if all(side.state == NOT_RUN for side in here):
        return NOT_RUN
    for name, side in zip(one.names, here, strict=True):
        if not side.ended:
            return f"{name}: {side.state}"
    if not all(side.ended for side in record):
        return "nothing recorded"
    for was, now in zip(record, here, strict=True):
        if keys := _differing(was.config, now.config):
            more = f" and {len(keys) - 1} more" if len(keys) > 1 else ""
            return f"other {keys[0]}{more}"
    for name, was, now in zip(one.names, record, here, strict=True):
        if now.state == "degenerate" != was.state:
            return f"{name}: degenerate"
    differences = [now.value - was.value for was, now in zip(record, here, strict=True)]
    if any(map(math.isnan, differences)):
        return "no number"
    if any(abs(d) > limit for d, limit in zip(differences, one.spread, strict=True)):
        return f"off by {' / '.join(signed(each, one.digits) for each in differences)}"
    return f"within {' / '.join(f'{limit:.{one.digits}f}' for limit in one.spread)}"


def _differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Return the keys in which two configs differ, the recipe first because it sets the others."""
    keys = {key for key in one.keys() | other.keys() if one.get(key) != other.get(key)}
    return sorted(keys, key=lambda key: (key != "recipe", not key.startswith("data."), key))
