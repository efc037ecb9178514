"""Fine-tuning equals `transformers`': logits of copied weights, and the losses of 20 updates."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from accelerate.state import AcceleratorState, PartialState
from transformers import BertConfig, BertForSequenceClassification

from roformer.cli import compose
from roformer.config.build import build
from roformer.config.glue import FinetuneConfig, GlueConfig
from roformer.data.examples import prepare_task
from roformer.inference.start import Start
from roformer.interop.hugging_face import encoder_config
from roformer.interop.weights import from_transformers
from roformer.models.classifier import Classifier
from roformer.pipelines.glue import cells_of
from roformer.pipelines.run import Run
from roformer.tasks.classification import ClassificationTask
from roformer.training.optim import learning_rate
from roformer.training.task import Opened
from tests.data.glue_tasks import TOKENIZER
from tests.parity.test_transformers import relative


def peer(vocab_size: int, outputs: int) -> BertForSequenceClassification:
    """A small BERT with dropout off and no weight at its initial 0 or 1."""
    torch.manual_seed(1)
    model = BertForSequenceClassification(
        BertConfig(
            vocab_size=vocab_size,
            hidden_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=128,
            max_position_embeddings=64,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            num_labels=outputs,
            attn_implementation="eager",
        )
    )
    for parameter in model.parameters():
        parameter.data += 0.05 * torch.randn_like(parameter)
    return model


@pytest.mark.parametrize("outputs", [1, 2, 3])
def test_logits_equal_those_of_bert_for_sequence_classification(outputs):
    theirs = peer(99, outputs).eval()
    ours = Classifier(encoder_config(theirs.config), 99, outputs, dropout=0.0).eval()
    ours.load_state_dict(from_transformers(theirs.state_dict(), "bert"))
    ids, types = torch.randint(5, 99, (3, 20)), torch.randint(0, 2, (3, 20))
    mask = torch.arange(20) < torch.tensor([20, 11, 3])[:, None]
    with torch.no_grad():
        expected = theirs(ids, attention_mask=mask, token_type_ids=types).logits
        logits = ours(ids, attention_mask=mask, token_type_ids=types)
    assert relative(logits, expected) < 1e-5


def cell(tmp_path, task: str) -> FinetuneConfig:
    overrides = [
        *("recipe=smoke", "tracker=none", "model=bert", f"task={task}", "runtime.device=cpu"),
        *("data.train_examples=320", "data.max_train_examples=null", "data.validation_examples=48"),
        *("training.max_length=48", "runtime.progress=false", "runtime.tune_process=false"),
        *(f"runtime.runs_dir={tmp_path / 'runs'}", f"runtime.cache_dir={tmp_path / 'cache'}"),
    ]
    (one,) = cells_of(build(GlueConfig, compose("glue", overrides)))
    return one


@pytest.mark.parametrize("task", ["mrpc", "stsb"])
def test_twenty_updates_lose_what_a_plain_loop_over_bert_loses(tmp_path, task):
    """Our pipeline and loop on one side, theirs and five lines on the other.

    Catches: a loss divided by the wrong count, a mean of means, (N, 1) against (N,) in the squared
    error, decay on biases, a schedule that is one update off, token types left out.
    """
    AcceleratorState._reset_state()
    PartialState._reset_state()
    config = cell(tmp_path, task)
    data = prepare_task(task, config.task[task], config.data, TOKENIZER, tmp_path / "cache")
    theirs = peer(TOKENIZER.size, 1 if task == "stsb" else 2)
    start = Start(
        name="theirs",
        model=encoder_config(theirs.config),
        vocab_size=TOKENIZER.size,
        tokenizer=TOKENIZER,
        weights=from_transformers(theirs.state_dict(), "bert"),
        fingerprint="",
    )
    content = {**config.__dict__, "model": start.model}
    ours = ClassificationTask(FinetuneConfig(**content), data, start)
    assert ours.training.steps == 20
    ours.training = replace(ours.training, log_every=1)
    run = Run("glue", Opened(config, data.fingerprint, TOKENIZER, lambda: ours))
    run.train()
    rows = (run.folder.path / "metrics.jsonl").read_text().splitlines()
    losses = [json.loads(row)["train/loss"] for row in rows]

    decayed = [p for p in theirs.parameters() if p.ndim >= 2]
    free = [p for p in theirs.parameters() if p.ndim < 2]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.01}, {"params": free, "weight_decay": 0.0}],
        betas=(0.9, 0.98),
    )
    rate = learning_rate(config.schedule, config.optimizer.learning_rate, 20)
    expected = []
    theirs.train()
    for update in range(1, 21):
        (numbers,) = ours.keys(update, 0, 1)
        batch = ours.batches[np.asarray(numbers)]
        loss = theirs(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(theirs.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = rate(update)
        optimizer.step()
        optimizer.zero_grad()
        expected.append(loss.item())
    assert losses == pytest.approx(expected, rel=1e-4)
    assert abs(expected[-1] - expected[0]) > 1e-3
