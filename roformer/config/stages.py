"""Pre-training in stages, each with a length, a batch and a schedule of its own (paper, Table 4).

A stage is an ordinary pre-training (`PretrainConfig`) that starts from the one before.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Literal, Self

from pydantic import Field, PositiveFloat, PositiveInt, ValidationError, model_validator

from roformer.config.schema import (
    IntervalsConfig,
    Length,
    MaskedLMConfig,
    PretrainConfig,
    ScheduleConfig,
    TrainingConfig,
)
from roformer.config.typed import schema

EPOCHS = 1000
"""First epoch of a stage less that of the stage before: more than one has, so that none sees the order
and the masks of another."""


@schema
class StageConfig:
    """One stage. How it takes over from the one before is always written out: no key has a default."""

    sequence_length: Length
    batch_size: PositiveInt
    """Sequences a step, over all processes and accumulation steps."""
    steps: PositiveInt
    optimizer: Literal["keep", "restart"]
    """AdamW's moments: those of the stage before, or new ones. A first stage has none to keep, but
    where `init_from` names a run."""
    schedule: Literal["continue"] | ScheduleConfig
    """`continue`: the schedule of the whole config over the updates of all stages, at this stage's
    place; or one of its own, from its first update to its last, with the peak of `learning_rate`."""
    learning_rate: PositiveFloat | None = None
    """Peak of a schedule of its own; null: `optimizer.learning_rate`."""
    micro_batch_size: PositiveInt | None = None
    """As in `runtime`, for this length; null: what stands there."""


@schema
class StagesTraining(IntervalsConfig):
    """Settings shared by the loops of all stages."""

    documents: Literal["cross", "isolate"] = "cross"
    valid_sequences: PositiveInt
    """Validation blocks of each stage's own length, out of the same held-out documents."""


@schema
class StagesConfig(MaskedLMConfig):
    """A list of stages over one text (paper, section 4.5).

    `schedule` is that of the stages that continue it, over the steps of all stages; `init_from` is the
    start of the first one.
    """

    training: StagesTraining
    stages: Annotated[list[StageConfig], Field(min_length=1)]

    def pretraining(self, number: int, init_from: str | None) -> PretrainConfig:
        """Return stage 1, 2, … as the pre-training that it is.

        Args:
            number: of the stage.
            init_from: the run of the stage before.

        Raises:
            ValueError: it cannot be, as a length beyond a learned table; names the stage.
        """
        stage, optimizer = self.stages[number - 1], self.optimizer
        try:
            if stage.optimizer == "keep" and init_from is None:
                raise ValueError("optimizer=keep, but nothing stands before it: use restart")
            if isinstance(stage.schedule, ScheduleConfig):
                schedule = stage.schedule
                rate = stage.learning_rate or optimizer.learning_rate
                optimizer = replace(optimizer, learning_rate=rate)
            elif stage.learning_rate is not None:
                raise ValueError("learning_rate is the peak of a schedule of its own: give it one")
            else:
                steps = [other.steps for other in self.stages]
                done = sum(steps[: number - 1])
                schedule = replace(self.schedule, total_steps=sum(steps), first_update=done)
            micro = stage.micro_batch_size or self.runtime.micro_batch_size
            training = TrainingConfig(
                **vars(self.training),
                sequence_length=stage.sequence_length,
                batch_size=stage.batch_size,
                steps=stage.steps,
                first_epoch=(number - 1) * EPOCHS,
            )
            return PretrainConfig(
                recipe=f"stages_{self.recipe}_{number}",
                seed=self.seed,
                model=self.model,
                data=self.data,
                masking=self.masking,
                optimizer=optimizer,
                schedule=schedule,
                training=training,
                init_from=init_from,
                keep_moments=stage.optimizer == "keep",
                resume="auto" if self.resume is True else self.resume,
                runtime=replace(self.runtime, micro_batch_size=micro),
                tracker=self.tracker,
            )
        except ValidationError as error:
            lines = [problem["msg"].removeprefix("Value error, ") for problem in error.errors()]
            raise ValueError(f"stage {number}: {'; '.join(lines)}") from error
        except ValueError as error:
            raise ValueError(f"stage {number}: {error}") from error

    @model_validator(mode="after")
    def _combinations(self) -> Self:
        for number in range(1, len(self.stages) + 1):
            self.pretraining(number, self.init_from if number == 1 else "the stage before")
        return self
