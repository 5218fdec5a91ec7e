"""Order: which log belongs to which attempt, what came first over ranks and files."""

from __future__ import annotations

import bisect
import itertools
from dataclasses import dataclass, field

from check_failed_run.catalogue.model import Mark
from check_failed_run.record import LogSource, RunRecord
from check_failed_run.scanning.facts import Hit, LogFacts, LogLine, MetricPoint


@dataclass(slots=True)
class Log:
    """One log with what ordering needs."""

    facts: LogFacts
    source: LogSource
    index: int
    anchors: list[int] = field(default_factory=list)  # line numbers with a time
    times: list[float] = field(default_factory=list)
    attempt_starts: list[int] = field(default_factory=list)  # first line of each attempt, ascending; [1, ...]
    first_attempt: int = 1
    companion: bool = False
    curve: bool = False  # nothing but metrics, as in a trainer_state.json

    def time_at(self, line: int) -> float | None:
        """The time of a line, or of the nearest earlier line that has one."""
        if not self.anchors:
            return None
        at = bisect.bisect_right(self.anchors, line) - 1
        return self.times[max(at, 0)]

    def attempt_at(self, line: int) -> int:
        return self.first_attempt + bisect.bisect_right(self.attempt_starts, line) - 1

    def last_attempt(self) -> int:
        return self.first_attempt + len(self.attempt_starts) - 1


class Timeline:
    """All logs of a run, ordered by attempt, then time, then place."""

    def __init__(self, facts: list[LogFacts], record: RunRecord, marks: dict[str, Mark]):
        self.failed = record.failed
        sources = {s.name: s for s in record.logs}
        self.logs = [Log(f, sources.get(f.name) or LogSource(f.name, None), i) for i, f in enumerate(facts)]
        self._by_name = {log.facts.name: log for log in self.logs}
        self._marks = marks
        for log in self.logs:
            last = None
            for excerpt in log.facts.excerpts:
                for line in excerpt:
                    if line.time is not None and (last is None or line.time >= last - 1):
                        if not log.anchors or line.line > log.anchors[-1]:
                            log.anchors.append(line.line)
                            log.times.append(line.time)
                        last = line.time
            log.companion = not log.facts.metrics and not log.facts.tracebacks
            log.curve = bool(log.facts.metrics) and not log.facts.tracebacks and not log.facts.signatures
        self._attempts()

    def log(self, name: str) -> Log:
        return self._by_name[name]

    def marks(self, log: Log, mark: Mark) -> list[Hit]:
        hits = [h for name, m in self._marks.items() if m is mark and name in log.facts.signatures for h in log.facts.signatures[name].hits()]
        return sorted(hits, key=lambda h: (h.at.line, h.at.offset))

    def _attempts(self) -> None:
        for log in self.logs:
            starts = [1]
            deaths = [t.header.line for t in log.facts.tracebacks if not t.handled]
            deaths += [h.at.line for h in self.marks(log, Mark.EXIT_CODE)] + [h.at.line for h in self.marks(log, Mark.RECOVERED)]
            progress = [p.line for p in log.facts.metrics if p.kind == "train"]
            for hit in self.marks(log, Mark.START):
                line = hit.at.line
                died = any(starts[-1] <= d < line for d in deaths)
                # a new start after a death, or after training that had already begun
                if (died and line > starts[-1] + 1) or (line > starts[-1] + 1 and sum(starts[-1] <= p < line for p in progress) >= 2 and hit.group("restart") is not None):
                    starts.append(line)
            log.attempt_starts = starts
        # several whole runs in several files: earlier, non-overlapping ones are earlier attempts
        whole = [log for log in self.logs if not log.companion and log.source.rank is None and not any(
            line.rank is not None for excerpt in log.facts.excerpts[:1] for line in excerpt[:200])]
        if len(whole) > 1:
            explicit = [log for log in whole if log.source.attempt is not None]
            if len(explicit) == len(whole):
                order = sorted(whole, key=lambda log: (log.source.attempt, log.index))
            elif all(log.times for log in whole):
                order = sorted(whole, key=lambda log: log.times[0])
                if any(a.times[-1] > b.times[0] + 60 for a, b in itertools.pairwise(order)):
                    return
            else:
                return
            number = 1
            for log in order:
                log.first_attempt = number
                number = log.last_attempt() + 1
            last = number - 1
            for log in self.logs:
                if log.companion:
                    log.first_attempt = last

    @property
    def last_attempt(self) -> int:
        return max((log.last_attempt() for log in self.logs), default=1)

    def key(self, at: LogLine) -> tuple:
        """Sort key of a line: attempt, time where every log that says more than metrics has times, then input order and place."""
        log = self._by_name[at.input]
        time = at.time if at.time is not None else log.time_at(at.line)
        timed = all(item.times for item in self.logs if not (item.companion or item.curve))
        if len(self.logs) == 1 or not timed or time is None:
            time = 0.0
        return (log.attempt_at(at.line), time, log.index, at.line, at.offset)

    def attempt(self, at: LogLine) -> int:
        return self._by_name[at.input].attempt_at(at.line)

    def points(self, log: Log, attempt: int) -> list[MetricPoint]:
        return [p for p in log.facts.metrics if log.attempt_at(p.line) == attempt]
