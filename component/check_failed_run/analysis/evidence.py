"""Which lines a report quotes: the cause first, then what the run was doing, what confirms it, what it led to."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from check_failed_run.analysis.candidates import Candidates
from check_failed_run.analysis.classify import Verdict
from check_failed_run.analysis.diagnosis import Cause, Evidence
from check_failed_run.analysis.ranks import RankFacts
from check_failed_run.analysis.timeline import Log, Timeline
from check_failed_run.catalogue.model import Mark, Signature
from check_failed_run.scanning.facts import LogLine, MetricPoint

MAX_EVIDENCE = 12
# settings that bear on a class: their lines are quoted beside the failure
TELLING = {
    "nan-inf": ("precision", "learning_rate"),
    "optimization-divergence": ("learning_rate", "warmup"),
}
METRIC_CLASSES = ("nan-inf", "optimization-divergence", "evaluation-mismatch")


class Quoter:
    """Collects quotes, each line once, up to a limit."""

    def __init__(self, limit: int = MAX_EVIDENCE):
        self.items: list[Evidence] = []
        self._seen: set[tuple[str, int, int]] = set()
        self._limit = limit

    def add(self, items: Iterator[Evidence] | list[Evidence], most: int = MAX_EVIDENCE) -> None:
        for item in items:
            key = (item.at.input, item.at.line, item.at.offset)
            if most <= 0 or len(self.items) >= self._limit:
                return
            if key not in self._seen and item.at.raw.strip():
                self._seen.add(key)
                self.items.append(item)
                most -= 1


def of_failure(
    primary: Cause, timeline: Timeline, verdict: Verdict, found: Candidates, ranks: RankFacts, signatures: dict[str, Signature], printed: dict[str, LogLine]
) -> list[Evidence]:
    """Quotes for a failed run, most telling first."""
    quotes = Quoter()
    quotes.add(primary.evidence, 4)
    quotes.add(_progress_before(timeline, primary))
    quotes.add(_evaluations(timeline, primary))
    quotes.add(_collectives(ranks, timeline, primary))
    quotes.add(_late_rank(timeline, primary))
    quotes.add(_wrappers(timeline, found, primary))
    quotes.add([Evidence(printed[key], "config") for key in TELLING.get(primary.cls, ()) if key in printed])
    quotes.add(_fatal_signs(verdict, found, primary))
    related = [c for c in [*verdict.survivors, *found.confirmations] if c.cls == primary.cls and c.signature != primary.signature]
    quotes.add([c.evidence[0] for c in related], 2)
    quotes.add(_near_context(found, primary, signatures), 4)
    quotes.add(_echoes(timeline, primary), 2)
    distinct: dict[str, Cause] = {}
    for cause in [*verdict.survivors, *verdict.followed]:
        distinct.setdefault(cause.signature, cause)
    quotes.add([c.evidence[0] for c in distinct.values()], 4)
    quotes.add([Evidence(h.at, h.signature) for h in found.context if signatures[h.signature].cls == primary.cls], 2)
    if len(quotes.items) < MAX_EVIDENCE - 2:
        quotes.add([Evidence(h.at, h.signature) for log in timeline.logs for h in timeline.marks(log, Mark.COMMAND)], 1)
    return quotes.items


def of_quiet_run(timeline: Timeline, verdict: Verdict, found: Candidates) -> list[Evidence]:
    """Quotes for a run in which no failure was found: how it ended, what it survived."""
    quotes = Quoter()
    for log in timeline.logs:
        marks = [*timeline.marks(log, Mark.END_OK)[-2:], *timeline.marks(log, Mark.EARLY_STOP)[-1:], *timeline.marks(log, Mark.RESUMED)[-1:]]
        quotes.add([Evidence(h.at, h.signature) for h in marks])
    quotes.add([c.evidence[0] for c in verdict.recovered], 3)
    quotes.add([Evidence(h.at, h.signature) for h in found.context], 2)
    return quotes.items


def line_of(log: Log, point: MetricPoint) -> LogLine | None:
    """The kept line of a metric point, or None where it was not kept."""
    for excerpt in log.facts.excerpts:
        if excerpt and excerpt[0].offset <= point.offset <= excerpt[-1].offset:
            for line in excerpt:
                if line.offset == point.offset:
                    return line
    return None


def _quote_points(log: Log, points: list[MetricPoint]) -> list[Evidence]:
    lines = [line_of(log, p) for p in points]
    return [Evidence(line, "metrics") for line in lines if line is not None]


def _progress_before(timeline: Timeline, primary: Cause) -> list[Evidence]:
    """The last metric line before the failure; from the log that counts steps, where the failing one has none."""
    if primary.at is None or (primary.signature.startswith("trend/") and primary.cls != "stalled"):
        return []
    log = timeline.log(primary.at.input)
    points = [p for p in log.facts.metrics if p.line <= primary.at.line or primary.cls == "stalled"]
    if not log.facts.metrics:
        log = max(timeline.logs, key=lambda item: len(item.facts.metrics))
        points = log.facts.metrics
    if not points:
        return []
    chosen = [points[-1]]
    losses = [p for p in points if p.kind == "train" and p.values]
    if losses and losses[-1] is not points[-1]:
        chosen.append(losses[-1])
    return _quote_points(log, chosen)


def _evaluations(timeline: Timeline, primary: Cause) -> list[Evidence]:
    """For failures that metrics show: the evaluation after the onset, the last one, and a final report of the whole run."""
    if primary.cls not in METRIC_CLASSES or primary.at is None:
        return []
    log = timeline.log(primary.at.input)
    after = [p for p in log.facts.metrics if p.line > primary.at.line and (p.kind == "eval" or any(n.startswith("eval_") for n, _ in p.values))]
    chosen = [*after[:1], *after[-1:]]
    if primary.cls == "evaluation-mismatch":
        points = [p for p in log.facts.metrics if p.line > primary.at.line]
        chosen = [*after[:1], *after[-2:], *points[-1:]]
    return _quote_points(log, chosen)


def _collectives(ranks: RankFacts, timeline: Timeline, primary: Cause) -> list[Evidence]:
    """One time-out per distinct collective, and the last words of a rank that waits in it."""
    if primary.cls != "nccl-distributed" or not ranks.timeouts:
        return []
    seen: dict[tuple, int] = {}
    quotes = []
    for rank, cause in sorted(ranks.timeouts.items()):
        kind = tuple(cause.values.get(k) for k in ("seq", "op", "numel"))
        if kind not in seen and len(seen) < 4:
            seen[kind] = rank
            quotes.append(Evidence(cause.at, f"rank {rank}"))
    for rank in list(seen.values())[:3]:
        spoken = _last_words(timeline, ranks.timeouts[rank])
        if spoken is not None:
            quotes.append(Evidence(spoken, f"last words of rank {rank}"))
    return quotes


def _late_rank(timeline: Timeline, primary: Cause) -> list[Evidence]:
    """What the rank that a barrier misses was doing, from its own log."""
    missing = primary.values.get("missing")
    if not missing:
        return []
    for log in timeline.logs:
        if log.source.rank is not None and str(log.source.rank) == missing and log.facts.excerpts:
            lines = [line for line in log.facts.excerpts[-1] if line.text.strip()]
            return [Evidence(line, f"last words of rank {missing}") for line in lines[-1:]]
    return []


def _last_words(timeline: Timeline, cause: Cause) -> LogLine | None:
    """The last line of the program itself before a line that a library printed."""
    log = timeline.log(cause.at.input)
    hit = {h.at.line for table in log.facts.signatures.values() for h in table.hits()}
    metrics = {p.line for p in log.facts.metrics}
    for excerpt in reversed(log.facts.excerpts):
        for line in reversed(excerpt):
            if line.line >= cause.at.line or line.line in hit or not line.text.strip():
                continue
            if cause.at.line - line.line > 60 or line.line in metrics:
                return None
            if line.text[:1].isspace() or line.text.startswith(("frame #", "Exception raised", "[")):
                continue
            return line
    return None


def _wrappers(timeline: Timeline, found: Candidates, primary: Cause) -> list[Evidence]:
    """The exception that a traceback ends with, where it is not the cause itself: its own, or the next of its process."""
    if primary.at is None or primary.signature.startswith("trend/"):
        return []
    for log, traceback in found.tracebacks:
        if log.facts.name != primary.at.input or timeline.attempt(traceback.header) != primary.attempt:
            continue
        if primary.exception is not None:
            if any(e.at.line == primary.exception.at.line for e in traceback.exceptions):
                return [Evidence(e.at, "traceback") for e in traceback.exceptions[::-1] if e.at.line != primary.at.line][:2]
        elif 0 <= traceback.header.line - primary.at.line <= 400 and traceback.rank in (None, primary.rank):
            return [Evidence(traceback.exceptions[-1].at, "traceback")]
    return []


def _fatal_signs(verdict: Verdict, found: Candidates, primary: Cause) -> list[Evidence]:
    """The line that tells how the process ended, where the cause is a sign that came before it."""
    if primary.role not in ("context", "confirmation") and not primary.signature.startswith("trend/"):
        return []
    ends = [c for c in [*verdict.survivors, *verdict.followed, *found.causes, *found.cascades] if c.cls == "process-crash" and c.attempt == primary.attempt]
    return [ends[0].evidence[0]] if ends else []


def _near_context(found: Candidates, primary: Cause, signatures: dict[str, Signature]) -> list[Evidence]:
    """Context lines of the same class, or close before the cause."""
    if primary.at is None:
        return []
    at = primary.at
    near = [
        h for h in found.context
        if h.at.input == at.input and ((signatures[h.signature].cls in (primary.cls, "") and abs(h.at.line - at.line) <= 400) or 0 <= at.line - h.at.line <= 30)
    ]
    picked: dict[str, Any] = {}
    for hit in sorted(near, key=lambda h: abs(h.at.line - at.line)):
        picked.setdefault(hit.signature, hit)
    return [Evidence(h.at, h.signature) for h in picked.values()]


# lines that speak of the same things ----------------------------------------------------------------------------

_TOKEN = re.compile(r"[A-Za-z_][\w.-]{2,60}\w|\d[\d.,]{1,20}\d|\d\d")
_MAX_LINES = 3000
_PLAIN = frozenset(["error", "traceback", "recent", "call", "last", "file", "line", "module", "self", "return", "none", "true", "false", "expected", "found", "should", "must", "with", "from", "this", "that", "have", "been", "runtimeerror", "valueerror", "typeerror", "keyerror", "exception", "python", "import", "info", "warning", "trying", "unable", "failed", "raise", "most"])


def _tokens(text: str) -> set[str]:
    return {t.lower().strip(".-_") for t in _TOKEN.findall(text[:600])} - _PLAIN


def _echoes(timeline: Timeline, primary: Cause) -> list[Evidence]:
    """Earlier lines that share rare words, names or numbers with the failure's message, companions included."""
    if primary.at is None or primary.signature.startswith("trend/") or primary.cls not in ("config-error", "data-pipeline", "io-checkpoint", "cuda-runtime"):
        return []
    message = primary.at.text + " " + (primary.exception.message if primary.exception is not None else "")
    wanted = _tokens(message)
    if not wanted:
        return []
    lines = []
    for log in timeline.logs:
        skip = {p.line for p in log.facts.metrics}
        for traceback in log.facts.tracebacks:
            skip.update(range(traceback.header.line, traceback.last_line + 1))
        own = log.facts.name == primary.at.input
        for excerpt in log.facts.excerpts:
            for line in excerpt[: _MAX_LINES - len(lines)]:
                if line.line not in skip and not (own and line.line >= primary.at.line) and line.text.strip() and len(line.text) < 400:
                    lines.append((line, _tokens(line.text)))
    counts = Counter(t for _, tokens in lines for t in tokens & wanted)
    scored = []
    for line, tokens in lines:
        shared = [t for t in tokens & wanted if counts[t] <= max(2, len(lines) // 50)]
        score = sum(math.log(len(lines) / counts[t]) + (1.0 if _is_name(t) else 0.0) for t in shared)
        if score >= 6 and (len(shared) >= 2 or _is_name(shared[0])):
            scored.append((-score, line.input, line.line, line))
    return [Evidence(item[3], "same names") for item in sorted(scored, key=lambda s: s[:3])[:2]]


def _is_name(token: str) -> bool:
    """An identifier, a file name, a long number: words that are seldom shared by chance."""
    return len(token) >= 6 and (any(c in "._-" for c in token) or any(c.isdigit() for c in token))
