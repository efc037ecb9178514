"""The keys of fine-tuning on GLUE; see `roformer.config.schema` for the three classes of key.

`make glue` takes a grid (`GlueConfig`): tasks, learning rates and seeds, each one or several. A cell of
it is a run (`FinetuneConfig`), whose config is in its record.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, PositiveFloat, PositiveInt

from roformer.config.schema import (
    EpochsTraining,
    FinetuningConfig,
    LocalFiles,
    OptimizerConfig,
    RunConfig,
)
from roformer.config.typed import (
    Column,
    Commit,
    Config,
    FileName,
    Label,
    Name,
    PathName,
    Repository,
    Rules,
    Seed,
)

T = TypeVar("T")
Metric = Literal["accuracy", "f1", "matthews", "pearson", "spearman"]


def _once(values: Sequence[T]) -> Sequence[T]:
    if again := sorted({str(value) for value in values if values.count(value) > 1}):
        raise ValueError(f"{', '.join(again)} occurs more than once: give each value once")
    return values


OneOrMore = Annotated[
    list[T],
    BeforeValidator(lambda value: value if isinstance(value, (list, tuple)) else [value]),
    Field(min_length=1),
    AfterValidator(_once),
]
"""Values of a grid; a single value is a list of one."""
OneOrTwo = Annotated[list[T], Field(min_length=1, max_length=2), AfterValidator(_once)]


class TaskFiles(Config):
    """The files of a task in the official GLUE folder."""

    folder: FileName
    texts: OneOrTwo[Column]
    """Columns of the texts in train and dev, .tsv or .csv; numbers mean files without a header."""
    label: Column
    test_texts: OneOrTwo[Column] | None = None
    """Columns of the texts in test; null: the same."""

    def rules(self) -> Rules:
        yield (
            self.label in self.texts,
            f"label={self.label} is one of texts={self.texts}: name another",
        )


class TaskConfig(Config):
    """A task of one text or two: classification into `labels`, or regression within `scores`."""

    texts: OneOrTwo[Name]
    """Columns of the texts on the Hub."""
    labels: Annotated[list[Name], Field(min_length=2), AfterValidator(_once)] | None = None
    """Names of the classes in the order of their numbers (the Hub's). The data has names or, if no
    name is a number, numbers, counted from 0."""
    scores: tuple[float, float] | None = None
    """Lowest and highest score of a regression."""
    metrics: Annotated[list[Metric], Field(min_length=1), AfterValidator(_once)]
    """All that are reported; the first is the headline."""
    parts: Annotated[tuple[Label, ...], AfterValidator(_once)] = ()
    """Names of the validation parts where there are several; the first is the headline."""
    files: TaskFiles
    submission: Literal["number", "name", "score"] = "number"
    """The GLUE server's format of a prediction."""

    def rules(self) -> Rules:
        labels, texts = self.labels, self.texts
        yield (
            (labels is None) == (self.scores is None),
            "give labels (classification) or scores (regression), one of the two",
        )
        kind = "regression" if labels is None else "classification"
        wrong = [m for m in self.metrics if (m in ("pearson", "spearman")) != (labels is None)]
        yield wrong, f"metrics {', '.join(wrong)} do not fit a {kind}"
        yield (
            "f1" in self.metrics and len(labels or ()) != 2,
            "f1 is the score of the second of two labels: give two labels, or other metrics",
        )
        yield "label" in texts, "texts: label is the column of the labels on the Hub: name another"
        yield (
            len(self.files.texts) != len(texts),
            f"files.texts={self.files.texts} and texts={texts} differ in number",
        )


class GlueData(Config):
    """Base class of the sources."""

    max_train_examples: PositiveInt | None = None
    """Train on no more than this many examples, drawn once and for all."""


class BuiltinGlue(GlueData):
    """Six tasks made from templates, in which word order decides; `roformer.data.toy.glue`."""

    kind: Literal["builtin"] = "builtin"
    train_examples: PositiveInt = 4000
    validation_examples: PositiveInt = 600
    """For each validation part."""


class FilesGlue(GlueData, LocalFiles):
    """The official GLUE folder, or one like it: one folder per task with train, dev and test, each a .tsv
    or a .csv."""

    kind: Literal["files"] = "files"
    path: PathName


class HubGlue(GlueData):
    """GLUE on the Hugging Face Hub."""

    kind: Literal["glue_hub"] = "glue_hub"
    path: Repository = "nyu-mll/glue"
    revision: Commit


Glue = Annotated[BuiltinGlue | FilesGlue | HubGlue, Field(discriminator="kind")]


class SweptOptimizer(OptimizerConfig):
    """AdamW at one learning rate or several."""

    learning_rate: OneOrMore[PositiveFloat]  # type: ignore[assignment]


class EpochsConfig(EpochsTraining):
    """Epochs by the size of the task."""

    small_task_epochs: PositiveInt | None = None
    """Epochs of a task with fewer than `small_task_examples` training examples; null: the same."""
    small_task_examples: PositiveInt = 10_000


class _Finetuning(FinetuningConfig):
    """Base class of a grid and its cells."""

    task: Annotated[dict[Label, TaskConfig], Field(min_length=1)]
    data: Glue
    training: EpochsConfig


class FinetuneConfig(_Finetuning, RunConfig):
    """One cell: one task, one learning rate, one seed."""

    def rules(self) -> Rules:
        yield from super().rules()
        several = len(self.task[self.task_name].texts) > 1
        yield (
            several and self.model.token_types < 2,
            f"task={self.task_name} has two texts, and model.token_types={self.model.token_types} of "
            f"init_from={self.init_from} does not distinguish them: start from a model with two types",
        )

    @property
    def task_name(self) -> str:
        (name,) = self.task
        return name


class GlueConfig(_Finetuning):
    """A grid: the product of tasks, learning rates and seeds (paper, section 4.3)."""

    of_run: ClassVar[type[RunConfig]] = FinetuneConfig
    seed: OneOrMore[Seed]
    optimizer: SweptOptimizer
    pretraining: tuple[str, ...] = ()
    """Overrides of the pre-training that init_from=auto starts from."""
    jobs: PositiveInt | None = None
    """Cells that run side by side, each on a separate GPU or on its share of the cores; null: one
    per GPU, or one per core. Several processes (`GPUS=8`) work on one cell at a time instead."""
    keep_weights: Literal["selected", "all"] = "selected"
    """Weights kept when the grid is done: of each task's best cell, or of all."""
