"""The only training loop. Every pipeline brings a `Task`; everything else is here.

    for step in done+1 … steps:
        seed the generators with (seed, step, rank)        dropout has no state to save
        micro-batches ← this rank's share of the step      a pure function of (seed, step)
        targets       ← Σ over micro-batches and ranks     the one normaliser of the step
        for each micro-batch:
            backward(sum of its losses / targets)          gradients are reduced once, at the last one
        clip, step, count
        log / evaluate / checkpoint when due

So the gradient is that of the mean over all targets of the step, however it is cut: one process with
a batch of 4n, two with 2n each, or n with four accumulation steps (to the order of the sums). The
learning rate is a function of the step. A run stopped anywhere and resumed is, on a CPU, bitwise the
run never stopped.
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
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor

from roformer.errors import Diverged
from roformer.training import checkpoint as checkpoints
from roformer.training.hardware import peak_flops, peak_memory_bytes
from roformer.training.optim import build_optimizer, learning_rate, weight_norm
from roformer.training.process import KeptMemory
from roformer.training.records import RunFolder
from roformer.training.sharding import cast_like_autocast, gathered, is_sharded, whole
from roformer.training.spikes import Spike, SpikeWatch, found_by_ranks
from roformer.training.state import State
from roformer.training.task import Batch, Settings, Task, is_trial
from roformer.training.tracking import NoTracker, Progress
from roformer.training.updates import UpdateKeys, begin_update, micro_batches

MOST_SKIPPED = 40
"""Steps in a row that fp16's loss scaler may skip: after so many halvings the scale is not at fault."""
LOOK_EVERY = 10
"""Steps after which all ranks look whether one was asked to stop, where looking costs a wait."""


class Stopped(SystemExit):
    """The run was asked to end by a signal, and saved a checkpoint; the code is 128 + signal."""


class Loop:
    """One run of the steps from `state.step` to the end.

    Args:
        task: what is trained; `restore` has loaded its weights.
        settings: of the pipeline's config.
        accelerator: devices, processes, autocast.
        folder: the run's records.
        tracker: their mirror.
        state: where to start.
        checkpoint: where the optimizer's moments are, its own or another run's; None: they are new.
    """

    def __init__(
        self,
        task: Task,
        settings: Settings,
        accelerator: Accelerator,
        folder: RunFolder,
        tracker: NoTracker,
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
        if accelerator.is_main_process:
            self.checkpoints.tidy(state.step, best=0 < state.best_step == state.step)
        task.model.to(self.device)
        self.adamw = build_optimizer(settings.optimizer, task.model)
        self.sharded = is_sharded(accelerator)
        if self.sharded:
            cast_like_autocast(task.model, self.device, training.precision)
        if runtime.compile:
            task.model.compile()
        self.model, self.optimizer = accelerator.prepare(task.model, self.adamw)
        # A run killed between its last step and its summary has no moments, and needs none.
        if checkpoint is not None and state.step < training.steps:
            checkpoints.load_optimizer(checkpoint, task.model, self.adamw)
        if accelerator.scaler is not None and state.scaler is not None:
            accelerator.scaler.load_state_dict(state.scaler)
        self.progress = Progress(
            training.steps, state.step, shown=runtime.progress, first=accelerator.is_main_process
        )
        self.memory = KeptMemory(limited=runtime.tune_process)
        self.metrics: dict[str, float] = {}
        self.signal: int | None = None
        # Counters live on the device, so that no step waits for the host to read them. The stored loss
        # is the sum over ranks: the first one carries it on.
        wide = torch.float32 if self.device.type == "mps" else torch.float64
        carried = state.window_loss if self.rank == 0 else 0.0
        self.window_loss = torch.tensor(carried, dtype=wide, device=self.device)
        self.spikes = SpikeWatch(self.device, wide, state.usual_loss)
        # Targets, tokens, samples, and whether to stop, summed over the ranks since the last look.
        self.counts = torch.zeros(4, dtype=torch.int64, device=self.device)
        self.first_bad = torch.zeros(1, dtype=wide, device=self.device)
        self.skipped_in_a_row = 0
        self.norm = torch.zeros((), device=self.device)
        self.last_loss = torch.zeros((), dtype=wide, device=self.device)
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
            batches = self._batches()
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
                        self.progress.say(
                            f"stopped at step {state.step}, which is saved: the same command goes on"
                        )
                        raise Stopped(128 + (self.signal or signal.SIGTERM))
                    self.lap_began = time.perf_counter()
            if not self.metrics:  # resumed after the last step: everything is logged already
                self._evaluate({})
            state.wall_seconds += time.perf_counter() - self.began
            return state, self.metrics
        finally:
            self.progress.close()
            for number, handler in handlers.items():
                signal.signal(number, handler)

    def advance(self, step: int) -> None:
        """Train up to `step` and nothing else: no record, evaluation or checkpoint."""
        batches = self._batches()
        while self.state.step < step:
            self._update(batches)

    def _batches(self) -> Iterator[Batch]:
        """Return this rank's micro-batches from the next step on."""
        updates = range(self.state.step + 1, self.settings.training.steps + 1)
        return micro_batches(
            self.task,
            UpdateKeys(self.task, updates, self.rank, self.world_size),
            workers=self.settings.runtime.num_workers,
            pin_memory=self.device.type == "cuda",
        )

    def _update(self, batches: Iterator[Batch]) -> None:
        """Make one optimizer step, over all micro-batches of all ranks."""
        task, update = self.task, self.state.step + 1
        begin_update(task.model, self.settings.seed, update, self.rank)
        window = [next(batches) for _ in task.keys(update, self.rank, self.world_size)]
        own = sum(task.targets(batch) for batch in window)
        tokens = sum(task.tokens(batch) for batch in window)
        samples = sum(len(batch["input_ids"]) for batch in window)
        counts = self._sum_over_ranks([own, tokens, samples, int(self.signal is not None)])
        self.counts += counts
        before = self.window_loss.clone()
        # Processes average their gradients; the sum over the targets of all of them is wanted.
        scale = self.world_size / counts[0].clamp(min=1)
        self.model.train()
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate(update)
        passes = self._passes(update, len(window))
        for index in range(passes):
            batch = window[min(index, len(window) - 1)]
            batch = {k: v.to(self.device, non_blocking=True) for k, v in batch.items()}
            last = index == passes - 1
            with nullcontext() if last else self.accelerator.no_sync(self.model):
                loss = task.loss(self.model, batch) * (index < len(window))
                self.accelerator.backward(loss * scale)
            self.window_loss += loss.detach().to(self.window_loss)
        self.last_loss = (self.window_loss - before) / max(1, own)
        self.spikes.see(update, self.last_loss)
        clip = self.settings.optimizer.clip_norm or math.inf
        self.norm = whole(self.accelerator.clip_grad_norm_(self.model.parameters(), clip))
        # A loss scaler expects infinite gradients and skips them; then only the loss can show divergence.
        scaler = self.accelerator.scaler
        watched = self.norm if scaler is None else self.window_loss
        self.first_bad += update * (~torch.isfinite(watched) & (self.first_bad == 0))
        old_scale = scaler.get_scale() if scaler is not None else 0.0
        self.optimizer.step()
        if scaler is not None:  # it halves the scale where it skipped a step
            skipped = scaler.get_scale() < old_scale
            self.state.skipped += int(skipped)
            self.skipped_in_a_row = self.skipped_in_a_row + 1 if skipped else 0
            if self.skipped_in_a_row == MOST_SKIPPED:
                self.first_bad += update * (self.first_bad == 0)
        self.optimizer.zero_grad()
        self.state.step = update
        self.state.window_updates += 1
        self.memory.after_update()
        self.progress.step()

    def _passes(self, update: int, own: int) -> int:
        """Return how many passes a step takes: all ranks of a sharded model make equally many.

        A rank with fewer micro-batches repeats its last one, and gives it no weight.
        """
        if not self.sharded:
            return own
        ranks = range(self.world_size)
        return max(len(self.task.keys(update, rank, self.world_size)) for rank in ranks)

    def _watched(self) -> bool:
        """Return whether to look at the counters, and at the signals of other ranks, after a step."""
        free = self.device.type == "cpu" or (self.world_size == 1 and self.signal is not None)
        return free or self.state.step % LOOK_EVERY == 0

    def _sync(self) -> bool:
        """Copy the counters to the host; return whether some rank was asked to stop.

        Raises:
            Diverged: the loss or its gradient is not finite since the last look.
        """
        state = self.state
        targets, tokens, samples, stop = self.counts.tolist()
        self.counts.zero_()
        state.window_targets += targets
        state.tokens += tokens
        state.samples += samples
        found = self.accelerator.gather(torch.cat([self.first_bad, self.spikes.found])[None])
        if found.any():
            self._report_spikes(found_by_ranks(found.tolist(), float(self.spikes.known[1])))
        now = time.perf_counter()
        state.seconds += now - self.lap_began
        state.wall_seconds += now - self.began
        self.began = now
        return stop > 0

    def _report_spikes(self, spikes: list[Spike]) -> None:
        """Record the spikes since the last look, with the samples of their batches.

        Raises:
            Diverged: a step of some rank was not finite.
        """
        self.spikes.clear()
        for spike in sorted(spikes, key=lambda spike: spike.step):
            step = spike.step
            if self.accelerator.is_main_process:
                keys = self.task.keys(step, spike.rank, self.world_size)
                samples = [self.task.samples(key) for key in keys]
                self.folder.note_spike({**spike._asdict(), "samples": samples})
            replay = (
                f"look at its batch with: python scripts/replay_batch.py {self.folder.path} {step}"
            )
            if math.isnan(spike.loss):
                raise Diverged(
                    f"the loss or its gradient is not finite at step {step}: lower "
                    "optimizer.learning_rate or lengthen the warm-up; the checkpoints are from "
                    f"before it; {replay}"
                )
            self.progress.say(
                f"loss spike at step {step}: {spike.loss:.3f} where {spike.usual:.3f} was usual; {replay}"
            )

    def _training_row(self) -> dict[str, Any]:
        """Return the training metrics since the last log step, and start a new window."""
        state, device = self.state, self.device
        (loss,) = self._sum_over_ranks([self.window_loss]).tolist()
        tokens, seconds = (now - then for now, then in zip(self._work(), self._logged, strict=True))
        speed = tokens / seconds if seconds > 0 else 0.0
        peak = peak_flops(device) if self.settings.training.precision != "fp32" else None
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
        with torch.no_grad(), gathered(self.model) if self.sharded else nullcontext():
            self.metrics = self.task.evaluate(self.model, self.accelerator)
        row |= self.metrics
        step, steps = self.state.step, self.settings.training.steps
        if 2 * step >= steps and not is_trial(step) and self.task.degenerate(self.metrics):
            self.progress.say(
                f"warning: after {step} steps the model is no better than one that ignores "
                "its input: lengthen the warm-up or change optimizer.learning_rate"
            )
        self.memory.give_back()
        value, best = self.metrics[self.task.monitor], self.state.best
        sign = 1 if self.task.higher_is_better else -1
        # A metric that is not defined (NaN) is never the best.
        if improved := value == value and (best is None or sign * value > sign * best):
            self.state.best, self.state.best_step = value, self.state.step
            self.state.best_metrics = self.metrics
        return improved

    def _log(self, row: dict[str, Any]) -> None:
        state = self.state
        counts = {"data/tokens": state.tokens, "data/samples": state.samples}
        row = {"step": state.step, **row, **counts}
        if self.accelerator.is_main_process:
            self.folder.log(row)
            self.tracker.log(row)
            left = (self.settings.training.steps - state.step) * state.seconds
            self.progress.report(row, left / max(1, state.step))

    def _save(self, *, best: bool) -> None:
        """Write a checkpoint on the first rank; the others wait."""
        state = self.state
        (loss,) = self._sum_over_ranks([self.window_loss]).tolist()
        state.window_loss = loss
        # Ranks know their own losses; the next start gets the mean.
        usual = self._sum_over_ranks([self.spikes.known])[0] / self.world_size
        state.usual_loss = usual.tolist()
        weights = checkpoints.model_tensors(self.task.model)
        moments = checkpoints.optimizer_tensors(self.task.model, self.adamw)
        state.scaler = self.accelerator.scaler.state_dict() if self.accelerator.scaler else None
        state.tracker_id = self.tracker.run_id
        if self.accelerator.is_main_process:
            self.checkpoints.save(
                state.step, weights, moments, asdict(state), self.task.description, best=best
            )
        self.accelerator.wait_for_everyone()

    def _sum_over_ranks(self, values: list[Any]) -> Tensor:
        """Return the sums over ranks of some numbers, (len,), on the device."""
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
        # Batch systems may repeat a SIGTERM; a second Ctrl-C means at once.
        if self.signal is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal = number
