"""Markdown of tables: names out of records are text, whatever they hold."""

import re

from hypothesis import given
from hypothesis import strategies as st

from roformer.report.curves import compare_runs, convergence_tables
from roformer.report.glue import glue_tables
from roformer.report.runs import read_runs
from roformer.report.tables import code, escaped, markdown, markdown_of
from roformer.report.wmt import wmt_tables
from tests.property.hostile import fuzz
from tests.report.records import change, curve, record
from tests.report.test_glue import cell
from tests.report.test_wmt import scored

EVIL = "a|b`c\nd\\|e<script>\u2028\x1b[31m\r| --- |"


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


def test_names_out_of_records_cannot_break_a_table(tmp_path):
    losses = [
        record(tmp_path / n, rows=curve([5.0]), model=EVIL, seed=i) for i, n in enumerate("ab")
    ]
    losses.append(record(tmp_path / "c", status="failed", error=EVIL, model=EVIL))
    runs = read_runs(losses)
    assert well_formed(compare_runs(runs, "valid/mlm_loss"))
    assert well_formed(markdown_of(convergence_tables(runs)))
    glue = change(cell(tmp_path / "g", 0, 2e-5, 0.8), model=EVIL, task=EVIL, headline=f"{EVIL}/f1")
    change(glue, majority={f"{EVIL}/f1": 0.5}, metrics={f"{EVIL}/f1": 0.5})
    assert well_formed(glue_tables(read_runs([glue])))
    test_set = {"name": EVIL, "lines": 3, "fingerprint": EVIL}
    wmt = scored(tmp_path / "w", 0, 27.0)
    change(wmt, model=EVIL, test_set=test_set, signatures={EVIL: EVIL})
    assert well_formed(wmt_tables(read_runs([wmt])))


@given(st.lists(st.lists(st.text(), min_size=3, max_size=3), min_size=1))
@fuzz(80)
def test_a_cell_is_text_whatever_it_holds(lines):
    assert well_formed(markdown(lines, text_columns=1))
    for one in (one for line in lines for one in line):
        if one.isprintable():
            assert re.sub(r"\\([\\|`<])", r"\1", escaped(one)) == one
            assert one in code(one)


def test_ordinary_names_are_printed_as_they_are():
    name = "roformer (rotary), search.alpha=0.6 ± test_2016_flickr [a] ←"
    assert escaped(name) == name and code("nrefs:1|tok:13a") == "`nrefs:1|tok:13a`"
