"""docs/rope.md is true: it shows what its cells print and draw, and quotes the code as it is."""

import importlib.util
import re
import textwrap

import numpy as np
import pytest
from PIL import Image

from tests.conftest import REPOSITORY

DOCS = REPOSITORY / "docs"
PAGE = (DOCS / "rope.md").read_text()
specification = importlib.util.spec_from_file_location("run_page", DOCS / "run_page.py")
run_page = importlib.util.module_from_spec(specification)
specification.loader.exec_module(run_page)


def pixels(path):
    return np.asarray(Image.open(path).convert("RGB"), dtype=float)


@pytest.mark.slow
def test_the_cells_print_and_draw_what_the_page_shows(tmp_path):
    """Figures may differ between machines as curves rounded otherwise do, and a model trained otherwise."""
    assert run_page.run(PAGE, tmp_path) == PAGE
    drawn, kept = (sorted((folder / "rope").glob("*.png")) for folder in (tmp_path, DOCS))
    assert [path.name for path in drawn] == [path.name for path in kept] and len(kept) <= 8
    for new, old in zip(drawn, kept, strict=True):
        assert abs(pixels(new) - pixels(old)).mean() < (5 if new.stem == "maps" else 0.5), new.name
        assert old.stat().st_size <= 60_000


def test_the_notebook_is_the_page():
    notebook = (REPOSITORY / "examples" / "rope.ipynb").read_text()
    assert run_page.notebook(PAGE, DOCS) == notebook, "python docs/run_page.py writes it anew"


def test_every_python_block_is_a_cell():
    assert len(run_page.CELL.findall(PAGE)) == PAGE.count("```python\n") == 16


@pytest.mark.parametrize("after", ["", "\n```text\n```\n\n![drawn](rope/drawn.png)\n"])
def test_an_output_has_its_place_and_a_place_its_output(tmp_path, after):
    with pytest.raises(ValueError, match="goes with"):
        run_page.run(f"```python\nprint(1)\n```\n{after}", tmp_path)


def test_quoted_lines_are_those_of_the_file_named_before_them():
    quotes = list(re.finditer(r"```py\n(.*?)```", PAGE, re.DOTALL))
    assert len(quotes) >= 8
    for quote in quotes:
        file = re.findall(r"\]\(\.\./(roformer/\S+?\.py)\)", PAGE[: quote.start()])[-1]
        lines = textwrap.dedent((REPOSITORY / file).read_text()).splitlines()
        assert {line.strip() for line in quote[1].splitlines()} <= set(map(str.strip, lines)), file


def test_links_lead_somewhere_from_the_page_and_from_the_notebook():
    code = run_page.CELL.sub("", PAGE)
    links = re.findall(r"\]\((?!https://)(.*?)\)", code)
    assert len(links) > 10 and all(link.startswith("../") for link in links)
    assert [link for link in links if not (DOCS / link).exists()] == []


def test_errors_name_existing_tests_and_the_page_can_be_read_in_twenty_minutes():
    source = (REPOSITORY / "tests" / "property" / "test_rotary.py").read_text()
    named = re.findall(r"`(test_\w+)`", PAGE)
    assert len(named) >= 6 and all(f"def {name}(" in source for name in named)
    unfolded = re.sub(r"<details>.*?</details>", "", PAGE, flags=re.DOTALL)
    assert len(unfolded.split()) < 3800
