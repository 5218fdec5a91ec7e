"""What the catalogue is made of: failure classes, roles, signatures, fixes.

A signature is data. It holds no control flow, and nothing outside ``catalogue/`` holds failure text.
To teach the tool a new failure, add one :class:`Signature` to the module of its class; unit tests,
``explain``, the reference pages and the JSON catalogue all come from that object.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from functools import cached_property

CLASSES: tuple[str, ...] = (
    "nan-inf",
    "oom",
    "optimization-divergence",
    "cuda-runtime",
    "nccl-distributed",
    "data-pipeline",
    "config-error",
    "io-checkpoint",
    "stalled",
    "process-crash",
    "evaluation-mismatch",
    "pipeline-orchestration",
    "cloud-permissions-quota",
)
"""The 13 failure classes, in the order in which reports list them."""

NO_FAILURE = "none"
UNKNOWN = "unknown"


class Role(enum.StrEnum):
    """What a matched line may be used for."""

    CAUSE = "cause"  # can be the root
    CASCADE = "cascade"  # follows from something else; primary only when no cause was found anywhere
    CONFIRMATION = "confirmation"  # strengthens a cause or cascade of its class (a kernel's OOM record)
    CONTEXT = "context"  # a fact that explains or contributes, never the failure (a skipped step)
    ADVICE = "advice"  # text that only suggests; never evidence
    HARMLESS = "harmless"  # looks bad and is not: silences every other match on the same line
    MARKER = "marker"  # structure: start, end, checkpoint saved, resumed; see Signature.marks


class Mark(enum.StrEnum):
    """Structure that a ``marker`` signature shows."""

    START = "start"  # a program or launcher (re)starts: begins a new attempt
    END_OK = "end-ok"  # the run says that it reached its end
    EARLY_STOP = "early-stop"  # stopped on purpose, as configured
    INTERRUPTED = "interrupted"  # stopped by its user (Ctrl-C)
    CHECKPOINT_SAVED = "checkpoint-saved"  # group ``path``
    CHECKPOINT_LOADED = "checkpoint-loaded"  # group ``path``
    RESUMED = "resumed"  # training goes on from a saved state
    RECOVERED = "recovered"  # the program says that it dealt with the fault before
    EXIT_CODE = "exit-code"  # group ``code``
    COMMAND = "command"  # group ``command``: the launch command


class Change(enum.StrEnum):
    """What a fix touches; the policy table in ``planning/policy.py`` turns it into a risk."""

    DIAGNOSE = "diagnose"  # read-only look
    FETCH = "fetch"  # get a log, a metric, a file
    USE_CHECKPOINT = "use-checkpoint"  # point at an existing valid checkpoint
    RESTART = "restart"  # same command, unchanged
    HYPERPARAMETER = "hyperparameter"
    CONFIG = "config"  # any other flag, key, path
    CODE = "code"
    DATA = "data"
    ENVIRONMENT = "environment"  # packages, drivers, variables, images
    RESOURCES = "resources"  # machine type, memory, disk, quota, node
    PERMISSION = "permission"
    PIPELINE = "pipeline"  # specs, schedules
    CANCEL = "cancel"
    KILL = "kill"
    ROLLBACK = "rollback"  # throws away progress
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Fix:
    """One thing to do about a signature or class.

    ``action``, ``impact``, ``validate`` and ``command`` are templates: ``{name}`` is filled from the
    signature's named groups and from the run's own values (batch_size, learning_rate, rank, checkpoint,
    path, command, ...); a part in double square brackets is dropped when a value inside it is not known:
    ``"Lower the batch size[[ from {batch_size} to {batch_size_half}]]"``.
    """

    action: str
    change: Change
    impact: str  # expected impact, in words
    validate: str  # what success looks like within the next 50 to 200 steps
    time_to_try: str = "10 min"
    gain: float = 0.7  # 0..1: how much of the problem it removes when it applies
    confidence: float = 0.7  # 0..1: how likely it applies, given the signature
    command: str | None = None  # exact shell command template, or None
    only: tuple[str, str] | None = None  # (setting, value): offered only where the run's setting is known to be that


@dataclass(frozen=True, slots=True)
class Reject:
    """A line the signature must not match, and why."""

    line: str
    why: str


@dataclass(frozen=True)
class Signature:
    """One kind of line and what it means.

    Attributes:
        id: ``<class or group>/<short-name>``, stable for ever.
        cls: one of :data:`CLASSES`, or "" for markers, advice and harmless lines.
        role: see :class:`Role`.
        kind: the kind within the class, in a few words ("device memory, fragmentation").
        cues: literal strings, at least one of which stands in every line that ``pattern`` matches. The
            multi-pattern database is made of them, so each must be rare in a healthy log (no "loss",
            no "error" alone), at least 4 bytes long, without quotes (JSON escapes them), ASCII.
        pattern: Python ``re`` for the cleaned line (no ANSI, no rank/time prefix). No nested unbounded
            repeats. Named groups feed evidence, failure point and fix templates. Useful names: step,
            epoch, rank, path, size, value, key, host, port, code, signal, pid, device, permission,
            principal, metric, region, image.
        prints: who prints the line (program and place in its source).
        means: what it establishes.
        not_shown: what it does not establish.
        matches: real lines (cleaned or raw) that must match. At least one, better all wordings over versions.
        rejects: at least two lines that must not match, one of them the nearest confuser.
        fixes: best first.
        unless: a second pattern; a line that it also matches is no match.
        specificity: 3 the line names the cause itself; 2 strong; 1 a generic sign that needs support.
        fatal: the program cannot go on after printing this line.
        ignore_case: for cues and pattern.
        outranks: ids (or ``class/`` prefixes) that are only consequences where this signature matched in
            the same attempt, even when their line comes first.
        marks: for markers.
        status: the run status that this cause implies, where it is not "crashed".
        in_traceback: True: only as the exception line of a traceback; False: never there; None: anywhere.
        references: public addresses (documentation, source, issue).
        since: version of the tool that added it.
    """

    id: str
    cls: str
    role: Role
    kind: str
    cues: tuple[str, ...]
    pattern: str
    prints: str
    means: str
    matches: tuple[str, ...]
    rejects: tuple[Reject, ...]
    not_shown: str = ""
    fixes: tuple[Fix, ...] = ()
    unless: str | None = None
    specificity: int = 2
    fatal: bool = False
    ignore_case: bool = False
    outranks: tuple[str, ...] = ()
    marks: Mark | None = None
    status: str | None = None
    in_traceback: bool | None = None
    references: tuple[str, ...] = ()
    since: str = "0.1.0"

    @cached_property
    def _compiled(self) -> re.Pattern[str]:
        return re.compile(self.pattern, re.IGNORECASE if self.ignore_case else 0)

    @cached_property
    def _unless(self) -> re.Pattern[str] | None:
        return re.compile(self.unless, re.IGNORECASE if self.ignore_case else 0) if self.unless else None

    def match(self, text: str) -> re.Match[str] | None:
        """Match one cleaned line (at most a few thousand characters)."""
        found = self._compiled.search(text)
        if found and self._unless is not None and self._unless.search(text):
            return None
        return found


@dataclass(frozen=True)
class ExceptionRule:
    """What an exception without a signature of its own says, by its type and where it rose.

    The first rule of ``catalogue/exceptions.py`` that fits wins; every given condition must hold.

    Attributes:
        id: ``exception/<short-name>``.
        types: exception type names without module ("KeyError"); empty means any.
        message: ``re`` searched in the message, or None.
        frames: ``re`` searched in each "file:function" of the stack (library and user frames alike), or None.
        worker: True: only where a data-loading worker raised it; None: anywhere.
        before_training: True: only before any training progress; False: only after some; None: either.
        examples: (stack tail and exception, as printed) that must fit; at least one.
    """

    id: str
    cls: str
    kind: str
    means: str
    types: tuple[str, ...] = ()
    message: str | None = None
    frames: str | None = None
    worker: bool | None = None
    before_training: bool | None = None
    specificity: int = 1
    fixes: tuple[Fix, ...] = ()
    examples: tuple[str, ...] = ()
    since: str = "0.1.0"


@dataclass(frozen=True)
class ClassInfo:
    """What is known about a failure class as a whole; reference pages and "ruled out" lines come from it."""

    id: str
    title: str
    severity: str  # critical, significant
    is_: str
    is_not: str
    when: str  # when it appears in a run
    kinds: tuple[str, ...]
    looked_for: str  # "CUDA, XLA, HIP and MPS out-of-memory messages, kernel and cgroup OOM records, ..."
    procedure: tuple[str, ...]  # how an expert goes about it, step by step
    settings: tuple[tuple[str, str], ...]  # (framework, settings to check)
    fixes: tuple[Fix, ...]  # where the signature brings none
    decides: tuple[str, str, str] | None = None  # (what, why, how): the smallest artifact that would confirm it
