"""Markdown of tables: names out of records are text, whatever they hold."""

import re

from hypothesis import given
from hypothesis import strategies as st

from roformer.report.pages import run_tables
from roformer.report.runs import read_runs
from roformer.report.tables import Table, code, escaped, markdown, markdown_of, screen_of
from tests.property.hostile import fuzz
from tests.report.records import change, curve, glue_run, record, translation_run

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


def test_a_screen_has_what_fits_it():
    """A wide table is turned over; names that could move the cursor are text."""
    wide = [["model", *(f"metric {n:02}" for n in range(12))], ["a", *map(str, range(12))]]
    title, header, *rows = Table("Scores", wide).screen().split("\n")
    assert (title, header.split(), len(rows)) == ("Scores", ["model", "a"], 12)
    assert rows[3] == "metric 03  3"
    assert Table("Many", [["x"]] * 99).screen() is None
    small = Table("Small", [["x", "y"]] * 7)
    assert screen_of([small] * 3) == f"{small.screen()}\n\n{small.screen()}"
    assert "\x1b" not in Table(EVIL, [[EVIL]]).screen()


def test_names_out_of_records_cannot_break_a_table(tmp_path):
    losses = [
        record(tmp_path / n, rows=curve([5.0]), model=EVIL, seed=i) for i, n in enumerate("ab")
    ]
    losses.append(record(tmp_path / "c", status="failed", error=EVIL, model=EVIL))
    glue = glue_run(tmp_path / "g", 0, 2e-5, 0.8)
    change(glue, model=EVIL, task=EVIL, headline=f"{EVIL}/f1")
    change(glue, baselines={EVIL: {f"{EVIL}/f1": 0.5}}, metrics={f"{EVIL}/f1": 0.5})
    test_set = {"name": EVIL, "lines": 3, "fingerprint": EVIL}
    wmt = translation_run(tmp_path / "w", 0, 27.0)
    change(wmt, model=EVIL, test_set=test_set, signatures={EVIL: EVIL})
    text = markdown_of(run_tables(read_runs([*losses, glue, wmt])))
    assert well_formed(text) and text.count("| ---") > 4


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
