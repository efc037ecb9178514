"""Installing the package: ranges that include the pins, and enough to open a trained model."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
import zipfile
from importlib import metadata

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import roformer
from tests.conftest import REPOSITORY
from tests.trained import run_of

PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
IMPORTED = {
    "pil": "pillow",
    "sklearn": "scikit-learn",
    "yaml": "pyyaml",
    "hydra": "hydra-core",
    "pydantic_core": "pydantic",
}
"""Name of a module → its distribution, where they differ."""


def ranges(lines):
    """Return distribution → its range; `roformer[…]` stands for other extras."""
    found = map(Requirement, lines)
    return {canonicalize_name(one.name): one.specifier for one in found if one.name != "roformer"}


def pins():
    lines = (REPOSITORY / "requirements.txt").read_text().splitlines()
    found = (line.split("==") for line in lines if re.match(r"[a-z]", line))
    return {canonicalize_name(name): pin for name, pin in found}


def imported(*folders):
    """Return the distributions that the modules of these folders import, anywhere in them."""
    names = set()
    for path in (file for folder in folders for file in (REPOSITORY / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                names.add(node.module.split(".")[0])
    names -= {*sys.stdlib_module_names, "roformer"}
    return {canonicalize_name(IMPORTED.get(name.lower(), name)) for name in names}


def test_the_pins_lie_within_the_ranges():
    """The make targets install the package's requirements and nothing else."""
    extras = [line for name in ("train", "report", "dev") for line in EXTRAS[name]]
    allowed = {**ranges(extras), **ranges(PROJECT["dependencies"])}
    pinned = pins()
    assert set(pinned) == set(allowed)
    for name, pin in pinned.items():
        assert allowed[name].contains(pin), f"{name}=={pin} is not within {allowed[name]}"
        assert len(list(allowed[name])) == 2, f"{name} needs a lower and an upper end"


def test_every_import_is_a_dependency():
    """For the package and the scripts, including the extras of training, reports and trackio."""
    lines = [*PROJECT["dependencies"], *EXTRAS["train"], *EXTRAS["report"], *EXTRAS["trackio"]]
    assert imported("roformer", "scripts") <= set(ranges(lines))


def test_the_version_has_one_place():
    assert roformer.__version__ == PROJECT["version"] == metadata.version("roformer")


OPENING = """
import importlib, json, sys
for name in json.loads(sys.argv[1]):
    sys.modules[name] = None  # importing it fails, as where it is not installed
import roformer
for name in roformer.__all__:
    getattr(roformer, name)
trained = roformer.load_model(sys.argv[2])
assert len(trained.fill_mask("a [MASK]")[0]) == 5
"""


@pytest.mark.slow
def test_opening_a_model_imports_base_dependencies_alone(tmp_path):
    """A run is opened and fills a mask while the modules of all extras are out of reach."""
    run = run_of(tmp_path / "run")
    extras = ranges([line for name in ("train", "report", "dev") for line in EXTRAS[name]])
    # torch imports sympy and networkx itself.
    others = set(extras) - set(ranges(PROJECT["dependencies"])) - {"sympy", "networkx"}
    modules = {distribution: module for module, distribution in IMPORTED.items()} | {
        "pillow": "PIL"
    }
    blocked = [modules.get(name, name.replace("-", "_")) for name in others]
    subprocess.run([sys.executable, "-c", OPENING, json.dumps(blocked), str(run)], check=True)


INSTALLED = """
import sys; sys.path.append(sys.argv[1])
import torch, roformer
assert roformer.__file__.startswith(sys.prefix), roformer.__file__
print(roformer.apply_rotary(torch.ones(2, 4), torch.arange(2)).shape, roformer.__version__)
from roformer.config.composing import compose
from roformer.errors import InputError
try:
    compose("pretrain", [])
except InputError as error:
    print(error)
"""


@pytest.mark.slow
def test_the_wheel_is_typed_and_installs_without_training(tmp_path):
    """In a separate environment that also finds this one's packages, except the extras'."""
    source = tmp_path / "source"  # a build leaves folders where it is made
    shutil.copytree(REPOSITORY / "roformer", source / "roformer")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, source)

    def pip(python, *arguments):
        command = [python, "-m", "pip", arguments[0], "--quiet", "--no-deps", *arguments[1:]]
        subprocess.run(command, cwd=tmp_path, check=True)

    pip(sys.executable, "wheel", str(source))
    (wheel,) = tmp_path.glob("roformer-*.whl")
    assert {"roformer/py.typed", "roformer/report/dashboard/page.html"} <= set(
        zipfile.ZipFile(wheel).namelist()
    )
    venv.create(tmp_path / "env", with_pip=True)
    python = str(tmp_path / "env" / "bin" / "python")
    pip(python, "install", str(wheel))
    site = metadata.distribution("torch").locate_file("")
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = [python, "-c", INSTALLED, str(site)]
    printed = subprocess.check_output(command, cwd=tmp_path, env=environment, text=True)
    assert printed.split("\n")[0] == f"torch.Size([2, 4]) {PROJECT['version']}"
    assert printed.endswith("install a clone of the repository with pip install -e .\n")
