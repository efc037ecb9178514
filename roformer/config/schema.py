"""The keys of a run as typed dataclasses: every key, its type, its range, its meaning.

Three classes of key:

* saved with the weights: `model`, read back from every checkpoint;
* changes the result, not the weights' shape: `data`, `masking`, `optimizer`, `schedule`, `training`,
  `seed`, `init_from`;
* must not change the result: those marked `NOT_IN_RESULT`, as `runtime`, `tracker`, `resume` and the
  intervals of logging. They stay out of the run id.

The YAML files under `conf/` hold the values; a key without a default here must stand there.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, Self

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from roformer.config.attention import Attention, check_attention, check_documents
from roformer.config.position import Position
from roformer.config.typed import NOT_IN_RESULT, schema

Fraction = Annotated[float, Field(gt=0.0, lt=1.0)]
Probability = Annotated[float, Field(ge=0.0, lt=1.0)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]
Name = Annotated[str, Field(min_length=1)]
Label = Annotated[str, Field(pattern=r"^[\w-]+$")]
"""Part of a run id, so of a folder's name."""
Repository = Annotated[str, Field(pattern=r"^[\w.-]+/[\w.-]+$")]
Commit = Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]
Seed = Annotated[int, Field(ge=0, lt=2**63)]
Length = Annotated[int, Field(ge=8)]
Words = Literal["none", "jieba"]
Interval = Annotated[PositiveInt, NOT_IN_RESULT]
Resume = Annotated[bool | Literal["auto"], NOT_IN_RESULT]


# --- text ----------------------------------------------------------------------------------------


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
    words: Words = "none"
    """Chinese words of the vocabulary as one token each, found by `jieba`; `none`: its characters,
    as BERT."""


@schema
class LocalFiles:
    """A file, a folder or a glob of rows."""

    path: Name
    max_bad_rows: NonNegativeInt = 0
    """Bad rows of a file that may be skipped (counted and reported) before the run stops."""


@schema
class HubSource:
    """One data set of the Hub, namespaced and pinned to a commit.

    A null revision is looked up once, at preparation; the manifest has the commit that was found.
    """

    path: Repository
    name: str | None = None
    revision: Commit | None
    split: str = "train"
    text_field: str = "text"
    rows_per_document: PositiveInt = 1
    """Consecutive rows that are joined, for data sets of one sentence a row."""


@schema
class TextData:
    """Base class of the text corpora."""

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
class FilesText(TextData, LocalFiles):
    """Local .txt, .jsonl(.gz) or .parquet: a file, a folder or a glob."""

    kind: Literal["files"] = "files"
    text_field: str = "text"
    document_separator: Literal["blank_line", "line_break"] = "blank_line"
    """The separator of documents in a .txt."""


@schema
class HubText(TextData):
    """Data sets of the Hugging Face Hub, downloaded or streamed."""

    kind: Literal["hub"] = "hub"
    sources: Annotated[list[HubSource], Field(min_length=1)]
    streaming: bool = False


@schema
class ChineseBuiltinText(TextData):
    """Chinese legal cases made from templates; see `roformer.data.toy.cases`."""

    kind: Literal["chinese_builtin"] = "chinese_builtin"
    documents: PositiveInt = 4000
    """Number of documents made, of some 500 characters each; `max_documents` reads fewer of them."""
    documents_seed: Annotated[int, Field(ge=0, lt=2**31)] = 0


Text = Annotated[
    BuiltinText | ChineseBuiltinText | FilesText | HubText, Field(discriminator="kind")
]


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
        """True if a token sees only itself and those before it."""
        return False

    @property
    def init_std(self) -> float:
        """Of embeddings and trained positions: unit variance after the scaling by √hidden_size."""
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
        """Number of these dimensions that are rotated; 0 for encodings that do not rotate."""
        return self.position.rotated_dims(self.rotated_size)

    @model_validator(mode="after")
    def _combinations(self) -> Self:
        if self.hidden_size % self.heads:
            raise ValueError(
                f"hidden_size={self.hidden_size} is not divisible by heads={self.heads}"
            )
        check_attention(self.attention, self.position, self.attention_dropout, self.head_dim)
        self.position.check_model(self)
        return self


@schema
class FixedInitConfig(TransformerConfig):
    """A stack whose weights start with one standard deviation, as BERT's and GPT-2's."""

    init_std: PositiveFloat = 0.02

    @property
    def sinusoid_scale(self) -> float:
        """Amplitude that gives sines the root mean square of a learned table at its start."""
        return math.sqrt(2) * self.init_std


@schema
class EncoderConfig(FixedInitConfig):
    """A bidirectional Transformer encoder (BERT's block; Devlin et al. 2019)."""

    token_types: PositiveInt = 2
    layer_norm_eps: PositiveFloat = 1e-12


# --- masking and optimisation --------------------------------------------------------------------


@schema
class MaskingConfig:
    """Which tokens the model must predict (Devlin et al. 2019, section 3.1)."""

    probability: Fraction = 0.15
    mask: Share = 0.8
    """Share of the chosen tokens replaced by [MASK]."""
    random: Share = 0.1
    """Share replaced by a random token; the rest stays as it is."""
    whole_word: bool = False

    @model_validator(mode="after")
    def _shares(self) -> Self:
        if self.mask + self.random > 1.0:
            raise ValueError(f"mask={self.mask} and random={self.random} add up to more than 1")
        return self


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
    """The learning rate as a function of the step; see `roformer.training.optim`."""

    kind: Literal["constant", "linear", "inverse_sqrt", "cosine"] = "linear"
    warmup_steps: NonNegativeInt | None = None
    warmup_fraction: Probability | None = None
    """Give the warm-up as steps or as a share of all steps, not both; neither means none."""
    initial_ratio: Share = 0.0
    """Learning rate at the start of the warm-up over the peak."""
    final_ratio: Share = 0.0
    """Learning rate at the last step over the peak (linear and cosine)."""
    total_steps: PositiveInt | None = None
    """Steps of the whole schedule, where a run is a stage of it; null: those of the run."""
    first_update: NonNegativeInt = 0
    """Steps of the schedule that earlier stages have made."""

    @model_validator(mode="after")
    def _one_warmup(self) -> Self:
        if self.warmup_steps is not None and self.warmup_fraction is not None:
            raise ValueError("give warmup_steps or warmup_fraction, not both (null turns one off)")
        if self.kind == "inverse_sqrt" and not (self.warmup_steps or self.warmup_fraction):
            raise ValueError("inverse_sqrt needs a warm-up: set warmup_steps or warmup_fraction")
        return self

    def check_steps(self, steps: int) -> None:
        """Raise ValueError where the warm-up or the earlier stages leave nothing of a run's steps."""
        if (self.warmup_steps or 0) >= (self.total_steps or steps):
            raise ValueError(
                f"schedule.warmup_steps={self.warmup_steps} leaves nothing of "
                f"training.steps={self.total_steps or steps}"
            )
        last = self.first_update + steps
        if self.total_steps is not None and last > self.total_steps:
            raise ValueError(
                f"schedule.total_steps={self.total_steps} ends before update {last}, the last of "
                f"schedule.first_update + training.steps"
            )


# --- training ------------------------------------------------------------------------------------


@schema
class PrecisionConfig:
    """Base class of every `training`."""

    precision: Literal["fp32", "bf16", "fp16", "auto"] = "auto"
    """Autocast; `auto` is bf16 where the hardware computes in it, else fp32, and is resolved
    before the run id, so that a record always names what ran."""


@schema
class IntervalsConfig(PrecisionConfig):
    """Intervals of logging, evaluation and checkpoints."""

    log_every: Interval
    evaluate_every: Interval
    """The result of a run is its last weights, whichever evaluation was the best."""
    checkpoint_every: Interval


@schema
class LoopConfig(IntervalsConfig):
    """The keys that the loop reads."""

    steps: PositiveInt
    """Updates of the weights."""


@schema
class BlocksTraining(LoopConfig):
    """A loop over blocks of one length, a fixed number a batch."""

    batch_size: PositiveInt
    """Blocks a step, over all processes and accumulation steps."""
    sequence_length: Length
    """T: tokens of a block."""
    valid_sequences: PositiveInt
    """Size of the frozen validation sample, in blocks."""


@schema
class TrainingConfig(BlocksTraining):
    """The loop of pre-training."""

    documents: Literal["cross", "isolate"] = "cross"
    """Packed blocks: attend across document boundaries (RoBERTa's full sentences), or restart the
    positions and block attention at each boundary."""
    first_epoch: NonNegativeInt = 0
    """Number of the first epoch, which decides order and masks: a later stage over the same text has
    its own."""


@schema
class EpochsTraining(PrecisionConfig):
    """A loop over epochs of examples of any length."""

    epochs: PositiveInt
    batch_size: PositiveInt
    """Examples a step, over all processes and accumulation steps."""
    max_length: Length
    """Tokens of an example, special ones included; longer ones are truncated, counted and reported."""
    head_dropout: Probability = 0.1
    """Before the last linear layer."""


# --- what must not change the result --------------------------------------------------------------


@schema
class RuntimeConfig:
    """Device and speed. The same weights come out, to the order of floating-point sums; with
    dropout, to its draws, which differ between devices and numbers of processes.
    """

    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    micro_batch_size: PositiveInt | None = None
    """Sequences a forward pass; null: a process's whole share of the batch."""
    gradient_checkpointing: bool = False
    fsdp: bool = False
    """Shard weights, gradients and moments over the processes, see `roformer.training.distributed`."""
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
    """Project of wandb and trackio; null: WANDB_PROJECT for wandb, else `roformer`."""
    entity: str | None = None
    """Entity of wandb; null: WANDB_ENTITY, else the user's own."""
    mode: Literal["auto", "online", "offline"] = "auto"
    """Mode of wandb; `auto`: WANDB_MODE, else online when logged in and offline when not."""


# --- runs ----------------------------------------------------------------------------------------


@schema
class CommandConfig:
    """Base class of the config of every training command."""

    recipe: Label
    model: TransformerConfig
    data: Any
    training: PrecisionConfig
    schedule: ScheduleConfig
    resume: Resume = "auto"
    """`auto`: go on with an unfinished run of this id; true: insist on one; false: start over."""
    runtime: Annotated[RuntimeConfig, NOT_IN_RESULT] = RuntimeConfig()
    tracker: Annotated[TrackerConfig, NOT_IN_RESULT] = TrackerConfig()

    @model_validator(mode="after")
    def _training(self) -> Self:
        training = self.training
        if training.precision == "fp16" and self.runtime.device == "cpu":
            raise ValueError("training.precision=fp16 needs a GPU: use bf16 or fp32 on a CPU")
        if isinstance(training, BlocksTraining):
            self.model.position.check_length(
                training.sequence_length,
                f"training.sequence_length={training.sequence_length}",
                "raise it, shorten the sequences",
            )
        if isinstance(training, LoopConfig):
            self.schedule.check_steps(training.steps)
        return self


@schema
class RunConfig(CommandConfig):
    """Base class of the config of every run: one seed, one optimizer."""

    seed: Seed = 0
    optimizer: OptimizerConfig


@schema
class MaskedLMConfig(RunConfig):
    """Base class of pre-training, in one run or in stages."""

    model: EncoderConfig
    data: Text
    masking: MaskingConfig = MaskingConfig()
    init_from: str | None = None
    """Start from the weights of this run (its folder or id) or checkpoint instead of random ones."""


@schema
class FinetuningConfig(CommandConfig):
    """Base class of what starts from a pre-trained encoder."""

    model: EncoderConfig
    """Architecture of a fresh model; weights that are read bring their own, all but the dropout."""
    tokenizer: TokenizerConfig | None = None
    """Tokenizer of a fresh model and of the pre-training of init_from=auto; null: one trained on the texts.
    Weights that are read bring their own, which this may only confirm."""
    init_from: Name
    """The weights to start from: a pre-training run (its folder or id), a Hugging Face folder or
    Hub id of type bert or roformer, or `scratch`; `auto` is the run of `make pretrain` for the same
    model with `pretraining`, made first if it is not there."""
    init_revision: str | None = None
    """Pinned revision of a Hub id."""


@schema
class PretrainConfig(MaskedLMConfig):
    """Masked-language-model pre-training (paper, section 4.2)."""

    training: TrainingConfig
    keep_moments: bool = False
    """Take AdamW's moments from there too; false: they begin at zero."""

    @model_validator(mode="after")
    def _combinations(self) -> Self:
        check_documents(self.model.attention, self.training.documents)
        if self.keep_moments and self.init_from is None:
            raise ValueError("keep_moments=true needs the run that has them: set init_from")
        return self
