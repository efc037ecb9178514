"""GLUE's metrics, as fractions: values by hand and by scipy, undefined ones, and loading by `evaluate`."""

import math

import evaluate
import pytest
from scipy import stats

from roformer.evaluation import glue_metrics
from roformer.evaluation.glue_metrics import METRICS, glue_metric

SCORES = [0.1, 2.5, 2.5, 4.0, 3.0], [0.2, 1.0, 3.0, 5.0, 4.0]
EXPECTED = [
    ("accuracy", [1, 1, 0, 0], [1, 0, 0, 0], 0.75),
    ("f1", [1, 1, 1, 1, 1], [1, 1, 1, 0, 0], 0.75),  # of class 1, not a mean over classes
    ("f1", [0, 0, 0, 0, 0], [1, 1, 1, 0, 0], 0.0),
    ("matthews", [1, 1, 0, 0], [1, 0, 0, 0], 1 / 3**0.5),
    ("pearson", *SCORES, stats.pearsonr(*SCORES)[0]),
    ("spearman", *SCORES, stats.spearmanr(*SCORES)[0]),
    *((name, [2.5] * 6, [0, 1, 2, 3, 4, 5], math.nan) for name in ("pearson", "spearman")),
    *((name, [1.0], [2.0], math.nan) for name in ("pearson", "spearman")),
]


@pytest.mark.parametrize(("name", "predictions", "references", "value"), EXPECTED)
def test_the_value(name, predictions, references, value):
    assert glue_metric(name, predictions, references) == pytest.approx(value, nan_ok=True)


@pytest.mark.parametrize("name", METRICS)
def test_every_metric_loads_through_evaluate_without_a_network(name, monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    module = evaluate.load(glue_metrics.__file__, name, cache_dir=str(tmp_path))
    result = module.compute(predictions=[0, 1, 1, 0], references=[0, 1, 0, 0])
    assert result[name] == pytest.approx(glue_metric(name, [0, 1, 1, 0], [0, 1, 0, 0]))
