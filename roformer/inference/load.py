"""A trained encoder, ready to use: `roformer.load_model("runs/glue/…")`, or one of Hugging Face."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from roformer.config.build import plain
from roformer.data.classification import Inputs
from roformer.data.tokenizers import MASK, WordPiece
from roformer.errors import InputError
from roformer.inference.folders import new_folder, write_run
from roformer.inference.resolve import resolve
from roformer.inference.texts import answer, check_text, shown
from roformer.interop.mapping import names_there
from roformer.models.classifier import Classifier, mean_of_tokens
from roformer.models.encoder import Encoder, MaskedLM
from roformer.training import checkpoint
from roformer.training.hardware import check_device

Text = str | tuple[str, str]
BATCH = 32


class Prediction(NamedTuple):
    """Prediction for one text or pair."""

    label: str | None  # None of a regression
    score: float  # probability of the label, or the score of a regression
    cut: bool  # True if the text was longer than the model reads, and its end was cut


class Filling(NamedTuple):
    """A token that may fill a [MASK]; `##` begins a piece that continues a word."""

    token: str
    probability: float


class TrainedModel:
    """A masked language model or classifier with its tokenizer, in evaluation mode, in fp32.

    Args:
        model: `MaskedLM` of a pre-training, `Classifier` of a fine-tuning, `Encoder` of a Hugging
            Face model without either head: token ids to hidden states (B, T, D).
        tokenizer: the tokenizer of its training, or a sentence why it is missing.
        description: of a classifier its `task` (a name), `labels` (in the order of its outputs; None
            of a regression), `texts` (names of the one or two texts of an example; None where that is
            not known) and `max_length` in tokens. Attributes have the same names; `texts` is the number.
    """

    def __init__(
        self, model: nn.Module, tokenizer: WordPiece | str, description: dict[str, Any]
    ) -> None:
        self.model, self._tokenizer, self._description = model, tokenizer, description
        self.task: str | None = description.get("task")
        self.labels: list[str] | None = description.get("labels")
        texts = description.get("texts", ("text",))
        self.texts: int | None = None if texts is None else len(texts)
        self.max_length: int | None = description.get("max_length")

    @property
    def tokenizer(self) -> WordPiece:
        """The tokenizer that the model was trained with."""
        if isinstance(self._tokenizer, str):
            raise InputError(f"this model cannot read texts, only token ids: {self._tokenizer}")
        return self._tokenizer

    @property
    def encoder(self) -> Encoder:
        """The model without its head."""
        model: Any = self.model
        encoder: Encoder = getattr(model, "encoder", model)
        return encoder

    def __repr__(self) -> str:
        config, task = self.encoder.config, f" of {self.task}" if self.task else ""
        return (
            f"TrainedModel({type(self.model).__name__}{task}, {config.layers} layers of "
            f"{config.hidden_size}, {config.position.kind} positions, "
            f"{sum(p.numel() for p in self.model.parameters()):,} parameters)"
        )

    def _batch(self, inputs: Inputs, numbers: Any) -> dict[str, Tensor]:
        device = self.encoder.tokens.weight.device
        return {name: tensor.to(device) for name, tensor in inputs[numbers].items()}

    # --- embeddings --------------------------------------------------------------------------

    def embed(self, texts: str | Iterable[str], pooling: Literal["mean", "cls"] = "mean") -> Tensor:
        """Return a vector for each text, (N, D), or for one text, (D,); fp32, on the CPU.

        `pooling` is the mean of the last hidden states of all tokens, [CLS] and [SEP] included, or the
        state of [CLS]. A text beyond the model's length is cut, with a warning.
        """
        if pooling not in ("mean", "cls"):
            raise InputError(f"pooling={pooling}: choose mean or cls")
        vectors: Tensor = answer(texts, check_text, lambda each: self._embed(each, pooling))
        return vectors

    @torch.no_grad()
    def _embed(self, texts: list[str], pooling: str) -> Tensor:
        encoder, ids = self.encoder, self.tokenizer.encode_batch(texts)
        longest = self.max_length or encoder.config.position.longest
        inputs = Inputs([ids], None, self.tokenizer, longest or 2 + max(map(len, ids), default=0))
        if cut := int(inputs.too_long.sum()):
            warnings.warn(
                f"{cut} of {len(texts)} texts exceed {longest} tokens and were cut", stacklevel=4
            )
        vectors = torch.empty(len(texts), encoder.config.hidden_size)
        order = np.argsort(-inputs.lengths, kind="stable")
        for first in range(0, len(order), BATCH):
            numbers = order[first : first + BATCH]
            batch = self._batch(inputs, numbers)
            x = encoder(**batch).float()
            mask = batch.get("attention_mask")
            pooled = x[:, 0] if pooling == "cls" else mean_of_tokens(x, mask)
            vectors[torch.from_numpy(numbers)] = pooled.cpu()
        return vectors

    # --- classification ----------------------------------------------------------------------

    def predict(self, texts: Text | Iterable[Text]) -> Any:
        """Return the `Prediction` for one text or pair, or the list of predictions for many.

        A text is a str, a pair a tuple of two strs.
        """
        if not isinstance(self.model, Classifier):
            raise InputError("this model was not fine-tuned: give a run under runs/glue/")
        return answer(texts, self._check, self._predict)

    @torch.no_grad()
    def outputs(self, inputs: Inputs) -> Tensor:
        """Return logits or scores of all examples, (N, C), fp32, on the CPU."""
        starts = range(0, len(inputs), BATCH)
        batches = (range(first, min(first + BATCH, len(inputs))) for first in starts)
        return torch.cat([self.model(**self._batch(inputs, b)) for b in batches]).float().cpu()

    def inputs(self, texts: Sequence[Text]) -> Inputs:
        """Return texts or pairs as token ids."""
        pairs = [text if isinstance(text, tuple) else (text,) for text in texts]
        if len({len(pair) for pair in pairs}) > 1:
            raise InputError("one call takes single texts or pairs, not both")
        columns = [self.tokenizer.encode_batch(each) for each in zip(*pairs, strict=True)]
        assert self.max_length is not None
        return Inputs(columns, None, self.tokenizer, self.max_length)

    def _check(self, given: object) -> Text:
        """Return a text or pair if the task has such."""
        if isinstance(given, str) and self.texts != 2:
            return check_text(given)
        if isinstance(given, tuple) and self.texts != 1 and self.encoder.config.token_types < 2:
            raise InputError(
                "a pair of texts needs two token types, and this model has token_types=1: give a "
                "model with two"
            )
        if isinstance(given, tuple) and len(given) == 2 and self.texts != 1:
            return check_text(given[0]), check_text(given[1])
        wanted = {1: "single texts", 2: "pairs, each a tuple of two texts", None: "texts or pairs"}
        takes = f"{self.task or 'this model'} takes {wanted[self.texts]}"
        raise InputError(f"{takes}, not {shown(given)}")

    def _predict(self, texts: list[Text]) -> list[Prediction]:
        if not texts:
            return []
        inputs = self.inputs(texts)
        outputs = self.outputs(inputs)
        scores, numbers = outputs[:, 0], [0] * len(outputs)
        if self.labels is not None:
            scores, best = outputs.softmax(-1).max(-1)
            numbers = best.tolist()
        labels: Sequence[str | None] = self.labels or [None]
        rows = zip(scores.tolist(), numbers, inputs.too_long, strict=True)
        return [Prediction(labels[number], score, bool(cut)) for score, number, cut in rows]

    # --- masked tokens -----------------------------------------------------------------------

    def fill_mask(self, texts: str | Iterable[str], top: int = 5) -> Any:
        """Return for each [MASK] of a text, in order, its `top` most probable `Filling`s, the best first.

        For many texts it is a list of these.
        """
        trained_head = not self._description.get("untrained_head")
        if not (isinstance(self.model, MaskedLM) and trained_head):
            raise InputError(
                "this model predicts no tokens, because it has no trained masked-LM head: train one with "
                "make pretrain RECIPE=warmstart ARGS=init_from=…, or give a pre-training run"
            )
        return answer(texts, check_text, lambda each: [self._fill(text, top) for text in each])

    @torch.no_grad()
    def _fill(self, text: str, top: int) -> list[list[Filling]]:
        tokenizer, encoder = self.tokenizer, self.encoder
        first, *parts = tokenizer.encode_batch(text.split(MASK))
        if not parts:
            raise InputError(f"there is no {MASK} in {text!r}: write one where a token is wanted")
        if not 0 < top <= tokenizer.size:
            raise InputError(f"top={top} must be between 1 and {tokenizer.size:,}")
        ids = [tokenizer.cls_id, *first]
        for part in parts:
            ids += [tokenizer.mask_id, *part]
        ids.append(tokenizer.sep_id)
        longest = encoder.config.position.longest or self.max_length
        if longest is not None and len(ids) > longest:
            raise InputError(f"the text has {len(ids)} tokens, and the model reads {longest}")
        row = torch.tensor([ids], device=encoder.tokens.weight.device)
        predict = (row == tokenizer.mask_id).nonzero()[:, 1][None]
        # Embeddings may have been rounded up: their last rows are no tokens.
        logits = self.model(row, predict=predict)[0, :, : tokenizer.size].float()
        best = logits.softmax(-1).topk(top)
        return [
            [Filling(tokenizer.vocabulary[i], share) for i, share in zip(*pair, strict=True)]
            for pair in zip(best.indices.tolist(), best.values.tolist(), strict=True)
        ]

    # --- files -------------------------------------------------------------------------------

    def save(self, folder: str | Path) -> None:
        """Write a new folder that `load_model` opens and `init_from` takes: a run with one checkpoint."""
        if not isinstance(self.model, (MaskedLM, Classifier)):
            raise InputError("a model without a head cannot be saved: give one with a head")
        encoder, tokenizer = self.model.encoder, self.tokenizer
        description = self._description | {
            "kind": "mlm",
            "model": plain(encoder.config),
            "vocab_size": encoder.tokens.num_embeddings,
            "tokenizer": tokenizer.fingerprint,
        }
        if isinstance(self.model, Classifier):
            lacking = [key for key in ("task", "texts", "max_length") if key not in description]
            if lacking:
                raise InputError(
                    f"the classifier's description is incomplete: add {', '.join(lacking)}"
                )
            description |= {"kind": "classifier", "head_dropout": self.model.dropout.p}
            description.setdefault("labels", None)
        with new_folder(Path(folder)) as partial:
            weights = checkpoint.model_tensors(self.model)
            write_run(partial, None, weights, description, tokenizer)


def load_model(
    path: str | Path, *, device: str = "cpu", revision: str | None = None
) -> TrainedModel:
    """Open a run's model, or a `transformers` model of type bert or roformer.

    This is the best checkpoint of a fine-tuning and the last one of a pre-training. A Hugging Face model
    becomes a `MaskedLM`, a `Classifier`, or where it has neither head an `Encoder`; a warning names
    weights of it that are not used.

    `path` is a run's folder, the id of a run below runs/, a checkpoint's folder, an exported or other
    Hugging Face folder, or a Hub id, of which `revision` is a branch, tag or commit.
    """
    check_device(device)
    stored = resolve(path, ("mlm", "classifier", "encoder"), revision=revision)
    model, unused = stored.build(), set(stored.unused)
    prefix = "encoder." if stored.kind == "encoder" else ""
    for name in stored.weights.keys() - {prefix + name for name in model.state_dict()}:
        unused |= {*names_there(name, stored.architecture)}
    if unused:
        warnings.warn(f"not used of {path}: {', '.join(sorted(unused))}", stacklevel=2)
    return TrainedModel(model.to(device), stored.tokenizer, stored.description)
