"""JSON files that may have been damaged since they were written."""

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
