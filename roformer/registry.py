"""The pipelines: the name, config, task and metrics of each.

The command line, plans, studies and the report read the pipelines from here. A pipeline is a class, whose
methods import what they need when they are called, so that reading the registry imports nothing else. A
pipeline of another package is one such class in a module that ROFORMER_EXTENSIONS names.
"""

from __future__ import annotations

import importlib
import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from roformer.errors import InputError

Kind = Literal["mlm", "causal", "classifier", "scorer", "translation", "encoder"]
"""Kinds of trained models, as a checkpoint's description says; an encoder comes from Hugging Face."""
EXTENSIONS = "ROFORMER_EXTENSIONS"
"""Environment variable: modules that add pipelines or position encodings, between commas."""
DECIDE_BASELINES = ("data", "task", "training", "tokenizer")
"""Sections of a config that decide, with the prepared data, the model-free baselines of a run."""


class Metric(NamedTuple):
    """A headline metric, as summary.json names it."""

    name: str
    higher_is_better: bool


class Loss(NamedTuple):
    """The metric that a pipeline is judged by while it trains; lower is better."""

    metric: str
    """As in metrics.jsonl."""
    words: str
    """As axes and the tables of paper.yaml call it."""
    unit: str
    entropy: str
    """Metric of the unigram baseline; "": there is none."""
    read: str = "tokens"
    """The unit that a model reads."""
    whole: str = ""
    """The metric of the whole validation text after the last step, if there is one; the other metrics
    are of a sample of it."""

    @property
    def axis(self) -> str:
        """As an axis is labelled."""
        return self.words if self.unit in self.words else f"{self.words} ({self.unit})"


class Stage(NamedTuple):
    """One command of `make reproduce`."""

    minutes: float
    """At recipe mini on two CPU cores with AVX-512 in fp32 (experiments/appendix/reproduce)."""
    overrides: tuple[str, ...] = ()
    """Overrides that distinguish it from the other stages of its pipeline."""
    only_all: bool = False
    """True if it is only a stage of the whole paper; then its minutes are estimates."""


class Pipeline(ABC):
    """Base class of the entries: facts about a pipeline, and the functions that it consists of."""

    name: str
    """Name of `conf/<name>.yaml`, of the folder `conf/pipelines/<name>/` with recipes and its other groups,
    and of the folder under `runs/`."""
    kind: Kind
    """Kind of its models."""
    headline: Metric | None = None
    """None if each run's summary names its headline metric, as in pipelines with several tasks."""
    loss: Loss | None = None
    """Metric of its training curves; None: it is judged by scores."""
    flags: tuple[Literal["prepare", "plan"], ...] = ()
    """The methods that are flags of its script."""
    adopts_weights: bool = False
    """True if a config has the settings of the weights that its `init_from` names."""
    runs: str = ""
    """Pipeline of its runs; "": its own."""
    grid: bool = False
    """True if one command takes lists of seeds and uses all cores by itself."""
    groups: tuple[str, ...] = ()
    """Folders of shared config groups under `conf/pipelines/`."""
    stages: tuple[Stage, ...] = ()
    """Stages of `make reproduce`."""
    conf: Path | None = None
    """Folder of `<name>.yaml` and `pipelines/<name>/`; None: `conf/` of this repository."""
    prepare: Callable[[Any], Any] | None = None
    """Prepare the data of a config without training; return them."""
    baselines: Callable[[Any], dict[str, dict[str, float]]] | None = None
    """Return the metrics of model-free baselines by name, given a run's config."""

    @abstractmethod
    def config(self) -> Any:
        """Return the config class; `--help` prints its docstring."""

    @property
    def config_of_run(self) -> Any:
        """The config class of a recorded run: another one (`of_run`) if a command makes several."""
        cls = self.config()
        return getattr(cls, "of_run", cls)

    @property
    def script(self) -> str:
        """The script that starts it."""
        return f"scripts/{self.name}.py"

    @property
    def several(self) -> bool:
        """True if a command makes several runs."""
        return self.config_of_run is not self.config()

    @abstractmethod
    def task(self, config: Any) -> Any:
        """Return the task of a resolved config, see `roformer.training.task.Task`; it prepares the data."""

    def plan(self, config: Any, devices: int, utilisation: float) -> None:
        """Print the cost of a config on a number of devices, at a share of their peak rate."""
        from roformer.analysis.plan import print_plan

        print_plan(config, devices, utilisation)

    def train(self, config: Any) -> list[Path]:
        """Make the runs of a command; return their folders."""
        from roformer.pipelines.run import folder_of, train

        return [folder_of(self.name, config, train(self.name, config)["run_id"])]

    def folders(self, config: Any) -> list[Path]:
        """Return the run folders that a command fills."""
        from roformer.pipelines.run import folder_of, resolve

        return [folder_of(self.name, resolve(config))]

    def weights(self, name: str, revision: str | None, runs: str) -> Any:
        """Return the settings of the weights that `init_from` names, see `roformer.config.start`."""
        from roformer.inference.start import settings_of

        return settings_of(self.kind, name, revision, runs)


P = TypeVar("P", bound=type[Pipeline])
_PIPELINES: dict[str, Pipeline] = {}


def register(cls: P) -> P:
    """Add a pipeline; raise ValueError if another one has its name."""
    if type(_PIPELINES.setdefault(cls.name, cls())) is not cls:
        raise ValueError(f"there is a pipeline {cls.name} already")
    return cls


def extensions() -> dict[str, Path]:
    """Import the modules that ROFORMER_EXTENSIONS names, and return their files by name."""
    found = {}
    for module in filter(None, map(str.strip, os.environ.get(EXTENSIONS, "").split(","))):
        try:
            found[module] = Path(str(importlib.import_module(module).__file__)).absolute()
        except ImportError as error:
            raise InputError(
                f"{EXTENSIONS}: cannot import {module} ({error}): install it, or add its folder to "
                "PYTHONPATH"
            ) from error
    return found


def pipelines() -> dict[str, Pipeline]:
    """Return all pipelines by name; pipelines of other packages are last."""
    extensions()
    return dict(_PIPELINES)


def get(name: str) -> Pipeline:
    """Return the pipeline of a name."""
    known = pipelines()
    if name not in known:
        raise InputError(f"there is no pipeline {name}: choose one of {', '.join(known)}")
    return known[name]


# --- pre-training --------------------------------------------------------------------------------


class TextPipeline(Pipeline):
    """Base class of the pipelines on the text of pre-training."""

    flags: tuple[Literal["prepare", "plan"], ...] = ("prepare", "plan")
    adopts_weights = True

    def prepare(self, config: Any) -> Any:
        from roformer.tasks.mlm import prepare

        return prepare(config)


class MaskedLM(TextPipeline):
    """Base class of the pipelines of masked language models."""

    kind = "mlm"
    headline = Metric("valid/mlm_loss", higher_is_better=False)
    groups = ("text", "masked")

    def config(self) -> Any:
        from roformer.config.schema import PretrainConfig

        return PretrainConfig

    def task(self, config: Any) -> Any:
        from roformer.tasks.match import MatchTask
        from roformer.tasks.mlm import MaskedLMTask

        return (MatchTask if config.objective == "match" else MaskedLMTask)(config)


@register
class Pretrain(MaskedLM):
    name = "pretrain"
    loss = Loss("valid/mlm_loss", "masked-LM loss", "nats", "valid/unigram_entropy")
    stages = (Stage(2.9, ("model=roformer",)), Stage(2.9, ("model=bert",)))


@register
class Stages(MaskedLM):
    name = "stages"
    runs = "pretrain"
    stages = (Stage(9, only_all=True),)

    def config(self) -> Any:
        from roformer.config.stages import StagesConfig

        return StagesConfig

    def train(self, config: Any) -> list[Path]:
        from roformer.pipelines.stages import train_stages

        return train_stages(config)

    def folders(self, config: Any) -> list[Path]:
        from roformer.pipelines.stages import folders_of

        return folders_of(config)


@register
class Convert(MaskedLM):
    name = "convert"
    headline = Metric("valid/error", higher_is_better=False)
    loss = Loss("valid/error", "error", "share of the original's variance", entropy="")
    flags = ("prepare",)


# --- the others ----------------------------------------------------------------------------------


@register
class Glue(Pipeline):
    name = "glue"
    kind = "classifier"
    grid = True
    stages = (Stage(2.7, ("model=roformer",)), Stage(2.7, ("model=bert",)))

    def config(self) -> Any:
        from roformer.config.glue import GlueConfig

        return GlueConfig

    def task(self, config: Any) -> Any:
        from roformer.tasks.classification import ClassificationTask

        return ClassificationTask(config)

    def baselines(self, config: Any) -> dict[str, dict[str, float]]:
        from roformer.tasks.baselines import of_task

        return of_task(config)

    def train(self, config: Any) -> list[Path]:
        from roformer.pipelines.glue import glue

        return glue(config)

    def folders(self, config: Any) -> list[Path]:
        from roformer.pipelines.glue import folders_of

        return folders_of(config)


@register
class Wmt(Pipeline):
    name = "wmt"
    kind = "translation"
    headline = Metric("test/sacrebleu", higher_is_better=True)
    flags = ("prepare", "plan")
    stages = (Stage(1.8, ("model=roformer",)), Stage(1.8, ("model=transformer",)))

    def config(self) -> Any:
        from roformer.config.wmt import WmtConfig

        return WmtConfig

    def task(self, config: Any) -> Any:
        from roformer.tasks.translation import TranslationTask

        return TranslationTask(config)

    def prepare(self, config: Any) -> Any:
        from roformer.tasks.translation import prepare

        return prepare(config)


@register
class CharLM(Pipeline):
    name = "charlm"
    kind = "causal"
    headline = Metric("valid/bits_per_byte_whole", higher_is_better=False)
    loss = Loss(
        "valid/bits_per_byte",
        "bits per byte",
        "bits",
        "valid/unigram_bits_per_byte",
        "bytes",
        "valid/bits_per_byte_whole",
    )
    flags = ("prepare", "plan")
    stages = (
        Stage(7, only_all=True),
        Stage(7, ("model/position=none",), only_all=True),
        Stage(3, ("model/attention=softmax",), only_all=True),
    )

    def config(self) -> Any:
        from roformer.config.lm import CharLMConfig

        return CharLMConfig

    def task(self, config: Any) -> Any:
        from roformer.tasks.causal import ByteTask

        return ByteTask(config)

    def prepare(self, config: Any) -> Any:
        from roformer.tasks.causal import prepare_text_of_bytes

        return prepare_text_of_bytes(config)

    def baselines(self, config: Any) -> dict[str, dict[str, float]]:
        from roformer.tasks.baselines import of_bytes

        return of_bytes(config)


@register
class CausalLM(TextPipeline):
    name = "clm"
    kind = "causal"
    headline = Metric("valid/loss", higher_is_better=False)
    loss = Loss("valid/loss", "causal-LM loss", "nats", "valid/unigram_entropy")
    groups = ("text",)
    stages = tuple(
        Stage(7, (f"model/position={position}",), only_all=True)
        for position in ("rotary", "learned", "sinusoidal", "t5", "alibi", "none")
    )

    def config(self) -> Any:
        from roformer.config.lm import CausalLMConfig

        return CausalLMConfig

    def task(self, config: Any) -> Any:
        from roformer.tasks.causal import TokenTask

        return TokenTask(config)

    def baselines(self, config: Any) -> dict[str, dict[str, float]]:
        from roformer.tasks.baselines import of_tokens

        return of_tokens(config)


@register
class Scm(Pipeline):
    name = "scm"
    kind = "scorer"
    headline = Metric("test/accuracy", higher_is_better=True)
    stages = (
        Stage(5, ("preset=roformer_1024",), only_all=True),
        Stage(4.5, ("preset=roformer_512",), only_all=True),
        Stage(4.5, ("preset=wobert_512",), only_all=True),
        Stage(4.5, ("preset=bert_512",), only_all=True),
    )

    def config(self) -> Any:
        from roformer.config.scm import ScmConfig

        return ScmConfig

    def task(self, config: Any) -> Any:
        from roformer.tasks.classification import TripletTask

        return TripletTask(config)

    def baselines(self, config: Any) -> dict[str, dict[str, float]]:
        from roformer.tasks.baselines import of_triplets

        return of_triplets(config)
