"""The only training loop. Every pipeline brings a `Task`; everything else is here.

    for step in done+1 … steps:
        seed the generators with (seed, step, rank)        dropout has no state to save
        micro-batches ← this rank's share of the step      a pure function of (seed, step)
        targets       ← Σ over micro-batches and ranks     the one normaliser of the step
        for each micro-batch:
            backward(sum of its losses / targets)          reduced at the last one, by FSDP at each
        clip, step, count
        log / evaluate / checkpoint when due

The gradient is the mean over all targets of the step, however the step is divided: one process with a
batch of 4n, two processes with 2n each, or n with four accumulation steps (to the order of the sums).
The learning rate is a function of the step. On a CPU, a run that stops anywhere and resumes is bitwise
the run that never stopped.
"""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

from roformer.errors import Diverged
from roformer.models.transformer import compile_blocks, recompute_blocks
from roformer.training import checkpoint as checkpoints
from roformer.training.distributed import cast_like_autocast, gathered, is_sharded, whole
from roformer.training.hardware import peak_flops, peak_memory_bytes, widest_float
from roformer.training.optim import build_optimizer, learning_rate, weight_norm
from roformer.training.process import KeptMemory, ignore_signals
from roformer.training.records import RunFolder, append
from roformer.training.spikes import Spike, SpikeWatch
from roformer.training.state import State, begin_step
from roformer.training.task import Batch, Task, is_trial
from roformer.training.tracking import NoTracker, Progress

MOST_SKIPPED = 40
"""Give up after this many consecutive fp16 overflows: after so many halvings the scale is not at fault."""
LOOK_EVERY = 10
"""Steps between two readings of the device's counters, if reading them makes the host wait."""


class Stopped(SystemExit):
    """A signal stopped the run after a checkpoint; the exit code is 128 + signal."""


class UnreadStep(NamedTuple):
    """A step that the host has not read yet: reading it makes the host wait for the device."""

    before: Tensor
    """The loss of the log interval before this step."""
    after: Tensor
    targets: int
    norm: Tensor

    @property
    def loss(self) -> Tensor:
        """The mean over the targets of this process."""
        return ((self.after - self.before) / max(1, self.targets)).sum()


class Loop:
    """Train a task, whose weights are loaded, from `state.step` to the last step.

    The optimizer's moments come from `checkpoint`, which may be another run's; None: they are new.
    """

    def __init__(
        self,
        task: Task,
        accelerator: Accelerator,
        folder: RunFolder,
        tracker: NoTracker,
        state: State,
        checkpoint: Path | None,
    ):
        self.task, self.config, self.accelerator = task, task.config, accelerator
        self.folder, self.tracker, self.state = folder, tracker, state
        self.rank, self.world_size = accelerator.process_index, accelerator.num_processes
        self.first, self.device = accelerator.is_main_process, accelerator.device
        config, runtime, training = task.config, task.config.runtime, task.training
        self.rate = learning_rate(config.schedule, config.optimizer.learning_rate, training.steps)
        self.checkpoints = checkpoints.Checkpoints(
            folder.path / "checkpoints",
            keep=max(runtime.keep_checkpoints, task.keep_checkpoints),
            every=training.checkpoint_every,
            keep_at=training.keep_at,
        )
        if self.first:
            self.checkpoints.tidy(state.step, best=0 < state.best_step == state.step)

        self.sharded = is_sharded(accelerator)
        # FSDP moves and shards one block at a time, so that the whole model need not fit on the device.
        if not self.sharded:
            task.model.to(self.device)
        self.adamw = build_optimizer(config.optimizer, task.model)
        cast_like_autocast(task.model, self.device, training.precision)
        if runtime.gradient_checkpointing:
            recompute_blocks(task.model)
        if runtime.compile:
            compile_blocks(task.model)
        self.model, self.optimizer = accelerator.prepare(task.model, self.adamw)
        if isinstance(self.model, DistributedDataParallel):
            # All ranks draw the same buffers. A forward pass that sends them would wait for a rank that
            # has no batch of a validation. accelerate's own argument for it is deprecated in torch.
            self.model.broadcast_buffers = False
        # A run killed between its last step and its summary has no moments, and needs none.
        if checkpoint is not None and state.step < training.steps:
            checkpoints.load_optimizer(checkpoint, task.model, self.adamw)
        self.scaler = accelerator.scaler
        if self.scaler is not None and state.scaler is not None:
            self.scaler.load_state_dict(state.scaler)

        # Counters live on the device, so that no step waits for the host to read them. The stored loss
        # is the sum over ranks, so only the first rank adds it.
        wide = widest_float(self.device)
        parts = [len(task.losses)] if task.losses else []
        self.window_loss = torch.zeros(parts, dtype=wide, device=self.device)
        if self.rank == 0:
            self.window_loss += torch.tensor(state.window_loss, dtype=wide, device=self.device)
        self.unread: list[UnreadStep] = []
        """The steps since the last look."""
        self.norm = 0.0
        self.spikes = [SpikeWatch(state.usual_loss) for _ in range(self.world_size)]
        # Targets, tokens, samples, and whether to stop, summed over the ranks since the last look.
        self.counts = torch.zeros(4, dtype=torch.int64, device=self.device)
        self.skipped_in_a_row = 0
        self.signal: int | None = None
        self.metrics: dict[str, float] = {}
        self.memory = KeptMemory(limited=runtime.tune_process)
        self.progress = Progress(
            training.steps, state.step, runtime.progress, self.first, task.monitor
        )
        self.began = self.lap_began = time.perf_counter()
        self._logged = state.tokens, state.seconds

    def run(self) -> tuple[State, dict[str, float]]:
        """Train to the end; return the final state and the last evaluation's metrics.

        Raises:
            Diverged: a non-finite loss; the step is named, and no checkpoint was written after it.
            Stopped: SIGTERM or Ctrl-C; a checkpoint was written.
        """
        training, state = self.task.training, self.state
        handlers = {s: signal.signal(s, self._on_signal) for s in (signal.SIGTERM, signal.SIGINT)}
        try:
            batches = self._batches()
            self.began = self.lap_began = time.perf_counter()
            while state.step < training.steps:
                self._step(batches)
                log, evaluate = self._due(training.log_every), self._due(training.evaluate_every)
                checkpoint = self._due(training.checkpoint_every) or state.step in training.keep_at
                if log or evaluate or checkpoint or self._may_look():
                    stop = self._look()
                    row = self._training_row() if log else {}
                    improved = self._evaluate(row) if evaluate else False
                    if row:
                        self._log(row)
                    if checkpoint or improved or stop:
                        self._save(best=improved)
                    if stop:
                        self.progress.say(
                            f"stopped at step {state.step}, checkpoint saved: the same command resumes"
                        )
                        raise Stopped(128 + (self.signal or signal.SIGTERM))
                    self.lap_began = time.perf_counter()
            if not self.metrics:  # resumed after the last step: everything is logged already
                self._evaluate({})
            state.wall_seconds += time.perf_counter() - self.began
            signalled = torch.tensor(int(self.signal is not None), device=self.device)
            if self._over_ranks(signalled):  # after the last look; the last step is saved
                raise Stopped(128 + (self.signal or signal.SIGTERM))
            return state, self.metrics
        finally:
            self.progress.close()
            for number, handler in handlers.items():
                signal.signal(number, handler)

    # --- a step ----------------------------------------------------------------------------------

    def _batches(self) -> Iterator[Batch]:
        """Return this rank's micro-batches from the next step on."""
        steps = range(self.state.step + 1, self.task.training.steps + 1)
        keys = (key for step in steps for key in self.task.keys(step, self.rank, self.world_size))
        loader: DataLoader[Batch] = DataLoader(
            self.task.batches,
            sampler=keys,
            batch_size=None,
            num_workers=self.config.runtime.num_workers,
            pin_memory=self.device.type == "cuda",
            worker_init_fn=ignore_signals,
        )
        return iter(loader)

    def _step(self, batches: Iterator[Batch]) -> None:
        """Make one optimizer step, over all micro-batches of all ranks."""
        task, step = self.task, self.state.step + 1
        begin_step(task.model, self.config.seed, step, self.rank)
        keys = task.keys(step, self.rank, self.world_size)
        window = [next(batches) for _ in keys]
        # A rank without samples makes a pass that adds nothing, because the others wait for it.
        filled = window if len(keys[0]) else []
        targets = sum(task.targets(batch) for batch in filled)
        tokens = sum(task.tokens(batch) for batch in filled)
        samples = sum(len(batch["input_ids"]) for batch in filled)
        counted = [targets, tokens, samples, int(self.signal is not None)]
        # From pinned memory: a copy from any other waits for all that the device has to do before it.
        sent = torch.tensor(counted, pin_memory=self.device.type == "cuda")
        counts = self._over_ranks(sent.to(self.device, non_blocking=True))
        self.counts += counts
        # Processes average their gradients; the sum over the targets of all of them is wanted.
        scale = self.world_size / counts[0].clamp(min=1)
        before = self.window_loss
        self.model.train()
        passes = len(window)
        if self.sharded:
            # All ranks make equally many passes: one with fewer repeats its last for nothing.
            ranks = range(self.world_size)
            passes = max(len(task.keys(step, rank, self.world_size)) for rank in ranks)
        for index in range(passes):
            batch = window[min(index, len(window) - 1)]
            batch = {k: v.to(self.device, non_blocking=True) for k, v in batch.items()}
            # FSDP would keep whole gradients until it may reduce them.
            reduces = self.sharded or index == passes - 1
            with nullcontext() if reduces else self.accelerator.no_sync(self.model):
                loss = task.loss(self.model, batch) * (index < len(filled))
                self.accelerator.backward(loss.sum() * scale)
            self.window_loss = self.window_loss + loss.detach().to(self.window_loss)

        clip = self.config.optimizer.clip_norm or math.inf
        norm = whole(self.accelerator.clip_grad_norm_(self.model.parameters(), clip))
        self.unread.append(UnreadStep(before, self.window_loss, targets, norm))
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate(step)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.state.step = step
        self.state.window_steps += 1
        self.memory.after_step()
        self.progress.step()

    def _over_ranks(self, values: Tensor) -> Tensor:
        """Return the sum over all ranks."""
        return self.accelerator.reduce(values, "sum") if self.world_size > 1 else values

    # --- what the host reads -----------------------------------------------------------------------

    def _due(self, every: int) -> bool:
        return self.state.step % every == 0 or self.state.step == self.task.training.steps

    def _may_look(self) -> bool:
        """Return whether reading the counters is cheap, or due by itself."""
        free = self.device.type == "cpu" or (self.world_size == 1 and self.signal is not None)
        return free or self.state.step % LOOK_EVERY == 0

    def _look(self) -> bool:
        """Copy the counters to the host; return whether a rank was asked to stop.

        Raise Diverged if the loss or its gradient was not finite since the last look.
        """
        state = self.state
        targets, tokens, samples, stop = self.counts.tolist()
        self.counts.zero_()
        state.window_targets += targets
        state.tokens += tokens
        state.samples += samples
        for spike in self._read_steps():
            self._report(spike)
        now = time.perf_counter()
        state.seconds += now - self.lap_began
        state.wall_seconds += now - self.began
        self.began = now
        return stop > 0

    def _read_steps(self) -> Iterator[Spike]:
        """Read the steps since the last look; yield the spikes of all ranks, and a step that diverged."""
        steps, self.unread = self.unread, []
        rows = torch.stack([torch.stack([step.loss, step.norm.to(step.loss)]) for step in steps])
        by_step = self.accelerator.gather(rows[None]).transpose(0, 1).tolist()
        for step, ranks in enumerate(by_step, self.state.step - len(steps) + 1):
            losses, self.norm = [loss for loss, _ in ranks], ranks[0][1]
            infinite = [rank for rank, loss in enumerate(losses) if not math.isfinite(loss)]
            diverged = overflowed = not math.isfinite(self.norm)
            if self.scaler is not None:  # it expects infinite gradients and skips their steps
                self.state.skipped += overflowed
                self.skipped_in_a_row = self.skipped_in_a_row + 1 if overflowed else 0
                diverged = bool(infinite) or self.skipped_in_a_row == MOST_SKIPPED
            if diverged:
                rank = infinite[0] if infinite else 0
                yield Spike(step, rank, math.nan, self.spikes[rank].known[1])
            for rank, (watch, loss) in enumerate(zip(self.spikes, losses, strict=True)):
                usual = watch.known[1]
                if loss and watch.see(loss):  # 0: the rank had no samples
                    yield Spike(step, rank, loss, usual)

    def _report(self, spike: Spike) -> None:
        """Record a spike with the samples of its batch; raise Diverged if the step was not finite."""
        step = spike.step
        if self.first:
            keys = self.task.keys(step, spike.rank, self.world_size)
            rows = [self.task.samples(key) for key in keys]
            append(self.folder.spikes, {**spike._asdict(), "samples": rows})
        samples = f"its samples: {self.folder.spikes}"
        if math.isnan(spike.loss):
            raise Diverged(
                f"the loss or its gradient is not finite at step {step}: lower "
                "optimizer.learning_rate or lengthen the warm-up; the checkpoints are from "
                f"before it; {samples}"
            )
        self.progress.say(
            f"loss spike at step {step}: {spike.loss:.3f} where {spike.usual:.3f} was usual; {samples}"
        )

    def _training_row(self) -> dict[str, Any]:
        """Return the training metrics since the last log step, and start a new window."""
        state, device = self.state, self.device
        tokens, seconds = state.tokens - self._logged[0], state.seconds - self._logged[1]
        speed = tokens / seconds if seconds > 0 else 0.0
        losses = self._over_ranks(self.window_loss) / max(1, state.window_targets)
        row = {
            "train/loss": float(losses.sum()),
            **{f"train/{k}": float(losses[i]) for i, k in enumerate(self.task.losses)},
            "train/targets_per_update": state.window_targets / max(1, state.window_steps),
            "train/learning_rate": self.rate(state.step),
            "train/grad_norm": self.norm,
            "train/weight_norm": weight_norm(self.task.model),
            "perf/tokens_per_second": speed,
            "perf/tokens_per_second_per_device": speed / self.world_size,
            "perf/peak_memory_bytes": peak_memory_bytes(device),
        }
        if self.scaler is not None:
            row["train/loss_scale"] = self.scaler.get_scale()
            row["train/skipped_updates"] = state.skipped
        peak = peak_flops(device) if self.task.training.precision != "fp32" else None
        if peak is not None:
            row["perf/mfu"] = speed * self.task.flops_per_token / (self.world_size * peak)
        self.window_loss = torch.zeros_like(self.window_loss)
        state.window_targets = state.window_steps = 0
        self._logged = state.tokens, state.seconds
        return row

    def _evaluate(self, row: dict[str, Any]) -> bool:
        """Add the validation metrics to `row`; return whether the monitored one is the best yet."""
        state, task = self.state, self.task
        self.model.eval()
        whole_model = gathered(self.model) if self.sharded else nullcontext()
        with self.progress.evaluating(), torch.no_grad(), whole_model:
            metrics = task.evaluate(self.model, self.accelerator)
        # Hosts may differ in the last bit of a metric, but all ranks must agree on when to save.
        (self.metrics,) = broadcast_object_list([metrics])
        row |= self.metrics
        late = 2 * state.step >= self.task.training.steps and not is_trial(state.step)
        if late and task.degenerate(self.metrics):
            self.progress.say(
                f"warning: after {state.step} steps the model is no better than one that ignores "
                "its input: lengthen the warm-up or change optimizer.learning_rate"
            )
        self.memory.give_back()
        value, sign = self.metrics[task.monitor], 1 if task.higher_is_better else -1
        # A metric that is not defined (NaN) is never the best.
        improved = value == value and (state.best is None or sign * value > sign * state.best)
        if improved:
            state.best, state.best_step, state.best_metrics = value, state.step, self.metrics
        return improved

    def _log(self, row: dict[str, Any]) -> None:
        state = self.state
        counts = {"data/tokens": state.tokens, "data/samples": state.samples}
        row = {"step": state.step, **row, **counts}
        if self.first:
            append(self.folder.metrics, row)
            self.tracker.log(row)
            left = (self.task.training.steps - state.step) * state.seconds
            self.progress.report(row, left / max(1, state.step))

    def _save(self, *, best: bool) -> None:
        """Write a checkpoint on the first rank; the others wait."""
        state = self.state
        state.window_loss = self._over_ranks(self.window_loss).tolist()
        # Ranks know their own losses; the next start gets the mean.
        known = zip(*(watch.known for watch in self.spikes), strict=True)
        state.usual_loss = [sum(values) / self.world_size for values in known]
        state.scaler = self.scaler.state_dict() if self.scaler else None
        state.tracker_id = self.tracker.run_id
        weights = checkpoints.model_tensors(self.task.model)
        moments = checkpoints.optimizer_tensors(self.task.model, self.adamw)
        if self.first:
            self.checkpoints.save(
                state.step, weights, moments, asdict(state), self.task.description, best=best
            )
        self.accelerator.wait_for_everyone()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        # Batch systems may repeat a SIGTERM; a second Ctrl-C means at once.
        if self.signal is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal = number
