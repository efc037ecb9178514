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
from roformer.config.start import AUTO
from roformer.data.store import publish
from roformer.errors import InputError, ProcessLost, naming
from roformer.inference.start import pinned
from roformer.training.checkpoint import (
    Checkpoints,
    drop_moments,
    keep_only_best,
    step_of,
    steps_in,
)
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
from roformer.training.records import RunFolder, environment
from roformer.training.state import State, restore
from roformer.training.task import Task
from roformer.training.tracking import NoTracker, open_tracker

BASELINES_VERSION = 1
"""Raised when the code of the baselines changes, so that cached ones are computed again."""
MOST_RUNS = 8
"""A command with more runs prints their number, not the metrics of each."""
C = TypeVar("C", bound=Any)


def resolve(config: C) -> C:
    """Return the config with `auto` replaced for this machine, and published weights pinned."""
    device = config.runtime.device
    device = default_device() if device == "auto" else device
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not there.get(device, True):
        raise InputError(f"runtime.device={device} is not on this machine: choose auto or cpu")
    content = plain(config)
    content["runtime"]["device"] = device
    if config.training.precision == "auto":
        content["training"]["precision"] = auto_precision(device)
    resolved: C = pinned(build(type(config), content))
    return resolved


def train(pipeline: str, config: Any) -> dict[str, Any]:
    """Prepare the data, train unless that is done, and return the summary.

    `init_from=auto` of a fine-tuning is trained first if it is missing.
    """
    config = resolve(config)
    if hasattr(config, "pretraining") and config.init_from == AUTO:
        config = changed(config, init_from=train("pretrain", pretraining_of(config))["run_id"])
    task = registry.get(pipeline).task(config)
    folder = RunFolder(folder_of(pipeline, task.config))
    summary, _ = find_earlier(task, folder)
    if summary is None:
        task.build_model()
        introduce(task, folder)
        try:
            with naming(folder.path), folder.locked() if first_process() else nullcontext():
                earlier: Earlier = (None, None)
                if first_process():
                    if task.config.resume is False and (old := folder.set_aside()):
                        what = f"starting over; the earlier run is kept as {old}"
                        say(what, config.runtime.progress)
                    earlier = find_earlier(task, folder, verify=True)
                summary = train_from(task, folder, earlier)
        except OSError as error:
            if steps_in(folder.path / "checkpoints"):
                error.add_note("earlier checkpoints are intact")
            raise
        if first_process():
            for line in task.result(summary, folder.path):
                say(line, config.runtime.progress)
    if task.keep_only_best and first_process():  # a kill may have come before this
        keep_only_best(folder.path / "checkpoints")
    return summary


def folder_of(pipeline: str, config: Any, name: str | None = None) -> Path:
    """Return the folder of a config's run, or of another run by its id."""
    return Path(config.runtime.runs_dir) / pipeline / (name or run_id(config))


def outcome(pipeline: registry.Pipeline, folders: Sequence[Path]) -> str:
    """Return the headline metrics of finished runs in one line, and what is wrong with them."""
    words, statuses = [], []
    many = len(folders) > 1
    # A run that starts from trained weights may get its id only when these are opened.
    files = [file for folder in folders if (file := folder / "summary.json").is_file()]
    for summary in (json.loads(file.read_text(encoding="utf-8")) for file in files):
        name = pipeline.headline.name if pipeline.headline else str(summary.get("headline"))
        value = summary["metrics"].get(name)
        # One line holds six tasks, so the name of a task suffices.
        title = name if pipeline.headline or not many else name.partition("/")[0]
        words.append(f"{title} {'NaN' if value is None else f'{value:.3f}'}")
        statuses.append(summary["status"])
    scores = ", ".join(words) if len(words) <= MOST_RUNS else f"{len(words)} runs"
    shown = {"degenerate": "degenerate: no better than chance"}
    counts = Counter(shown.get(status, status) for status in statuses if status != "done")
    wrong = ", ".join(f"{count} {status}" if many else status for status, count in counts.items())
    return (scores or "ended") + (f" [{wrong}]" if wrong else "")


def changed(config: C, **values: Any) -> C:
    """Return a config with some keys replaced."""
    found: C = build(type(config), plain(config) | values)
    return found


def pretraining_of(config: Any) -> schema.PretrainConfig:
    """Return the config of the pre-training that `init_from=auto` of a fine-tuning starts from.

    It is composed from the overrides in `pretraining`, and keeps its own dropout. Model, runtime and
    tracker are the fine-tuning's, and so is the tokenizer if the fine-tuning names one.
    """
    ours = plain(config)
    theirs = plain(compose("pretrain", config.pretraining))
    dropout = {key: theirs["model"][key] for key in ("hidden_dropout", "attention_dropout")}
    theirs["model"] = ours["model"] | dropout
    if config.tokenizer is not None:
        theirs["data"]["tokenizer"] = ours["tokenizer"]
    here = {"runtime": ours["runtime"], "tracker": ours["tracker"]}
    return build(schema.PretrainConfig, theirs | here)


# --- what an earlier start left ------------------------------------------------------------------


Earlier = tuple[dict[str, Any] | None, Path | None]
"""Remains of an earlier start: the summary of a finished run, or the checkpoint to resume from."""


def find_earlier(task: Task, folder: RunFolder, *, verify: bool = False) -> Earlier:
    """Return what an earlier start left, after a line on each damaged checkpoint if `verify`."""
    path, resume = folder.path, task.config.resume
    if resume is False:
        return None, None
    started_on = folder.environment()
    for what, now in (("data", task.fingerprint), ("weights", task.weights)):
        if (before := started_on.get(what)) not in (None, now):
            raise InputError(
                f"{path} was started on other {what} (fingerprint {str(before)[:8]}, now "
                f"{str(now)[:8]}): resume=false starts over and keeps it aside"
            )
    summary = folder.summary()
    if summary is not None and summary["status"] != "failed":
        check_kept(task, folder, summary["steps"])
        done = f"already done: {path} (resume=false runs it again)"
        say(done, task.config.runtime.progress)
        return summary, None
    checkpoint, problems = Checkpoints(path / "checkpoints", keep=1).last(verify=verify)
    if checkpoint is not None:
        check_kept(task, folder, step_of(checkpoint))
    elif resume is True:
        raise InputError(
            f"{path}: nothing to resume: no complete checkpoint exists; "
            "leave resume=true out to start the run"
        )
    for problem in problems if verify else ():
        say(f"skipping a damaged checkpoint: {problem}")
    return None, checkpoint


def check_kept(task: Task, folder: RunFolder, reached: int) -> None:
    """Raise InputError if the run has passed a step of `training.keep_at` without keeping it."""
    kept = map(step_of, steps_in(folder.path / "checkpoints"))
    passed = {step for step in getattr(task.config.training, "keep_at", ()) if step <= reached}
    if missing := sorted(passed.difference(kept)):
        raise InputError(
            f"training.keep_at={missing}: {folder.path} is at step {reached} and has not kept "
            f"{'this step' if len(missing) == 1 else 'these steps'}: resume=false trains it again and "
            "keeps the earlier run under another name"
        )


# --- one run -------------------------------------------------------------------------------------


def introduce(task: Task, folder: RunFolder) -> None:
    """Print the run id, and what the task says of its model and data."""
    # An introduction may score a whole test set.
    if task.config.runtime.progress and first_process():
        for number, line in enumerate(task.introduction()):
            say(line if number else f"{folder.path.name}: {line}")
    precision = task.training.precision
    if computes_slowly(precision, task.config.runtime.device):
        say(
            f"warning: {precision} is slower than fp32 on this processor; "
            "training.precision=auto takes fp32"
        )


def train_from(task: Task, folder: RunFolder, earlier: Earlier) -> dict[str, Any]:
    """Train from a checkpoint or from the start; write and return the summary.

    `earlier` is known to the first process only.
    """
    config, runtime = task.config, task.config.runtime
    process = tune_process(threads=runtime.threads) if runtime.tune_process else {}
    accelerator = open_accelerator(runtime, task.training.precision, task.model)
    summary, checkpoint = broadcast_object_list([*earlier])
    if summary is not None:
        return dict(summary)
    facts = task.facts()
    moments = task.start() if checkpoint is None else None
    state = restore(task, checkpoint)
    main = accelerator.is_main_process
    if main:
        folder.begin(
            to_yaml(config),
            environment(
                seed=config.seed,
                data=task.fingerprint,
                weights=task.weights,
                devices=accelerator.num_processes,
                process=process,
            ),
        )
        folder.rewind(state.step)
        task.tokenizer.save(folder.path / "tokenizer")
    if checkpoint is not None:
        say(f"resuming at step {state.step} from {checkpoint}", runtime.progress)
    tracker = NoTracker()
    if main:
        name = folder.path.name
        tracker = open_tracker(config.tracker, folder.path, name, plain(config), state.tracker_id)
    status, metrics = "failed", dict[str, float]()
    more: dict[str, Any] = {}
    try:
        loop = Loop(task, accelerator, folder, tracker, state, checkpoint or moments)
        state, metrics = loop.run()
        with waiting_for_first(accelerator):
            if main:
                more = baselines_of(task, folder) | task.conclude(folder.path)
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
        summary = summary_of(task, folder, state, status, metrics)
        summary |= {"peak_memory_bytes": peak_memory_bytes(accelerator.device), **facts, **more}
        if main and status != "stopped":
            failure = sys.exc_info()[1]
            if failure is not None:
                summary["error"] = f"{type(failure).__name__}: {failure}"
            # The first error has reported a full disk.
            with suppress(OSError) if failure is not None else nullcontext():
                folder.finish(summary)
        tracker.finish(status, summary)
    accelerator.wait_for_everyone()
    return summary


def baselines_of(task: Task, folder: RunFolder) -> dict[str, Any]:
    """Return the part of the summary on model-free baselines; see `Pipeline.baselines`.

    They are computed once for all runs on the same data, such as the cells of a grid.
    """
    pipeline = registry.get(folder.path.parent.name)
    compute, content = pipeline.baselines, plain(task.config)
    if compute is None:
        return {}
    sections = [content.get(section) for section in registry.DECIDE_BASELINES]
    key = json.dumps([BASELINES_VERSION, pipeline.name, task.fingerprint, sections])
    name = hashlib.sha256(key.encode()).hexdigest()[:16]
    cached = Path(task.config.runtime.cache_dir) / "baselines" / name
    file = "baselines.json"

    def make(new: Path) -> None:
        (new / file).write_text(json.dumps(compute(task.config)), encoding="utf-8")

    try:
        publish(cached, make, task.config.runtime.progress)
    except InputError as error:  # the data is prepared, but its source is unavailable now
        say(f"without model-free baselines: {error}")
        return {}
    return {"baselines": json.loads((cached / file).read_bytes())}


def summary_of(
    task: Task, folder: RunFolder, state: State, status: str, metrics: dict[str, float]
) -> dict[str, Any]:
    """Return the part of summary.json that all tasks have, in the order of the file."""
    config = task.config
    return {
        "pipeline": folder.path.parent.name,
        "run_id": folder.path.name,
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
        "command": folder.command(),
    }
