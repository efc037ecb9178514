"""The house rules: which part imports which, and where positions are applied."""

import ast
import re

import pytest

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
        *("config", "nn", "models", "data", "training", "inference", "tasks", "pipelines"),
    },
    "report": {"config", "script"},
    "cli": {"config", "training", "pipelines", "report", "script"},
    "registry": set(),
    "errors": set(),
    "extensions": {"errors"},
    "json_files": set(),
    "script": {"training"},
    "__init__": {"nn", "evaluation", "inference", "interop"},
}
"""Part → the parts it may import, in addition to `GROUND`."""
GROUND = {"registry", "extensions", "errors", "json_files"}
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


def test_arrows_point_one_way():
    for path, tree in in_package():
        part = path.parts[0].removesuffix(".py")
        if part == "registry":
            tree = ast.Module(
                [node for node in tree.body if not isinstance(node, ast.FunctionDef)], []
            )
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


UNPICKLING = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "joblib", "shelve", "marshal"}
EXECUTING = re.compile(
    r"(builtins\.)?(eval|exec|__import__|torch\.load)\(|yaml\.(unsafe|full)_load"
    r"|yaml\.load(_all)?\((?!.*Loader=(yaml\.)?(C?SafeLoader|BaseLoader)\b)"
    r"|.*\b(allow_pickle|trust_remote_code)=(?!False\b)"
)
"""A call, unparsed, that could execute what it reads; weights are safetensors, so no torch.load."""


SUSPECT = {"eval", "exec", "__import__", "load", "load_all", "unsafe_load", "full_load"}
SUSPECT |= {"unsafe_load_all", "full_load_all", "allow_pickle", "trust_remote_code"}
"""Names of calls and arguments without which none is unparsed, which takes long."""


def named(call):
    """Return the name of what is called, without its module, and the names of its arguments."""
    name = getattr(call.func, "attr", getattr(call.func, "id", None))
    return {name, *(argument.arg for argument in call.keywords)}


def executing(tree):
    """Return the lines of a source that could execute the contents of a file."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            unsafe = any(alias.name.partition(".")[0] in UNPICKLING for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module, names = (node.module or "").partition(".")[0], [a.name for a in node.names]
            loads = (
                module in ("torch", "yaml", "numpy") and "load" in names
            )  # called by a bare name
            unsafe = module in UNPICKLING or loads
        else:
            unsafe = isinstance(node, ast.Call) and named(node) & SUSPECT
            unsafe = unsafe and EXECUTING.match(ast.unparse(node))
        found += [ast.unparse(node)] * bool(unsafe)
    return found


def test_nothing_executes_the_contents_of_a_file():
    assert {path: lines for path, tree in PARSED.items() if (lines := executing(tree))} == {}


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
        "eval(text)",
        "AutoModel.from_pretrained(folder, trust_remote_code=True)",
    ],
)
def test_a_line_that_would_execute_a_file_is_seen(line):
    """Anywhere in a function."""
    assert executing(ast.parse(f"def f():\n    if g():\n        {line}\n"))


def test_a_line_that_only_reads_a_file_is_allowed():
    source = """
np.load(path); np.load(path, allow_pickle=False); json.loads(text); model.eval()
yaml.load(text, Loader=yaml.CSafeLoader); yaml.safe_load(text); yaml.scan(text); re.compile("x")
torch.compile(model); AutoConfig.from_pretrained(folder, trust_remote_code=False)
"""
    assert executing(ast.parse(source)) == []
