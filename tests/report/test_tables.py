"""Markdown of tables: names out of records are text."""

import re

import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from roformer.report.tables import (
    Table,
    code,
    escaped,
    interval_text,
    markdown,
    mean_text,
    named,
    screen_of,
    signed,
)
from tests.property.hostile import fuzz


def test_a_screen_has_what_fits_it():
    """A wide table is transposed."""
    wide = [["model", *(f"metric {n:02}" for n in range(12))], ["a", *map(str, range(12))]]
    title, header, *rows = Table("Scores", wide).screen().split("\n")
    assert (title, header.split(), len(rows)) == ("Scores", ["model", "a"], 12)
    assert rows[3] == "metric 03  3"
    assert Table("Many", [["x"]] * 99).screen() is None
    small = Table("Small", [["x", "y"]] * 7)
    assert screen_of([small] * 3) == f"{small.screen()}\n\n{small.screen()}"


def test_a_number_that_rounds_to_zero_has_no_sign():
    assert mean_text([-0.04, 0.0], 1) == "0.0 ± 0.0 (2)"
    assert [signed(value, 1) for value in (-0.04, 0.04, 0.06)] == ["0.0", "0.0", "+0.1"]
    assert interval_text((-0.04, 1.0), 1, sign=False) == "0.0 to 1.0"


@given(st.lists(st.lists(st.text(), min_size=3, max_size=3), min_size=1))
@fuzz(80)
def test_a_cell_is_text_whatever_it_holds(lines):
    """Each line has as many cells as the header, and no markup."""
    for line in markdown(lines, text_columns=1).split("\n"):
        plain = re.sub(r"\\(.)", "", line)
        assert line.isprintable() and plain.count("|") == 4 and not set("`<") & set(plain)


def test_ordinary_names_are_printed_as_they_are():
    name = "roformer (rotary), search.alpha=0.6 ± test_2016_flickr [a] ←"
    assert escaped(name) == name and code("nrefs:1|tok:13a") == "`nrefs:1|tok:13a`"


def test_weights_to_start_from_are_named_by_the_plan():
    """Also where some runs of a configuration were started by another command."""
    rows = (("a-s0", "original"), ("a-s0", ""), ("b-s0", "drawn"))
    common = {"pipeline": "glue", "label": "bert"}
    runs = pd.DataFrame(
        common | {"configuration": key, "planned": planned, "config": {"init_from": key}}
        for key, planned in rows
    )
    names = ["original", "original", "drawn"]
    assert [*named(runs).name] == [f"bert, configuration={name}" for name in names]
