"""A fine-tuning loses what a plain loop over `transformers`' classifier loses."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from accelerate.state import AcceleratorState, PartialState
from transformers import BertConfig, BertForSequenceClassification

from roformer.config.composing import compose
from roformer.interop.hugging_face import encoder_config
from roformer.interop.mapping import from_transformers
from roformer.models.description import StoredModel
from roformer.pipelines.glue import cells_of
from roformer.pipelines.run import train_from
from roformer.tasks import classification
from roformer.tasks.classification import ClassificationTask
from roformer.training.optim import learning_rate
from roformer.training.records import RunFolder
from tests.data.glue_tasks import TOKENIZER

STEPS = 20


def bert(outputs):
    """Return a small BERT with dropout off and no weight at its initial 0 or 1."""
    torch.manual_seed(1)
    config = BertConfig(
        vocab_size=TOKENIZER.size,
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
    model = BertForSequenceClassification(config)
    for parameter in model.parameters():
        parameter.data += 0.05 * torch.randn_like(parameter)
    return model


def cell(tmp_path, task):
    overrides = [
        *("recipe=smoke", "tracker=none", "model=bert", f"task={task}", "runtime.device=cpu"),
        *("data.train_examples=320", "data.max_train_examples=null", "data.validation_examples=48"),
        *("training.max_length=48", "runtime.progress=false", "runtime.tune_process=false"),
        *(f"runtime.runs_dir={tmp_path / 'runs'}", f"runtime.cache_dir={tmp_path / 'cache'}"),
    ]
    (one,) = cells_of(compose("glue", overrides))
    return one


@pytest.mark.parametrize("task", ["mrpc", "stsb"])
def test_twenty_steps_lose_what_a_plain_loop_over_bert_loses(tmp_path, monkeypatch, task):
    """Our pipeline and loop on one side, theirs and five lines on the other.

    Catches: a loss divided by the wrong count, a mean of means, (N, 1) against (N,) in the squared
    error, decay on biases, a schedule that is one step off, missing token types.
    """
    AcceleratorState._reset_state()
    PartialState._reset_state()
    config = cell(tmp_path, task)
    theirs = bert(1 if task == "stsb" else 2)
    model, weights = encoder_config(theirs.config), theirs.state_dict()
    description = {"vocab_size": TOKENIZER.size}
    start = StoredModel(
        "theirs", "mlm", model, description, from_transformers(weights, "bert"), TOKENIZER
    )
    monkeypatch.setattr(classification, "start_of", lambda config: start)
    ours = ClassificationTask(replace(config, model=model))
    ours.build_model()
    assert ours.training.steps == STEPS
    ours.training = replace(ours.training, log_every=1)
    folder = RunFolder(tmp_path / "glue" / "run")
    train_from(ours, folder, (None, None))
    rows = folder.metrics.read_text().splitlines()
    losses = [json.loads(row)["train/loss"] for row in rows]

    groups = [
        {"params": [p for p in theirs.parameters() if p.ndim >= 2], "weight_decay": 0.01},
        {"params": [p for p in theirs.parameters() if p.ndim < 2], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, betas=(0.9, 0.98))
    rate = learning_rate(config.schedule, config.optimizer.learning_rate, STEPS)
    expected = []
    theirs.train()
    for step in range(1, STEPS + 1):
        (numbers,) = ours.keys(step, 0, 1)
        loss = theirs(**ours.batches[np.asarray(numbers)]).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(theirs.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = rate(step)
        optimizer.step()
        optimizer.zero_grad()
        expected.append(loss.item())
    assert losses == pytest.approx(expected, rel=1e-4)
    assert abs(expected[-1] - expected[0]) > 1e-3
