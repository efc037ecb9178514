"""Tables of the paper's numbers and ours, which are never in one column and never subtracted.

The paper's numbers and ours have different data, models and budgets, and the paper's are of different
splits. So the header of every column with the paper's numbers names the split and says whether the paper
copied them. Our numbers have separate columns. The caveats of a table are printed with it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from roformer.report.runs import (
    ENDED,
    LOSSES,
    RecordError,
    Runs,
    begun_from,
    read_runs,
    read_yaml_file,
    settings_of,
    tokens_before,
)
from roformer.report.scores import baseline_texts, left_out, paired_table, scores
from roformer.report.statistics import mean_text
from roformer.report.studies import Study
from roformer.report.tables import Table, different_names, mean_lines

PAPER = Path(__file__).resolve().parents[2] / "experiments" / "paper.yaml"
"""Part of a clone of the repository; an installed package does not have it."""
SPLITS = ("validation", "test", "training", "not said", "no data")
"""Splits in the order of their columns; `no data` is for a formula."""
SOURCE = "source, or our data and scale"
STAGES_END = ("valid/mlm_loss", "valid/mlm_accuracy")
"""Metrics by which trainings in stages are compared."""
BLOCKS = ("batch_size", "sequence_length")
OF_A_STAGE = (
    *("recipe", "init_from", "init_revision", "init_digest", "keep_moments"),
    *("schedule.first_update", "training.first_epoch"),
    *("training.steps", "training.batch_size", "training.sequence_length"),
)
"""Settings in which the stages of a training differ."""
Paper = dict[str, Any]
"""Content of paper.yaml, which describes its keys."""


class Ours(NamedTuple):
    """One of our numbers in a table of the paper's."""

    metric: str
    """The paper's name of it."""
    model: str
    """Model and position, `roformer (rotary)`."""
    setting: str
    """Data and scale: `builtin, 4.9 M tokens in 600 steps, mini`."""
    column: str
    text: str
    """Mean ± standard deviation (n)."""
    signature: str = ""
    """Signature of the metric; numbers with different ones cannot share a column."""
    words: Mapping[str, str] = {}
    """Header → cell of further columns that describe a row."""


def read_paper(path: Path | None = None) -> Paper:
    """Return the content of paper.yaml, by default the repository's."""
    path = path or PAPER
    if path == PAPER and not path.is_file():
        raise RecordError(
            "experiments/paper.yaml, with the paper's numbers, is not part of an installed package: "
            "install a clone of the repository with pip install -e ."
        )
    content = read_yaml_file(path, what="the paper's numbers")
    for key in ("paper", "sources", "caveats", "claims", "experiments", "others"):
        if not content.get(key):
            raise RecordError(f"{path} is not the paper's numbers: {key}: is missing")
    return content


def published(model: str, metric: str) -> float | None:
    """Return the published number of another model for a metric of our GLUE tasks, or None."""
    paper = read_paper()
    name, *_ = paper["experiments"]["table_2"]["ours"]["metrics"].get(metric, [None])
    for other in paper["others"]:
        if (other["model"], other["metric"], other["about"]) == (model, name, "table_2"):
            return float(other["value"])
    return None


# --- tables --------------------------------------------------------------------------------------


def paper_sections(paper: Paper, studies: Sequence[Study]) -> list[Table]:
    """Return each table of the paper with the numbers of our studies of it."""
    runs = read_runs([study.folder for study in studies if study.has_runs])
    tables = []
    for key, about in paper["experiments"].items():
        ours: list[Ours] = []
        notes: list[str] = []
        for study in studies:
            if study.claim == key and "ours" in about:
                study_ours(about["ours"], study, runs, ours, notes)
        if key != "figure_2":  # a separate study has the bound, with all its distances
            tables.append(against_paper(paper, key, ours, notes))
    return [*tables, others_table(paper)]


def against_paper(
    paper: Paper, key: str, ours: Sequence[Ours] = (), notes: Sequence[str] = ()
) -> Table:
    """Return a table of the paper with our numbers in separate columns; `not run` if there are none.

    Args:
        paper: see `read_paper`.
        key: of a table or figure.
        ours: from any number of studies.
        notes: on our numbers.
    """
    about = paper["experiments"][key]
    headers = list(dict.fromkeys(f"ours, {one.column} (n)" for one in ours)) or ["ours"]
    extra = [
        name
        for name in ("tokens", "length", "batch", "steps")
        if any(name in model for model in about["models"])
    ]
    words = ["metric", "model", *extra, SOURCE]
    lines: dict[tuple[str, ...], dict[str, str]] = {}
    for metric in about["metrics"] or [""]:
        own = [one for one in ours if one.metric == metric]
        not_run = {} if own else dict.fromkeys(headers, "not run")
        for model in about["models"]:
            line = _paper_line(paper, about, model, metric)
            lines[metric, line["model"]] = line | not_run
        for one in own:
            place = (metric, one.model, one.setting)
            start = {"metric": metric, "model": one.model, SOURCE: one.setting, **one.words}
            header = f"ours, {one.column} (n)"
            if lines.setdefault(place, start).setdefault(header, one.text) != one.text:
                raise RecordError(f"two values of {', '.join(place)}: a cell has one source")
    signatures: dict[str, str] = {}
    for one in ours:
        if signatures.setdefault(one.column, one.signature) != one.signature:
            raise RecordError(
                f"{one.column} has two signatures, {signatures[one.column]} and {one.signature}: "
                "scores with different signatures cannot stand in one column"
            )
    every = [*words, *_columns(paper, about), *headers]
    told = [*_notes(paper, key)]
    if ours:
        told.append(
            "The paper's numbers and ours are of other data, models and budgets: each has columns of "
            "its own, and no difference between them is taken."
        )
    told += [f"Ours, {column}: {one}" for column, one in signatures.items() if one]
    rows = [[line.get(header, "") for header in every] for line in lines.values()]
    return Table(about["title"], [every, *rows], len(words), [*told, *dict.fromkeys(notes)])


def others_table(paper: Paper) -> Table:
    """Return the numbers of third parties, which are in no other table."""
    lines = [["about", "who", "model", "metric", "split", "third party's number"]]
    for other in paper["others"]:
        title = paper["experiments"][other["about"]]["title"].partition(":")[0]
        words = (other["who"], other["model"], other["metric"], other["split"])
        lines.append([title, *words, f"{other['value']:g}"])
    note = "Measured neither by the paper nor here; as their authors state them, not checked."
    return Table("Numbers of third parties", lines, 5, [note])


def claims(paper: Paper, studies: Iterable[Study]) -> Table:
    """Return one row per claim: the paper's evidence, and the outcome of each study of it.

    A claim without a study, or with a study without outcome, is `not run yet`.
    """
    found: dict[str, list[Study]] = {"none": []} | {key: [] for key in paper["claims"]}
    for study in studies:
        if study.claim not in found:
            known = ", ".join(found)
            raise RecordError(f"{study.folder} is about {study.claim}: choose one of {known}")
        found[study.claim].append(study)
    lines = [["claim", "where", "the paper shows", "our studies"]]
    for key in paper["claims"]:
        experiment = paper["experiments"][key]
        words = [experiment["claim"], experiment["title"].partition(":")[0], experiment["shows"]]
        ours = [f"{study.folder.name}: {study.outcome or 'not run yet.'}" for study in found[key]]
        lines.append([*words, " ".join(ours) or "not run yet"])
    note = "None of our studies has the paper's scale; each says what it measured, and on what."
    return Table("Claims of the paper", lines, 4, [note])


def _columns(paper: Paper, about: Mapping[str, Any]) -> list[str]:
    """Return the headers of the paper's columns, one per split and origin."""
    if "curves" in about:
        return [f"paper, {about['curves']} (a curve)"]
    ordered = sorted(about["numbers"], key=lambda number: SPLITS.index(number["split"]))
    return list(dict.fromkeys(_column(paper, about, number) for number in ordered))


def _column(paper: Paper, about: Mapping[str, Any], number: Mapping[str, Any]) -> str:
    """Return the header of a number of the paper: author, split, and whether it is copied."""
    who = "paper" if about["by"] == paper["paper"] else paper["sources"][about["by"]]["name"]
    split = "split not said" if number["split"] == "not said" else number["split"]
    return f"{who}, {split}{' (copied)' if number['origin'] == 'copied' else ''}"


def _paper_line(
    paper: Paper, about: Mapping[str, Any], model: Mapping[str, Any], metric: str
) -> dict[str, str]:
    """Return header → cell of a model's line."""
    wanted = (model["model"], model["position"], metric)
    line = {key: str(value) for key, value in model.items()}
    line |= {"metric": metric, "model": f"{model['model']} ({model['position']})"}
    sources = []
    for number in about["numbers"]:
        if (number["model"], number["position"], number["metric"]) == wanted:
            text = f"{number['value']:.{about['metrics'][metric]}f}"
            line[_column(paper, about, number)] = text
            sources.append(f"{paper['sources'][number['source']]['name']}, {number['table']}")
    if "curves" in about:
        line[_columns(paper, about)[0]] = "no number"
    by = paper["sources"][about["by"]]["name"]
    return line | {SOURCE: " / ".join(dict.fromkeys(sources)) or by}


def _notes(paper: Paper, key: str) -> list[str]:
    """Return the notes below a table: claim, settings, what the paper does not say, caveats, remarks."""
    about = paper["experiments"][key]
    notes = [f"Claim: {about['claim']} Shown: {about['shows']}."]
    notes.append(f"Settings: {'; '.join(f'{k}: {v}' for k, v in about['settings'].items())}.")
    if about["not_said"]:
        notes.append(f"Not said: {', '.join(about['not_said'])}.")
    for name, caveat in paper["caveats"].items():
        if key in caveat["tables"]:
            notes.append(f"{name}. {caveat['text']} Here: {caveat['here']}")
    return [*notes, *about.get("remarks", ())]


# --- ours, from records --------------------------------------------------------------------------


def study_ours(
    about: Mapping[str, Any], study: Study, runs: Runs, ours: list[Ours], notes: list[str]
) -> None:
    """Add a study's numbers, and notes on them.

    Args:
        about: `ours` of the experiment in paper.yaml.
        study: the study with the numbers.
        runs: of all studies, because a fine-tuning may start from another study's run.
        ours, notes: the lists to extend.
    """
    every = runs.runs
    rows = every[(every.study == study.folder.name) & (every.pipeline == about["pipeline"])]
    settings = {
        key: _setting(seeds, every, study.data) for key, seeds in rows.groupby("configuration")
    }
    for setting, several in rows.groupby(rows.configuration.map(settings), sort=False):
        found = scores(several)
        notes += left_out(several, found)
        shown = found[found.chosen & found.metric.isin([*about["metrics"]])]
        for (name, _, metric), part in shown.groupby(["name", "group", "metric"], sort=False):
            text = mean_text([*part.value], about["digits"])
            constant = (part.status == "degenerate").sum()
            if about["pipeline"] == "glue" and constant:
                text = f"{text[:-1]}, {constant} constant)"
            signatures = part.summary.iloc[0].get("signatures", {})
            signature = signatures.get(metric.removeprefix("test/"), "")
            theirs, column = about["metrics"][metric]
            ours.append(Ours(theirs, name, setting, column, text, signature))
        for metric, part in shown.groupby("metric", sort=False):
            theirs, column = about["metrics"][metric]
            for name, texts in baseline_texts(part, "metric", about["digits"]).items():
                of = setting if about["pipeline"] in LOSSES else study.data or part.data.iloc[0]
                ours.append(Ours(theirs, name, of, column, texts[metric]))


def _setting(seeds: pd.DataFrame, runs: pd.DataFrame, data: str) -> str:
    """Return data and scale of a configuration's runs.

    Args:
        seeds: its runs.
        runs: the runs that fine-tunings may start from.
        data: name of the data, if the record's `builtin` or `files` is not enough.
    """
    run = seeds.iloc[0]
    test = run.summary.get("test_set")
    parts = [data or (test["name"] if test else run.data)]
    if test:
        parts.append(f"{test['lines']:,} test sentences")
    read = LOSSES[run.pipeline].read if run.pipeline in LOSSES else "tokens"
    if run.pipeline == "glue":
        begun, tokens = begun_from(run.config)[0], tokens_before(run.config, runs)
        where = f"pre-trained as {begun}" if begun else "without pre-training"
        parts.append(f"{tokens / 1e6:,.1f} M tokens of pre-training" if tokens else where)
    elif run.pipeline != "scm":
        trained = sorted({f"{tokens / 1e6:,.1f} M {read}" for tokens in seeds.tokens})
        steps = sorted({f"{steps:,} steps" for steps in seeds.steps})
        parts.append(f"{' / '.join(trained)} in {' / '.join(steps)}")
    return ", ".join([*parts, str(run.config.get("model.size", "size not recorded"))])


# --- stages of a pre-training, with Table 4 ------------------------------------------------------


def stages_table(paper: Paper, runs: pd.DataFrame) -> Table:
    """Return Table 4 with the runs of stages below it, ordered by model, seed and stage."""
    place = [config.get("training.first_epoch", 0) for config in runs.config]
    ordered = runs.assign(place=place).sort_values(["model", "seed", "place"], kind="stable")
    stages = ordered.groupby(["model", "seed"]).place.rank("dense").astype(int)
    ours = []
    for stage, run in zip(stages, ordered.to_dict("records"), strict=True):
        config, found = run["config"], run["summary"]["metrics"]
        name = f"our stage {stage} ({run['model']}, {run['position']})"
        words = {
            "length": f"{config['training.sequence_length']:,}",
            "batch": f"{config['training.batch_size']:,}",
            "steps": f"{run['steps']:,}",
        }
        setting = f"{run['data']}, {run['run']}"
        setting += "" if run["status"] == "done" else f", {run['status']}"
        loss, accuracy = found.get("valid/mlm_loss"), found.get("valid/mlm_accuracy")
        texts = {
            "loss": "not finite" if loss is None else f"{loss:.2f}",
            "accuracy": "not finite" if accuracy is None else f"{100 * accuracy:.1f}",
        }
        for metric, text in texts.items():
            ours.append(Ours(metric, name, setting, "validation", text, words=words))
    return against_paper(paper, "table_4", ours)


def control_tables(runs: pd.DataFrame) -> list[Table]:
    """Return comparisons of trainings in stages with trainings of one stage that end at the same length.

    A run that starts from another of these runs continues its training; the ends of trainings are compared.
    Lengths with only one of the two kinds are skipped.

    Args:
        runs: one row of the frame of runs per stage.
    """
    by_id = {run["run"]: run for run in runs.to_dict("records")}
    continued = {begun_from(run["config"])[0] for run in by_id.values()}
    rows, names = [], list[tuple[str, str, dict[str, Any]]]()
    for run in by_id.values():
        if run["run"] in continued or run["status"] not in ENDED:
            continue
        stages = [run]
        while len(stages) < len(by_id):
            if (name := begun_from(stages[0]["config"])[0]) not in by_id:
                break
            stages.insert(0, by_id[name])
        training = [
            (stage["steps"], *(stage["config"][f"training.{key}"] for key in BLOCKS))
            for stage in stages
        ]
        words = [f"{steps:,} of {batch} × {length}" for steps, batch, length in training]
        label = f"{run['label']}: {', then '.join(words)}"
        settings = {k: v for k, v in settings_of(run).items() if k not in OF_A_STAGE}
        key = json.dumps([label, settings], sort_keys=True)
        names.append((label, key, settings))
        about = {
            "key": key,
            "folder": run["folder"],
            "seed": run["seed"],
            "length": training[-1][-1],
            "tokens": sum(steps * batch * length for steps, batch, length in training),
            "stages": len(stages),
        }
        for number, stage in enumerate(stages, 1):
            found = stage["summary"]["metrics"]
            rows += [
                about | {"after": number, "metric": metric, "value": found.get(metric)}
                for metric in STAGES_END
            ]
    columns = ["key", "folder", "seed", "length", "tokens", "stages", "after", "metric", "value"]
    every = pd.DataFrame(rows, columns=columns).astype({"value": float})
    every = every.assign(name=every.key.map(different_names(names)))
    frame, tables = every[every.after == every.stages], []
    told = left_out(runs, runs[runs.status.isin(ENDED)])
    for (length, tokens), part in frame.groupby(["length", "tokens"], sort=False):
        single = part[part.stages == 1].name.unique()
        if len(single) != 1 or part.name.nunique() == 1:
            continue
        part = part.sort_values("stages", kind="stable")
        title = (
            f"Stages and one stage of as many tokens ({tokens:,}), validated on {length:,} tokens"
        )
        note = (
            "Mean ± standard deviation over seeds (n); steps of sequences × tokens, stage by stage."
        )
        means = mean_lines(part.assign(training=part.name), "training", "metric", 3)
        tables.append(Table(title, means, notes=[note, *told]))
        title = f"Validated on {length:,} tokens: paired differences from one stage"
        tables.append(paired_table(part, single[0], "metric", title, digits=3))
    if tables:
        several = every[every.stages > 1]
        labels = several.name + "; after stage " + several.after.astype(str)
        means = mean_lines(several.assign(training=labels), "training", "metric", 3)
        note = "Each stage is validated on blocks of its own length; the targets of two lengths differ."
        tables.append(Table("After each stage", means, notes=[note]))
    return tables
