"""The documentation is true: commands compose, targets exist, numbers are those of the records."""

import inspect
import json
import math
import re
import shlex
import subprocess

import pytest

from roformer.cli import compose
from roformer.config.build import build, run_id
from roformer.config.composing import Composer
from roformer.nn.position import PositionEncoding
from roformer.pipelines import registry
from roformer.report.pages import refreshed
from roformer.report.runs import RecordError
from roformer.report.studies import read_studies
from tests.conftest import REPOSITORY
from tests.recorded_runs import all_recorded, recorded

PAGES = [
    REPOSITORY / "README.md",
    *sorted(REPOSITORY.glob("docs/*.md")),
    *sorted(REPOSITORY.glob("experiments/**/*.md")),
]
GENERATED = [page for page in PAGES if "\n<!-- report: " in page.read_text()]
MAKEFILE = (REPOSITORY / "Makefile").read_text()
TARGETS = set(re.findall(r"^([a-z-]+):.*##", MAKEFILE, re.MULTILINE))
PIPELINES = registry.pipelines()


def commands():
    """Return every `make …` and `python scripts/…` in a code block or span, each once."""
    found = {}
    for page in PAGES:
        text = page.read_text()
        blocks = re.findall(r"```(?:sh|bash|console)?\n(.*?)```", text, re.DOTALL)
        lines = [line.strip().removeprefix("$ ") for block in blocks for line in block.splitlines()]
        lines += re.findall(r"`((?:make|python scripts/)[^`]*)`", text)
        for line in lines:
            line = line.partition("  #")[0].partition(" < ")[0].strip()
            if line.startswith(("make ", "python scripts/")):
                found.setdefault(line, pytest.param(line, id=f"{page.parent.name}: {line[:60]}"))
    return list(found.values())


def overrides_of(target: str, words: list[str]) -> list[str]:
    """Return the overrides that a make command line becomes."""
    variables = dict(w.partition("=")[::2] for w in words if re.match(r"[A-Z]+=", w))
    recipe = f"recipe={variables.get('RECIPE', 'mini')}"
    made = [f"model={variables.get('MODEL', 'roformer')}", recipe]
    if target == "scm":
        made[0] = f"preset={variables.get('PRESET', 'roformer_1024')}"
    return made + shlex.split(variables.get("ARGS", ""))


@pytest.mark.parametrize("command", commands())
def test_documented_commands_compose(command):
    words = shlex.split(command)
    if words[0] == "make":
        target = next(w for w in words[1:] if "=" not in w)
        assert {w for w in words[1:] if "=" not in w} <= TARGETS
        chosen = [w.partition("=")[2] for w in words if w.startswith("PIPELINE=")]
        name = [*chosen, "pretrain"][0] if target in ("plan", "prepare") else target
        overrides = overrides_of(name, words[1:])
    else:
        assert (REPOSITORY / words[1]).is_file()
        target = name = words[1].removeprefix("scripts/").removesuffix(".py")
        overrides = [word for word in words[2:] if "=" in word and not word.startswith("hydra")]
        if "--multirun" in words:  # the first job of the sweep
            overrides = [re.sub(r"(=[^\[]\S*?),.*", r"\1", override) for override in overrides]
    if name in PIPELINES:
        pipeline = PIPELINES[name]
        cls = pipeline.plan.config if target == "plan" else pipeline.config
        assert build(registry.load(cls), compose(name, overrides))


def test_there_are_commands_to_check():
    assert len(commands()) >= 8


def test_help_lists_every_target():
    phony = re.search(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)[1].split()
    assert set(phony) == TARGETS


def test_make_help_groups_targets_and_lists_a_pipeline_s_recipes_beside_it():
    shown = subprocess.run(["make", "-s", "help"], cwd=REPOSITORY, capture_output=True, text=True)
    lines = shown.stdout.splitlines()
    assert sum(line.startswith("Train ") for line in lines) == 1
    for name in PIPELINES:
        (line,) = (line for line in lines if re.match(rf"{name}\s", line))
        listed = re.search(r"\[([^]]*)\]$", line)[1].split(", ")
        assert sorted(listed) == Composer(name).options("recipe")


@pytest.mark.parametrize("run", all_recorded(), ids=str)
def test_records_are_whole(run):
    summary = run.files["summary.json"]
    names = {"config.yaml", "env.json", "command.txt", "metrics.jsonl", "summary.json"}
    # Of the later translations alone; tables check that it is the summary's.
    found = set(run.files) - {"bleu_statistics.json", "predictions/test.tsv"}
    if summary["pipeline"] == "scm":
        names.add("predictions/validation.tsv")
    if summary["pipeline"] in ("charlm", "clm"):
        names.add("positions.json")
    assert found == names and summary["run_id"] == run.name
    rows = run.files["metrics.jsonl"]
    steps = [row["step"] for row in rows]
    assert steps == sorted(set(steps)) and steps[-1] == summary["steps"]
    for name, value in summary["metrics"].items():
        assert rows[-1][name] == value, name


@pytest.mark.parametrize("run", all_recorded(), ids=str)
def test_recorded_configs_keep_their_run_id(run):
    """A key that came later must not give an earlier run another id, or it would run again."""
    pipeline = registry.get(run.files["summary.json"]["pipeline"])
    cls = registry.load(pipeline.config_of_run)
    assert run_id(build(cls, run.files["config.yaml"])) == run.name


def test_records_are_two_files_a_study():
    """Not a folder of files a run, which a reader of the repository pays for in every listing."""
    assert not list(REPOSITORY.glob("experiments/*/runs"))
    assert sum(path.is_file() for path in (REPOSITORY / "experiments").rglob("*")) < 250


@pytest.mark.parametrize(
    "page", GENERATED, ids=lambda path: str(path.parent.relative_to(REPOSITORY))
)
def test_generated_parts_are_what_the_records_give(page):
    """`make report` would change nothing; every table of a report is its records'."""
    text = page.read_text()
    assert refreshed(text, page) == text


def test_every_study_has_generated_parts():
    for study in read_studies(REPOSITORY / "experiments"):
        if study.has_runs:
            text = (study.folder / "REPORT.md").read_text()
            assert "<!-- report: facts -->" in text and text.count("<!-- report: ") >= 2


def test_a_changed_number_is_seen(tmp_path):
    page = REPOSITORY / "experiments" / "wmt_builtin" / "REPORT.md"
    text = page.read_text()
    assert refreshed(text.replace("96.98 (1)", "97.98 (1)"), page) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<!-- report: index -->\n", "without its <!-- /report -->"),
        ("<!-- report: graphs runs/* -->\n<!-- /report -->", "no block 'graphs'"),
        ("<!-- report: glue runs/* -->\n<!-- /report -->", "no run is"),
    ],
)
def test_a_mistake_in_a_page_is_one_line(tmp_path, text, message):
    with pytest.raises(RecordError, match=message):
        refreshed(text, tmp_path / "REPORT.md")


@pytest.mark.parametrize("record", sorted(REPOSITORY.glob("experiments/length_extension/*.json")))
def test_the_length_extension_report_is_the_records(record):
    """All are in it, and the record is of a run that another study recorded."""
    report, content = record.with_name("REPORT.md").read_text(), json.loads(record.read_text())
    assert f"<!-- report: extension {record.name} -->" in report
    plot = f"plots/{record.stem}.png"
    assert f"({plot})" in report and (record.parent / plot).is_file()
    assert "beyond the paper" in report.lower()
    trained = [run.files["env.json"] for run in all_recorded() if run.name == content["run"]]
    assert {environment["data"] for environment in trained} == {content["env"]["data"]}
    assert content["env"]["dirty"] is False
    assert " /" not in content["command"] and "=/" not in content["command"]


def test_the_readme_shows_what_is_recorded():
    """Its table stands in the study's report; its expected output is the record's."""
    readme = (REPOSITORY / "README.md").read_text()
    study = REPOSITORY / "experiments" / "reproduce"
    curves = [line for line in readme.splitlines() if re.match(r"\| \d+ \|", line)]
    report = (study / "REPORT.md").read_text().splitlines()
    assert len(curves) == 6 and set(curves) <= set(report)
    stages = re.search(r"```\n(7 stages .*?)```", readme, re.DOTALL)[1].splitlines()
    assert len(stages) == 9 and set(stages) <= set(report)
    pretrained = recorded("reproduce", "roformer-rotary-mini-*")
    (record,) = (one for one in pretrained if one.files["summary.json"]["pipeline"] == "pretrain")
    metrics = record.files["summary.json"]["metrics"]
    assert (
        f"valid/mlm_loss {metrics['valid/mlm_loss']:.3f}, "
        f"valid/mlm_accuracy {metrics['valid/mlm_accuracy']:.1%} "
        f"(unigram entropy of the same tokens: {metrics['valid/unigram_entropy']:.3f})"
    ) in readme
    assert record.name in readme


def test_the_readme_shows_the_records_of_runs():
    """Every line of its GLUE and translation tables stands in a report, which is its records'."""
    lines = (REPOSITORY / "README.md").read_text().splitlines()
    shown = [line for line in lines if re.match(r"\| (majority|roformer|bert|transformer) ", line)]
    studies = (REPOSITORY / "experiments").glob("*/REPORT.md")
    reports = [path for path in studies if path.parent.name.startswith(("glue_", "wmt_", "repro"))]
    recorded = {line for report in reports for line in report.read_text().splitlines()}
    assert len(shown) >= 6 and set(shown) <= recorded


def test_the_speed_report_is_the_record():
    from roformer.report.results import speed_table

    folder = REPOSITORY / "experiments" / "speed"
    table = speed_table(folder)
    report = (folder / "REPORT.md").read_text()
    assert "<!-- report: speed . -->" in report and "<!-- report: speed rerun -->" in report
    readme = (REPOSITORY / "README.md").read_text().splitlines()
    shown = [
        line
        for line in readme
        if re.match(r"\| (rotary|mini|base|fine-tuning|translation|beam) ", line)
    ]
    assert len(shown) >= 8 and set(shown) <= set(table.splitlines())


def test_the_readme_tells_differences_as_recorded():
    readme = (REPOSITORY / "README.md").read_text()
    report = (REPOSITORY / "experiments" / "wmt_multi30k" / "REPORT.md").read_text()
    rows = re.findall(r"\| (\w+) \(.*?\) \| \+(.*?) \| (.*?) to (.*?) \|.*\| 3 \|", report)
    rotary, shaw = ((row[1], *(round(float(end), 1) for end in row[2:])) for row in rows)
    difference, low, high = rotary
    assert f"over sinusoidal positions is {difference} ({low} to {high} over seeds by t" in readme
    assert f"Shaw's {shaw[0]} is not told from chance" in readme and shaw[1] < 0 < shaw[2]


def test_the_readme_tells_longer_budgets_as_recorded():
    """The baselines of make reproduce with more epochs and steps, from other studies."""
    readme = (REPOSITORY / "README.md").read_text()

    def measured(study, pattern, metric):
        (run,) = recorded(study, pattern)
        return run.files["summary.json"]["metrics"][metric]

    metrics = ["mrpc/f1", "mnli/accuracy_matched", "mnli/accuracy_mismatched"]
    bert, roformer = (
        [measured("glue_builtin", f"{name.split('/')[0]}-{arm}-*", name) for name in metrics]
        for arm in ("bert-learned", "roformer-rotary")
    )
    said = f"BERT gets {bert[0]:.1%} on MRPC and {bert[1]:.1%} on MNLI's matched part"
    behind = max(ours - theirs for ours, theirs in zip(roformer[:2], bert[:2], strict=True))
    far = f"but {bert[2]:.1%} against {roformer[2]:.1%} on the mismatched one"
    said += f", where it is {math.ceil(100 * behind)} points behind at most, {far}"
    assert said.replace("%", "") in readme


def test_solved_tasks_are_counted_once():
    """Headline metric at least 95, of the recorded runs: one number in README, index and report."""
    headlines = [f"{task}/{metric}" for task, metric in HEADLINES.items()]
    solved = {}
    for arm in ("roformer-rotary", "bert-learned", "roformer-none"):
        runs = recorded("glue_builtin", f"*-{arm}-*")
        found = [run.files["summary.json"]["metrics"] for run in runs]
        values = [one[name] for one in found for name in headlines if name in one]
        assert len(values) == 6
        solved[arm] = sum(value is not None and value >= 0.95 for value in values)
    assert solved == {"roformer-rotary": 6, "bert-learned": 3, "roformer-none": 0}
    said = "Rotary solves all six (headline metric at least 95); learned solves three;"
    for page in ("README.md", "experiments/README.md"):
        text = (REPOSITORY / page).read_text()
        assert said in text and len(re.findall(r"learned solves", text)) == text.count(said)
    report = (REPOSITORY / "experiments" / "glue_builtin" / "REPORT.md").read_text()
    assert "is at least 95. Rotary positions solve all six" in report
    assert "Learned positions solve three: MRPC, SST-2 and MNLI." in report


HEADLINES = {
    "mrpc": "f1",
    "sst2": "accuracy",
    "qnli": "accuracy",
    "stsb": "spearman",
    "qqp": "f1",
    "mnli": "accuracy_matched",
}


def test_what_is_said_of_performers_is_labelled_and_corrected():
    """The sample and the whole text are told apart; no claim without Holm's correction."""
    folder = REPOSITORY / "experiments"
    tables = (folder / "performer_bytes" / "REPORT.md").read_text()
    rows = re.findall(r"\| (performer .*?) \| 300 \| \+.*? \|.*? \|.*? \| (.*?) \|", tables)
    corrected = dict(rows)
    assert len(corrected) == 4 and set(corrected.values()) == {"0.098"}
    said = "On the validation sample Performers end at 3.283 bits a byte with Eq. 19"
    holm = "over each other Performer is not significant after Holm's correction (p 0.098)"
    index = (folder / "README.md").read_text()
    for text in ((REPOSITORY / "README.md").read_text(), index):
        assert said in text and holm in text
    header = "| metric | model | source, or our data and scale | paper, training (a curve) | ours, "
    table = index.partition("**Fig. 3 right: Performer on enwik8**")[2]
    assert table.lstrip().startswith(header + "whole validation text (n) |")


def test_the_hooks_of_the_guide_are_those_of_the_code():
    """Each hook of docs/position-encoding.md has the parameters that it has in the code."""
    guide = (REPOSITORY / "docs" / "position-encoding.md").read_text()
    hooks = re.findall(r"^\| `(\w+)\((.*?)\)`", guide, re.MULTILINE)
    assert [name for name, _ in hooks] == ["embed", "rotate", "bias", "value_term"]
    for name, parameters in hooks:
        signature = inspect.signature(getattr(PositionEncoding, name))
        assert parameters.split(", ") == list(signature.parameters)[1:], name


def test_the_tests_that_the_guide_names_are_there():
    guide = (REPOSITORY / "docs" / "position-encoding.md").read_text()
    named = re.findall(r"`(test_\w+)`", guide)
    source = (REPOSITORY / "tests" / "property" / "test_rotary.py").read_text()
    assert len(named) >= 5 and all(f"def {name}(" in source for name in named)


def test_the_readme_tells_memory_as_recorded():
    readme = (REPOSITORY / "README.md").read_text()

    def most(study):
        summaries = [run.files["summary.json"] for run in recorded(study)]
        peaks = [summary.get("peak_memory_bytes", 0) for summary in summaries]
        return f"{max(peaks) / 1e9:.1f} GB"

    assert f"and {most('reproduce')} of memory at most" in readme
    assert f"Multi30k grew to {most('wmt_multi30k')}" in readme
    assert f"`make scm` to {most('scm_builtin')}" in readme
