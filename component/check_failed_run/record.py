"""RunRecord: what sources found out about one run. Sources fill it, analysis reads it, nothing judges here."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol


class ByteStream(Protocol):
    """A binary stream read once, front to back (``readinto`` semantics of ``io.RawIOBase``)."""

    def readinto(self, buffer: Any, /) -> int | None: ...
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class SkippedInput:
    """Something that could not be read, with the reason. It lowers the claim, it does not end the run."""

    input: str
    reason: str


@dataclass(frozen=True, slots=True)
class MissingEvidence:
    """The smallest artifact that would raise the confidence, and the command that gets it."""

    what: str
    why: str
    how: str


@dataclass(slots=True)
class LogSource:
    """One log of the run.

    Attributes:
        name: display name, used in every quote.
        open: opens the (decompressed) bytes; may be called once for streams.
        size: bytes, or None when not known beforehand.
        rank: global rank of the process that wrote it, where the name or the source says so.
        attempt: 1-based attempt, where the source knows it (a worker restart, a retried task).
        task: pipeline task it belongs to, or None.
        seekable: whether ``open`` may be called again.
    """

    name: str
    open: Any  # Callable[[], ByteStream]
    size: int | None = None
    rank: int | None = None
    attempt: int | None = None
    task: str | None = None
    seekable: bool = True


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A training configuration found beside the logs: flat dotted keys to plain values."""

    name: str
    values: tuple[tuple[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint on disk, judged without unpickling. ``state`` is complete, partial or corrupt."""

    path: str
    format: str
    state: str
    step: int | None = None
    time: float | None = None
    reason: str | None = None
    bytes: int | None = None


@dataclass(slots=True)
class TaskRecord:
    """One task of a pipeline.

    ``state`` is PENDING, RUNNING, SUCCEEDED, FAILED, CANCELLED, SKIPPED (cache hit) or NOT_TRIGGERED.
    ``times`` are seconds since the epoch.
    """

    id: str
    name: str
    state: str
    parent: str | None = None
    is_group: bool = False
    is_exit_task: bool = False
    depends_on: tuple[str, ...] = ()  # ids of siblings
    start: float | None = None
    end: float | None = None
    error_code: int | None = None
    error_message: str | None = None
    attempts: int = 1
    jobs: tuple[str, ...] = ()  # resource names of the jobs behind it, oldest first
    exit_code: int | None = None
    cached: bool = False
    image: str | None = None
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class PipelineRecord:
    """A pipeline run and its tasks."""

    name: str
    state: str
    error_code: int | None = None
    error_message: str | None = None
    tasks: list[TaskRecord] = field(default_factory=list)
    start: float | None = None
    end: float | None = None
    labels: dict[str, str] = field(default_factory=dict)
    service_account: str | None = None
    pipeline_root: str | None = None
    platform: str = "vertex"  # vertex, kfp, local
    details: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class RunRecord:
    """Everything that is known about one run before anyone judges it."""

    targets: list[str] = field(default_factory=list)  # what the user named
    logs: list[LogSource] = field(default_factory=list)
    configs: list[ConfigFile] = field(default_factory=list)
    companions: list[LogSource] = field(default_factory=list)  # dmesg, nvidia-smi, ls, kubectl output
    checkpoints: list[Checkpoint] = field(default_factory=list)
    pipeline: PipelineRecord | None = None
    command: str | None = None  # the launch command, where a source knows it
    restart_command: str | None = None
    exit_code: int | None = None
    failed: bool | None = None  # what the platform says of the run; None: it says nothing
    framework: str | None = None
    task: str | None = None  # classification, regression, language-modeling
    environment: dict[str, Any] = field(default_factory=dict)
    skipped: list[SkippedInput] = field(default_factory=list)
    missing: list[MissingEvidence] = field(default_factory=list)
    now: float | None = None  # the moment of looking, where one is given
