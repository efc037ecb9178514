"""Pre-training in stages, each with its own length, batch and schedule (paper, Table 4).

A stage is an ordinary pre-training (`PretrainConfig`) that starts from the one before.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Annotated, ClassVar, Literal

from pydantic import Field, PositiveFloat, PositiveInt, ValidationError

from roformer.config.schema import (
    IntervalsConfig,
    MaskedLMConfig,
    PretrainConfig,
    RunConfig,
    ScheduleConfig,
    TrainingConfig,
)
from roformer.config.typed import Config, Length, Rules

EPOCHS = 1000
"""Distance between the first epochs of two stages: longer than any stage, so masks never repeat."""


class StageConfig(Config):
    """One stage. Keys on how it continues the previous stage have no default, so that they are explicit."""

    sequence_length: Length
    batch_size: PositiveInt
    """Sequences a step, over all processes and accumulation steps."""
    steps: PositiveInt
    optimizer: Literal["keep", "restart"]
    """AdamW's moments: kept from the previous stage (for the first: from `init_from`), or new."""
    schedule: Literal["continue"] | ScheduleConfig
    """`continue`: the schedule of the whole config over the steps of all stages, at this stage's
    place; or a separate one, from its first step to its last, with the peak of `learning_rate`."""
    learning_rate: PositiveFloat | None = None
    """Peak of a separate schedule; null: `optimizer.learning_rate`."""
    micro_batch_size: PositiveInt | None = None
    """As in `runtime`, for this length; null: the value there."""


class StagesTraining(IntervalsConfig):
    """Settings shared by the loops of all stages."""

    documents: Literal["cross", "isolate"] = "cross"
    valid_sequences: PositiveInt
    """Validation blocks of each stage's own length, out of the same held-out documents."""


class StagesConfig(MaskedLMConfig):
    """A list of stages over one text (paper, section 4.5).

    `schedule` belongs to the stages that continue it, over the steps of all stages; `init_from` is the
    start of the first one.
    """

    of_run: ClassVar[type[RunConfig]] = PretrainConfig
    training: StagesTraining
    stages: Annotated[list[StageConfig], Field(min_length=1)]

    def pretraining(self, number: int, init_from: str | None) -> PretrainConfig:
        """Return stage 1, 2, … as a pre-training that starts from the run of the stage before."""
        stage, steps = self.stages[number - 1], [stage.steps for stage in self.stages]
        content = {field.name: getattr(self, field.name) for field in fields(MaskedLMConfig)}
        if isinstance(stage.schedule, ScheduleConfig):
            content["schedule"] = stage.schedule
            rate = stage.learning_rate or self.optimizer.learning_rate
            content["optimizer"] = replace(self.optimizer, learning_rate=rate)
        else:
            done = sum(steps[: number - 1])
            content["schedule"] = replace(self.schedule, total_steps=sum(steps), first_update=done)
        if number > 1:
            content |= {"init_revision": None, "init_digest": None}
        content["recipe"], content["init_from"] = f"stages_{self.recipe}_{number}", init_from
        content["training"] = TrainingConfig(
            **vars(self.training),
            sequence_length=stage.sequence_length,
            batch_size=stage.batch_size,
            steps=stage.steps,
            first_epoch=(number - 1) * EPOCHS,
        )
        content["resume"] = "auto" if self.resume is True else self.resume
        micro = stage.micro_batch_size or self.runtime.micro_batch_size
        content["runtime"] = replace(self.runtime, micro_batch_size=micro)
        return PretrainConfig(**content, keep_moments=stage.optimizer == "keep")

    def rules(self) -> Rules:
        yield from super().rules()
        before = self.init_from
        for number, stage in enumerate(self.stages, 1):
            yield (
                stage.optimizer == "keep" and before is None,
                f"stage {number}: optimizer=keep, but no stage comes before it: use restart",
            )
            yield (
                stage.learning_rate is not None and stage.schedule == "continue",
                f"stage {number}: learning_rate is the peak of a new schedule: give the stage one",
            )
            try:
                self.pretraining(number, before)
            except ValidationError as error:
                problem = error.errors()[0]["msg"].removeprefix("Value error, ")
                yield True, f"stage {number}: {problem}"
            before = "the stage before"
