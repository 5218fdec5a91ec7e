"""Lines that are a mapping: the Hugging Face Trainer's dicts, JSON lines, results printed as dicts, pretty tables."""

from __future__ import annotations

import re

from check_failed_run.scanning.metrics.values import NUMBER, Draft

_ITEM = re.compile(rf"""['"]([^'"\n]{{1,80}})['"]\s*:\s*(?:[\w.]{{1,20}}\()?\s*['"]?({NUMBER})(?=['"%]?\)?\s*[,}}\])]|,)""")
_OF = re.compile(r"""['"](global_step/max_steps|step|epoch)['"]\s*:\s*['"](\d+)\s*/\s*(\d+)['"]""")
_PHASE = re.compile(r"""['"](?:event|split|phase|mode|stage|type|tag|kind|name)['"]\s*:\s*['"](?:eval|val|valid|test|dev)\w{0,8}['"]""")
_CONFIG = re.compile(r"(?i)(?:param\w*|config\w*|args|arguments|settings?|hparams|options|kwargs)\W{0,4}$")
_TABLE = re.compile(rf"\s{{1,8}}(?:(eval|train|predict|test)_)?([\w@/.-]{{1,60}})\s+=\s+({NUMBER})(%?)$")


def read_mapping(text: str) -> Draft | None:
    """``{'loss': 0.3, 'epoch': 1.0}`` with plain or quoted numbers, JSON, and the same after a few words."""
    start = text.find("{")
    if start < 0:
        return None
    if start and _CONFIG.search(text, max(0, start - 40), start):
        return None
    body = text[start:]
    draft = Draft("eval" if ("val" in body or "test" in body) and _PHASE.search(body) else "train")
    items = _ITEM.findall(body)
    if not items:
        return None
    summary = False
    for name, value in items:
        if name in ("train_runtime", "train_samples_per_second"):
            summary = True  # the Trainer's last line: means over the whole run
        draft.add(name, value)
    if '/' in body and (m := _OF.search(body)):
        if m[1] == "epoch":
            draft.epoch, draft.total_epochs = float(m[2]), float(m[3])
        else:
            draft.step, draft.total_steps = int(m[2]), int(m[3])
    if summary and "loss" in draft.values:
        draft.values["train_loss_mean"] = draft.values.pop("loss")
    draft.finish()
    if not draft.measured and not (draft.step is not None and "throughput" in draft.values):
        return None
    if draft.phase == "train" and "loss" in draft.values and start and re.search(r"\b(?:eval|valid|validation|test)\w*\b\W{0,10}$", text[:start], re.I):
        draft.values["eval_loss"] = draft.values.pop("loss")
    return draft


class PrettyTable:
    """transformers ``log_metrics``: one ``  eval_loss  =  0.26`` a line below ``***** eval metrics *****``."""

    def __init__(self) -> None:
        self.phase = ""
        self.epoch: float | None = None

    def read(self, text: str) -> Draft | None:
        if text.startswith("*****") and text.endswith("metrics *****"):
            self.phase = "eval" if "train" not in text else "train"
            self.epoch = None
            return None
        m = _TABLE.match(text)
        if not m:
            self.phase = self.phase if text.startswith("  ") else ""
            return None
        if m[2] == "epoch" and self.phase:
            self.epoch = float(m[3].replace(",", ""))
            return None
        phase = "train" if m[1] == "train" else "eval" if m[1] else ""
        if not phase or m[2].endswith(("samples", "runtime", "flos", "per_second")):
            return None
        draft = Draft(phase)
        draft.add(m[2], m[3])
        draft.finish()
        if not draft.measured:
            return None
        if phase == "train" and "loss" in draft.values:
            draft.values["train_loss_mean"] = draft.values.pop("loss")
        draft.epoch = self.epoch
        return draft


SAMPLES = (
    ("{'loss': 0.8213, 'grad_norm': 1.25, 'learning_rate': 2e-05, 'epoch': 0.5}", {"loss": 0.8213, "grad_norm": 1.25, "lr": 2e-05, "epoch": 0.5, "kind": "train"}),
    ("{'loss': '0.9361', 'grad_norm': 'nan', 'learning_rate': '0.00135', 'epoch': '1'}", {"loss": 0.9361, "grad_norm": float("nan"), "lr": 0.00135, "epoch": 1}),
    ("{'loss': nan, 'grad_norm': nan, 'learning_rate': 0.0, 'epoch': 0.1}", {"loss": float("nan"), "grad_norm": float("nan")}),
    ("{'loss': tensor(0.25, device='cuda:0'), 'step': 3}", {"loss": 0.25, "step": 3}),
    ("{'eval_loss': 4.86, 'eval_accuracy': 0.07, 'eval_runtime': 14.88, 'epoch': 0.12}", {"eval_loss": 4.86, "eval_accuracy": 0.07, "kind": "eval"}),
    ("{'train_runtime': 10.0, 'train_samples_per_second': 3.0, 'train_loss': 0.5, 'epoch': 3.0}", {"train_loss_mean": 0.5, "throughput": 3.0}),
    (
        "{'loss': 1.69, 'learning_rate': 9.97e-05, 'memory(GiB)': 61.4, 'train_speed(s/it)': 36.15, 'global_step/max_steps': '5/1881', 'percentage': '0.27%'}",
        {"loss": 1.69, "step": 5, "total_steps": 1881, "memory": 61.4, "step_time": 36.15},
    ),
    ("{'loss': 0.0, 'grad_norm': 0.47, 'rewards/json': 0.9, 'reward': 1.2, 'kl': 0.0004}", {"loss": 0.0, "train_rewards/json": 0.9, "train_reward": 1.2, "train_kl": 0.0004}),
    ('{"ts": "2026-06-06T06:06:18Z", "level": "info", "event": "train", "step": 40, "loss": NaN, "lr": 0.006, "tok_s": 88119}', {"loss": float("nan"), "step": 40, "throughput": 88119}),
    ('{"event": "eval", "step": 40, "loss": 2.5}', {"eval_loss": 2.5, "step": 40, "kind": "eval"}),
    ('{"train/loss": 2.5, "train/global_step": 12, "_step": 3}', {"loss": 2.5}),
    ('train_inner | {"epoch": 1, "update": 0.045, "loss": "13.453", "num_updates": "20", "lr": "5e-07", "gnorm": "3.1", "loss_scale": "128"}',
     {"loss": 13.453, "step": 20, "grad_norm": 3.1, "loss_scale": 128, "epoch": 1}),
    ("result: {'epoch': 7, 'train_loss': 0.3, 'val_acc': 0.9}", {"loss": 0.3, "eval_acc": 0.9, "epoch": 7}),
    ('{"event": "hour", "hour": 3, "rows": 12, "train_mse": 3.62, "holdout_mse": 3.8}', {"train_mse": 3.62, "eval_mse": 3.8, "step": None}),
    ("{'learning_rate': 3e-05, 'batch_size': 8, 'epochs': 3, 'warmup_steps': 10}", None),
    ("xgboost 3.2.0 params={'eval_metric': 'mae', 'eta': 0.9, 'base_score': 0.5, 'step': 3, 'loss': 1}", None),
    ("  eval_loss               =     0.2601", {"eval_loss": 0.2601, "kind": "eval"}),
    ("  per_device_train_batch_size = 8", None),
)  # fmt: skip
