"""A trained encoder, ready to use: `roformer.load_model("runs/glue/…")`, or one of Hugging Face."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
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
from roformer.inference.open import TEXT_MODEL, open_model
from roformer.inference.texts import answer, as_list, check_text, shown
from roformer.models.classifier import Classifier
from roformer.models.encoder import Encoder, MaskedLM
from roformer.training import checkpoint
from roformer.training.hardware import check_device

Text = str | tuple[str, str]
BATCH = 32


class Prediction(NamedTuple):
    """Prediction for one text or pair."""

    label: str | None
    """None of a regression."""
    score: float
    """Probability of the label, or the score of a regression."""
    cut: bool
    """True if the text was longer than the model reads, and its end was cut."""


class Filling(NamedTuple):
    """A token that may fill a [MASK]."""

    token: str
    """Entry of the vocabulary; `##` begins a piece that continues a word."""
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
        unused: names of weights of a Hugging Face model that are not used.
    """

    def __init__(
        self,
        model: nn.Module,
        tokenizer: WordPiece | str,
        description: dict[str, Any],
        unused: Sequence[str] = (),
    ):
        self.model, self._tokenizer, self.unused = model, tokenizer, list(unused)
        self._description = description
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

    # --- embeddings --------------------------------------------------------------------------

    @torch.no_grad()
    def embed(self, texts: str | Iterable[str], pooling: Literal["mean", "cls"] = "mean") -> Tensor:
        """Return a vector for each text, (N, D), or for one text, (D,); fp32, on the CPU.

        Args:
            texts: one text or many; a text beyond the model's length is cut, with a warning.
            pooling: `mean` of the last hidden states of all tokens, [CLS] and [SEP] included, or the
                state of [CLS].
        """
        if pooling not in ("mean", "cls"):
            raise InputError(f"pooling={pooling}: choose mean or cls")
        checked: Any = answer(texts, check_text, lambda each: each)
        alone = isinstance(checked, str)
        rows = [checked] if alone else list(checked)
        encoder, ids = self.encoder, self.tokenizer.encode_batch(rows)
        longest = self.max_length or encoder.config.position.longest
        inputs = Inputs([ids], None, self.tokenizer, longest or 2 + max(map(len, ids), default=0))
        if cut := int(inputs.too_long.sum()):
            warnings.warn(
                f"{cut} of {len(rows)} texts exceed {longest} tokens and were cut", stacklevel=2
            )
        vectors = torch.empty(len(rows), encoder.config.hidden_size)
        device = encoder.tokens.weight.device
        order = np.argsort(-inputs.lengths, kind="stable")
        for first in range(0, len(order), BATCH):
            numbers = order[first : first + BATCH]
            batch = {name: tensor.to(device) for name, tensor in inputs[numbers].items()}
            states = encoder(**batch).float()
            if pooling == "mean":
                mask = batch.get("attention_mask", torch.ones_like(batch["input_ids"]))
                pooled = (states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
            else:
                pooled = states[:, 0]
            vectors[torch.from_numpy(numbers)] = pooled.cpu()
        return vectors[0] if alone else vectors

    # --- classification ----------------------------------------------------------------------

    def predict(self, texts: Text | Iterable[Text]) -> Any:
        """Return the `Prediction` for one text or pair, or the predictions for many, in order.

        Args:
            texts: one text (a str) or one pair (a tuple of two strs, of a task of pairs), or many:
                see `roformer.inference.texts.answer`. An iterator is read 32 ahead at most.
        """
        if not isinstance(self.model, Classifier):
            raise InputError("this model was not fine-tuned: give a run under runs/glue/")
        return answer(texts, self._check, self._predict)

    @torch.no_grad()
    def outputs(self, inputs: Inputs) -> Tensor:
        """Return logits or scores of all examples, (N, C), fp32, on the CPU."""
        device = next(self.model.parameters()).device
        rows = []
        for first in range(0, len(inputs), BATCH):
            batch = inputs[range(first, min(first + BATCH, len(inputs)))]
            rows.append(self.model(**{name: t.to(device) for name, t in batch.items()}))
        return torch.cat(rows).float().cpu()

    def inputs(self, texts: Sequence[Text]) -> Inputs:
        """Return texts or pairs as token ids."""
        pairs = [text if isinstance(text, tuple) else (text,) for text in texts]
        if len({len(pair) for pair in pairs}) > 1:
            raise InputError("one call takes single texts or pairs, not both")
        columns = [self.tokenizer.encode_batch(each) for each in zip(*pairs, strict=True)]
        assert self.max_length is not None
        return Inputs(columns, None, self.tokenizer, self.max_length)

    def _check(self, given: object) -> Text:
        """Return a text, or a pair, as the task has it; raise InputError for anything else."""
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
        raise InputError(f"{takes}, not {shown(given)}{as_list(given)}")

    def _predict(self, texts: Iterator[Text]) -> Iterator[Prediction]:
        while batch := list(islice(texts, BATCH)):
            inputs = self.inputs(batch)
            outputs = self.outputs(inputs)
            scores, numbers = outputs[:, 0], [0] * len(outputs)
            if self.labels is not None:
                scores, best = outputs.softmax(-1).max(-1)
                numbers = best.tolist()
            labels: Sequence[str | None] = self.labels or [None]
            for score, number, cut in zip(scores.tolist(), numbers, inputs.too_long, strict=True):
                yield Prediction(labels[number], score, bool(cut))

    # --- masked tokens -----------------------------------------------------------------------

    def fill_mask(self, texts: str | Iterable[str], top: int = 5) -> Any:
        """Return for each [MASK] of a text, in order, its most probable `Filling`s, the best first.

        Args:
            texts: one text with [MASK] at least once, or many: see `roformer.inference.texts.answer`.
            top: how many tokens for each.
        """
        if not isinstance(self.model, MaskedLM):
            raise InputError("this model predicts no tokens: give a pre-training run")
        return answer(texts, check_text, lambda each: (self._fill(text, top) for text in each))

    @torch.no_grad()
    def _fill(self, text: str, top: int) -> list[list[Filling]]:
        tokenizer, model = self.tokenizer, self.model
        assert isinstance(model, MaskedLM)
        first, *parts = tokenizer.encode_batch(text.split(MASK))
        if not parts:
            raise InputError(f"there is no {MASK} in {text!r}: write one where a token is wanted")
        if not 0 < top <= tokenizer.size:
            raise InputError(f"top={top} must be between 1 and {tokenizer.size:,}")
        ids = [tokenizer.cls_id, *first]
        for part in parts:
            ids += [tokenizer.mask_id, *part]
        ids.append(tokenizer.sep_id)
        longest = model.encoder.config.position.longest or self.max_length
        if longest is not None and len(ids) > longest:
            raise InputError(f"the text has {len(ids)} tokens, and the model reads {longest}")
        row = torch.tensor([ids], device=model.encoder.tokens.weight.device)
        predict = (row == tokenizer.mask_id).nonzero()[:, 1][None]
        # Embeddings may have been rounded up: their last rows are no tokens.
        logits = model(row, predict=predict)[0, :, : tokenizer.size].float()
        best = logits.softmax(-1).topk(top)
        return [
            [Filling(tokenizer.vocabulary[i], share) for i, share in zip(*pair, strict=True)]
            for pair in zip(best.indices.tolist(), best.values.tolist(), strict=True)
        ]

    # --- files -------------------------------------------------------------------------------

    def save(self, folder: str | Path) -> None:
        """Write a folder that `load_model` opens and `init_from` takes, as a run with one checkpoint.

        Args:
            folder: a new or empty folder.
        """
        if not isinstance(self.model, (MaskedLM, Classifier)):
            raise InputError("a model without a head cannot be saved: give one with a head")
        encoder, tokenizer = self.model.encoder, self.tokenizer
        description: dict[str, Any] = {
            "kind": "mlm",
            "model": plain(encoder.config),
            "vocab_size": encoder.tokens.num_embeddings,
            "tokenizer": tokenizer.fingerprint,
        }
        if isinstance(self.model, MaskedLM) and self.model.relation is not None:
            description["objective"] = self._description["objective"]
        if isinstance(self.model, Classifier):
            if self.model.activation is not torch.tanh:
                raise InputError("a classifier whose pooler is not tanh's cannot be saved")
            given = {"labels": None, **self._description}
            for key in ("task", "labels", "texts", "max_length"):
                if given.get(key, []) == []:
                    raise InputError(f"the classifier's description is incomplete: {key}")
                description[key] = given[key]
            description |= {"kind": "classifier", "head_dropout": self.model.dropout.p}
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

    Args:
        path: a run's folder, the id of a run below runs/, a checkpoint's folder, an exported or other
            Hugging Face folder, or a Hub id.
        device: where the model goes.
        revision: of a Hub id: branch, tag or commit.
    """
    check_device(device)
    opened = open_model(path, TEXT_MODEL, revision=revision)
    model, unused = opened.build(), set(opened.unused)
    prefix = "encoder." if opened.kind == "encoder" else ""
    own = {prefix + name for name in model.state_dict()}
    unused |= {part for name in opened.weights.keys() - own for part in opened.names_of(name)}
    if unused:
        warnings.warn(f"not used of {path}: {', '.join(sorted(unused))}", stacklevel=2)
    return TrainedModel(model.to(device), opened.tokenizer, opened.description, sorted(unused))
