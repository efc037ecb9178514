"""The command that runs the benchmarks: its suites and its messages."""

import sys
from pathlib import Path

import pytest

from benchmarks import __main__ as benchmarks
from benchmarks.timing import row
from roformer.errors import InputError

RUN = ["--run", "runs/wmt/nothing"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["decoding"], "^decoding needs a translation run: --run runs/wmt/YOUR_RUN$"),
        (["decoding", *RUN], "nothing/translations/test.source.txt is not there: give --run a"),
        (RUN, "test.source.txt is not there"),
        (
            ["rotary", "training2"],
            "^there is no suite training2: choose one of kernels, .*, decoding$",
        ),
        (["--rounds", "0"], "give at least 1, not 0"),
    ],
)
def test_a_mistake_is_one_line_before_anything_is_measured(words, message, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["benchmarks", *words])
    with pytest.raises(InputError, match=message):
        benchmarks.main()


def test_a_run_brings_the_suite_that_needs_it(tmp_path):
    (folder := Path(tmp_path, "translations")).mkdir()
    (folder / "test.source.txt").touch()
    assert [*benchmarks.suites_of([], str(tmp_path))] == [*benchmarks.STANDARD, "decoding"]
    assert [*benchmarks.suites_of([], None)] == [*benchmarks.STANDARD]
    assert [*benchmarks.suites_of(["data"], str(tmp_path))] == ["data"]


def test_each_suite_is_told_when_it_begins(tmp_path, monkeypatch, capsys):
    told = []

    def bench(rounds):
        told.append(capsys.readouterr().err)
        return [row("sums", [2.0], [1.0])]

    monkeypatch.setattr(benchmarks, "SUITES", dict.fromkeys(("data", "rotary"), bench))
    monkeypatch.setattr(sys, "argv", ["b", "rotary", "data", "--output", str(tmp_path)])
    benchmarks.main()
    assert told[0] == "[1/2] rotary …\n" and told[1].endswith("\n[2/2] data …\n")
    assert (tmp_path / "rotary.json").is_file() and "| sums |" in capsys.readouterr().out
