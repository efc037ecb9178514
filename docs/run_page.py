"""Run the cells of rope.md: write what they print, the figures in rope/, and examples/rope.ipynb.

    python docs/run_page.py

The page is the source: its `python` blocks are the cells of one program, run in this folder. What one
prints is the `text` block after it, what it draws the image after it. The notebook is the same page, cell
by cell; links are the same from docs/ and examples/.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import re
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot as plt
from PIL import Image

PAGE = Path(__file__).with_name("rope.md")
NOTEBOOK = PAGE.parents[1] / "examples" / "rope.ipynb"
COLOURS = 200
"""Of a figure's file."""
CELL = re.compile(
    r"(<details><summary>[^\n]*</summary>\n\n)?```python\n(?P<code>.*?)```\n(?(1)\n</details>\n)"
    r"(?:\n```text\n(?P<printed>.*?)```\n)?(?:\n!\[(?P<shown>[^]]*)\]\((?P<figure>rope/[^)]*)\)\n)?",
    re.DOTALL,
)
"""A cell with its output; the code of figures is folded away."""


def run(page: str, folder: Path) -> str:
    """Run the cells of a page and write its figures; return the page with what the cells print.

    Args:
        page: its text.
        folder: what the places of the figures are relative to.

    Raises:
        ValueError: a cell prints or draws and has no place for it on the page, or the other way round.
    """
    scope: dict[str, Any] = {}

    def output(cell: re.Match[str]) -> str:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(cell["code"], f"{PAGE.name}, a cell", "exec"), scope)
        drawn = [plt.figure(number) for number in plt.get_fignums()]
        if bool(printed.getvalue()) != (cell["printed"] is not None):
            raise ValueError(f"a text block goes with what is printed, and only so:\n{cell[0]}")
        if len(drawn) != (cell["figure"] is not None):
            raise ValueError(f"an image goes with a figure, and only so:\n{cell[0]}")
        for figure in drawn:
            path = folder / cell["figure"]
            path.parent.mkdir(exist_ok=True)
            drawing = io.BytesIO()
            figure.savefig(drawing, format="png")
            plt.close(figure)
            # Few colours make a small file.
            Image.open(drawing).convert("RGB").quantize(COLOURS).save(path, optimize=True)
        if cell["printed"] is None:
            return cell[0]
        start, end = (place - cell.start() for place in cell.span("printed"))
        return cell[0][:start] + printed.getvalue() + cell[0][end:]

    # Figures look the same whatever the machine's own settings are.
    with contextlib.chdir(PAGE.parent), matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.use("agg")
        return CELL.sub(output, page)


def notebook(page: str, folder: Path) -> str:
    """Return the page as a notebook, with its outputs; `folder` is where `run` wrote the figures."""
    cells: list[dict[str, Any]] = []
    end = 0
    for cell in CELL.finditer(page):
        cells += [*_markdown(page[end : cell.start()]), _code(cell, folder)]
        end = cell.end()
    content = {
        "cells": [*cells, *_markdown(page[end:])],
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 4,
    }
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def _markdown(text: str) -> list[dict[str, Any]]:
    """Return the cell of what is not code; a formula is marked by dollars there."""
    text = re.sub(r"```math\n(.*?)```", r"$$\n\1$$", text.strip(), flags=re.DOTALL)
    return [{"cell_type": "markdown", "metadata": {}, "source": _lines(text)}] if text else []


def _code(cell: re.Match[str], folder: Path) -> dict[str, Any]:
    outputs: list[dict[str, Any]] = []
    if cell["printed"]:
        text = _lines(cell["printed"])
        outputs.append({"name": "stdout", "output_type": "stream", "text": text})
    if cell["figure"]:
        image = base64.b64encode((folder / cell["figure"]).read_bytes()).decode()
        data = {"image/png": image, "text/plain": [cell["shown"]]}
        outputs.append({"data": data, "metadata": {}, "output_type": "display_data"})
    source = _lines(cell["code"].strip())
    content = {"metadata": {}, "outputs": outputs, "source": source}
    return {"cell_type": "code", "execution_count": None, **content}


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def main() -> None:
    page = run(PAGE.read_text(encoding="utf-8"), PAGE.parent)
    PAGE.write_text(page, encoding="utf-8")
    NOTEBOOK.write_text(notebook(page, PAGE.parent), encoding="utf-8")
    print(f"written: {PAGE.name}, its figures, {NOTEBOOK.name}")


if __name__ == "__main__":
    main()
