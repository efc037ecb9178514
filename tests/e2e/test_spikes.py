"""Steps with an outlying loss are recorded with their samples."""

import json
import math
from pathlib import Path

import pytest

from roformer.errors import Diverged
from roformer.tasks.mlm import MaskedLMTask
from roformer.training import spikes
from roformer.training.loop import Loop
from tests.e2e.conftest import small_run, weights


def spikes_of(folder):
    return [json.loads(line) for line in (folder / "spikes.jsonl").read_text().splitlines()]


def test_a_spike_is_printed_and_recorded_once_with_its_samples(
    arguments, monkeypatch, stop_at, capsys
):
    """Also if the run is killed at step 17 and makes step 15 again."""
    monkeypatch.setattr(spikes, "STEPS_TO_KNOW", 5)
    loss, update, steps = MaskedLMTask.loss, Loop._step, []

    def counted(loop, batches):
        steps.append(loop.state.step + 1)
        update(loop, batches)

    def spiked(task, model, batch):
        return loss(task, model, batch) * (3 if steps[-1] == 15 else 1)

    monkeypatch.setattr(Loop, "_step", counted)
    monkeypatch.setattr(MaskedLMTask, "loss", spiked)
    quiet = ["optimizer.learning_rate=1e-6", "runtime.progress=true"]
    go_on = stop_at(17)
    with pytest.raises(KeyboardInterrupt):
        small_run(arguments, *quiet)
    go_on()
    folder = small_run(arguments, *quiet)[1]
    (spike,) = spikes_of(folder)
    assert (spike["step"], spike["rank"]) == (15, 0) and steps.count(15) == 2
    assert spike["loss"] == pytest.approx(3 * spike["usual"], rel=0.1)
    assert [len(rows) for rows in spike["samples"]] == [8]
    line = next(line for line in capsys.readouterr().out.splitlines() if "loss spike" in line)
    assert "at step 15" in line and str(folder / "spikes.jsonl") in line


def test_a_diverged_run_names_the_step_and_keeps_good_checkpoints(arguments, monkeypatch):
    loss, calls = MaskedLMTask.loss, iter(range(1, 100))
    monkeypatch.setattr(
        MaskedLMTask, "loss", lambda *given: loss(*given) * (math.inf if next(calls) == 9 else 1)
    )
    message = r"not finite at step 9: lower optimizer.learning_rate.*spikes\.jsonl$"
    with pytest.raises(Diverged, match=message):
        small_run(arguments)
    (folder,) = Path(arguments[-1].partition("=")[2]).glob("pretrain/*-s0")
    (spike,) = spikes_of(folder)
    assert spike["step"] == 9 and spike["loss"] is None and len(spike["samples"][0]) == 8
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["status"] == "failed" and "step 9" in summary["error"]
    assert (folder / "checkpoints" / "last").resolve().name == "step_00000006"
    assert all(t.isfinite().all() for t in weights(folder).values())
