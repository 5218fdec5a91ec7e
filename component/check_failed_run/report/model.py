"""The report: one object, written as check-failed-run.json and rendered in every other format.

Plain dataclasses, so that the local command starts without pydantic; ``report/schema.py`` builds the
pydantic model and the JSON Schema from these very classes. Keys may be added within schema major
version 1, never renamed or retyped. ``class_`` is written as ``class``.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

SCHEMA_VERSION = "1.0"
SKILL_NAME = "check-failed-run"

Risk = Literal["safe", "needs-approval", "dangerous"]
Level = Literal["high", "medium", "low"]


def json_name(name: str) -> str:
    """The JSON key of a field (``class_`` is ``class``)."""
    return name.rstrip("_")


class _Part:
    __pydantic_config__: ClassVar[dict] = {"alias_generator": json_name, "extra": "forbid"}


@dataclass(slots=True)
class Finding(_Part):
    id: str  # F001...
    severity: Literal["blocker", "high", "medium", "low"]
    title: str
    description: str
    fix: str


@dataclass(slots=True)
class FixStep(_Part):
    action: str
    risk: Risk
    expected_impact: str
    validate: str
    time_to_try: str
    command: str | None
    confidence: float


@dataclass(slots=True)
class FailurePoint(_Part):
    input: str
    line: int
    text: str
    step: int | None = None
    epoch: float | None = None
    timestamp: str | None = None
    rank: int | None = None
    location: str | None = None
    exception: str | None = None


@dataclass(slots=True)
class SecondaryCause(_Part):
    class_: str
    confidence: float
    evidence: str


@dataclass(slots=True)
class RuledOut(_Part):
    class_: str
    reason: str


@dataclass(slots=True)
class Progress(_Part):
    step: int | None = None
    epoch: float | None = None
    total_steps: int | None = None
    timestamp: str | None = None
    line: int | None = None


@dataclass(slots=True)
class Series(_Part):
    """One metric. ``points`` is at most 400 pairs [step or index, value]; NaN and Inf are the strings
    "NaN", "Infinity", "-Infinity", since JSON has no such numbers. ``went_wrong_at`` is a step."""

    first: float | str | None
    last: float | str | None
    min: float | str | None
    max: float | str | None
    went_wrong_at: int | None
    count: int
    points: list[tuple[float, float | str]] = field(default_factory=list)


@dataclass(slots=True)
class CheckpointSummary(_Part):
    newest_complete: str | None = None
    newest: str | None = None
    partial: list[str] = field(default_factory=list)
    corrupt: list[str] = field(default_factory=list)
    steps_lost: int | None = None


@dataclass(slots=True)
class Attempt(_Part):
    number: int
    first_line: int
    last_line: int
    outcome: str
    input: str | None = None


@dataclass(slots=True)
class RankState(_Part):
    rank: int
    role: Literal["failed-first", "followed", "unaffected", "silent"]
    line: int | None = None
    input: str | None = None
    timestamp: str | None = None
    what: str | None = None


@dataclass(slots=True)
class Missing(_Part):
    what: str
    why: str
    how: str


@dataclass(slots=True)
class Skipped(_Part):
    input: str
    reason: str


@dataclass(slots=True)
class Signal(_Part):
    signature: str
    class_: str
    role: str
    input: str
    line: int
    count: int


@dataclass(slots=True)
class FailedTask(_Part):
    name: str
    state: str
    error: str | None = None
    exit_code: int | None = None
    attempts: int = 1
    log: str | None = None  # where its log is: an input of the report or a console link
    primary_cause: str | None = None
    confidence: float | None = None
    root_cause: str | None = None
    evidence: list[str] = field(default_factory=list)
    count: int = 1  # loop iterations that failed alike


@dataclass(slots=True)
class GraphTask(_Part):
    """One node of the pipeline's DAG. ``depends_on`` and ``parent`` (the group that it is in) are ids of other nodes."""

    id: str
    name: str
    state: str  # PENDING, RUNNING, SUCCEEDED, FAILED, CANCELLED, SKIPPED or NOT_TRIGGERED
    parent: str | None = None
    depends_on: list[str] = field(default_factory=list)
    is_group: bool = False
    is_exit_task: bool = False
    cached: bool = False
    failed_first: bool = False
    seconds: float | None = None  # how long it ran


@dataclass(slots=True)
class Pipeline(_Part):
    name: str
    state: str
    error: str | None
    tasks: dict[str, int]  # counts by state
    failed_tasks: list[str]
    not_triggered_tasks: list[str]
    first_failed_task: str | None
    last_succeeded_task: str | None
    failures: list[FailedTask] = field(default_factory=list)
    platform: str = "vertex"
    console: str | None = None
    tree: list[dict[str, Any]] = field(default_factory=list)  # {name, state, depth, parent, depends_on, error}
    graph: list[GraphTask] = field(default_factory=list)


@dataclass(slots=True)
class Context(_Part):
    """The log around a line of ``evidence``. ``text`` holds one line each as ``number: raw``, cut at 300 characters."""

    input: str
    line: int
    text: str


@dataclass(slots=True)
class Report(_Part):
    run_id: str
    timestamp: str
    duration_seconds: float
    decision: Literal["GO", "NO-GO"]
    confidence: Level
    summary: str
    findings: list[Finding]
    next_commands: list[str]
    run_status: Literal["crashed", "hung", "degraded", "diverged", "recovered", "healthy", "running", "unknown"]
    framework: str
    primary_cause: str
    primary_cause_confidence: float
    contributing_factors: list[str]
    evidence: list[str]
    root_cause: str
    fixes: list[FixStep]
    failure_point: FailurePoint | None = None
    proximate_cause: str = ""
    secondary_causes: list[SecondaryCause] = field(default_factory=list)
    ruled_out: list[RuledOut] = field(default_factory=list)
    last_progress: Progress | None = None
    metrics: dict[str, Series] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    checkpoints: CheckpointSummary | None = None
    attempts: list[Attempt] = field(default_factory=list)
    ranks: list[RankState] = field(default_factory=list)
    retry: Literal["retry", "retry-elsewhere", "change-first", "stop"] = "stop"
    fingerprint: str = ""
    missing: list[Missing] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    signals: list[Signal] = field(default_factory=list)
    truncated: str | None = None
    pipeline: Pipeline | None = None
    context: list[Context] = field(default_factory=list)
    schema_version: str = SCHEMA_VERSION
    skill_name: str = SKILL_NAME

    def to_dict(self) -> dict[str, Any]:
        """The JSON object, base keys first."""
        plain = _plain(self)
        base = ("schema_version", "skill_name")
        return {key: plain[key] for key in base} | {k: v for k, v in plain.items() if k not in base and not (k == "pipeline" and v is None)}


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return {json_name(f.name): _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value
