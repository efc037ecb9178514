"""A trained encoder, ready to use: `roformer.load_model("runs/glue/…")`, or one of Hugging Face."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, overload

import torch
from torch import Tensor, nn

from roformer.config.build import plain
from roformer.data.classification import Inputs
from roformer.data.tokenizers import MASK, WordPiece
from roformer.errors import InputError
from roformer.inference.open import open_model
from roformer.inference.texts import answer, check_text, shown
from roformer.interop.hugging_face import HuggingFaceModel
from roformer.models.classifier import Classifier
from roformer.models.encoder import MaskedLM
from roformer.training import checkpoint

Text = str | tuple[str, str]
BATCH = 32
ELSEWHERE = {
    "translation": "a translation run: open it with roformer.load_translator",
    "causal": "a causal language model: open it with roformer.load_generator",
    "scorer": "a model that scores pairs of documents, neither a classifier nor a language model: its "
    "scores are in predictions/; init_from can start from it",
}
"""Kinds of models that are no `TrainedModel`."""
DESCRIBED = ("task", "labels", "texts", "max_length")
"""Keys of a classifier's description."""


class Prediction(NamedTuple):
    """Prediction for one text or pair."""

    label: str | None
    """None of a regression."""
    score: float
    """Probability of the label, or the score of a regression."""
    cut: bool
    """True if the text was longer than the model reads, and its end was left out."""


class Filling(NamedTuple):
    """A token that may stand at a [MASK]."""

    token: str
    """Entry of the vocabulary; `##` begins a piece that continues a word."""
    probability: float


class TrainedModel:
    """A masked language model or classifier with its tokenizer, in evaluation mode, in fp32.

    Args:
        model: `MaskedLM` of a pre-training, `Classifier` of a fine-tuning, `Encoder` of a Hugging
            Face model without either head: token ids to hidden states (B, T, D).
        tokenizer: that of its training, or a sentence why it has none.
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
        """The tokenizer that the model was trained with.

        Raises:
            InputError: a Hugging Face model has one that is not BERT's WordPiece, or none.
        """
        if isinstance(self._tokenizer, str):
            raise InputError(f"this model cannot read texts, only token ids: {self._tokenizer}")
        return self._tokenizer

    # --- classification ----------------------------------------------------------------------

    # To a type checker a str is a collection of strs; the first signature that fits is taken.
    @overload
    def predict(self, texts: Text) -> Prediction: ...  # type: ignore[overload-overlap]
    @overload
    def predict(self, texts: Iterator[Text]) -> Iterator[Prediction]: ...  # type: ignore[overload-overlap]
    @overload
    def predict(self, texts: Iterable[Text]) -> list[Prediction]: ...
    def predict(self, texts: Text | Iterable[Text]) -> Any:
        """Return the prediction for one text or pair, or the predictions for many, in order.

        Args:
            texts: one text (a str) or one pair (a tuple of two strs, of a task of pairs) has one
                prediction; many, a list or another ordered collection, have a list; an iterator has
                an iterator, which reads 32 ahead at most. A tuple is always one pair.

        Raises:
            InputError: the model has no classifier; or a text is no pair where pairs are wanted, a
                pair where texts are wanted, or neither.
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
        count = self.texts or len(pairs[0])
        if wrong := next((pair for pair in pairs if len(pair) != count), None):
            task = self.task or "one call"
            raise InputError(f"{task} takes {'pairs' if count == 2 else 'single texts'}: {wrong!r}")
        columns = [self.tokenizer.encode_batch(column) for column in zip(*pairs, strict=True)]
        assert self.max_length is not None
        return Inputs(columns, None, self.tokenizer, self.max_length)

    def _check(self, given: object) -> Text:
        """Return a text, or a pair, as the task has it.

        Raises:
            InputError: it is not what the task takes.
        """
        if isinstance(given, str) and self.texts != 2:
            return check_text(given)
        if isinstance(given, tuple) and len(given) == 2 and self.texts != 1:
            return check_text(given[0]), check_text(given[1])
        wanted = {1: "single texts", 2: "pairs, each a tuple of two texts"}
        takes = wanted.get(self.texts or 0, "texts, or pairs, each a tuple of two texts")
        many = ": give many texts as a list" if isinstance(given, tuple) else ""
        raise InputError(f"{self.task or 'this model'} takes {takes}, not {shown(given)}{many}")

    def _predict(self, texts: Iterator[Text]) -> Iterator[Prediction]:
        while batch := list(islice(texts, BATCH)):
            inputs = self.inputs(batch)
            outputs, cut = self.outputs(inputs), inputs.too_long.tolist()
            if self.labels is None:
                for row, was_cut in zip(outputs, cut, strict=True):
                    yield Prediction(None, float(row[0]), was_cut)
            else:
                best = outputs.softmax(-1).max(-1)
                for score, number, was_cut in zip(*map(Tensor.tolist, best), cut, strict=True):
                    yield Prediction(self.labels[number], score, was_cut)

    # --- masked tokens -----------------------------------------------------------------------

    @overload
    def fill_mask(self, texts: str, top: int = 5) -> list[list[Filling]]: ...  # type: ignore[overload-overlap]
    @overload
    def fill_mask(self, texts: Iterator[str], top: int = 5) -> Iterator[list[list[Filling]]]: ...  # type: ignore[overload-overlap]
    @overload
    def fill_mask(self, texts: Iterable[str], top: int = 5) -> list[list[list[Filling]]]: ...
    def fill_mask(self, texts: str | Iterable[str], top: int = 5) -> Any:
        """Return the most probable tokens for each [MASK] of a text, in order, the best first.

        Args:
            texts: one text (a str) with [MASK] at least once, or a list or iterator of such, which has
                a list or iterator of such answers.
            top: how many tokens for each.

        Raises:
            InputError: the model predicts no tokens; a text is no str, has no [MASK] or is too long.
        """
        if not isinstance(self.model, MaskedLM):
            raise InputError("this model predicts no tokens: give a pre-training run")
        return answer(texts, check_text, lambda each: (self._fill(text, top) for text in each))

    @torch.no_grad()
    def _fill(self, text: str, top: int) -> list[list[Filling]]:
        tokenizer = self.tokenizer
        parts = tokenizer.encode_batch(text.split(MASK))
        if len(parts) == 1:
            raise InputError(f"there is no {MASK} in {text!r}: write one where a token is wanted")
        if not 0 < top <= tokenizer.size:
            raise InputError(f"top={top} must be between 1 and {tokenizer.size:,}")
        ids = [tokenizer.cls_id, *parts[0]]
        for part in parts[1:]:
            ids += [tokenizer.mask_id, *part]
        ids.append(tokenizer.sep_id)
        assert isinstance(self.model, MaskedLM)
        longest = self.model.encoder.config.position.longest or self.max_length
        if longest is not None and len(ids) > longest:
            raise InputError(f"the text has {len(ids)} tokens, and the model reads {longest}")
        row = torch.tensor([ids], device=self.model.bias.device)
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
        """Write a folder that `load_model` opens and `init_from` takes, as a run with one checkpoint.

        Args:
            folder: to make; not there yet, or empty.

        Raises:
            InputError: the folder is not empty; the model has no head, no tokenizer, or a pooler of
                another activation than tanh, or a classifier's description is incomplete.
            OSError: the disk is full or not writable.
        """
        folder = Path(folder)
        if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
            raise InputError(f"{folder} is there already and not empty: choose another folder")
        if not isinstance(self.model, (MaskedLM, Classifier)):
            raise InputError(
                "a model without a head cannot be saved: give a MaskedLM or Classifier"
            )
        encoder, tokenizer = self.model.encoder, self.tokenizer
        description: dict[str, Any] = {
            "kind": "mlm",
            "model": plain(encoder.config),
            "vocab_size": encoder.tokens.num_embeddings,
            "tokenizer": tokenizer.fingerprint,
        }
        if isinstance(self.model, Classifier):
            if self.model.activation is not torch.tanh:
                raise InputError("a classifier whose pooler is not tanh's cannot be saved")
            given = {"labels": None, **self._description}
            if absent := [key for key in DESCRIBED if key not in given or given[key] == []]:
                raise InputError(f"the classifier's description is incomplete: {absent[0]}")
            description |= {key: given[key] for key in DESCRIBED}
            description |= {"kind": "classifier", "head_dropout": self.model.dropout.p}
        tokenizer.save(folder / "tokenizer")
        checkpoints = checkpoint.Checkpoints(folder / "checkpoints", keep=1)
        weights = checkpoint.model_tensors(self.model)
        checkpoints.save(0, weights, {}, {}, description, best=True)
        checkpoint.keep_only_best(folder / "checkpoints")


def load_model(
    path: str | Path, *, device: str = "cpu", revision: str | None = None
) -> TrainedModel:
    """Open a run's model, or a `transformers` model of type bert or roformer.

    Of a fine-tuning this is the best checkpoint, of a pre-training the last one. A Hugging Face model
    becomes a `MaskedLM`, a `Classifier`, or where it has neither head an `Encoder`; a warning names
    weights of it that are not used.

    Args:
        path: a run's folder, the id of a run below runs/, a checkpoint's folder, an exported or other
            Hugging Face folder, or a Hub id.
        device: where the model goes.
        revision: of a Hub id: branch, tag or commit.

    Raises:
        InputError: nothing complete is there, or it has no tokenizer or another one; a Hugging Face
            model cannot be had, is damaged, or has variants that are not here.
    """
    opened = open_model(path, revision=revision)
    if opened.kind in ELSEWHERE:
        raise InputError(f"{path} is {ELSEWHERE[opened.kind]}")
    assert isinstance(opened.tokenizer, (WordPiece, str))
    model, unused = opened.build(), list[str]()
    if isinstance(opened, HuggingFaceModel):
        prefix = "encoder." if opened.kind == "encoder" else ""
        own = {prefix + name for name in model.state_dict()}
        unused = sorted([*opened.unknown, *opened.theirs(opened.weights.keys() - own)])
    if unused:
        warnings.warn(f"not used of {path}: {', '.join(unused)}", stacklevel=2)
    return TrainedModel(model.to(device), opened.tokenizer, opened.description, unused)
