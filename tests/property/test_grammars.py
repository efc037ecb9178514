"""Laws of the grammars: inside a group only the order differs, so bags of words say nothing."""

import hashlib
import math
from collections import Counter, defaultdict
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import spearmanr

from roformer.data.toy import lexicon
from roformer.data.toy.glue import GROUP, TASKS, Example, bags, builtin_examples
from roformer.errors import InputError

CONF = Path(__file__).parents[2] / "conf" / "task"
SPLITS = [
    (task, split)
    for task in TASKS
    for split in (
        ("train", "validation")
        if task != "mnli"
        else ("train", "validation_matched", "validation_mismatched")
    )
]


def grouped(examples: list[Example]) -> dict[str, list[Example]]:
    """Recover the groups from the texts alone."""
    groups = defaultdict(list)
    for example in examples:
        groups[bags(example)].append(example)
    return groups


def arbitrary(example: Example, salt: int) -> float:
    """Return a number in [0, 1): any function of the two bags of words and of nothing else."""
    words = [sorted((text or "").split()) for text in (example.text_a, example.text_b)]
    digest = hashlib.sha256(repr((salt, words)).encode()).digest()
    return int.from_bytes(digest[:8], "big") / 2**64


@pytest.mark.parametrize(("task", "split"), SPLITS)
def test_members_of_a_group_differ_in_order_and_label_alone(task, split):
    groups = grouped(builtin_examples(task, split, 900))
    wanted = sorted(yaml.safe_load((CONF / f"{task}.yaml").read_text()).get("labels") or [])
    for group in groups.values():
        assert len(group) == GROUP[task]
        assert len({(e.text_a, e.text_b) for e in group}) == len(group)
        for field in (0, 1):
            bag = Counter((group[0][field] or "").split())
            assert all(Counter((e[field] or "").split()) == bag for e in group)
        labels = sorted(e.label for e in group)
        if task == "stsb":
            assert labels[0] < labels[1] and sum(labels) == 5
        else:
            assert labels == wanted


@pytest.mark.parametrize(("task", "split"), SPLITS)
def test_labels_are_those_of_the_task(task, split):
    config = yaml.safe_load((CONF / f"{task}.yaml").read_text())
    examples = builtin_examples(task, split, 300)
    for example in examples:
        assert (example.text_b is None) == (len(config["texts"]) == 1)
        for text in example[: len(config["texts"])]:
            assert text == " ".join(text.split()) == text.lower()
            assert "{" not in text
    labels = {example.label for example in examples}
    if config.get("labels"):
        assert labels == set(config["labels"])
    else:
        low, high = config["scores"]
        assert all(isinstance(label, float) for label in labels)
        assert (min(labels), max(labels)) == (low, high)
    parts = config.get("parts")
    if split != "train":
        assert split in ([f"validation_{part}" for part in parts] if parts else ["validation"])


@pytest.mark.parametrize(("task", "split"), SPLITS)
@given(salt=st.integers(0, 2**32), groups=st.integers(1, 60))
@settings(max_examples=15, deadline=None)
def test_any_function_of_the_bags_is_at_chance(task, split, salt, groups):
    examples = builtin_examples(task, split, groups * GROUP[task])
    said = np.array([arbitrary(example, salt) for example in examples])
    labels = sorted({example.label for example in examples})
    true = np.array([labels.index(example.label) for example in examples])
    if task != "stsb":
        right = np.floor(said * len(labels)).astype(int) == true
        assert right.sum() * GROUP[task] == len(examples)
    elif groups > 1:
        scores = np.array([example.label for example in examples])
        assert abs(np.corrcoef(said, scores)[0, 1]) < 1e-12
        assert abs(spearmanr(said, scores).statistic) < 1e-12


@pytest.mark.parametrize("task", TASKS)
def test_length_says_nothing(task):
    """Word counts are equal in a group; characters too, for all that a tokenizer could see."""
    for group in grouped(builtin_examples(task, "train", 300)).values():
        assert len({tuple(len(text or "") for text in e[:2]) for e in group}) == 1


@pytest.mark.parametrize("task", TASKS)
def test_place_in_the_group_says_nothing(task):
    examples = builtin_examples(task, "train", 1000 * GROUP[task])
    first = Counter(example.label for example in examples[:: GROUP[task]])
    kinds = 4 if task == "stsb" else GROUP[task]
    expected = 1000 / kinds
    assert len(first) == kinds
    assert all(abs(count - expected) < 5 * math.sqrt(expected) for count in first.values())


@pytest.mark.parametrize(("task", "split"), SPLITS)
@given(counts=st.lists(st.integers(3, 400), min_size=2, max_size=2))
@settings(max_examples=5, deadline=None)
def test_fewer_examples_are_the_first_of_more(task, split, counts):
    fewer, more = (builtin_examples(task, split, count) for count in sorted(counts))
    assert fewer == more[: len(fewer)]
    for examples, count in zip((fewer, more), sorted(counts), strict=True):
        assert len(examples) == count // GROUP[task] * GROUP[task]


def test_splits_are_disjoint_and_large_enough():
    for task in TASKS:
        keys: list[str] = []
        for split in (split for name, split in SPLITS if name == task):
            groups = grouped(builtin_examples(task, split, 12000 if split == "train" else 2000))
            count = sum(map(len, groups.values()))
            assert count == (12000 if split == "train" else 2000) // GROUP[task] * GROUP[task]
            keys += groups
        assert len(set(keys)) == len(keys)


def test_examples_are_those_of_this_version():
    """Changes with the grammars or the draw: then raise GRAMMAR, for what is cached under it."""
    text = repr([builtin_examples(task, split, 30) for task, split in SPLITS])
    assert (
        hashlib.sha256(text.encode()).hexdigest()
        == "c416afbaddb6778d965e56cb55ed7627508f890b9095a4442333805fdeae8525"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("cola", "train", 10), "data=files or data=hub"),
        (("mnli", "validation", 10), "validation_mismatched"),
        (("sst2", "test", 10), "train, validation"),
        (("mnli", "train", 2), "a group has 3"),
        (("sst2", "train", 0), "a group has 2"),
    ],
)
def test_what_cannot_be_drawn(arguments, message):
    with pytest.raises(InputError, match=message):
        builtin_examples(*arguments)


def test_word_lists_hold_no_word_twice_and_are_disjoint_where_they_say_so():
    lists = {name: value for name, value in vars(lexicon).items() if name.isupper()}
    assert lists
    for name, listed in lists.items():
        assert len(set(listed)) == len(listed), name
    for one, other in [
        ("GOOD", "BAD"),
        ("COMPARATIVES", "OTHER_COMPARATIVES"),
        ("NAMES", "GROUPS"),
        ("ANIMALS", "GROUPS"),
        ("MATERIALS", "FOODS"),
    ]:
        assert not set(lists[one]) & set(lists[other]), (one, other)
