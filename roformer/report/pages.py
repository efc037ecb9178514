"""Pages whose numbers are made from records: prose by hand, what stands between two marks generated.

    <!-- report: glue runs/* -->
    … what the block `glue` makes of these runs of the page's folder …
    <!-- /report -->

`make report` writes the blocks of README.md and of every page under experiments/ anew; a test does the same
and finds nothing changed. A mark stands at the beginning of a line; this one, indented, is an example.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path

from roformer.report.records import RecordError

Block = Callable[[Path, list[str]], str]
"""From the page's folder and the words after the block's name to Markdown."""
_BLOCK = re.compile(
    r"^(<!-- report: ([^\n]+?) -->\n)(.*?)^(<!-- /report -->)$", re.DOTALL | re.MULTILINE
)
_MARK = re.compile(r"^<!-- (report: |/report -->)", re.MULTILINE)


def refreshed(text: str, page: Path, blocks: Mapping[str, Block]) -> str:
    """Return a page's text with every block made anew.

    Raises:
        RecordError: a block is unknown, not closed, or its records cannot be read.
    """
    if len(_MARK.findall(text)) != 2 * len(_BLOCK.findall(text)):
        raise RecordError(f"{page} has a <!-- report: … --> without its <!-- /report -->")

    def made(found: re.Match[str]) -> str:
        name, *words = shlex.split(found[2])
        if name not in blocks:
            raise RecordError(f"{page}: no block {name!r}: choose of {', '.join(sorted(blocks))}")
        try:
            return f"{found[1]}\n{blocks[name](page.parent, words)}\n\n{found[4]}"
        except (ValueError, TypeError) as error:
            raise RecordError(f"{page}: {found[2]}: {error}") from error

    return _BLOCK.sub(made, text)


def refresh(page: Path, blocks: Mapping[str, Block]) -> bool:
    """Write a page's blocks anew; return whether that changed it.

    Raises:
        RecordError: see `refreshed`; the page stays as it was.
    """
    before = page.read_text()
    after = refreshed(before, page, blocks)
    if after != before:
        page.write_text(after)
    return after != before
