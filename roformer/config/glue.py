"""The keys of fine-tuning on GLUE; see `roformer.config.schema` for the three classes of key.

`make glue` takes a grid (`GlueConfig`): tasks, learning rates and seeds, each one or several. A cell of
it is a run (`FinetuneConfig`), whose config stands in its record.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import (
    BeforeValidator,
    Field,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from roformer.config.schema import (
    Commit,
    EpochsTraining,
    FinetuningConfig,
    Label,
    LocalFiles,
    Name,
    OptimizerConfig,
    Repository,
    RunConfig,
    Seed,
)
from roformer.config.typed import schema

Metric = Literal["accuracy", "f1", "matthews", "pearson", "spearman"]
Column = str | NonNegativeInt
"""A column of a .tsv file: its name in the header, or its number in a file without one."""

# --- tasks ---------------------------------------------------------------------------------------


@schema
class TaskFiles:
    """The files of a task in the official GLUE folder."""

    folder: Name
    texts: Annotated[list[Column], Field(min_length=1, max_length=2)]
    """Columns of the texts in train.tsv and dev.tsv; numbers say that there is no header."""
    label: Column
    test_texts: Annotated[list[Column], Field(min_length=1, max_length=2)] | None = None
    """Columns of the texts in test.tsv; null: the same."""


@schema
class TaskConfig:
    """A task of one text or two: classification into `labels`, or regression within `scores`."""

    texts: Annotated[list[Name], Field(min_length=1, max_length=2)]
    """Columns of the texts on the Hub."""
    labels: Annotated[list[Name], Field(min_length=2)] | None = None
    """Names of the classes in the order of their numbers (the Hub's)."""
    scores: tuple[float, float] | None = None
    """Lowest and highest score of a regression."""
    metrics: Annotated[list[Metric], Field(min_length=1)]
    """All that are reported; the first is the headline."""
    parts: tuple[Label, ...] = ()
    """Names of the validation parts where there are several; the first is the headline."""
    files: TaskFiles
    submission: Literal["number", "name", "score"] = "number"
    """The GLUE server's format of a prediction."""

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if (self.labels is None) == (self.scores is None):
            raise ValueError("give labels (classification) or scores (regression), one of the two")
        correlations = {"pearson", "spearman"}
        wrong = [m for m in self.metrics if (m in correlations) != (self.labels is None)]
        if wrong:
            kind = "regression" if self.labels is None else "classification"
            raise ValueError(f"metrics {', '.join(wrong)} do not fit a {kind}")
        if "f1" in self.metrics and len(self.labels or ()) != 2:
            raise ValueError("f1 is that of the second of two labels: give two, or leave f1 out")
        if len(self.files.texts) != len(self.texts):
            raise ValueError(
                f"files.texts={self.files.texts} and texts={self.texts} differ in number"
            )
        return self


# --- data ----------------------------------------------------------------------------------------


@schema
class GlueData:
    """Base class of the sources."""

    max_train_examples: PositiveInt | None = None
    """Train on no more than this many examples, drawn once and for all."""


@schema
class BuiltinGlue(GlueData):
    """Six tasks made from templates, in which word order decides; `roformer.data.toy.glue`."""

    kind: Literal["builtin"] = "builtin"
    train_examples: PositiveInt = 4000
    validation_examples: PositiveInt = 600
    """For each validation part."""


@schema
class FilesGlue(GlueData, LocalFiles):
    """The official GLUE folder: one folder a task with train.tsv, dev.tsv and test.tsv."""

    kind: Literal["files"] = "files"


@schema
class HubGlue(GlueData):
    """GLUE on the Hugging Face Hub."""

    kind: Literal["glue_hub"] = "glue_hub"
    path: Repository = "nyu-mll/glue"
    revision: Commit


Glue = Annotated[BuiltinGlue | FilesGlue | HubGlue, Field(discriminator="kind")]

# --- pipelines -----------------------------------------------------------------------------------


def _several(value: Any) -> Any:
    """Let one value stand for a list of one."""
    return value if isinstance(value, (list, tuple)) else [value]


@schema
class SweptOptimizer(OptimizerConfig):
    """AdamW at one learning rate or several."""

    learning_rate: Annotated[  # type: ignore[assignment]
        list[PositiveFloat], BeforeValidator(_several), Field(min_length=1)
    ]


@schema
class EpochsConfig(EpochsTraining):
    """Epochs by the size of the task."""

    small_task_epochs: PositiveInt | None = None
    """Epochs of a task with fewer than `small_task_examples` training examples; null: the same."""
    small_task_examples: PositiveInt = 10_000


@schema
class _Finetuning(FinetuningConfig):
    """Base class of a grid and its cells."""

    task: Annotated[dict[Label, TaskConfig], Field(min_length=1)]
    data: Glue
    training: EpochsConfig


@schema
class FinetuneConfig(_Finetuning, RunConfig):
    """One cell: one task, one learning rate, one seed."""

    @property
    def task_name(self) -> str:
        (name,) = self.task
        return name


@schema
class GlueConfig(_Finetuning):
    """A grid: the product of tasks, learning rates and seeds (paper, section 4.3)."""

    seed: Annotated[list[Seed], BeforeValidator(_several), Field(min_length=1)]
    optimizer: SweptOptimizer
    pretraining: tuple[str, ...] = ()
    """Overrides of the pre-training that init_from=auto starts from."""
    jobs: PositiveInt | None = None
    """Cells that run side by side, each on a GPU of its own or on its share of the cores; null: one
    a GPU, or one a core. Several processes (`GPUS=8`) work on one cell at a time instead."""
    keep_weights: Literal["selected", "all"] = "selected"
    """Weights kept when the grid is done: of each task's best cell, or of all."""
