"""Fit the confidence model: L2-penalised logistic regression with the sign of each weight fixed by what it means.

    python -m benchmarks.fit_confidence [--cases tests/cases ...]

Prints the weights for ``analysis/confidence.py`` and the cross-validated Brier score and calibration error. Targets
are smoothed (a right answer counts as 0.97): nearly all labelled cases are answered rightly, and a model that took
that at its word would be surer than it may be on runs it has never seen.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
from pathlib import Path

from benchmarks.accuracy import ROOT, bins, judge
from check_failed_run.analysis import analyse
from check_failed_run.analysis.confidence import HIGHEST, LOWEST
from check_failed_run.api import diagnose, read, scan
from check_failed_run.catalogue import signatures
from check_failed_run.scanning.matcher import Matcher

SIGNS = {
    "specificity_3": 1, "specificity_2": 1, "specificity_0": -1, "fatal": 1, "cascade": -1, "trend": -1, "confirmed": 1, "competing": -1, "truncated": -1, "absence": -1, "suspicion": -1, "unread": -1, "heuristic": -1,
}  # fmt: skip
RIGHT, WRONG = 0.97, 0.05
PENALTY = 0.02
FOLDS = 10

Sample = tuple[dict[str, float], bool]


def samples(folders: list[Path]) -> list[Sample]:
    """(features, right) of every case."""
    matcher = Matcher(signatures())
    found = []
    for file in sorted(p for folder in folders for p in folder.rglob("case.json")):
        case = json.loads(file.read_text())
        inputs = [str(file.parent / name) for name in case.get("inputs", ["train.log"])]
        record = read(inputs)
        features = analyse(scan(record, matcher=matcher), record).features
        found.append((features, judge(case, diagnose(read(inputs), run_id="case", matcher=matcher)).top1))
    return found


def fit(data: list[Sample], steps: int = 4000, rate: float = 0.5) -> dict[str, float]:
    """Weights by gradient descent; a weight of the wrong sign is set to zero."""
    weights = {"bias": 1.0, **{name: 0.0 for name in SIGNS}}
    for _ in range(steps):
        gradient = dict.fromkeys(weights, 0.0)
        for features, right in data:
            error = predict(weights, features) - (RIGHT if right else WRONG)
            gradient["bias"] += error
            for name, value in features.items():
                if value:
                    gradient[name] += error * value
        for name in weights:
            slope = gradient[name] / len(data) + (PENALTY * (weights[name] - PRIOR.get(name, 0.0)))
            weights[name] -= rate * slope
            if name in SIGNS and weights[name] * SIGNS[name] < 0:
                weights[name] = 0.0
    return weights


PRIOR = {"bias": 0.8, "specificity_3": 2.0, "specificity_2": 1.2, "specificity_0": -2.0, "fatal": 0.4, "cascade": -0.8, "trend": -0.2, "confirmed": 0.6, "competing": -0.9, "truncated": -0.6, "absence": -0.9, "suspicion": -1.0, "unread": -1.5, "heuristic": -0.9}
"""What the weights are pulled to where the cases say nothing."""


def predict(weights: dict[str, float], features: dict[str, float]) -> float:
    z = weights["bias"] + sum(weights.get(name, 0.0) * value for name, value in features.items())
    return 1 / (1 + math.exp(-z))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=Path, nargs="*", default=[ROOT / "tests" / "cases" / "logs", ROOT / "tests" / "cases" / "fresh"])
    data = samples(parser.parse_args().cases)
    order = list(range(len(data)))
    random.Random(3).shuffle(order)
    pairs = []
    for fold in range(FOLDS):
        held = set(order[fold::FOLDS])
        weights = fit([data[i] for i in order if i not in held], steps=1500)
        pairs += [(min(max(predict(weights, data[i][0]), LOWEST), HIGHEST), float(data[i][1])) for i in sorted(held)]
    brier = sum((c - y) ** 2 for c, y in pairs) / len(pairs)
    ece = sum(abs(sum(c for c, _ in b) - sum(y for _, y in b)) for b in bins(pairs).values()) / len(pairs)
    print(f"{len(data)} cases, {sum(not right for _, right in data)} wrong; cross-validated: Brier {brier:.4f}, ECE {ece:.4f}")
    print(json.dumps({name: round(value, 2) for name, value in fit(data).items()}, indent=4))
    return 0


if __name__ == "__main__":
    sys.exit(main())
