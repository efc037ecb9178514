"""Steps with an outlying loss are recorded with their samples."""

import json
import math
from pathlib import Path

import pytest

from roformer.errors import Diverged
from roformer.tasks.mlm import MaskedLMTask
from roformer.training import spikes
from roformer.training.loop import Loop
from tests.e2e.conftest import small_run


def test_a_spike_is_recorded_with_its_samples_and_printed(arguments, monkeypatch, capsys):
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
    assert len(rows) == 8
    line = next(line for line in capsys.readouterr().out.splitlines() if "loss spike" in line)
    assert "at step 15" in line and str(folder / "spikes.jsonl") in line


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


def test_a_diverged_step_is_noted(arguments, monkeypatch):
    loss, calls = MaskedLMTask.loss, iter(range(1, 100))
    monkeypatch.setattr(
        MaskedLMTask,
        "loss",
        lambda *given: loss(*given) * (math.inf if next(calls) == 9 else 1),
    )
    with pytest.raises(Diverged, match=r"not finite at step 9: .*spikes\.jsonl$"):
        small_run(arguments)
    monkeypatch.undo()
    (folder,) = Path(arguments[-1].partition("=")[2]).glob("pretrain/*-s0")
    (spike,) = [json.loads(line) for line in (folder / "spikes.jsonl").open()]
    assert spike["step"] == 9 and spike["loss"] is None
    assert len(spike["samples"][0]) == 8
