"""Laws of the GLUE-shaped tasks: in a group only the order differs, so bags of words say nothing.

Any function of the bags gives a group one answer, so it is right on exactly one of its labels.
"""

import hashlib
from collections import Counter, defaultdict
from pathlib import Path

import pytest
import yaml

from roformer.data.toy.glue import GROUP, TASKS, bags, builtin_examples
from roformer.errors import InputError

CONF = Path(__file__).parents[2] / "conf" / "pipelines" / "glue" / "task"
MNLI = ("train", "validation_matched", "validation_mismatched")
SPLITS = [
    (task, split)
    for task in TASKS
    for split in (MNLI if task == "mnli" else ("train", "validation"))
]


@pytest.mark.parametrize(("task", "split"), SPLITS)
def test_members_of_a_group_differ_in_order_and_label_alone(task, split):
    config = yaml.safe_load((CONF / f"{task}.yaml").read_text())
    groups = defaultdict(list)
    for example in builtin_examples(task, split, 300):
        groups[bags(example)].append(example)
        assert (example.text_b is None) == (len(config["texts"]) == 1)
        for text in example[: len(config["texts"])]:
            assert text == " ".join(text.split()) == text.lower() and "{" not in text
    for group in groups.values():
        assert len(group) == len({(e.text_a, e.text_b) for e in group}) == GROUP[task]
        assert len({tuple(len(text or "") for text in e[:2]) for e in group}) == 1
        for field in (0, 1):
            bag = Counter((group[0][field] or "").split())
            assert all(Counter((e[field] or "").split()) == bag for e in group)
        labels = sorted(e.label for e in group)
        if task == "stsb":
            assert 0 <= labels[0] < labels[1] <= 5 and sum(labels) == 5
        else:
            assert labels == sorted(config["labels"])


@pytest.mark.parametrize("task", TASKS)
def test_fewer_are_the_first_of_more_and_splits_are_disjoint_and_large_enough(task):
    keys, count = [], 600
    for split in (split for name, split in SPLITS if name == task):
        examples = builtin_examples(task, split, count)
        assert len(examples) == count // GROUP[task] * GROUP[task]
        assert builtin_examples(task, split, 100) == examples[: 100 // GROUP[task] * GROUP[task]]
        keys.append({bags(example) for example in examples})
        assert len(keys[-1]) * GROUP[task] == len(examples)
    assert len(set.union(*keys)) == sum(map(len, keys))


def test_examples_are_those_of_this_version():
    """Changes with the templates or the draw: then raise GRAMMAR, for what is cached under it."""
    text = repr([builtin_examples(task, split, 30) for task, split in SPLITS])
    assert (
        hashlib.sha256(text.encode()).hexdigest()
        == "c416afbaddb6778d965e56cb55ed7627508f890b9095a4442333805fdeae8525"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(("cola", "train", 10), "data=files or data=hub"), (("mnli", "train", 2), "a group has 3")],
)
def test_what_cannot_be_drawn(arguments, message):
    with pytest.raises(InputError, match=message):
        builtin_examples(*arguments)
