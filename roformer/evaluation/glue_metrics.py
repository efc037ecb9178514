"""GLUE's metrics as an `evaluate` module that needs no network.

    evaluate.load("roformer/evaluation/glue_metrics.py", "f1")

Its configurations are `accuracy`, `f1` (of class 1), `matthews`, `pearson` and `spearman`, computed by
scikit-learn and scipy, as fractions (0.9, not 90). A correlation with a constant is NaN.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from functools import partial
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
        with warnings.catch_warnings():  # about constants, where the result is NaN
            warnings.simplefilter("ignore")
            return of(references, predictions)[0]

    return correlation


METRICS: dict[str, Callable[[Values, Values], float]] = {
    "accuracy": accuracy_score,
    "f1": partial(f1_score, zero_division=0.0),
    "matthews": matthews_corrcoef,
    "pearson": _correlation(pearsonr),
    "spearman": _correlation(spearmanr),
}
"""Name → function of (references, predictions)."""


class GlueMetric(evaluate.Metric):  # type: ignore[misc]  # evaluate is not typed
    """One metric of GLUE (Wang et al. 2019, Table 1), named by `config_name`."""

    def _info(self) -> evaluate.MetricInfo:
        if self.config_name not in METRICS:
            raise ValueError(f"no metric {self.config_name!r}: choose one of {', '.join(METRICS)}")
        kind = "float64" if self.config_name in ("pearson", "spearman") else "int64"
        return evaluate.MetricInfo(
            description=f"{self.config_name} of class numbers or scores",
            citation="Wang et al. 2019, GLUE",
            inputs_description="predictions and references: class numbers, or scores",
            features=datasets.Features(
                {"predictions": datasets.Value(kind), "references": datasets.Value(kind)}
            ),
        )

    def _compute(self, predictions: Values, references: Values) -> dict[str, float]:
        return {self.config_name: float(METRICS[self.config_name](references, predictions))}


def glue_metric(name: str, predictions: Any, references: Any) -> float:
    """Return a metric of `METRICS` for predictions and references, class numbers or scores (N,)."""
    metric = GlueMetric(config_name=name, keep_in_memory=True)
    value: float = metric.compute(predictions=predictions, references=references)[name]
    return value
