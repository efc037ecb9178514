"""Trivial baselines: at chance on the builtin data, which is its claim, and worth much on real data."""

import math

import pytest

from roformer.config.composing import compose
from roformer.pipelines.glue import cells_of
from roformer.tasks.baselines import of_task, of_triplets


def on_task(task, *words):
    """Return the trivial baselines of a task."""
    (cell,) = cells_of(compose("glue", ["recipe=smoke", f"task={task}", *words]))
    return of_task(cell)


@pytest.mark.parametrize("task", ["mrpc", "sst2", "stsb", "mnli"])
def test_a_bag_of_words_is_at_chance_on_builtin_tasks(task):
    """Exactly, for each bag of words has every answer equally often: order decides, and nothing else."""
    sizes = ["data.max_train_examples=null", "data.train_examples=384"]
    found = on_task(task, *sizes, "data.validation_examples=120")
    assert list(found) == ["majority", "bag of words"]
    for metric, majority in found["majority"].items():
        counted = found["bag of words"][metric]
        if task == "stsb":
            assert math.isnan(majority) and not abs(counted) > 1e-6
        else:
            assert counted == pytest.approx(majority)


def test_documents_tell_little_on_builtin_triplets():
    """Of long cases the pleas outweigh the findings; all documents are new."""
    sizes = ["data.train_triplets=4", "data.validation_triplets=40", "data.test_triplets=400"]
    found = of_triplets(compose("scm", sizes))
    assert 0.4 < found["overlap"]["test/accuracy"] < 0.65
    assert set(found["known documents"].values()) == {0.5}
    assert found["known documents"].keys() == {
        f"{split}/accuracy{place}"
        for split in ("valid", "test")
        for place in ("", "_early", "_late")
    }
