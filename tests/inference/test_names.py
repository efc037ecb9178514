"""One name opens a model everywhere: path, run id, checkpoint, export; unknown names: one line."""

import shutil

import pytest
import torch

import roformer
from roformer.errors import InputError
from roformer.inference.load import TrainedModel
from roformer.inference.resolve import choose, find
from roformer.inference.start import find_start, load_start
from roformer.models.classifier import Classifier
from roformer.models.encoder import Encoder
from roformer.training.averaging import AVERAGED, last_checkpoints, save_average
from tests.data.parallel_texts import trained as trained_bpe
from tests.trained import UNCASED, config_of, run_of, stored

PRETRAINING, CLASSIFIER = "pretrain/some-run-s0", "glue/rte-run-s0"


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """Return the folder of a pre-training and a fine-tuning run, in the folder that a user works in."""
    monkeypatch.chdir(tmp_path)
    runs = tmp_path / "runs"
    run_of(runs / PRETRAINING, steps=(1, 2), best=1)
    run_of(runs / CLASSIFIER, stored("classifier"), steps=(1, 2), best=1)
    return runs


def weights(name):
    return roformer.load_model(name).model.encoder.tokens.weight


def start(name, runs_dir="runs"):
    return find_start(str(name), None, config_of(), None, str(runs_dir), list)


@pytest.mark.parametrize("pipeline", [PRETRAINING, CLASSIFIER])
def test_a_run_id_opens_and_starts_what_its_folder_does(runs, pipeline):
    """And a start has one name in the record, whatever name was given, so that runs have one id."""
    run, early = runs / pipeline, "checkpoints/step_00000001"
    assert torch.equal(weights(run.name), weights(run))
    for name in (f"{run.name}/{early}", f"{run.name}@1"):
        assert torch.equal(weights(name), weights(run / early))
    by_folder, by_id = start(f"runs/{pipeline}"), start(run.name)
    assert by_folder.name == by_id.name and by_folder.fingerprint == by_id.fingerprint
    at = [start(f"{name}@1") for name in (run.name, f"runs/{PRETRAINING}")]
    if pipeline == PRETRAINING:
        assert at[0].name == at[1].name == f"{run.name}@1"
        assert at[0].fingerprint != by_id.fingerprint
    assert at[0].fingerprint == start(run / early).fingerprint


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("another-run-s0", "no such run, folder or Hub id"),
        ("some-run-s0@7", "no checkpoint of step 7: choose one of 1, 2, or train"),
        ("another-run@7", "another-run@7: no such run another-run"),
    ],
)
def test_a_name_that_does_not_exist_is_one_line(runs, name, message):
    with pytest.raises(InputError, match=message):
        start(name)


def test_a_fine_tuning_starts_with_the_pooler_of_pairs_of_segments():
    """If the pre-training had a pooler; its other head is not used."""
    for objective, new in (("mlm", "pooler.weight, pooler.bias, "), ("mlm_nsp", "")):
        described = {} if objective == "mlm" else {"objective": objective}
        begun = stored(described=described)
        model = Classifier(begun.model, begun.vocab_size, 2, dropout=0.0)
        _, dropped, drawn = load_start(begun, model)
        assert drawn == f"drawn: {new}classifier.weight, classifier.bias"
        assert ("relation.weight" in dropped) == (objective == "mlm_nsp")
        for name in ("pooler.weight", "encoder.token_types.weight"):
            if name in begun.weights:
                assert torch.equal(model.state_dict()[name], begun.weights[name])


def test_each_kind_has_its_checkpoint(runs):
    """The best of a classifier, the average of a translation, else the newest; damaged ones are skipped."""
    pretraining, classifier = runs / PRETRAINING, runs / CLASSIFIER
    model = stored("translation", tokenizer=trained_bpe("bytes", merges=40))
    translation = run_of(runs / "wmt" / "some", model, steps=(1, 2))
    for run in (pretraining, translation):
        save_average(last_checkpoints(run, 2), run / "checkpoints" / AVERAGED)
    assert choose(translation).name == AVERAGED
    assert choose(pretraining).name == "step_00000002"
    assert choose(classifier).name == "step_00000001"
    (classifier / "checkpoints" / "step_00000001" / "model.safetensors").write_bytes(b"cut")
    with pytest.warns(UserWarning, match=r"checkpoints/best is skipped: model\.safetensors"):
        assert choose(classifier).name == "step_00000002"
    with pytest.raises(InputError, match="not a usable checkpoint"):
        choose(classifier / "checkpoints" / "best")


def test_a_model_of_another_kind_is_told_what_it_is(runs):
    scorer = run_of(runs / "scm" / "pairs-s0", stored("scorer"))
    assert start(scorer).weights
    causal = run_of(runs / "clm" / "one", stored("causal"))
    told = "runs/clm/one is a causal language model, which roformer.load_generator opens"
    for use, run, message in (
        (roformer.load_model, scorer, "scores pairs of documents"),
        (roformer.load_model, causal, told),
        (roformer.load_translator, causal, told),
        (start, causal, told),
        (roformer.load_generator, runs / PRETRAINING, "is a masked language model, which"),
    ):
        with pytest.raises(InputError, match=message):
            use(run)


def test_where_runs_are_is_what_the_config_says(runs, tmp_path):
    runs.rename(tmp_path / "elsewhere")
    assert start("some-run-s0", tmp_path / "elsewhere").name == "some-run-s0"
    with pytest.raises(InputError, match="no such run or checkpoint"):
        roformer.load_model("some-run-s0")


def test_an_export_does_not_stand_for_its_run_and_an_id_of_two_pipelines_is_refused(runs):
    shutil.copytree(runs / PRETRAINING, runs / "export" / "some-run-s0")
    assert find("some-run-s0") == "runs/pretrain/some-run-s0"
    shutil.copytree(runs / PRETRAINING, runs / "clm" / "some-run-s0")
    with pytest.raises(InputError, match="give one of runs/clm/some-run-s0, runs/pretrain/some"):
        roformer.load_model("some-run-s0")
    for name in ("owner/model", "nowhere", "../glue/rte-run-s0", "./owner/model"):
        assert find(name) == name


@pytest.mark.parametrize("pipeline", [PRETRAINING, CLASSIFIER])
def test_a_saved_model_opens_and_can_be_started_from(runs, tmp_path, pipeline):
    trained = roformer.load_model(runs / pipeline)
    trained.save(tmp_path / "mine")
    copy = roformer.load_model(tmp_path / "mine")
    ours, theirs = trained.model.state_dict(), copy.model.state_dict()
    assert ours.keys() == theirs.keys() and all(torch.equal(ours[n], theirs[n]) for n in ours)
    for name in ("task", "labels", "texts", "max_length"):
        assert getattr(copy, name) == getattr(trained, name)
    assert start(tmp_path / "mine").weights.keys() == ours.keys()


def test_what_could_not_be_opened_again_is_not_saved(runs, tmp_path):
    trained = roformer.load_model(runs / CLASSIFIER)
    nameless = TrainedModel(trained.model, UNCASED, {"labels": ["no", "yes"], "texts": ["a"]})
    headless = TrainedModel(Encoder(config_of(), UNCASED.size), UNCASED, {})
    for model, folder, message in (
        (nameless, tmp_path / "new", "description is incomplete: add task, max_length"),
        (headless, tmp_path / "new", "without a head"),
        (trained, runs / CLASSIFIER, "not empty: choose another folder"),
    ):
        with pytest.raises(InputError, match=message):
            model.save(folder)
    assert not (tmp_path / "new").exists()
