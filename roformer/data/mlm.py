"""Masked-language-model examples out of token shards: packed blocks, masks and their order.

Everything is a pure function of (seed, epoch, index): no state to save, the same examples whatever
the number of processes, workers or restarts.

    sample number n  →  epoch n // N, n-th entry of that epoch's permutation of the N blocks
    block            →  [CLS] T-2 tokens [SEP], cut from the stream of documents, no padding
    mask             →  K = round(p·T) positions, 80/10/10 (Devlin et al. 2019, section 3.1)

Shapes: B batch, T sequence, K predicted positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from roformer.config.schema import MaskingConfig, TrainingConfig
from roformer.data.random import IGNORED, Purpose, random_stream
from roformer.data.tokenizers import WordPiece
from roformer.data.tokens import TokenStream
from roformer.errors import InputError

Ids = NDArray[np.int64]


class MaskedBlock(NamedTuple):
    """One example: int64 arrays of (T,), (K,) and (K,)."""

    input_ids: Ids
    predict: Ids
    """Positions to predict, ascending; slots beyond the candidates hold 0."""
    labels: Ids
    """The original ids there; IGNORED in slots that predict nothing."""


class Masker:
    """Chooses what to predict and hides it (Devlin et al. 2019, section 3.1 and appendix A.1)."""

    def __init__(self, config: MaskingConfig, tokenizer: WordPiece, sequence_length: int):
        self.config = config
        self.mask_id, self.size = tokenizer.mask_id, tokenizer.size
        self.continuation = tokenizer.continuation
        self.special = np.zeros(tokenizer.size, dtype=bool)
        self.special[list(tokenizer.special_ids)] = True
        self.count = max(1, round(config.probability * sequence_length))

    def __call__(self, block: Ids, random: np.random.Generator) -> MaskedBlock:
        """Mask one block; draws from `random` alone."""
        candidates = np.flatnonzero(~self.special[block])
        chosen = (
            self._words(block, candidates, random)
            if self.config.whole_word
            else random.permutation(candidates)[: self.count]
        )
        chosen.sort()
        labels = block[chosen]
        draw = random.random(len(chosen))
        hidden = np.where(draw < self.config.mask, self.mask_id, labels)
        replaced = (draw >= self.config.mask) & (draw < self.config.mask + self.config.random)
        hidden[replaced] = random.integers(self.size, size=int(replaced.sum()))
        input_ids = block.copy()
        input_ids[chosen] = hidden
        empty = self.count - len(chosen)
        return MaskedBlock(
            input_ids,
            np.pad(chosen, (0, empty)),
            np.pad(labels, (0, empty), constant_values=IGNORED),
        )

    def _words(self, block: Ids, candidates: Ids, random: np.random.Generator) -> Ids:
        """Return whole words up to `count` tokens; a word that would go beyond it is passed over."""
        starts = ~self.continuation[block[candidates]]
        starts[:1] = True
        # A word also ends where a special token interrupts it.
        starts[1:] |= np.diff(candidates) > 1
        words = np.split(candidates, np.flatnonzero(starts)[1:])
        chosen: list[Ids] = []
        free = self.count
        for word in random.permutation(len(words)):
            if len(words[word]) <= free:
                chosen.append(words[word])
                free -= len(words[word])
            if not free:
                break
        return np.concatenate(chosen) if chosen else candidates[:0]


class PackedBlocks:
    """A token stream cut into blocks of T: [CLS], T-2 tokens, [SEP]; documents end in [SEP]."""

    def __init__(self, stream: TokenStream, tokenizer: WordPiece, sequence_length: int):
        self.stream, self.tokenizer, self.length = stream, tokenizer, sequence_length
        self.count = len(stream) // (sequence_length - 2)
        if not self.count:
            raise InputError(
                f"the split has {len(stream)} tokens, less than one block of "
                f"{sequence_length}: give more text or lower training.sequence_length"
            )

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Ids:
        """Return block `index`, int64 (T,)."""
        body = self.length - 2
        block = np.empty(self.length, dtype=np.int64)
        block[0], block[-1] = self.tokenizer.cls_id, self.tokenizer.sep_id
        block[1:-1] = self.stream[index * body : (index + 1) * body]
        return block


def document_positions(block: Ids, sep_id: int) -> tuple[Ids, Ids]:
    """Return position within its document and document number for every token, each (T,)."""
    ends = np.flatnonzero(block[:-1] == sep_id) + 1
    document = np.zeros(len(block), dtype=np.int64)
    document[ends] = 1
    document = document.cumsum()
    starts = np.concatenate(([0], ends))
    return np.arange(len(block)) - starts[document], document


class MaskedBatches(torch.utils.data.Dataset[dict[str, Tensor]]):
    """Batches of masked blocks, addressed by the sample numbers they hold.

    Args:
        blocks: the split's blocks.
        masker: chooses and hides.
        seed: of the order and the masks.
        documents: `cross` or `isolate` (see `TrainingConfig.documents`).
        frozen: validation: blocks in the order of one fixed sample, masked once and for all,
            whatever the seed and the epoch.
        first_epoch: number of the first epoch.
    """

    def __init__(
        self,
        blocks: PackedBlocks,
        masker: Masker,
        *,
        seed: int,
        documents: str,
        frozen: bool = False,
        first_epoch: int = 0,
    ):
        self.blocks, self.masker, self.seed = blocks, masker, seed
        self.isolate, self.frozen = documents == "isolate", frozen
        self.first_epoch = first_epoch
        self._order: tuple[int, Ids] = (-1, np.empty(0, dtype=np.int64))

    def labels(self, count: int) -> Ids:
        """Return the labels of the first `count` samples, (count, K), without making batches."""
        places = [self._locate(number) for number in range(count)]
        return np.stack([self._mask(self.blocks[place[1]], *place).labels for place in places])

    def block_of(self, number: int) -> int:
        """Return which block of the split sample `number` is."""
        return self._locate(number)[1]

    def _locate(self, number: int) -> tuple[int, int]:
        """Return (epoch, block) of sample `number` of the endless sequence of epochs."""
        epoch, place = divmod(number, len(self.blocks))
        epoch += self.first_epoch
        if self._order[0] != epoch:
            purpose, seed = (
                (Purpose.VALID_SAMPLE, 0) if self.frozen else (Purpose.BLOCK_ORDER, self.seed)
            )
            self._order = (epoch, random_stream(seed, purpose, epoch).permutation(len(self.blocks)))
        return epoch, int(self._order[1][place])

    def _mask(self, block: Ids, epoch: int, index: int) -> MaskedBlock:
        if self.frozen:
            return self.masker(block, random_stream(0, Purpose.VALID_MASK, 0, index))
        return self.masker(block, random_stream(self.seed, Purpose.TRAIN_MASK, epoch, index))

    def __getitem__(self, numbers: Sequence[int]) -> dict[str, Tensor]:
        """Return the batch of these samples.

        Returns:
            input_ids (B, T), predict (B, K), labels (B, K); with isolated documents also positions
            (B, T) and attention_mask (B, T, T).
        """
        places = [self._locate(number) for number in numbers]
        blocks = [self.blocks[index] for _, index in places]
        examples = [self._mask(block, *place) for block, place in zip(blocks, places, strict=True)]
        batch = {
            field: torch.from_numpy(np.stack([getattr(example, field) for example in examples]))
            for field in MaskedBlock._fields
        }
        if self.isolate:
            sep_id = self.blocks.tokenizer.sep_id
            pairs = [document_positions(block, sep_id) for block in blocks]
            document = torch.from_numpy(np.stack([pair[1] for pair in pairs]))
            batch["positions"] = torch.from_numpy(np.stack([pair[0] for pair in pairs]))
            batch["attention_mask"] = document[:, :, None] == document[:, None, :]
        return batch


def training_batches(
    stream: TokenStream,
    tokenizer: WordPiece,
    masking: MaskingConfig,
    training: TrainingConfig,
    seed: int,
) -> MaskedBatches:
    """Return the endless shuffled training samples."""
    return _batches(stream, tokenizer, masking, training, seed, frozen=False)


def validation_batches(
    stream: TokenStream, tokenizer: WordPiece, masking: MaskingConfig, training: TrainingConfig
) -> MaskedBatches:
    """Return the frozen validation samples: the first `training.valid_sequences` are the sample."""
    return _batches(stream, tokenizer, masking, training, 0, frozen=True)


def _batches(
    stream: TokenStream,
    tokenizer: WordPiece,
    masking: MaskingConfig,
    training: TrainingConfig,
    seed: int,
    *,
    frozen: bool,
) -> MaskedBatches:
    blocks = PackedBlocks(stream, tokenizer, training.sequence_length)
    masker = Masker(masking, tokenizer, training.sequence_length)
    return MaskedBatches(
        blocks,
        masker,
        seed=seed,
        documents=training.documents,
        frozen=frozen,
        first_epoch=0 if frozen else training.first_epoch,
    )
