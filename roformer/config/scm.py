"""The keys of fine-tuning on triplets of documents (paper, section 4.5: CAIL2019-SCM).

See `roformer.config.schema` for the three classes of key.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PositiveInt

from roformer.config.schema import EpochsTraining, FinetuningConfig, LocalFiles, RunConfig
from roformer.config.typed import Config, PathName, Probability, Rules, Seed

Order = Literal["shuffled", "short_first"]


class TripletData(Config):
    """Base class of the sources."""

    max_train_triplets: PositiveInt | None = None
    """Train on no more than this many triplets, drawn once and for all."""
    max_held_out_triplets: PositiveInt | None = None
    """The same of the validation and of the test triplets."""


class BuiltinTriplets(TripletData):
    """Loan cases made from templates; `roformer.data.toy.cases`."""

    kind: Literal["scm_builtin"] = "scm_builtin"
    train_triplets: PositiveInt = 9600
    validation_triplets: PositiveInt = 200
    test_triplets: PositiveInt = 200


class FilesTriplets(TripletData, LocalFiles):
    """JSON lines with A, B and C, and with or without a label: one file, or a folder of splits."""

    kind: Literal["scm_files"] = "scm_files"
    path: PathName
    split: Literal["shipped", "paper622"] = "shipped"
    """`shipped`: a folder's train, validation and test files; `paper622`: all rows of the file or
    folder, shuffled by `split_seed` and cut 6:2:2, as the paper's text says."""
    split_seed: Seed = 0


Triplets = Annotated[BuiltinTriplets | FilesTriplets, Field(discriminator="kind")]


class PairConfig(Config):
    """Pooling of two documents into one score."""

    pooling: Literal["mean", "cls"] = "mean"
    """Over all tokens of the pair, without padding, or only [CLS]."""
    head: Literal["none", "dense"] = "none"
    """`none`: linear in what is pooled (the authors); `dense`: dense layer and tanh first (BERT's pooler)."""
    token_types: Literal["zeros", "segments"] = "zeros"
    """All 0 even for pairs (the authors), or 1 for the second document (BERT)."""


class TripletTraining(EpochsTraining):
    """Epochs of triplets, two pairs each; of a pair that is too long the longer document is cut."""

    head_dropout: Probability = 0.0
    loss: Literal["bce", "ranking"] = "bce"
    """`bce`: (A, closer) is 1, (A, other) 0 (the authors); `ranking`: softmax over a triplet's scores."""
    order: Order = "shuffled"
    """Order of the batches, each of pairs of similar length. `short_first` sorts the first epoch by the
    power of two below a batch's longest pair: a fresh model learns from short pairs what to look for in
    long ones."""


class ScmConfig(FinetuningConfig, RunConfig):
    """Is A closer to B or to C? Each pair is scored, and the higher score is the answer."""

    data: Triplets
    pretraining: tuple[str, ...] = ()
    """Overrides of the pre-training that init_from=auto starts from."""
    pair: PairConfig = PairConfig()
    training: TripletTraining

    def rules(self) -> Rules:
        yield from super().rules()
        length, types = self.training.max_length, self.model.token_types
        yield from self.model.position.length_rules(length, f"training.max_length={length}")
        yield (
            self.pair.token_types == "segments" and types < 2,
            f"pair.token_types=segments needs two types, and model.token_types={types}: raise it or "
            "choose pair.token_types=zeros",
        )
