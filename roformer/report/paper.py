"""The paper's numbers as data, and ours beside them: never in one column, never subtracted.

The numbers of the paper and ours are of other data, models and budgets, and the paper's own stand
for different splits. So every column with a number of the paper says so in its header, with the
split and whether the paper copied it; ours have columns of their own, which name theirs; and the
caveats that concern a table are printed with it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from roformer.report.curves import loss_of
from roformer.report.glue import Row, chosen, rows_of
from roformer.report.runs import RecordError, Runs, read_runs, read_yaml_file
from roformer.report.scm import SPLITS as TRIPLETS
from roformer.report.scm import accuracies, triplet_runs
from roformer.report.statistics import mean_text
from roformer.report.studies import Study
from roformer.report.tables import Table, configuration_names, configurations
from roformer.report.wmt import read_scores, values

PAPER = Path(__file__).resolve().parents[2] / "experiments" / "paper.yaml"
SPLITS = ("validation", "test", "training", "not said", "no data")
"""In the order of their columns; `no data` is what a formula gives."""
CLAIMS = {
    "pretrain": "figure_3_left",
    "glue": "table_2",
    "wmt": "table_1",
    "charlm": "figure_3_right",
    "clm": "clm",
    "scm": "table_5",
}
"""Pipeline → what of paper.yaml its runs stand beside."""
GLUE = {
    "mrpc/f1": "MRPC F1",
    "sst2/accuracy": "SST-2 accuracy",
    "qnli/accuracy": "QNLI accuracy",
    "stsb/spearman": "STS-B Spearman",
    "qqp/f1": "QQP F1",
    "mnli/accuracy_matched": "MNLI-m accuracy",
    "mnli/accuracy_mismatched": "MNLI-mm accuracy",
}
"""A fine-tuning's metric → that of the paper's Table 2; others are not in it."""
BLEU = {"sacrebleu": "sacreBLEU", "bleu_compound": "compound BLEU"}
"""A translation's score and key of its signature → its column; each has its own."""
STAGES = {"loss": ("valid/mlm_loss", 1, 2), "accuracy": ("valid/mlm_accuracy", 100, 1)}
"""Metric of Table 4 → ours, times what, decimals."""
Paper = dict[str, Any]
"""Content of paper.yaml; see there."""
Experiment = dict[str, Any]
"""A table or figure of it: what it claims, how it was made, and its numbers."""


class Ours(NamedTuple):
    """A row of ours beside a table of the paper's."""

    row: str
    """Model and position, `roformer (rotary)`."""
    values: Mapping[str, str]
    """Metric of the paper's table → mean ± standard deviation (n)."""
    setting: str
    """Data and scale: `builtin, 4.9 M tokens of pre-training, mini`."""
    column: str = "validation"
    """The metric as the header names it, with the split and the kind of BLEU."""
    signature: str = ""
    """Signature of the metric; rows with different ones cannot share a column."""
    notes: Sequence[str] = ()


def read_paper(path: Path = PAPER) -> Paper:
    """Return the content of paper.yaml.

    Raises:
        RecordError: it cannot be read, or a part of it is missing.
    """
    content = read_yaml_file(path, what="the paper's numbers")
    for key in ("paper", "sources", "caveats", "claims", "tables", "figures", "beyond", "others"):
        if not content.get(key):
            raise RecordError(f"{path} is not the paper's numbers: {key}: is missing")
    return content


# --- tables --------------------------------------------------------------------------------------


def paper_sections(paper: Paper, studies: Sequence[Study]) -> list[Table]:
    """Return each table of the paper's beside what our studies of it recorded."""
    runs = read_runs([study.folder for study in studies if study.has_runs])
    ours: dict[str, list[Ours]] = {}
    for study in studies:
        if study.claim in CLAIMS.values():
            ours.setdefault(study.claim, []).extend(study_ours(study, runs))
    keys = [*paper["tables"], *(key for key in CLAIMS.values() if key not in paper["tables"])]
    return [*(against_paper(paper, key, ours.get(key, [])) for key in keys), others_table(paper)]


def paper_table(paper: Paper, key: str) -> Table:
    """Return one table or figure of the paper's, without ours; see `find_experiment`."""
    about = find_experiment(paper, key)
    lines = [[*_words(about), *_columns(paper, about)]]
    lines += [line for metric in _metrics(about) for line in _paper_lines(paper, about, metric)]
    return Table(about["title"], lines, len(_words(about)), _notes(paper, key))


def against_paper(paper: Paper, key: str, ours: Sequence[Ours]) -> Table:
    """Return a table of the paper's with ours in columns of their own; `not run` where there is none.

    Args:
        paper: see `read_paper`.
        key: of a table or figure.
        ours: rows, from any number of studies.

    Raises:
        RecordError: no such table; a metric that it does not have; two values for one cell; scores
            of different signatures in one column.
    """
    about = find_experiment(paper, key)
    _check_ours(about, ours)
    theirs = _columns(paper, about)
    columns = list(dict.fromkeys(row.column for row in ours))
    headers = [f"ours, {column} (n)" for column in columns] or ["ours"]
    lines = [[*_words(about), *theirs, *headers]]
    for metric in _metrics(about):
        rows = [row for row in ours if metric in row.values]
        empty = ["" if rows else "not run"] * len(headers)
        lines += [[*line, *empty] for line in _paper_lines(paper, about, metric)]
        for name, setting in dict.fromkeys((row.row, row.setting) for row in rows):
            cells = {
                r.column: r.values[metric] for r in rows if (r.row, r.setting) == (name, setting)
            }
            words = [metric, name, *[""] * len(_extra(about)), setting]
            blank = [""] * len(theirs)
            lines.append([*words, *blank, *(cells.get(column, "") for column in columns)])
    notes = _notes(paper, key)
    if ours:
        notes.append(
            "The paper's numbers and ours are of other data, models and budgets: each has columns of "
            "its own, and no difference between them is taken."
        )
    notes += dict.fromkeys(f"Ours, {row.column}: {row.signature}" for row in ours if row.signature)
    notes += dict.fromkeys(note for row in ours for note in row.notes)
    return Table(about["title"], lines, len(_words(about)), notes)


def others_table(paper: Paper) -> Table:
    """Return the numbers of third parties, which stand in no other table."""
    lines = [["about", "who", "model", "metric", "split", "third party's number"]]
    for other in paper["others"]:
        title = find_experiment(paper, other["about"])["title"].partition(":")[0]
        words = (other["who"], other["model"], other["metric"], other["split"])
        lines.append([title, *words, f"{other['value']:g}"])
    note = "Measured neither by the paper nor here; as their authors state them, not checked."
    return Table("Numbers of third parties", lines, 5, [note])


def claims(paper: Paper, studies: Iterable[Study]) -> Table:
    """Return one row a claim and study of it: what the paper shows, what came out here, and on what.

    A claim without a study, or whose study has no outcome, is `not run yet`.

    Raises:
        RecordError: a study is about a claim that the paper's data does not have.
    """
    found: dict[str, list[Study]] = {key: [] for key in paper["claims"]}
    for study in studies:
        if study.claim == "none":
            continue
        if study.claim not in found:
            known = ", ".join([*found, "none"])
            raise RecordError(f"{study.folder} is about {study.claim}: choose one of {known}")
        found[study.claim].append(study)
    lines = [["claim", "where", "the paper shows", "our study", "our outcome", "our scale"]]
    for key, about in found.items():
        experiment = find_experiment(paper, key)
        where = experiment["title"].partition(":")[0]
        words = [experiment["claim"], where, experiment["shows"]]
        for study in about:
            outcome = study.outcome or "not run yet"
            lines.append([*words, f"experiments/{study.folder.name}", outcome, study.scale])
        if not about:
            lines.append([*words, "not run yet", "", ""])
    note = "None of our studies has the paper's scale; each says what it measured, and on what."
    return Table("Claims of the paper", lines, 6, [note])


def find_experiment(paper: Paper, key: str) -> Experiment:
    """Return a table, figure or claim beyond the paper.

    Raises:
        RecordError: there is none of that key; says which there are.
    """
    known = paper["tables"] | paper["figures"] | paper["beyond"]
    if key not in known:
        raise RecordError(f"the paper's numbers have no {key}: choose one of {', '.join(known)}")
    found: Experiment = known[key]
    return found


def _metrics(about: Experiment) -> list[str]:
    """Return the metrics, or one without a name where a table measures nothing."""
    return list(about["metrics"]) or [""]


def _extra(about: Experiment) -> list[str]:
    """Return the keys by which the rows of a table are described beyond their names."""
    keys = ("tokens", "length", "batch", "steps")
    return [key for key in keys if any(key in model for model in about["models"])]


def _words(about: Experiment) -> list[str]:
    return ["metric", "model", *_extra(about), "source, or our data and scale"]


def _header(paper: Paper, about: Experiment, value: Mapping[str, Any]) -> str:
    """Return the header of a column of the paper's: whose, which split, and whether copied."""
    own = about["by"] == paper["paper"]
    who = "paper" if own else paper["sources"][about["by"]]["name"]
    if value["origin"] == "computed":
        return f"{who}, {value['table']} computed here"
    split = "split not said" if value["split"] == "not said" else value["split"]
    return f"{who}, {split}{' (copied)' if value['origin'] == 'copied' else ''}"


def _columns(paper: Paper, about: Experiment) -> list[str]:
    """Return the headers of the paper's columns, one a split and origin."""
    if "curves" in about:
        return [f"paper, {about['curves']} (a curve)"]
    ordered = sorted(about["numbers"], key=lambda value: SPLITS.index(value["split"]))
    return list(dict.fromkeys(_header(paper, about, value) for value in ordered))


def _paper_lines(paper: Paper, about: Experiment, metric: str) -> list[list[str]]:
    """Return the paper's lines of one metric, one a model."""
    lines = []
    columns = _columns(paper, about)
    for model in about["models"]:
        name = (model["model"], model["position"])
        cells, sources = {}, {}
        for value in about["numbers"]:
            if (value["model"], value["position"], value["metric"]) == (*name, metric):
                number = f"{value['value']:.{about['metrics'][metric]}f}"
                cells[_header(paper, about, value)] = number
                sources[f"{paper['sources'][value['source']]['name']}, {value['table']}"] = True
        if "curves" in about:
            cells = dict.fromkeys(columns, "no number")
        where = " / ".join(sources) or paper["sources"][about["by"]]["name"]
        words = [metric, f"{name[0]} ({name[1]})", *(str(model.get(k, "")) for k in _extra(about))]
        lines.append([*words, where, *(cells.get(column, "") for column in columns)])
    return lines


def _notes(paper: Paper, key: str) -> list[str]:
    """Return what stands below a table: claim, settings, what is not said, caveats, gaps."""
    about = find_experiment(paper, key)
    notes = [f"Claim: {about['claim']} Shown: {about['shows']}."]
    notes.append(f"Settings: {'; '.join(f'{k}: {v}' for k, v in about['settings'].items())}.")
    if about["not_said"]:
        notes.append(f"Not said: {', '.join(about['not_said'])}.")
    for name, caveat in paper["caveats"].items():
        if key in caveat["tables"]:
            notes.append(f"{name}. {caveat['text']} Here: {caveat['here']}")
    for gap in about.get("gaps", ()):
        higher, lower = (
            value["value"]
            for model in (gap["model"], gap["above"])
            for value in about["numbers"]
            if (value["model"], value["metric"], value["split"])
            == (model, gap["metric"], gap["split"])
        )
        error = 100 * math.sqrt(higher / 100 * (1 - higher / 100) / gap["examples"])
        notes.append(
            f"Within the paper's {gap['split']} column {gap['model']} is {higher - lower:.2f} points above "
            f"{gap['above']} (about {gap['examples']:,} examples; one accuracy has a standard error "
            f"of {error:.1f} points)."
        )
    return [*notes, *about.get("remarks", ())]


def _check_ours(about: Experiment, ours: Sequence[Ours]) -> None:
    seen: set[tuple[str, ...]] = set()
    signatures: dict[str, str] = {}
    for row in ours:
        for metric in row.values:
            if metric not in about["metrics"]:
                known = ", ".join(about["metrics"]) or "none"
                raise RecordError(f"{about['title']} has no {metric}: its metrics are {known}")
            cell = (row.row, row.setting, row.column, metric)
            if cell in seen:
                raise RecordError(f"two values of {', '.join(cell)}: a cell has one source")
            seen.add(cell)
        if signatures.setdefault(row.column, row.signature) != row.signature:
            raise RecordError(
                f"{row.column} has two signatures, {signatures[row.column]} and {row.signature}: "
                "scores with different signatures cannot stand in one column"
            )


# --- rows of ours, from records ------------------------------------------------------------------


def study_ours(study: Study, runs: Runs) -> list[Ours]:
    """Return a study's rows beside what of the paper it is about.

    Args:
        study: about one of `CLAIMS`.
        runs: of all studies: where a fine-tuning starts from may be another's.

    Raises:
        RecordError: two runs are one seed of a configuration, or a record is not of its pipeline.
    """
    (pipeline,) = (pipeline for pipeline, claim in CLAIMS.items() if claim == study.claim)
    rows = runs.runs[(runs.runs.study == study.folder.name) & (runs.runs.pipeline == pipeline)]
    if rows.empty:
        return []
    if pipeline == "glue":
        started = runs.runs[runs.runs.pipeline == "pretrain"]
        return glue_ours(rows, dict(zip(started.run, started.tokens, strict=True)), study.data)
    if pipeline == "wmt":
        return wmt_ours(rows, study.data)
    if pipeline == "scm":
        return scm_ours(runs._replace(runs=rows), study.data)
    return loss_ours(rows, study.data)


def glue_ours(runs: pd.DataFrame, started: Mapping[str, int], data: str = "") -> list[Ours]:
    """Return one row a configuration for Table 2: the metric at the chosen learning rate, times 100.

    Args:
        runs: finished fine-tuning runs.
        started: id → tokens of the pre-training runs that they may start from.
        data: what to call the data where the record's word, `builtin` or `files`, says too little.
    """
    settings = []
    for run in runs.to_dict("records"):
        begun = Path(run["summary"].get("init_from") or "").name
        scale = f"pre-trained as {begun}" if begun else "without pre-training"
        if begun in started:
            scale = f"{_amount(started[begun])} of pre-training"
        settings.append(f"{data or run['data']}, {scale}, {_size(run)}")
    note = "Our learning rates are chosen on the validation set that the scores are of."
    ours = []
    for setting, group in runs.groupby(settings, sort=False):
        best = chosen(rows_of(group))
        for name in dict.fromkeys(name for name, _ in best):
            cells = {
                GLUE[metric]: _glue_cell(row, metric)
                for (other, _), row in best.items()
                for metric in row.metrics
                if other == name and metric in GLUE
            }
            ours.append(Ours(name, cells, setting, notes=[note]))
    return ours


def _glue_cell(row: Row, metric: str) -> str:
    """Return a cell of Table 2, with how many of its runs predicted one class for everything."""
    text, constant = mean_text(row.values(metric), 1, factor=100), row.counted("degenerate")
    return f"{text[:-1]}, {constant} constant)" if constant else text


def wmt_ours(runs: pd.DataFrame, data: str = "") -> list[Ours]:
    """Return two rows a configuration and test set for Table 1: sacreBLEU and compound BLEU.

    Runs without scores are named in a note.
    """
    scored, unscored = read_scores(runs)
    notes = []
    for run in runs.to_dict("records"):
        if run["folder"] in [one["folder"] for one in unscored]:
            notes.append(f"Left out, without scores: {run['run']} is {run['status']}.")
        elif run["status"] != "done":
            notes.append(f"Counted, though {run['status']}: {run['run']}.")
    ours = []

    def setting(seeds: pd.DataFrame) -> str:
        test = seeds.summary.iloc[0]["test_set"]
        where = f"{data or test['name']}, {test['lines']:,} test sentences"
        return f"{where}, {_trained(seeds)} of training, {_size(seeds.iloc[0])}"

    for name, where, seeds in _named(scored, ["configuration", "scored_by"], setting):
        for key, column in BLEU.items():
            cell = mean_text([*values(seeds, f"test/{key}").values()], 2)
            signature = seeds.summary.iloc[0]["signatures"].get(key, "none recorded")
            ours.append(Ours(name, {"BLEU": cell}, where, f"test, {column}", signature, notes))
    return ours


def loss_ours(runs: pd.DataFrame, data: str = "") -> list[Ours]:
    """Return one row a configuration for the figures that are curves: the validation loss at the end.

    Runs that did not end well are named in a note.
    """
    loss = loss_of(runs)
    metric = loss.whole or loss.metric
    sound = [
        run["status"] == "done" and metric in run["summary"]["metrics"]
        for run in runs.to_dict("records")
    ]
    left_out = runs.loc[[not one for one in sound]]
    notes = [
        f"Left out: {run} is {status}."
        for run, status in zip(left_out.run, left_out.status, strict=True)
    ]

    def setting(seeds: pd.DataFrame) -> str:
        steps = " / ".join(sorted({f"{steps:,}" for steps in seeds.steps}))
        where = f"{data or seeds.data.iloc[0]}, {_trained(seeds, loss.read)} in {steps} updates"
        return f"{where}, {_size(seeds.iloc[0])}"

    column = "whole validation text" if loss.whole else "validation"
    return [
        Ours(
            name,
            {loss.words: mean_text([*values(seeds, metric).values()], 3)},
            where,
            column,
            "",
            notes,
        )
        for name, where, seeds in _named(runs.loc[sound], ["configuration"], setting)
    ]


def scm_ours(runs: Runs, data: str = "") -> list[Ours]:
    """Return two rows a configuration for Table 5: accuracy on validation and on test, times 100."""
    groups, notes = triplet_runs(runs)
    notes.append("Our validation accuracies are of the best epoch, chosen on the set they are of.")
    ours = []
    for name, seeds in groups.items():
        setting = f"{data or seeds.data.iloc[0]}, {_size(seeds.iloc[0])}"
        for split, called in TRIPLETS.items():
            if found := [*accuracies(seeds, split).values()]:
                cell = {"accuracy": mean_text(found, 2)}
                ours.append(Ours(name, cell, setting, called, "", notes))
    return ours


def _named(
    runs: pd.DataFrame, by: list[str], setting_of: Any
) -> list[tuple[str, str, pd.DataFrame]]:
    """Return name, setting and seeds of each group of runs.

    Those of one setting are told from each other by their configs; the others' settings do that.
    """
    groups: dict[str, list[pd.DataFrame]] = {}
    for _, seeds in runs.groupby(by, sort=False):
        groups.setdefault(setting_of(seeds), []).append(seeds)
    found = []
    for setting, several in groups.items():
        names = configuration_names(pd.concat(several))
        named = [one for seeds in several for one in configurations(seeds, names).items()]
        found += [(n, setting, seeds) for n, seeds in sorted(named, key=lambda each: each[0])]
    return found


def _trained(runs: pd.DataFrame, read: str = "tokens") -> str:
    return " / ".join(sorted({_amount(tokens, read) for tokens in runs.tokens}))


def _amount(count: int, read: str = "tokens") -> str:
    return f"{count / 1e6:,.1f} M {read}"


def _size(run: Mapping[str, Any]) -> str:
    """Return what a config calls its model's size."""
    return str(run["config"].get("model.size", "size not recorded"))


# --- stages of a pre-training beside Table 4 -----------------------------------------------------


def stages_text(folders: Iterable[Path]) -> str:
    """Return Table 4 with the stages of these run folders, in their order, below it, as Markdown."""
    return stages_table(read_paper(), read_runs(folders).runs).markdown()


def stages_table(paper: Paper, runs: pd.DataFrame) -> Table:
    """Return Table 4 with ours, in the order of the stages, below it."""
    ours = []
    for number, run in enumerate(runs.to_dict("records"), 1):
        length, batch, cells = _stage(run)
        status = "" if run["status"] == "done" else f", {run['status']}"
        setting = f"{run['data']}: length {length:,}, batch {batch}, {run['steps']:,} steps{status}"
        name = f"our stage {number} ({run['model']}, {run['position']})"
        ours.append(Ours(name, dict(zip(STAGES, cells, strict=True)), setting))
    return against_paper(paper, "table_4", ours)


def stage_runs_table(runs: pd.DataFrame) -> Table:
    """Return the runs of stages as Table 4 has them: length, batch, steps, loss and accuracy.

    Those of several seeds or settings stand below each other.
    """
    lines = [["run", "stage", "length", "batch", "updates", "loss", "accuracy, %", "status"]]
    place = [config.get("training.first_epoch", 0) for config in runs.config]
    for _, stages in runs.assign(place=place).groupby(["model", "seed"]):
        order = sorted(set(stages.place))
        for run in stages.sort_values("place", kind="stable").to_dict("records"):
            length, batch, cells = _stage(run)
            words = [run["run"], str(order.index(run["place"]) + 1), f"{length:,}", f"{batch:,}"]
            lines.append([*words, f"{run['steps']:,}", *cells, run["status"]])
    note = (
        "Each stage starts from the one before, so length, data and training time change together."
    )
    return Table("Pre-training in stages", lines, text_columns=1, notes=[note])


def _stage(run: Mapping[str, Any]) -> tuple[int, int, list[str]]:
    """Return length, batch size, and loss and accuracy as text."""
    sizes = [run["config"].get(f"training.{key}") for key in ("sequence_length", "batch_size")]
    if not all(isinstance(size, int) for size in sizes):
        raise RecordError(f"{run['folder']} is not a pre-training's: its config has no batch size")
    cells = []
    for metric, factor, decimals in STAGES.values():
        value = run["summary"]["metrics"].get(metric)
        cells.append("not finite" if value is None else f"{factor * value:.{decimals}f}")
    return sizes[0], sizes[1], cells
