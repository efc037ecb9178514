"""A trained model as it is stored, of this package or of Hugging Face: what opening one finds."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from roformer.errors import InputError
from roformer.models.description import Kind, build_model
from roformer.models.encoder import Encoder


@dataclass(frozen=True)
class StoredModel:
    """The weights of a trained model and what is needed to use them."""

    name: str
    """For the record: a run id, a folder, a Hub id, or `scratch`."""
    kind: Kind
    model: Any
    """Its configuration."""
    description: dict[str, Any]
    """See `roformer.models.description`."""
    weights: dict[str, Tensor]
    """By the names of `models`; an encoder without a head has the prefix `encoder.` too."""
    tokenizer: Any
    """`WordPiece`, `Bpe` or `ByteVocabulary`, or a sentence why the tokenizer is missing."""
    digest: str | None = None
    """SHA-256 of the weights where a checkpoint knows it."""
    revision: str | None = None
    """Commit that the revision of a Hub id stands for."""
    architecture: str | None = None
    """The `model_type` of a Hugging Face model: see `roformer.interop.mapping.NAMES`."""
    unused: tuple[str, ...] = ()
    """Names in the file of weights that no model here has."""
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Name here → names in the file of a Hugging Face model."""
    checkpoint: Path | None = None
    """Folder of a checkpoint of this package."""
    flaw: str | None = None
    """Sentence why its head cannot be computed here."""

    @property
    def vocab_size(self) -> int:
        """Rows of the embeddings."""
        return int(self.description["vocab_size"])

    @property
    def fingerprint(self) -> str:
        """SHA-256 that is equal where the weights are."""
        if self.digest is not None:
            return self.digest
        digest = hashlib.sha256()
        for name in sorted(self.weights):
            digest.update(name.encode())
            digest.update(self.weights[name].numpy().tobytes())
        return digest.hexdigest()

    def build(self) -> nn.Module:
        """Return the model with its weights, on the CPU, in fp32, in evaluation mode."""
        if self.flaw is not None:
            raise InputError(f"{self.name}: {self.flaw}")
        with torch.device("meta"):  # no weights are drawn only to be replaced
            model = build_model(self.description, self.model)
        return self._fill(model, "encoder." if self.kind == "encoder" else "")

    def encoder(self) -> nn.Module:
        """Return the `Encoder` alone, as `build`; its head may be incomplete."""
        with torch.device("meta"):
            return self._fill(Encoder(self.model, self.vocab_size), "encoder.")

    def _fill(self, model: nn.Module, prefix: str) -> nn.Module:
        own = {name: self.weights[prefix + name] for name in model.state_dict()}
        with torch.device("cpu"):
            model.to_empty(device="cpu").load_state_dict(own)
        return model.eval()

    def names_of(self, name: str) -> tuple[str, ...]:
        """Return the names in the file of a weight here."""
        return self.names.get(name, (name,))
