"""The house rules: which part imports which, and where positions are applied."""

import ast
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

PACKAGE = REPOSITORY / "roformer"
ALLOWED = {
    "config": set(),
    "nn": {"config"},
    "models": {"config", "nn"},
    "data": {"config"},
    "training": {"config"},
    "evaluation": {"config"},
    "pipelines": {"config", "nn", "models", "data", "training", "evaluation"},
    "bench": {"config", "nn", "models", "data", "training", "evaluation", "pipelines"},
    "report": set(),
    "cli": {"config", "training"},
    "errors": set(),
    "json_files": set(),
    "__init__": {"nn", "pipelines"},
}
"""Part → the parts it may import; `errors` and `json_files` are open to all but `report`."""
SOURCES = sorted(PACKAGE.rglob("*.py"))


HOOKS = ("rotate", "bias", "value_term")


def part_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_parts(source: str) -> set[str]:
    """Return the parts of the package that a source imports, wherever in it."""
    modules = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            modules.add(node.module or "")
        elif isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
    inside = [module.split(".") for module in modules if module.split(".")[0] == "roformer"]
    return {words[1] if len(words) > 1 else "__init__" for words in inside}


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_arrows_point_one_way(path):
    part = part_of(path)
    open_to_all = {"errors", "json_files"} if part != "report" else set()
    assert imported_parts(path.read_text()) <= ALLOWED[part] | {part} | open_to_all


def test_a_planted_import_is_seen():
    assert imported_parts("def f():\n    from roformer.training.loop import Loop") == {"training"}


def test_positions_are_applied_in_attention_alone():
    """One grep answers where rotary positions are applied."""
    callers = set()
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            called = node.func if isinstance(node, ast.Call) else None
            if isinstance(called, ast.Attribute) and called.attr in HOOKS:
                callers.add(path.relative_to(PACKAGE).parts[:2])
    assert callers == {("nn", "attention")}


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_files_fit_in_the_head(path):
    assert len(path.read_text().splitlines()) <= 400


def test_nothing_unpickles():
    for path in SOURCES:
        source = path.read_text()
        assert "torch.load" not in source and "pickle.load" not in source, path
