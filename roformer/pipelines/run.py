"""What every pipeline does around its training: devices, run folder, resume, summary."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from accelerate import Accelerator

from roformer.config import schema
from roformer.config.build import plain, run_id, to_yaml
from roformer.errors import InputError
from roformer.training.checkpoint import Checkpoints
from roformer.training.hardware import computes_in_bf16, default_device, peak_memory_bytes
from roformer.training.loop import Loop, State, restore
from roformer.training.process import tune_process
from roformer.training.records import RunFolder, environment, repository_state
from roformer.training.task import Settings, Task
from roformer.training.tracking import NoTracker, open_tracker


class RunConfig(Settings, Protocol):
    """What every pipeline's config has."""

    @property
    def recipe(self) -> str: ...
    @property
    def model(self) -> schema.EncoderConfig: ...
    @property
    def data(self) -> schema.Text: ...
    @property
    def resume(self) -> bool | str: ...
    @property
    def tracker(self) -> schema.TrackerConfig: ...


C = TypeVar("C", bound=Any)


def resolve(config: C) -> C:
    """Return the config with `auto` device and precision replaced by what this machine has."""
    device = config.runtime.device
    device = default_device() if device == "auto" else device
    precision = config.training.precision
    if precision == "auto":
        precision = "bf16" if computes_in_bf16(device) else "fp32"
    return replace(
        config,
        runtime=replace(config.runtime, device=device),
        training=replace(config.training, precision=precision),
    )


def local_rank() -> int:
    """Return which process of this machine this is, before any process group exists."""
    return int(os.environ.get("LOCAL_RANK", "0"))


def say(line: str) -> None:
    """Print a line on the first process of the machine."""
    if local_rank() == 0:
        print(line, flush=True)


class Run:
    """One run of a pipeline, from its config to its summary.

    Args:
        pipeline: `pretrain`, …: the folder under `runs/`.
        config: resolved (see `resolve`).
    """

    def __init__(self, pipeline: str, config: RunConfig):
        self.pipeline, self.config = pipeline, config
        self.id = run_id(config)
        self.folder = RunFolder(Path(config.runtime.runs_dir) / pipeline / self.id)
        runtime = config.runtime
        self.process: dict[str, Any] = (
            dict(tune_process(threads=runtime.threads)) if runtime.tune_process else {}
        )

    def finished(self) -> dict[str, Any] | None:
        """Return the summary if there is nothing left to do; set an old run aside if asked to."""
        if self.config.resume is False:
            if local_rank() == 0 and (old := self.folder.set_aside()):
                say(f"starting over; the earlier run is kept as {old}")
            return None
        summary = self.folder.summary
        if summary is not None and summary["status"] != "failed":
            say(f"already done: {self.folder.path} (resume=false runs it again)")
            return summary
        return None

    def train(self, task: Task, *, data: str, parameters: int) -> dict[str, Any]:
        """Train `task`, from the last checkpoint if there is one; write and return the summary.

        Args:
            task: what to train; its weights are initialised.
            data: fingerprint of the data.
            parameters: of the model.

        Raises:
            InputError: nothing to resume, a checkpoint of another model, more processes than work.
            Diverged: recorded as `failed` in the summary first.
        """
        config, folder = self.config, self.folder
        runtime, training = config.runtime, config.training
        accelerator = Accelerator(
            cpu=runtime.device == "cpu",
            mixed_precision={"fp32": "no"}.get(training.precision, training.precision),
        )
        main = accelerator.is_main_process
        if main:
            devices = accelerator.num_processes
            folder.begin(
                to_yaml(config),
                environment(seed=config.seed, data=data, devices=devices, process=self.process),
            )
        checkpoints = Checkpoints(folder.path / "checkpoints", keep=runtime.keep_checkpoints)
        checkpoint, problems = checkpoints.last()
        for problem in problems:
            say(f"passing over a damaged checkpoint: {problem}")
        if checkpoint is None and config.resume is True:
            raise InputError(
                f"{folder.path}: nothing to resume: there is no complete checkpoint; "
                "leave resume=true out to start the run"
            )
        state = restore(task, checkpoint)
        accelerator.wait_for_everyone()
        if main:
            folder.rewind(state.step)
        if checkpoint is not None:
            say(f"resuming at step {state.step} from {checkpoint}")
        tracker = (
            open_tracker(config.tracker, folder.path, self.id, plain(config), state.tracker_id)
            if main
            else NoTracker()
        )
        status, metrics = "failed", dict[str, float]()
        try:
            loop = Loop(task, config, accelerator, folder, tracker, state, checkpoint)
            state, metrics = loop.run()
            status = "degenerate" if task.degenerate(metrics) else "done"
        except SystemExit:
            status = "stopped"
            raise
        finally:
            summary = self._summary(status, state, metrics, parameters)
            summary["peak_memory_bytes"] = peak_memory_bytes(accelerator.device)
            if main and status != "stopped":
                error = sys.exc_info()[1]
                if error is not None:
                    summary["error"] = f"{type(error).__name__}: {error}"
                folder.finish(summary)
            tracker.finish(status, summary)
        accelerator.wait_for_everyone()
        accelerator.end_training()
        return summary

    def _summary(
        self, status: str, state: State, metrics: dict[str, float], parameters: int
    ) -> dict[str, Any]:
        config = self.config
        return {
            "pipeline": self.pipeline,
            "run_id": self.id,
            "model": config.model.name,
            "position": config.model.position.kind,
            "recipe": config.recipe,
            "data": config.data.kind,
            "seed": config.seed,
            "status": status,
            "metrics": metrics,
            "steps": state.step,
            "tokens": state.tokens,
            "wall_seconds": state.wall_seconds,
            "tokens_per_second": state.tokens / state.seconds if state.seconds else 0.0,
            "parameters": parameters,
            "command": self.folder.command(),
            "commit": repository_state()[0],
        }
