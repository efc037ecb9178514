"""The documentation is true: commands compose, targets exist, numbers equal the records."""

import ast
import inspect
import re
import shlex
import subprocess
from functools import cache
from typing import get_args

import pytest
import yaml

from roformer import registry
from roformer.config.build import build, run_id
from roformer.config.position import Capability
from roformer.errors import InputError
from roformer.nn.position import ENCODINGS, PositionEncoding
from roformer.report.pages import refreshed
from roformer.report.runs import RecordError
from tests.conf.composed import built, composer
from tests.conftest import REPOSITORY
from tests.recorded_runs import EXPERIMENTS, all_recorded, all_studies, folder_of, recorded

PAGES = {
    str(path.relative_to(REPOSITORY)): path.read_text()
    for pattern in ("*.md", "docs/*.md", "experiments/**/*.md")
    for path in sorted(REPOSITORY.glob(pattern))
}
README, INDEX = PAGES["README.md"], PAGES["experiments/README.md"]
GUIDE = PAGES["docs/position-encoding.md"]
GENERATED = [name for name, text in PAGES.items() if "\n<!-- report: " in text]
MAKEFILE = (REPOSITORY / "Makefile").read_text()
TARGETS = set(re.findall(r"^([a-z-]+):.*##", MAKEFILE, re.MULTILINE))
PIPELINES = registry.pipelines()
recorded, all_recorded = cache(recorded), cache(all_recorded)


def report(study):
    return PAGES[str((folder_of(study) / "REPORT.md").relative_to(REPOSITORY))]


# --- as rendered ---------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PAGES)
def test_commands_fit_a_page_and_formulas_are_left_alone_by_markdown(name):
    """A page has room for 98 characters of code; what is cut off is not read."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", PAGES[name], re.DOTALL | re.MULTILINE)
    lines = [line for kind, text in blocks if kind == "sh" for line in text.splitlines()]
    assert not [line for line in lines if len(line) > 98 and "  #" in line]
    rest = re.sub(r"^```.*?^```|`[^`\n]*`", "", PAGES[name], flags=re.DOTALL | re.MULTILINE)
    for formula in re.findall(r"\$([^$\n]+)\$", rest):
        # An underscore after punctuation begins emphasis, a backslash before it is an escape.
        assert not re.search(r"[^\w\s]_|\*|\\[^a-zA-Z]", formula), formula


# --- commands ------------------------------------------------------------------------------------


def commands():
    """Return every `make …` and `python scripts/…` that begins a line or a code span, each once."""
    found = {}
    for text in PAGES.values():
        for line in re.findall(r"(?:^|`)((?:make |python scripts/)[^`\n]*)", text, re.MULTILINE):
            found[line.partition("  #")[0].partition(" < ")[0].strip()] = None
    return list(found)


def composed(command):
    """Return the config of a command, None where it has none; an unknown target fails."""
    words = shlex.split(command)
    if words[0] == "make":
        (target,) = (word for word in words[1:] if "=" not in word)
        assert target in TARGETS
        given = dict(word.split("=", 1) for word in words[1:] if "=" in word)
        name = given.get("PIPELINE", "pretrain") if target in ("plan", "prepare") else target
        model = ("preset", "PRESET", "roformer_1024") if name == "scm" else ("model", "MODEL", None)
        chosen = given.get(*model[1:])
        overrides = [f"{model[0]}={chosen}"] if chosen else []
        overrides.append(f"recipe={given.get('RECIPE', 'mini')}")
        overrides += [w for w in shlex.split(given.get("ARGS", "")) if not w.startswith("--")]
    else:
        assert (REPOSITORY / words[1]).is_file()
        target = name = words[1].removeprefix("scripts/").removesuffix(".py")
        overrides = [word for word in words[2:] if "=" in word and not word.startswith("hydra")]
        if "--multirun" in words:  # the first job of the sweep
            overrides = [re.sub(r"(=[^\[]\S*?),.*", r"\1", override) for override in overrides]
    if name in PIPELINES:
        return built(name, overrides)
    return None


@pytest.mark.parametrize("command", commands())
def test_documented_commands_compose(command):
    """`composed` fails at an unknown target, script, key or value; the recipe reaches the config."""
    config, recipe = composed(command), re.search(r"\brecipe=(\w+)", command, re.IGNORECASE)
    assert config is None or config.recipe == (recipe[1] if recipe else "mini")


def test_make_help_lists_every_target_and_the_recipes_of_a_pipeline_beside_it():
    phony = re.search(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)[1].split()
    assert set(phony) == TARGETS
    shown = subprocess.run(["make", "-s", "help"], cwd=REPOSITORY, capture_output=True, text=True)
    for name in PIPELINES:
        line = re.search(rf"^{name}\s.*\[([^]]*)\]$", shown.stdout, re.MULTILINE)
        assert sorted(line[1].split(", ")) == composer(name).options("recipe")


# --- links ---------------------------------------------------------------------------------------


def prose(text):
    """Return a page without its code blocks."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)


def anchors(text):
    """Return what a link into a page can name: its headings, as GitHub writes them."""
    headings = re.findall(r"^#+ (.*)$", prose(text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere(name):
    """To a file or folder of the repository and, in a page, a heading that exists."""
    for target, anchor in re.findall(r"\]\(([^()#\s:]*)(?:#([^()\s]*))?\)", prose(PAGES[name])):
        path = ((REPOSITORY / name).parent / target) if target else REPOSITORY / name
        assert path.exists(), target
        if anchor:
            assert anchor in anchors(path.read_text()), f"{target}#{anchor}"


# --- messages and estimates ----------------------------------------------------------------------

QUOTED = re.findall(
    r"^```text\n(.*?)^```$", PAGES["docs/troubleshooting.md"], re.DOTALL | re.MULTILINE
)
REFUSED = [text for text in QUOTED if text.startswith("$ ")]


def templates():
    """Return a pattern of every message in code and Makefile: its fixed words, and any values."""
    for file in REPOSITORY.glob("roformer/**/*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.JoinedStr):
                parts = [p.value if isinstance(p, ast.Constant) else None for p in node.values]
                yield "".join(".+" if part is None else re.escape(part) for part in parts)
    yield from map(re.escape, re.findall(r'"(error: .*?)"', MAKEFILE))


def worded(message, known):
    """Return whether a message is one of the code's, or several and places joined by colons."""
    return (
        " " not in message
        or any(template.fullmatch(message) for template in known)
        or any(
            worded(message[: colon.start()], known) and worded(message[colon.end() :], known)
            for colon in re.finditer(": ", message)
        )
    )


def test_a_quoted_message_has_the_words_of_the_code():
    """Catches a message that was worded anew and a page that was not."""
    known = [re.compile(t) for t in templates() if len(re.findall(r"[a-z]{2,}", t)) >= 4]
    assert len(REFUSED) >= 6 and len(QUOTED) - len(REFUSED) >= 12
    for text in QUOTED:
        assert text in REFUSED or worded(text.strip(), known), text


@pytest.mark.parametrize("text", REFUSED)
def test_a_quoted_command_is_refused_as_quoted(text):
    command, message = text.splitlines()
    with pytest.raises(InputError) as refusal:
        composed(command.removeprefix("$ "))
    assert f"error: {refusal.value}" == message


def test_the_hours_of_the_paper_are_those_of_the_plan(capsys):
    """And what to expect there is the paper's."""
    rows = re.findall(
        r"^\| (Table \d|Fig. \d \w+) \| `(make \w+)(.*?)`.*?\| ([^|]*) \| ([^|]*) \| ([^|]*) \|$",
        PAGES["docs/reproduce.md"],
        re.MULTILINE,
    )
    paper = yaml.safe_load((EXPERIMENTS / "paper.yaml").read_text())["experiments"]
    assert len(rows) == 6 and [row[4] for row in rows].count("no plan") == 2
    for place, command, more, hardware, hours, expected in rows:
        experiment = paper[place.lower().replace("fig.", "figure").replace(" ", "_")]
        assert {float(n) for n in re.findall(r"\d+\.\d+", expected)} <= {
            number["value"] for number in experiment["numbers"]
        }
        name = command.removeprefix("make ")
        assert (hours == "no plan") == ("plan" not in PIPELINES[name].flags)
        if hours != "no plan":
            assert hardware == "8 × A100" and "GPUS=8" in more
            plan = composed(f"make plan PIPELINE={name}{more}")
            PIPELINES[name].plan(plan, 8, 0.4)
            assert re.search(r"^  A100 +(.*)$", capsys.readouterr().out, re.MULTILINE)[1] == hours


# --- records -------------------------------------------------------------------------------------


def test_records_are_whole_and_configs_keep_their_run_id():
    """A key that came later must not give an earlier run another id, or it would run again."""
    extended = {study.folder for study in all_studies() if study.extensions}
    for run in all_recorded():
        summary, rows = run.files["summary.json"], run.files["metrics.jsonl"]
        names = {"config.yaml", "env.json", "command.txt", "metrics.jsonl", "summary.json"}
        more = {
            "scm": {"predictions/validation.tsv"},
            "charlm": {"positions.json"},
            "clm": {"positions.json"},
        }
        # Only later runs have these; tables check that the translations' are the summary's.
        found = set(run.files) - {"bleu_statistics.json", "predictions/test.tsv", "spikes.jsonl"}
        assert found == names | more.get(summary["pipeline"], set()), run
        steps = [row["step"] for row in rows]
        assert steps == sorted(set(steps)) and steps[-1] == summary["steps"], run
        assert {**rows[-1], **summary["metrics"]} == rows[-1], run
        # test_studies reads runs with extensions, in a process that has them
        if run.path.parents[1] in extended:
            continue
        cls = registry.get(summary["pipeline"]).config_of_run
        assert run_id(build(cls, run.files["config.yaml"])) == run.name == summary["run_id"]


@pytest.mark.parametrize("name", GENERATED)
def test_generated_parts_are_what_the_records_give(name, monkeypatch):
    """`make report` would change nothing; every table of a report is its records'."""
    monkeypatch.setattr("matplotlib.figure.Figure.savefig", lambda *_, **__: None)
    assert refreshed(PAGES[name], REPOSITORY / name) == PAGES[name]


def test_every_study_has_generated_parts_and_a_changed_number_is_seen():
    for study in all_studies():
        if study.has_runs:
            text = report(study.folder.name)
            assert "<!-- report: facts -->" in text and text.count("<!-- report: ") >= 2
    text, page = report("wmt_builtin"), EXPERIMENTS / "appendix" / "wmt_builtin" / "REPORT.md"
    assert refreshed(text.replace("96.98 (1)", "97.98 (1)"), page) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<!-- report: facts -->\n", "without its <!-- /report -->"),
        ("<!-- report: graphs runs/* -->\n<!-- /report -->", "no block 'graphs'"),
        ("<!-- report: tables runs/* -->\n<!-- /report -->", "no run is"),
    ],
)
def test_a_mistake_in_a_page_is_one_line(tmp_path, text, message):
    with pytest.raises(RecordError, match=message):
        refreshed(text, tmp_path / "REPORT.md")


# --- what README and index say of the records ----------------------------------------------------


def test_front_pages_are_short():
    """Words include tables and code; the index has ten findings and twelve studies."""
    assert 500 < len(README.split()) <= 1000
    assert len(INDEX.split()) <= 1500
    assert len(re.findall(r"^\d+\. \*\*", INDEX, re.MULTILINE)) == 10
    assert len([*EXPERIMENTS.glob("*/PLAN.md"), EXPERIMENTS / "speed"]) <= 12


def test_findings_have_numbers_of_reports():
    found = INDEX.partition("## Ten findings")[2].partition("## Claims")[0]
    reports = "".join(path.read_text() for path in EXPERIMENTS.rglob("REPORT.md"))
    for number in re.findall(r"\d+\.\d+", found):
        assert re.search(rf"(?<![\d.]){re.escape(number)}(?!\d)", reports), number


def test_synthetic_data_is_evidence_for_no_claim():
    """Its studies are in a section of the appendix."""
    toys = {study.name for study in all_studies() if study.toy}
    assert toys == {"glue_builtin", "glue_builtin_bert", "wmt_builtin", "scm_builtin", "reproduce"}
    evidence, tests = PAGES["experiments/appendix/README.md"].split("\n## Regression tests\n")
    for name in toys:
        assert f"]({name}/REPORT.md)" in tests and f"/{name}/" not in INDEX + evidence


def test_the_output_of_make_reproduce_is_the_records():
    reports = {line for name in GENERATED for line in PAGES[name].splitlines()}
    stages = re.findall(r"^(?:\[\d/7\] |all stages ).*", README, re.MULTILINE)
    assert len(stages) == 3 and set(stages) <= reports


def test_the_expected_output_of_pretraining_is_the_records():
    found = recorded("reproduce", "roformer-rotary-mini-*")
    (run,) = (one for one in found if one.files["summary.json"]["pipeline"] == "pretrain")
    metrics = run.files["summary.json"]["metrics"]
    printed = (
        f"valid/mlm_loss {metrics['valid/mlm_loss']:.3f}, "
        f"valid/mlm_accuracy {metrics['valid/mlm_accuracy']:.1%} "
        f"(unigram entropy of the same tokens: {metrics['valid/unigram_entropy']:.3f}, "
    )
    assert printed in README and printed in PAGES["docs/quick-start.md"]
    assert run.name in PAGES["docs/quick-start.md"]


def test_memory_is_told_as_recorded():
    speed = report("speed")
    for study, said, page in (
        ("reproduce", "takes {} of memory at most", PAGES["docs/reproduce.md"]),
        ("wmt_multi30k", "Multi30k grew to {}", speed),
        ("scm_builtin", "`make scm` to {}", speed),
    ):
        peaks = [run.files["summary.json"].get("peak_memory_bytes", 0) for run in recorded(study)]
        assert said.format(f"{max(peaks) / 1e9:.1f} GB") in page


# --- the guide to position encodings -------------------------------------------------------------


def test_the_guide_names_hooks_with_their_parameters():
    hooks = re.findall(r"^\| `(\w+)\((.*?)\)`", GUIDE, re.MULTILINE)
    assert [name for name, _ in hooks] == ["prepare", "embed", "rotate", "bias", "value_term"]
    for name, parameters in hooks:
        signature = inspect.signature(getattr(PositionEncoding, name))
        assert parameters.split(", ") == list(signature.parameters)[1:], name


def test_the_guide_says_of_every_encoding_what_it_declares():
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", GUIDE.partition("## Absolute")[0], re.MULTILINE)
    said = {kind: tuple(cells.split(" | ")) for kind, cells in rows}
    declared = {
        cls.kind: (
            *("yes" if cls.can(one) else "–" for one in get_args(Capability)),
            ", ".join(cls.exports) or "–",
        )
        for cls in ENCODINGS
    }
    assert said == declared
    for kind in declared:  # each has its line, and its code
        told = re.search(rf"^\*\*`{kind}`\*\*.*", GUIDE, re.MULTILINE)
        assert told and (kind == "none" or "](../roformer/nn/position/" in told[0])
