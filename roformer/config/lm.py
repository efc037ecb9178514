"""The keys of causal language models; see `roformer.config.schema` for the three classes of key.

Two pipelines share the model and the training: `charlm` reads bytes (paper, section 4.4), `clm` the
tokens of pre-training.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, PositiveInt

from roformer.config.schema import (
    BlocksTraining,
    FixedInitConfig,
    LocalFiles,
    RunConfig,
    Text,
    start_rules,
)
from roformer.config.typed import Config, FileName, Fraction, PathName, Rules, later


class CausalConfig(FixedInitConfig):
    """A decoder without an encoder (GPT-2; Radford et al. 2019): tokens see themselves and earlier ones."""

    causal: ClassVar[bool] = True
    decodes: ClassVar[bool] = True
    norm: Literal["post", "pre"] = "pre"


class ByteData(Config):
    """Base class of the texts read as bytes: train, then valid, then test, each one stretch of it."""

    valid_fraction: Fraction = 0.05
    test_fraction: Fraction = 0.05
    max_bytes: PositiveInt | None = None
    """Read no more than this many bytes, the first ones."""

    def rules(self) -> Rules:
        valid, test = self.valid_fraction, self.test_fraction
        problem = f"valid_fraction={valid} and test_fraction={test} leave nothing to train on"
        yield valid + test >= 1.0, problem


class BuiltinBytes(ByteData):
    """English documentation: the docstrings of the pinned scientific packages."""

    kind: Literal["bytes_builtin"] = "bytes_builtin"


class FileBytes(ByteData, LocalFiles):
    """Local .txt, .gz, .zip or .jsonl(.gz)."""

    kind: Literal["bytes_files"] = "bytes_files"
    member: FileName | None = None
    """Which file of a .zip; null: the only one."""
    text_field: str = "text"
    """The column of .jsonl rows with the text."""


class Enwik8(ByteData):
    """The first 10^8 bytes of the English Wikipedia of 2006 (Hutter Prize), downloaded once."""

    kind: Literal["bytes_enwik8"] = "bytes_enwik8"
    url: Annotated[str, Field(pattern=r"^https?://")]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    """Checksum of the .zip."""
    member: FileName = "enwik8"


Bytes = Annotated[BuiltinBytes | FileBytes | Enwik8, Field(discriminator="kind")]


class CausalTraining(BlocksTraining):
    """The loop of language modelling."""

    longer: tuple[Annotated[int, Field(ge=2)], ...] = ()
    """Multiples of the sequence length at which the final model is evaluated too. Beyond the paper."""

    @property
    def longest(self) -> int:
        """The largest multiple of the sequence length that is read."""
        return max(self.longer, default=1)

    def rules(self) -> Rules:
        yield from super().rules()
        yield (
            any(self.longest % multiple for multiple in self.longer),
            f"training.longer={list(self.longer)}: each must divide the largest, so that the same text is "
            "read at every length, as [2,4] do",
        )
        yield (
            self.valid_sequences < self.longest,
            f"training.valid_sequences={self.valid_sequences} blocks do not hold one of {self.longest} "
            "times the length (training.longer): raise it",
        )


class LanguageModelConfig(RunConfig):
    """Base class of both pipelines."""

    model: CausalConfig
    training: CausalTraining


class CharLMConfig(LanguageModelConfig):
    """Byte-level language modelling (paper, section 4.4)."""

    data: Bytes


class CausalLMConfig(LanguageModelConfig):
    """Language modelling on the text, shards and vocabulary of pre-training."""

    data: Text
    init_from: PathName | None = later(None)
    """Weights to start from: a run of `make clm` (its folder or id; `@<step>` names a checkpoint) or a
    checkpoint; null: random weights. `model/position` may choose another encoding, whose parameters are
    drawn."""

    def rules(self) -> Rules:
        yield from super().rules()
        yield from start_rules(self)
