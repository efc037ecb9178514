"""A pipeline of another package is a task, a config class, its YAML and one entry; the rest reads these."""

import json

import pytest

import roformer
from tests.conftest import REPOSITORY
from tests.e2e.conftest import HERE, write_corpus
from tests.scripts import run_script

pytestmark = pytest.mark.slow

ENTRY = '''
"""Registers the pipeline; imports nothing heavy."""

from pathlib import Path

from roformer.registry import Loss, MaskedLM, Metric, register


@register
class Backwards(MaskedLM):
    name = "backwards"
    headline = Metric("valid/backwards_loss", higher_is_better=False)
    loss = Loss("valid/backwards_loss", "backwards loss", "nats", "valid/unigram_entropy")
    script = "toy/train.py"
    conf = Path(__file__).parent / "conf"

    def config(self):
        from toy.config import BackwardsConfig

        return BackwardsConfig

    def task(self, config):
        from toy.task import BackwardsTask

        return BackwardsTask(config)
'''
CONFIG = '''
from pydantic import PositiveInt

from roformer.config.schema import PretrainConfig


class BackwardsConfig(PretrainConfig):
    """Masked words of texts that are read from their end."""

    chunk: PositiveInt = 1000
    """Tokens that are turned round at once."""
'''
TASK = """
from roformer.tasks.mlm import MaskedLMTask


class BackwardsTask(MaskedLMTask):
    monitor = "valid/backwards_loss"

    def loss(self, model, batch):
        return super().loss(model, {name: tensor.flip(1) for name, tensor in batch.items()})

    def evaluate(self, model, accelerator):
        metrics = super().evaluate(model, accelerator)
        return {"valid/backwards_loss": metrics.pop("valid/mlm_loss"), **metrics}

    def degenerate(self, metrics):
        return False

    def introduction(self):
        return [f"reading from the end, {self.config.chunk} tokens at once"]

    def scores(self, metrics):
        return f"backwards loss {metrics['valid/backwards_loss']:.3f}"
"""
SCRIPT = """
from roformer.cli import main

if __name__ == "__main__":
    main("backwards")
"""
RECIPE = """# @package _global_
defaults:
  - override /model/size: tiny

recipe: tiny
data: {tokenizer: {vocab_size: 200}}
training: {steps: 12, batch_size: 8, sequence_length: 32, precision: fp32, valid_sequences: 16,
  log_every: 6, evaluate_every: 6, checkpoint_every: 6}
optimizer: {learning_rate: 1e-3}
schedule: {kind: constant}
"""


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    """Return a folder with the package, its text, and a function that runs a script."""
    folder = tmp_path_factory.mktemp("other")
    recipes = folder / "toy" / "conf" / "pipelines" / "backwards" / "recipe"
    recipes.mkdir(parents=True)
    (recipes / "tiny.yaml").write_text(RECIPE)
    main = (REPOSITORY / "conf" / "pretrain.yaml").read_text()
    yaml = main.replace("recipe: mini", "recipe: tiny") + "\nchunk: 500\n"
    (folder / "toy" / "conf" / "backwards.yaml").write_text(yaml)
    sources = {"__init__": "", "entry": ENTRY, "config": CONFIG, "task": TASK, "train": SCRIPT}
    for name, source in sources.items():
        (folder / "toy" / f"{name}.py").write_text(source)
    write_corpus(folder / "text.jsonl")

    def call(script, *words, expected=0):
        place = {"PYTHONPATH": str(folder), "ROFORMER_EXTENSIONS": "toy.entry"}
        done = run_script(script, *words, cwd=folder, env=place)
        assert done.returncode == expected, done.stdout + done.stderr
        return done.stdout + done.stderr

    return folder, call


TRAIN = "toy/train.py"
DATA = ["data=files", "data.path=text.jsonl", "tracker=none", *HERE]


def test_it_trains_and_its_record_is_a_run_like_others(toy):
    folder, call = toy
    assert "12 steps x 8 sequences x 32" in call(TRAIN, "--plan", *DATA)
    call(TRAIN, "--prepare", *DATA)
    assert "reading from the end, 500 tokens at once" in call(TRAIN, *DATA)
    (run,) = folder.glob("runs/backwards/*")
    summary = json.loads((run / "summary.json").read_text())
    assert (summary["pipeline"], summary["recipe"]) == ("backwards", "tiny")
    assert summary["status"] == "done"
    assert f"{summary['metrics']['valid/backwards_loss']:.3f}" in call("compare", run)
    assert roformer.load_model(run).fill_mask("bel [MASK] bin")


def test_help_and_mistakes_know_it(toy):
    shown = toy[1](TRAIN, "--help")
    assert shown.startswith("Masked words of texts that are read from their end.")
    assert "  recipe  " in shown and "*tiny\n" in shown and "chunk  integer > 0 = 500" in shown
    message = toy[1](TRAIN, *DATA, "recipe=smoke", expected=2)
    assert "no such option; choose one of tiny" in message


def test_a_study_starts_it(toy):
    folder, call = toy
    (folder / "study").mkdir()
    (folder / "study" / "PLAN.md").write_text("# Toy\n")
    plan = {"title": "Toy", "scale": "tiny", "seeds": [0, 1]}
    plan |= {"pipeline": "backwards", "configurations": {"a": {"overrides": ["chunk=3"]}}}
    (folder / "study" / "study.yaml").write_text(json.dumps(plan))
    commands = call("sweep", "study", "--dry-run").splitlines()[-2:]
    ends = [f" toy/train.py chunk=3 seed={seed}" for seed in (0, 1)]
    assert all(line.endswith(end) for line, end in zip(commands, ends, strict=True))
