"""How sure: a logistic model over a handful of features of the evidence, small enough to read.

The weights were fitted by ``benchmarks/fit_confidence.py`` on the labelled cases (L2-penalised, signs
constrained to what each feature means) and cross-validated; ``benchmarks/accuracy.py`` prints Brier score,
ECE and the reliability table.
"""

from __future__ import annotations

import math

WEIGHTS: dict[str, float] = {
    "bias": 1.41,
    "specificity_3": 1.79,
    "specificity_2": 1.42,
    "specificity_0": -1.93,
    "fatal": 0.54,
    "cascade": -0.74,
    "trend": 0.0,
    "confirmed": 0.56,
    "competing": -0.77,
    "truncated": -0.6,
    "absence": -0.74,
    "suspicion": -0.86,
    "unread": -1.5,
    "heuristic": -0.84,
}
LOWEST, HIGHEST = 0.05, 0.97


def confidence(features: dict[str, float]) -> float:
    """Probability, 0.05 to 0.97, that the primary class is right."""
    z = sum(WEIGHTS.get(name, 0.0) * value for name, value in features.items()) + WEIGHTS["bias"]
    return round(min(max(1 / (1 + math.exp(-z)), LOWEST), HIGHEST), 2)
