"""No error and no end: did the run stop advancing, and how can that be known?

A log that merely ends says nothing. What says something: a clock that goes on after the last step (time
stamps, heartbeats, companions taken later), a user's Ctrl-C long after it, a counter far from its end
together with a moment of looking.
"""

from __future__ import annotations

import itertools
import statistics
from dataclasses import dataclass

from check_failed_run.analysis.timeline import Log, Timeline
from check_failed_run.scanning.facts import LogLine, MetricPoint

LEAST_GAP = 600.0  # seconds without a step that can be a stall at all; slow saves and compilations are shorter
TIMES = 10.0  # ... and this many times the run's own interval between logged steps
CLOCK_LINES = 5  # lines with time stamps after the last step, where no interval is known


@dataclass(slots=True)
class Stall:
    last: MetricPoint | None
    quiet: float | None  # seconds without a step
    evidence: list[LogLine]
    summary: str
    strength: int


def find_stall(timeline: Timeline, now: float | None, *, interrupted: LogLine | None, watched: list[LogLine], epochs: float | None = None) -> Stall | None:
    """``watched`` are lines by which some watcher says that nothing moves (stalled/* signatures)."""
    main = max((log for log in timeline.logs), key=lambda log: len(log.facts.metrics), default=None)
    if main is None:
        return None
    points = [p for p in main.facts.metrics if p.kind in ("train", "progress", "eval")]
    advancing = _advances(points)
    last = advancing[-1] if advancing else None
    typical = _interval(main, advancing)
    limit = max(LEAST_GAP, TIMES * (typical or 0.0))
    total = next((p.total_steps for p in reversed(points) if p.total_steps), None)
    epochs = next((p.total_epochs for p in reversed(points) if p.total_epochs), epochs)
    reached = last is not None and total is not None and last.step is not None and last.step >= 0.98 * total
    if last is not None and epochs is not None and last.epoch is not None:
        reached = last.epoch >= epochs - 1 and (reached or total is None)
    if reached:
        return None
    last_time = (last.time or main.time_at(last.line)) if last is not None else main.times[0] if main.times else None
    latest, latest_line = None, None
    for log in timeline.logs:
        for excerpt in log.facts.excerpts[-1:]:
            for line in excerpt[-400:]:
                if line.time is not None and (latest is None or line.time > latest) and _comparable(line.time, last_time):
                    latest, latest_line = line.time, line
    if now is not None and (latest is None or now > latest) and _comparable(now, last_time):
        latest = now
    where = f"step {last.step}" if last is not None and last.step is not None else f"line {last.line}" if last is not None else "the start"
    of = f" of {total}" if total else ""
    quiet = latest - last_time if latest is not None and last_time is not None else None
    quotes = [line for line in (_line(main, last), latest_line, *watched[-2:]) if line is not None]
    if quiet is not None and quiet > limit:
        return Stall(last, quiet, quotes, f"no step follows {where}{of} although the clock goes on for {_duration(quiet)}", 3 if quiet > 3 * limit or watched else 2)
    if watched and last is not None and any(w.line > last.line or w.input != main.facts.name for w in watched):
        return Stall(last, quiet, quotes, f"no step follows {where}{of}; later lines show the process alive and idle", 3)
    if watched and last is None:
        return Stall(None, quiet, [*watched[-2:]], "training never starts: the run waits", 2)
    if interrupted is not None and last is not None and total is not None:
        return Stall(last, quiet, [*quotes, interrupted], f"progress stops at {where}{of} and the user interrupts the run", 1)
    short = last is not None and ((total is not None and last.step is not None) or (epochs is not None and last.epoch is not None))
    if short and timeline.logs and not any(log.companion is False and log is not main and log.facts.metrics for log in timeline.logs):
        goal = of or (f" of {epochs:g} epochs" if epochs is not None else "")
        final = _final_line(main)
        return Stall(last, quiet, [line for line in (_line(main, last), final) if line is not None],
                     f"the log ends at {where}, short of its goal{goal}, without an error or an end", 1)
    return None


def _final_line(log: Log) -> LogLine | None:
    for excerpt in reversed(log.facts.excerpts):
        for line in reversed(excerpt):
            if line.text.strip():
                return line
    return None


def _comparable(a: float, b: float | None) -> bool:
    """Uptimes, year-less and full dates can't be compared."""
    return b is not None and abs(a - b) < 400 * 86400


def _advances(points: list[MetricPoint]) -> list[MetricPoint]:
    """Points that take the counter of their reader further than before (a repeated bar is no progress)."""
    best: dict[tuple, float] = {}
    result = []
    for point in points:
        value = (point.epoch or 0.0, point.step) if point.step is not None else (point.epoch or 0.0, None)
        key = (point.reader, point.kind == "eval", point.rank)
        number = value[0] * 1e9 + (value[1] if value[1] is not None else point.line)
        if point.step is not None and point.epoch is None:
            number = point.step
        if key not in best or number > best[key] or (point.step is not None and point.step < 0.5 * best[key]):
            best[key] = number
            result.append(point)
    return result


def _interval(log: Log, points: list[MetricPoint]) -> float | None:
    times = [t for t in ((p.time or log.time_at(p.line)) for p in points) if t is not None]
    gaps = [b - a for a, b in itertools.pairwise(times) if b > a]
    return statistics.median(gaps) if len(gaps) >= 3 else None


def _line(log: Log, point: MetricPoint | None) -> LogLine | None:
    if point is None:
        return None
    for excerpt in log.facts.excerpts:
        for line in excerpt:
            if line.offset == point.offset:
                return line
    return None


def _duration(seconds: float) -> str:
    if seconds < 5400:
        return f"{seconds / 60:.0f} minutes"
    return f"{seconds / 3600:.1f} hours"
