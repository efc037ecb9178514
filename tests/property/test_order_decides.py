"""A model without positions cannot solve the builtin tasks: it says the same of a whole group."""

import pytest
import torch

from roformer.config import position as encodings
from roformer.config import schema
from roformer.config.attention import SoftmaxAttention
from roformer.data.classification import Inputs
from roformer.data.tokenizers import SPECIAL_TOKENS, WordPiece
from roformer.data.toy.glue import GROUP, TASKS, bags, builtin_examples
from roformer.models.classifier import Classifier

ENCODINGS = {
    "none": encodings.NoPosition(),
    "rotary": encodings.Rotary(),
    "learned": encodings.Learned(max_positions=64),
}


def answers(task: str, position: str) -> list[torch.Tensor]:
    """Return the outputs of each of 20 groups, by a model with random weights."""
    split = "validation_matched" if task == "mnli" else "validation"
    examples = builtin_examples(task, split, 20 * GROUP[task])
    examples.sort(key=bags)
    words = sorted({w for e in examples for t in e[:2] if t for w in t.split()})
    tokenizer = WordPiece([*SPECIAL_TOKENS, *words], lowercase=True)
    first, second = ([tokenizer.encode(e[i] or "") for e in examples] for i in (0, 1))
    single = examples[0].text_b is None
    inputs = Inputs([first] if single else [first, second], None, tokenizer, 64)
    torch.manual_seed(0)
    config = schema.EncoderConfig(
        name="roformer",
        size="test",
        layers=2,
        hidden_size=64,
        heads=4,
        intermediate_size=128,
        hidden_dropout=0.0,
        attention_dropout=0.0,
        init_std=0.2,
        position=ENCODINGS[position],
        attention=SoftmaxAttention(),
    )
    model = Classifier(config, tokenizer.size, 3, dropout=0.0).eval()
    with torch.no_grad():
        return list(model(**inputs[range(len(examples))]).split(GROUP[task]))


def spread(groups: list[torch.Tensor]) -> torch.Tensor:
    """Return how far the answers inside each group are apart."""
    return torch.stack([(g.max(0).values - g.min(0).values).max() for g in groups])


@pytest.mark.parametrize("task", TASKS)
def test_without_positions_all_of_a_group_get_one_answer(task):
    """So it is right on one of them: exact chance. Catches a position that leaks into the control."""
    assert spread(answers(task, "none")).max() < 1e-4


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("position", ["rotary", "learned"])
def test_with_positions_they_get_different_ones(task, position):
    """Catches a rotation that is left out."""
    assert spread(answers(task, position)).min() > 1e-3
