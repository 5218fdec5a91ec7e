"""Diagnosis: what analysis concludes and planning, reports and publishing read. Frozen judgement, no formatting."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from check_failed_run.scanning.facts import ExceptionInfo, LogLine, MetricPoint


@dataclass(slots=True)
class Evidence:
    """One quoted line. ``why`` is the signature id or "metrics", "progress", "config", "exit"."""

    at: LogLine
    why: str


@dataclass(slots=True)
class Cause:
    """A possible cause.

    ``signature`` is a catalogue id, or ``trend/<name>`` for a cause seen in metrics, ``exception/<Type>``
    for an exception that no signature knows, ``pipeline/<name>`` for a task-level one.
    ``values`` holds the named groups of the match and everything else a fix template may use.
    """

    cls: str
    signature: str
    kind: str
    at: LogLine | None
    exception: ExceptionInfo | None = None
    specificity: int = 2
    role: str = "cause"
    step: int | None = None
    epoch: float | None = None
    rank: int | None = None
    attempt: int = 1
    location: str | None = None
    phase: str | None = None  # forward, backward, optimizer, evaluation, checkpoint-save, checkpoint-load, data-loading, start-up
    status: str | None = None
    summary: str = ""  # one sentence: what happened
    explanation: str = ""  # one sentence: why, as far as the evidence goes
    not_shown: str = ""
    evidence: list[Evidence] = field(default_factory=list)
    values: dict[str, Any] = field(default_factory=dict)
    confidence: float = 0.0


@dataclass(slots=True)
class Diagnosis:
    """The verdict on one run."""

    status: str  # crashed, hung, degraded, diverged, recovered, healthy, running, unknown
    framework: str
    primary: Cause | None  # None: no failure found, or not decided
    decided: bool  # False: primary_cause is "unknown"
    confidence: float
    proximate: str = ""
    root_cause: str = ""
    secondary: list[Cause] = field(default_factory=list)
    contributing: list[str] = field(default_factory=list)
    evidence: list[Evidence] = field(default_factory=list)
    ruled_out: list[tuple[str, str]] = field(default_factory=list)
    last_progress: MetricPoint | None = None
    series: dict[str, list[MetricPoint]] = field(default_factory=dict)
    went_wrong_at: dict[str, int] = field(default_factory=dict)
    attempts: list[dict[str, Any]] = field(default_factory=list)
    ranks: list[dict[str, Any]] = field(default_factory=list)
    environment: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)  # flat: learning_rate, batch_size, precision, ...
    values: dict[str, Any] = field(default_factory=dict)  # for fix templates: command, checkpoint, world_size, ...
    missing: list[tuple[str, str, str]] = field(default_factory=list)
    signals: list[dict[str, Any]] = field(default_factory=list)
    features: dict[str, float] = field(default_factory=dict)  # what the confidence was computed from
