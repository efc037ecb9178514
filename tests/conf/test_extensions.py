"""A position encoding of another package needs one module, its YAML file and no edit here."""

import json
import re
import shutil
import subprocess
import sys

import pytest

from tests.conftest import REPOSITORY
from tests.e2e.conftest import write_corpus
from tests.scripts import run_script

GUIDE = (REPOSITORY / "docs" / "position-encoding.md").read_text()
(WINDOW,) = re.findall(r"```python\n(.*?)```", GUIDE, re.S)
TRAIN = ["recipe=smoke", "training.steps=2", "training.batch_size=2", "tracker=none"]


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """Return a folder with the guide's example as a package, and a function that runs a script there."""
    folder = tmp_path_factory.mktemp("other")
    (folder / "window.py").write_text(WINDOW)
    yaml = folder / "conf" / "model" / "position" / "window.yaml"
    yaml.parent.mkdir(parents=True)
    yaml.write_text("kind: window\n")
    write_corpus(folder / "text.jsonl")

    def call(*words, module="window", expected=0):
        place = {"PYTHONPATH": str(folder), "ROFORMER_EXTENSIONS": module}
        done = run_script("pretrain", *words, cwd=folder, env=place)
        assert done.returncode == expected, done.stdout + done.stderr
        return done.stdout + done.stderr

    return folder, call


@pytest.mark.slow
def test_the_guides_example_trains_as_documented(package):
    folder, call = package
    words = ["model/position=window", *TRAIN]
    assert "roformer-window-smoke-" in call(*words, "data=files", "data.path=text.jsonl")
    (run,) = folder.glob("runs/pretrain/*")
    assert json.loads((run / "summary.json").read_text())["position"] == "window"
    assert [*json.loads((run / "env.json").read_text())["extensions"]] == ["window"]
    command = (run / "command.txt").read_text()
    assert command.startswith("ROFORMER_EXTENSIONS=window python ")
    printed = call("--help", "model.position.kind=window", module="", expected=2)
    assert "model.position.kind=window: choose one of " in printed
    assert printed.endswith("; a kind of another package needs its module in ROFORMER_EXTENSIONS\n")


@pytest.mark.slow
def test_the_guides_example_is_an_encoding_inside_the_package(tmp_path):
    """Its parts are where the guide says, in a process that imports this file first."""
    copy = shutil.copytree(REPOSITORY / "roformer", tmp_path / "roformer")
    start, config, code = re.split(r"(?=^class Window\(|^@encodes)", WINDOW, flags=re.MULTILINE)
    with (copy / "config" / "position.py").open("a") as file:
        file.write(f"\n\n{config}")
    start = start.replace("SOFTMAX_ALONE, PositionConfig", "Window")
    (copy / "nn" / "position" / "window.py").write_text(start + code)
    read = "from roformer.nn.position import window, ENCODINGS; print(ENCODINGS[window.Window])"
    command = [sys.executable, "-c", read]
    printed = subprocess.check_output(command, cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)})
    assert b"roformer.nn.position.window.WindowPosition" in printed


def test_a_module_that_cannot_be_imported_is_one_line(package):
    printed = package[1]("--help", module="nothing.here", expected=2)
    assert printed.startswith("error: ROFORMER_EXTENSIONS: cannot import nothing.here (")
