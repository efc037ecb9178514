"""What a causal language model can be told; see `roformer.config.schema` for the classes of key.

Two pipelines share the model and the training: `charlm` reads bytes (paper, section 4.4), `clm` the
tokens of pre-training.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from roformer.config.schema import (
    Fraction,
    LoopConfig,
    Name,
    RunConfig,
    Text,
    TransformerConfig,
    check_loop,
)
from roformer.config.typed import schema

# --- model ---------------------------------------------------------------------------------------


@schema
class CausalConfig(TransformerConfig):
    """A decoder alone (GPT-2's block; Radford et al. 2019): a token sees itself and those before it."""

    norm: Literal["post", "pre"] = "pre"
    init_std: PositiveFloat = 0.02

    @property
    def causal(self) -> bool:
        return True

    @property
    def sinusoid_scale(self) -> float:
        """Amplitude that gives sines the root mean square of a learned table at its start."""
        return math.sqrt(2) * self.init_std

    @model_validator(mode="after")
    def _causal_position(self) -> CausalConfig:
        self.position.check_causal()
        return self


# --- bytes ---------------------------------------------------------------------------------------


@schema
class ByteData:
    """What all texts read as bytes share: train, then valid, then test, each one stretch of it."""

    valid_fraction: Fraction = 0.05
    test_fraction: Fraction = 0.05
    max_bytes: PositiveInt | None = None
    """Read no more than this many bytes, the first ones."""

    @model_validator(mode="after")
    def _shares(self) -> ByteData:
        if self.valid_fraction + self.test_fraction >= 1.0:
            raise ValueError(
                f"valid_fraction={self.valid_fraction} and test_fraction={self.test_fraction} leave "
                "nothing to train on"
            )
        return self


@schema
class BuiltinBytes(ByteData):
    """English documentation: the docstrings of the pinned scientific packages."""

    kind: Literal["bytes_builtin"] = "bytes_builtin"


@schema
class FileBytes(ByteData):
    """Local .txt, .gz, .zip or .jsonl(.gz): a file, a folder or a glob."""

    kind: Literal["bytes_files"] = "bytes_files"
    path: Name
    member: Name | None = None
    """Which file of a .zip; null: the only one."""
    text_field: str = "text"
    """Of the rows of .jsonl."""
    max_bad_rows: NonNegativeInt = 0
    """Rows of a file that may be skipped (counted and reported) before the run stops."""


@schema
class Enwik8(ByteData):
    """The first 10^8 bytes of the English Wikipedia of 2006 (Hutter Prize), downloaded once."""

    kind: Literal["bytes_enwik8"] = "bytes_enwik8"
    url: Annotated[str, Field(pattern=r"^https?://")]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    """Of the .zip."""
    member: Name = "enwik8"


Bytes = Annotated[BuiltinBytes | FileBytes | Enwik8, Field(discriminator="kind")]


# --- training ------------------------------------------------------------------------------------


@schema
class CausalTraining(LoopConfig):
    """The loop of language modelling: blocks of one length, a fixed number a batch."""

    batch_size: PositiveInt
    """Blocks an update, over all processes and accumulation steps."""
    sequence_length: Annotated[int, Field(ge=8)]
    """T: tokens that a block reads; it predicts as many."""
    valid_sequences: PositiveInt
    """Size of the frozen validation sample, in blocks."""
    longer: tuple[Annotated[int, Field(ge=2)], ...] = ()
    """Multiples of the sequence length at which the final model is read too. Beyond the paper."""

    @property
    def longest(self) -> int:
        """The largest multiple of the sequence length that is read."""
        return max(self.longer, default=1)


@schema
class LanguageModelConfig(RunConfig):
    """What both pipelines share."""

    model: CausalConfig
    training: CausalTraining

    @model_validator(mode="after")
    def _combinations(self) -> LanguageModelConfig:
        position, training = self.model.position, self.training
        length, longest = training.sequence_length, training.longest
        position.check_length(
            length, f"training.sequence_length={length}", "raise it, shorten the sequences"
        )
        if any(longest % multiple for multiple in training.longer):
            raise ValueError(
                f"training.longer={list(training.longer)}: each must divide the largest, so that the same "
                "text is read at every length, as [2,4] do"
            )
        if training.valid_sequences < longest:
            raise ValueError(
                f"training.valid_sequences={training.valid_sequences} blocks do not hold one of "
                f"{longest} times the length (training.longer): raise it"
            )
        check_loop(training, self.schedule)
        return self


@schema
class CharLMConfig(LanguageModelConfig):
    """Byte-level language modelling (paper, section 4.4)."""

    data: Bytes


@schema
class CausalLMConfig(LanguageModelConfig):
    """Language modelling on the text, shards and vocabulary of pre-training."""

    data: Text
