"""Pre-training on pairs of segments loses what `transformers`' BertForPreTraining loses."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import BertForPreTraining

from roformer.config.position import Learned
from roformer.config.schema import MaskingConfig
from roformer.data.mlm import MaskedBatches
from roformer.data.store import RaggedTokens, TokenStream
from roformer.interop.equivalents import equivalent
from roformer.interop.mapping import from_transformers
from roformer.tasks.mlm import MaskedLMTask
from tests.trained import UNCASED, relative, stored

LENGTH = 32


def test_logits_loss_and_gradients_are_theirs():
    """On one of our batches; catches an inverted relation, a wrong [CLS], a mean's wrong count."""
    ours = stored(
        position=Learned(max_positions=LENGTH),
        described={"objective": "mlm_nsp"},
        hidden_dropout=0.0,
        attention_dropout=0.0,
    )
    model, theirs = ours.build(), equivalent(ours, LENGTH).model
    assert isinstance(theirs, BertForPreTraining)
    theirs.set_attn_implementation("eager")
    generator = np.random.default_rng(0)
    lists = [[*generator.integers(5, UNCASED.size, 90), UNCASED.sep_id] for _ in range(20)]
    training = SimpleNamespace(sequence_length=LENGTH, documents="cross", first_epoch=0)
    task = object.__new__(MaskedLMTask)
    task.relation = "nsp"
    task.batches = MaskedBatches(
        TokenStream(RaggedTokens.of(lists)),
        UNCASED,
        MaskingConfig(random=0.0),
        training,
        0,
        "mlm_nsp",
    )
    batch = task.batches[range(16)]  # without [PAD], of which theirs learns nothing
    assert set(batch["relation"].tolist()) == {0, 1}

    labels = torch.full((16, LENGTH), -100).scatter(1, batch["predict"], batch["labels"])
    wanted = theirs(
        batch["input_ids"],
        token_type_ids=batch["token_type_ids"],
        labels=labels,
        next_sentence_label=batch["relation"],
    )
    inputs = {name: batch[name] for name in ("input_ids", "token_type_ids")}
    tokens, relation = model(**inputs, relation=True)
    assert relative(tokens, wanted.prediction_logits) <= 1e-5
    assert relative(relation, wanted.seq_relationship_logits) <= 1e-5

    loss = task.loss(model, batch).sum() / task.targets(batch)
    assert loss.item() == pytest.approx(wanted.loss.item(), rel=1e-5)
    loss.backward()
    wanted.loss.backward()
    gradients = {n: p.grad for n, p in theirs.named_parameters() if p.grad is not None}
    compared = from_transformers(gradients, "bert")
    assert {"pooler.weight", "relation.bias", "encoder.token_types.weight"} <= compared.keys()
    for name, gradient in compared.items():
        assert relative(model.get_parameter(name).grad, gradient) <= 1e-4, name
