"""A run in the other rotary layout computes the same, and comes back bit by bit."""

import json
import sys

import pytest
import torch
from safetensors.torch import load_file

import roformer
from roformer.config.attention import PerformerAttention
from roformer.config.position import Alibi, Rotary
from roformer.errors import InputError
from roformer.inference.resolve import resolve
from roformer.training.averaging import last_checkpoints, save_average
from scripts.convert_layout import main
from tests.data.parallel_texts import trained as trained_bpe
from tests.trained import run_of, stored

OTHER = {"interleaved": "half", "half": "interleaved"}


def outputs(run):
    ids = torch.arange(5, 45)[None]
    found = resolve(run)
    with torch.no_grad():
        return found.build()(*([ids] * (2 if found.kind == "translation" else 1)))


@pytest.mark.parametrize("first", OTHER)
@pytest.mark.parametrize(
    ("kind", "fraction", "values"),
    [("mlm", 1.0, False), ("classifier", 0.5, False), ("translation", 0.5, True)],
)
def test_a_converted_run_computes_the_same_and_comes_back(tmp_path, kind, fraction, values, first):
    """Catches rows left in place, values turned too, and a description that keeps the old layout."""
    tokenizer = {"tokenizer": trained_bpe("bytes", merges=40)} if kind == "translation" else {}
    position = Rotary(layout=first, fraction=fraction, rotate_values=values)
    model = stored(kind, position, **tokenizer)
    run = run_of(tmp_path / "run", model, steps=(1, 2), best=1)
    there = roformer.convert_run_layout(run, OTHER[first], tmp_path / "there")
    back = roformer.convert_run_layout(tmp_path / "there", first, tmp_path / "back")
    assert resolve(tmp_path / "there").model.position.layout == OTHER[first]
    torch.testing.assert_close(outputs(tmp_path / "there"), outputs(run), atol=1e-5, rtol=1e-5)
    source = run / "checkpoints" / ("best" if kind == "classifier" else "last")
    assert there.name == back.name == source.resolve().name
    before, changed, returned = (load_file(f / "model.safetensors") for f in (source, there, back))
    assert before.keys() == returned.keys()
    assert all(torch.equal(before[name], returned[name]) for name in before)
    assert (back / "model.json").read_text() == (source / "model.json").read_text()
    turned = {name for name in before if not torch.equal(before[name], changed[name])}
    ends = (".attention.projection.weight", ".attention.projection.bias")
    ends += (".attention.output.weight",) if values else ()
    assert turned == {name for name in before if name.endswith(ends)}


def test_what_cannot_be_converted_is_refused(tmp_path):
    run = run_of(tmp_path / "run")
    other = run_of(tmp_path / "other", stored(position=Alibi()))
    performer = {"attention": PerformerAttention(features=8), "attention_dropout": 0.0}
    linear = run_of(tmp_path / "linear", stored(**performer))
    for path, to, output, message in [
        (run, "interleaved", "out", "is in the layout interleaved already"),
        (other, "half", "out", "has alibi positions: only rotary ones have a layout"),
        (linear, "half", "out", "has performer attention, whose features are not the rows"),
        (run, "half", "other", "exists already and is not empty: choose another folder"),
        (tmp_path / "none", "half", "out", "no such run or checkpoint"),
    ]:
        with pytest.raises(InputError, match=message):
            roformer.convert_run_layout(path, to, tmp_path / output)
        assert not (tmp_path / "out").exists()


def test_the_script_converts_a_checkpoint_and_an_average(tmp_path, monkeypatch, capsys):
    """The average of a model that is not looked for by that name opens as its last checkpoint."""
    run = run_of(tmp_path / "run", steps=(1, 2))
    save_average(last_checkpoints(run, 2), run / "checkpoints" / "averaged")
    for source, written in (("step_00000001", "step_00000001"), ("averaged", "step_00000002")):
        path, out = str(run / "checkpoints" / source), tmp_path / source
        arguments = ["convert_layout.py", path, "--to", "half", "--output", str(out)]
        monkeypatch.setattr(sys, "argv", arguments)
        main()
        folder = out / "checkpoints" / written
        assert capsys.readouterr().out.startswith(str(folder))
        description = json.loads((folder / "model.json").read_text())
        assert description["model"]["position"]["layout"] == "half"
        assert roformer.load_model(out).max_length is None
