"""Train with a pipeline: devices, run folder, resume, summary."""

from __future__ import annotations

import hashlib
import json
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any, TypeVar

import torch
from accelerate.utils import broadcast_object_list

from roformer import registry
from roformer.config import schema
from roformer.config.build import build, plain, run_id, to_yaml
from roformer.config.composing import compose
from roformer.data.store import publish
from roformer.errors import InputError, ProcessLost
from roformer.inference.start import pinned
from roformer.training.checkpoint import Checkpoints, drop_moments, keep_only_best
from roformer.training.distributed import (
    first_process,
    lost_process,
    open_accelerator,
    say,
    waiting_for_first,
)
from roformer.training.hardware import (
    auto_precision,
    computes_slowly,
    default_device,
    peak_memory_bytes,
)
from roformer.training.loop import Loop
from roformer.training.process import tune_process
from roformer.training.records import RunFolder, environment, repository_state
from roformer.training.state import State, restore
from roformer.training.task import Opened, Settings, Task
from roformer.training.tracking import NoTracker, open_tracker

AUTO = "auto"
"""`init_from` of a fine-tuning that begins with the pre-training of its own model."""
BASELINES_VERSION = 1
"""Raised when the code of the baselines changes, so that cached ones are computed again."""
MOST_RUNS = 8
"""A command with more runs prints their number, not the metrics of each."""
C = TypeVar("C", bound=Any)


def resolve(config: C) -> C:
    """Return the config with `auto` replaced by the device and precision of this machine, and weights pinned.

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
        precision = auto_precision(device)
    content = plain(config)
    content["runtime"]["device"], content["training"]["precision"] = device, precision
    resolved: C = pinned(build(type(config), content))
    return resolved


def train(pipeline: str, config: Any) -> dict[str, Any]:
    """Prepare the data if it is not, train unless that is done, and return the summary.

    `init_from=auto` of a fine-tuning is made first, if it is not there.

    Raises:
        InputError: a mistake in the input; see `Run`.
        Diverged: recorded as `failed` in the summary first.
        ProcessLost: another process of the run ended.
    """
    config = with_pretraining(resolve(config))
    run = Run(pipeline, registry.get(pipeline).task(config))
    summary = run.summary or run.train()
    if run.opened.keep_only_best and first_process():  # a kill may have come before this
        keep_only_best(run.folder.path / "checkpoints")
    return summary


def outcome(pipeline: registry.Pipeline, folders: Sequence[Path]) -> str:
    """Return the headline metrics of finished runs in one line, and what is wrong with them.

    Missing runs are skipped: a run that starts from trained weights may get its id only when these are
    opened.
    """
    words, statuses = [], []
    many = len(folders) > 1
    files = [file for folder in folders if (file := folder / "summary.json").is_file()]
    for summary in (json.loads(file.read_text(encoding="utf-8")) for file in files):
        name = pipeline.headline.name if pipeline.headline else str(summary.get("headline"))
        value = summary["metrics"].get(name)
        # One line holds six tasks, so the name of a task suffices.
        title = name if pipeline.headline or not many else name.partition("/")[0]
        words.append(f"{title} {'NaN' if value is None else f'{value:.3f}'}")
        statuses.append(summary["status"])
    scores = ", ".join(words) if len(words) <= MOST_RUNS else f"{len(words)} runs"
    counts = Counter(status for status in statuses if status != "done")
    wrong = ", ".join(f"{count} {status}" if many else status for status, count in counts.items())
    return (scores or "ended") + (f" [{wrong}]" if wrong else "")


def changed(config: C, **values: Any) -> C:
    """Return a config with some keys replaced."""
    found: C = build(type(config), plain(config) | values)
    return found


def with_pretraining(config: C) -> C:
    """Return a resolved config whose `init_from=auto` is the pre-training run, made if need be."""
    if not hasattr(config, "pretraining") or config.init_from != AUTO:
        return config
    return changed(config, init_from=train("pretrain", pretraining_of(config))["run_id"])


def pretraining_of(config: Any) -> schema.PretrainConfig:
    """Return what `init_from=auto` of a fine-tuning stands for.

    That is `pretraining`, the overrides of its config, with the model of the fine-tuning but its own
    dropout, its tokenizer if it asks for one, and where and as the fine-tuning runs.

    Raises:
        InputError: a mistake in the overrides.
    """
    ours = plain(config)
    theirs = plain(build(schema.PretrainConfig, compose("pretrain", list(config.pretraining))))
    dropout = {key: theirs["model"][key] for key in ("hidden_dropout", "attention_dropout")}
    theirs["model"] = ours["model"] | dropout
    if config.tokenizer is not None:
        theirs["data"]["tokenizer"] = ours["tokenizer"]
    here = {"runtime": ours["runtime"], "tracker": ours["tracker"]}
    return build(schema.PretrainConfig, theirs | here)


def other_inputs(folder: RunFolder, opened: Opened) -> str | None:
    """Return what a run was begun on, its data or its first weights, that is not what there is now."""
    for what, then, now in (
        ("data", folder.data(), opened.data),
        ("weights", folder.weights(), opened.weights),
    ):
        if then not in (None, now):
            return f"other {what} (fingerprint {str(then)[:8]}, now {str(now)[:8]})"
    return None


class Run:
    """One run of a pipeline, from its config to its summary.

    Args:
        pipeline: the folder under `runs/`.
        opened: its config and data.

    Raises:
        InputError: the run was begun on other data or weights, or there is nothing to resume.
    """

    def __init__(self, pipeline: str, opened: Opened):
        self.pipeline, self.opened = pipeline, opened
        self.config = config = opened.config
        self.id, self.shown = run_id(config), config.runtime.progress
        self.folder = RunFolder(Path(config.runtime.runs_dir) / pipeline / self.id)
        self.summary: dict[str, Any] | None = None
        """Summary of a run that is finished already; there is nothing left to do then."""
        self.checkpoint: Path | None = None
        """The checkpoint that the run resumes from."""
        if config.resume is not False:
            self._find(verify=False)

    def _find(self, *, verify: bool) -> list[str]:
        """Find what an earlier start left; return a line about each newer, damaged checkpoint."""
        path = self.folder.path
        if other := other_inputs(self.folder, self.opened):
            raise InputError(
                f"{path} was begun on {other}: resume=false starts over and keeps it aside"
            )
        summary = self.folder.summary()
        if summary is not None and summary["status"] != "failed":
            say(f"already done: {path} (resume=false runs it again)", self.shown)
            self.summary = summary
            return []
        self.checkpoint, problems = Checkpoints(path / "checkpoints", keep=1).last(verify=verify)
        if self.checkpoint is None and self.config.resume is True:
            raise InputError(
                f"{path}: nothing to resume: no complete checkpoint exists; "
                "leave resume=true out to start the run"
            )
        return problems

    def _take(self) -> None:
        """Lock the run on the first process, and find again what an earlier start left."""
        self.folder.lock.acquire()
        if self.config.resume is False:
            if old := self.folder.set_aside():
                say(f"starting over; the earlier run is kept as {old}", self.shown)
            return
        for problem in self._find(verify=True):
            say(f"skipping a damaged checkpoint: {problem}")

    def train(self) -> dict[str, Any]:
        """Train, from the last checkpoint if there is one; write and return the summary.

        Raises:
            InputError: a checkpoint of another model, or another process is writing this run.
            Diverged: recorded as `failed` in the summary first.
            ProcessLost: another process of the run ended.
        """
        task = self.opened.build()
        for number, line in enumerate(task.introduction()):
            say(line if number else f"{self.id}: {line}", self.shown)
        precision = self.config.training.precision
        if computes_slowly(precision, self.config.runtime.device):
            say(
                f"warning: {precision} is slower than fp32 on this processor; "
                "training.precision=auto takes fp32"
            )
        try:
            if first_process():
                self._take()
            summary = self._train(task)
        finally:
            self.folder.lock.release()
        if first_process():
            for line in task.result(summary, self.folder.path):
                say(line, self.shown)
        return summary

    def _baselines(self) -> dict[str, Any]:
        """Return the model-free baselines for the summary; see `Pipeline.baselines`.

        They are computed once for all runs on the same data, such as the cells of a grid.
        """
        baselines = registry.get(self.pipeline).baselines
        if baselines is None:
            return {}
        content = plain(self.config)
        sections = [content.get(section) for section in registry.DECIDE_BASELINES]
        key = json.dumps([BASELINES_VERSION, self.pipeline, self.opened.data, sections])
        name = hashlib.sha256(key.encode()).hexdigest()[:16]
        folder = Path(self.config.runtime.cache_dir) / "baselines" / name
        file = "baselines.json"

        def make(new: Path) -> None:
            (new / file).write_text(json.dumps(baselines(self.config)), encoding="utf-8")

        try:
            publish(folder, make, self.shown)
        except InputError as error:  # the data is prepared, but its source is unavailable now
            say(f"without model-free baselines: {error}")
            return {}
        return {"baselines": json.loads((folder / file).read_bytes())}

    def _train(self, task: Task) -> dict[str, Any]:
        config, folder = self.config, self.folder
        runtime, training = config.runtime, task.training
        process: dict[str, Any] = {}
        if runtime.tune_process:
            process |= tune_process(threads=runtime.threads)
        accelerator = open_accelerator(runtime, training.precision, task.model)
        # Only the first process has looked under the lock and verified the weights.
        self.summary, self.checkpoint = broadcast_object_list([self.summary, self.checkpoint])
        if self.summary is not None:
            return self.summary
        facts = task.facts()
        moments = task.start() if self.checkpoint is None else None
        state = restore(task, self.checkpoint)
        main = accelerator.is_main_process
        if main:
            folder.begin(
                to_yaml(config),
                environment(
                    seed=config.seed,
                    data=self.opened.data,
                    weights=self.opened.weights,
                    devices=accelerator.num_processes,
                    process=process,
                ),
            )
            folder.rewind(state.step)
            self.opened.tokenizer.save(folder.path / "tokenizer")
        if self.checkpoint is not None:
            say(f"resuming at step {state.step} from {self.checkpoint}", self.shown)
        tracker = (
            open_tracker(config.tracker, folder.path, self.id, plain(config), state.tracker_id)
            if main
            else NoTracker()
        )
        status, metrics = "failed", dict[str, float]()
        more: dict[str, Any] = {}
        settings = Settings(config.seed, config.optimizer, config.schedule, runtime)
        try:
            begun = self.checkpoint or moments
            loop = Loop(task, settings, accelerator, folder, tracker, state, begun)
            state, metrics = loop.run()
            with waiting_for_first(accelerator):
                if main:
                    more = self._baselines() | task.conclude(folder.path)
            if last := more.pop("metrics", {}):
                metrics = metrics | last  # not in place: the best metrics may be the same object
                folder.amend(last)
                tracker.log({"step": state.step, **last})
            if main and not runtime.keep_optimizer:
                # Before the summary: a kill in between leaves a run that the same command ends.
                drop_moments(folder.path / "checkpoints")
            status = "degenerate" if task.degenerate(metrics) else "done"
        except (SystemExit, KeyboardInterrupt, ProcessLost):
            status = "stopped"
            raise
        except RuntimeError as error:
            if accelerator.num_processes > 1 and lost_process(error):
                status = "stopped"
                reason = str(error).strip().partition("\n")[0]
                raise ProcessLost(
                    "another process of this run ended or cannot be reached (what it printed says why; "
                    f"here: {reason}): start the same command again, it resumes from the last checkpoint"
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
            "position": config.model.position.name,
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
