"""Replay of one step of a recorded run: its batch example by example, with the weights before the step."""

from __future__ import annotations

import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch

from roformer import registry
from roformer.analysis.pretrained import read_config
from roformer.config.build import plain
from roformer.errors import InputError
from roformer.pipelines.run import changed, other_inputs, resolve
from roformer.training import checkpoint
from roformer.training.distributed import open_accelerator, say
from roformer.training.loop import Loop
from roformer.training.process import tune_process
from roformer.training.records import RunFolder
from roformer.training.state import restore
from roformer.training.task import Opened, Settings, Task
from roformer.training.tracking import NoTracker, Progress


class Sample(NamedTuple):
    """One example of the batch."""

    row: int
    """Its place in the prepared training data."""
    targets: int
    loss: float
    """Mean over its targets, without dropout, before the step."""
    text: str


class Replayed(NamedTuple):
    """A replayed step."""

    step: int
    began: int
    """The step after which the replay started: a checkpoint's step, or 0."""
    loss: float
    """Mean over the targets, with dropout, as in the run."""
    grad_norm: float
    samples: list[Sample]
    """The highest loss first."""


def replay(folder: Path, step: int) -> Replayed:
    """Replay a step of a run, from the newest checkpoint before it; nothing is written.

    Prints the number of steps, and the progress every `log_every` steps like the run.

    On a CPU the weights are bitwise equal to those of a run of one process. For a run of several processes
    the order of sums differs, and the random numbers of dropout.

    Args:
        folder: of the run.
        step: from 1 to the run's last.
    """
    opened = open_run(folder)
    config, task = opened.config, opened.build()
    training, runtime = task.training, config.runtime
    if not 1 <= step <= training.steps:
        raise InputError(f"{folder} has steps 1 to {training.steps}, not {step}")
    if other := other_inputs(RunFolder(folder), opened):
        raise InputError(
            f"{folder} was begun on {other}: restore what data.path and init_from name, or the "
            "packages that built-in text is from"
        )
    found = newest_before(folder, step)
    nearer = newest_before(folder, step, moments=False)
    if nearer != found:
        say(
            f"{nearer} has no moments of AdamW, so the replay begins earlier: a finished run keeps them "
            "with runtime.keep_optimizer=true alone"
        )
    moments = task.start() if found is None else None
    state = restore(task, found)
    began = state.step
    if runtime.tune_process:
        tune_process(threads=runtime.threads)
    accelerator = open_accelerator(runtime, training.precision, task.model)
    quiet = replace(runtime, progress=False)  # of all the run's steps
    settings = Settings(config.seed, config.optimizer, config.schedule, quiet)
    say(f"steps to make again: {step - began}, from step {began + 1} to step {step}")
    with tempfile.TemporaryDirectory() as nowhere:
        records = RunFolder(Path(nowhere))
        loop = Loop(task, settings, accelerator, records, NoTracker(), state, found or moments)
        loop.progress = Progress(step, began, shown=True, first=loop.first, monitor=task.monitor)
        try:
            advance(loop, step - 1)
            samples = losses(task, step, loop.device)
            loop.advance(step)
        finally:
            loop.progress.close()
    samples.sort(key=lambda sample: -sample.loss if sample.loss == sample.loss else float("-inf"))
    last = loop.unread[-1]
    return Replayed(step, began, float(last.loss), float(last.norm), samples)


def advance(loop: Loop, step: int) -> None:
    """Train up to a step, and print the progress every `log_every` steps."""
    start, began, every = loop.state.step, time.perf_counter(), loop.task.training.log_every
    for reached in range(start + every, step + 1, every):
        loop.advance(reached)
        seconds_a_step = (time.perf_counter() - began) / (reached - start)
        row = {"step": reached, "train/loss": float(loop.unread[-1].loss)}
        loop.progress.report(row, seconds_a_step * (step - reached))
    loop.advance(step)


def open_run(folder: Path) -> Opened:
    """Return a run with its data prepared, for one process, which cannot shard."""
    summary = RunFolder(folder).summary()
    name = str(summary["pipeline"]) if summary else folder.resolve().parent.name
    pipeline = registry.pipelines().get(name)
    if pipeline is None:
        raise InputError(f"{folder} is no run of a pipeline: give a folder runs/<pipeline>/…")
    config = read_config(folder, pipeline.config_of_run)
    config = changed(config, runtime=plain(config)["runtime"] | {"fsdp": False})
    opened: Opened = pipeline.task(resolve(config))
    return opened


def newest_before(folder: Path, step: int, *, moments: bool = True) -> Path | None:
    """Return the newest checkpoint before a step, with AdamW's moments or any."""
    for path in reversed(checkpoint.steps_in(folder / "checkpoints")):
        usable = not moments or (path / checkpoint.OPTIMIZER).is_file()
        if checkpoint.step_of(path) < step and usable and checkpoint.damage(path) is None:
            return path
    return None


@torch.no_grad()
def losses(task: Task, step: int, device: torch.device) -> list[Sample]:
    """Return the loss of every example of a step with the current weights."""
    task.model.eval()
    samples = []
    for key in task.keys(step, 0, 1):
        for place, row in enumerate(task.samples(key)):
            batch = task.batches[key[place : place + 1]]
            (text,), targets = task.texts(batch), task.targets(batch)
            one = {name: tensor.to(device) for name, tensor in batch.items()}
            loss = float(task.loss(task.model, one).sum()) / max(1, targets)
            samples.append(Sample(row, targets, loss, text))
    return samples
