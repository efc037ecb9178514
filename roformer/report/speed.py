"""The table of a benchmark, from the records of `make bench`."""

from __future__ import annotations

from pathlib import Path
from typing import NotRequired

from typing_extensions import TypedDict

from roformer.report.records import Number, RecordError, read_json
from roformer.report.tables import row

SUITES = ("rotary", "like", "shipped", "finetuning", "translation", "decoding", "kernels")


class Measured(TypedDict):
    """One line of a suite."""

    what: str
    ratio: Number
    goal: Number | None
    ours_tokens_per_second: NotRequired[Number | None]
    deviations: str


class Record(TypedDict):
    """What is used of a suite's record."""

    rows: list[Measured]


def speed_table(folder: Path) -> str:
    """Return a Markdown table of all suites recorded in a folder.

    Raises:
        RecordError: no suite is recorded there, or a record is damaged.
    """
    records = [folder / f"{suite}.json" for suite in SUITES]
    found = [read_json(path, Record) for path in records if path.is_file()]
    if not found:
        raise RecordError(f"{folder} has no {', '.join(path.name for path in records)}: make bench")
    lines = [
        "| what | times faster | goal | tokens/s | deviations from the paper's setting |",
        "|---|---:|---:|---:|---|",
    ]
    for record in found:
        for measured in record["rows"]:
            goal = f"{measured['goal']:g}" if measured["goal"] else ""
            speed = measured.get("ours_tokens_per_second")
            tokens = f"{speed:,.0f}" if speed else ""
            ratio, notes = f"{measured['ratio']:.2f}", measured["deviations"]
            lines.append(row([measured["what"], ratio, goal, tokens, notes]))
    return "\n".join(lines)
