"""A step of a run can be made again: its loss, its samples, its weights."""

import json
import math
import shutil
from pathlib import Path

import pytest

from roformer.analysis.replay import replay
from roformer.errors import Diverged, InputError
from roformer.tasks.mlm import MaskedLMTask
from roformer.training import spikes
from roformer.training.loop import Loop
from tests.e2e.conftest import SMALL, results, small_run
from tests.scripts import run_script

DROPOUT = ["model.hidden_dropout=0.1", "training.log_every=1", "runtime.keep_optimizer=true"]


@pytest.fixture(scope="module")
def recorded(corpus, tmp_path_factory):
    """Return a run that logs every step; checkpoints at 6, 12, 18, 24. It is left as it is."""
    runs = tmp_path_factory.mktemp("recorded") / "runs"
    return small_run([*SMALL, *corpus, f"runtime.runs_dir={runs}"], *DROPOUT)[1]


def row(folder, step):
    return next(row for row in results(folder) if row["step"] == step)


@pytest.mark.parametrize(("step", "began"), [(1, 0), (6, 0), (7, 6), (24, 18)])
def test_a_replay_sees_what_the_run_saw(recorded, step, began):
    """Bitwise, dropout included. Catches a replay that begins at the step itself."""
    before = sorted((path, path.stat().st_mtime_ns) for path in recorded.rglob("*"))
    found = replay(recorded, step)
    assert (found.step, found.began) == (step, began)
    assert found.loss == row(recorded, step)["train/loss"]
    assert found.grad_norm == row(recorded, step)["train/grad_norm"]
    assert len(found.samples) == 8
    assert before == sorted((path, path.stat().st_mtime_ns) for path in recorded.rglob("*"))


def test_without_moments_a_replay_begins_earlier_and_says_why(arguments, recorded, capsys):
    _, folder = small_run(arguments, *DROPOUT, "runtime.keep_optimizer=false", runs="finished")
    found = replay(folder, 8)
    assert found.began == 0 and found.loss == row(recorded, 8)["train/loss"]
    assert "step_00000006 has no moments of AdamW" in (told := capsys.readouterr().out)
    assert "runtime.keep_optimizer=true" in told


def test_a_long_replay_tells_how_it_goes(arguments, capsys):
    """Before it begins, and every log_every steps; also that of a run which told nothing."""
    folder = small_run(arguments)[1]
    capsys.readouterr()
    found = replay(folder, 12)
    *_, first, fourth, eighth = capsys.readouterr().out.splitlines()
    assert (found.began, first) == (0, "steps to make again: 12, from step 1 to step 12")
    assert fourth.startswith("step 4/12  loss ") and eighth.startswith("step 8/12  loss ")


def test_the_samples_are_those_of_the_batch(arguments):
    """Without dropout their losses are the step's: catches weights from after the step."""
    folder = small_run(arguments, "training.log_every=1")[1]
    found = replay(folder, 9)
    targets = sum(sample.targets for sample in found.samples)
    mean = sum(sample.loss * sample.targets for sample in found.samples) / targets
    assert mean == pytest.approx(found.loss, rel=1e-5)
    losses = [sample.loss for sample in found.samples]
    assert losses == sorted(losses, reverse=True)
    assert all(sample.text.count("[") >= sample.targets for sample in found.samples)


def test_a_spike_is_recorded_with_its_samples_and_told(arguments, monkeypatch, capsys):
    monkeypatch.setattr(spikes, "STEPS_TO_KNOW", 5)
    loss, seen = MaskedLMTask.loss, []

    def spiked(task, model, batch):
        seen.append(batch)
        return loss(task, model, batch) * (3 if len(seen) == 15 else 1)

    monkeypatch.setattr(MaskedLMTask, "loss", spiked)
    quiet = ["optimizer.learning_rate=1e-6", "runtime.progress=true"]
    folder = small_run(arguments, *quiet)[1]
    monkeypatch.undo()
    (spike,) = [json.loads(line) for line in (folder / "spikes.jsonl").read_text().splitlines()]
    assert (spike["step"], spike["rank"]) == (15, 0)
    assert spike["loss"] == pytest.approx(3 * spike["usual"], rel=0.1)
    (rows,) = spike["samples"]
    assert sorted(rows) == sorted(sample.row for sample in replay(folder, 15).samples)
    told = next(line for line in capsys.readouterr().out.splitlines() if "loss spike" in line)
    assert f"python scripts/replay_batch.py {folder} 15" in told


def test_a_resumed_run_notes_each_spike_once(arguments, monkeypatch, stop_at):
    monkeypatch.setattr(spikes, "STEPS_TO_KNOW", 5)
    loss, update, steps = MaskedLMTask.loss, Loop._step, []

    def counted(loop, batches):
        steps.append(loop.state.step + 1)
        update(loop, batches)

    def spiked(task, model, batch):
        return loss(task, model, batch) * (3 if steps[-1] == 15 else 1)

    monkeypatch.setattr(Loop, "_step", counted)
    monkeypatch.setattr(MaskedLMTask, "loss", spiked)
    quiet = ["optimizer.learning_rate=1e-6"]
    go_on = stop_at(17)
    with pytest.raises(KeyboardInterrupt):
        small_run(arguments, *quiet)
    go_on()
    folder = small_run(arguments, *quiet)[1]
    noted = [json.loads(line)["step"] for line in (folder / "spikes.jsonl").open()]
    assert noted == [15] and steps.count(15) == 2


def test_a_diverged_step_is_noted_and_can_be_replayed(arguments, monkeypatch):
    loss, calls = MaskedLMTask.loss, iter(range(1, 100))
    monkeypatch.setattr(
        MaskedLMTask,
        "loss",
        lambda *given: loss(*given) * (math.inf if next(calls) == 9 else 1),
    )
    with pytest.raises(Diverged, match=r"not finite at step 9: .* scripts/replay_batch.py \S+ 9$"):
        small_run(arguments)
    monkeypatch.undo()
    (folder,) = Path(arguments[-1].partition("=")[2]).glob("pretrain/*-s0")
    (spike,) = [json.loads(line) for line in (folder / "spikes.jsonl").open()]
    assert spike["step"] == 9 and spike["loss"] is None
    found = replay(folder, 9)
    assert found.began == 6 and math.isfinite(found.loss)
    assert sorted(spike["samples"][0]) == sorted(sample.row for sample in found.samples)


@pytest.mark.slow
def test_the_script_and_its_mistakes(recorded, tmp_path):
    done = run_script("replay_batch", recorded, 9, "--top", 2, "--width", 20)
    lines = done.stdout.splitlines()
    assert lines[-4].startswith("step 9, replayed from step 6: loss ") and len(lines[-1]) < 50
    done = run_script("replay_batch", tmp_path, 9)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {tmp_path} is no run") and done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "has no config.yaml: give the folder of a run"),
        (b"\xff", "config.yaml is damaged"),
        (b"5", "config.yaml is damaged"),
        (b"a: &a [1]\nb: *a\n", "config.yaml is damaged"),
        (b"[" * 100_000, "config.yaml is damaged"),
    ],
)
def test_what_is_no_run_is_one_line(tmp_path, content, message):
    (run := tmp_path / "pretrain" / "run").mkdir(parents=True)
    if content is not None:
        (run / "config.yaml").write_bytes(content)
    with pytest.raises(InputError, match=message) as refusal:
        replay(run, 1)
    assert "\n" not in str(refusal.value)
    with pytest.raises(InputError, match="is no run of a pipeline"):
        replay(tmp_path, 1)


def test_mistakes(recorded, tmp_path):
    with pytest.raises(InputError, match="has steps 1 to 24, not 25"):
        replay(recorded, 25)
    moved = shutil.copytree(recorded, tmp_path / "moved", symlinks=True)
    env = json.loads((moved / "env.json").read_text())
    for what in ("data", "weights"):
        (moved / "env.json").write_text(json.dumps({**env, what: "0" * 64}))
        with pytest.raises(InputError, match=f"begun on other {what}"):
            replay(moved, 9)
