"""Settings of the run, read from configuration files, from what the log prints, and from the command line.

Values are facts with a place, never failures: a printed configuration is no error whatever words it holds.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from typing import Any

from check_failed_run.record import RunRecord
from check_failed_run.scanning.facts import LogFacts, LogLine
from check_failed_run.sources.log_files import scalar

NAMES: dict[str, tuple[str, ...]] = {
    "learning_rate": ("learning_rate", "learning-rate", "lr", "base_lr", "max_lr", "peak_lr", "init_lr", "lr_max", "optimizer.lr", "optim.lr", "optimizer.params.lr", "eta"),
    "batch_size": ("per_device_train_batch_size", "train_batch_size_per_gpu", "train_micro_batch_size_per_gpu", "micro_batch_size", "micro-batch-size", "batch_size", "batch-size", "train_batch_size", "bs", "samples_per_gpu", "dataset.batch_size", "per_device_batch_size"),
    "eval_batch_size": ("per_device_eval_batch_size", "eval_batch_size", "val_batch_size", "valid_batch_size"),
    "grad_clip": ("max_grad_norm", "grad_clip", "gradient_clip_val", "clip_grad", "clip-grad", "gradient_clipping", "clip_norm", "clip-norm", "gradient_clipping_threshold", "clip"),
    "accumulation": ("gradient_accumulation_steps", "grad_accum", "accumulate_grad_batches", "gradient_accumulation", "update_freq", "grad_acc"),
    "precision": ("precision", "mixed_precision", "dtype", "torch_dtype", "amp_dtype", "compute_dtype"),
    "fp16": ("fp16", "fp16.enabled"),
    "bf16": ("bf16", "bf16.enabled"),
    "warmup": ("warmup_steps", "warmup_ratio", "warmup", "lr_warmup_steps", "warmup_iters", "lr-warmup-iters", "warmup_updates", "warmup-updates", "warmup_epochs", "num_warmup_steps"),
    "optimizer": ("optim", "optimizer", "optimizer_type", "opt", "optimizer.type", "optimizer.name"),
    "weight_decay": ("weight_decay", "weight-decay"),
    "zero_stage": ("zero_optimization.stage", "zero_stage", "stage"),
    "num_workers": ("num_workers", "dataloader_num_workers", "workers"),
    "max_steps": ("max_steps", "train_steps", "max_iters", "train-iters", "total_steps", "max_update", "num_steps"),
    "epochs": ("num_train_epochs", "max_epochs", "epochs", "num_epochs"),
    "num_labels": ("num_labels", "num_classes", "n_classes", "num_class", "classes"),
    "vocab_size": ("vocab_size", "vocab-size", "padded_vocab_size"),
    "max_length": ("max_length", "max_seq_length", "max_seq_len", "seq_len", "seq-length", "block_size", "sequence_len", "cutoff_len"),
    "gradient_checkpointing": ("gradient_checkpointing", "activation_checkpointing"),
    "world_size": ("world_size", "world size", "num_processes", "nproc_per_node", "WORLD_SIZE"),
    "output_dir": ("output_dir", "out_dir", "save_dir", "output-dir", "ckpt_dir", "checkpoint_dir", "save"),
    "schedule": ("lr_scheduler_type", "lr_scheduler", "schedule", "lr-decay-style"),
    "save_total_limit": ("save_total_limit",),
    "logging_steps": ("logging_steps", "logging-steps", "log_interval", "log-interval", "log_every_n_steps", "log_every", "steps_per_print"),
    "logging_nan_inf_filter": ("logging_nan_inf_filter",),
}
_CANONICAL = {name: key for key, names in NAMES.items() for name in names}
_RANK = {name: i for names in NAMES.values() for i, name in enumerate(names)}
_NUMERIC = {"learning_rate", "batch_size", "eval_batch_size", "grad_clip", "accumulation", "warmup", "weight_decay", "zero_stage", "num_workers", "max_steps", "epochs", "num_labels", "vocab_size", "max_length", "world_size", "save_total_limit", "logging_steps"}
_ALTERNATIVES = "|".join(re.escape(n) for n in sorted(_CANONICAL, key=len, reverse=True))
_PRINTED = re.compile(rf"(?<![\w./-])(?:--)?['\"]?({_ALTERNATIVES})['\"]?(?: {{0,20}}[:=] {{0,20}}| \.{{2,60}} ?|(?<=--)\s|\s(?=[\d.]))['\"]?([\w.+/-]{{1,80}})")
_FLAG = re.compile(rf"--({_ALTERNATIVES})[ =]['\"]?([\w.+/-]{{1,80}})")
MAX_LINES = 600  # lines from the front of each log that may hold settings


def read_settings(facts: Iterable[LogFacts], record: RunRecord, command: str | None) -> tuple[dict[str, Any], dict[str, LogLine]]:
    """Canonical settings: configuration files first, then what logs print, then the command line (the last word).

    The second dict holds the line that printed a setting, where a log did.
    """
    found: dict[str, Any] = {}
    rank: dict[str, int] = {}
    lines: dict[str, LogLine] = {}

    def put(name: str, value: Any, weight: int, line: LogLine | None = None) -> None:
        key = _CANONICAL.get(name)
        if key is None:
            return
        if isinstance(value, str):
            value = scalar(value.rstrip(".,)]}"))
        if key in _NUMERIC and (isinstance(value, bool) or not isinstance(value, int | float)):
            return
        order = weight * 100 - _RANK[name]
        if key not in found or order > rank[key]:
            found[key], rank[key] = value, order
            if line is not None:
                lines[key] = line
            else:
                lines.pop(key, None)

    for config in record.configs:
        for name, value in config.values:
            short = name.split(".")[-1]
            put(name if name in _CANONICAL else short, value, 2)
    for log in facts:
        for line in head_lines(log, MAX_LINES):
            text = line.text
            if len(text) < 4000 and ("=" in text or ":" in text or "--" in text or ".." in text):
                for match in _PRINTED.finditer(text):
                    put(match[1], match[2], 1, line)
    if command:
        for match in _FLAG.finditer(command):
            put(match[1], match[2], 3)
        for piece in _split(command):
            if "=" in piece and not piece.startswith("-"):
                name, _, value = piece.partition("=")
                put(name.lstrip("+~"), value, 3)
    for key in ("fp16", "bf16"):
        if found.get(key) is True and key in lines:
            lines["precision"] = lines[key]
    _precision(found, command or "")
    return found, {k: v for k, v in lines.items() if k in found}


def _split(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:
        return command.split()


def _precision(found: dict[str, Any], command: str) -> None:
    """Fold fp16/bf16 switches into ``precision``: fp16, bf16, fp32."""
    value = str(found.get("precision") or "").lower()
    if found.get("bf16") is True or value.startswith("bf16") or value in ("bfloat16", "torch.bfloat16"):
        found["precision"] = "bf16"
    elif found.get("fp16") is True or value.startswith(("fp16", "16")) or value in ("float16", "half", "torch.float16") or re.search(r"--(?:fp16|half)\b(?![ =](?:false|0))", command):
        found["precision"] = "fp16"
    elif value.startswith(("32", "fp32", "float32")):
        found["precision"] = "fp32"
    elif "precision" in found and value not in ("bf16", "fp16", "fp32"):
        del found["precision"]
    for key in ("fp16", "bf16"):
        found.pop(key, None)


def head_lines(log: LogFacts, count: int) -> list[LogLine]:
    """The first ``count`` segments that were kept of a log."""
    lines: list[LogLine] = []
    for excerpt in log.excerpts:
        lines += excerpt[: count - len(lines)]
        if len(lines) >= count:
            break
    return lines
