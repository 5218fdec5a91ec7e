"""What one pass over a log leaves: small, immutable facts that analysis reasons about.

Nothing here judges. ``line`` always counts ``\\n`` only and starts at 1; a piece between two carriage
returns of one line (a redrawn progress bar) is a *segment* of that line and shares its number.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class LogLine:
    """One segment of a log, cleaned.

    Attributes:
        input: display name of the log.
        line: 1-based line number.
        offset: byte offset of the segment's first byte in the (decompressed) input.
        raw: the segment as it stands in the log, decoded with replacement, cut at 4,096 characters.
        text: ``raw`` without terminal escapes and without rank, host, time and container prefixes.
        rank: global rank that a prefix names, else None.
        source: what else the prefix names (host, pod, actor), else None.
        time: seconds since the epoch (a time without zone is taken as UTC), else None.
        level: severity letter that a prefix or JSON severity names (D, I, W, E, F), else None.
    """

    input: str
    line: int
    offset: int
    raw: str
    text: str
    rank: int | None = None
    source: str | None = None
    time: float | None = None
    level: str | None = None


@dataclass(frozen=True, slots=True)
class Frame:
    """One stack frame. ``user`` is False for site-packages, the standard library, launchers and C++."""

    file: str
    line: int
    function: str
    code: str | None
    user: bool


@dataclass(frozen=True, slots=True)
class ExceptionInfo:
    """One exception of a chain.

    ``link`` says how it follows from the one before it in the chain: ``first``, ``cause`` (raise from),
    ``context`` (during handling), ``reraised`` (a worker's exception raised again in its parent) or
    ``group`` (a member of an exception group).
    """

    type: str
    message: str
    frames: tuple[Frame, ...]
    at: LogLine  # the line "Type: message"
    link: str = "first"

    @property
    def location(self) -> str | None:
        """``file:line`` of the innermost user frame."""
        for frame in reversed(self.frames):
            if frame.user:
                return f"{frame.file}:{frame.line}"
        return None


@dataclass(frozen=True, slots=True)
class Traceback:
    """One printed traceback with its whole chain, the original exception first.

    ``worker`` names a remote or child process that raised it ("DataLoader worker process 3",
    "RayTaskError", "ForkPoolWorker"), else None. ``handled`` is True where the text shows that it was only
    logged as a warning or ignored ("Exception ignored in", "Exception in thread" of a helper thread).
    """

    header: LogLine
    last_line: int
    exceptions: tuple[ExceptionInfo, ...]
    worker: str | None = None
    handled: bool = False

    @property
    def root(self) -> ExceptionInfo:
        return self.exceptions[0]

    @property
    def rank(self) -> int | None:
        return self.header.rank


@dataclass(frozen=True, slots=True)
class MetricPoint:
    """One line of metrics.

    ``values`` uses canonical names: loss, grad_norm, lr, throughput, loss_scale, memory, step_time,
    and eval_loss, eval_<name>, train_<name> for everything else. NaN and infinities are real floats.
    ``kind`` is "train", "eval" or "progress" (a bar or counter without a loss).
    """

    line: int
    offset: int
    reader: str
    kind: str
    step: int | None
    epoch: float | None
    total_steps: int | None
    total_epochs: float | None
    values: tuple[tuple[str, float], ...]
    rank: int | None = None
    time: float | None = None

    def get(self, name: str) -> float | None:
        for key, value in self.values:
            if key == name:
                return value
        return None


@dataclass(frozen=True, slots=True)
class Hit:
    """A signature matched a line."""

    signature: str
    at: LogLine
    groups: tuple[tuple[str, str], ...] = ()

    def group(self, name: str) -> str | None:
        return dict(self.groups).get(name)


@dataclass(slots=True)
class SignatureFacts:
    """All matches of one signature in one log: exact count, the first and the last few."""

    count: int = 0
    first: list[Hit] = field(default_factory=list)
    last: list[Hit] = field(default_factory=list)

    def hits(self) -> list[Hit]:
        """First and last, each once, in order."""
        seen = {(h.at.line, h.at.offset) for h in self.first}
        return self.first + [h for h in self.last if (h.at.line, h.at.offset) not in seen]


@dataclass(slots=True)
class LogFacts:
    """What one log holds.

    ``excerpts`` are runs of consecutive lines kept whole: all of a small log; head, tail and the
    surroundings of tracebacks of a large one.
    """

    name: str
    size: int = 0  # bytes
    lines: int = 0  # number of \n, plus one for an unfinished last line
    signatures: dict[str, SignatureFacts] = field(default_factory=dict)
    metrics: list[MetricPoint] = field(default_factory=list)
    metrics_seen: int = 0  # metric lines seen; more than len(metrics) where they were sampled
    tracebacks: list[Traceback] = field(default_factory=list)
    excerpts: list[list[LogLine]] = field(default_factory=list)
    first_time: float | None = None
    last_time: float | None = None
    complete: bool = True  # False: only the tail was read
    notes: list[str] = field(default_factory=list)
