"""Fill masks: the most probable tokens for each [MASK] of a text."""

from __future__ import annotations

from typing import NamedTuple

import torch

from roformer.data.tokenizers import MASK, WordPiece
from roformer.errors import InputError
from roformer.models.encoder import MaskedLM


class Filling(NamedTuple):
    """A token that may stand at a [MASK]."""

    token: str
    """Entry of the vocabulary; `##` begins a piece that continues a word."""
    probability: float


@torch.no_grad()
def fill_masks(
    model: MaskedLM, tokenizer: WordPiece, text: str, top: int, max_length: int | None
) -> list[list[Filling]]:
    """Return the `top` most probable tokens for each [MASK] of a text, in order, the best first.

    Args:
        model: in evaluation mode.
        tokenizer: that of its training.
        text: with [MASK] at least once.
        top: how many tokens for each.
        max_length: longest text in tokens, of a model without a table of positions; None: any.

    Raises:
        InputError: the text has no [MASK] or is too long, or `top` is out of range.
    """
    parts = tokenizer.encode_batch(text.split(MASK))
    if len(parts) == 1:
        raise InputError(f"there is no {MASK} in {text!r}: write one where a token is wanted")
    if not 0 < top <= tokenizer.size:
        raise InputError(f"top={top} must be between 1 and {tokenizer.size:,}")
    ids = [tokenizer.cls_id, *parts[0]]
    for part in parts[1:]:
        ids += [tokenizer.mask_id, *part]
    ids.append(tokenizer.sep_id)
    longest = model.encoder.config.position.longest or max_length
    if longest is not None and len(ids) > longest:
        raise InputError(f"the text has {len(ids)} tokens, and the model reads {longest}")
    row = torch.tensor([ids], device=model.bias.device)
    predict = (row == tokenizer.mask_id).nonzero()[:, 1][None]
    # Embeddings may have been rounded up: their last rows are no tokens.
    logits = model(row, predict=predict)[0, :, : tokenizer.size].float()
    found = logits.softmax(-1).topk(top)
    return [
        [
            Filling(tokenizer.vocabulary[number], probability)
            for number, probability in zip(*pair, strict=True)
        ]
        for pair in zip(found.indices.tolist(), found.values.tolist(), strict=True)
    ]
