"""Tables of records that anything happened to, and of names that would break a table.

A damaged record is refused in one line that names its folder; the tables are tables whatever the
names in them.
"""

import json
import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roformer.report.convergence import convergence_tables
from roformer.report.curves import compare, read_curve, steps_to
from roformer.report.glue import glue_tables
from roformer.report.paired import paired_glue_table
from roformer.report.records import RecordError
from roformer.report.speed import speed_table
from roformer.report.tables import code, escaped, markdown
from roformer.report.wmt import wmt_tables
from roformer.report.wmt_bootstrap import bleu_table
from tests.property.hostile import NOT_OBJECTS, fuzz, lawful, mangled, mangled_json
from tests.unit.test_convergence import FAST, SLOW
from tests.unit.test_convergence import record as pretraining_record
from tests.unit.test_glue_report import record as glue_record
from tests.unit.test_wmt_bootstrap import REFERENCES, translated
from tests.unit.test_wmt_bootstrap import run as scored_record
from tests.unit.test_wmt_report import record as wmt_record

ROWS = [
    {"step": step, "valid/mlm_loss": 9.0 / step, "data/samples": step, "data/tokens": 10 * step}
    for step in (1, 2, 3)
]
METRICS = "".join(json.dumps(row) + "\n" for row in ROWS).encode()


def fuzzed(folder, name, content, read):
    """Read with one file replaced, and put it back."""
    good = (folder / name).read_bytes()
    try:
        (folder / name).write_bytes(content)
        return lawful(read, folder, error=RecordError)
    finally:
        (folder / name).write_bytes(good)


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    folder = tmp_path_factory.mktemp("records")
    curve = folder / "curve"
    curve.mkdir()
    (curve / "metrics.jsonl").write_bytes(METRICS)
    (curve / "summary.json").write_text('{"model": "bert", "position": "learned", "seed": 0}')
    glue = glue_record(folder, 0, 2e-5, 0.8)
    wmt = wmt_record(folder, "wmt", 0, 27.0)
    (speed := folder / "speed").mkdir()
    row = {"what": "all", "ratio": 1.5, "goal": None, "deviations": "none"}
    (speed / "like.json").write_text(json.dumps({"rows": [row]}))
    seeds = [pretraining_record(folder, "rotary", seed, FAST[seed]) for seed in (0, 1)]
    seeds += [pretraining_record(folder, "none", seed, SLOW[seed]) for seed in (0, 1)]
    bert = glue_record(folder, 0, 2e-5, 0.7, model="bert")
    systems = {"scored": ("rotary", translated(0.2, 0)), "perfect": ("none", REFERENCES)}
    scored = [scored_record(folder, n, 0, t, position=p) for n, (p, t) in systems.items()]
    return {
        "seeds": (seeds[1], lambda: as_text(convergence_tables(seeds))),
        "paired": (glue, lambda: as_text([paired_glue_table([glue, bert])])),
        "bleu": (scored[1], lambda: as_text([bleu_table(scored, samples=10)])),
        "curve": (curve, lambda: compare([read_curve(curve, "valid/mlm_loss")] * 2, "x")),
        "glue": (glue, lambda: glue_tables([glue, glue])),
        "wmt": (wmt, lambda: wmt_tables([wmt])),
        "speed": (speed, lambda: speed_table(speed)),
    }


def as_text(tables):
    return "\n\n".join(table.markdown() for table in tables)


READ = [
    ("seeds", "metrics.jsonl"),
    ("seeds", "summary.json"),
    ("seeds", "config.yaml"),
    ("seeds", "env.json"),
    ("paired", "summary.json"),
    ("bleu", "summary.json"),
    ("bleu", "bleu_statistics.json"),
    ("curve", "metrics.jsonl"),
    ("curve", "summary.json"),
    ("glue", "summary.json"),
    ("glue", "config.yaml"),
    ("wmt", "summary.json"),
    ("wmt", "config.yaml"),
    ("speed", "like.json"),
]


@pytest.mark.parametrize(("kind", "name"), READ)
@given(st.data())
@fuzz(80)
def test_a_table_is_made_of_sound_records(records, kind, name, data):
    folder, read = records[kind]
    good = (folder / name).read_bytes()
    contents = mangled(good)
    if name.endswith(".json") or kind == "glue":
        contents |= mangled_json(json.loads(good))
    found = fuzzed(folder, name, data.draw(contents), read)
    if isinstance(found, str):
        assert well_formed(found)


@pytest.mark.parametrize(("kind", "name"), [each for each in READ if each[1].endswith(".json")])
def test_a_record_that_is_no_object_is_named(records, kind, name):
    folder, read = records[kind]
    for content in NOT_OBJECTS:
        assert fuzzed(folder, name, content, read) is None


def well_formed(text):
    """Tell whether each table in Markdown has as many cells in every line as in its header."""
    width = None
    for line in text.split("\n"):
        assert line.isprintable(), line
        if not line.startswith("|"):
            width = None
            continue
        plain = re.sub(r"\\(.)", "", line)
        assert "`" not in plain and "<" not in plain, line
        width = width or plain.count("|")
        assert plain.count("|") == width, line
    return True


EVIL = "a|b`c\nd\\|e<script>\u2028\x1b[31m\r| --- |"


def test_names_out_of_records_cannot_break_a_table(tmp_path):
    curves = []
    for name in ("one", EVIL.replace("/", "")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "metrics.jsonl").write_bytes(METRICS)
        summary = {"model": EVIL, "position": EVIL, "seed": 0}
        (tmp_path / name / "summary.json").write_text(json.dumps(summary))
        curves.append(read_curve(tmp_path / name, "valid/mlm_loss"))
    assert well_formed(compare(curves, EVIL))
    glue = glue_record(tmp_path / "glue", 0, 2e-5, 0.8)
    change(glue / "summary.json", model=EVIL, task=EVIL, headline=f"{EVIL}/f1")
    change(glue / "summary.json", majority={f"{EVIL}/f1": 0.5}, metrics={f"{EVIL}/f1": 0.5})
    assert well_formed(glue_tables([glue]))
    wmt = wmt_record(tmp_path / "wmt", "wmt", 0, 27.0)
    failed = wmt_record(tmp_path / "wmt", EVIL.replace("/", ""), 1, 27.0, status="failed")
    test_set = {"name": EVIL, "lines": 3, "fingerprint": EVIL}
    change(wmt / "summary.json", model=EVIL, test_set=test_set, signatures={EVIL: EVIL})
    change(failed / "summary.json", model=EVIL, status="failed", position=EVIL)
    assert well_formed(wmt_tables([wmt, failed]))
    seeds = [pretraining_record(tmp_path / "seeds", arm, 0, FAST[0]) for arm in ("a", "b")]
    seeds += [pretraining_record(tmp_path / "seeds", "c", 1, (), status="failed", error=EVIL)]
    change(seeds[0] / "summary.json", model=EVIL, status=EVIL)
    assert well_formed(as_text(convergence_tables(seeds, baseline="(b)")))
    other = glue_record(tmp_path / "glue", 0, 3e-5, 0.8, model="bert")
    change(other / "summary.json", task=EVIL, headline=f"{EVIL}/f1", metrics={f"{EVIL}/f1": 0.5})
    assert well_formed(as_text([paired_glue_table([glue, other])]))
    scored = scored_record(tmp_path / "scored", EVIL.replace("/", ""), 0, REFERENCES)
    change(scored / "summary.json", model=EVIL, status=EVIL)
    assert well_formed(as_text([bleu_table([scored], samples=10)]))
    (tmp_path / "speed").mkdir()
    row = {"what": EVIL, "ratio": 1.5, "goal": None, "deviations": EVIL}
    (tmp_path / "speed" / "like.json").write_text(json.dumps({"rows": [row]}))
    assert well_formed(speed_table(tmp_path / "speed"))


def change(file, **values):
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


@given(st.lists(st.lists(st.text(), min_size=3, max_size=3), min_size=1))
@fuzz(80)
def test_a_cell_is_text_whatever_it_holds(lines):
    assert well_formed(markdown(lines, text_columns=1))
    for cell in (cell for line in lines for cell in line):
        if cell.isprintable():
            assert re.sub(r"\\([\\|`<])", r"\1", escaped(cell)) == cell
            assert cell in code(cell)


def test_ordinary_names_are_printed_as_they_are():
    name = "roformer (rotary), search.alpha=0.6 ± test_2016_flickr [a] ←"
    assert escaped(name) == name and code("nrefs:1|tok:13a") == "`nrefs:1|tok:13a`"


def test_a_loss_that_was_not_finite_is_shown_and_passed_over(tmp_path):
    rows = [
        row | {"valid/mlm_loss": None if row["step"] == 2 else 5.0 - row["step"]} for row in ROWS
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "summary.json").write_text('{"model": "m", "position": "p", "seed": 0}')
    curve = read_curve(tmp_path, "valid/mlm_loss")
    assert math.isnan(curve.points[2]) and steps_to(curve, 3.0) == 2.0
    assert "| 2 | 2 | 20 | NaN |" in compare([curve], "valid/mlm_loss")
