"""A file of the paper's numbers that is malformed or hostile is refused in one line."""

import copy
import functools
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from roformer.report.paper import read_paper
from roformer.report.records import RecordError
from tests.conftest import REPOSITORY

FILE = REPOSITORY / "experiments" / "paper.yaml"
FIRST = "tables.table_1.numbers.0"
DAMAGE = {
    "no split": (lambda p: p["tables"]["table_1"]["numbers"][0].pop("split"), f"{FIRST}.split"),
    "other split": (
        lambda p: p["tables"]["table_1"]["numbers"][0].update(split="dev"),
        f"{FIRST}.split",
    ),
    "no origin": (lambda p: p["tables"]["table_1"]["numbers"][0].pop("origin"), f"{FIRST}.origin"),
    "unknown key": (lambda p: p["tables"]["table_1"]["numbers"][0].update(n=1), f"{FIRST}.n"),
    "unknown top key": (lambda p: p.update(extra=1), "extra"),
    "missing top key": (lambda p: p.pop("others"), "others"),
    "number as text": (
        lambda p: p["tables"]["table_1"]["numbers"][0].update(value="27.3"),
        f"{FIRST}.value",
    ),
    "no number": (
        lambda p: p["tables"]["table_1"]["numbers"][0].update(value=float("nan")),
        f"{FIRST}.value",
    ),
    "unknown metric": (
        lambda p: p["tables"]["table_1"]["numbers"][0].update(metric="chrF"),
        "table_1.numbers.0.metric: chrF",
    ),
    "unknown row": (
        lambda p: p["tables"]["table_1"]["numbers"][0].update(position="rotary"),
        r"table_1.numbers.0.model: Transformer-base \(rotary\)",
    ),
    "unknown source": (
        lambda p: p["tables"]["table_1"]["numbers"][0].update(source="me"),
        "table_1.numbers.0.source: me",
    ),
    "unknown caveat": (
        lambda p: p["tables"]["table_1"]["numbers"][0].update(caveats=["P9"]),
        "table_1.numbers.0.caveats: P9",
    ),
    "another table's caveat": (
        lambda p: p["tables"]["table_1"]["numbers"][0].update(caveats=["P1"]),
        "table_1.numbers.0.caveats: P1",
    ),
    "copied, said to be reported": (
        lambda p: p["tables"]["table_1"]["numbers"][0].update(origin="reported"),
        "table_1.numbers.0.origin",
    ),
    "measured on no data": (
        lambda p: p["tables"]["table_1"]["numbers"][1].update(split="no data"),
        "table_1.numbers.1.split",
    ),
    "two numbers of a cell": (
        lambda p: p["tables"]["table_1"]["numbers"].append(p["tables"]["table_1"]["numbers"][0]),
        "table_1.numbers.2: a second number",
    ),
    "caveat of no table": (
        lambda p: p["caveats"]["P1"]["tables"].append("table_9"),
        "caveats.P1.tables: table_9",
    ),
    "claim of nothing": (lambda p: p["claims"].append("table_9"), "claims: table_9"),
    "gap of nothing": (
        lambda p: p["tables"]["table_5"]["gaps"][0].update(above="NEZHA"),
        "gaps: 0 numbers of NEZHA",
    ),
    "one key twice": (
        lambda p: p["figures"].update(table_1=p["tables"]["table_1"]),
        "a key stands in two",
    ),
    "other about nothing": (lambda p: p["others"][0].update(about="x"), "others.0.about: x"),
}


@functools.cache
def paper():
    return OmegaConf.to_container(OmegaConf.load(FILE))


@pytest.mark.parametrize("damage", DAMAGE)
def test_malformed_content_is_one_line_with_file_and_key(monkeypatch, damage):
    content = copy.deepcopy(paper())
    change, place = DAMAGE[damage]
    change(content)
    monkeypatch.setattr("roformer.report.paper.read_yaml", lambda file, what: content)
    file = Path("a/paper.yaml")
    with pytest.raises(RecordError, match=place) as caught:
        read_paper(file)
    message = str(caught.value)
    assert message.startswith(str(file)) and "\n" not in message


HOSTILE = {
    "aliases": "a: &a [1]\nb: [*a, *a]\n",
    "bomb": "".join(
        f"{n}: &{n} [{', '.join([f'*{b}'] * 9)}]\n" for b, n in zip("abcd", "bcde", strict=True)
    ),
    "deep": "[" * 100_000,
    "deep mapping": "{a: " * 500 + "1" + "}" * 500,
    "nested": "- " * 100_000,
    "long": "a: " + "x" * 100_000,
    "object": "a: !!python/object/apply:os.system ['true']",
    "a key twice": "paper: roformer\npaper: bert\n",
    "list": "- 1",
    "number": "5",
    "broken": "a: {",
    "null byte": "\0",
    "binary": "a: \x1b",
    "empty": "",
}


@pytest.mark.parametrize("content", HOSTILE)
def test_hostile_yaml_is_one_line(tmp_path, content):
    (file := tmp_path / "paper.yaml").write_text(HOSTILE[content])
    with pytest.raises(RecordError) as caught:
        read_paper(file)
    assert str(caught.value).startswith(f"{file} is not the paper's numbers: ")
    assert "\n" not in str(caught.value)


def test_a_missing_file_and_bytes_are_one_line(tmp_path):
    with pytest.raises(RecordError, match=r"paper\.yaml cannot be read"):
        read_paper(tmp_path / "paper.yaml")
    (tmp_path / "paper.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(RecordError, match=r"is not the paper's numbers"):
        read_paper(tmp_path / "paper.yaml")
