"""Pre-training in stages (RoFormer, section 4.5, Table 4): one run per stage, each from the previous one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from roformer.config.build import run_id
from roformer.config.schema import PretrainConfig, ScheduleConfig
from roformer.config.stages import StagesConfig
from roformer.pipelines.run import folder_of, resolve, train
from roformer.training.checkpoint import drop_moments
from roformer.training.distributed import first_process, say
from roformer.training.optim import learning_rate


def stages_of(config: StagesConfig) -> list[PretrainConfig]:
    """Return the stages as pre-trainings on this machine, each with the id of the one before."""
    config = resolve(config)
    found: list[PretrainConfig] = []
    before = config.init_from
    for number in range(1, len(config.stages) + 1):
        found.append(config.pretraining(number, before))
        before = run_id(found[-1])
    return found


def train_stages(config: StagesConfig) -> list[Path]:
    """Run the stages in order, skipping finished ones; return their run folders."""
    folders: list[Path] = []
    stages = stages_of(config)
    for number, (stage, line) in enumerate(zip(stages, plan(config), strict=True), 1):
        say(f"stage {number} of {len(stages)}: {line}", config.runtime.progress)
        wanted = number < len(stages) and stages[number].keep_moments
        kept = replace(stage.runtime, keep_optimizer=stage.runtime.keep_optimizer or wanted)
        if stage.runtime.compile:  # each stage for its own length, not one graph for any
            torch.compiler.reset()
        summary = train("pretrain", replace(stage, runtime=kept))
        folders.append(folder_of("pretrain", stage, summary["run_id"]))
        handed_on = stage.keep_moments and number > 1
        if handed_on and not config.runtime.keep_optimizer and first_process():
            drop_moments(folders[-2] / "checkpoints")
    return folders


def folders_of(config: StagesConfig) -> list[Path]:
    """Return the run folders that the stages fill."""
    return [folder_of("pretrain", stage) for stage in stages_of(config)]


def plan(config: StagesConfig) -> list[str]:
    """Return a line for each stage: its size, its moments, and its learning rate over its steps."""
    lines = []
    for given, stage in zip(config.stages, stages_of(config), strict=True):
        training = stage.training
        rate = learning_rate(stage.schedule, stage.optimizer.learning_rate, training.steps)
        own = "its own schedule" if isinstance(given.schedule, ScheduleConfig) else "one schedule"
        lines.append(
            f"{training.steps:,} steps of {training.batch_size} x {training.sequence_length} tokens, "
            f"{'moments kept' if stage.keep_moments else 'new moments'}, {own}, learning rate "
            f"{rate(1):.2g} to {rate(training.steps):.2g}"
        )
    return lines
