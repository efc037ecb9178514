"""A run in the other rotary layout computes the same, and comes back bit by bit."""

import json
import sys

import pytest
import torch
from safetensors.torch import load_file

import roformer
from roformer.config import schema
from roformer.config.attention import PerformerAttention, SoftmaxAttention
from roformer.config.build import plain
from roformer.config.position import Alibi, Rotary
from roformer.config.wmt import Seq2SeqConfig
from roformer.errors import InputError
from roformer.interop.layout import convert_state_layout
from roformer.models.classifier import Classifier
from roformer.models.encoder import MaskedLM
from roformer.models.seq2seq import Seq2Seq
from roformer.training.checkpoint import Checkpoints, model_tensors
from scripts.convert_layout import main
from tests.data.glue_tasks import TOKENIZER

SIZES = {
    "name": "roformer",
    "size": "test",
    "layers": 2,
    "hidden_size": 32,
    "heads": 4,
    "intermediate_size": 64,
    "attention": SoftmaxAttention(),
}
TASK = {
    "kind": "classifier",
    "task": "rte",
    "labels": ["yes", "no"],
    "texts": ["a"],
    "max_length": 20,
    "head_dropout": 0.1,
}


def random_biases(model):
    for parameter in model.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    return model


def run_of(folder, position, task=None, **changes):
    """Write a run of two checkpoints, the better one first."""
    config = schema.EncoderConfig(**SIZES | changes, position=position)
    description = {
        "kind": "mlm",
        "model": plain(config),
        "vocab_size": TOKENIZER.size,
        "tokenizer": TOKENIZER.fingerprint,
        **(task or {}),
    }
    checkpoints = Checkpoints(folder / "checkpoints", keep=2)
    for step in (1, 2):
        model = (
            Classifier(config, TOKENIZER.size, 2, dropout=0.1)
            if task
            else MaskedLM(config, TOKENIZER.size)
        )
        tensors = model_tensors(random_biases(model))
        checkpoints.save(step, tensors, {}, {}, description, best=step == 1)
    TOKENIZER.save(folder / "tokenizer")
    return folder


def logits(trained):
    ids = torch.arange(5, 5 + 40)[None]
    with torch.no_grad():
        return trained.model(ids)


@pytest.mark.parametrize("task", [None, TASK], ids=["pre-training", "fine-tuning"])
@pytest.mark.parametrize("fraction", [1.0, 0.5])
@pytest.mark.parametrize("first", ["interleaved", "half"])
def test_a_converted_run_computes_the_same_and_comes_back(tmp_path, task, fraction, first):
    """Catches rows left in place, values turned too, and a description that keeps the old layout."""
    run = run_of(tmp_path / "run", Rotary(layout=first, fraction=fraction), task)
    second = {"interleaved": "half", "half": "interleaved"}[first]
    there = roformer.convert_run_layout(run, second, tmp_path / "there")
    back = roformer.convert_run_layout(tmp_path / "there", first, tmp_path / "back")
    trained, converted = roformer.load_model(run), roformer.load_model(tmp_path / "there")
    assert converted.model.encoder.config.position.layout == second
    torch.testing.assert_close(logits(converted), logits(trained), atol=1e-5, rtol=1e-5)

    source = run / "checkpoints" / ("best" if task else "last")
    assert there.name == back.name == source.resolve().name
    stored, returned = (load_file(f / "model.safetensors") for f in (source, back))
    assert stored.keys() == returned.keys()
    assert all(torch.equal(stored[name], returned[name]) for name in stored)
    assert (back / "model.json").read_text() == (source / "model.json").read_text()
    changed = load_file(there / "model.safetensors")
    kept = {name for name in stored if torch.equal(stored[name], changed[name])}
    turned = {n for n in stored if "attention.projection" in n}
    assert kept == stored.keys() - turned


def test_both_sides_of_an_encoder_decoder_are_converted():
    def model(layout):
        position = Rotary(layout=layout)
        config = Seq2SeqConfig(**SIZES, decoder_layers=2, position=position)
        return random_biases(Seq2Seq(config, 50)).eval()

    ours, other = model("interleaved"), model("half")
    state = convert_state_layout(ours.state_dict(), SIZES["heads"], "half", rotary_dim=8)
    other.load_state_dict(state)
    source, target = torch.randint(2, 50, (2, 9)), torch.randint(2, 50, (2, 7))
    with torch.no_grad():
        torch.testing.assert_close(
            other(source, target), ours(source, target), atol=1e-5, rtol=1e-5
        )
    back = convert_state_layout(state, SIZES["heads"], "interleaved", rotary_dim=8)
    assert all(torch.equal(back[n], t) for n, t in ours.state_dict().items())


def test_what_cannot_be_converted_is_refused(tmp_path):
    run = run_of(tmp_path / "run", Rotary())
    other = run_of(tmp_path / "other", Alibi())
    performer = {"attention": PerformerAttention(features=8), "attention_dropout": 0.0}
    linear = run_of(tmp_path / "linear", Rotary(), **performer)
    for path, to, output, message in [
        (run, "interleaved", "out", "is in the layout interleaved already"),
        (other, "half", "out", "has alibi positions: only rotary ones have a layout"),
        (linear, "half", "out", "has performer attention, whose features are not the rows"),
        (run, "half", "other", "other exists: choose another folder"),
        (tmp_path / "none", "half", "out", "no such run or checkpoint"),
    ]:
        with pytest.raises(InputError, match=message):
            roformer.convert_run_layout(path, to, tmp_path / output)
        assert not (tmp_path / "out").exists()


def test_the_script_converts_a_checkpoint(tmp_path, monkeypatch, capsys):
    run = run_of(tmp_path / "run", Rotary())
    early = str(run / "checkpoints" / "step_00000001")
    out = tmp_path / "out"
    arguments = ["convert_layout.py", early, "--to", "half", "--output", str(out)]
    monkeypatch.setattr(sys, "argv", arguments)
    main()
    folder = out / "checkpoints" / "step_00000001"
    assert capsys.readouterr().out.startswith(str(folder))
    description = json.loads((folder / "model.json").read_text())
    assert description["model"]["position"]["layout"] == "half"
