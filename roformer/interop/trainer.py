"""Models for `transformers.Trainer`: labels in, an output with loss and logits out.

Trainer(model=WithLoss(roformer.load_model("runs/pretrain/…").model), …)
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn import functional
from transformers.utils.generic import ModelOutput

from roformer.data.random import IGNORED
from roformer.models.classifier import Classifier
from roformer.models.encoder import MaskedLM


@dataclass
class LossOutput(ModelOutput):
    """Output of a model: by attribute, by key, or as a tuple without the Nones."""

    loss: Tensor | None = None  # a scalar; None where no labels were given
    logits: Tensor | None = None  # (B, T, V) of a masked LM, (B, C) of a classifier


class WithLoss(nn.Module):
    """A masked LM or a classifier that takes `labels` and returns a `LossOutput`.

    Args:
        model: its weights are shared, not copied: after `Trainer.train()` it is the trained one.
    """

    accepts_loss_kwargs = True
    """Have `Trainer` give the number of targets, so that accumulation equals one large batch."""

    def __init__(self, model: MaskedLM | Classifier):
        super().__init__()
        self.model = model

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        labels: Tensor | None = None,
        num_items_in_batch: Tensor | int | None = None,
    ) -> LossOutput:
        """Return logits and, given labels, the loss.

        Args:
            input_ids, attention_mask, token_type_ids: (B, T); the mask is 1 or true for real tokens.
            labels: (B, T) token ids of a masked LM, `IGNORED` elsewhere; integer classes, (B,) or
                (B, 1); scores of any type of a classifier with one output, (B,) or (B, 1).
            num_items_in_batch: targets of the whole step; None divides by the targets of this batch.
        """
        mask = None if attention_mask is None else attention_mask.bool()
        logits = self.model(input_ids, attention_mask=mask, token_type_ids=token_type_ids).float()
        if labels is None:
            return LossOutput(logits=logits)
        labels = labels.flatten()
        regression = logits.ndim == 2 and logits.shape[-1] == 1
        classes = not labels.is_floating_point()
        if len(labels) != logits[..., 0].numel() or not (regression or classes):
            raise ValueError(
                f"{len(labels)} labels of type {labels.dtype} do not fit logits of shape "
                f"{tuple(logits.shape)}: give one integer per row of logits, or one score per row "
                "if the model has one output"
            )
        if regression:
            loss = functional.mse_loss(logits.flatten(), labels.float(), reduction="sum")
            count = len(labels)
        else:
            rows, labels = logits.flatten(0, -2), labels.long()
            loss = functional.cross_entropy(rows, labels, ignore_index=IGNORED, reduction="sum")
            count = int((labels != IGNORED).sum())
        return LossOutput(loss=loss / (num_items_in_batch or max(1, count)), logits=logits)
