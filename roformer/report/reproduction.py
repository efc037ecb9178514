"""The runs of this machine beside the record and the paper: one row for each comparison of two models.

`screen` prints the rows of `read_reproduction`, the dashboard draws the same. No difference from the paper
is taken, because its scale is another: the verdicts hold the runs here against the record, and the order of
the two models against the claim. What is compared is data: `experiments/reproduce/expected.yaml`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from textwrap import shorten
from typing import Any, NamedTuple

import pandas as pd
from pydantic import BaseModel, TypeAdapter

from roformer.report.paper import read_paper
from roformer.report.runs import (
    ENDED,
    LOSSES,
    YOURS,
    RecordError,
    Runs,
    read_yaml_file,
    settings_of,
    tokens_before,
)
from roformer.report.scores import scores
from roformer.report.statistics import signed

OF_THE_MODEL = re.compile(
    r"model\.(name|position|attention)(\..*)?|init_from|init_revision|tokenizer\..*|training\.max_length"
    r"|optimizer\.learning_rate"
)
"""Keys in which the two models of a comparison may differ."""
NOT_RUN = "not run"
LEGEND = "claim: yes if ahead by more than the spread; (…) not claimed by the paper; * copied, another split"
WIDTHS = (18, 13, 14, 14, 10, 28)
"""Widths of the columns on a terminal."""


class Side(BaseModel):
    """A model of a comparison: its row in paper.yaml, `RoFormer (rotary)`, and settings of its runs."""

    paper: str
    config: dict[str, Any]


class Comparison(BaseModel, extra="forbid"):
    """A row of expected.yaml; see there."""

    experiment: str
    label: str
    record: str
    pipeline: str
    metric: str
    measured: str
    model: Side
    baseline: Side
    spread: tuple[float, float]
    how: str
    task: str = ""
    split: str = ""

    @property
    def sides(self) -> tuple[Side, Side]:
        return self.model, self.baseline

    @property
    def names(self) -> list[str]:
        """Names of the two: by model, or by position where they share the model."""
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
    """Mean over seeds; NaN without one."""
    config: Mapping[str, Any] = {}
    """Without the keys that are free."""
    scale: str = ""

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    def text(self, digits: int) -> str:
        """Return the value, or why there is none."""
        if self.ended:
            return "NaN" if math.isnan(self.value) else f"{self.value:.{digits}f}"
        return "–" if self.state == NOT_RUN else self.state


class Row(NamedTuple):
    """A comparison with its numbers; where there are two, the model's is before the baseline's.

    `where` is a table or figure of the paper, `experiment` its key in paper.yaml; `is_run`: of one of the
    two models there is a run on this machine; `how`: the source of the spread.
    """

    experiment: str
    where: str
    title: str
    claim: str
    models: str
    metric: str
    paper: str
    record: str
    here: str
    spread: str
    holds: str
    """Verdict on the claim: is the order of the two models here the claimed one?"""
    verdict: str
    """Verdict on the result here against the record."""
    is_run: bool
    paper_scale: str
    paper_settings: str
    record_scale: str
    here_scale: str
    how: str


def read_comparisons(file: Path) -> list[Comparison]:
    """Return the rows of an expected.yaml, in their order.

    Raises:
        RecordError: it cannot be read, or a key is missing, unknown or of another type.
    """
    content = read_yaml_file(file, what="what is expected of a reproduction")
    rows = []
    try:
        for key, entry in content.items():
            shared = {"experiment": key, **entry}
            for label, row in shared.pop("rows").items():
                rows.append({"label": label, "metric": label} | shared | row)
        return TypeAdapter(list[Comparison]).validate_python(rows)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RecordError(f"{file} is not what is expected of a reproduction: {error}") from error


def read_reproduction(experiments: Path, runs: Runs) -> list[Row]:
    """Return a row for each comparison; none where the folder has no paper.yaml or no expected.yaml.

    Of several configurations of a model on this machine the recorded one counts, else the one that
    was written last; of several learning rates of a fine-tuning the best, as the paper chooses.

    Args:
        experiments: the folder of the paper's numbers and of the records.
        runs: of the record and of this machine.

    Raises:
        RecordError: one of the files is damaged.
    """
    numbers, expected = experiments / "paper.yaml", experiments / "reproduce" / "expected.yaml"
    if not (numbers.is_file() and expected.is_file()):
        return []
    found = read_paper(numbers)["experiments"]
    return [_row(found[one.experiment], one, runs.runs) for one in read_comparisons(expected)]


def screen(rows: Sequence[Row], width: int = 100) -> str:
    """Return the rows as a table for a terminal, grouped by table and figure.

    Those of which nothing was run are named in the last line.
    """

    def line(*cells: str) -> str:
        text = " ".join(map(str.ljust, cells, WIDTHS)).rstrip()
        return text if len(text) <= width else text[: width - 1] + "…"

    lines = [line("model / baseline", "paper", "record", "here", "claim", "here and the record")]
    for where, alike in groupby([row for row in rows if row.is_run], lambda row: row.where):
        first, *more = alike
        scales = [first.here_scale, f"record: {first.record_scale}", f"paper: {first.paper_scale}"]
        if first.record_scale == first.here_scale:
            del scales[1]
        about = f"{where}, {first.models}: {'; '.join(scales)}"
        lines.append(shorten(about, width, placeholder=" …"))
        for row in (first, *more):
            cells = (row.paper, row.record, row.here, row.holds, row.verdict)
            lines.append(line(f"  {row.metric}", *cells))
    below = [LEGEND] if len(lines) > 1 else []
    if missing := dict.fromkeys(row.where for row in rows if not row.is_run):
        below.insert(0, f"not run: {', '.join(missing)}")
    return "\n".join([*lines, *(shorten(text, width, placeholder=" …") for text in below)])


def _row(about: Mapping[str, Any], one: Comparison, runs: pd.DataFrame) -> Row:
    record = [_measure(one, side, runs[runs.study == one.record]) for side in one.sides]
    here = [
        _measure(one, side, runs[runs.study == YOURS], like.config)
        for side, like in zip(one.sides, record, strict=True)
    ]
    numbers, paper = _paper(about, one)
    names = [one.names[0], "others" if one.label != one.metric else one.names[1]]
    settings = about["settings"]
    return Row(
        experiment=one.experiment,
        where=about["title"].partition(":")[0],
        title=about["title"],
        claim=about["claim"],
        models=" / ".join(names),
        metric=one.label,
        paper=paper,
        record=_pair(record, one.digits),
        here=_pair(here, one.digits),
        spread=" / ".join(f"±{value:.{one.digits}f}" for value in one.spread),
        holds=_holds(one, here, numbers),
        verdict=_verdict(one, record, here),
        is_run=any(side.state != NOT_RUN for side in here),
        paper_scale=settings.get("data", "not said"),
        paper_settings="; ".join(f"{key} {value}" for key, value in settings.items()),
        record_scale=next((side.scale for side in record if side.scale), ""),
        here_scale=next((side.scale for side in here if side.scale), ""),
        how=one.how,
    )


def _measure(
    one: Comparison, side: Side, runs: pd.DataFrame, like: Mapping[str, Any] | None = None
) -> Measured:
    """Return what a side came to, in one configuration: that of `like`, else the one written last."""
    rows = runs[
        (runs.pipeline == one.pipeline)
        & (runs.task == one.task)
        & ~runs.recipe.str.startswith("stages").astype(bool)
        & runs.config.map(lambda config: side.config.items() <= config.items()).astype(bool)
    ]
    if rows.empty:
        return Measured()
    configs = [_configuration(run) for run in rows.to_dict("records")]
    rows = rows.assign(kept=configs, key=[json.dumps(one, sort_keys=True) for one in configs])
    last = rows.key.iloc[rows.written.to_numpy(float).argmax()]
    same = rows[rows.key == json.dumps(like, sort_keys=True)]
    rows = rows[rows.key == last] if same.empty else same
    ended = rows[rows.status.isin(ENDED)]
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
    """Return the settings of a run without what may differ between seeds, or is chosen on validation."""
    kept = settings_of(run)
    if run["pipeline"] == "glue":
        kept.pop("optimizer.learning_rate", None)
    if kept.get("init_from"):
        kept["init_from"] = re.sub(r"-s-?\d+(?=@|$)", "", str(kept["init_from"]))
    return kept


def _scale(run: Mapping[str, Any], runs: pd.DataFrame) -> str:
    """Return tokens, size and data of a run, and the tokens of its pre-training, which is of `runs`."""
    config = run["config"]
    read = LOSSES[run["pipeline"]].read if run["pipeline"] in LOSSES else "tokens"
    amount = "" if run["tokens"] is None else f"{run['tokens'] / 1e6:,.1f} M {read}"
    if before := tokens_before(config, runs):
        amount += f" after {before / 1e6:,.1f} M"
    size = f"{config.get('model.layers', '?')} × {config.get('model.hidden_size', '?')}"
    data = str(config.get("data.kind", "")).removeprefix("scm_").removeprefix("bytes_")
    return ", ".join(filter(None, (amount, size, data)))


def _paper(about: Mapping[str, Any], one: Comparison) -> tuple[list[float], str]:
    """Return the paper's numbers of the two, none where it has not both, and their text."""
    found = [
        next((number for number in about["numbers"] if _is_of(number, side, one)), None)
        for side in one.sides
    ]
    numbers = [number for number in found if number]
    if len(numbers) < 2:
        return [], "curves" if "curves" in about else "–"
    texts = [f"{number['value']:.{about['metrics'][one.metric]}f}" for number in numbers]
    other = "*" if len({number["split"] for number in numbers}) > 1 else ""
    return [number["value"] for number in numbers], f"{' / '.join(texts)}{other}"


def _is_of(number: Mapping[str, Any], side: Side, one: Comparison) -> bool:
    name = f"{number['model']} ({number['position']})"
    here = one.split in ("", number["split"])
    return here and (name, number["metric"]) == (side.paper, one.metric)


def _pair(sides: Sequence[Measured], digits: int) -> str:
    texts = [side.text(digits) for side in sides]
    return "–" if all(side.state == NOT_RUN for side in sides) else " / ".join(texts)


def _holds(one: Comparison, here: Sequence[Measured], numbers: Sequence[float]) -> str:
    """Return whether the model is better here, as the paper claims: yes, no or unclear.

    Unclear is a lead within the larger spread. In brackets where the paper's own numbers have the
    model behind, so that nothing is claimed.
    """
    model, baseline = here
    differing = _differing(model.config, baseline.config)
    if not all(map(OF_THE_MODEL.fullmatch, differing)) or not (model.ended and baseline.ended):
        return "–"
    lead = one.lead(model.value, baseline.value)
    if math.isnan(lead):
        return "–"
    answer = "unclear" if abs(lead) <= max(one.spread) else "yes" if lead > 0 else "no"
    return f"({answer})" if numbers and one.lead(*numbers) <= 0 else answer


def _verdict(one: Comparison, record: Sequence[Measured], here: Sequence[Measured]) -> str:
    """Return whether the values here are within the spread of the recorded ones, or why that is not said."""
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
    """Return the keys in which two configs differ; the recipe, which names the others, first."""
    keys = {key for key in one.keys() | other.keys() if one.get(key) != other.get(key)}
    return sorted(keys, key=lambda key: (key != "recipe", not key.startswith("data."), key))
