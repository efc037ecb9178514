"""Checkpoints are complete or missing, and never another model's; their average."""

import json
import os

import pytest
import torch
from torch import nn

from roformer.errors import InputError
from roformer.training import averaging, checkpoint
from roformer.training.checkpoint import Checkpoints
from scripts.average import check_output

DESCRIPTION = {
    "model": {"layers": 2, "position": {"kind": "rotary", "base": 10000.0}},
    "vocab_size": 9,
}


def trained(seed=0):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, fused=True)
    model(torch.randn(3, 4)).square().sum().backward()
    optimizer.step()
    return model, optimizer


def save(checkpoints, step, *, best=False):
    model, optimizer = trained(step)
    weights = checkpoint.model_tensors(model)
    moments = checkpoint.optimizer_tensors(model, optimizer)
    return checkpoints.save(step, weights, moments, {"step": step}, DESCRIPTION, best=best)


@pytest.fixture
def saved(tmp_path):
    """Return three checkpoints of steps 10, 20, 30."""
    checkpoints = Checkpoints(tmp_path / "checkpoints", keep=3)
    for step in (10, 20, 30):
        save(checkpoints, step, best=step == 10)
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


@pytest.mark.parametrize("verify", [True, False])
def test_only_weights_are_hashed_and_only_to_verify(saved, monkeypatch, verify):
    """The first of several processes verifies; the moments, twice as large, have their size."""
    hashed = []
    monkeypatch.setattr(checkpoint, "_sha256", lambda path: [hashed.append(path.name), ""][1])
    saved.last(verify=verify)
    assert {*hashed} == ({checkpoint.MODEL} if verify else set())


def test_old_ones_go_but_the_best_stays(saved):
    saved.keep = 2
    save(saved, 40)
    assert (saved.folder / "last").resolve().name == "step_00000040"
    assert (saved.folder / "best").resolve().name == "step_00000010"
    assert [checkpoint.step_of(path) for path in checkpoint.steps_in(saved.folder)] == [10, 30, 40]


def test_chosen_steps_stay_without_their_moments(tmp_path):
    """Regular steps or not; the moments of the last one are needed to resume. Others between go."""
    checkpoints = Checkpoints(tmp_path, keep=1, every=10, keep_at=(10, 13, 30))
    for step in (10, 13, 15, 20, 30):
        save(checkpoints, step)
    kept = checkpoint.steps_in(tmp_path)
    assert [checkpoint.step_of(path) for path in kept] == [10, 13, 30]
    assert [(path / "optimizer.safetensors").exists() for path in kept] == [False, False, True]
    assert all(checkpoint.damage(path) is None for path in kept)
    checkpoint.load_model(kept[0], trained(1)[0], DESCRIPTION)


def test_a_damaged_one_is_replaced_by_one_with_moments(tmp_path):
    """A chosen one between has none to go on with; of a finished run none has any."""
    checkpoints = Checkpoints(tmp_path, keep=3, every=10, keep_at=(15,))
    for step in (10, 15, 20):
        save(checkpoints, step)
    flip(tmp_path / "step_00000020" / "model.safetensors")
    assert checkpoints.last()[0].name == "step_00000010"
    checkpoint.drop_moments(tmp_path)
    path, _ = checkpoints.last()
    assert path.name == "step_00000015"
    model, optimizer = trained()
    checkpoint.load_model(path, model, DESCRIPTION)
    with pytest.raises(InputError, match=r"15 has no moments .* runtime.keep_optimizer=true"):
        checkpoint.load_optimizer(path, model, optimizer)


def flip(path):
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


DAMAGE = {
    "model.safetensors is truncated": lambda p: (p / "model.safetensors").write_bytes(b"short"),
    "state.json is missing": lambda p: (p / "state.json").unlink(),
    "it was never completed": lambda p: (p / "complete.json").unlink(),
    "does not match its checksum": lambda p: flip(p / "model.safetensors"),
    "complete.json is unreadable": lambda p: (p / "complete.json").write_text("[" * 100_000),
}


@pytest.mark.parametrize("message", DAMAGE)
def test_a_damaged_checkpoint_is_skipped_and_reported(saved, message):
    DAMAGE[message](saved.folder / "step_00000030")
    path, problems = saved.last()
    assert path.name == "step_00000020"
    assert len(problems) == 1 and "step_00000030" in problems[0] and message in problems[0]
    with pytest.raises(InputError, match="not a usable checkpoint"):
        checkpoint.resolve(saved.folder / "step_00000030")
    save(saved, 30)
    assert saved.last()[0].name == "step_00000030"


@pytest.mark.parametrize(
    ("name", "content"),
    [("state.json", b"[]"), ("model.json", b"[" * 100_000), ("model.safetensors", b"[]")],
)
def test_junk_with_a_right_checksum_is_one_line(saved, name, content):
    path = saved.folder / "step_00000030"
    (path / name).write_bytes(content)
    (path / "complete.json").unlink()
    checkpoint.complete(path)
    with pytest.raises(InputError, match=f"{name} is damaged .*: choose another checkpoint"):
        checkpoint.load_state(path)
        checkpoint.load_model(path, trained()[0], DESCRIPTION)


def test_a_failed_write_leaves_the_earlier_ones(saved, monkeypatch):
    def full(*arguments, **options):
        raise OSError(28, "No space left on device", "optimizer.safetensors")

    monkeypatch.setattr(checkpoint, "complete", full)
    with pytest.raises(OSError, match="No space left"):
        save(saved, 40, best=True)
    assert saved.last()[0].name == "step_00000030"
    assert (saved.folder / "best").resolve().name == "step_00000010"
    assert not list(saved.folder.glob(".*partial"))


def test_a_checkpoint_of_another_model_is_refused(saved):
    path, _ = saved.last()
    other = json.loads(json.dumps(DESCRIPTION))
    other["model"]["position"] = {"kind": "learned", "max_positions": 512}
    with pytest.raises(InputError) as refusal:
        checkpoint.load_model(path, trained()[0], other)
    assert "another model: model.position.base is 10000.0 there but None here" in str(refusal.value)


def test_the_umask_decides_who_may_read_a_checkpoint(tmp_path):
    before = os.umask(0o002)
    try:
        path = save(Checkpoints(tmp_path / "checkpoints", keep=1), 10)
    finally:
        os.umask(before)
    assert {file.stat().st_mode & 0o777 for file in path.iterdir()} == {0o664}


def test_a_run_stands_for_its_newest_checkpoint(saved, tmp_path):
    assert checkpoint.resolve(tmp_path) == saved.folder / "step_00000030"
    assert checkpoint.resolve(saved.folder / "best").name == "step_00000010"
    with pytest.raises(InputError, match="no such run"):
        checkpoint.resolve(tmp_path / "nowhere")
    (tmp_path / "empty" / "checkpoints").mkdir(parents=True)
    with pytest.raises(InputError, match="no complete checkpoint"):
        checkpoint.resolve(tmp_path / "empty")
    checkpoint.keep_only_best(saved.folder)
    assert checkpoint.resolve(tmp_path).name == "step_00000010"


# --- averages ------------------------------------------------------------------------------------


def test_random_vectors_are_those_of_the_last_checkpoint(tmp_path):
    """Their mean would be shorter than any draw, and no longer orthogonal."""
    paths = [tmp_path / str(n) for n in range(3)]
    for n, path in enumerate(paths):
        vectors = torch.randn(4, 2, generator=torch.Generator().manual_seed(n))
        tensors = {"weight": torch.full((2,), float(n)), "a.feature_map.vectors": vectors}
        checkpoint.write(path, {checkpoint.MODEL: tensors}, {checkpoint.DESCRIPTION: {}})
    found = checkpoint.load_tensors(
        averaging.save_average(paths, tmp_path / "mean") / "model.safetensors"
    )
    assert found["weight"].tolist() == [1.0, 1.0]
    torch.testing.assert_close(found["a.feature_map.vectors"], vectors)
    assert checkpoint.damage(tmp_path / "mean") is None


@pytest.mark.parametrize("account", ["{", "{}"])
def test_a_damaged_account_is_no_average_of_the_run(tmp_path, account):
    (folder := tmp_path / "averaged").mkdir()
    (folder / "average.json").write_text(account)
    with pytest.raises(InputError, match="exists and is no mean of these"):
        check_output(folder, [tmp_path / "step_00000020"])
