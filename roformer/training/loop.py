"""The only training loop. Every pipeline brings a `Task`; everything else is here.

    for update in done+1 … steps:
        seed the generators with (seed, update, rank)      dropout has no state to save
        micro-batches ← this rank's share of the update    a pure function of (seed, update)
        targets       ← Σ over micro-batches and ranks     the one normaliser of the update
        for each micro-batch:
            backward(sum of its losses / targets)          gradients meet once, at the last one
        clip, step, count
        log / evaluate / checkpoint when due

So the gradient is that of the mean over all targets of the update, however it is cut: one process
with a batch of 4n, two with 2n each, or n with four accumulation steps (to the order of the sums).
The learning rate is a function of the update; nothing is stepped by the number of processes. A run
stopped anywhere and resumed is, on a CPU, bitwise the run never stopped.
"""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.utils.data import DataLoader, Sampler

from roformer.errors import Diverged
from roformer.training import checkpoint as checkpoints
from roformer.training.hardware import peak_flops, peak_memory_bytes
from roformer.training.optim import build_optimizer, learning_rate
from roformer.training.records import RunFolder
from roformer.training.task import Batch, Settings, Task
from roformer.training.tracking import Progress, Tracker

COUNTS = ("targets", "tokens", "samples", "asked to stop")
"""What is summed over the ranks in every update."""


@dataclass
class State:
    """Everything a resumed run continues from, besides weights and moments."""

    step: int = 0
    tokens: int = 0
    samples: int = 0
    seconds: float = 0.0
    """Spent in updates: without evaluation and checkpoints."""
    wall_seconds: float = 0.0
    """Spent in all, over every start of the run."""
    window_loss: float = 0.0
    """Loss summed since the last log step, over all ranks; the targets and updates it covers."""
    window_targets: int = 0
    window_updates: int = 0
    best: float | None = None
    best_step: int = 0
    best_metrics: dict[str, float] = field(default_factory=dict)
    """All metrics of the evaluation whose monitored one is the best; none while that is NaN."""
    scaler: dict[str, Any] | None = None
    """Of fp16's loss scaler."""
    skipped: int = 0
    """Updates that fp16's loss scaler left out because its gradients overflowed."""
    tracker_id: str | None = None


class Stopped(SystemExit):
    """The run was asked to end by a signal, and saved a checkpoint; the code is 128 + signal."""


def restore(task: Task, checkpoint: Path | None) -> State:
    """Load a checkpoint's weights into the task's model and return the state to go on from.

    Raises:
        InputError: the checkpoint is of another model.
    """
    if checkpoint is None:
        return State()
    checkpoints.load_model(checkpoint, task.model, task.description)
    return State(**checkpoints.load_state(checkpoint))


class Loop:
    """One run of the updates from `state.step` to the end.

    Args:
        task: what is trained; `restore` has loaded its weights.
        settings: of the pipeline's config.
        accelerator: devices, processes, autocast.
        folder: the run's records.
        tracker: their mirror.
        state: where to start.
        checkpoint: where `state` was read, for the optimizer; None for a new run.
    """

    def __init__(
        self,
        task: Task,
        settings: Settings,
        accelerator: Accelerator,
        folder: RunFolder,
        tracker: Tracker,
        state: State,
        checkpoint: Path | None,
    ):
        self.task, self.settings, self.accelerator = task, settings, accelerator
        self.folder, self.tracker, self.state = folder, tracker, state
        runtime, training = settings.runtime, settings.training
        self.rank, self.world_size = accelerator.process_index, accelerator.num_processes
        self.device = accelerator.device
        self.rate = learning_rate(
            settings.schedule, settings.optimizer.learning_rate, training.steps
        )
        self.checkpoints = checkpoints.Checkpoints(
            folder.path / "checkpoints",
            keep=max(runtime.keep_checkpoints, settings.keep_checkpoints),
            every=training.checkpoint_every,
        )
        task.model.to(self.device)
        self.adamw = build_optimizer(settings.optimizer, task.model)
        if checkpoint is not None:
            checkpoints.load_optimizer(checkpoint, task.model, self.adamw)
        if runtime.compile:
            task.model.compile()
        self.model, self.optimizer = accelerator.prepare(task.model, self.adamw)
        if accelerator.scaler is not None and state.scaler is not None:
            accelerator.scaler.load_state_dict(state.scaler)
        self.progress = Progress(
            training.steps, state.step, shown=accelerator.is_main_process and runtime.progress
        )
        self.metrics: dict[str, float] = {}
        self.signal: int | None = None
        # Counters live on the device, so that no update waits for the host to read them. What was
        # stored is summed over ranks: the first one carries it on.
        wide = torch.float32 if self.device.type == "mps" else torch.float64
        carried = state.window_loss if self.rank == 0 else 0.0
        self.window_loss = torch.tensor(carried, dtype=wide, device=self.device)
        self.counts = torch.zeros(len(COUNTS), dtype=torch.int64, device=self.device)
        self.first_bad = torch.zeros(1, dtype=torch.int64, device=self.device)
        self.norm = torch.zeros((), device=self.device)
        self.began = self.lap_began = time.perf_counter()
        self._logged = self._work()

    def run(self) -> tuple[State, dict[str, float]]:
        """Train to the end; return the final state and the last evaluation's metrics.

        Raises:
            Diverged: a non-finite loss; the step is named, and no checkpoint was written after it.
            Stopped: SIGTERM or Ctrl-C; a checkpoint was written.
        """
        training, state = self.settings.training, self.state
        handlers = {s: signal.signal(s, self._on_signal) for s in (signal.SIGTERM, signal.SIGINT)}
        try:
            batches = iter(self._loader())
            self.began = self.lap_began = time.perf_counter()
            while state.step < training.steps:
                self._update(batches)
                log, evaluate = self._due(training.log_every), self._due(training.evaluate_every)
                checkpoint = self._due(training.checkpoint_every)
                if log or evaluate or checkpoint or self._watched():
                    stop = self._sync()
                    row = self._training_row() if log else {}
                    improved = self._evaluate(row) if evaluate else False
                    if row:
                        self._log(row)
                    if checkpoint or improved or stop:
                        self._save(best=improved)
                    if stop:
                        raise Stopped(128 + (self.signal or signal.SIGTERM))
                    self.lap_began = time.perf_counter()
            if not self.metrics:  # resumed after the last update: all is logged but not summed up
                self._evaluate({})
            state.wall_seconds += time.perf_counter() - self.began
            return state, self.metrics
        finally:
            self.progress.close()
            for number, handler in handlers.items():
                signal.signal(number, handler)

    def _loader(self) -> DataLoader[Batch]:
        """Return this rank's micro-batches from the next update on."""
        updates = range(self.state.step + 1, self.settings.training.steps + 1)
        return DataLoader(
            self.task.batches,
            sampler=UpdateKeys(self.task, updates, self.rank, self.world_size),
            batch_size=None,
            num_workers=self.settings.runtime.num_workers,
            pin_memory=self.device.type == "cuda",
            worker_init_fn=leave_signals_to_the_parent,
        )

    def _update(self, batches: Iterator[Batch]) -> None:
        """Make one update of the weights, over all micro-batches of all ranks."""
        task, update = self.task, self.state.step + 1
        seed_generators(self.settings.seed, update, self.rank)
        window = [next(batches) for _ in task.keys(update, self.rank, self.world_size)]
        counts = self._sum_over_ranks(
            [
                sum(task.targets(batch) for batch in window),
                sum(task.tokens(batch) for batch in window),
                sum(len(batch["input_ids"]) for batch in window),
                int(self.signal is not None),
            ]
        )
        self.counts += counts
        # Processes average their gradients; the sum over the targets of all is wanted.
        scale = self.world_size / counts[0].clamp(min=1)
        self.model.train()
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate(update)
        for index, batch in enumerate(window):
            batch = {k: v.to(self.device, non_blocking=True) for k, v in batch.items()}
            last = index == len(window) - 1
            with nullcontext() if last else self.accelerator.no_sync(self.model):
                loss = task.loss(self.model, batch)
                self.accelerator.backward(loss * scale)
            self.window_loss += loss.detach().to(self.window_loss)
        clip = self.settings.optimizer.clip_norm or math.inf
        self.norm = self.accelerator.clip_grad_norm_(self.model.parameters(), clip)
        # A loss scaler expects infinite gradients and skips them; then only the loss tells.
        telling = self.norm if self.accelerator.scaler is None else self.window_loss
        self.first_bad += update * (~torch.isfinite(telling) & (self.first_bad == 0))
        scaler = self.accelerator.scaler
        before = scaler.get_scale() if scaler is not None else 0.0
        self.optimizer.step()
        if scaler is not None:  # it halves the scale where it left an update out
            self.state.skipped += int(scaler.get_scale() < before)
        self.optimizer.zero_grad()
        self.state.step = update
        self.state.window_updates += 1
        self.progress.step()

    def _watched(self) -> bool:
        """Whether to look at the counters after every update: where that is free."""
        return self.device.type == "cpu" or (self.world_size == 1 and self.signal is not None)

    def _sync(self) -> bool:
        """Bring the counters to the host; return whether some rank was asked to stop.

        Raises:
            Diverged: an update went wrong since the last look.
        """
        state = self.state
        targets, tokens, samples, stop = self.counts.tolist()
        self.counts.zero_()
        state.window_targets += targets
        state.tokens += tokens
        state.samples += samples
        bad = self.accelerator.gather(self.first_bad)
        if bad.any():
            raise Diverged(
                f"the loss or its gradient is not finite at step {int(bad[bad > 0].min())}: lower "
                "optimizer.learning_rate, lengthen the warm-up, or look at that step's batch; "
                "the checkpoints are from before it"
            )
        now = time.perf_counter()
        state.seconds += now - self.lap_began
        state.wall_seconds += now - self.began
        self.began = now
        return stop > 0

    def _training_row(self) -> dict[str, Any]:
        """Return what is known of the updates since the last log step, and start a new window."""
        state, device = self.state, self.device
        (loss,) = self._sum_over_ranks([self.window_loss]).tolist()
        tokens, seconds = (now - then for now, then in zip(self._work(), self._logged, strict=True))
        speed = tokens / seconds if seconds > 0 else 0.0
        half = self.settings.training.precision != "fp32"
        peak = peak_flops(device) if half else None
        row = {
            "train/loss": loss / max(1, state.window_targets),
            "train/targets_per_update": state.window_targets / max(1, state.window_updates),
            "train/learning_rate": self.rate(state.step),
            "train/grad_norm": float(self.norm),
            "train/weight_norm": weight_norm(self.task.model),
            "perf/tokens_per_second": speed,
            "perf/tokens_per_second_per_device": speed / self.world_size,
            "perf/peak_memory_bytes": peak_memory_bytes(device),
        }
        if self.accelerator.scaler is not None:
            row["train/loss_scale"] = self.accelerator.scaler.get_scale()
            row["train/skipped_updates"] = state.skipped
        if peak is not None:
            row["perf/mfu"] = speed * self.task.flops_per_token / (self.world_size * peak)
        self.window_loss.zero_()
        state.window_targets = state.window_updates = 0
        self._logged = self._work()
        return row

    def _evaluate(self, row: dict[str, Any]) -> bool:
        """Add the validation metrics to `row`; return whether the monitored one is the best yet."""
        self.model.eval()
        with torch.no_grad():
            self.metrics = self.task.evaluate(self.model, self.accelerator)
        row |= self.metrics
        half_way = 2 * self.state.step >= self.settings.training.steps
        if half_way and self.task.degenerate(self.metrics):
            self.progress.say(
                f"warning: after {self.state.step} steps the model is no better than one that ignores "
                "its input: lengthen the warm-up or change optimizer.learning_rate"
            )
        value, best = self.metrics[self.task.monitor], self.state.best
        higher = self.task.higher_is_better
        # A metric that is not defined (NaN) is never the best.
        improved = value == value and (best is None or (value > best if higher else value < best))
        if improved:
            self.state.best, self.state.best_step = value, self.state.step
            self.state.best_metrics = self.metrics
        return improved

    def _log(self, row: dict[str, Any]) -> None:
        state = self.state
        row = {
            "step": state.step,
            **row,
            "data/tokens": state.tokens,
            "data/samples": state.samples,
        }
        if self.accelerator.is_main_process:
            self.folder.log(row)
            self.tracker.log(row)
            left = (self.settings.training.steps - self.state.step) * self.state.seconds
            self.progress.report(row, left / max(1, self.state.step))

    def _save(self, *, best: bool) -> None:
        """Write a checkpoint on the first rank; the others wait."""
        state = self.state
        (loss,) = self._sum_over_ranks([self.window_loss]).tolist()
        state.window_loss = loss
        state.scaler = self.accelerator.scaler.state_dict() if self.accelerator.scaler else None
        state.tracker_id = self.tracker.run_id
        if self.accelerator.is_main_process:
            self.checkpoints.save(
                state.step,
                self.task.model,
                self.adamw,
                asdict(state),
                self.task.description,
                best=best,
            )
        self.accelerator.wait_for_everyone()

    def _sum_over_ranks(self, values: list[Any]) -> Tensor:
        """Return the sums over ranks of some numbers, (len,), on the device and unread."""
        if values and isinstance(values[0], Tensor):
            local = torch.stack(values)
        else:
            local = torch.tensor(values, dtype=torch.int64, device=self.device)
        return self.accelerator.reduce(local, "sum") if self.world_size > 1 else local

    def _due(self, every: int) -> bool:
        return self.state.step % every == 0 or self.state.step == self.settings.training.steps

    def _work(self) -> tuple[int, float]:
        return self.state.tokens, self.state.seconds

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.signal is not None:  # asked twice: do not wait for the checkpoint
            raise KeyboardInterrupt
        self.signal = number


class UpdateKeys(Sampler[Any]):
    """The keys of one rank's micro-batches in the given updates, made as they are needed."""

    def __init__(self, task: Task, updates: range, rank: int, world_size: int):
        self.task, self.updates, self.rank, self.world_size = task, updates, rank, world_size

    def __iter__(self) -> Iterator[Any]:
        for update in self.updates:
            yield from self.task.keys(update, self.rank, self.world_size)


@torch.no_grad()
def weight_norm(model: nn.Module) -> float:
    """Return the Euclidean norm of all weights."""
    norms = [parameter.detach().norm() for parameter in model.parameters()]
    return float(torch.stack(norms).norm())


def leave_signals_to_the_parent(worker: int) -> None:
    """Keep a batch-making process alive while the loop ends in order; it dies with the loop."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def seed_generators(seed: int, update: int, rank: int) -> None:
    """Seed torch on all devices for one update of one rank, so that dropout needs no saved state."""
    (state,) = np.random.SeedSequence((seed, update, rank)).generate_state(1, np.uint64)
    torch.manual_seed(int(state) >> 1)
