"""The keys of a run as typed dataclasses: every key, its type, its range, its meaning.

Three classes of key: `model` is saved with the weights, and read back from every checkpoint; those marked
`NOT_IN_RESULT`, as `runtime`, `tracker`, `resume` and the intervals of logging, must not change the
result, and stay out of the run id; all others change it.

The YAML files under `conf/` hold the values; a key without a default here must have a value there.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from roformer.config import typed
from roformer.config.attention import Attention, LinearAttention
from roformer.config.position import PositionConfig, Shape
from roformer.config.typed import NOT_IN_RESULT, Config, Fraction, Label, Probability, Rules, later

Paths = typed.PathName | Annotated[list[typed.PathName], Field(min_length=1)]
"""A file, a folder or a glob, or a list of these."""
Words = Literal["none", "jieba"]
Objective = Literal["mlm", "mlm_nsp", "mlm_sop", "match"]


class TokenizerConfig(Config):
    """WordPiece, trained on the corpus or read from somewhere."""

    source: typed.PathName = "train"
    """`train`, or WordPiece: a vocab.txt, a tokenizer.json, a folder with one of them, or a Hub id. The
    tokenizer of the weights with `init_from`: `init_from`, and also `train`."""
    revision: str | None = None
    """Pinned revision of a Hub id."""
    vocab_size: Annotated[int, Field(ge=64, le=2**31)] = 8192
    """Entries to train; ignored when the vocabulary is read."""
    lowercase: bool = True
    words: Words = "none"
    """Chinese words as one token each, found by `jieba`; `none`: their characters, as BERT."""

    @property
    def comes_with_weights(self) -> bool:
        """True if a training with `init_from` has the tokenizer of its weights."""
        return self.source in ("train", "init_from")


class LocalFiles(Config):
    """Rows of local files."""

    path: Paths
    max_bad_rows: NonNegativeInt = 0
    """Bad rows of the whole data set, all files and splits, that may be skipped (counted and reported)
    before the run stops."""


class HubSource(Config):
    """One data set of the Hub, namespaced and pinned to a commit."""

    path: typed.Repository
    name: str | None = None
    revision: typed.Commit | None
    """null is looked up once, at preparation; the manifest has the commit that was found."""
    split: str = "train"
    text_field: str = "text"
    rows_per_document: PositiveInt = 1
    """Consecutive rows that are joined, for data sets of one sentence per row."""
    document_separator: Literal["heading"] | None = later(None)
    """`heading`: the rows from one WikiText heading of the first level to the next are joined."""

    def rules(self) -> Rules:
        yield (
            self.document_separator is not None and self.rows_per_document > 1,
            "give document_separator or rows_per_document, not both",
        )


class TextData(Config):
    """Base class of the text corpora."""

    tokenizer: TokenizerConfig = TokenizerConfig()
    valid_fraction: Fraction = 0.2
    """Share of the documents held out (the paper: 8:2), decided by each document's own hash."""
    max_documents: PositiveInt | None = None
    """Read no more than this many documents."""


class BuiltinText(TextData):
    """English documentation: the docstrings of the pinned scientific packages."""

    kind: Literal["builtin"] = "builtin"


class FilesText(TextData, LocalFiles):
    """Local .txt, .jsonl(.gz) or .parquet."""

    kind: Literal["files"] = "files"
    text_field: str = "text"
    document_separator: Literal["blank_line", "line_break", "heading"] = "blank_line"
    """The separator of documents in a .txt; `heading`: a WikiText heading of the first level, ` = Title = `,
    begins a document."""


class HubText(TextData):
    """Data sets of the Hugging Face Hub, downloaded or streamed."""

    kind: Literal["hub"] = "hub"
    sources: Annotated[list[HubSource], Field(min_length=1)]
    streaming: bool = False


class ChineseBuiltinText(TextData):
    """Chinese legal cases made from templates; see `roformer.data.toy.cases`."""

    kind: Literal["chinese_builtin"] = "chinese_builtin"
    documents: PositiveInt = 4000
    """Number of documents made, of some 500 characters each; `max_documents` reads fewer of them."""
    documents_seed: Annotated[int, Field(ge=0, lt=2**31)] = 0


Text = Annotated[
    BuiltinText | ChineseBuiltinText | FilesText | HubText, Field(discriminator="kind")
]


class TransformerConfig(Config):
    """A stack of Transformer blocks; what is no key here is as in Vaswani et al. 2017."""

    causal: ClassVar[bool] = False
    """True if a token sees only itself and those before it."""
    decodes: ClassVar[bool] = False
    """True if it, or its decoder, keeps keys for later tokens."""
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
    position: PositionConfig
    attention: Attention
    layer_norm_eps: PositiveFloat = 1e-5

    @property
    def head_dim(self) -> int:
        return self.hidden_size // self.heads

    @property
    def embedding_width(self) -> int:
        """Size of the embeddings, and of absolute positions, which are added to them."""
        return self.hidden_size

    @property
    def activation(self) -> str:
        return "gelu"

    @property
    def affine(self) -> bool:
        """True if linear layers have biases and norms are layer norms, with weights."""
        return True

    @property
    def init_std(self) -> float:
        """Standard deviation of embeddings and trained positions: 1 after the scaling by √hidden_size."""
        return float(self.hidden_size**-0.5)

    @property
    def sinusoid_scale(self) -> float:
        """Amplitude of sinusoidal positions: plain sines on embeddings of unit variance."""
        return 1.0

    @property
    def rotated_size(self) -> int:
        """Size of the vectors that rotary positions turn: a head, or the features made of it."""
        attention = self.attention
        if isinstance(attention, LinearAttention) and attention.rotates_features:
            return attention.feature_size(self.head_dim)
        return self.head_dim

    @property
    def rotary_dim(self) -> int:
        """Number of these dimensions that are rotated; 0 for encodings that do not rotate."""
        return self.position.rotated_dims(self.rotated_size)

    def rules(self) -> Rules:
        size, heads = self.hidden_size, self.heads
        yield size % heads, f"hidden_size={size} is not divisible by heads={heads}"
        attention = self.attention
        linear = f"model/attention={attention.kind}"
        yield (
            attention.linear and not self.position.can("linear"),
            f"{linear} {self.position.why('linear')}",
        )
        yield (
            attention.linear and self.attention_dropout > 0,
            f"{linear} has no probabilities to drop: set model.attention_dropout=0, not "
            f"{self.attention_dropout}",
        )
        shape = Shape(
            hidden_size=size,
            embedding_width=self.embedding_width,
            head_dim=self.head_dim,
            rotated_size=self.rotated_size,
            causal=self.causal,
            decodes=self.decodes,
            attention=attention.kind,
            features=attention.rotates_features,
        )
        yield from self.position.refusals(shape)


class FixedInitConfig(TransformerConfig):
    """A stack whose weights start with one standard deviation, as BERT's and GPT-2's."""

    init_std: PositiveFloat = 0.02

    @property
    def sinusoid_scale(self) -> float:
        """Amplitude that gives sines the root mean square of a learned table at its start."""
        return math.sqrt(2) * self.init_std


class EncoderConfig(FixedInitConfig):
    """A bidirectional Transformer encoder (BERT's block; Devlin et al. 2019)."""

    token_types: PositiveInt = 2
    layer_norm_eps: PositiveFloat = 1e-12
    embedding_size: PositiveInt | None = later(None)
    """Size of the embeddings, which are then projected to `hidden_size` (ELECTRA); null: `hidden_size`."""
    block: Literal["bert", "roformer_v2"] = later("bert")
    """`roformer_v2`: no biases, root-mean-square norms without weights, ReLU, and logits straight from the
    hidden states (github.com/ZhuiyiTechnology/roformer-v2)."""

    @property
    def embedding_width(self) -> int:
        return self.embedding_size or self.hidden_size

    @property
    def affine(self) -> bool:
        return self.block == "bert"

    @property
    def activation(self) -> str:
        return "gelu" if self.block == "bert" else "relu"

    def rules(self) -> Rules:
        yield from super().rules()
        yield (
            self.embedding_width != self.hidden_size and not self.affine,
            f"block=roformer_v2 has no projection of embeddings: leave embedding_size={self.embedding_size} "
            "out",
        )


class MaskingConfig(Config):
    """Selection of the tokens that the model must predict (Devlin et al. 2019, section 3.1)."""

    probability: Fraction = 0.15
    mask: typed.Share = 0.8
    """Share of the chosen tokens replaced by [MASK]."""
    random: typed.Share = 0.1
    """Share replaced by a random token; the rest stays as it is."""
    whole_word: bool = False

    def rules(self) -> Rules:
        problem = f"mask={self.mask} and random={self.random} add up to more than 1"
        yield self.mask + self.random > 1.0, problem


class OptimizerConfig(Config):
    """AdamW, bias-corrected (Loshchilov & Hutter 2019)."""

    learning_rate: PositiveFloat
    betas: tuple[Probability, Probability] = (0.9, 0.999)
    eps: PositiveFloat = 1e-8
    weight_decay: NonNegativeFloat = 0.01
    """On matrices and tables; not on vectors: biases and norms."""
    clip_norm: PositiveFloat | None = 1.0


class ScheduleConfig(Config):
    """The learning rate as a function of the step; see `roformer.training.optim`."""

    kind: Literal["constant", "linear", "inverse_sqrt", "cosine"] = "linear"
    warmup_steps: NonNegativeInt | None = None
    warmup_fraction: Probability | None = None
    """Give the warm-up as steps or as a share of all steps, not both; neither means none."""
    initial_ratio: typed.Share = 0.0
    """Learning rate at the start of the warm-up over the peak."""
    final_ratio: typed.Share = 0.0
    """Learning rate at the last step over the peak (linear and cosine)."""
    total_steps: PositiveInt | None = None
    """Steps of the whole schedule, if a run is only a stage of it; null: the steps of the run."""
    first_update: NonNegativeInt = 0
    """Steps of the schedule that earlier stages have made."""

    def rules(self) -> Rules:
        steps, share = self.warmup_steps, self.warmup_fraction
        yield (
            steps is not None and share is not None,
            "give warmup_steps or warmup_fraction, not both (null turns one off)",
        )
        yield (
            self.kind == "inverse_sqrt" and not (steps or share),
            "inverse_sqrt needs a warm-up: set warmup_steps or warmup_fraction",
        )

    def steps_rules(self, steps: int) -> Rules:
        """Yield that the warm-up and the earlier stages leave something of a run's steps."""
        whole, last = self.total_steps or steps, self.first_update + steps
        yield (
            (self.warmup_steps or 0) >= whole,
            f"schedule.warmup_steps={self.warmup_steps} leaves nothing of the training's {whole} steps",
        )
        yield (
            last > (self.total_steps or last),
            f"schedule.total_steps={whole} ends before step {last}, the last of "
            "schedule.first_update + training.steps",
        )


class PrecisionConfig(Config):
    """Base class of every `training`."""

    precision: Literal["fp32", "bf16", "fp16", "auto"] = "auto"
    """Autocast; a record names what `auto` was: bf16 where the hardware computes in it, else fp32."""


class IntervalsConfig(PrecisionConfig):
    """Intervals of logging, evaluation and checkpoints."""

    log_every: typed.Interval
    evaluate_every: typed.Interval
    """The result of a run is its last weights, even if another evaluation was better."""
    checkpoint_every: typed.Interval


TRIAL = 100
"""Runs shorter than this many steps are smoke tests: their results say nothing of their settings."""


class LoopConfig(IntervalsConfig):
    """The keys that the loop reads."""

    steps: PositiveInt
    """Optimizer steps."""
    keep_at: Annotated[tuple[PositiveInt, ...], NOT_IN_RESULT] = ()
    """Steps whose weights are kept as well, whatever `runtime.keep_checkpoints` says; without moments."""

    def rules(self) -> Rules:
        beyond = [step for step in self.keep_at if step > self.steps]
        yield beyond, f"keep_at={beyond}: a run of steps={self.steps} has no such step"


class BlocksTraining(LoopConfig):
    """A loop over blocks of one length, a fixed number per batch."""

    batch_size: PositiveInt
    """Blocks a step, over all processes and accumulation steps."""
    sequence_length: typed.Length
    """T: tokens of a block."""
    valid_sequences: PositiveInt
    """Size of the frozen validation sample, in blocks."""


class TrainingConfig(BlocksTraining):
    """The loop of pre-training."""

    documents: Literal["cross", "isolate"] = "cross"
    """Attend across documents in a block (RoBERTa), or block it and restart positions at each boundary."""
    first_epoch: NonNegativeInt = 0
    """Number of the first epoch, which decides order and masks: a later stage has its own."""


class EpochsTraining(PrecisionConfig):
    """A loop over epochs of examples of any length."""

    epochs: PositiveInt
    batch_size: PositiveInt
    """Examples a step, over all processes and accumulation steps."""
    max_length: typed.Length
    """Tokens of an example, special ones included; longer ones are truncated, counted and reported."""
    head_dropout: Probability = 0.1
    """Before the last linear layer."""


class RuntimeConfig(Config):
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
    tf32: bool = False
    """Round the factors of fp32 products on a GPU to TF32 (10 bits of mantissa), for its tensor cores."""
    num_workers: NonNegativeInt = 0
    """Processes that make batches."""
    prepare_workers: PositiveInt | None = None
    """Processes that tokenise; null: one per core."""
    tune_process: bool = True
    """Apply `roformer.training.process` (allocator thresholds, thread count)."""
    threads: PositiveInt | None = None
    """CPU threads per process, set by `tune_process`; null: OMP_NUM_THREADS, or else the cores shared among
    the processes."""
    runs_dir: typed.PathName = "runs"
    cache_dir: typed.PathName = "cache"
    keep_checkpoints: PositiveInt = 3
    """Newest checkpoints kept in addition to the best one."""
    keep_optimizer: bool = False
    """Keep AdamW's moments, two thirds of a checkpoint, when the run is finished: for `keep_moments` of
    a run that starts from it."""
    progress: bool = True
    """Print progress; false, which `--quiet` sets: only the last one or two lines, and errors."""


class TrackerConfig(Config):
    """Mirror of metrics.jsonl elsewhere; values given here win over wandb's environment variables."""

    kind: Literal["none", "wandb", "tensorboard", "trackio"] = "none"
    project: str | None = None
    """Project of wandb and trackio; null: WANDB_PROJECT for wandb, else `roformer`."""
    entity: str | None = None
    """Entity of wandb; null: WANDB_ENTITY, else the user's own."""
    mode: Literal["auto", "online", "offline"] = "auto"
    """Mode of wandb; `auto`: WANDB_MODE, else online when logged in and offline when not."""


class CommandConfig(Config):
    """Base class of the config of every training command."""

    recipe: Label
    model: TransformerConfig
    data: Any
    training: PrecisionConfig
    schedule: ScheduleConfig
    resume: Annotated[bool | Literal["auto"], NOT_IN_RESULT] = "auto"
    """`auto`: go on with an unfinished run of this id; true: insist on one; false: start over."""
    runtime: Annotated[RuntimeConfig, NOT_IN_RESULT] = RuntimeConfig()
    tracker: Annotated[TrackerConfig, NOT_IN_RESULT] = TrackerConfig()

    def rules(self) -> Rules:
        training = self.training
        yield (
            training.precision == "fp16" and self.runtime.device == "cpu",
            "training.precision=fp16 needs a GPU: use bf16 or fp32 on a CPU",
        )
        if isinstance(training, BlocksTraining):
            length = training.sequence_length
            key = f"training.sequence_length={length}"
            yield from self.model.position.length_rules(length, key)
        if isinstance(training, LoopConfig):
            yield from self.schedule.steps_rules(training.steps)


class RunConfig(CommandConfig):
    """Base class of the config of every run: one seed, one optimizer."""

    seed: typed.Seed = 0
    optimizer: OptimizerConfig


class MaskedLMConfig(RunConfig):
    """Base class of pre-training, in one run or in stages."""

    model: EncoderConfig
    data: Text
    masking: MaskingConfig = MaskingConfig()
    objective: Objective = later("mlm")
    """Training objective: `mlm` predicts masked tokens of packed blocks; `mlm_nsp` of pairs of segments, and
    whether the second follows the first in its document or is of another (BERT); `mlm_sop` whether two
    consecutive segments are in their order (ALBERT); `match` the hidden states of `init_from` on unmasked
    text, for a model with other positions."""
    init_from: typed.PathName | None = None
    """Weights to start from: a run (its folder or id; `@<step>` names a checkpoint), a checkpoint, or a
    Hugging Face folder or Hub id of type bert or roformer; null: random weights. The weights bring their
    model and tokenizer; `model/position` may choose another encoding, whose parameters are drawn."""
    init_revision: str | None = later(None)
    """Branch, tag or commit of a Hub id."""
    init_digest: typed.Digest | None = later(None)
    """SHA-256 of published weights, filled in when they are found."""

    def rules(self) -> Rules:
        yield from super().rules()
        yield from start_rules(self)


def start_rules(config: Any) -> Rules:
    """Yield that keys on the weights to start from have `init_from` to refer to."""
    missing = config.init_from is None
    yield (
        missing and config.data.tokenizer.source == "init_from",
        "data.tokenizer.source=init_from is the tokenizer of the weights: set init_from",
    )
    given = [key for key in ("init_revision", "init_digest") if getattr(config, key, None)]
    yield (
        missing and given,
        f"{', '.join(given)} needs the weights that it belongs to: set init_from",
    )


class FinetuningConfig(CommandConfig):
    """Base class of what starts from a pre-trained encoder."""

    model: EncoderConfig
    """Architecture of a fresh model; weights that are read bring their own, all but the dropout."""
    tokenizer: TokenizerConfig | None = None
    """Of a fresh model and of the pre-training of init_from=auto; null: one trained on the texts. Weights
    that are read bring their own, which this may only confirm."""
    init_from: typed.PathName
    """The weights to start from: a pre-training run (its folder or id; `@<step>` names one of its
    checkpoints), a Hugging Face folder or Hub id of type bert or roformer, or `scratch`; `auto` is the
    run of `make pretrain` for the same model with `pretraining`, trained first if it is missing."""
    init_revision: str | None = None
    """Pinned revision of a Hub id."""


class PretrainConfig(MaskedLMConfig):
    """Masked-language-model pre-training (paper, section 4.2), or with objective=match the conversion of a
    trained model to other positions."""

    training: TrainingConfig
    keep_moments: bool = False
    """Take AdamW's moments from there too; false: they begin at zero."""

    def rules(self) -> Rules:
        yield from super().rules()
        yield (
            self.training.documents == "isolate" and self.model.attention.linear,
            "training.documents=isolate needs a mask for every query, but linear attention sums the keys "
            "up once for all of them: choose training.documents=cross",
        )
        yield (
            self.training.documents == "isolate" and self.model.position.begins_with_cls,
            f"training.documents=isolate counts positions from 0 in each document, and model/position="
            f"{self.model.position.kind} takes the token there for [CLS]: set "
            "model.position.untie_cls=false",
        )
        yield (
            self.training.documents == "isolate" and self.objective != "mlm",
            f"objective={self.objective} has segments of two documents that attend to each other: choose "
            "training.documents=cross",
        )
        yield (
            self.model.token_types < 2 and self.objective != "mlm",
            f"objective={self.objective} needs model.token_types=2, one for each segment",
        )
        yield (
            self.keep_moments and self.init_from is None,
            "keep_moments=true needs the run that has them: set init_from",
        )
