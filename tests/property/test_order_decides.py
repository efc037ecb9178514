"""A model without positions cannot solve the builtin tasks: it says the same of a whole group."""

import pytest
import torch

from roformer.config.schema import EncoderConfig
from roformer.data.classification import Inputs
from roformer.data.tokenizers import SPECIAL_TOKENS, WordPiece
from roformer.data.toy.glue import GROUP, TASKS, bags, builtin_examples
from roformer.models.classifier import Classifier
from tests.property.models import settings


def spread(task, position):
    """Return how far the answers inside each of 20 groups are apart, by a model of random weights."""
    split = "validation_matched" if task == "mnli" else "validation"
    examples = sorted(builtin_examples(task, split, 20 * GROUP[task]), key=bags)
    words = sorted({w for e in examples for t in e[:2] if t for w in t.split()})
    tokenizer = WordPiece.bert([*SPECIAL_TOKENS, *words], lowercase=True)
    first, second = ([tokenizer.encode(e[i] or "") for e in examples] for i in (0, 1))
    single = examples[0].text_b is None
    inputs = Inputs([first] if single else [first, second], None, tokenizer, 64)
    sizes = {"hidden_size": 64, "intermediate_size": 128, "hidden_dropout": 0.0, "init_std": 0.2}
    config = EncoderConfig(**settings(position, **sizes))
    model = Classifier(config, tokenizer.size, 3, dropout=0.0).eval()
    with torch.no_grad():
        groups = model(**inputs[range(len(examples))]).unflatten(0, (-1, GROUP[task]))
    return (groups.amax(1) - groups.amin(1)).amax(-1)


@pytest.mark.parametrize("task", TASKS)
def test_only_positions_tell_the_examples_of_a_group_apart(task):
    """Without them one of each group is right: exact chance. Catches a position that leaks into the
    control, and a missing rotation."""
    assert spread(task, "none").max() < 1e-4
    assert spread(task, "rotary").min() > 1e-3
    assert spread(task, "learned").min() > 1e-3
