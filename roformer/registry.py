"""The pipelines: the name, config, task and metrics of each.

The command line, plans, studies and the report read the pipelines from here. Functions import what they
return when they are called, so that reading the registry imports nothing else. A pipeline of another package
is one `register` call in a module that ROFORMER_EXTENSIONS names.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

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
    """Metric of the unigram baseline."""
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


class Parts(NamedTuple):
    """The functions of a pipeline."""

    task: Callable[[Any], Any]
    """Return the task of a resolved config, see `roformer.training.task.Task`; it prepares the data."""
    baselines: Callable[[Any], dict[str, dict[str, float]]] | None = None
    """Return the metrics of model-free baselines by name, given a run's config."""
    prepare: Callable[[Any], Any] | None = None
    """Prepare the data of a config without training; None: the data depends on `init_from`."""
    plan: Callable[[Any, int, float], None] | None = None
    """Print the cost of a config on a number of devices, at a share of their peak rate."""
    train: Callable[[Any], list[Path]] | None = None
    """Make the runs of a command with several; return their folders. None: a command is one run."""
    folders: Callable[[Any], list[Path]] | None = None
    """Return the run folders that `train` fills."""


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """One entry."""

    name: str
    """Name of `conf/<name>.yaml`, of the folder `conf/pipelines/<name>/` with recipes and its other groups,
    and of the folder under `runs/`."""
    config: Callable[[], Any]
    """Return the config class; `--help` prints its docstring."""
    parts: Callable[[], Parts]
    """Return its functions; this imports torch."""
    kind: Kind
    """Kind of its models."""
    headline: Metric | None
    """None if each run's summary names its headline metric, as in pipelines with several tasks."""
    loss: Loss | None = None
    """Metric of its training curves; None: it is judged by scores."""
    flags: tuple[Literal["prepare", "plan"], ...] = ()
    """The functions among its parts that are flags of its script."""
    weights: Callable[..., Any] | None = None
    """Return the settings of the weights that `init_from` names, see `roformer.config.start`; None: the
    config does not adopt them."""
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
        """The config class of a recorded run: another one (`of_run`) if a command makes several."""
        cls = self.config()
        return getattr(cls, "of_run", cls)

    @property
    def command(self) -> str:
        """The script that starts it."""
        return self.script or f"scripts/{self.name}.py"


_PIPELINES: dict[str, Pipeline] = {}


def register(pipeline: Pipeline) -> None:
    """Add a pipeline; raise ValueError if another one has its name."""
    if _PIPELINES.setdefault(pipeline.name, pipeline) != pipeline:
        raise ValueError(f"there is a pipeline {pipeline.name} already")


def import_extensions() -> None:
    """Import the modules that ROFORMER_EXTENSIONS names."""
    for module in filter(None, os.environ.get(EXTENSIONS, "").split(",")):
        _import(module.strip())


@cache
def _import(module: str) -> None:
    try:
        importlib.import_module(module)
    except ImportError as error:
        raise InputError(
            f"{EXTENSIONS}: cannot import {module} ({error}): install it, or add its folder to PYTHONPATH"
        ) from error


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


# --- pre-training --------------------------------------------------------------------------------


def pretrain_config() -> Any:
    from roformer.config.schema import PretrainConfig

    return PretrainConfig


def pretrain_parts() -> Parts:
    from roformer.analysis.plan import print_plan
    from roformer.tasks.mlm import prepare

    return Parts(pretrain_task, prepare=prepare, plan=print_plan)


def pretrain_task(config: Any) -> Any:
    from roformer.tasks.match import MatchTask
    from roformer.tasks.mlm import MaskedLMTask

    return (MatchTask if config.objective == "match" else MaskedLMTask)(config)


def weights_settings(kind: Kind, name: str, revision: str | None, runs: str) -> Any:
    from roformer.inference.start import settings_of

    return settings_of(kind, name, revision, runs)


register(
    Pipeline(
        name="pretrain",
        config=pretrain_config,
        parts=pretrain_parts,
        kind="mlm",
        headline=Metric("valid/mlm_loss", higher_is_better=False),
        loss=Loss("valid/mlm_loss", "masked-LM loss", "nats", "valid/unigram_entropy"),
        flags=("prepare", "plan"),
        weights=weights_settings,
        groups=("text", "masked"),
        stages=(Stage(2.9, ("model=roformer",)), Stage(2.9, ("model=bert",))),
    )
)


def stages_config() -> Any:
    from roformer.config.stages import StagesConfig

    return StagesConfig


def stages_parts() -> Parts:
    from roformer.pipelines.stages import folders_of, train_stages

    return pretrain_parts()._replace(train=train_stages, folders=folders_of)


register(
    Pipeline(
        name="stages",
        config=stages_config,
        parts=stages_parts,
        kind="mlm",
        headline=Metric("valid/mlm_loss", higher_is_better=False),
        flags=("prepare", "plan"),
        weights=weights_settings,
        runs="pretrain",
        groups=("text", "masked"),
        stages=(Stage(9, only_all=True),),
    )
)
register(
    Pipeline(
        name="convert",
        config=pretrain_config,
        parts=pretrain_parts,
        kind="mlm",
        headline=Metric("valid/error", higher_is_better=False),
        flags=("prepare",),
        weights=weights_settings,
        groups=("text", "masked"),
    )
)


# --- glue ----------------------------------------------------------------------------------------


def glue_config() -> Any:
    from roformer.config.glue import GlueConfig

    return GlueConfig


def glue_parts() -> Parts:
    from roformer.pipelines.glue import folders_of, glue
    from roformer.tasks.baselines import of_task
    from roformer.tasks.classification import ClassificationTask

    return Parts(ClassificationTask, of_task, train=glue, folders=folders_of)


register(
    Pipeline(
        name="glue",
        config=glue_config,
        parts=glue_parts,
        kind="classifier",
        headline=None,
        grid=True,
        stages=(Stage(2.7, ("model=roformer",)), Stage(2.7, ("model=bert",))),
    )
)


# --- wmt -----------------------------------------------------------------------------------------


def wmt_config() -> Any:
    from roformer.config.wmt import WmtConfig

    return WmtConfig


def wmt_parts() -> Parts:
    from roformer.analysis.plan import print_plan
    from roformer.tasks.translation import TranslationTask, prepare

    return Parts(TranslationTask, prepare=prepare, plan=print_plan)


register(
    Pipeline(
        name="wmt",
        config=wmt_config,
        parts=wmt_parts,
        kind="translation",
        headline=Metric("test/sacrebleu", higher_is_better=True),
        flags=("prepare", "plan"),
        stages=(Stage(1.8, ("model=roformer",)), Stage(1.8, ("model=transformer",))),
    )
)


# --- causal language models ----------------------------------------------------------------------


def charlm_config() -> Any:
    from roformer.config.lm import CharLMConfig

    return CharLMConfig


def charlm_parts() -> Parts:
    from roformer.analysis.plan import print_plan
    from roformer.tasks.baselines import of_bytes
    from roformer.tasks.causal import ByteTask, prepare_text_of_bytes

    return Parts(ByteTask, of_bytes, prepare_text_of_bytes, print_plan)


register(
    Pipeline(
        name="charlm",
        config=charlm_config,
        parts=charlm_parts,
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
        flags=("prepare", "plan"),
        stages=(
            Stage(7, only_all=True),
            Stage(7, ("model/position=none",), only_all=True),
            Stage(3, ("model/attention=softmax",), only_all=True),
        ),
    )
)


def clm_config() -> Any:
    from roformer.config.lm import CausalLMConfig

    return CausalLMConfig


def clm_parts() -> Parts:
    from roformer.tasks.baselines import of_tokens
    from roformer.tasks.causal import TokenTask

    return pretrain_parts()._replace(task=TokenTask, baselines=of_tokens)


register(
    Pipeline(
        name="clm",
        config=clm_config,
        parts=clm_parts,
        kind="causal",
        headline=Metric("valid/loss", higher_is_better=False),
        loss=Loss("valid/loss", "causal-LM loss", "nats", "valid/unigram_entropy"),
        flags=("prepare", "plan"),
        weights=weights_settings,
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


def scm_parts() -> Parts:
    from roformer.tasks.baselines import of_triplets
    from roformer.tasks.classification import TripletTask

    return Parts(TripletTask, of_triplets)


register(
    Pipeline(
        name="scm",
        config=scm_config,
        parts=scm_parts,
        kind="scorer",
        headline=Metric("test/accuracy", higher_is_better=True),
        stages=(
            Stage(5, ("preset=roformer_1024",), only_all=True),
            Stage(4.5, ("preset=roformer_512",), only_all=True),
            Stage(4.5, ("preset=wobert_512",), only_all=True),
            Stage(4.5, ("preset=bert_512",), only_all=True),
        ),
    )
)
