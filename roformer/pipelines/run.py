"""What every pipeline does around its training: devices, run folder, resume, summary."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

import torch

from roformer.config import schema
from roformer.config.build import build, plain, run_id, to_yaml
from roformer.errors import InputError, PeerLost
from roformer.training.checkpoint import Checkpoints, drop_moments
from roformer.training.hardware import computes_in_bf16, default_device, peak_memory_bytes
from roformer.training.loop import Loop
from roformer.training.process import tells_of_a_lost_peer, tune_process
from roformer.training.records import RunFolder, environment, repository_state
from roformer.training.sharding import open_accelerator
from roformer.training.state import State, restore
from roformer.training.task import Settings, Task
from roformer.training.tracking import NoTracker, open_tracker


class Opened(NamedTuple):
    """A run's parts, made from its config: what `Run.train` would begin with."""

    config: Any
    task: Task
    training: schema.LoopConfig
    data: str
    """Fingerprint of what the result depends on besides the config."""
    start: Callable[[], Path | None] = lambda: None
    """Loads the weights that a new run begins with, if others than the task's own; returns the
    checkpoint whose moments it begins with as well."""


class Tokenizer(Protocol):
    """What is kept beside a run's weights."""

    def save(self, folder: Path) -> None: ...


C = TypeVar("C", bound=Any)


def resolve(config: C) -> C:
    """Return the config with `auto` device and precision replaced by what this machine has.

    Raises:
        InputError: the device is not there, or cannot compute in the precision asked for.
    """
    device = config.runtime.device
    device = default_device() if device == "auto" else device
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not there.get(device, True):
        raise InputError(f"runtime.device={device} is not on this machine: choose auto or cpu")
    precision = config.training.precision
    if precision == "auto":
        precision = "bf16" if computes_in_bf16(device) else "fp32"
    content = plain(config)
    content["runtime"]["device"], content["training"]["precision"] = device, precision
    resolved: C = build(type(config), content)
    return resolved


def first_process() -> bool:
    """Return whether this is rank 0, before any process group exists."""
    return os.environ.get("RANK", "0") == "0"


def say(line: str) -> None:
    """Print a line once, whatever the number of processes."""
    if first_process():
        print(line, flush=True)


class Run:
    """One run of a pipeline, from its config to its summary.

    Args:
        pipeline: `pretrain`, …: the folder under `runs/`.
        config: resolved (see `resolve`).
        data: fingerprint of the data.

    Raises:
        InputError: the run was begun on other data, or there is nothing to resume.
    """

    def __init__(self, pipeline: str, config: schema.RunConfig, data: str):
        self.pipeline, self.config, self.data = pipeline, config, data
        self.id = run_id(config)
        self.folder = RunFolder(Path(config.runtime.runs_dir) / pipeline / self.id)
        self.summary: dict[str, Any] | None = None
        """Of a run that is finished already; there is nothing left to do then."""
        self.checkpoint: Path | None = None
        """Where the run goes on from."""
        self.passed_over: list[str] = []
        """What is wrong with newer checkpoints than that."""
        self._find_what_is_there()

    def _find_what_is_there(self) -> None:
        if self.config.resume is False:
            return
        path = self.folder.path
        begun_on = self.folder.data()
        if begun_on not in (None, self.data):
            raise InputError(
                f"{path} was begun on other data (fingerprint {str(begun_on)[:8]}, now "
                f"{self.data[:8]}): resume=false starts over and keeps it aside"
            )
        summary = self.folder.summary()
        if summary is not None and summary["status"] != "failed":
            say(f"already done: {path} (resume=false runs it again)")
            self.summary = summary
            return
        self.checkpoint, problems = Checkpoints(path / "checkpoints", keep=1).last()
        self.passed_over = problems
        if self.checkpoint is None and self.config.resume is True:
            raise InputError(
                f"{path}: nothing to resume: there is no complete checkpoint; "
                "leave resume=true out to start the run"
            )

    def _take(self) -> None:
        """Lock the run; what is there is only then certain to stay so.

        Raises:
            InputError: another process is writing it.
        """
        if stale := self.folder.lock.acquire():
            say(stale)
        if self.config.resume is False:
            if old := self.folder.set_aside():
                say(f"starting over; the earlier run is kept as {old}")
            return
        self._find_what_is_there()
        for problem in self.passed_over:
            say(f"passing over a damaged checkpoint: {problem}")

    def train(
        self,
        task: Task,
        training: schema.LoopConfig,
        tokenizer: Tokenizer,
        facts: Mapping[str, Any] | None = None,
        conclude: Callable[[], Mapping[str, Any] | None] | None = None,
        keep_checkpoints: int = 1,
        moments: Path | None = None,
    ) -> dict[str, Any]:
        """Train `task`, from the last checkpoint if there is one; write and return the summary.

        Args:
            task: what is trained.
            training: how long and how precisely.
            tokenizer: is kept beside the weights.
            facts: what else the summary says.
            conclude: called on the first process when the training is done, before the summary says
                so; returns more for the summary, its `metrics` besides the last evaluation's.
            keep_checkpoints: how many of the newest the pipeline needs at the end.
            moments: the checkpoint of another run whose moments a new one begins with.

        Raises:
            InputError: a checkpoint of another model, or another process is writing this run.
            Diverged: recorded as `failed` in the summary first.
            PeerLost: another process of the run ended.
        """
        try:
            if first_process():
                self._take()
                if self.summary is not None:  # finished by another process a moment ago
                    return self.summary
            return self._train(
                task, training, tokenizer, facts or {}, conclude, keep_checkpoints, moments
            )
        finally:
            self.folder.lock.release()

    def _train(
        self,
        task: Task,
        training: schema.LoopConfig,
        tokenizer: Tokenizer,
        facts: Mapping[str, Any],
        conclude: Callable[[], Mapping[str, Any] | None] | None,
        keep_checkpoints: int,
        moments: Path | None,
    ) -> dict[str, Any]:
        config, folder = self.config, self.folder
        runtime = config.runtime
        process: dict[str, Any] = {}
        if runtime.tune_process:
            process |= tune_process(threads=runtime.threads)
        state = restore(task, self.checkpoint)
        accelerator = open_accelerator(runtime, training.precision, task.model)
        main = accelerator.is_main_process
        if main:
            folder.begin(
                to_yaml(config),
                environment(
                    seed=config.seed,
                    data=self.data,
                    devices=accelerator.num_processes,
                    process=process,
                ),
            )
            folder.rewind(state.step)
            tokenizer.save(folder.path / "tokenizer")
        if self.checkpoint is not None:
            say(f"resuming at step {state.step} from {self.checkpoint}")
        tracker = (
            open_tracker(config.tracker, folder.path, self.id, plain(config), state.tracker_id)
            if main
            else NoTracker()
        )
        status, metrics = "failed", dict[str, float]()
        more: dict[str, Any] = {}
        settings = Settings(
            config.seed, training, config.optimizer, config.schedule, runtime, keep_checkpoints
        )
        try:
            begun = self.checkpoint or moments
            loop = Loop(task, settings, accelerator, folder, tracker, state, begun)
            state, metrics = loop.run()
            if main and conclude is not None and (more := dict(conclude() or {})):
                last = more.pop("metrics", {})
                metrics = metrics | last  # not in place: the best metrics may be the same object
                folder.amend(last)
                tracker.log({"step": state.step, **last})
            if main and not runtime.keep_optimizer:
                # Before the summary: a kill in between leaves a run that the same command ends.
                drop_moments(folder.path / "checkpoints")
            status = "degenerate" if task.degenerate(metrics) else "done"
        except (SystemExit, KeyboardInterrupt, PeerLost):
            status = "stopped"
            raise
        except RuntimeError as error:
            if accelerator.num_processes > 1 and tells_of_a_lost_peer(error):
                status = "stopped"
                raise PeerLost(
                    "another process of this run ended (what it printed says why): start the same "
                    "command again, it goes on from the last checkpoint"
                ) from error
            raise
        finally:
            summary = self._summary(status, state, metrics, task)
            summary["peak_memory_bytes"] = peak_memory_bytes(accelerator.device)
            summary |= {**facts, **more}
            if main and status != "stopped":
                failure = sys.exc_info()[1]
                if failure is not None:
                    summary["error"] = f"{type(failure).__name__}: {failure}"
                # A disk that is full was told of by the first error.
                with suppress(OSError) if failure is not None else nullcontext():
                    folder.finish(summary)
            tracker.finish(status, summary)
        accelerator.wait_for_everyone()
        return summary

    def _summary(
        self, status: str, state: State, metrics: dict[str, float], task: Task
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
            "best": {"step": state.best_step, "metrics": state.best_metrics},
            "steps": state.step,
            "tokens": state.tokens,
            "wall_seconds": state.wall_seconds,
            "tokens_per_second": state.tokens / state.seconds if state.seconds else 0.0,
            "parameters": sum(parameter.numel() for parameter in task.model.parameters()),
            "command": self.folder.command(),
            "commit": repository_state()[0],
        }
