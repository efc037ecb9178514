"""Masked-language-model examples out of a token stream: packed blocks, masks and their order.

    sample number n  →  epoch n // N, n-th entry of that epoch's permutation of the N blocks
    block            →  [CLS] T-2 tokens [SEP], cut from the stream of documents, no padding; or a pair
                        of segments, see `roformer.data.segments`
    mask             →  K = round(p·T) positions, 80/10/10 (Devlin et al. 2019, section 3.1)

Everything is a pure function of (seed, epoch, index), see `roformer.data.random`.

Shapes: B batch, T sequence, K predicted positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from roformer.config.schema import MaskingConfig, Objective, TrainingConfig
from roformer.data.random import IGNORED, EpochOrder, Purpose, random_stream
from roformer.data.segments import Pair, SegmentPairs
from roformer.data.store import TokenStream
from roformer.data.tokenizers import WordPiece
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
    """Choice and masking of the tokens to predict (Devlin et al. 2019, section 3.1 and appendix A.1)."""

    def __init__(self, config: MaskingConfig, tokenizer: WordPiece, sequence_length: int):
        self.config, self.tokenizer = config, tokenizer
        self.special = np.isin(np.arange(tokenizer.size), tokenizer.special_ids)
        self.count = max(1, round(config.probability * sequence_length))

    def __call__(self, block: Ids, random: np.random.Generator) -> MaskedBlock:
        """Mask one block; draws only from `random`."""
        candidates = np.flatnonzero(~self.special[block])
        chosen = (
            self._words(block, candidates, random)
            if self.config.whole_word
            else random.permutation(candidates)[: self.count]
        )
        chosen.sort()
        labels = block[chosen]
        draw = random.random(len(chosen))
        hidden = np.where(draw < self.config.mask, self.tokenizer.mask_id, labels)
        replaced = (draw >= self.config.mask) & (draw < self.config.mask + self.config.random)
        hidden[replaced] = random.integers(self.tokenizer.size, size=int(replaced.sum()))
        input_ids = block.copy()
        input_ids[chosen] = hidden
        empty = (0, self.count - len(chosen))
        return MaskedBlock(
            input_ids, np.pad(chosen, empty), np.pad(labels, empty, constant_values=IGNORED)
        )

    def context_free_loss(self, labels: Ids) -> float:
        """Return the least loss on these targets, in nats, of a model that reads no other token.

        It knows the frequencies of the targets and sees the tokens in their places: [MASK], of which it
        knows nothing else, or a token that is the target itself with probability
        a = keep·p / (keep·p + random/V), where keep is the share left unchanged.
        """
        counts = np.bincount(labels[labels != IGNORED], minlength=self.tokenizer.size)
        p = counts / counts.sum()
        occurs, drawn = p > 0, self.config.random
        keep = 1 - self.config.mask - drawn
        p = p[occurs]
        entropy = -(p * np.log(p)).sum()
        loss = self.config.mask * entropy
        if keep > 0:
            a = keep * p / (keep * p + drawn / len(counts))
            kept_log = np.log(a + (1 - a) * p)
            loss -= keep * (p * kept_log).sum()
        else:
            a, kept_log = np.zeros_like(p), np.log(p)
        if drawn > 0:  # any of V tokens is seen, the target too, see `kept_log`
            other = np.log((1 - a) * p)
            wrong = entropy - np.log(1 - a).sum() / len(counts)
            loss += drawn * (wrong + (p * (other - kept_log)).sum() / len(counts))
        return float(loss)

    def _words(self, block: Ids, candidates: Ids, random: np.random.Generator) -> Ids:
        """Return whole words up to `count` tokens; a word that would exceed it is skipped."""
        starts = ~self.tokenizer.continuation[block[candidates]]
        starts[:1] = True
        # A word also ends where a special token interrupts it.
        starts[1:] |= np.diff(candidates) > 1
        words = np.split(candidates, np.flatnonzero(starts)[1:])
        chosen: list[Ids] = [candidates[:0]]
        free = self.count
        for word in random.permutation(len(words)):
            if len(words[word]) <= free:
                chosen.append(words[word])
                free -= len(words[word])
            if not free:
                break
        return np.concatenate(chosen)


class PackedBlocks:
    """A token stream cut into blocks of T: [CLS], T-2 tokens, [SEP]; documents end in [SEP]."""

    def __init__(self, stream: TokenStream, tokenizer: WordPiece, sequence_length: int):
        self.stream, self.tokenizer, self.length = stream, tokenizer, sequence_length
        if not len(self):
            raise InputError(
                f"the split has {len(stream)} tokens, less than one block of "
                f"{sequence_length}: give more text or lower training.sequence_length"
            )

    def __len__(self) -> int:
        return len(self.stream) // (self.length - 2)

    def __getitem__(self, index: int) -> Ids:
        """Return block `index`, int64 (T,)."""
        body = self.length - 2
        tokens = self.stream[index * body : (index + 1) * body]
        return np.concatenate([[self.tokenizer.cls_id], tokens, [self.tokenizer.sep_id]])


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

    `seed` decides the order, the pairs and the masks. None is frozen, for validation: blocks in one
    order, cut and masked in one way, whatever the seed and the epoch; the first ones are the validation
    sample.
    """

    def __init__(
        self,
        stream: TokenStream,
        tokenizer: WordPiece,
        masking: MaskingConfig,
        training: TrainingConfig,
        seed: int | None,
        objective: Objective = "mlm",
    ):
        self.blocks: PackedBlocks | SegmentPairs = (
            PackedBlocks(stream, tokenizer, training.sequence_length)
            if objective == "mlm"
            else SegmentPairs(stream, tokenizer, training.sequence_length, objective)
        )
        self.masker = Masker(masking, tokenizer, training.sequence_length)
        self.isolate, self.seed = training.documents == "isolate", seed
        self.order = (
            EpochOrder(len(self.blocks), 0, Purpose.VALID_SAMPLE)
            if seed is None
            else EpochOrder(len(self.blocks), seed, Purpose.BLOCK_ORDER, training.first_epoch)
        )

    def labels(self, count: int) -> Ids:
        """Return the labels of the first `count` samples, (count, K), without making batches."""
        return np.stack([self._masked(number)[1].labels for number in range(count)])

    def block_of(self, number: int) -> int:
        """Return which block of the split sample `number` is."""
        return self.order[number][1]

    def _masked(self, number: int) -> tuple[Ids | Pair, MaskedBlock]:
        epoch, index = self.order[number]

        def stream(train: Purpose, valid: Purpose) -> np.random.Generator:
            if self.seed is None:
                return random_stream(0, valid, 0, index)
            return random_stream(self.seed, train, epoch, index)

        masks = stream(Purpose.TRAIN_MASK, Purpose.VALID_MASK)
        if isinstance(self.blocks, SegmentPairs):
            pair = self.blocks.pair(index, stream(Purpose.TRAIN_PAIR, Purpose.VALID_PAIR))
            return pair, self.masker(pair.input_ids, masks)
        block = self.blocks[index]
        return block, self.masker(block, masks)

    def __getitem__(self, numbers: Sequence[int]) -> dict[str, Tensor]:
        """Return the batch of these samples.

        Returns:
            input_ids (B, T), predict (B, K), labels (B, K); with isolated documents also positions
            (B, T) and attention_mask (B, T, T); of pairs also token_type_ids (B, T) and relation (B,).
        """
        blocks, examples = zip(*(self._masked(number) for number in numbers), strict=True)
        fields = zip(MaskedBlock._fields, zip(*examples, strict=True), strict=True)
        batch = {field: torch.from_numpy(np.stack(rows)) for field, rows in fields}
        if isinstance(self.blocks, SegmentPairs):
            batch["token_type_ids"] = torch.from_numpy(np.stack([p.token_type_ids for p in blocks]))
            batch["relation"] = torch.tensor([pair.relation for pair in blocks])
        if self.isolate:
            sep_id = self.blocks.tokenizer.sep_id
            pairs = zip(*(document_positions(block, sep_id) for block in blocks), strict=True)
            positions, document = (torch.from_numpy(np.stack(rows)) for rows in pairs)
            batch["positions"] = positions
            batch["attention_mask"] = document[:, :, None] == document[:, None, :]
        return batch
