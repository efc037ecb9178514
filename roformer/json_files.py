"""JSON that a kill, a disk or a stranger may have changed, and the files that it names.

Reading it allocates no more than the file is long, and what is not as it was written is a
ValueError with the reason: the caller knows what the file was for and what to do without it.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_core import from_json


def read_object(file: Path) -> dict[str, Any]:
    """Return the JSON object in a file.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is not UTF-8, not JSON, nested more than 200 deep, holds NaN or half of a
            surrogate pair, or is something else than an object.
    """
    content = from_json(file.read_bytes(), allow_inf_nan=False)
    if not isinstance(content, dict):
        raise ValueError("not a JSON object")
    return content


def check_shape(shape: Any, content: object) -> None:
    """Check that content has a shape: types as they are, nothing converted.

    Args:
        shape: a type, mostly a TypedDict; keys that it does not name may be there and are not looked at.
        content: plain data.

    Raises:
        ValueError: says which key is missing or wrong.
    """
    try:
        _adapter(shape).validate_python(content, strict=True)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        key = ".".join(map(str, problem["loc"])) or "content"
        raise ValueError(f"{key}: {problem['msg']}") from None


def member(folder: Path, name: str) -> Path:
    """Return the file of this name in a folder, which it cannot leave.

    Raises:
        ValueError: the name has a separator or leads elsewhere, by itself or as a symbolic link.
    """
    file = folder / name
    if name in ("", ".", "..") or not {"/", "\\", "\0"}.isdisjoint(name):
        raise ValueError(f"{name!r} is no file name")
    try:
        outside = file.is_symlink() and file.resolve().parent != folder.resolve()
    except (OSError, RuntimeError):  # links in a circle
        outside = True
    if outside:
        raise ValueError(f"{name!r} is a link that leads out of the folder")
    return file


@cache
def _adapter(shape: Any) -> TypeAdapter[Any]:
    return TypeAdapter(shape)
