"""The pipelines: what each is called, what it trains and where its parts are.

This is the one place that names a pipeline; the command line, plans, replays, studies and the report
read it. Parts are written "module:name" and imported when they are asked for, so reading the registry
imports nothing. A pipeline of another package is one `register` call, in a module that
ROFORMER_EXTENSIONS names (see `roformer.extensions`).
"""

from __future__ import annotations

import importlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

from roformer.errors import InputError
from roformer.extensions import import_extensions

MOST_RUNS = 8
"""Runs of a command whose metrics are told one by one."""
Kind = Literal["mlm", "causal", "classifier", "scorer", "translation"]
"""Kinds of trained models, as a checkpoint's description says."""


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
    """The metric that says what knowing the frequencies alone is worth."""
    read: str = "tokens"
    """The unit that a model reads."""
    whole: str = ""
    """The metric of the whole validation text after the last step, where there is one: what the
    others are of is a sample."""

    @property
    def axis(self) -> str:
        """As an axis is labelled."""
        return self.words if self.unit in self.words else f"{self.words} ({self.unit})"


class Plan(NamedTuple):
    """An estimate of a training's cost."""

    config: str
    """The pipeline's config class with `roformer.config.plan.Devices`."""
    show: str
    """Prints the estimate of such a config."""


class Stage(NamedTuple):
    """One command of `make reproduce`."""

    minutes: float
    """At recipe mini on two CPU cores with AVX-512 in fp32 (experiments/reproduce)."""
    overrides: tuple[str, ...] = ()
    """Overrides that distinguish it from the other stages of its pipeline."""
    only_all: bool = False
    """True if it belongs to the whole paper alone; its minutes are estimates then."""


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """One entry; parts are "module:name"."""

    name: str
    """Name of `conf/<name>.yaml`, of the folder `conf/pipelines/<name>/` with recipes and other groups of
    its own, and of the folder under `runs/`."""
    config: str
    """Config class; its docstring is what `--help` says."""
    task: str
    """Function of a run's resolved config: prepares the data and returns `roformer.training.task.Opened`."""
    kind: Kind
    """Kind of its models."""
    headline: Metric | None
    """None where each run's summary names its own, as those of several tasks do."""
    loss: Loss | None = None
    """The metric of its curves; None: it is judged by scores."""
    baselines: str = ""
    """Function of a run's config: name of a trivial baseline → metric → value."""
    weights: str = ""
    """Function of the pipeline's kind, `init_from`, `init_revision` and the folder of runs: settings of these
    weights, see `roformer.config.start`; "": the config does not take them."""
    prepare: str = ""
    """Function of the config that prepares the data alone; "": it needs the weights to start from."""
    train: str = ""
    """Function of the config where one command makes several runs; returns their folders."""
    folders: str = ""
    """Function of the config that returns the run folders that `train` fills; "": one, of its own id."""
    plan: Plan | None = None
    run_config: str = ""
    """Config class of its runs, where one command makes several."""
    runs: str = ""
    """Pipeline of its runs; "": its own."""
    grid: bool = False
    """True if one command takes lists of seeds and fills the machine by itself."""
    script: str = ""
    """The script that starts it; default: `scripts/<name>.py`."""
    groups: tuple[str, ...] = ()
    """Folders of config groups that it shares with some pipelines, under `conf/pipelines/`."""
    stages: tuple[Stage, ...] = ()
    """Stages of `make reproduce`."""
    conf: Path | None = None
    """Folder of `<name>.yaml` and `pipelines/<name>/`; None: `conf/` of this repository."""

    @property
    def config_of_run(self) -> str:
        """The config class whose YAML a run's record has."""
        return self.run_config or self.config

    @property
    def command(self) -> str:
        """The script that starts it."""
        return self.script or f"scripts/{self.name}.py"


_PIPELINES: dict[str, Pipeline] = {}


def register(pipeline: Pipeline) -> None:
    """Add a pipeline.

    Raises:
        ValueError: the name is taken by another one.
    """
    if _PIPELINES.setdefault(pipeline.name, pipeline) != pipeline:
        raise ValueError(f"there is a pipeline {pipeline.name} already")


def pipelines() -> dict[str, Pipeline]:
    """Return all pipelines by name, those of other packages last."""
    import_extensions()
    return dict(_PIPELINES)


def get(name: str) -> Pipeline:
    """Return the pipeline of a name."""
    known = pipelines()
    if name not in known:
        raise InputError(f"there is no pipeline {name}: choose one of {', '.join(known)}")
    return known[name]


def train(pipeline: Pipeline, config: Any) -> Any:
    """Train with a pipeline; return its `train`'s result, or the run's summary."""
    if pipeline.train:
        return load(pipeline.train)(config)
    return load("roformer.pipelines.run:train")(pipeline.name, config)


def outcome(pipeline: Pipeline, folders: Sequence[Path]) -> str:
    """Return the headline metrics of finished runs, and what is wrong with them.

    Runs that are not there are left out: the id of one that begins with trained weights may be known only
    when these are opened.
    """
    words, statuses = [], []
    many = len(folders) > 1
    for file in (folder / "summary.json" for folder in folders):
        if not file.is_file():
            continue
        summary = json.loads(file.read_text(encoding="utf-8"))
        name = pipeline.headline.name if pipeline.headline else summary.get("headline")
        value = summary["metrics"].get(name)
        # One line holds six tasks, so each is told by its name without its metric's.
        title = name if pipeline.headline or not many else str(name).partition("/")[0]
        words.append(f"{title} {'NaN' if value is None else f'{value:.3f}'}")
        statuses.append(summary["status"])
    told = ", ".join(words) if len(words) <= MOST_RUNS else f"{len(words)} runs"
    told = told or "ended"
    counts = Counter(status for status in statuses if status != "done")
    wrong = ", ".join(f"{count} {status}" if many else status for status, count in counts.items())
    return f"{told} [{wrong}]" if wrong else told


def load(part: str) -> Any:
    """Return what "module:name" names."""
    module, _, name = part.partition(":")
    return getattr(importlib.import_module(module), name)


register(
    Pipeline(
        name="pretrain",
        config="roformer.config.schema:PretrainConfig",
        kind="mlm",
        headline=Metric("valid/mlm_loss", higher_is_better=False),
        loss=Loss("valid/mlm_loss", "masked-LM loss", "nats", "valid/unigram_entropy"),
        weights="roformer.inference.start:settings_of",
        prepare="roformer.tasks.mlm:prepare",
        task="roformer.tasks.mlm:open_run",
        plan=Plan("roformer.config.plan:PretrainPlan", "roformer.analysis.plan:plan_sequences"),
        groups=("text",),
        stages=(Stage(2.9, ("model=roformer",)), Stage(2.9, ("model=bert",))),
    )
)
register(
    Pipeline(
        name="stages",
        config="roformer.config.stages:StagesConfig",
        train="roformer.pipelines.stages:train_stages",
        kind="mlm",
        headline=Metric("valid/mlm_loss", higher_is_better=False),
        weights="roformer.inference.start:settings_of",
        prepare="roformer.tasks.mlm:prepare",
        task="roformer.tasks.mlm:open_run",
        plan=Plan("roformer.config.plan:StagesPlan", "roformer.analysis.plan:plan_stages"),
        folders="roformer.pipelines.stages:folders_of",
        run_config="roformer.config.schema:PretrainConfig",
        runs="pretrain",
        groups=("text",),
        stages=(Stage(9, only_all=True),),
    )
)
register(
    Pipeline(
        name="glue",
        config="roformer.config.glue:GlueConfig",
        train="roformer.pipelines.glue:glue",
        kind="classifier",
        headline=None,
        task="roformer.tasks.classification:open_finetuning",
        baselines="roformer.tasks.baselines:of_task",
        folders="roformer.pipelines.glue:folders_of",
        run_config="roformer.config.glue:FinetuneConfig",
        grid=True,
        stages=(Stage(2.7, ("model=roformer",)), Stage(2.7, ("model=bert",))),
    )
)
register(
    Pipeline(
        name="wmt",
        config="roformer.config.wmt:WmtConfig",
        kind="translation",
        headline=Metric("test/sacrebleu", higher_is_better=True),
        prepare="roformer.tasks.translation:prepare",
        task="roformer.tasks.translation:open_run",
        plan=Plan("roformer.config.plan:WmtPlan", "roformer.analysis.plan:plan_translation"),
        stages=(Stage(1.8, ("model=roformer",)), Stage(1.8, ("model=transformer",))),
    )
)
register(
    Pipeline(
        name="charlm",
        config="roformer.config.lm:CharLMConfig",
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
        prepare="roformer.tasks.causal:prepare_text_of_bytes",
        task="roformer.tasks.causal:open_bytes",
        baselines="roformer.tasks.baselines:of_bytes",
        plan=Plan("roformer.config.plan:CharLMPlan", "roformer.analysis.plan:plan_sequences"),
        stages=(
            Stage(7, only_all=True),
            Stage(7, ("model/position=none",), only_all=True),
            Stage(3, ("model/attention=softmax",), only_all=True),
        ),
    )
)
register(
    Pipeline(
        name="clm",
        config="roformer.config.lm:CausalLMConfig",
        kind="causal",
        headline=Metric("valid/loss", higher_is_better=False),
        loss=Loss("valid/loss", "causal-LM loss", "nats", "valid/unigram_entropy"),
        weights="roformer.inference.start:settings_of",
        prepare="roformer.tasks.mlm:prepare",
        task="roformer.tasks.causal:open_tokens",
        baselines="roformer.tasks.baselines:of_tokens",
        plan=Plan("roformer.config.plan:CausalLMPlan", "roformer.analysis.plan:plan_sequences"),
        groups=("text",),
        stages=tuple(
            Stage(7, (f"model/position={position}",), only_all=True)
            for position in ("rotary", "learned", "sinusoidal", "t5", "alibi", "none")
        ),
    )
)
register(
    Pipeline(
        name="scm",
        config="roformer.config.scm:ScmConfig",
        kind="scorer",
        headline=Metric("test/accuracy", higher_is_better=True),
        task="roformer.tasks.classification:open_triplets",
        baselines="roformer.tasks.baselines:of_triplets",
        stages=(
            Stage(5, ("preset=roformer_1024",), only_all=True),
            Stage(4.5, ("preset=roformer_512",), only_all=True),
            Stage(4.5, ("preset=wobert_512",), only_all=True),
            Stage(4.5, ("preset=bert_512",), only_all=True),
        ),
    )
)
