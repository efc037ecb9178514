"""JSON files that may have been damaged since they were written."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pydantic_core import from_json


def read_object(file: Path) -> dict[str, Any]:
    """Return the JSON object in a file.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is not UTF-8, not JSON, nested too deep, has NaN, or is no object.
    """
    content = from_json(file.read_bytes(), allow_inf_nan=False)
    if not isinstance(content, dict):
        raise ValueError("not a JSON object")
    return content


def parse_rows(lines: Iterable[str | bytes]) -> list[Any]:
    """Return the JSON of each line that is not empty.

    Raises:
        ValueError: a line is not JSON; the message has its number, from 1.
    """
    rows = []
    for number, line in enumerate(lines, 1):
        try:
            rows += [json.loads(line)] if line else []
        except ValueError as error:
            raise ValueError(f"line {number}, {error}") from error
    return rows
