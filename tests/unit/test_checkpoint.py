"""Checkpoints are complete or not there, and never those of another model."""

import json
import os
from contextlib import suppress

import pytest
import torch
from torch import nn

from roformer.errors import InputError
from roformer.training import checkpoint
from roformer.training.checkpoint import Checkpoints

DESCRIPTION = {
    "model": {"layers": 2, "position": {"kind": "rotary", "base": 10000.0}},
    "vocab_size": 9,
}


def tensors(seed):
    model, optimizer = trained(seed)
    return checkpoint.model_tensors(model), checkpoint.optimizer_tensors(model, optimizer)


def trained(seed=0):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, fused=True)
    model(torch.randn(3, 4)).square().sum().backward()
    optimizer.step()
    return model, optimizer


@pytest.fixture
def saved(tmp_path):
    """Return three checkpoints of updates 10, 20, 30."""
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=3)
    for step in (10, 20, 30):
        checkpoints.save(step, *tensors(step), {"step": step}, DESCRIPTION, best=step == 10)
    return checkpoints


def test_weights_and_moments_come_back_bit_equal(saved):
    path, problems = saved.last()
    assert path.name == "step_00000030" and not problems
    model, optimizer = trained(30)
    fresh, other = trained(1)
    checkpoint.load_model(path, fresh, DESCRIPTION)
    checkpoint.load_optimizer(path, fresh, other)
    for ours, theirs in zip(fresh.parameters(), model.parameters(), strict=True):
        assert torch.equal(ours, theirs)
        for key, value in optimizer.state[theirs].items():
            assert torch.equal(other.state[ours][key], value), key
    assert checkpoint.load_state(path) == {"step": 30}
    assert {p.suffix for p in path.iterdir()} == {".safetensors", ".json"}  # nothing executable


def test_old_ones_go_but_the_best_stays(saved):
    saved.keep = 2
    saved.save(40, *tensors(40), {"step": 40}, DESCRIPTION, best=False)
    names = sorted(p.name for p in saved.folder.glob("step_*"))
    assert (saved.folder / "last").resolve().name == "step_00000040"
    assert (saved.folder / "best").resolve().name == "step_00000010"
    assert names == ["step_00000010", "step_00000030", "step_00000040"]


DAMAGE = {
    "truncated": (
        lambda p: (p / "model.safetensors").write_bytes(b"short"),
        "model.safetensors is truncated",
    ),
    "missing": (
        lambda p: (p / "optimizer.safetensors").unlink(),
        "optimizer.safetensors is missing",
    ),
    "never completed": (lambda p: (p / "complete.json").unlink(), "never completed"),
    "flipped byte": (lambda p: flip(p / "model.safetensors"), "does not match its checksum"),
    "unreadable marker": (lambda p: (p / "complete.json").write_text("[" * 100_000), "unreadable"),
}


def flip(path):
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def rewrite(folder, files):
    (folder / "complete.json").write_text(json.dumps(files))


@pytest.mark.parametrize("files", [{}, [], 5, {"model.safetensors": 1}, {"model.safetensors": {}}])
def test_a_list_that_names_no_model_is_damage(saved, files):
    rewrite(saved.folder / "step_00000030", files)
    assert saved.last()[0].name == "step_00000020"


@pytest.mark.parametrize("name", ["state.json", "model.json", "model.safetensors"])
@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"[" * 100_000])
def test_junk_with_a_right_checksum_is_one_line(saved, name, content):
    path = saved.folder / "step_00000030"
    (path / name).write_bytes(content)
    (path / "complete.json").unlink()
    checkpoint.complete(path)
    with pytest.raises(InputError) as refusal:
        checkpoint.load_state(path)
        checkpoint.load_model(path, trained()[0], DESCRIPTION)
    assert name in str(refusal.value) and "\n" not in str(refusal.value)


def test_weights_of_other_shapes_are_one_line(saved):
    path, _ = saved.last()
    other = nn.Sequential(nn.Linear(4, 5), nn.LayerNorm(5))
    with pytest.raises(
        InputError, match=r"of other shapes than the model's: \['0.bias', '0.weight'"
    ):
        checkpoint.load_model(path, other, DESCRIPTION)


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_checkpoint_is_passed_over_and_told(saved, kind):
    damage, message = DAMAGE[kind]
    damage(saved.folder / "step_00000030")
    path, problems = saved.last()
    assert path.name == "step_00000020"
    assert len(problems) == 1 and "step_00000030" in problems[0] and message in problems[0]
    with pytest.raises(InputError, match="not a usable checkpoint"):
        checkpoint.resolve(saved.folder / "step_00000030")


def test_a_damaged_checkpoint_can_be_written_again(saved):
    flip(saved.folder / "step_00000030" / "model.safetensors")
    saved.save(30, *tensors(30), {"step": 30}, DESCRIPTION, best=False)
    assert saved.last()[0].name == "step_00000030"


def test_a_failed_write_leaves_the_earlier_ones(saved, monkeypatch):
    def full(*arguments, **options):
        raise OSError(28, "No space left on device", "optimizer.safetensors")

    monkeypatch.setattr(checkpoint, "complete", full)
    with pytest.raises(OSError, match="No space left"):
        saved.save(40, *tensors(40), {"step": 40}, DESCRIPTION, best=True)
    assert saved.last()[0].name == "step_00000030"
    assert (saved.folder / "best").resolve().name == "step_00000010"
    assert not list(saved.folder.glob(".*partial"))


def test_a_checkpoint_of_another_model_is_refused(saved):
    path, _ = saved.last()
    other = json.loads(json.dumps(DESCRIPTION))
    other["model"]["position"] = {"kind": "learned", "max_positions": 512}
    with pytest.raises(InputError) as refusal:
        checkpoint.load_model(path, trained()[0], other)
    message = str(refusal.value)
    assert "another model" in message and "\n" not in message
    assert "model.position.kind is 'rotary' there but 'learned' here" in message


def test_without_moments_a_checkpoint_is_whole_and_says_what_it_lacks(saved):
    checkpoint.drop_moments(saved.folder)
    assert not list(saved.folder.glob("*/optimizer.safetensors"))
    assert not [path for path in checkpoint.steps_in(saved.folder) if checkpoint.damage(path)]
    model, optimizer = trained()
    checkpoint.load_model(saved.last()[0], model, DESCRIPTION)
    with pytest.raises(
        InputError, match=r"step_00000030 has no moments .* runtime.keep_optimizer=true"
    ):
        checkpoint.load_optimizer(saved.last()[0], model, optimizer)


@pytest.mark.parametrize("place", ["replace", "unlink"])
@pytest.mark.parametrize("times", [1, 3])
def test_a_kill_while_moments_go_loses_nothing(saved, monkeypatch, place, times):
    left, original = iter(range(times)), getattr(type(saved.folder), place)

    def dying(path, *arguments, **options):
        if next(left, None) is None:
            raise KeyboardInterrupt
        return original(path, *arguments, **options)

    with monkeypatch.context() as patch, suppress(KeyboardInterrupt):
        patch.setattr(type(saved.folder), place, dying)
        checkpoint.drop_moments(saved.folder)
    assert (
        len([path for path in checkpoint.steps_in(saved.folder) if not checkpoint.damage(path)])
        == 3
    )
    saved.tidy(30, best=False)
    checkpoint.drop_moments(saved.folder)
    assert not list(saved.folder.glob("*/optimizer.safetensors"))
    assert not list(saved.folder.glob(".*"))
    assert not [path for path in checkpoint.steps_in(saved.folder) if checkpoint.damage(path)]


@pytest.mark.parametrize(("umask", "mode"), [(0o002, 0o664), (0o077, 0o600)])
def test_the_umask_decides_who_may_read_a_checkpoint(tmp_path, umask, mode):
    before = os.umask(umask)
    try:
        saved = Checkpoints(tmp_path / "checkpoints", keep=1)
        path = saved.save(10, *tensors(1), {"step": 10}, DESCRIPTION, best=True)
    finally:
        os.umask(before)
    assert {file.stat().st_mode & 0o777 for file in path.iterdir()} == {mode}


def test_resolve(saved, tmp_path):
    assert checkpoint.resolve(tmp_path) == saved.folder / "step_00000030"
    assert checkpoint.resolve(saved.folder / "best").name == "step_00000010"
    with pytest.raises(InputError, match="no such run"):
        checkpoint.resolve(tmp_path / "nowhere")
    (tmp_path / "empty" / "checkpoints").mkdir(parents=True)
    with pytest.raises(InputError, match="no complete checkpoint"):
        checkpoint.resolve(tmp_path / "empty")
