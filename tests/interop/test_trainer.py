"""Labels in, loss and logits out: as transformers' own models, and inside its Trainer."""

import pytest
import torch
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    Trainer,
    TrainingArguments,
)

from roformer.interop.hugging_face import encoder_config
from roformer.interop.mapping import from_transformers
from roformer.interop.trainer import IGNORED, WithLoss
from roformer.models.classifier import Classifier
from roformer.models.encoder import MaskedLM

CONFIG = {
    "vocab_size": 40,
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "max_position_embeddings": 16,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}


def pair(kind, **options):
    """Return (ours, theirs) with equal weights."""
    theirs = kind(BertConfig(**CONFIG, **options)).eval()
    config = encoder_config(theirs.config)
    ours = (
        MaskedLM(config, 40)
        if kind is BertForMaskedLM
        else Classifier(config, 40, theirs.config.num_labels, dropout=0.0)
    )
    ours.load_state_dict(from_transformers(theirs.state_dict(), "bert"))
    return WithLoss(ours.eval()), theirs


def batch(rows=4, length=9):
    ids = torch.randint(5, 40, (rows, length))
    mask = torch.arange(length) < torch.tensor([length, 3, 6, length][:rows])[:, None]
    return {"input_ids": ids, "attention_mask": mask.long(), "token_type_ids": ids % 2}


def test_masked_lm_has_their_loss_and_logits():
    ours, theirs = pair(BertForMaskedLM)
    inputs = batch()
    labels = torch.where(torch.rand(4, 9) < 0.3, inputs["input_ids"], IGNORED)
    mine, other = ours(**inputs, labels=labels), theirs(**inputs, labels=labels)
    torch.testing.assert_close(mine.loss, other.loss)
    real = inputs["attention_mask"].bool()
    torch.testing.assert_close(mine.logits[real], other.logits[real], atol=1e-5, rtol=1e-5)
    assert mine["loss"] is mine.loss is mine[0] and mine.to_tuple()[1] is mine.logits
    assert ours(**inputs).to_tuple()[0].shape == (4, 9, 40)
    assert ours(**inputs, labels=torch.full((4, 9), IGNORED)).loss == 0


SCORES, CLASSES = torch.tensor([0.5, 5.0, 2.0, 0.0]), torch.tensor([0, 2, 1, 1])


@pytest.mark.parametrize("shape", [(4,), (4, 1)])
@pytest.mark.parametrize(
    ("outputs", "labels"),
    [(3, CLASSES), (1, SCORES.double()), (1, CLASSES)],
)
def test_classifier_has_their_loss(outputs, labels, shape):
    """Labels (B, 1) are (B,): they must not spread over all pairs of rows."""
    ours, theirs = pair(BertForSequenceClassification, num_labels=outputs)
    inputs, labels = batch(), labels.view(shape)
    torch.testing.assert_close(
        ours(**inputs, labels=labels).loss, theirs(**inputs, labels=labels).loss.float()
    )


@pytest.mark.parametrize(
    ("outputs", "labels"),
    [(1, SCORES[:1]), (3, CLASSES[:2]), (3, SCORES)],
)
def test_labels_that_do_not_fit_are_an_error(outputs, labels):
    ours, _ = pair(BertForSequenceClassification, num_labels=outputs)
    with pytest.raises(ValueError, match=r"\d+ labels of type .* do not fit logits of shape \(4, "):
        ours(**batch(), labels=labels)


def test_inside_trainer_accumulation_is_one_large_batch(tmp_path):
    """Different numbers of targets per row: catches a loss that is divided by its own batch's."""
    ours, _ = pair(BertForMaskedLM)
    inputs = batch()
    wanted = torch.arange(9) < torch.tensor([9, 1, 2, 5])[:, None]
    inputs["labels"] = inputs["input_ids"].where(wanted, IGNORED)
    arguments = TrainingArguments(
        output_dir=str(tmp_path),
        max_steps=3,
        per_device_train_batch_size=1,
        gradient_accumulation_steps=4,
        learning_rate=0.01,
        optim="sgd",
        max_grad_norm=0.0,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        save_strategy="no",
    )
    rows = [{name: tensor[i] for name, tensor in inputs.items()} for i in range(4)]
    Trainer(model=ours, args=arguments, train_dataset=rows).train()
    torch.manual_seed(0)
    expected, _ = pair(BertForMaskedLM)
    optimizer = torch.optim.SGD(expected.parameters(), lr=0.01)
    for step in range(3):
        optimizer.param_groups[0]["lr"] = 0.01 * (1 - step / 3)
        optimizer.zero_grad()
        expected(**inputs).loss.backward()
        optimizer.step()
    for mine, theirs in zip(ours.parameters(), expected.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-6, rtol=1e-5)
