"""The keys of a translation run; see `roformer.config.schema` for the three classes of key."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt

from roformer.config.schema import LoopConfig, RunConfig, TransformerConfig
from roformer.config.typed import (
    Column,
    Commit,
    Config,
    FileName,
    Fraction,
    Label,
    Name,
    PathName,
    Probability,
    Repository,
    Rules,
    later,
)


class Seq2SeqConfig(TransformerConfig):
    """The Transformer's encoder and decoder (Vaswani et al. 2017), one embedding shared by source,
    target and output, scaled by √hidden_size where it is read."""

    decodes: ClassVar[bool] = True
    decoder_layers: PositiveInt | None = None
    """null: as many as the encoder's `layers`."""
    activation: Literal["relu", "gelu"] = "relu"

    @property
    def decoder(self) -> DecoderConfig:
        """The decoder's stack; the encoder's is this configuration itself."""
        return DecoderConfig(**{**vars(self), "layers": self.decoder_layers or self.layers})


class DecoderConfig(Seq2SeqConfig):
    """The decoder of a `Seq2SeqConfig`."""

    causal: ClassVar[bool] = True


class BpeConfig(Config):
    """Byte-pair encoding, one for both languages, learnt on the training text or read."""

    source: PathName = "train"
    """`train`, or a folder that holds the tokenizer of an earlier run."""
    words: Literal["moses", "bytes"] = "moses"
    """Units that are cut into pieces: Moses tokens (sacremoses), or raw text as bytes (as GPT-2)."""
    merges: PositiveInt = 40_000
    """Merges to learn; they make the vocabulary. Ignored when it is read."""


class FilterConfig(Config):
    """Filter of training pairs, which are counted; lengths are in BPE tokens, without the end."""

    max_length: PositiveInt = 250
    """Longest side."""
    max_ratio: Annotated[float, Field(ge=1.0)] | None = 1.5
    """Longer side over shorter side; null: any."""


class ParallelData(Config):
    """Base class of the parallel texts."""

    source_language: Label = "en"
    target_language: Label = "de"
    tokenizer: BpeConfig = BpeConfig()
    filter: FilterConfig = FilterConfig()
    max_train_pairs: PositiveInt | None = None
    """Read no more than this many training pairs, the first ones."""


class BuiltinParallel(ParallelData):
    """English and German made from templates; `roformer.data.toy.translation`."""

    kind: Literal["builtin"] = "builtin"
    train_pairs: PositiveInt = 60_000
    valid_pairs: PositiveInt = 500
    test_pairs: PositiveInt = 500


class FilesParallel(ParallelData):
    """Local text: `<path>/<train>.<language>`, two files aligned by line, or `<path>/<train>.tsv`, .csv,
    .jsonl or .parquet with a column per language; .gz or not."""

    kind: Literal["files"] = "files"
    path: PathName
    """A folder, or one file of training pairs."""
    train: FileName = "train"
    valid: FileName = "valid"
    test: FileName = "test"
    source_field: Column | None = later(None)
    """Column of the source sentences; a number in a .tsv or .csv without a header. null: the language."""
    target_field: Column | None = later(None)
    """The same of the target sentences."""
    valid_fraction: Fraction | None = later(None)
    """Share of the training pairs to hold out in place of the file `valid`; a hash of each pair decides."""
    test_fraction: Fraction | None = later(None)
    """The same in place of the file `test`."""
    max_bad_rows: NonNegativeInt = later(0)
    """Rows without two texts that may be skipped (counted and reported) before the run stops."""

    def rules(self) -> Rules:
        valid, test = self.valid_fraction or 0.0, self.test_fraction or 0.0
        message = f"valid_fraction={valid} and test_fraction={test} leave nothing to train on"
        yield valid + test >= 1.0, message


class HubParallel(ParallelData):
    """A WMT set of the Hugging Face Hub."""

    kind: Literal["wmt_hub"] = "wmt_hub"
    path: Repository = "wmt/wmt14"
    name: Name
    """Configuration: `de-en`, `fr-en`."""
    revision: Commit
    test_lines: PositiveInt | None = 3003
    """Lines of the test set: 3,003 of newstest2014, not 2,737 of a filtered variant. null: any."""


Parallel = Annotated[BuiltinParallel | FilesParallel | HubParallel, Field(discriminator="kind")]


class SearchConfig(Config):
    """Beam search; see `roformer.evaluation.beam`."""

    beam: PositiveInt = 4
    """1 is greedy search."""
    length_penalty: Literal["fairseq", "gnmt"] = "fairseq"
    """The divisor of the log-probability of a hypothesis of L tokens: L^α, or ((5+L)/6)^α."""
    alpha: NonNegativeFloat = 0.6
    max_length_ratio: NonNegativeFloat = 1.0
    """A translation has at most ratio · source tokens + extra tokens, both with their end."""
    max_length_extra: NonNegativeInt = 50


class TranslationTraining(LoopConfig):
    """The loop of translation: batches by tokens, the mean of the last checkpoints at the end."""

    checkpoint_every: PositiveInt
    """It changes the result, for it says which checkpoints are averaged."""
    tokens_per_update: PositiveInt
    """Target tokens of a step, padding included, over all processes and accumulation steps."""
    bucket_tokens: PositiveInt = 4096
    """Longest side × pairs of one bucket, pairs of similar lengths that are padded together; a
    step is tokens_per_update / bucket_tokens of them, rounded up."""
    label_smoothing: Probability = 0.1
    average: PositiveInt = 5
    """Checkpoints, the last ones, whose mean is scored in addition to the last one."""
    valid_bleu_sentences: NonNegativeInt
    """Validation sentences translated greedily at each evaluation."""

    def rules(self) -> Rules:
        yield from super().rules()
        yield (
            self.steps < self.average * self.checkpoint_every,
            f"average={self.average} checkpoints, one in {self.checkpoint_every} steps, are more than "
            f"steps={self.steps} make: lower checkpoint_every or average",
        )
        yield (
            self.steps % self.checkpoint_every,
            f"steps={self.steps} is no multiple of checkpoint_every={self.checkpoint_every}, so the mean "
            "of checkpoints and the last of them would exclude the end: change one",
        )


class WmtConfig(RunConfig):
    """Translation from parallel text to a score (paper, section 4.1)."""

    model: Seq2SeqConfig
    data: Parallel
    training: TranslationTraining
    search: SearchConfig = SearchConfig()

    def rules(self) -> Rules:
        yield from super().rules()
        longest, budget = self.data.filter.max_length, self.training.tokens_per_update
        bucket, key = self.training.bucket_tokens, f"data.filter.max_length={longest}"
        keys = f"{key}, with the end of the sentence,"
        yield from self.model.position.length_rules(longest + 1, keys)
        yield (
            longest >= budget // -(-budget // bucket),
            f"training.tokens_per_update={budget} in buckets of at most {bucket} does not hold one pair of "
            f"{key} tokens and the end: raise them, or lower the limit",
        )
