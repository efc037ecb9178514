"""The house rules: which part imports which, and where positions are applied."""

import ast
import re

from roformer.config.position import PositionConfig
from tests.conftest import REPOSITORY

PACKAGE = REPOSITORY / "roformer"
ALLOWED = {
    "config": set(),
    "nn": {"config"},
    "models": {"config", "nn"},
    "data": {"config"},
    "training": {"config", "models"},
    "evaluation": {"config"},
    "interop": {"config", "nn", "models", "data", "training"},
    "inference": {"config", "models", "data", "training", "evaluation", "interop"},
    "tasks": {
        *{"config", "nn", "models", "data", "training", "evaluation", "interop"},
        "inference",
    },
    "pipelines": {
        *{"config", "nn", "models", "data", "training", "evaluation", "inference"},
        "tasks",
    },
    "analysis": {
        *("config", "nn", "models", "data", "training", "inference", "tasks", "pipelines")
    },
    "report": {"config", "script"},
    "cli": {"config", "training", "pipelines", "report", "script"},
    "registry": set(),
    "errors": set(),
    "json_files": set(),
    "script": {"training"},
    "__init__": {"nn", "evaluation", "inference", "interop"},
}
"""Part → the parts it may import, in addition to `GROUND`."""
GROUND = {"registry", "errors", "json_files"}
"""Parts that any part may import. The functions of the registry import more when they are called."""
SOURCES = {
    path.relative_to(REPOSITORY): path.read_text()
    for folder in ("roformer", "scripts")
    for path in sorted((REPOSITORY / folder).rglob("*.py"))
}
PARSED = {path: ast.parse(source) for path, source in SOURCES.items()}
HOOKS = ("rotate", "bias", "value_term")
PARTS = {path.stem for path in PACKAGE.iterdir()}


def in_package():
    """Yield (path below the package, syntax tree) of its modules."""
    return (
        (path.relative_to("roformer"), tree)
        for path, tree in PARSED.items()
        if path.parts[0] == "roformer"
    )


def imported_parts(tree):
    """Return the parts of the package that a source imports, wherever in it."""
    modules = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            modules |= {f"{node.module or ''}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
    inside = [module.split(".") for module in modules if module.split(".")[0] == "roformer"]
    return {words[1] if words[1:] and words[1] in PARTS else "__init__" for words in inside}


class Outside(ast.NodeTransformer):
    """Removes functions and methods."""

    def visit_FunctionDef(self, node):
        return None


def test_arrows_point_one_way():
    for path, tree in in_package():
        part = path.parts[0].removesuffix(".py")
        if part == "registry":
            tree = Outside().visit(tree)
        assert imported_parts(tree) <= ALLOWED[part] | {part} | GROUND, path
    planted = "def f():\n    from roformer.training.loop import Loop"
    assert imported_parts(ast.parse(planted)) == {"training"}


def test_positions_are_applied_in_attention_alone():
    callers = {
        path.parts[:2]
        for path, tree in in_package()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in HOOKS
    }
    assert callers == {("nn", "attention")}


def test_no_one_asks_for_the_type_of_an_encoding():
    """A new encoding is code only in nn/position and config/position; see `PositionConfig`."""
    encodings = {cls.__name__ for cls in PositionConfig.__subclasses__()}
    assert {"Rotary", "Learned", "NoPosition"} <= encodings
    for path, tree in in_package():
        if path.parts[0] in ("config", "nn"):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance":
                named = set(re.findall(r"\w+", ast.unparse(node.args[1])))
                assert not named & encodings, f"{path}:{node.lineno}"


EXECUTING = re.compile(
    r"^\s*(import|from) (pickle|cloudpickle|dill|joblib|shelve|marshal)\b|\btorch\.load\((?!weights_only)"
    r"|from torch import.*\bload\b|\b(allow_pickle|trust_remote_code)=(?!False)",
    re.MULTILINE,
)
"""What could execute the contents of a file, in addition to eval, exec and unsafe YAML, which ruff finds."""


def test_nothing_executes_the_contents_of_a_file():
    assert [path for path, source in SOURCES.items() if EXECUTING.search(source)] == []
    for line in ("x = torch.load(path)", "    import pickle as p", "np.load(p, allow_pickle=yes)"):
        assert EXECUTING.search(f"def f():\n{line}")
