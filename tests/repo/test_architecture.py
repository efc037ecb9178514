"""The house rules: which part imports which, and where positions are applied."""

import ast
import re
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


def unpickling(source: str) -> list[str]:
    """Return the calls of a source that could execute what a file says, wherever in it."""
    found = []
    for node in ast.walk(ast.parse(source)):
        called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
        if called == "torch.load":
            safe = [k for k in node.keywords if k.arg == "weights_only"]
            if not (
                safe and isinstance(safe[0].value, ast.Constant) and safe[0].value.value is True
            ):
                found.append(ast.unparse(node))
        elif re.search(r"pickle\.(loads?|Unpickler)$", called):
            found.append(called)
        elif isinstance(node, ast.ImportFrom) and node.module in ("torch", "pickle"):
            found += [alias.name for alias in node.names if alias.name in ("load", "loads")]
    return found


def test_nothing_unpickles():
    """Checkpoints of others may be pickles: one place reads tensors of them, and nothing else."""
    readers = set()
    for path in SOURCES:
        source = path.read_text()
        assert not unpickling(source), path
        if "torch.load" in source:
            readers.add(path.relative_to(PACKAGE).as_posix())
    assert readers == {"models/hf_files.py"}


@pytest.mark.parametrize(
    "line",
    [
        "torch.load(f)",
        "torch.load(f, weights_only=False)",
        "torch.load(f, weights_only=x)",
        "pickle.load(f)",
        "from torch import load",
    ],
)
def test_a_planted_unpickling_is_seen(line):
    assert unpickling(f"def f():\n    {line}")
    assert not unpickling("torch.load(f, weights_only=True)")
