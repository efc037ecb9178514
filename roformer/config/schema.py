"""What a run can be told, as typed dataclasses: every key, its type, its range, its meaning.

Three classes of key (one class each, so that a key's class can be read off its place):

* saved with the weights: `model` (`EncoderConfig`), read back from every checkpoint;
* changes the result, not the weights' shape: `data`, `masking`, `optimizer`, `schedule`, `training`,
  `seed`, `init_from`;
* must not change the result: `runtime`, `tracker`, `resume`. They stay out of the run id.

The YAML files under `conf/` hold the values; a key without a default here must stand there.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from roformer.config.attention import Attention
from roformer.config.position import (
    DynamicNtkScaling,
    Learned,
    NtkScaling,
    Position,
    Rotary,
    Sinusoidal,
    T5Bias,
)
from roformer.config.typed import schema

Probability = Annotated[float, Field(ge=0.0, lt=1.0)]
Fraction = Annotated[float, Field(gt=0.0, lt=1.0)]
Name = Annotated[str, Field(min_length=1)]
Label = Annotated[str, Field(pattern=r"^[\w-]+$")]
"""Part of a run id, so of a folder's name."""
Seed = Annotated[int, Field(ge=0, lt=2**63)]


# --- model ---------------------------------------------------------------------------------------


@schema
class TransformerConfig:
    """What every Transformer has, whichever way its attention looks."""

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

    @property
    def head_dim(self) -> int:
        return self.hidden_size // self.heads

    @property
    def rotary_dim(self) -> int:
        """How many dimensions of each head are rotated; 0 for encodings that do not rotate."""
        if not isinstance(self.position, Rotary):
            return 0
        return round(self.head_dim * self.position.fraction)

    @model_validator(mode="after")
    def _combinations(self) -> TransformerConfig:
        if self.hidden_size % self.heads:
            raise ValueError(
                f"hidden_size={self.hidden_size} is not divisible by heads={self.heads}"
            )
        if isinstance(self.position, Rotary) and self.rotary_dim % 2:
            raise ValueError(
                f"rotary positions rotate pairs, but fraction={self.position.fraction} of a head of "
                f"{self.head_dim} is {self.rotary_dim} dimensions: choose hidden_size, heads or "
                "position.fraction so that it is even"
            )
        if isinstance(self.position, Rotary) and self.rotary_dim == 0:
            raise ValueError(
                f"position.fraction={self.position.fraction} of a head of {self.head_dim} rotates "
                "nothing: raise it, or choose model/position=none"
            )
        scaling = self.position.scaling if isinstance(self.position, Rotary) else None
        if isinstance(scaling, NtkScaling | DynamicNtkScaling) and self.rotary_dim < 4:
            raise ValueError(
                f"position.scaling.kind={scaling.kind} spreads the factor over the pairs of a head "
                "and needs two of them: choose larger heads, or position.scaling.kind=linear"
            )
        bias = self.position
        if isinstance(bias, T5Bias) and bias.max_distance <= bias.buckets // 4:
            raise ValueError(
                f"position.max_distance={bias.max_distance} must be above a quarter of "
                f"position.buckets={bias.buckets}, where the logarithmic buckets start"
            )
        if isinstance(self.position, Sinusoidal) and self.hidden_size % 2:
            raise ValueError(
                f"sinusoidal positions need an even hidden_size, not {self.hidden_size}"
            )
        return self


@schema
class EncoderConfig(TransformerConfig):
    """A bidirectional Transformer encoder (BERT's block; Devlin et al. 2019)."""

    token_types: PositiveInt = 2
    layer_norm_eps: PositiveFloat = 1e-12
    init_std: PositiveFloat = 0.02

    activation = "gelu"
    causal = False

    @property
    def sinusoid_scale(self) -> float:
        """Amplitude that gives sines the root mean square of a learned table at its start."""
        return math.sqrt(2) * self.init_std


# --- data ----------------------------------------------------------------------------------------

Words = Literal["none", "jieba"]


@schema
class TokenizerConfig:
    """WordPiece, trained on the corpus or read from somewhere."""

    source: Name = "train"
    """`train`, a vocab.txt, a folder with tokenizer files, or a Hub id."""
    revision: str | None = None
    """Pinned revision of a Hub id."""
    vocab_size: Annotated[int, Field(ge=64, le=2**31)] = 8192
    """Entries to train; ignored when the vocabulary is read."""
    lowercase: bool = True
    words: Annotated[Words, Field(exclude_if=lambda words: words == "none")] = "none"
    """Chinese words of the vocabulary as one token each, found by `jieba`; `none`: its characters,
    as BERT. Not written where there are none, so that runs from before this key keep their ids."""


@schema
class HubSource:
    """One data set of the Hub, namespaced and pinned to a commit.

    A null revision is looked up once, at preparation, and the commit found is written into the
    manifest, so that a record always names what was read.
    """

    path: Annotated[str, Field(pattern=r"^[\w.-]+/[\w.-]+$")]
    name: str | None = None
    revision: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")] | None
    split: str = "train"
    text_field: str = "text"
    rows_per_document: PositiveInt = 1
    """Consecutive rows that are joined, for data sets of one sentence a row."""


@schema
class TextData:
    """What all text corpora share."""

    tokenizer: TokenizerConfig = TokenizerConfig()
    valid_fraction: Fraction = 0.2
    """Share of the documents held out (the paper: 8:2), decided by each document's own hash."""
    max_documents: PositiveInt | None = None
    """Read no more than this many documents."""


@schema
class BuiltinText(TextData):
    """English documentation: the docstrings of the pinned scientific packages."""

    kind: Literal["builtin"] = "builtin"


@schema
class FilesText(TextData):
    """Local .txt, .jsonl(.gz) or .parquet: a file, a folder or a glob."""

    kind: Literal["files"] = "files"
    path: Name
    text_field: str = "text"
    max_bad_rows: NonNegativeInt = 0
    """Rows that may be skipped (counted and reported) before the run stops."""


@schema
class HubText(TextData):
    """Data sets of the Hugging Face Hub, downloaded or streamed."""

    kind: Literal["hub"] = "hub"
    sources: Annotated[list[HubSource], Field(min_length=1)]
    streaming: bool = False


Text = Annotated[BuiltinText | FilesText | HubText, Field(discriminator="kind")]


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
    log_every: PositiveInt
    evaluate_every: PositiveInt
    checkpoint_every: PositiveInt


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
    progress: bool = True


@schema
class TrackerConfig:
    """Mirror of metrics.jsonl elsewhere; never needed."""

    kind: Literal["none", "wandb"] = "none"
    project: str = "roformer"
    entity: str | None = None
    mode: Literal["auto", "online", "offline"] = "auto"
    """`auto`: online when logged in, else offline."""


# --- pipelines -----------------------------------------------------------------------------------


def check_loop(training: LoopConfig, schedule: ScheduleConfig, runtime: RuntimeConfig) -> None:
    """Raise ValueError where precision and device, or warm-up and steps, do not go together."""
    if training.precision == "fp16" and runtime.device == "cpu":
        raise ValueError("training.precision=fp16 needs a GPU: use bf16 or fp32 on a CPU")
    if (schedule.warmup_steps or 0) >= training.steps:
        raise ValueError(
            f"schedule.warmup_steps={schedule.warmup_steps} leaves nothing of "
            f"training.steps={training.steps}"
        )


@schema
class PretrainConfig:
    """Masked-language-model pre-training (paper, section 4.2)."""

    recipe: Label
    seed: Seed = 0
    model: EncoderConfig
    data: Text
    masking: MaskingConfig = MaskingConfig()
    optimizer: OptimizerConfig
    schedule: ScheduleConfig
    training: TrainingConfig
    init_from: str | None = None
    """Start from the weights of this run or checkpoint instead of random ones."""
    resume: bool | Literal["auto"] = "auto"
    """`auto`: go on with an unfinished run of this id; true: insist on one; false: start over."""
    runtime: RuntimeConfig = RuntimeConfig()
    tracker: TrackerConfig = TrackerConfig()

    @model_validator(mode="after")
    def _combinations(self) -> PretrainConfig:
        position, length = self.model.position, self.training.sequence_length
        if isinstance(position, Learned) and length > position.max_positions:
            raise ValueError(
                f"training.sequence_length={length} is beyond the learned table of "
                f"model.position.max_positions={position.max_positions}: raise it, shorten the "
                "sequences, or choose model/position=rotary, which has no table"
            )
        check_loop(self.training, self.schedule, self.runtime)
        return self


@schema
class PlanConfig(PretrainConfig):
    """What a pre-training would cost, without running it."""

    devices: PositiveInt = 1
    utilisation: Annotated[float, Field(gt=0.0, le=1.0)] = 0.4
    """Share of the peak that the training is assumed to reach (MFU)."""
