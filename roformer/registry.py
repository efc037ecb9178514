"""The pipelines: the name, config, task and metrics of each.

The command line, plans, studies and the report read the pipelines from here. Functions import what they
need when they are called, so that reading the registry imports nothing else. A pipeline of another package
is one `register` call in a module that ROFORMER_EXTENSIONS names (see `roformer.extensions`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from roformer.errors import InputError
from roformer.extensions import import_extensions

Kind = Literal["mlm", "causal", "classifier", "scorer", "translation", "encoder"]
"""Kinds of trained models, as a checkpoint's description says; an encoder is of Hugging Face."""
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
    """Metric of the unigram baseline."""
    read: str = "tokens"
    """The unit that a model reads."""
    whole: str = ""
    """The metric of the whole validation text after the last step, where there is one: what the
    others are of is a sample."""

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


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """One entry."""

    name: str
    """Name of `conf/<name>.yaml`, of the folder `conf/pipelines/<name>/` with recipes and its other groups,
    and of the folder under `runs/`."""
    config: Callable[[], Any]
    """Return the config class; `--help` prints its docstring."""
    task: Callable[[Any], Any]
    """Return the task of a resolved config, see `roformer.training.task.Task`; it prepares the data."""
    kind: Kind
    """Kind of its models."""
    headline: Metric | None
    """None if each run's summary names its headline metric, as in pipelines with several tasks."""
    loss: Loss | None = None
    """Metric of its training curves; None: it is judged by scores."""
    baselines: Callable[[Any], dict[str, dict[str, float]]] | None = None
    """Return the metrics of model-free baselines by name, given a run's config."""
    weights: Callable[..., Any] | None = None
    """Return the settings of the weights that `init_from` names, see `roformer.config.start`; None: the
    config does not adopt them."""
    prepare: Callable[[Any], Any] | None = None
    """Prepare the data of a config without training; None: the data depends on `init_from`."""
    train: Callable[[Any], list[Path]] | None = None
    """Make the runs of a command with several; return their folders. None: a command is one run."""
    folders: Callable[[Any], list[Path]] | None = None
    """Return the run folders that `train` fills."""
    plan: Callable[[Any, int, float], None] | None = None
    """Print the cost of a config on a number of devices, at a share of their peak rate."""
    run_config: Callable[[], Any] | None = None
    """Return the config class of its runs, if a command makes several; None: `config`."""
    runs: str = ""
    """Pipeline of its runs; "": its own."""
    grid: bool = False
    """True if one command takes lists of seeds and uses all cores by itself."""
    script: str = ""
    """The script that starts it; default: `scripts/<name>.py`."""
    groups: tuple[str, ...] = ()
    """Folders of shared config groups under `conf/pipelines/`."""
    stages: tuple[Stage, ...] = ()
    """Stages of `make reproduce`."""
    conf: Path | None = None
    """Folder of `<name>.yaml` and `pipelines/<name>/`; None: `conf/` of this repository."""

    @property
    def config_of_run(self) -> Any:
        """The config class of a recorded run."""
        return (self.run_config or self.config)()

    @property
    def command(self) -> str:
        """The script that starts it."""
        return self.script or f"scripts/{self.name}.py"


_PIPELINES: dict[str, Pipeline] = {}


def register(pipeline: Pipeline) -> None:
    """Add a pipeline; raise ValueError if another one has its name."""
    if _PIPELINES.setdefault(pipeline.name, pipeline) != pipeline:
        raise ValueError(f"there is a pipeline {pipeline.name} already")


def pipelines() -> dict[str, Pipeline]:
    """Return all pipelines by name; pipelines of other packages are last."""
    import_extensions()
    return dict(_PIPELINES)


def get(name: str) -> Pipeline:
    """Return the pipeline of a name."""
    known = pipelines()
    if name not in known:
        raise InputError(f"there is no pipeline {name}: choose one of {', '.join(known)}")
    return known[name]


# --- pretrain ------------------------------------------------------------------------------------


def blocks_plan(config: Any, devices: int, utilisation: float) -> None:
    from roformer.analysis.plan import plan_sequences

    plan_sequences(config, devices, utilisation)


def pretrain_config() -> Any:
    from roformer.config.schema import PretrainConfig

    return PretrainConfig


def weights_settings(kind: Kind, name: str, revision: str | None, runs: str) -> Any:
    from roformer.inference.start import settings_of

    return settings_of(kind, name, revision, runs)


def prepare_text(config: Any) -> Any:
    from roformer.tasks.mlm import prepare

    return prepare(config)


def pretrain_task(config: Any) -> Any:
    from roformer.tasks.match import MatchTask
    from roformer.tasks.mlm import MaskedLMTask

    return (MatchTask if config.objective == "match" else MaskedLMTask)(config)


register(
    Pipeline(
        name="pretrain",
        config=pretrain_config,
        kind="mlm",
        headline=Metric("valid/mlm_loss", higher_is_better=False),
        loss=Loss("valid/mlm_loss", "masked-LM loss", "nats", "valid/unigram_entropy"),
        weights=weights_settings,
        prepare=prepare_text,
        task=pretrain_task,
        plan=blocks_plan,
        groups=("text",),
        stages=(Stage(2.9, ("model=roformer",)), Stage(2.9, ("model=bert",))),
    )
)


# --- stages --------------------------------------------------------------------------------------


def stages_plan(config: Any, devices: int, utilisation: float) -> None:
    from roformer.analysis.plan import plan_stages

    plan_stages(config, devices, utilisation)


def stages_config() -> Any:
    from roformer.config.stages import StagesConfig

    return StagesConfig


def stages_train(config: Any) -> list[Path]:
    from roformer.pipelines.stages import train_stages

    return train_stages(config)


def stages_folders(config: Any) -> list[Path]:
    from roformer.pipelines.stages import folders_of

    return folders_of(config)


register(
    Pipeline(
        name="stages",
        config=stages_config,
        train=stages_train,
        kind="mlm",
        headline=Metric("valid/mlm_loss", higher_is_better=False),
        weights=weights_settings,
        prepare=prepare_text,
        task=pretrain_task,
        plan=stages_plan,
        folders=stages_folders,
        run_config=pretrain_config,
        runs="pretrain",
        groups=("text",),
        stages=(Stage(9, only_all=True),),
    )
)


# --- convert -------------------------------------------------------------------------------------

register(
    Pipeline(
        name="convert",
        config=pretrain_config,
        kind="mlm",
        headline=Metric("valid/error", higher_is_better=False),
        weights=weights_settings,
        prepare=prepare_text,
        task=pretrain_task,
        groups=("text",),
    )
)


# --- glue ----------------------------------------------------------------------------------------


def glue_config() -> Any:
    from roformer.config.glue import GlueConfig

    return GlueConfig


def glue_train(config: Any) -> list[Path]:
    from roformer.pipelines.glue import glue

    return glue(config)


def glue_task(config: Any) -> Any:
    from roformer.tasks.classification import ClassificationTask

    return ClassificationTask(config)


def glue_baselines(config: Any) -> dict[str, dict[str, float]]:
    from roformer.tasks.baselines import of_task

    return of_task(config)


def glue_folders(config: Any) -> list[Path]:
    from roformer.pipelines.glue import folders_of

    return folders_of(config)


def glue_run() -> Any:
    from roformer.config.glue import FinetuneConfig

    return FinetuneConfig


register(
    Pipeline(
        name="glue",
        config=glue_config,
        train=glue_train,
        kind="classifier",
        headline=None,
        task=glue_task,
        baselines=glue_baselines,
        folders=glue_folders,
        run_config=glue_run,
        grid=True,
        stages=(Stage(2.7, ("model=roformer",)), Stage(2.7, ("model=bert",))),
    )
)


# --- wmt -----------------------------------------------------------------------------------------


def wmt_plan(config: Any, devices: int, utilisation: float) -> None:
    from roformer.analysis.plan import plan_translation

    plan_translation(config, devices, utilisation)


def wmt_config() -> Any:
    from roformer.config.wmt import WmtConfig

    return WmtConfig


def wmt_prepare(config: Any) -> Any:
    from roformer.tasks.translation import prepare

    return prepare(config)


def wmt_task(config: Any) -> Any:
    from roformer.tasks.translation import TranslationTask

    return TranslationTask(config)


register(
    Pipeline(
        name="wmt",
        config=wmt_config,
        kind="translation",
        headline=Metric("test/sacrebleu", higher_is_better=True),
        prepare=wmt_prepare,
        task=wmt_task,
        plan=wmt_plan,
        stages=(Stage(1.8, ("model=roformer",)), Stage(1.8, ("model=transformer",))),
    )
)


# --- charlm --------------------------------------------------------------------------------------


def charlm_config() -> Any:
    from roformer.config.lm import CharLMConfig

    return CharLMConfig


def charlm_prepare(config: Any) -> Any:
    from roformer.tasks.causal import prepare_text_of_bytes

    return prepare_text_of_bytes(config)


def charlm_task(config: Any) -> Any:
    from roformer.tasks.causal import ByteTask

    return ByteTask(config)


def charlm_baselines(config: Any) -> dict[str, dict[str, float]]:
    from roformer.tasks.baselines import of_bytes

    return of_bytes(config)


register(
    Pipeline(
        name="charlm",
        config=charlm_config,
        kind="causal",
        headline=Metric("valid/bits_per_byte_whole", higher_is_better=False),
        loss=Loss(
            "valid/bits_per_byte",
            "bits per byte",
            "bits",
            "valid/unigram_bits_per_byte",
            "bytes",
            "valid/bits_per_byte_whole",
        ),
        prepare=charlm_prepare,
        task=charlm_task,
        baselines=charlm_baselines,
        plan=blocks_plan,
        stages=(
            Stage(7, only_all=True),
            Stage(7, ("model/position=none",), only_all=True),
            Stage(3, ("model/attention=softmax",), only_all=True),
        ),
    )
)


# --- clm -----------------------------------------------------------------------------------------


def clm_config() -> Any:
    from roformer.config.lm import CausalLMConfig

    return CausalLMConfig


def clm_task(config: Any) -> Any:
    from roformer.tasks.causal import TokenTask

    return TokenTask(config)


def clm_baselines(config: Any) -> dict[str, dict[str, float]]:
    from roformer.tasks.baselines import of_tokens

    return of_tokens(config)


register(
    Pipeline(
        name="clm",
        config=clm_config,
        kind="causal",
        headline=Metric("valid/loss", higher_is_better=False),
        loss=Loss("valid/loss", "causal-LM loss", "nats", "valid/unigram_entropy"),
        weights=weights_settings,
        prepare=prepare_text,
        task=clm_task,
        baselines=clm_baselines,
        plan=blocks_plan,
        groups=("text",),
        stages=tuple(
            Stage(7, (f"model/position={position}",), only_all=True)
            for position in ("rotary", "learned", "sinusoidal", "t5", "alibi", "none")
        ),
    )
)


# --- scm -----------------------------------------------------------------------------------------


def scm_config() -> Any:
    from roformer.config.scm import ScmConfig

    return ScmConfig


def scm_task(config: Any) -> Any:
    from roformer.tasks.classification import TripletTask

    return TripletTask(config)


def scm_baselines(config: Any) -> dict[str, dict[str, float]]:
    from roformer.tasks.baselines import of_triplets

    return of_triplets(config)


register(
    Pipeline(
        name="scm",
        config=scm_config,
        kind="scorer",
        headline=Metric("test/accuracy", higher_is_better=True),
        task=scm_task,
        baselines=scm_baselines,
        stages=(
            Stage(5, ("preset=roformer_1024",), only_all=True),
            Stage(4.5, ("preset=roformer_512",), only_all=True),
            Stage(4.5, ("preset=wobert_512",), only_all=True),
            Stage(4.5, ("preset=bert_512",), only_all=True),
        ),
    )
)
