"""One name opens a model everywhere: path, run id, checkpoint, export; none is told in one line."""

import os
import re
import runpy
import shutil
import sys

import pytest
import torch

import roformer
from roformer.config.position import Rotary
from roformer.config.schema import EncoderConfig
from roformer.errors import InputError
from roformer.inference.load import TrainedModel
from roformer.inference.names import find, newest
from roformer.inference.start import find_start
from roformer.models.encoder import Encoder
from roformer.training.averaging import AVERAGED, choose, last_checkpoints, save_average
from roformer.training.checkpoint import complete
from tests.conftest import REPOSITORY
from tests.data.glue_tasks import TOKENIZER
from tests.interop.test_layout import SIZES, TASK, run_of

SCRIPTS = {"predict": "glue", "translate": "wmt", "generate": "clm", "export": "pretrain"}


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """Return the folder of a pre-training and a fine-tuning run, in the folder that a user works in."""
    monkeypatch.chdir(tmp_path)
    runs = tmp_path / "runs"
    run_of(runs / "pretrain" / "some-run-s0", Rotary())
    run_of(runs / "glue" / "rte-run-s0", Rotary(), TASK)
    return runs


def weights(trained):
    return trained.model.encoder.tokens.weight


def start(name, runs_dir="runs"):
    config = EncoderConfig(**SIZES, position=Rotary())
    return find_start(str(name), None, config, None, str(runs_dir), list)


@pytest.mark.parametrize("pipeline", ["pretrain/some-run-s0", "glue/rte-run-s0"])
def test_a_run_id_opens_and_starts_what_its_folder_does(runs, pipeline):
    """And a start has one name in the record, whichever was given, so that runs have one id."""
    run = runs / pipeline
    assert torch.equal(weights(roformer.load_model(run.name)), weights(roformer.load_model(run)))
    early = "checkpoints/step_00000001"
    by_id, by_folder = (roformer.load_model(f"{name}/{early}") for name in (run.name, run))
    assert torch.equal(weights(by_id), weights(by_folder))
    by_folder, by_id = start(f"runs/{pipeline}"), start(run.name)
    assert by_folder.name == by_id.name and by_folder.fingerprint == by_id.fingerprint
    with pytest.raises(InputError, match="no such run, folder or Hub id"):
        start("another-run-s0")


def test_each_kind_has_its_checkpoint(runs):
    """The best of a classifier, the newest of a pre-training; a damaged one is passed over."""
    pretraining, classifier = runs / "pretrain" / "some-run-s0", runs / "glue" / "rte-run-s0"
    assert choose(pretraining).name == "step_00000002"
    assert choose(classifier).name == "step_00000001"
    assert choose(classifier, "last").name == "step_00000002"
    (classifier / "checkpoints" / "step_00000001" / "model.safetensors").write_bytes(b"cut")
    assert choose(classifier).name == "step_00000002"
    with pytest.raises(InputError, match="not a usable checkpoint"):
        choose(classifier, "best")


def test_an_average_is_what_a_translation_is_opened_with(runs):
    run = runs / "pretrain" / "some-run-s0"
    averaged = save_average(last_checkpoints(run, 2), run / "checkpoints" / AVERAGED)
    assert choose(run).name == "step_00000002"
    file = averaged / "model.json"
    file.write_text(file.read_text().replace('"kind": "mlm"', '"kind": "translation"'))
    (averaged / "complete.json").unlink()
    complete(averaged)
    assert choose(run).name == AVERAGED


def test_a_scorer_is_a_start_and_no_trained_model(runs):
    scorer = {"kind": "scorer", "pair": {}, "max_length": 8, "head_dropout": 0.1}
    run = run_of(runs / "scm" / "pairs-s0", Rotary(), scorer)
    with pytest.raises(InputError, match="scores pairs of documents"):
        roformer.load_model(run)
    assert start(run).weights


def test_where_runs_are_is_what_the_config_says(runs, tmp_path):
    runs.rename(tmp_path / "elsewhere")
    assert start("some-run-s0", tmp_path / "elsewhere").name == "some-run-s0"
    with pytest.raises(InputError, match="no such run or checkpoint"):
        roformer.load_model("some-run-s0")


def test_an_export_does_not_stand_for_its_run_and_an_id_of_two_pipelines_is_refused(runs):
    shutil.copytree(runs / "pretrain" / "some-run-s0", runs / "export" / "some-run-s0")
    assert find("some-run-s0") == "runs/pretrain/some-run-s0"
    shutil.copytree(runs / "pretrain" / "some-run-s0", runs / "clm" / "some-run-s0")
    with pytest.raises(InputError, match="give one of runs/clm/some-run-s0, runs/pretrain/some"):
        roformer.load_model("some-run-s0")


@pytest.mark.parametrize("name", ["owner/model", "nowhere", "../glue/rte-run-s0", "./owner/model"])
def test_what_is_no_run_stays_as_it_was_given(runs, name):
    assert find(name) == name


def test_the_newest_run_with_weights_is_found(runs):
    older, newer = (runs / "glue" / name for name in ("rte-run-s0", "rte-run-s1"))
    shutil.copytree(older, newer, symlinks=True)
    (runs / "glue" / "without-weights" / "checkpoints").mkdir(parents=True)
    os.utime(older / "checkpoints", (1, 1))
    assert newest(["glue"]).name == "rte-run-s1"
    os.utime(newer / "checkpoints", (0, 0))
    assert newest(["glue"]).name == "rte-run-s0"
    assert newest(["wmt"]) is None


def call(script, *arguments, monkeypatch, capsys):
    """Run a script in this process; return the one line that it leaves with."""
    monkeypatch.setattr(sys, "argv", [f"{script}.py", *map(str, arguments)])
    with pytest.raises(SystemExit) as left:
        runpy.run_path(str(REPOSITORY / "scripts" / f"{script}.py"), run_name="__main__")
    assert left.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_without_a_run_names_the_newest(script, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    pipeline = SCRIPTS[script]
    (tmp_path / "source.txt").write_text("dog\n")
    line = call(script, "source.txt", monkeypatch=monkeypatch, capsys=capsys)
    assert line.startswith("error: source.txt is a file, not a run")
    line = call(script, monkeypatch=monkeypatch, capsys=capsys)
    assert line.startswith("error: no run is given, and there is no trained one under")
    assert f"runs/{pipeline}/" in line and line.endswith(f"train one with make {pipeline}")
    (tmp_path / "runs" / pipeline / "mine" / "checkpoints" / "step_00000001").mkdir(parents=True)
    line = call(script, monkeypatch=monkeypatch, capsys=capsys)
    assert line == (
        f"error: no run is given: the newest here is make {script} RUN=runs/{pipeline}/mine, or "
        f"python scripts/{script}.py runs/{pipeline}/mine"
    )


# --- what was trained elsewhere ------------------------------------------------------------------


@pytest.mark.parametrize("pipeline", ["pretrain/some-run-s0", "glue/rte-run-s0"])
def test_a_saved_model_opens_and_can_be_started_from(runs, tmp_path, pipeline):
    trained = roformer.load_model(runs / pipeline)
    trained.save(tmp_path / "mine")
    copy = roformer.load_model(tmp_path / "mine")
    ours, theirs = trained.model.state_dict(), copy.model.state_dict()
    assert ours.keys() == theirs.keys() and all(torch.equal(ours[n], theirs[n]) for n in ours)
    assert (copy.task, copy.labels, copy.max_length) == (
        trained.task,
        trained.labels,
        trained.max_length,
    )
    if trained.task:
        assert copy.predict("a text") == trained.predict("a text")
    assert start(tmp_path / "mine").weights.keys() == ours.keys()


def test_what_could_not_be_opened_again_is_not_saved(runs, tmp_path):
    trained = roformer.load_model(runs / "glue" / "rte-run-s0")
    nameless = TrainedModel(trained.model, TOKENIZER, {"labels": ["no", "yes"], "texts": ["a"]})
    with pytest.raises(InputError, match=r"description is incomplete: (task|max_length)"):
        nameless.save(tmp_path / "nameless")
    encoder = Encoder(EncoderConfig(**SIZES, position=Rotary()), TOKENIZER.size)
    with pytest.raises(InputError, match="without a head"):
        TrainedModel(encoder, TOKENIZER, {}).save(tmp_path / "encoder")
    with pytest.raises(InputError, match=re.escape("not empty: choose another folder")):
        trained.save(runs / "glue" / "rte-run-s0")
    assert not (tmp_path / "nameless").exists() and not (tmp_path / "encoder").exists()
