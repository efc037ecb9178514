"""The runs of this machine beside the paper and the record: one row for each comparison of two models.

`screen` prints the rows of `read_reproduction`, the dashboard draws the same. The numbers of the paper, of
the record and from here stand side by side. No difference from the paper is taken, because
its scale is another: the verdicts hold the runs here against the record, and the order of the two models
against the claim.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from textwrap import shorten
from typing import Annotated, Any, NamedTuple

import pandas as pd
from pydantic import Field
from typing_extensions import TypedDict

from roformer.json_files import check_shape
from roformer.report.paper import Experiment, Paper, find_experiment, read_paper
from roformer.report.runs import (
    ENDED,
    LOSSES,
    YOURS,
    RecordError,
    Runs,
    read_yaml_file,
    settings_of,
)
from roformer.report.statistics import signed

Value = dict[str, Any]
"""A number of the paper's."""
EXPECTED = Path("reproduce") / "expected.yaml"
"""The spreads, below the folder of recorded studies."""
OF_THE_MODEL = re.compile(
    r"model\..*|init_from|init_revision|tokenizer\..*|training\.max_length|optimizer\.learning_rate"
)
"""Keys in which also the two models of a comparison may differ."""
NOT_RUN = "not run"
LEGEND = "claim: yes if ahead by more than the spread; (…) not claimed by the paper; * copied, another split"
WIDTHS = (18, 13, 14, 14, 10, 28)
"""Widths of the columns on a terminal."""
Spread = Annotated[float, Field(gt=0, le=1000)]


class Expected(TypedDict):
    """The entry of a table or figure in expected.yaml."""

    record: str
    """The study whose runs are the record."""
    spread: dict[str, Annotated[list[Spread], Field(min_length=2, max_length=2)]]
    """Label of a comparison → the spread of the model and of the baseline."""
    how: str


class Side(NamedTuple):
    """A model of a comparison."""

    paper: str
    """Its row in paper.yaml, model and position: `RoFormer (rotary)`."""
    config: Mapping[str, Any]
    """Dotted key → value that its runs have."""


class Comparison(NamedTuple):
    """The two models that a claim of the paper compares."""

    experiment: str
    """Key of paper.yaml."""
    metric: str
    """As paper.yaml calls it."""
    pipeline: str
    measured: str
    """As the summary of a run calls it."""
    model: Side
    baseline: Side
    label: str = ""
    """Names it among those of the experiment; the metric where empty."""
    task: str = ""
    lower_is_better: bool = False
    percent: bool = False
    """A share is measured, and shown in points of a hundred."""
    digits: int = 1
    split: str = ""
    """The split of the paper's numbers, where it has several."""

    @property
    def names(self) -> tuple[str, str]:
        """Names of the two: by model, or by position where they share the model."""
        words = [
            side.paper.removesuffix(")").partition(" (") for side in (self.model, self.baseline)
        ]
        at = 0 if words[0][0] != words[1][0] else 2
        return words[0][at], words[1][at]


class Measured(NamedTuple):
    """Results of the runs of one side."""

    state: str = NOT_RUN
    """`done`, `degenerate`, `running`, `failed` or `not run`."""
    value: float = math.nan
    """Mean over seeds; NaN without one."""
    seeds: int = 0
    config: Mapping[str, Any] = {}
    """Without the keys that are free."""
    scale: str = ""

    def text(self, digits: int) -> str:
        """Return the value, or why there is none."""
        if self.state in ("done", "degenerate"):
            return "NaN" if math.isnan(self.value) else f"{self.value:.{digits}f}"
        return "–" if self.state == NOT_RUN else self.state


class Row(NamedTuple):
    """A comparison with its numbers; where there are two, the model's is before the baseline's."""

    experiment: str
    """Key of paper.yaml."""
    where: str
    """Table or figure."""
    title: str
    claim: str
    """In the paper's words."""
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
    """True if there is a run of one of the two models on this machine."""
    paper_scale: str
    paper_settings: str
    record_scale: str
    here_scale: str
    how: str
    """Source of the spread."""


def _rotary(model: str) -> Side:
    return Side("RoFormer (rotary)", {"model.name": model, "model.position.kind": "rotary"})


def _glue(metric: str, measured: str) -> Comparison:
    bert = Side("BERT (learned)", {"model.name": "bert"})
    task = measured.partition("/")[0]
    return Comparison(
        "table_2", metric, "glue", measured, _rotary("roformer"), bert, task=task, percent=True
    )


def _bytes(paper: str, position: str) -> Side:
    config = {"model.attention.kind": "performer", "model.position.kind": position}
    if position == "rotary":
        config["model.attention.rope_position"] = "post"  # as Eq. 19 has it
    return Side(paper, config)


def _causal(name: str, position: str) -> Comparison:
    return Comparison(
        "clm",
        "causal-LM loss",
        "clm",
        "valid/loss",
        Side("rotary", {"model.position.kind": "rotary"}),
        Side(name, {"model.position.kind": position}),
        label=f"loss, {name}",
        lower_is_better=True,
        digits=3,
    )


def _triplets(name: str, model: str) -> Comparison:
    position = "rotary" if model == "roformer" else "absolute"
    long, short = (
        Side(f"{words} ({kind})", {"model.name": called, "training.max_length": length})
        for words, kind, called, length in (
            ("RoFormer-1024", "rotary", "roformer", 1024),
            (name, position, model, 512),
        )
    )
    return Comparison(
        "table_5", "accuracy", "scm", "test/accuracy", long, short, name, percent=True, split="test"
    )


COMPARISONS = (
    Comparison(
        "figure_3_left",
        "masked-LM loss",
        "pretrain",
        "valid/mlm_loss",
        _rotary("roformer"),
        Side("BERT (learned)", {"model.name": "bert", "model.position.kind": "learned"}),
        lower_is_better=True,
        digits=3,
    ),
    _glue("MRPC F1", "mrpc/f1"),
    _glue("SST-2 accuracy", "sst2/accuracy"),
    _glue("QNLI accuracy", "qnli/accuracy"),
    _glue("STS-B Spearman", "stsb/spearman"),
    _glue("QQP F1", "qqp/f1"),
    _glue("MNLI-m accuracy", "mnli/accuracy_matched"),
    _glue("MNLI-mm accuracy", "mnli/accuracy_mismatched"),
    Comparison(
        "table_1",
        "BLEU",
        "wmt",
        "test/sacrebleu",
        _rotary("roformer"),
        Side(
            "Transformer-base (sinusoidal)",
            {"model.name": "transformer", "model.position.kind": "sinusoidal"},
        ),
    ),
    Comparison(
        "figure_3_right",
        "bits per byte",
        "charlm",
        "valid/bits_per_byte_whole",
        _bytes("Performer (rotary)", "rotary"),
        _bytes("Performer (not rotary)", "none"),
        lower_is_better=True,
        digits=3,
    ),
    _causal("learned", "learned"),
    _causal("sinusoidal", "sinusoidal"),
    _causal("T5", "t5"),
    _triplets("RoFormer-512", "roformer"),
    _triplets("WoBERT-512", "wobert"),
    _triplets("BERT-512", "bert"),
)


def read_reproduction(experiments: Path, runs: Runs) -> list[Row]:
    """Return a row for each comparison; none where the folder has no paper.yaml or no expected.yaml.

    Of several configurations of a model on this machine the recorded one counts, else the one that
    was written last; of several learning rates of a fine-tuning the best, as the paper chooses.

    Args:
        experiments: the folder of the paper's numbers and of the spreads.
        runs: of the record and of this machine.

    Raises:
        RecordError: one of the files is damaged, or a comparison is not in the paper's numbers.
    """
    files = (experiments / "paper.yaml", experiments / EXPECTED)
    if not all(file.is_file() for file in files):
        return []
    paper = read_paper(files[0])
    expected = read_yaml_file(files[1], what="the spreads of the record")
    try:
        check_shape(dict[str, Expected], expected)
    except ValueError as error:
        raise RecordError(f"{files[1]} is not the spreads of the record: {error}") from error
    return [_row(paper, expected.get(one.experiment), one, runs.runs) for one in COMPARISONS]


def screen(rows: Sequence[Row], width: int = 100) -> str:
    """Return the rows as a table for a terminal, grouped by table and figure.

    Those of which nothing was run are named in the last line.
    """
    header = ("paper", "record", "here", "claim", "here and the record")
    lines = [_cut(_line("model / baseline", header), width)]
    seen = set()
    for row in (row for row in rows if row.is_run):
        if row.where not in seen:
            seen.add(row.where)
            scales = [row.here_scale, f"paper: {row.paper_scale}"]
            if row.record_scale != row.here_scale:
                scales.insert(1, f"record: {row.record_scale}")
            about = f"{row.where}, {row.models}: {'; '.join(scales)}"
            lines.append(shorten(about, width, placeholder=" …"))
        cells = (row.paper, row.record, row.here, row.holds, row.verdict)
        lines.append(_cut(_line(f"  {row.metric}", cells), width))
    if missing := dict.fromkeys(row.where for row in rows if not row.is_run):
        lines.append(shorten(f"not run: {', '.join(missing)}", width, placeholder=" …"))
    if len(lines) > 1:
        lines.append(shorten(LEGEND, width, placeholder=" …"))
    return "\n".join(lines)


def _cut(line: str, width: int) -> str:
    """Return a line that is cut at the width, with its columns as they are."""
    return line if len(line) <= width else line[: width - 1] + "…"


def _line(label: str, cells: Iterable[str]) -> str:
    columns = zip((label, *cells), WIDTHS, strict=True)
    return " ".join(text.ljust(width) for text, width in columns).rstrip()


def _row(paper: Paper, expected: Expected | None, one: Comparison, runs: pd.DataFrame) -> Row:
    about = find_experiment(paper, one.experiment)
    where, _, what = about["title"].partition(":")
    label = one.label or one.metric
    recorded = runs[runs.study == (expected["record"] if expected else "")]
    yours = runs[runs.study == YOURS]
    record = [_measure(one, side, recorded) for side in (one.model, one.baseline)]
    here = [
        _measure(one, side, yours, like.config)
        for side, like in zip((one.model, one.baseline), record, strict=True)
    ]
    spread = expected["spread"].get(label, []) if expected else []
    numbers = [_number(about, one, side) for side in (one.model, one.baseline)]
    return Row(
        experiment=one.experiment,
        where=what.strip().capitalize() if one.experiment in paper["beyond"] else where,
        title=about["title"],
        claim=about["claim"],
        models=" / ".join((one.names[0], "others" if one.label else one.names[1])),
        metric=label,
        paper=_paper_text(about, one, numbers),
        record=_pair(record, one.digits),
        here=_pair(here, one.digits),
        spread=" / ".join(f"±{value:.{one.digits}f}" for value in spread),
        holds=_holds(one, here, numbers, spread),
        verdict=_verdict(one, record, here, spread),
        is_run=any(side.state != NOT_RUN for side in here),
        paper_scale=about["settings"].get("data", "not said"),
        paper_settings="; ".join(f"{key} {value}" for key, value in about["settings"].items()),
        record_scale=next((side.scale for side in record if side.scale), ""),
        here_scale=next((side.scale for side in here if side.scale), ""),
        how=expected["how"] if expected else "",
    )


def _measure(
    one: Comparison, side: Side, runs: pd.DataFrame, like: Mapping[str, Any] | None = None
) -> Measured:
    """Return what a side came to, in one configuration: that of `like`, else the one written last."""
    groups: list[tuple[dict[str, Any], list[dict[str, Any]]]] = []
    same = (runs.pipeline == one.pipeline) & (runs.task == one.task)
    for run in runs[same & ~runs.recipe.str.startswith("stages")].to_dict("records"):
        if not all(run["config"].get(key) == value for key, value in side.config.items()):
            continue
        config = _configuration(run)
        for known, group in groups:
            if known == config:
                group.append(run)
                break
        else:
            groups.append((config, [run]))
    if not groups:
        return Measured()
    config, chosen = next(
        (each for each in groups if each[0] == (like or {})),
        max(groups, key=lambda each: max(run["written"] for run in each[1])),
    )
    by_rate: dict[Any, list[dict[str, Any]]] = {}
    for run in chosen:
        by_rate.setdefault(run["config"].get("optimizer.learning_rate"), []).append(run)
    tokens = dict(zip(runs.run, runs.tokens, strict=True))
    found = [_mean(one, seeds, config, tokens) for seeds in by_rate.values()]
    # Higher is better wherever several rates are tried; what has no value comes last.
    return max(found, key=lambda m: (m.seeds > 0, -math.inf if math.isnan(m.value) else m.value))


def _mean(
    one: Comparison,
    runs: Sequence[dict[str, Any]],
    config: dict[str, Any],
    tokens: Mapping[str, int | None],
) -> Measured:
    """Return the mean over seeds; `tokens` are of all runs, for the scale of those that they start from."""
    ended = [run for run in runs if run["status"] in ENDED]
    states = {run["status"] for run in runs}
    scale = _scale((ended or runs)[0], tokens)
    if not ended:
        why = next(s for s in ("running", "failed", "damaged") if s in states)
        return Measured(why, config=config, scale=scale)
    values = [run["summary"]["metrics"].get(one.measured) for run in ended]
    value = fmean(math.nan if value is None else value for value in values)
    state = "degenerate" if "degenerate" in states else "done"
    return Measured(state, value * (100 if one.percent else 1), len(ended), config, scale)


def _configuration(run: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of a run without what may differ between seeds, or is chosen on validation."""
    kept = settings_of(run)
    if run["pipeline"] == "glue":
        kept.pop("optimizer.learning_rate", None)
    if kept.get("init_from"):
        kept["init_from"] = re.sub(r"-s-?\d+$", "", str(kept["init_from"]))
    return kept


def _scale(run: dict[str, Any], started: Mapping[str, int | None]) -> str:
    """Return tokens, size and data of a run, and the tokens of its pre-training."""
    read = LOSSES[run["pipeline"]].read if run["pipeline"] in LOSSES else "tokens"
    tokens = f"{run['tokens'] / 1e6:,.1f} M {read}" if run["tokens"] is not None else ""
    config = run["config"]
    if before := started.get(str(config.get("init_from"))):
        tokens += f" after {before / 1e6:,.1f} M"
    layers, wide = config.get("model.layers"), config.get("model.hidden_size")
    size = f"{layers} × {wide}" if layers and wide else ""
    data = str(config.get("data.kind", "")).removeprefix("scm_").removeprefix("bytes_")
    return ", ".join(filter(None, (tokens, size, data)))


def _number(about: Experiment, one: Comparison, side: Side) -> Value | None:
    """Return the paper's number of a side; None where it has none."""
    for value in about["numbers"]:
        name = f"{value['model']} ({value['position']})"
        if (name, value["metric"]) == (side.paper, one.metric) and value["split"] in (
            one.split or value["split"],
        ):
            return value
    return None


def _paper_text(about: Experiment, one: Comparison, numbers: Sequence[Value | None]) -> str:
    first, second = numbers
    if first is None or second is None:
        return "curves" if "curves" in about else "–"
    digits = about["metrics"][one.metric]
    other = "*" if first["split"] != second["split"] else ""
    return f"{first['value']:.{digits}f} / {second['value']:.{digits}f}{other}"


def _pair(sides: Sequence[Measured], digits: int) -> str:
    if all(side.state == NOT_RUN for side in sides):
        return "–"
    return " / ".join(side.text(digits) for side in sides)


def _holds(
    one: Comparison,
    here: Sequence[Measured],
    numbers: Sequence[Value | None],
    spread: Sequence[float],
) -> str:
    """Return whether the model is better here, as the paper claims: yes, no or unclear.

    Unclear is a lead within the larger spread. In brackets where the paper's own numbers have the
    model behind, so that nothing is claimed.
    """
    model, baseline = here
    if not (model.seeds and baseline.seeds and _alike(model, baseline)):
        return "–"
    lead = (baseline.value - model.value) * (1 if one.lower_is_better else -1)
    if math.isnan(lead):
        return "–"
    clear = "yes" if lead > 0 else "no"
    answer = clear if abs(lead) > max(spread, default=0.0) else "unclear"
    first, second = numbers
    if first is not None and second is not None:
        ahead = (first["value"] - second["value"]) * (-1 if one.lower_is_better else 1)
        return answer if ahead > 0 else f"({answer})"
    return answer


def _alike(model: Measured, baseline: Measured) -> bool:
    """Tell whether two sides share all that is not their model's."""
    return not _differing(
        *(
            {k: v for k, v in side.config.items() if not OF_THE_MODEL.fullmatch(k)}
            for side in (model, baseline)
        )
    )


def _verdict(
    one: Comparison,
    record: Sequence[Measured],
    here: Sequence[Measured],
    spread: Sequence[float],
) -> str:
    if all(side.state == NOT_RUN for side in here):
        return NOT_RUN
    for name, side in zip(one.names, here, strict=True):
        if not side.seeds:
            return f"{name}: {side.state}"
    if not all(side.seeds for side in record):
        return "nothing recorded"
    for was, now in zip(record, here, strict=True):
        if keys := _differing(was.config, now.config):
            more = f" and {len(keys) - 1} more" if len(keys) > 1 else ""
            return f"other {keys[0]}{more}"
    for name, was, now in zip(one.names, record, here, strict=True):
        if now.state == "degenerate" != was.state:
            return f"{name}: degenerate"
    if not spread:
        return "no spread stated"
    differences = [now.value - was.value for was, now in zip(record, here, strict=True)]
    if any(map(math.isnan, differences)):
        return "no number"
    far = any(abs(d) > limit for d, limit in zip(differences, spread, strict=True))
    limits = " / ".join(f"{limit:.{one.digits}f}" for limit in spread)
    shown = " / ".join(signed(difference, one.digits) for difference in differences)
    return f"off by {shown}" if far else f"within {limits}"


def _differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """Return the keys in which two configs differ; the recipe, which names the others, first."""
    keys = {key for key in one.keys() | other.keys() if one.get(key) != other.get(key)}
    return sorted(keys, key=lambda key: (key != "recipe", not key.startswith("data."), key))
