"""GLUE's metrics: parity with scikit-learn and scipy, and undefined values."""

import math

import evaluate
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from sklearn import metrics

from roformer.evaluation import glue_metrics
from roformer.evaluation.glue_metrics import METRICS, glue_metric

CLASSES = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=1, max_size=60)


@pytest.mark.filterwarnings("ignore:A single label was found")
@given(CLASSES)
def test_class_metrics_equal_scikit_learns(pairs):
    predictions, references = map(list, zip(*pairs, strict=True))
    for name, expected in {
        "accuracy": metrics.accuracy_score(references, predictions),
        "f1": metrics.f1_score(references, predictions, zero_division=0),
        "matthews": metrics.matthews_corrcoef(references, predictions),
    }.items():
        assert glue_metric(name, predictions, references) == pytest.approx(expected, abs=1e-12)


@given(st.integers(0, 2**32 - 1), st.integers(3, 60))
def test_correlations_equal_scipys(seed, count):
    random = np.random.default_rng(seed)
    predictions = random.normal(size=count).astype(np.float32)
    references = (random.integers(0, 26, count) / 5).astype(np.float32)
    if np.ptp(references) == 0:
        return
    wide = predictions.astype(float), references.astype(float)
    expected = {"pearson": stats.pearsonr(*wide)[0], "spearman": stats.spearmanr(*wide)[0]}
    for name, value in expected.items():
        assert glue_metric(name, predictions, references) == pytest.approx(value, abs=1e-12)


def test_f1_is_that_of_class_one():
    """Catches averaging over classes, and the positive class swapped."""
    references = [1, 1, 1, 0, 0]
    assert glue_metric("f1", [1, 1, 1, 1, 1], references) == pytest.approx(0.75)
    assert glue_metric("f1", [0, 0, 0, 0, 0], references) == 0.0


@pytest.mark.parametrize("name", ["pearson", "spearman"])
def test_a_correlation_with_a_constant_is_nan(name):
    assert math.isnan(glue_metric(name, [2.5] * 6, [0, 1, 2, 3, 4, 5]))
    assert math.isnan(glue_metric(name, [1.0], [2.0]))


@pytest.mark.parametrize("name", METRICS)
def test_every_metric_loads_through_evaluate_without_a_network(name, monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    module = evaluate.load(glue_metrics.__file__, name, cache_dir=str(tmp_path))
    result = module.compute(predictions=[0, 1, 1, 0], references=[0, 1, 0, 0])
    assert result[name] == pytest.approx(glue_metric(name, [0, 1, 1, 0], [0, 1, 0, 0]))
