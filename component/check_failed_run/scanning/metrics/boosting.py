"""Boosted trees: XGBoost, LightGBM, CatBoost. A training metric that falls is ``loss``, its twin on other data ``eval_loss``."""

from __future__ import annotations

import re

from check_failed_run.scanning.metrics.values import NUMBER, Draft, parse_number

_XGBOOST = re.compile(rf"\[(\d{{1,7}})\]\s+(?=[\w. -]{{1,60}}?-[\w@.:~-]{{1,40}}:{NUMBER})(.*)$")
_XGB_ITEM = re.compile(rf"([A-Za-z][\w. ]{{0,40}}?)-([\w@.~-]{{1,40}}?):({NUMBER})(?:\+({NUMBER}))?(?=\s|$)")
_LIGHTGBM = re.compile(r"\[(\d{1,7})\]\s+(?=.{1,60}?'s [\w@.]+: )(.*)$")
_LGB_ITEM = re.compile(rf"([A-Za-z][\w ]{{0,40}}?)'s ([\w@.]{{1,40}}): ({NUMBER})")
_CATBOOST = re.compile(rf"(\d{{1,7}}):\s+(?:(?:learn|test\d*): {NUMBER})")
_CAT_ITEM = re.compile(rf"(learn|test\d*): ({NUMBER})")
_RISES = re.compile(r"auc|ndcg|map\b|map@|acc|f1|r2|precision|recall|gini|pre@|cindex")
_TRAIN = re.compile(r"(?i)d?train(?:ing)?(?:_?set)?$|learn$|^tr$|validation_0$")


def _put(draft: Draft, dataset: str, metric: str, text: str, alone: bool) -> None:
    try:
        value = parse_number(text)
    except ValueError:
        return
    train = bool(_TRAIN.search(dataset)) and not (alone and dataset.endswith("_0"))
    name = metric.lower().replace("-", "_")
    if not _RISES.search(name):
        key = "loss" if train else "eval_loss"
        if key not in draft.values:
            draft.values[key] = value
            return
    draft.values.setdefault(("train_" if train else "eval_") + name, value)


def read_boosting(text: str) -> Draft | None:
    """One round of a booster's log."""
    draft = Draft()
    if m := _XGBOOST.match(text):
        items = [(d.strip(), k, v) for d, k, v, _ in _XGB_ITEM.findall(m[2])]
    elif m := _LIGHTGBM.match(text):
        items = [(d.strip(), k, v) for d, k, v in _LGB_ITEM.findall(m[2])]
    elif m := _CATBOOST.match(text):
        items = [(d, "loss", v) for d, v in _CAT_ITEM.findall(text)]
    else:
        return None
    if not items:
        return None
    alone = len({d for d, _, _ in items}) == 1
    for dataset, metric, value in items:
        _put(draft, dataset, metric, value, alone)
    draft.step = int(m[1])
    draft.measured = True
    return draft


SAMPLES = (
    ("[12]\ttrain-rmse:0.10213\tvalid-auc:0.90000", {"loss": 0.10213, "eval_auc": 0.9, "step": 12}),
    ("[0]\ttrain-logloss:nan\teval-logloss:-nan", {"loss": float("nan"), "eval_loss": float("nan"), "step": 0}),
    ("[3]\tvalidation_0-mlogloss:1.05\tvalidation_1-mlogloss:1.08", {"loss": 1.05, "eval_loss": 1.08}),
    ("[3]\ttest-error:0.25", {"eval_loss": 0.25}),
    ("[7]\ttrain-auc:0.95+0.01\ttest-auc:0.91+0.02", {"train_auc": 0.95, "eval_auc": 0.91}),
    ("[1]\ttrain's multi_logloss: 1.07491\tvalid's multi_logloss: 1.08644", {"loss": 1.07491, "eval_loss": 1.08644, "step": 1}),
    ("[10]\ttraining's binary_logloss: 0.3\ttraining's auc: 0.9\tvalid_1's l2: 1.2e+06", {"loss": 0.3, "train_auc": 0.9, "eval_loss": 1.2e6}),
    ("10:\tlearn: 0.3120\ttest: 0.4012\tbest: 0.4012 (10)\ttotal: 1s\tremaining: 3s", {"loss": 0.312, "eval_loss": 0.4012, "step": 10}),
    ("[12] some text-thing: none", None),
)  # fmt: skip
