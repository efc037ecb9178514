"""What a run can be told, as typed dataclasses: every key, its type, its range, its meaning.

Three classes of key (one class each, so that a key's class can be read off its place):

* saved with the weights: `model` (`EncoderConfig`), read back from every checkpoint;
* changes the result, not the weights' shape: `data`, `masking`, `optimizer`, `schedule`, `training`,
  `seed`, `init_from`;
* must not change the result: those marked `NOT_IN_RESULT`, as `runtime`, `tracker`, `resume` and how
  often a training is looked at. They stay out of the run id.

The YAML files under `conf/` hold the values; a key without a default here must stand there.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from roformer.config.attention import Attention, check_attention, check_documents
from roformer.config.position import Position
from roformer.config.text import BuiltinText as BuiltinText
from roformer.config.text import ChineseBuiltinText as ChineseBuiltinText
from roformer.config.text import FilesText as FilesText
from roformer.config.text import HubSource as HubSource
from roformer.config.text import HubText as HubText
from roformer.config.text import Text as Text
from roformer.config.text import TextData as TextData
from roformer.config.text import TokenizerConfig as TokenizerConfig
from roformer.config.text import Words as Words
from roformer.config.typed import NOT_IN_RESULT, schema
from roformer.config.typed import Fraction as Fraction
from roformer.config.typed import Name as Name

Probability = Annotated[float, Field(ge=0.0, lt=1.0)]
Label = Annotated[str, Field(pattern=r"^[\w-]+$")]
"""Part of a run id, so of a folder's name."""
Seed = Annotated[int, Field(ge=0, lt=2**63)]
Interval = Annotated[PositiveInt, NOT_IN_RESULT]
"""Steps between two looks at a training, which goes on the same."""
Resume = Annotated[bool | Literal["auto"], NOT_IN_RESULT]


# --- model ---------------------------------------------------------------------------------------


@schema
class TransformerConfig:
    """A stack of Transformer blocks; what is no key here is as in Vaswani et al. 2017."""

    name: Label
    size: Label
    layers: PositiveInt
    hidden_size: PositiveInt
    heads: PositiveInt
    intermediate_size: PositiveInt
    norm: Literal["post", "pre"] = "post"
    """Layer norm after the residual sum (BERT, the Transformer) or before each sublayer."""
    hidden_dropout: Probability = 0.1
    attention_dropout: Probability = 0.1
    position: Position
    attention: Attention

    layer_norm_eps: PositiveFloat = 1e-5

    @property
    def head_dim(self) -> int:
        return self.hidden_size // self.heads

    @property
    def activation(self) -> str:
        return "gelu"

    @property
    def causal(self) -> bool:
        """Whether a token sees only itself and those before it."""
        return False

    @property
    def init_std(self) -> float:
        """Of embeddings and of trained positions: unit variance after the scaling by √hidden_size."""
        return float(self.hidden_size**-0.5)

    @property
    def sinusoid_scale(self) -> float:
        """Amplitude of sinusoidal positions: plain sines on embeddings of unit variance."""
        return 1.0

    @property
    def rotated_size(self) -> int:
        """Size of the vectors that rotary positions turn: a head, or the features made of it."""
        return self.attention.rotated_size(self.head_dim)

    @property
    def rotary_dim(self) -> int:
        """How many dimensions of these are rotated; 0 for encodings that do not rotate."""
        return self.position.rotated_dims(self.rotated_size)

    @model_validator(mode="after")
    def _combinations(self) -> TransformerConfig:
        if self.hidden_size % self.heads:
            raise ValueError(
                f"hidden_size={self.hidden_size} is not divisible by heads={self.heads}"
            )
        check_attention(self.attention, self.position, self.attention_dropout, self.head_dim)
        self.position.check_model(self)
        return self


@schema
class EncoderConfig(TransformerConfig):
    """A bidirectional Transformer encoder (BERT's block; Devlin et al. 2019)."""

    token_types: PositiveInt = 2
    layer_norm_eps: PositiveFloat = 1e-12
    init_std: PositiveFloat = 0.02

    @property
    def sinusoid_scale(self) -> float:
        """Amplitude that gives sines the root mean square of a learned table at its start."""
        return math.sqrt(2) * self.init_std


# --- masking -------------------------------------------------------------------------------------


@schema
class MaskingConfig:
    """Which tokens the model must predict (Devlin et al. 2019, section 3.1)."""

    probability: Fraction = 0.15
    mask: Annotated[float, Field(ge=0.0, le=1.0)] = 0.8
    """Share of the chosen tokens replaced by [MASK]."""
    random: Annotated[float, Field(ge=0.0, le=1.0)] = 0.1
    """Share replaced by a random token; what is left stays as it is."""
    whole_word: bool = False

    @model_validator(mode="after")
    def _shares(self) -> MaskingConfig:
        if self.mask + self.random > 1.0:
            raise ValueError(f"mask={self.mask} and random={self.random} add up to more than 1")
        return self


# --- optimisation --------------------------------------------------------------------------------


@schema
class OptimizerConfig:
    """AdamW, bias-corrected (Loshchilov & Hutter 2019)."""

    learning_rate: PositiveFloat
    betas: tuple[Probability, Probability] = (0.9, 0.999)
    eps: PositiveFloat = 1e-8
    weight_decay: Annotated[float, Field(ge=0.0)] = 0.01
    """On matrices and tables; not on vectors: biases and norms."""
    clip_norm: PositiveFloat | None = 1.0


@schema
class ScheduleConfig:
    """The learning rate as a function of the update; see `roformer.training.optim`."""

    kind: Literal["constant", "linear", "inverse_sqrt", "cosine"] = "linear"
    warmup_steps: NonNegativeInt | None = None
    warmup_fraction: Annotated[float, Field(ge=0.0, lt=1.0)] | None = None
    """Give the warm-up as updates or as a share of all updates, not both; neither means none."""
    initial_ratio: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    """Learning rate at the start of the warm-up over the peak."""
    final_ratio: Annotated[float, Field(ge=0.0, le=1.0)] = 0.0
    """Learning rate at the last update over the peak (linear and cosine)."""
    total_steps: PositiveInt | None = None
    """Updates of the whole schedule, where a run is a stage of it; null: those of the run."""
    first_update: NonNegativeInt = 0
    """Updates of the schedule that earlier stages have made."""

    @model_validator(mode="after")
    def _one_warmup(self) -> ScheduleConfig:
        if self.warmup_steps is not None and self.warmup_fraction is not None:
            raise ValueError("give warmup_steps or warmup_fraction, not both (null turns one off)")
        if self.kind == "inverse_sqrt" and not (self.warmup_steps or self.warmup_fraction):
            raise ValueError("inverse_sqrt needs a warm-up: set warmup_steps or warmup_fraction")
        return self


@schema
class LoopConfig:
    """How long, how precisely, and how often to look: what the loop itself reads."""

    steps: PositiveInt
    """Updates of the weights."""
    precision: Literal["fp32", "bf16", "fp16", "auto"] = "auto"
    """Autocast; `auto` is bf16 where the hardware computes in it, else fp32, and is resolved
    before the run id, so that a record always names what ran."""
    log_every: Interval
    evaluate_every: Interval
    """What a run leaves behind are its last weights: which evaluation was the best is a note."""
    checkpoint_every: Interval


@schema
class TrainingConfig(LoopConfig):
    """The loop of pre-training: packed blocks, a fixed number a batch."""

    batch_size: PositiveInt
    """Sequences an update, over all processes and accumulation steps."""
    sequence_length: Annotated[int, Field(ge=8)]
    documents: Literal["cross", "isolate"] = "cross"
    """Packed blocks: attend across document boundaries (RoBERTa's full sentences), or restart the
    positions and block attention at each boundary."""
    valid_sequences: PositiveInt
    """Size of the frozen validation sample."""
    first_epoch: NonNegativeInt = 0
    """Number of the first epoch, which decides order and masks: a later stage over the same text has
    its own."""


# --- what must not change the result --------------------------------------------------------------


@schema
class RuntimeConfig:
    """Where and how fast. The same weights come out, to the order of floating-point sums; with
    dropout, to its draws, which differ between devices and numbers of processes.
    """

    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    micro_batch_size: PositiveInt | None = None
    """Sequences a forward pass; null: a process's whole share of the batch."""
    gradient_checkpointing: bool = False
    fsdp: bool = False
    """Cut weights, gradients and moments over the processes, see `roformer.training.sharding`."""
    compile: bool = False
    num_workers: NonNegativeInt = 0
    """Processes that make batches."""
    prepare_workers: PositiveInt | None = None
    """Processes that tokenise; null: one a core."""
    tune_process: bool = True
    """Apply `roformer.training.process` (allocator thresholds, thread count)."""
    threads: PositiveInt | None = None
    """CPU threads a process, set by `tune_process`; null: the cores shared among the processes."""
    runs_dir: Name = "runs"
    cache_dir: Name = "cache"
    keep_checkpoints: PositiveInt = 3
    """Newest checkpoints kept beside the best one."""
    keep_optimizer: bool = False
    """Keep AdamW's moments in the checkpoints of a finished run, two thirds of their size. To go on
    from them (`keep_moments`) or to replay a step without the steps before it needs them."""
    progress: bool = True


@schema
class TrackerConfig:
    """Mirror of metrics.jsonl elsewhere; never needed.

    A value given here wins over wandb's environment variables, and these over the defaults.
    """

    kind: Literal["none", "wandb", "tensorboard", "trackio"] = "none"
    project: str | None = None
    """Of wandb and trackio; null: WANDB_PROJECT for wandb, else `roformer`."""
    entity: str | None = None
    """Of wandb; null: WANDB_ENTITY, else the user's own."""
    mode: Literal["auto", "online", "offline"] = "auto"
    """Of wandb; `auto`: WANDB_MODE, else online when logged in and offline when not."""


Runtime = Annotated[RuntimeConfig, NOT_IN_RESULT]
Tracker = Annotated[TrackerConfig, NOT_IN_RESULT]


# --- pipelines -----------------------------------------------------------------------------------


@schema
class CommandConfig:
    """What the config of every training command has; `model`, `data` and `training` are its own."""

    recipe: Label
    model: TransformerConfig
    data: Any
    training: Any
    schedule: ScheduleConfig
    resume: Resume = "auto"
    """`auto`: go on with an unfinished run of this id; true: insist on one; false: start over."""
    runtime: Runtime = RuntimeConfig()
    tracker: Tracker = TrackerConfig()

    @model_validator(mode="after")
    def _precision(self) -> CommandConfig:
        if self.training.precision == "fp16" and self.runtime.device == "cpu":
            raise ValueError("training.precision=fp16 needs a GPU: use bf16 or fp32 on a CPU")
        return self


@schema
class RunConfig(CommandConfig):
    """What the config of every run has: one seed, one optimizer."""

    seed: Seed = 0
    optimizer: OptimizerConfig


def check_loop(training: LoopConfig, schedule: ScheduleConfig) -> None:
    """Raise ValueError where warm-up and steps do not go together."""
    if (schedule.warmup_steps or 0) >= (schedule.total_steps or training.steps):
        raise ValueError(
            f"schedule.warmup_steps={schedule.warmup_steps} leaves nothing of "
            f"training.steps={schedule.total_steps or training.steps}"
        )
    last = schedule.first_update + training.steps
    if schedule.total_steps is not None and last > schedule.total_steps:
        raise ValueError(
            f"schedule.total_steps={schedule.total_steps} ends before update {last}, the last of "
            f"schedule.first_update + training.steps"
        )


@schema
class PretrainConfig(RunConfig):
    """Masked-language-model pre-training (paper, section 4.2)."""

    model: EncoderConfig
    data: Text
    masking: MaskingConfig = MaskingConfig()
    training: TrainingConfig
    init_from: str | None = None
    """Start from the weights of this run (its folder or id) or checkpoint instead of random ones."""
    keep_moments: bool = False
    """Take AdamW's moments from there too; false: they begin at zero."""

    @model_validator(mode="after")
    def _combinations(self) -> PretrainConfig:
        length = self.training.sequence_length
        self.model.position.check_length(
            length, f"training.sequence_length={length}", "raise it, shorten the sequences"
        )
        check_documents(self.model.attention, self.training.documents)
        if self.keep_moments and self.init_from is None:
            raise ValueError("keep_moments=true needs the run that has them: set init_from")
        check_loop(self.training, self.schedule)
        return self
