"""The table of a benchmark, from the records that `scripts/bench.py` writes."""

from __future__ import annotations

import json
from pathlib import Path

SUITES = ("rotary", "like", "shipped", "finetuning", "translation", "decoding", "kernels")


def speed_table(folder: Path) -> str:
    """Return a Markdown table of all suites recorded in a folder.

    Raises:
        ValueError: no suite is recorded there.
    """
    records = [folder / f"{suite}.json" for suite in SUITES]
    found = [json.loads(path.read_text()) for path in records if path.is_file()]
    if not found:
        raise ValueError(f"{folder} has no {', '.join(path.name for path in records)}: make bench")
    lines = [
        "| what | times faster | goal | tokens/s | deviations from the paper's setting |",
        "|---|---:|---:|---:|---|",
    ]
    for record in found:
        for row in record["rows"]:
            goal = f"{row['goal']:g}" if row["goal"] else ""
            speed = row.get("ours_tokens_per_second")
            tokens = f"{speed:,.0f}" if speed else ""
            lines.append(
                f"| {row['what']} | {row['ratio']:.2f} | {goal} | {tokens} | {row['deviations']} |"
            )
    return "\n".join(lines)
