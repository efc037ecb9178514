"""JSON files that may have been changed since they were written.

Damaged content raises ValueError with the reason; the caller knows the purpose of the file.
"""

from functools import cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError
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


def check_shape(shape: Any, content: object) -> None:
    """Raise ValueError, with the key, where content has not the shape of a type, mostly a TypedDict."""
    try:
        _adapter(shape).validate_python(content, strict=True)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        key = ".".join(map(str, problem["loc"])) or "content"
        raise ValueError(f"{key}: {problem['msg']}") from None


@cache
def _adapter(shape: Any) -> TypeAdapter[Any]:
    return TypeAdapter(shape)
