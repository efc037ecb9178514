"""The house rules: which part imports which, and where positions are applied."""

import ast
from pathlib import Path

import pytest

from roformer.config.position import PositionConfig
from tests.conftest import REPOSITORY

PACKAGE = REPOSITORY / "roformer"
ALLOWED = {
    "config": set(),
    "nn": {"config"},
    "models": {"config", "nn"},
    "data": {"config"},
    "training": {"config"},
    "evaluation": {"config"},
    "interop": {"config", "nn", "models", "data", "training"},
    "inference": {"config", "models", "data", "training", "evaluation", "interop"},
    "tasks": {"config", "nn", "models", "data", "training", "evaluation", "inference"},
    "pipelines": {
        *{"config", "nn", "models", "data", "training", "evaluation", "inference"},
        "tasks",
    },
    "analysis": {
        *("config", "nn", "models", "data", "training", "inference", "tasks", "pipelines"),
    },
    "report": {"config", "errors", "json_files"},
    "cli": {"config", "training", "script"},
    "errors": set(),
    "json_files": set(),
    "script": {"training"},
    "__init__": {"nn", "inference", "interop"},
}
"""Part → the parts it may import; `errors` and `json_files` are open to all but `report`, and the
registry, which imports nothing, to all."""
SOURCES = sorted(PACKAGE.rglob("*.py"))
HOOKS = ("rotate", "bias", "value_term")


def part_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_parts(source: str) -> set[str]:
    """Return the parts of the package that a source imports, wherever in it."""
    modules = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            modules |= {f"{node.module or ''}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
    inside = [module.split(".") for module in modules if module.split(".")[0] == "roformer"]
    return {_part(words) for words in inside}


def _part(words: list[str]) -> str:
    if words[1:3] == ["pipelines", "registry"]:
        return "registry"
    parts = {path.stem for path in PACKAGE.iterdir()}
    return words[1] if len(words) > 1 and words[1] in parts else "__init__"


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_arrows_point_one_way(path):
    part = part_of(path)
    open_to_all = {"registry"} | ({"errors", "json_files"} if part != "report" else set())
    assert imported_parts(path.read_text()) <= ALLOWED[part] | {part} | open_to_all


def test_the_registry_imports_nothing():
    registry = PACKAGE / "pipelines" / "registry.py"
    assert imported_parts(registry.read_text()) == {"errors"}


def test_a_planted_import_is_seen():
    assert imported_parts("def f():\n    from roformer.training.loop import Loop") == {"training"}


def test_positions_are_applied_in_attention_alone():
    callers = set()
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            called = node.func if isinstance(node, ast.Call) else None
            if isinstance(called, ast.Attribute) and called.attr in HOOKS:
                callers.add(path.relative_to(PACKAGE).parts[:2])
    assert callers == {("nn", "attention")}


def test_no_one_asks_for_the_type_of_an_encoding():
    """A new encoding is code in nn/position and config/position alone; see `PositionConfig`."""
    encodings = {cls.__name__ for cls in PositionConfig.__subclasses__()}
    assert {"Rotary", "Learned", "NoPosition"} <= encodings
    asking = set()
    for path in SOURCES:
        if path.relative_to(PACKAGE).parts[0] in ("config", "nn"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance":
                named = {word.rpartition(".")[2] for word in _names(node.args[1])}
                asking |= {f"{path.name}:{node.lineno}"} if named & encodings else set()
    assert not asking


def _names(node: ast.expr) -> list[str]:
    return [ast.unparse(n) for n in ast.walk(node) if isinstance(n, (ast.Name, ast.Attribute))]


UNPICKLING = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "joblib", "shelve", "marshal"}
SAFE_LOADERS = {"SafeLoader", "CSafeLoader", "BaseLoader"}


def executing(source: str) -> list[str]:
    """Return the lines of a source that could execute the contents of a file."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
            unsafe = any(name.partition(".")[0] in UNPICKLING for name in names)
        elif isinstance(node, ast.ImportFrom):
            module, names = (node.module or "").partition(".")[0], [a.name for a in node.names]
            loads = (
                module in ("torch", "yaml", "numpy") and "load" in names
            )  # called by a bare name
            unsafe = module in UNPICKLING or loads
        else:
            unsafe = isinstance(node, ast.Call) and executes(node)
        found += [ast.unparse(node)] * unsafe
    return found


def executes(call: ast.Call) -> bool:
    """Return whether a call could execute what it reads; weights are safetensors, so no torch.load."""
    name = ast.unparse(call.func)
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    if name.removeprefix("builtins.") in ("eval", "exec", "__import__", "torch.load"):
        return True
    if name.startswith("yaml.") and name.rpartition(".")[2] in ("load", "load_all"):
        loader = given.get("Loader", call.args[1] if len(call.args) > 1 else ast.Constant(None))
        return ast.unparse(loader).rpartition(".")[2] not in SAFE_LOADERS
    if name.rpartition("_")[0] in ("yaml.unsafe", "yaml.full"):
        return True
    opened = (given.get(key) for key in ("allow_pickle", "trust_remote_code"))
    return any(value is not None and ast.unparse(value) != "False" for value in opened)


@pytest.mark.parametrize(
    "path",
    [*SOURCES, *sorted((REPOSITORY / "scripts").glob("*.py"))],
    ids=lambda p: str(p.relative_to(REPOSITORY)),
)
def test_nothing_executes_the_contents_of_a_file(path):
    assert executing(path.read_text()) == []


@pytest.mark.parametrize(
    "line",
    [
        "torch.load(path, weights_only=True)",
        "from torch import load",
        "import pickle as p",
        "from _pickle import loads",
        "np.load(path, None, allow_pickle=trusted)",
        "yaml.load(text)",
        "yaml.load(text, yaml.Loader)",
        "yaml.load_all(text, Loader=yaml.UnsafeLoader)",
        "yaml.full_load(text)",
        "from yaml import load",
        "eval(text)",
        "AutoModel.from_pretrained(folder, trust_remote_code=True)",
    ],
)
def test_a_line_that_would_execute_a_file_is_seen(line):
    """Wherever in a function it stands."""
    assert executing(f"def f():\n    if g():\n        {line}\n")


def test_a_line_that_only_reads_a_file_is_allowed():
    source = """
np.load(path); np.load(path, allow_pickle=False); json.loads(text); model.eval()
yaml.load(text, Loader=yaml.CSafeLoader); yaml.safe_load(text); yaml.scan(text); re.compile("x")
torch.compile(model); AutoConfig.from_pretrained(folder, trust_remote_code=False)
"""
    assert executing(source) == []
