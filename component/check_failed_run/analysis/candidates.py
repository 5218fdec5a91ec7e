"""Everything in the logs that could be the cause: signature hits, exceptions, trends. Nothing is chosen here."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from check_failed_run.analysis.diagnosis import Cause, Evidence
from check_failed_run.analysis.timeline import Log, Timeline
from check_failed_run.analysis.trajectory import Steps, Trend, find_trends
from check_failed_run.catalogue.model import ExceptionRule, Role, Signature
from check_failed_run.scanning.facts import ExceptionInfo, Hit, LogLine, MetricPoint, Traceback

PHASES: tuple[tuple[str, str], ...] = (
    ("data-loading", r"(?i):(?:__getitem__|__getitems__|collate\w*|_next_data|fetch|_process_data|_try_get_data|default_collate\w*|generate_examples|_worker_loop)$"),
    ("checkpoint-save", r"(?i):(?:_?save\w*|torch_save|dump_checkpoint|save_checkpoint|_serialize\w*)$"),
    ("checkpoint-load", r"(?i):(?:load_state_dict|load_checkpoint|_?load_from_checkpoint|restore\w*|_load|resume\w*|load_model\w*)$"),
    ("evaluation", r"(?i):(?:_?evaluat\w*|validat\w*|validation_step|evaluation_loop|prediction_step|prediction_loop|predict\w*|_run_sanity_check|test_step|test_loop|eval\w*)$"),
    ("backward", r"(?i):(?:backward|_backward|run_backward|_engine_run_backward|accelerate_backward)$"),
    ("optimizer", r"(?i)(?:optim\w*/?[\w/.]*:(?:step|_init_group|_single_tensor\w*|_multi_tensor\w*|adamw?)|:optimizer_step)$"),
    ("forward", r"(?i):(?:forward|_call_impl|_forward\w*|training_step|compute_loss|call)$"),
)
_PHASES = tuple((name, re.compile(pattern)) for name, pattern in PHASES)


SAID_BEFORE = 8  # lines before a failure in which the program may name its step
RPC_ERRORS = ("_InactiveRpcError", "_MultiThreadedRendezvous", "AioRpcError")  # grpc prints status, details and a debug string on lines of their own
NO_FAILURE_TYPES = ("KeyboardInterrupt", "GeneratorExit", "StopIteration")


@dataclass(slots=True)
class Candidates:
    causes: list[Cause] = field(default_factory=list)
    cascades: list[Cause] = field(default_factory=list)
    confirmations: list[Cause] = field(default_factory=list)
    context: list[Hit] = field(default_factory=list)
    handled: list[Cause] = field(default_factory=list)  # what a thread or handler only logged: first signs, never the cause by themselves
    trends: dict[int, list[Trend]] = field(default_factory=dict)  # by log index
    tracebacks: list[tuple[Log, Traceback]] = field(default_factory=list)


def phase_of(exception: ExceptionInfo | None) -> str | None:
    """The phase that the stack shows, judged by function names, user frames or not."""
    if exception is None:
        return None
    entries = [f"{f.file}:{f.function}" for f in exception.frames]
    for name, pattern in _PHASES:
        if any(pattern.search(entry) for entry in entries):
            return name
    return None


def find_rule(rules: tuple[ExceptionRule, ...], exception: ExceptionInfo, *, worker: bool, progressed: bool) -> ExceptionRule | None:
    """The first exception rule that fits."""
    short = exception.type.rsplit(".", 1)[-1]
    entries = [f"{f.file}:{f.function}" for f in exception.frames]
    for rule in rules:
        if rule.types and short not in rule.types:
            continue
        if rule.worker is not None and rule.worker != worker:
            continue
        if rule.before_training is not None and rule.before_training == progressed:
            continue
        if rule.message and not re.search(rule.message, exception.message):
            continue
        if rule.frames and not any(re.search(rule.frames, entry) for entry in entries):
            continue
        return rule
    return None


class Finder:
    def __init__(self, timeline: Timeline, signatures: dict[str, Signature], rules: tuple[ExceptionRule, ...], *, num_labels: int | None = None, task: str | None = None, learning_rate: float | None = None):
        self.timeline, self.signatures, self.rules = timeline, signatures, rules
        self.num_labels, self.task, self.learning_rate = num_labels, task, learning_rate
        self.steps = {log.index: Steps(log.facts.metrics) for log in timeline.logs}
        self.trained = {log.index: [p.line for p in log.facts.metrics if p.kind == "train" or (p.kind == "progress" and (p.step or 0) > 0)] for log in timeline.logs}

    def find(self) -> Candidates:
        found = Candidates()
        for log in self.timeline.logs:
            at_line: dict[int, list[tuple[Signature, Hit]]] = {}
            for name, table in log.facts.signatures.items():
                signature = self.signatures.get(name)
                if signature is None:
                    continue
                for hit in table.hits():
                    at_line.setdefault(hit.at.line, []).append((signature, hit))
            in_traceback = self._tracebacks(log, at_line, found)
            for line, pairs in sorted(at_line.items()):
                for signature, hit in pairs:
                    if signature.role is Role.CONTEXT:
                        found.context.append(hit)
                    if signature.role not in (Role.CAUSE, Role.CASCADE, Role.CONFIRMATION):
                        continue
                    inside = in_traceback.get(line)
                    if signature.in_traceback is not None and signature.in_traceback != (inside == "exception"):
                        continue
                    if inside == "claimed":
                        continue
                    cause = self._cause(log, signature, hit)
                    {Role.CAUSE: found.causes, Role.CASCADE: found.cascades, Role.CONFIRMATION: found.confirmations}[signature.role].append(cause)
            self._trends(log, found)
        for group in (found.causes, found.cascades, found.confirmations):
            group.sort(key=lambda c: self.timeline.key(c.at))
        return found

    # ------------------------------------------------------------------------------------------------

    def _cause(self, log: Log, signature: Signature, hit: Hit, exception: ExceptionInfo | None = None) -> Cause:
        groups = dict(hit.groups)
        at = hit.at
        step = _int(groups.get("step"))
        if step is None:
            step = _stated_step(at.text, self.step_at(log, at))
        rank = _int(groups.get("rank"))
        return Cause(
            cls=signature.cls,
            signature=signature.id,
            kind=signature.kind,
            at=at,
            exception=exception,
            specificity=signature.specificity,
            role=str(signature.role),
            step=step,
            rank=at.rank if at.rank is not None else rank,
            attempt=self.timeline.attempt(at),
            location=exception.location if exception else None,
            phase=phase_of(exception),
            status=signature.status,
            explanation=signature.means,
            not_shown=signature.not_shown,
            evidence=[Evidence(at, signature.id)],
            values=groups,
        )

    def _tracebacks(self, log: Log, at_line: dict[int, list[tuple[Signature, Hit]]], found: Candidates) -> dict[int, str]:
        """Candidates from tracebacks; returns which lines belong to one ("exception" or "claimed")."""
        where: dict[int, str] = {}
        for traceback in log.facts.tracebacks:
            found.tracebacks.append((log, traceback))
            chosen, pairs = self._root(traceback, at_line)
            for exception in traceback.exceptions:
                where[exception.at.line] = "claimed"
                if exception.type.rsplit(".", 1)[-1] in RPC_ERRORS:
                    where.update(dict.fromkeys(range(exception.at.line, exception.at.line + 1 + exception.message.count("\n")), "claimed"))
            causes = [(s, h) for s, h in pairs if s.role is Role.CAUSE]
            if traceback.handled:
                found.handled += [self._cause(log, s, h, chosen) for s, h in causes]
                continue
            if traceback.exceptions[-1].type.rsplit(".", 1)[-1] in NO_FAILURE_TYPES:
                continue
            others = [(s, h) for s, h in pairs if s.role is Role.CASCADE]
            location = chosen.location or next((e.location for e in traceback.exceptions if e.location), None)
            if causes:
                signature, hit = max(causes, key=lambda p: p[0].specificity)
                cause = self._cause(log, signature, hit, chosen)
                cause.location = location
                cause.evidence += [Evidence(e.at, "traceback") for e in traceback.exceptions if e is not chosen and e.at.line != chosen.at.line][:1]
                found.causes.append(cause)
            elif others:
                signature, hit = others[0]
                cause = self._cause(log, signature, hit, chosen)
                cause.location = location
                found.cascades.append(cause)
            elif any(s.role in (Role.HARMLESS, Role.ADVICE) for s, _ in pairs):
                continue
            else:
                cause = self._unknown_exception(log, traceback, chosen, location)
                (found.cascades if cause.role == "cascade" else found.causes).append(cause)
        return where

    def _root(self, traceback: Traceback, at_line: dict[int, list[tuple[Signature, Hit]]]) -> tuple[ExceptionInfo, list[tuple[Signature, Hit]]]:
        """The exception of the chain that tells most, the earliest of equals; and what the catalogue says of its line."""
        best, best_pairs, best_score = traceback.root, [], -1.0
        for index, exception in enumerate(traceback.exceptions):
            pairs = [p for line in range(exception.at.line, exception.at.line + 1 + exception.message.count("\n")) for p in at_line.get(line, []) if p[1].at.rank == exception.at.rank or p[1].at.rank is None]
            score = max(({Role.CAUSE: 1.0, Role.CASCADE: 0.3}.get(s.role, 0.1) * s.specificity for s, _ in pairs), default=0.0)
            if exception.link == "first":
                score += 1.05
            elif exception.link == "group":
                score += 0.9
            if exception.type.rsplit(".", 1)[-1] in RPC_ERRORS and index + 1 < len(traceback.exceptions):
                score -= 1.1  # the client library says the same again, in one line
            if score > best_score + 1e-9:
                best, best_pairs, best_score = exception, pairs, score
            if index > 20:
                break
        return best, best_pairs

    def _unknown_exception(self, log: Log, traceback: Traceback, exception: ExceptionInfo, location: str | None) -> Cause:
        attempt = self.timeline.attempt(exception.at)
        progressed = any(line < exception.at.line and log.attempt_at(line) == attempt for line in self.trained[log.index])
        worker = traceback.worker is not None and "DataLoader" in traceback.worker
        rule = find_rule(self.rules, exception, worker=worker, progressed=progressed)
        short = exception.type.rsplit(".", 1)[-1]
        at = exception.at
        step = _stated_step(at.text, self.step_at(log, at))
        common = dict(
            at=at, exception=exception, step=step, rank=at.rank, attempt=self.timeline.attempt(at), location=location,
            phase=phase_of(exception), evidence=[Evidence(at, "traceback")], values={"exception": short, "message": exception.message.split("\n")[0]},
        )
        if rule is None:
            cls = "data-pipeline" if worker else "unknown"
            return Cause(cls=cls, signature=f"exception/{short}", kind=f"{short} without a known meaning", specificity=1 if worker else 0, role="cause",
                         explanation="a data-loading worker raised it" if worker else "", **common)
        return Cause(cls=rule.cls, signature=rule.id, kind=rule.kind, specificity=rule.specificity, role="cause" if rule.cls else "cascade", explanation=rule.means, **common)

    def step_at(self, log: Log, at: LogLine) -> int | None:
        """The last step before a line: in its own log, else in the log of the run that counts steps, at the same time."""
        step = self.steps[log.index].at(at.line, at.offset)
        if step is not None or log.facts.metrics:
            return self._said_before(log, at, step)
        moment = at.time if at.time is not None else log.time_at(at.line)
        counting = max(self.timeline.logs, key=lambda item: len(item.facts.metrics))
        if moment is None or not counting.times:
            # no clock to compare: the other ranks' last step is where this one stopped them
            return self.steps[counting.index].at(counting.facts.lines)
        for other in self.timeline.logs:
            if other is not log and other.times and other.facts.metrics:
                before = [p for p in other.facts.metrics if p.step is not None and (p.time or other.time_at(p.line) or 0) <= moment]
                if before:
                    return before[-1].step
        return None

    def _said_before(self, log: Log, at: LogLine, counted: int | None) -> int | None:
        """A step that one of the program's own last lines names ("saving at step 100"), where the counter is behind it."""
        for excerpt in log.facts.excerpts:
            if excerpt and excerpt[0].line <= at.line <= excerpt[-1].line:
                near = [line for line in excerpt if 0 < at.line - line.line <= SAID_BEFORE and line.text[:1].strip()]
                stated = [_stated_step(line.text, None) for line in near]
                return max([s for s in [*stated, counted] if s is not None and (counted is None or s <= counted + 1000)], default=counted)
        return counted

    def _trends(self, log: Log, found: Candidates) -> None:
        from check_failed_run.catalogue.model import Mark

        trends: list[Trend] = []
        resumed = [h.at.line for h in self.timeline.marks(log, Mark.RESUMED) + self.timeline.marks(log, Mark.CHECKPOINT_LOADED)]
        for attempt in range(log.first_attempt, log.last_attempt() + 1):
            points = self.timeline.points(log, attempt)
            first = points[0].line if points else 0
            trends += find_trends(points, resumed=any(line <= first for line in resumed), num_labels=self.num_labels, task=self.task, learning_rate=self.learning_rate)
        found.trends[log.index] = trends
        for trend in trends:
            found.causes.append(self._trend_cause(log, trend))

    def _trend_cause(self, log: Log, trend: Trend) -> Cause:
        quotes = [line for p in trend.around for line in [self.quote(log, p)] if line is not None]
        at = self.quote(log, trend.point) or (quotes[0] if quotes else LogLine(log.facts.name, trend.point.line, trend.point.offset, "", ""))
        unique = {(q.line, q.offset): q for q in [at, *quotes] if q.raw}
        return Cause(
            cls=trend.cls, signature=trend.name, kind=trend.name.removeprefix("trend/").replace("-", " "), at=at, specificity=trend.strength,
            step=trend.step, epoch=trend.point.epoch, rank=at.rank, attempt=log.attempt_at(trend.point.line), status=trend.status, summary=trend.summary,
            evidence=[Evidence(q, "metrics") for _, q in sorted(unique.items())], values=dict(trend.values),
        )

    def quote(self, log: Log, point: MetricPoint) -> LogLine | None:
        """The kept line of a metric point."""
        for excerpt in log.facts.excerpts:
            if excerpt and excerpt[0].offset <= point.offset <= excerpt[-1].offset:
                for line in excerpt:
                    if line.offset == point.offset:
                        return line
        return None


_STATED = re.compile(r"\b(?:at|in|on|during) (?:global |training )?(?:step|iteration|iter|batch|update)[ =:#]{1,2}(\d{1,9})\b|, iteration (\d{1,9}): ", re.IGNORECASE)


def _stated_step(text: str, counted: int | None) -> int | None:
    """The step that the message itself names, where it is not before the last one that was counted."""
    found = _STATED.search(text)
    if found and (counted is None or int(found[1] or found[2]) >= counted):
        return int(found[1] or found[2])
    return counted


def _int(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return int(text.replace(",", ""))
    except ValueError:
        return None
