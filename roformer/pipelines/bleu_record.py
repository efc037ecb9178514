"""What of a translation run's BLEU can be recorded without the texts: its statistics, line by line.

The references are the data set's and stay out of a record; with these counts intervals and
comparisons of BLEU are computed from the record alone (`roformer.report.wmt`).
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from typing_extensions import TypedDict

from roformer.errors import InputError
from roformer.evaluation.bleu import STATISTICS, bleu_statistics, sacrebleu
from roformer.json_files import check_shape
from roformer.training import records

NAME = "bleu_statistics.json"
"""Beside a run's summary."""
SCORES = {"averaged": "test/sacrebleu", "single": "test/sacrebleu_single"}
"""System → its metric."""


class Scored(TypedDict):
    """What is used of the summary of a run that was scored."""

    metrics: dict[str, float | None]
    signatures: dict[str, str]
    test_set: dict[str, str | int]


def write_bleu_statistics(
    run: Path,
    systems: Mapping[str, Sequence[str]],
    references: Sequence[str],
    test_set: Mapping[str, Any],
    signature: str,
) -> None:
    """Write `bleu_statistics.json`: of each system the `STATISTICS` of every test line.

    Args:
        run: folder of the run.
        systems: `averaged` and `single` → translations of the references.
        references: one for each translation.
        test_set: what the summary says of it.
        signature: of the sacreBLEU that they are the statistics of.
    """
    content = {
        "test_set": dict(test_set),
        "signature": signature,
        "columns": list(STATISTICS),
        "systems": {name: bleu_statistics(texts, references) for name, texts in systems.items()},
    }
    records.write_atomically(run / NAME, json.dumps(content) + "\n")


def add_bleu_statistics(run: Path) -> None:
    """Write the BLEU statistics of a scored run that has none, from its `translations/` if there.

    Raises:
        InputError: the summary is damaged, or the translations are not those that were scored.
    """
    summary = records.RunFolder(run).summary()
    if summary is None or "test_set" not in summary:
        return
    if (run / NAME).exists() or not (run / "translations").is_dir():
        return
    try:
        check_shape(Scored, summary)
    except ValueError as error:
        raise InputError(f"{run}/summary.json is damaged ({error}): run it again") from error
    names = ("reference", *SCORES)
    reference, *texts = (_lines(run / "translations" / f"test.{name}.txt") for name in names)
    systems = dict(zip(SCORES, texts, strict=True))
    sound = fingerprint(reference) == summary["test_set"].get("fingerprint")
    for name, lines in systems.items():
        score, found = summary["metrics"].get(SCORES[name]), sacrebleu(lines, reference)
        signature = found.signature
        sound &= score is not None and math.isclose(score, found.value, rel_tol=1e-9)
        sound &= signature == summary["signatures"].get("sacrebleu")
    if not sound:
        raise InputError(
            f"{run}/translations are not what its summary has the scores of: leave the run out, or "
            "run it again"
        )
    write_bleu_statistics(run, systems, reference, summary["test_set"], signature)


def fingerprint(references: Sequence[str]) -> str:
    """Return what tells test sets apart."""
    return hashlib.sha256("\n".join(references).encode()).hexdigest()


def _lines(file: Path) -> list[str]:
    r"""Return the lines that a run wrote; only \n ends one."""
    try:
        return file.read_bytes().decode().split("\n")[:-1]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{file} cannot be read ({error}): run it again") from error
