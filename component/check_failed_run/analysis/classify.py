"""From candidates to one primary cause.

Order of reasoning: the last attempt counts; what the run went on after is recovered; a cascade is primary
only when nothing else is there; of causes, the earliest one that explains the rest.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import pairwise

from check_failed_run.analysis.candidates import Candidates
from check_failed_run.analysis.diagnosis import Cause, Evidence
from check_failed_run.analysis.ranks import RankFacts
from check_failed_run.analysis.timeline import Timeline
from check_failed_run.analysis.trajectory import is_score
from check_failed_run.catalogue.model import Mark, Signature
from check_failed_run.scanning.facts import Hit

SILENT_TRENDS = ("evaluation-mismatch", "stalled", "optimization-divergence")
"""Classes whose trends count only where nothing stopped the run."""

HEALTHY = 20  # metric lines between two overflows that make the earlier one an ordinary skipped step
ANNOUNCED = 5  # lines between the word that a checkpoint is saved and the traceback of the save


@dataclass(slots=True)
class Verdict:
    """``primary`` is None where no failure was found; ``recovered`` are faults that the run survived."""

    primary: Cause | None
    survivors: list[Cause] = field(default_factory=list)
    recovered: list[Cause] = field(default_factory=list)
    followed: list[Cause] = field(default_factory=list)
    ended_ok: bool = False
    early_stop: bool = False
    interrupted: Hit | None = None
    notes: list[str] = field(default_factory=list)


class Judge:
    def __init__(self, timeline: Timeline, signatures: dict[str, Signature], found: Candidates, ranks: RankFacts):
        self.timeline, self.signatures, self.found, self.ranks = timeline, signatures, found, ranks
        self.last = timeline.last_attempt
        self.known_failed = timeline.failed is True
        if self.known_failed:
            # the platform says that the run failed; a restart whose start looks well does not undo the fault before it
            faults = [c.attempt for c in [*found.causes, *found.cascades] if not c.signature.startswith("trend/")]
            if faults and self.last not in faults:
                self.last = max(faults)
        self._train = {log.index: [p for p in log.facts.metrics if p.kind in ("train", "progress", "eval")] for log in timeline.logs}

    def decide(self) -> Verdict:
        verdict = Verdict(None)
        ends = [(log, h) for log in self.timeline.logs for h in self.timeline.marks(log, Mark.END_OK)]
        stops = [(log, h) for log in self.timeline.logs for h in self.timeline.marks(log, Mark.EARLY_STOP)]
        interrupts = [(log, h) for log in self.timeline.logs for h in self.timeline.marks(log, Mark.INTERRUPTED)]
        verdict.early_stop = bool(stops)
        verdict.interrupted = max((h for _, h in interrupts), key=lambda h: self.timeline.key(h.at), default=None)
        last_end = max((self.timeline.key(h.at) for _, h in ends), default=None)

        causes = self._outrank([c for c in self.found.causes])
        current = [c for c in causes if c.attempt == self.last]
        earlier = [c for c in causes if c.attempt < self.last]
        errors = [c for c in current if not c.signature.startswith("trend/")]
        trends = [c for c in current if c.signature.startswith("trend/")]

        open_errors = []
        for cause in errors:
            if self._recovered(cause, last_end):
                verdict.recovered.append(cause)
            else:
                open_errors.append(cause)
        cascades = [c for c in self.found.cascades if c.attempt == self.last and not self._recovered(c, last_end)]
        confirmations = [c for c in self.found.confirmations if c.attempt == self.last]
        fatal_cascade = bool(cascades)
        verdict.ended_ok = last_end is not None and not open_errors and not fatal_cascade

        nan = [t for t in trends if t.cls == "nan-inf"]
        other = [t for t in trends if t.cls != "nan-inf"]

        primary = self._pick(open_errors, nan)
        if primary is None and nan:
            primary = nan[0]
        if primary is None or (primary.specificity <= 1 and primary.cls == "process-crash"):
            promoted = self._promote(primary, cascades, confirmations)
            primary = promoted or primary
        if cascades and (primary is None or (primary.specificity == 0 and not self._brought_down(primary, cascades))):
            follower = self._cascade(cascades)
            # a run that someone or the scheduler ended may have been ended for what its metrics show
            if not (other and primary is None and follower.cls == "process-crash" and not self.fatal(follower)):
                primary = follower
        if primary is None and other:
            primary = max(other, key=lambda t: (t.specificity, t.cls == "optimization-divergence", -t.at.line))
        if primary is None and earlier and not verdict.ended_ok and not any(self._train[log.index] and log.last_attempt() == self.last for log in self.timeline.logs):
            primary = self._pick([c for c in earlier if not c.signature.startswith("trend/")], [])
        if primary is not None and primary.cls == "io-checkpoint" and primary.attempt == self.last:
            origin = [c for c in earlier if c.cls == "io-checkpoint" and not c.signature.startswith("trend/")]
            if origin and (primary.phase == "checkpoint-load" or "truncat" in primary.signature or "archive" in primary.signature or "corrupt" in primary.signature):
                primary = origin[0]
                verdict.notes.append("the earlier attempt left the checkpoint that this attempt could not read")
        if primary is not None and primary.role == "cause" and not primary.signature.startswith("trend/"):
            self._first_sign(primary, open_errors)
            self._first_overflow(primary)
        verdict.primary = primary
        verdict.survivors = [c for c in [*open_errors, *trends] if c is not primary]
        verdict.followed = [c for c in cascades if c is not primary]
        verdict.recovered += [c for c in earlier if c is not primary]
        return verdict

    # ------------------------------------------------------------------------------------------------

    def _outrank(self, causes: list[Cause]) -> list[Cause]:
        """Drop causes that another cause of the same attempt explains, by the catalogue's word."""
        gone: set[int] = set()
        for cause in causes:
            signature = self.signatures.get(cause.signature)
            if signature is None or not signature.outranks:
                continue
            for other in causes:
                if other is cause or other.attempt != cause.attempt or id(cause) in gone:
                    continue
                if any(other.signature == name or (name.endswith("/") and (other.signature.startswith(name) or other.cls + "/" == name)) or (
                        name.startswith("trend/") and other.signature.startswith(name)) for name in signature.outranks) and not (
                        other.signature in self.signatures and cause.signature in self.signatures[other.signature].outranks):
                    gone.add(id(other))
                    self._inherit(cause, other)
        return [c for c in causes if id(c) not in gone]

    def _inherit(self, cause: Cause, other: Cause) -> None:
        """The line that first shows the cause stays the failure point, whichever line names it best."""
        speaks = other.exception is not None or (self.fatal(other) and bool(self.timeline.log(other.at.input).facts.metrics))
        elsewhere = other.at.input != cause.at.input and not self.timeline.log(cause.at.input).facts.metrics
        if other.cls == cause.cls and cause.exception is None and speaks and (elsewhere or (other.exception is not None and other.at.line < cause.at.line)):
            # a record beside the program (the kernel's) says why; the program's own error says where
            cause.evidence = [*other.evidence[:1], *cause.evidence, *other.evidence[1:]]
            cause.at, cause.rank = other.at, other.rank
            cause.step = other.step if other.step is not None else cause.step
            cause.exception, cause.location, cause.phase = other.exception, other.location, other.phase
            return
        if other.cls != cause.cls or other.at.input != cause.at.input or other.signature.startswith("trend/") or other.rank != cause.rank:
            return
        cause.evidence += [e for e in other.evidence if e.at.line != cause.at.line]
        if self.timeline.key(other.at) < self.timeline.key(cause.at) and (other.exception is not None or cause.exception is None):
            cause.at = other.at
            cause.step = other.step
        cause.exception = cause.exception or other.exception
        cause.location = cause.location or other.location
        cause.phase = cause.phase or other.phase

    def fatal(self, cause: Cause) -> bool:
        """Whether the program cannot have gone on after this line."""
        if cause.signature.startswith("trend/"):
            return False
        signature = self.signatures.get(cause.signature)
        if signature is not None and signature.fatal:
            return True
        return cause.exception is not None

    def dies(self, cause: Cause) -> bool:
        """Whether an uncaught exception ended its process: its stack starts at module level."""
        if cause.exception is None:
            return False
        for log, traceback in self.found.tracebacks:
            if log.facts.name == cause.at.input and any(e.at.line == cause.at.line for e in traceback.exceptions):
                return any(f.function in ("<module>", "_run_module_as_main", "_run_code") for e in traceback.exceptions for f in e.frames[:3])
        return False

    def _recovered(self, cause: Cause, last_end: tuple | None) -> bool:
        """The run went on after this fault: later steps by the same process, or the run's own word that it ended well."""
        key = self.timeline.key(cause.at)
        signature = self.signatures.get(cause.signature)
        if cause.cls == "evaluation-mismatch" and cause.exception is None:
            return not self.known_failed and not self._too_good(cause)  # the run goes on either way: what counts is whether its scores show it
        if self.known_failed and (cause.exception is not None or (signature is not None and signature.fatal)) and not self._later_fault(cause):
            return False
        if self._lived_on(cause):
            return True
        if last_end is not None and key < last_end and not (self.dies(cause) and self._only_buffered(cause)):
            return True
        log = self.timeline.log(cause.at.input)
        recovery = [h for h in self.timeline.marks(log, Mark.RECOVERED) if h.at.line >= cause.at.line and log.attempt_at(h.at.line) == cause.attempt]
        if self.dies(cause) and not recovery:
            return False
        after = [p for p in self._train[log.index] if p.line > cause.at.line and log.attempt_at(p.line) == cause.attempt and (p.rank == cause.rank or p.rank is None or cause.rank is None)]
        before = [p for p in self._train[log.index] if p.line < cause.at.line and log.attempt_at(p.line) == cause.attempt]
        top = max((p.step for p in before if p.step is not None), default=None)
        if top is None:
            steps = {p.step if p.step is not None else p.line for p in after if p.kind != "progress"} or {p.step for p in after if p.step}
            advanced = len(steps) >= 3
        else:
            later = {p.step for p in after if p.step is not None and p.step > top}
            advanced = len(later) >= 2 or (not later and len([p for p in after if p.step is None and p.kind == "train"]) >= 3)
        if signature is not None and signature.fatal and not recovery:
            return advanced and len(after) >= 5 and cause.exception is None and signature.cls != "process-crash"
        return advanced

    def _lived_on(self, cause: Cause) -> bool:
        """A traceback that was logged with a time, after which the same log trains on at later times: no buffer explains these."""
        if cause.exception is None:
            return False
        log = self.timeline.log(cause.at.input)
        traceback = next((t for item, t in self.found.tracebacks if item is log and any(e.at.line == cause.at.line for e in t.exceptions)), None)
        if traceback is None:
            return False
        at = next((line.time for excerpt in log.facts.excerpts for line in excerpt if traceback.header.line - 1 <= line.line <= traceback.header.line and line.time is not None), None)
        if at is None:
            return False
        steps = {p.step for p in self._train[log.index] if p.line > traceback.last_line and p.time is not None and p.time > at and log.attempt_at(p.line) == cause.attempt and p.rank == cause.rank}
        return len(steps - {None}) >= 2

    def _later_fault(self, cause: Cause) -> bool:
        """Whether another fault comes after this one, which then may be the one that counts."""
        key = self.timeline.key(cause.at)
        return any(self.timeline.key(c.at) > key and c.specificity >= 1 and not c.signature.startswith("trend/") for c in self.found.causes if c is not cause)

    def _too_good(self, cause: Cause) -> bool:
        """The evaluation scores of the cause's attempt are next to perfect."""
        points = [p for log in self.timeline.logs for p in self.timeline.points(log, cause.attempt)]
        scores = [v for p in points for n, v in p.values if n.startswith("eval_") and is_score(n)]
        top = 100.0 if scores and max(scores) > 1.5 else 1.0
        return bool(scores) and max(scores) >= 0.98 * top

    def _only_buffered(self, cause: Cause) -> bool:
        """Standard output that was flushed at exit stands after the traceback of the process that wrote it."""
        log = self.timeline.log(cause.at.input)
        ends = [h for h in self.timeline.marks(log, Mark.END_OK) if h.at.line > cause.at.line]
        return not ends

    def _pick(self, errors: list[Cause], nan: list[Cause]) -> Cause | None:
        if not errors:
            return None
        fatal = [c for c in errors if self.fatal(c)]
        pool = fatal or errors
        known = [c for c in pool if c.specificity >= 2] or [c for c in pool if c.specificity >= 1] or pool
        if known[0].specificity == 0 and len(pool) < len(errors):
            known = [c for c in errors if c.specificity >= 2] or known
        first = self._first_over_ranks(known)
        # a quieter line just before it in the same episode may say more
        for cause in errors:
            if cause is first or self.fatal(cause) or cause.specificity < 2:
                continue
            if self.timeline.key(cause.at) <= self.timeline.key(first.at) and cause.specificity >= first.specificity and not self._progress_between(cause, first):
                first = cause
                break
            if first.specificity <= 1 and cause.specificity >= 2 and not self._progress_between(first, cause):
                first = cause
                break
        for trend in nan:
            if self.timeline.key(trend.at) < self.timeline.key(first.at) and not self._explains_nan(first):
                return trend
        return first

    def _first_sign(self, cause: Cause, errors: list[Cause]) -> None:
        """Move the failure point to the line of the same fault that came first: a quieter one, or one that a thread only logged."""
        early = [c for c in errors if c is not cause and c.cls == cause.cls and c.specificity >= 2 and not c.signature.startswith("trend/")]
        early += [c for c in self.found.handled if c.cls == cause.cls and c.specificity >= 2]
        early = [c for c in early if c.at.input == cause.at.input and c.attempt == cause.attempt and c.rank == cause.rank and self.timeline.key(c.at) < self.timeline.key(cause.at)]
        for other in sorted(early, key=lambda c: self.timeline.key(c.at)):
            if self._same_episode(other, cause):
                cause.evidence.insert(1, Evidence(cause.at, cause.signature))
                cause.evidence[0] = other.evidence[0]
                cause.at, cause.step = other.at, other.step
                return

    def _first_overflow(self, cause: Cause) -> None:
        """A loss scale at its minimum began to fall with the first overflow of the last unbroken series."""
        if cause.cls != "nan-inf":
            return
        hits = [h for h in self.found.context if self.signatures[h.signature].cls == "nan-inf" and h.group("value") and h.at.input == cause.at.input]
        hits = [h for h in hits if self.timeline.attempt(h.at) == cause.attempt and h.at.line < cause.at.line and (h.at.rank == cause.rank or None in (h.at.rank, cause.rank))]
        series: list[tuple[float, Hit]] = []
        trained = [p.line for p in self._train[self.timeline.log(cause.at.input).index] if p.kind == "train"]
        for hit in sorted(hits, key=lambda h: (h.at.line, h.at.offset), reverse=True):
            value = _number(hit.group("value"))
            if value is None or (series and value < series[-1][0]):
                break
            if series and sum(hit.at.line < line < series[-1][1].at.line for line in trained) > HEALTHY:
                break  # training went well in between: those before were ordinary
            series.append((value, hit))
        if len(series) >= 4 and series[-1][0] >= 100 * series[0][0]:
            first = series[-1][1]
            cause.evidence.insert(0, Evidence(first.at, first.signature))
            cause.at = first.at

    def _same_episode(self, a: Cause, b: Cause) -> bool:
        """Nothing between them shows the fault gone: no training progress, or for a file system no checkpoint saved."""
        if b.cls != "io-checkpoint":
            return not self._progress_between(a, b)
        log = self.timeline.log(a.at.input)
        stack = b.exception.frames if b.exception is not None else ()
        before = b.at.line - 2 * len(stack) - ANNOUNCED  # "saving checkpoint to ..." is also printed before a save that fails
        return not any(a.at.line < h.at.line < before for h in self.timeline.marks(log, Mark.CHECKPOINT_SAVED))

    def _explains_nan(self, cause: Cause) -> bool:
        return cause.cls == "nan-inf" and cause.specificity >= 3 and cause.location is not None

    def _first_over_ranks(self, causes: list[Cause]) -> Cause:
        first = min(causes, key=lambda c: self.timeline.key(c.at))
        # the rank that is missing from the time-outs is the suspect: its own error is the cause
        if self.ranks.absent and self.ranks.timeouts:
            own = [c for c in causes if c.rank in self.ranks.absent]
            if own:
                return min(own, key=lambda c: self.timeline.key(c.at))
        if first.cls in ("process-crash", "nccl-distributed") and first.specificity <= 2:
            better = [c for c in causes if c.cls not in ("process-crash", "nccl-distributed") and c.specificity >= 2]
            if better:
                return min(better, key=lambda c: self.timeline.key(c.at))
        return first

    def _progress_between(self, a: Cause, b: Cause) -> bool:
        if a.at.input != b.at.input:
            return False
        low, high = sorted((a.at.line, b.at.line))
        log = self.timeline.log(a.at.input)
        inside = [p for p in self._train[log.index] if low < p.line < high and p.kind == "train"]
        return len(inside) >= 2

    def _promote(self, primary: Cause | None, cascades: list[Cause], confirmations: list[Cause]) -> Cause | None:
        """A kill with a memory record beside it ran out of memory; one after host memory filled up most likely did."""
        kills = [c for c in [primary, *cascades] if c is not None and c.cls == "process-crash"]
        strong = [c for c in confirmations if c.cls]
        if strong:
            chosen = min(strong, key=lambda c: (-c.specificity, self.timeline.key(c.at)))
            for kill in kills[:1]:
                chosen.evidence += kill.evidence
                chosen.step = chosen.step if chosen.step is not None else kill.step
                chosen.rank = chosen.rank if chosen.rank is not None else kill.rank
            return chosen
        kill = next((k for k in kills if k.specificity <= 1), None)
        pressure = self._memory_pressure() if kill is not None else []
        if kill is None or not pressure:
            return None
        signature = self.signatures[pressure[-1].signature]
        return replace(
            kill, cls=signature.cls, signature=signature.id, kind=f"{signature.kind}, then a kill", role=str(signature.role), specificity=1,
            explanation=f"{signature.means} It grew until the process was killed, and nothing else is told about the kill.",
            not_shown="That memory was the reason: the kernel's or the scheduler's record would show it.",
            evidence=[*kill.evidence, Evidence(pressure[-1].at, signature.id), Evidence(pressure[0].at, signature.id)],
            values={**dict(pressure[-1].groups), **kill.values},
        )

    def _memory_pressure(self) -> list[Hit]:
        """Context lines with host memory in use (groups ``used``, ``total``, ``percent``), where it filled up to the end."""
        hits = [h for h in self.found.context if self.signatures[h.signature].cls == "oom" and self.timeline.attempt(h.at) == self.last]
        hits = [h for h in hits if h.group("used") or h.group("percent")]
        if not hits:
            return []
        used = [_number(h.group("used")) for h in hits]
        total, percent = _number(hits[-1].group("total")), _number(hits[-1].group("percent"))
        if (percent is not None and percent >= 90) or (total and used[-1] and used[-1] >= 0.85 * total):
            return hits
        known = [v for v in used if v is not None]
        grown = len(known) >= 4 and known[-1] >= 1.8 * known[0] and all(b >= a for a, b in pairwise(known))
        return hits if grown and percent is None else []

    def _brought_down(self, cause: Cause, cascades: list[Cause]) -> bool:
        """An exception that nobody caught came first, and what followed are only words about the end of its process."""
        return self.dies(cause) and all(c.cls in ("process-crash", "") and self.timeline.key(c.at) > self.timeline.key(cause.at) for c in cascades)

    def _cascade(self, cascades: list[Cause]) -> Cause:
        usable = [c for c in cascades if c.cls] or cascades
        top = max(c.specificity for c in usable)
        return min((c for c in usable if c.specificity == top), key=lambda c: self.timeline.key(c.at))


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text else None
    except ValueError:
        return None
