"""GLUE's metrics as an `evaluate` module that needs no network.

    evaluate.load("roformer/evaluation/glue_metrics.py", "f1")

The five configurations: `accuracy`, `f1` (of class 1), `matthews`, `pearson`, `spearman`. The numbers
are scikit-learn's and scipy's, as fractions (0.9, not 90). A correlation with constant predictions
does not exist: it is NaN and stays NaN.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import datasets
import evaluate
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

Values = Sequence[float]


def _correlation(of: Callable[[Values, Values], Any]) -> Callable[[Values, Values], float]:
    def correlation(references: Values, predictions: Values) -> float:
        if len(references) < 2:
            return math.nan
        with warnings.catch_warnings():  # that a constant has none: the NaN tells
            warnings.simplefilter("ignore")
            return float(of(references, predictions)[0])

    return correlation


def _f1(references: Values, predictions: Values) -> float:
    # Nothing predicted and nothing there: 0 by convention, as scikit-learn's.
    return float(f1_score(references, predictions, pos_label=1, zero_division=0.0))


METRICS: dict[str, Callable[[Values, Values], float]] = {
    "accuracy": lambda references, predictions: float(accuracy_score(references, predictions)),
    "f1": _f1,
    "matthews": lambda references, predictions: float(matthews_corrcoef(references, predictions)),
    "pearson": _correlation(pearsonr),
    "spearman": _correlation(spearmanr),
}
"""Name → function of (references, predictions)."""
OF_SCORES = ("pearson", "spearman")


class GlueMetric(evaluate.Metric):  # type: ignore[misc]  # evaluate is not typed
    """One metric of GLUE (Wang et al. 2019, Table 1), named by `config_name`."""

    def _info(self) -> evaluate.MetricInfo:
        if self.config_name not in METRICS:
            raise ValueError(f"no metric {self.config_name!r}: choose one of {', '.join(METRICS)}")
        kind = "float64" if self.config_name in OF_SCORES else "int64"
        return evaluate.MetricInfo(
            description=f"{self.config_name} of class numbers or scores",
            citation="Wang et al. 2019, GLUE",
            inputs_description="predictions and references: class numbers, or scores",
            features=datasets.Features(
                {"predictions": datasets.Value(kind), "references": datasets.Value(kind)}
            ),
        )

    def _compute(self, predictions: Values, references: Values) -> dict[str, float]:
        return {self.config_name: METRICS[self.config_name](references, predictions)}


def glue_metric(name: str, predictions: Any, references: Any) -> float:
    """Return one metric.

    Args:
        name: one of `METRICS`.
        predictions: class numbers or scores, (N,).
        references: the same, (N,).

    Raises:
        ValueError: no such metric, or lengths that differ.
    """
    metric = GlueMetric(config_name=name, keep_in_memory=True)
    value: float = metric.compute(predictions=predictions, references=references)[name]
    return value
